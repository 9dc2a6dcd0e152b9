// What happens between two matrix products of a Llama-shaped decoder, row by row.
//
// Every function treats each row (one token) by itself and in one fixed order of operations: a row's result has the
// same bits whether it runs alone, beside the rows of a draft, or in a batch. Work is shared out over threads in whole
// rows or in whole (segment, KV head) pairs, never inside a sum.
//
// Plain C++17 with the vector extension of GCC and Clang, so that one source serves every processor. Sixteen lanes
// are one AVX-512 register, two of AVX2, four of NEON.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int LANES = 16;
typedef float Vec __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));
typedef uint8_t Bytes __attribute__((vector_size(16)));

struct BFloat16 {
    uint16_t bits;
};

inline Vec load(const float *from) {
    Vec v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline Vec load(const BFloat16 *from) {
    Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    Words words = __builtin_convertvector(halves, Words) << 16;
    Vec v;
    std::memcpy(&v, &words, sizeof v);
    return v;
}

inline void store(float *to, Vec v) { std::memcpy(to, &v, sizeof v); }

// Round to nearest, ties to even; a NaN keeps its upper bits and is made quiet.
inline void store(BFloat16 *to, Vec v) {
    Words words;
    std::memcpy(&words, &v, sizeof v);
    Words rounded = (words + 0x7fff + ((words >> 16) & 1)) >> 16;
    Words quiet = (words >> 16) | 0x40;
    Words nan = (Words)(v != v);
    Halves halves = __builtin_convertvector((nan & quiet) | (~nan & rounded), Halves);
    std::memcpy(to, &halves, sizeof halves);
}

inline Vec splat(float value) { return Vec{} + value; }

inline float sum(Vec v) {
    float halves[LANES];
    store(halves, v);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) halves[i] += halves[i + width];
    return halves[0];
}

inline Vec larger(Vec a, Vec b) { return a > b ? a : b; }

inline float largest(Vec v) {
    float best = v[0];
    for (int i = 1; i < LANES; i++) best = v[i] > best ? v[i] : best;
    return best;
}

// e^x to within two units in the last place: 2^n times a polynomial of degree 6 on |r| <= ln(2)/2. NaN stays NaN.
inline Vec exponential(Vec x) {
    x = x < -87.0f ? splat(-87.0f) : x;
    x = x > 88.0f ? splat(88.0f) : x;
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding and taking it away rounds to a whole number
    Vec n = (x * 1.44269504f + magic) - magic;
    Vec r = x - n * 0.693145752f;
    r = r - n * 1.42860677e-6f;
    Vec y = splat(1.3888889e-3f);
    y = y * r + 8.3333333e-3f;
    y = y * r + 4.1666667e-2f;
    y = y * r + 1.6666667e-1f;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    Ints exponent = (__builtin_convertvector(n, Ints) + 127) << 23;
    Vec power;
    std::memcpy(&power, &exponent, sizeof power);
    return y * power;
}

// A thread's own memory, kept from call to call: fresh pages would cost more than the work.
template <int WHICH>
inline float *scratch(size_t numbers) {
    static thread_local std::vector<float> kept;
    if (kept.size() < numbers) kept.resize(numbers);
    return kept.data();
}

// A row of width `width` as the next matrix product takes it. Widths are multiples of 16 (checked by the caller).

inline void emit(const float *row, int64_t width, float *to, float *) {
    if (row != to) std::memcpy(to, row, width * sizeof(float));
}

inline void emit(const float *row, int64_t width, BFloat16 *to, float *) {
    for (int64_t i = 0; i < width; i += LANES) store(to + i, load(row + i));
}

// Symmetric int8 with zero point 128 and the row's own scale. A NaN or an infinity makes the scale NaN.
inline void emit(const float *row, int64_t width, uint8_t *to, float *scale) {
    Vec peak = {}, finite = {};
    for (int64_t i = 0; i < width; i += LANES) {
        Vec v = load(row + i);
        peak = larger(peak, v < 0 ? -v : v);
        finite += v * 0.0f;
    }
    float most = largest(peak);
    *scale = most / 127.0f + sum(finite);
    float inverse = most > 0 ? 127.0f / most : 0.0f;
    const float magic = 12582912.0f;
    for (int64_t i = 0; i < width; i += LANES) {
        Vec rounded = load(row + i) * inverse + magic;
        Words words;
        std::memcpy(&words, &rounded, sizeof words);
        Bytes bytes = __builtin_convertvector(words + 128, Bytes);  // the low bits of 1.5 * 2^23 + q are q
        std::memcpy(to + i, &bytes, sizeof bytes);
    }
}

template <class Y>
inline Vec product(const Y *y, int64_t i, float scale, const float *bias) {
    Vec v = load(y + i) * scale;
    return bias ? v + load(bias + i) : v;
}

// x += y * y_scale + bias, then out = x / rms(x) * gain. `rows` picks the rows that are normed, or null for all.
template <class Y, class Out>
void norm(float *x, const Y *y, const float *y_scale, const float *bias, const float *gain, float eps,
          const int64_t *rows, int64_t count, int64_t width, Out *out, float *out_scale, int threads) {
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *normed = scratch<0>(width);
#pragma omp for schedule(static)
        for (int64_t n = 0; n < count; n++) {
            int64_t r = rows ? rows[n] : n;
            float *row = x + r * width;
            Vec squares = {};
            for (int64_t i = 0; i < width; i += LANES) {
                Vec v = load(row + i);
                if (y) {
                    v += product(y + r * width, i, y_scale ? y_scale[r] : 1.0f, bias);
                    store(row + i, v);
                }
                squares += v * v;
            }
            float factor = 1.0f / std::sqrt(sum(squares) / float(width) + eps);
            for (int64_t i = 0; i < width; i += LANES) store(normed + i, load(row + i) * factor * load(gain + i));
            emit(normed, width, out + n * width, out_scale + n);
        }
    }
}

// out = silu(gate) * up, where y holds gate and up side by side.
template <class Y, class Out>
void gated(const Y *y, const float *y_scale, const float *bias, int64_t count, int64_t width, Out *out,
           float *out_scale, int threads) {
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *row = scratch<0>(width);
#pragma omp for schedule(static)
        for (int64_t n = 0; n < count; n++) {
            const Y *gate = y + n * 2 * width, *up = gate + width;
            float scale = y_scale ? y_scale[n] : 1.0f;
            for (int64_t i = 0; i < width; i += LANES) {
                Vec g = product(gate, i, scale, bias), u = product(up, i, scale, bias ? bias + width : bias);
                store(row + i, g / (1.0f + exponential(-g)) * u);
            }
            emit(row, width, out + n * width, out_scale + n);
        }
    }
}

// Where everything of one attention layer lies. Keys are stored in tiles of 16 tokens, [heads, capacity / 16, dim, 16],
// so that sixteen scores are computed at once; values as [heads, capacity, dim].
struct Shape {
    int64_t heads, kv_heads, dim, capacity;
};

template <class T>
inline T *key_tile(T *keys, const Shape &s, int64_t slot, int64_t head, int64_t token) {
    return keys + ((slot * s.kv_heads + head) * (s.capacity / LANES) + token / LANES) * s.dim * LANES;
}

template <class T>
inline T *value_row(T *values, const Shape &s, int64_t slot, int64_t head, int64_t token) {
    return values + ((slot * s.kv_heads + head) * s.capacity + token) * s.dim;
}

// Unpack [q | k | v] of each row, norm (Qwen3) and rotate q and k, write k and v to their place in the cache.
template <class Y, class KV>
void rotate(const Y *y, const float *y_scale, const float *bias, const float *q_gain, const float *k_gain, float eps,
            const float *cosine, const float *sine, const int64_t *positions, const int64_t *slots,
            const int64_t *places, int64_t count, const Shape &s, float *query, KV *keys, KV *values, int threads) {
    const int64_t all = s.heads + 2 * s.kv_heads, half = s.dim / 2;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *head = scratch<0>(3 * s.dim);  // as it came, rotated, and as it is stored
#pragma omp for schedule(static)
        for (int64_t n = 0; n < count; n++) {
            const float *c = cosine + positions[n] * half, *d = sine + positions[n] * half;
            for (int64_t h = 0; h < all; h++) {
                const int64_t at = h * s.dim;
                const Y *from = y + n * all * s.dim + at;
                const float scale = y_scale ? y_scale[n] : 1.0f;
                Vec squares = {};
                for (int64_t i = 0; i < s.dim; i += LANES) {
                    Vec v = product(from, i, scale, bias ? bias + at : bias);
                    squares += v * v;
                    store(head + i, v);
                }
                if (h >= s.heads + s.kv_heads) {
                    KV *to = value_row(values, s, slots[n], h - s.heads - s.kv_heads, places[n]);
                    for (int64_t i = 0; i < s.dim; i += LANES) store(to + i, load(head + i));
                    continue;
                }
                const float *gain = h < s.heads ? q_gain : k_gain;
                if (gain) {
                    float factor = 1.0f / std::sqrt(sum(squares) / float(s.dim) + eps);
                    for (int64_t i = 0; i < s.dim; i += LANES)
                        store(head + i, load(head + i) * factor * load(gain + i));
                }
                float *rotated = h < s.heads ? query + (n * s.heads + h) * s.dim : head + s.dim;
                for (int64_t i = 0; i < half; i++) {
                    rotated[i] = head[i] * c[i] - head[i + half] * d[i];
                    rotated[i + half] = head[i + half] * c[i] + head[i] * d[i];
                }
                if (h < s.heads) continue;
                KV *stored = (KV *)(rotated + s.dim);
                for (int64_t i = 0; i < s.dim; i += LANES) store(stored + i, load(rotated + i));
                KV *tile = key_tile(keys, s, slots[n], h - s.heads, places[n]) + places[n] % LANES;
                for (int64_t i = 0; i < s.dim; i++) tile[i * LANES] = stored[i];
            }
        }
    }
}

// Who sees whom. A row's keys, in order: the cached tokens [first, last), then `extra` ones listed one by one.
struct View {
    const int64_t *slots, *first, *last, *extra_begin, *extra;
    const int64_t *segments;  // segment k owns the rows [segments[k], segments[k + 1])
    int64_t segment_count;
};

constexpr int BLOCK = 8;

// Scores of up to BLOCK queries against the sixteen keys of one tile; one chain of sums over dim for each score.
template <int N, class KV>
inline void score_tile(const float *const *query, const KV *tile, int64_t dim, float scaling, float *const *scores,
                       int64_t token) {
    Vec sums[N];
    for (int q = 0; q < N; q++) sums[q] = Vec{};
    for (int64_t i = 0; i < dim; i++) {
        Vec k = load(tile + i * LANES);
        for (int q = 0; q < N; q++) sums[q] += k * query[q][i];
    }
    for (int q = 0; q < N; q++) store(scores[q] + token, sums[q] * scaling);
}

template <class KV>
inline void score(int n, const float *const *query, const KV *tile, int64_t dim, float scaling, float *const *scores,
                  int64_t token) {
    int q = 0;
    for (; q + 4 <= n; q += 4) score_tile<4>(query + q, tile, dim, scaling, scores + q, token);
    for (; q + 2 <= n; q += 2) score_tile<2>(query + q, tile, dim, scaling, scores + q, token);
    for (; q < n; q++) score_tile<1>(query + q, tile, dim, scaling, scores + q, token);
}

// weights[0..count) become e^(score - max); returns their sum, added up in sixteen lanes by place in the row's order.
inline float soften(float *weights, int64_t count) {
    const int64_t padded = (count + LANES - 1) / LANES * LANES;
    for (int64_t i = count; i < padded; i++) weights[i] = -INFINITY;
    Vec peak = splat(-INFINITY);
    for (int64_t i = 0; i < padded; i += LANES) peak = larger(peak, load(weights + i));
    const float most = largest(peak);
    for (int64_t i = 0; i < padded; i += LANES) store(weights + i, exponential(load(weights + i) - most));
    for (int64_t i = count; i < padded; i++) weights[i] = 0;
    Vec total = {};
    for (int64_t i = 0; i < padded; i += LANES) total += load(weights + i);
    return sum(total);
}

// out[q] += sum over the tokens [from, to), in order, of weights[q][token] * value; 64 numbers of each of N queries
// stay in registers. The weights are given by token.
template <int N, int PARTS, class KV>
inline void mix_part(const float *const *weights, const KV *values, int64_t dim, int64_t from, int64_t to,
                     float *const *out) {
    Vec sums[N][PARTS];
    for (int q = 0; q < N; q++)
        for (int p = 0; p < PARTS; p++) sums[q][p] = load(out[q] + p * LANES);
    for (int64_t token = from; token < to; token++)
        for (int p = 0; p < PARTS; p++) {
            Vec v = load(values + token * dim + p * LANES);
            for (int q = 0; q < N; q++) sums[q][p] += v * weights[q][token];
        }
    for (int q = 0; q < N; q++)
        for (int p = 0; p < PARTS; p++) store(out[q] + p * LANES, sums[q][p]);
}

template <int N, class KV>
inline void mix(const float *const *weights, const KV *values, int64_t dim, int64_t from, int64_t to,
                float *const *out) {
    float *at[N];
    for (int64_t d = 0; d < dim;) {
        for (int q = 0; q < N; q++) at[q] = out[q] + d;
        if (dim - d >= 4 * LANES) {
            mix_part<N, 4>(weights, values + d, dim, from, to, at);
            d += 4 * LANES;
        } else {
            mix_part<N, 1>(weights, values + d, dim, from, to, at);
            d += LANES;
        }
    }
}

// One query of a block: its scores by token, which become its weights by token, and the tokens it sees.
struct Reader {
    float *scores, *out;
    int64_t first, last, extras;
    const int64_t *extra;
};

// Softmax in the order of the text, so that the sum's order does not depend on where a draft's nodes happen to lie.
inline void soften(Reader &r, float *logical) {
    const int64_t run = r.last - r.first;
    std::memcpy(logical, r.scores + r.first, run * sizeof(float));
    for (int64_t e = 0; e < r.extras; e++) logical[run + e] = r.scores[r.extra[e]];
    const float inverse = 1.0f / soften(logical, run + r.extras);
    for (int64_t i = 0; i < run; i++) r.scores[r.first + i] = logical[i] * inverse;
    for (int64_t e = 0; e < r.extras; e++) r.scores[r.extra[e]] = logical[run + e] * inverse;
}

// What all readers see without a gap is read once for four of them; what is a reader's own, for it alone.
template <class KV>
inline void mix_block(Reader *readers, int n, const KV *values, int64_t dim) {
    int64_t from = readers[0].first, to = readers[0].last;
    for (int q = 1; q < n; q++) {
        if (readers[q].first > from) from = readers[q].first;
        if (readers[q].last < to) to = readers[q].last;
    }
    if (to < from) to = from;
    const float *weights[BLOCK];
    float *out[BLOCK];
    for (int q = 0; q < n; q++) {
        weights[q] = readers[q].scores;
        out[q] = readers[q].out;
        std::memset(out[q], 0, dim * sizeof(float));
        const int64_t early = from < readers[q].last ? from : readers[q].last;
        mix<1>(weights + q, values, dim, readers[q].first, early, out + q);
    }
    int q = 0;
    for (; q + 4 <= n; q += 4) mix<4>(weights + q, values, dim, from, to, out + q);
    for (; q + 2 <= n; q += 2) mix<2>(weights + q, values, dim, from, to, out + q);
    for (; q < n; q++) mix<1>(weights + q, values, dim, from, to, out + q);
    for (q = 0; q < n; q++) {
        const Reader &r = readers[q];
        mix<1>(weights + q, values, dim, to > r.first ? to : r.first, r.last, out + q);
        for (int64_t e = 0; e < r.extras; e++) mix<1>(weights + q, values, dim, r.extra[e], r.extra[e] + 1, out + q);
    }
}

template <class KV>
inline void attend_block(const float *query, const KV *tiles, const KV *values, const View &view, const Shape &s,
                         float scaling, int64_t kv, int64_t at, int n, float *mixed, float *physical, float *logical) {
    const int64_t group = s.heads / s.kv_heads, room = s.capacity + LANES;
    const float *queries[BLOCK];
    float *scores[BLOCK];
    Reader readers[BLOCK];
    int64_t low = s.capacity, high = 0;
    for (int q = 0; q < n; q++) {
        const int64_t row = (at + q) / group, head = kv * group + (at + q) % group;
        const int64_t begin = view.extra_begin[row], extras = view.extra_begin[row + 1] - begin;
        queries[q] = query + (row * s.heads + head) * s.dim;
        scores[q] = physical + q * room;
        readers[q] = Reader{scores[q], mixed + (row * s.heads + head) * s.dim, view.first[row], view.last[row],
                            extras, view.extra + begin};
        const int64_t end = extras ? view.extra[begin + extras - 1] + 1 : view.last[row];  // extras rise
        const int64_t start = view.first[row] < view.last[row] || !extras ? view.first[row] : view.extra[begin];
        if (start < low) low = start;
        if (end > high) high = end;
    }
    for (int64_t token = low / LANES * LANES; token < high; token += LANES)
        score(n, queries, tiles + token * s.dim, s.dim, scaling, scores, token);
    for (int q = 0; q < n; q++) soften(readers[q], logical);
    mix_block(readers, n, values, s.dim);
}

template <class KV, class Out>
void attend(const float *query, const KV *keys, const KV *values, const View &view, const Shape &s, float scaling,
            int64_t count, float *mixed, Out *out, float *out_scale, int threads) {
    const int64_t group = s.heads / s.kv_heads;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const int64_t room = s.capacity + LANES;
        float *physical = scratch<0>(BLOCK * room), *logical = scratch<1>(room);
        for (int64_t segment = 0; segment < view.segment_count; segment++) {
            const int64_t begin = view.segments[segment] * group, end = view.segments[segment + 1] * group;
            const int64_t slot = view.slots[view.segments[segment]], blocks = (end - begin + BLOCK - 1) / BLOCK;
#pragma omp for schedule(dynamic) nowait
            for (int64_t task = 0; task < blocks * s.kv_heads; task++) {
                const int64_t kv = task / blocks, at = begin + task % blocks * BLOCK;
                const int n = int(end - at < BLOCK ? end - at : BLOCK);
                attend_block(query, key_tile(keys, s, slot, kv, 0), value_row(values, s, slot, kv, 0), view, s, scaling,
                             kv, at, n, mixed, physical, logical);
            }
        }
#pragma omp barrier
#pragma omp for schedule(static)
        for (int64_t n = 0; n < count; n++)
            emit(mixed + n * s.heads * s.dim, s.heads * s.dim, out + n * s.heads * s.dim, out_scale + n);
    }
}

// The accepted path's keys and values to consecutive places: token base + path[i] to base + i, in rising order.
template <class KV>
void gather(KV *keys, KV *values, const Shape &s, int64_t slot, int64_t base, const int64_t *path, int64_t count) {
    for (int64_t h = 0; h < s.kv_heads; h++)
        for (int64_t i = 0; i < count; i++) {
            const int64_t from = base + path[i], to = base + i;
            if (from == to) continue;
            const KV *source = key_tile(keys, s, slot, h, from) + from % LANES;
            KV *target = key_tile(keys, s, slot, h, to) + to % LANES;
            for (int64_t d = 0; d < s.dim; d++) target[d * LANES] = source[d * LANES];
            std::memcpy(value_row(values, s, slot, h, to), value_row(values, s, slot, h, from), s.dim * sizeof(KV));
        }
}

enum Kind { FLOAT32 = 0, BFLOAT16 = 1, INT8 = 2 };

template <class F>
void with_number(int kind, F f) {
    if (kind == BFLOAT16)
        f((BFloat16 *)nullptr);
    else
        f((float *)nullptr);
}

template <class F>
void with_output(int kind, F f) {
    if (kind == INT8)
        f((uint8_t *)nullptr);
    else
        with_number(kind, f);
}

}  // namespace

extern "C" {

void headstart_norm(float *x, const void *y, int y_kind, const float *y_scale, const float *bias, const float *gain,
                    float eps, const int64_t *rows, int64_t count, int64_t width, void *out, int out_kind,
                    float *out_scale, int threads) {
    with_number(y_kind, [&](auto *number) {
        with_output(out_kind, [&](auto *output) {
            norm(x, (decltype(number))y, y_scale, bias, gain, eps, rows, count, width, (decltype(output))out,
                 out_scale, threads);
        });
    });
}

void headstart_gated(const void *y, int y_kind, const float *y_scale, const float *bias, int64_t count, int64_t width,
                     void *out, int out_kind, float *out_scale, int threads) {
    with_number(y_kind, [&](auto *number) {
        with_output(out_kind, [&](auto *output) {
            gated((decltype(number))y, y_scale, bias, count, width, (decltype(output))out, out_scale, threads);
        });
    });
}

void headstart_rotate(const void *y, int y_kind, const float *y_scale, const float *bias, const float *q_gain,
                      const float *k_gain, float eps, const float *cosine, const float *sine, const int64_t *positions,
                      const int64_t *slots, const int64_t *places, int64_t count, const int64_t *shape, float *query,
                      void *keys, void *values, int kv_kind, int threads) {
    const Shape s{shape[0], shape[1], shape[2], shape[3]};
    with_number(y_kind, [&](auto *number) {
        with_number(kv_kind, [&](auto *kv) {
            rotate((decltype(number))y, y_scale, bias, q_gain, k_gain, eps, cosine, sine, positions, slots, places,
                   count, s, query, (decltype(kv))keys, (decltype(kv))values, threads);
        });
    });
}

void headstart_attend(const float *query, const void *keys, const void *values, int kv_kind, const int64_t *slots,
                      const int64_t *first, const int64_t *last, const int64_t *extra_begin, const int64_t *extra,
                      const int64_t *segments, int64_t segment_count, const int64_t *shape, float scaling,
                      int64_t count, float *mixed, void *out, int out_kind, float *out_scale, int threads) {
    const Shape s{shape[0], shape[1], shape[2], shape[3]};
    const View view{slots, first, last, extra_begin, extra, segments, segment_count};
    with_number(kv_kind, [&](auto *kv) {
        with_output(out_kind, [&](auto *output) {
            attend(query, (decltype(kv))keys, (decltype(kv))values, view, s, scaling, count, mixed,
                   (decltype(output))out, out_scale, threads);
        });
    });
}

void headstart_gather(void *keys, void *values, int kv_kind, const int64_t *shape, int64_t slot, int64_t base,
                      const int64_t *path, int64_t count) {
    const Shape s{shape[0], shape[1], shape[2], shape[3]};
    with_number(kv_kind, [&](auto *kv) {
        gather((decltype(kv))keys, (decltype(kv))values, s, slot, base, path, count);
    });
}
}
