// Attention of single rows over cached keys and values, in an order that depends on the row's text alone.
#pragma once

#include "numbers.h"

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

// Who sees whom. A row's keys, in order: the cached tokens [first, last), then `extra` ones listed one by one.
struct View {
    const int64_t *first, *last, *extra_begin, *extra;
};

constexpr int BLOCK = 8;

// Scores of up to BLOCK queries against the sixteen keys of one tile; one chain of sums over dim for each score.
template <int N, class KV>
inline void score_tile(const float *const *query, const KV *tile, int64_t dim, float scaling, float *const *scores,
                       int64_t token) {
    Vec sums[N];
    HEADSTART_UNROLL
    for (int q = 0; q < N; q++) sums[q] = Vec{};
    for (int64_t i = 0; i < dim; i++) {
        Vec k = load(tile + i * LANES);
        HEADSTART_UNROLL
        for (int q = 0; q < N; q++) sums[q] += k * query[q][i];
    }
    HEADSTART_UNROLL
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
    HEADSTART_UNROLL
    for (int q = 0; q < N; q++)
        HEADSTART_UNROLL
        for (int p = 0; p < PARTS; p++) sums[q][p] = load(out[q] + p * LANES);
    for (int64_t token = from; token < to; token++)
        HEADSTART_UNROLL
        for (int p = 0; p < PARTS; p++) {
            Vec v = load(values + token * dim + p * LANES);
            HEADSTART_UNROLL
            for (int q = 0; q < N; q++) sums[q][p] += v * weights[q][token];
        }
    HEADSTART_UNROLL
    for (int q = 0; q < N; q++)
        HEADSTART_UNROLL
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

