// Attention by tiles (AMX): sixteen queries at a time with rows of bf16, where the processor has tiles. Keys lie as values do,
// a row for each token.
//
// Each query passes through its text in its own order, CHUNK tokens at a time, counted from the text's first token. After a
// chunk the sums so far are scaled to the largest score so far (online softmax, arXiv:1805.02867). Tokens that a query does not
// see have the weight 0 and change no sum. So its result depends on its text alone, whatever queries are beside it.
#pragma once

#include <algorithm>

#include "latent.h"
#include "tiles.h"

#if defined(HEADSTART_TILES)

constexpr int64_t CHUNK = 128, STEP = 32;        // tokens; those, and numbers of a row, that a tile instruction sums up
constexpr int MOST_SIXTEENS = 4;                   // of sixteen queries, for which a chunk's values are made ready once
constexpr int MOST_HEADS = 4;                    // that share a group, each with a few queries
constexpr int64_t TILE = LANES * LANES;          // numbers of four bytes

constexpr float NO_SCORE = -1e38f;  // below all scores, and its difference to itself is 0

// One query, and what it sees: the tokens [first, last) of its slot, then `extra` ones. sink: one more score, or `NO_SCORE`.
struct Asking {
    const float *query;
    float *out;
    int64_t row, first, last;
    const int64_t *extra;
    int64_t extras;
    float sink;
};

// Queries of one segment that are attended together: as many of each of `heads` KV heads. Those of several heads fit into a
// group.
struct Together {
    int count, heads;
    Asking of[MOST_SIXTEENS * LANES];

    int groups() const { return (count + LANES - 1) / LANES; }
    int of_head() const { return count / heads; }
};

// The rows of a slot that a KV head has, `dim` numbers from one to the next. values: the same rows for latent attention, of which
// the first `width` numbers are the value. apart: numbers from one head to the next.
struct Rows {
    const BFloat16 *keys, *values;
    int64_t dim, width, apart;
};

// A thread's room for all that, in numbers of four bytes.
struct TilesRoom {
    int64_t dim, width;

    int64_t queries() const { return dim / 2 * LANES; }            // of a group or a head, as products take them
    int64_t values() const { return CHUNK * width / 2; }           // of a chunk, the same
    int64_t rows() const { return CHUNK * dim; }                   // keys and values, where they do not lie together
    int64_t sums() const { return LANES * width; }                 // of a group
    int64_t numbers() const {
        return MOST_SIXTEENS * (queries() + sums()) + MOST_HEADS * (values() + rows()) + CHUNK * LANES * 3 / 2 + LANES;
    }
};
static_assert(MOST_HEADS <= MOST_SIXTEENS);

inline bool by_tiles(int64_t dim, bool bf16) { return bf16 && dim % STEP == 0 && tiles_permitted(); }

inline __m512i rounded_words(Vec v) {  // a NaN need not stay one: the sum that is divided by has it
    const Words words = words_of(v);
    return (__m512i)((words + ((words >> 16 & 1u) + 0x7fffu)) >> 16);
}

inline __m512i paired(__m512i low, __m512i high) { return _mm512_or_si512(low, _mm512_slli_epi32(high, 16)); }

// 32 bf16 numbers; those that are not finite become 0: they may be of a token that only other queries see, or none. Where a row
// that is seen has such numbers, its key has them as a rule, and its score is none.
inline __m512i finite_numbers(const BFloat16 *from) {
    const __m512i numbers = _mm512_loadu_si512(from), most = _mm512_set1_epi16(0x7f80);
    return _mm512_maskz_mov_epi16(_mm512_cmpneq_epi16_mask(_mm512_and_si512(numbers, most), most), numbers);
}

// Number c of vector r to number r of vector c.
inline void transpose(__m512i *v) {
    const __m512i places = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    HEADSTART_UNROLL
    for (int width = 8; width; width /= 2) {
        // of vectors r and r + width, the blocks of `width` numbers in odd and in even places change places
        const __m512i bit = _mm512_set1_epi32(width);
        const __mmask16 odd = _mm512_test_epi32_mask(places, bit);
        const __m512i low = _mm512_mask_add_epi32(places, odd, _mm512_sub_epi32(places, bit), _mm512_set1_epi32(LANES));
        const __m512i high = _mm512_mask_add_epi32(_mm512_add_epi32(places, bit), odd, places, _mm512_set1_epi32(LANES));
        HEADSTART_UNROLL
        for (int r = 0; r < LANES; r++) {
            if (r & width) continue;
            const __m512i a = v[r], b = v[r + width];
            v[r] = _mm512_permutex2var_epi32(a, low, b);
            v[r + width] = _mm512_permutex2var_epi32(a, high, b);
        }
    }
}

// The queries [from, to) of sixteen, by two numbers of each: [dim / 2][16 queries][2]; zeros for the others.
inline void pack_queries(const Asking *all, int from, int to, int64_t dim, uint32_t *packed) {
    __m512i pairs[LANES];
    for (int64_t i = 0; i < dim; i += 2 * LANES) {
        for (int q = 0; q < LANES; q++) {
            pairs[q] = _mm512_setzero_si512();
            if (q < from || q >= to) continue;
            BFloat16 numbers[2 * LANES];
            store(numbers, load(all[q].query + i));
            store(numbers + LANES, load(all[q].query + i + LANES));
            pairs[q] = _mm512_loadu_si512(numbers);
        }
        transpose(pairs);
        for (int p = 0; p < LANES; p++) _mm512_store_si512(packed + (i / 2 + p) * LANES, pairs[p]);
    }
    written();
}

// The values of `count` tokens of a chunk by two tokens: [chunk / 32][width / 16][16 pairs][16 numbers][2]; zeros behind.
inline void pack_values(const BFloat16 *rows, int64_t count, int64_t dim, int64_t width, uint32_t *to) {
    // of the words of two rows, low and high halves of each 128 bits stand side by side: the first 16 numbers' and the others'
    const __m512i first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), second = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    for (int64_t begin = 0; begin < count; begin += STEP)
        for (int64_t p = 0; p < LANES; p++) {
            const int64_t token = begin + 2 * p;
            uint32_t *pair = to + begin / STEP * (width / LANES) * TILE + p * LANES;
            for (int64_t i = 0; i < width; i += 2 * LANES, pair += 2 * TILE) {
                const BFloat16 *own = rows + token * dim + i;
                const __m512i even = token < count ? finite_numbers(own) : _mm512_setzero_si512();
                const __m512i odd = token + 1 < count ? finite_numbers(own + dim) : _mm512_setzero_si512();
                const __m512i low = _mm512_unpacklo_epi16(even, odd), high = _mm512_unpackhi_epi16(even, odd);
                _mm512_store_si512(pair, _mm512_permutex2var_epi64(low, first, high));
                if (i + LANES < width) _mm512_store_si512(pair + TILE, _mm512_permutex2var_epi64(low, second, high));
            }
        }
    written();
}

// e^x to within 1e-5, for weights that are rounded to bf16: 2^n times a polynomial on |r| <= 1/2. NaN stays NaN.
inline Vec weight_of(Vec x) {
    const __m512 t = _mm512_mul_ps((__m512)x, _mm512_set1_ps(1.44269504f));
    const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), r = _mm512_sub_ps(t, n);
    __m512 y = _mm512_set1_ps(9.6181291e-3f);
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(5.5504109e-2f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(2.4022651e-1f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(6.9314718e-1f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f));
    return (Vec)_mm512_scalef_ps(y, n);
}

// Scores of sixteen queries with four tiles of sixteen tokens, or fewer: [tokens][16 queries]. Each query is scored with the keys
// of its own head: in the queries of another one it is zeros.
inline void score_by_tiles(const BFloat16 *rows, int64_t tiles, int64_t dim, int heads, int64_t apart_heads,
                           const uint32_t *queries, float *scores) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    const int64_t stride = dim * sizeof(BFloat16), apart = LANES * dim;
    for (int head = 0; head < heads; head++, rows += apart_heads)
        for (int64_t i = 0; i < dim; i += STEP, queries += TILE) {
            _tile_loadd(6, queries, 64);
            _tile_loadd(4, rows + i, stride);
            _tile_dpbf16ps(0, 4, 6);
            if (tiles > 1) {
                _tile_loadd(5, rows + apart + i, stride);
                _tile_dpbf16ps(1, 5, 6);
            }
            if (tiles > 2) {
                _tile_loadd(4, rows + 2 * apart + i, stride);
                _tile_dpbf16ps(2, 4, 6);
            }
            if (tiles > 3) {
                _tile_loadd(5, rows + 3 * apart + i, stride);
                _tile_dpbf16ps(3, 5, 6);
            }
        }
    _tile_stored(0, scores, 64);
    if (tiles > 1) _tile_stored(1, scores + TILE, 64);
    if (tiles > 2) _tile_stored(2, scores + 2 * TILE, 64);
    if (tiles > 3) _tile_stored(3, scores + 3 * TILE, 64);
    written();
}

// sums[queries][width] += weights [steps][16 queries][32 tokens] times values, as `pack_values` lays them; of as many queries as
// the rows of tiles.
inline void add_values(const uint32_t *weights, const uint32_t *values, int64_t steps, int64_t width, float *sums) {
    const int64_t stride = width * sizeof(float), tiles = width / LANES;
    written();
    for (int64_t at = 0; at < tiles; at += 4) {
        const int64_t side = tiles - at;
        float *own = sums + at * LANES;
        _tile_loadd(0, own, stride);
        if (side > 1) _tile_loadd(1, own + LANES, stride);
        if (side > 2) _tile_loadd(2, own + 2 * LANES, stride);
        if (side > 3) _tile_loadd(3, own + 3 * LANES, stride);
        for (int64_t step = 0; step < steps; step++) {
            const uint32_t *numbers = values + (step * tiles + at) * TILE;
            _tile_loadd(4, weights + step * TILE, 64);
            _tile_loadd(6, numbers, 64);
            _tile_dpbf16ps(0, 4, 6);
            if (side > 1) {
                _tile_loadd(7, numbers + TILE, 64);
                _tile_dpbf16ps(1, 4, 7);
            }
            if (side > 2) {
                _tile_loadd(6, numbers + 2 * TILE, 64);
                _tile_dpbf16ps(2, 4, 6);
            }
            if (side > 3) {
                _tile_loadd(7, numbers + 3 * TILE, 64);
                _tile_dpbf16ps(3, 4, 7);
            }
        }
        _tile_stored(0, own, stride);
        if (side > 1) _tile_stored(1, own + LANES, stride);
        if (side > 2) _tile_stored(2, own + 2 * LANES, stride);
        if (side > 3) _tile_stored(3, own + 3 * LANES, stride);
    }
    written();
}

// Of sixteen queries: which tokens each sees, the largest score so far, and the sum of the weights.
struct Seen {
    Vec first, last, peak, total;
    int64_t early, late;   // the first token that any of them sees, and from which on all of them do
    int64_t least, most;   // of `last`
};

// What will be needed soon: the processor does not foresee the next chunk where a chunk ends. token, tokens: of that one.
struct Ahead {
    const Rows &of;
    int heads;
    int64_t token, tokens;

    void fetch(int64_t t) const {
        if (t >= tokens) return;
        for (int head = 0; head < heads; head++)
            for (int64_t i = (token + t) * of.dim; i < (token + t + 1) * of.dim; i += 32) {
                _mm_prefetch((const char *)(of.keys + head * of.apart + i), _MM_HINT_T1);
                if (of.values != of.keys) _mm_prefetch((const char *)(of.values + head * of.apart + i), _MM_HINT_T1);
            }
    }
};

// The scores [count][16 queries] of the tokens from `begin` on become weights, as tiles take them. Returns what the sums so far
// are to be multiplied by.
inline Vec weigh(float *scores, int64_t begin, int64_t count, const How &how, Seen &seen, const Ahead &ahead,
                 uint32_t *weights) {
    Vec peak = seen.peak;
    const Vec none = splat(NO_SCORE);
    const auto only_seen = [&](int64_t token, Vec v, Vec other) {
        const Vec at = splat(float(token));
        if (token >= seen.least) v = select(at < seen.last, v, other);
        if (token < seen.late) v = select(at < seen.first, other, v);
        return v;
    };
    for (int64_t t = 0; t < count; t++) {
        ahead.fetch(t);
        Vec score = load(scores + t * LANES) * how.scaling;
        if (how.softcap != 0.0f) score = capped(score, how.softcap);
        score = only_seen(begin + t, score, none);
        store(scores + t * LANES, score);
        peak = larger(score, peak);
    }
    const Vec before = weight_of(seen.peak - peak);
    Vec total = seen.total * before;
    __m512i pairs[LANES];
    for (int64_t step = 0; step < count; step += STEP) {
        for (int64_t p = 0; p < LANES; p++) {
            __m512i words[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
            for (int64_t side = 0; side < 2; side++) {
                const int64_t t = step + 2 * p + side;
                if (t >= count) continue;
                const Vec weight = only_seen(begin + t, weight_of(load(scores + t * LANES) - peak), Vec{});
                total = total + weight;
                words[side] = rounded_words(weight);
            }
            pairs[p] = paired(words[0], words[1]);
        }
        transpose(pairs);
        for (int64_t q = 0; q < LANES; q++) _mm512_store_si512(weights + (step / STEP * LANES + q) * LANES, pairs[q]);
    }
    seen.peak = peak;
    seen.total = total;
    return before;
}

// Attention of queries of one segment to rows of its slot. room: see `TilesRoom`.
inline void attend_by_tiles(const Together &all, const Rows &of, const How &how, float *room) {
    const Tiles tiles(LANES);
    const int64_t dim = of.dim, width = of.width;
    const bool apart = of.values != of.keys;
    const TilesRoom sizes{dim, width};
    const int groups = all.groups(), heads = all.heads, own_of = all.of_head();
    uint32_t *queries = (uint32_t *)((uintptr_t(room) + 63) / 64 * 64), *packed = queries + MOST_SIXTEENS * sizes.queries();
    uint32_t *weights = packed + MOST_HEADS * sizes.values();
    float *scores = (float *)(weights + CHUNK * LANES / 2), *sums = scores + CHUNK * LANES;
    BFloat16 *own_rows = (BFloat16 *)(sums + MOST_SIXTEENS * sizes.sums());
    Seen seen[MOST_SIXTEENS];
    int64_t begin = INT64_MAX, end = 0, shared = INT64_MAX;
    bool extras = false;
    for (int q = 0; q < all.count; q++) {
        begin = std::min(begin, all.of[q].first / CHUNK * CHUNK);
        end = std::max(end, all.of[q].last);
        shared = std::min(shared, all.of[q].last / CHUNK * CHUNK);
        extras |= all.of[q].extras > 0;
    }
    if (extras) end = std::max(begin, shared);  // what lies behind is seen by each row in an order of its own
    // only: of the queries of one row, which see their extra tokens too, behind the others; or -1
    const auto see = [&](int g, int64_t only, Seen &seen) {
        float first[LANES], last[LANES];
        seen.early = seen.least = INT64_MAX;
        seen.late = seen.most = 0;
        for (int q = 0; q < LANES; q++) {
            const Asking &own = all.of[std::min(g * LANES + q, all.count - 1)];
            const bool sees = only < 0 || own.row == only;
            const int64_t from = sees ? own.first : int64_t(1) << 24, to = own.last + (only < 0 ? 0 : own.extras);
            first[q] = float(from);
            last[q] = float(to);
            seen.late = std::max(seen.late, from);
            if (!sees) continue;
            seen.early = std::min(seen.early, from);
            seen.least = std::min(seen.least, to);
            seen.most = std::max(seen.most, to);
        }
        seen.first = load(first);
        seen.last = load(last);
    };
    for (int g = 0; g < groups; g++) {
        float peak[LANES], total[LANES];
        see(g, -1, seen[g]);
        for (int q = 0; q < LANES; q++) {
            peak[q] = all.of[std::min(g * LANES + q, all.count - 1)].sink;
            total[q] = peak[q] == NO_SCORE ? 0.0f : 1.0f;
        }
        seen[g].peak = load(peak);
        seen[g].total = load(total);
        if (heads == 1) pack_queries(all.of + g * LANES, 0, std::min(all.count - g * LANES, LANES), dim, queries + g * sizes.queries());
    }
    for (int head = 0; head < heads && heads > 1; head++)
        pack_queries(all.of, head * own_of, (head + 1) * own_of, dim, queries + head * sizes.queries());
    std::memset(sums, 0, groups * sizes.sums() * sizeof(float));
    // A group passes through `count` tokens from `first` on, whose values are packed.
    const auto pass = [&](int g, const Rows &chunk, int64_t first, int64_t count, Seen &seen, const Ahead &ahead) {
        for (int64_t t = 0; t < count; t += 4 * LANES)
            score_by_tiles(chunk.keys + t * dim, (count - t + LANES - 1) / LANES, dim, heads, chunk.apart,
                           queries + g * sizes.queries(), scores + t * LANES);
        float before[LANES], *sum = sums + g * sizes.sums();
        store(before, weigh(scores, first, count, how, seen, ahead, weights));
        for (int q = 0; q < LANES; q++) {
            if (before[q] == 1.0f || g * LANES + q >= all.count) continue;
            for (int64_t i = 0; i < width; i += LANES) store(sum + q * width + i, load(sum + q * width + i) * before[q]);
        }
        const int64_t steps = (count + STEP - 1) / STEP;
        if (heads == 1) {
            add_values(weights, packed, steps, width, sum);
            return;
        }
        const Tiles few(own_of);
        for (int head = 0; head < heads; head++)
            add_values(weights + head * own_of * LANES, packed + head * sizes.values(), steps, width, sum + head * own_of * width);
    };
    const auto pack = [&](const Rows &chunk, int64_t count) {
        for (int head = 0; head < heads; head++)
            pack_values(chunk.values + head * chunk.apart, count, dim, width, packed + head * sizes.values());
    };
    for (int64_t first = begin; first < end; first += CHUNK) {
        const int64_t count = std::min(end - first, CHUNK), next = first + CHUNK;
        const Rows chunk{of.keys + first * dim, of.values + first * dim, dim, width, of.apart};
        Ahead ahead{of, heads, next, std::min(end - next, CHUNK)};
        pack(chunk, count);
        for (int g = 0; g < groups; g++) {
            const int64_t own = std::min(seen[g].most - first, count);
            if (own <= 0 || first + own <= seen[g].early) continue;
            pass(g, chunk, first, own, seen[g], ahead);
            ahead.tokens = 0;  // once is enough
        }
    }
    for (int g = 0; g < groups && extras; g++)
        for (int q = g * LANES; q < std::min((g + 1) * LANES, all.count); q++) {
            const Asking &own = all.of[q];
            bool done = false;  // by an earlier query of the same row
            for (int other = g * LANES; other < q; other++) done |= all.of[other].row == own.row;
            if (done) continue;
            Seen only = seen[g];
            see(g, own.row, only);
            for (int64_t first = std::max(end, own.first / CHUNK * CHUNK); first < own.last + own.extras; first += CHUNK) {
                const int64_t count = std::min(own.last + own.extras - first, CHUNK);
                Rows chunk{own_rows, apart ? own_rows + CHUNK * dim : own_rows, dim, width, CHUNK * dim * 2};
                for (int head = 0; head < heads; head++)
                    for (int64_t t = 0; t < count; t++) {
                        const int64_t token = first + t < own.last ? first + t : own.extra[first + t - own.last];
                        const int64_t from = head * of.apart + token * dim, to = head * chunk.apart + t * dim;
                        std::memcpy(own_rows + to, of.keys + from, dim * sizeof(BFloat16));
                        if (apart) std::memcpy(own_rows + CHUNK * dim + to, of.values + from, dim * sizeof(BFloat16));
                    }
                written();
                pack(chunk, count);
                pass(g, chunk, first, count, only, Ahead{of, heads, 0, 0});
            }
            seen[g].peak = only.peak;
            seen[g].total = only.total;
        }
    for (int q = 0; q < all.count; q++) {
        const float *sum = sums + q * width, inverse = 1.0f / seen[q / LANES].total[q % LANES];
        for (int64_t i = 0; i < width; i += LANES) store(all.of[q].out + i, load(sum + i) * inverse);
    }
}

// Attention of all queries of a batch: query and attended [rows, heads, dim]. keys, values, width: see `Rows`.
inline void attend_by_tiles(Member &team, const float *query, const BFloat16 *keys, const BFloat16 *values, int64_t width,
                            const Visible &visible, const Shape &s, const How &how, const int64_t *segments,
                            int64_t segment_count, const int64_t *slots, float *attended, float *room) {
    const int64_t group = s.heads / s.kv_heads, apart = s.capacity * s.dim;
    const auto queries_of = [&](int64_t k) { return (segments[k + 1] - segments[k]) * group; };  // of a KV head
    // KV heads whose queries make up a group, where threads are busy without more tasks than that
    const auto heads_of = [&](int64_t k) {
        const int64_t fit = std::min(LANES / std::max(int64_t(1), queries_of(k)), s.kv_heads * segment_count / team.threads());
        return std::max(int64_t(1), std::min({fit, int64_t(MOST_HEADS), s.kv_heads}));
    };
    const auto parts = [&](int64_t k) {
        const int64_t groups = (queries_of(k) + LANES - 1) / LANES, most = (groups + MOST_SIXTEENS - 1) / MOST_SIXTEENS;
        return std::max(most, std::min(groups, (team.threads() + s.kv_heads - 1) / s.kv_heads));
    };
    const auto tasks_of = [&](int64_t k) { return (s.kv_heads + heads_of(k) - 1) / heads_of(k) * parts(k); };
    int64_t tasks = 0;
    for (int64_t k = 0; k < segment_count; k++) tasks += tasks_of(k);
    team.pieces(tasks, [&](int64_t task) {
        int64_t k = 0;
        for (; task >= tasks_of(k); k++) task -= tasks_of(k);
        const int64_t part = parts(k), kv = task / part * heads_of(k), groups = (queries_of(k) + LANES - 1) / LANES;
        const int64_t each = (groups + part - 1) / part * LANES, first = task % part * each;
        const int64_t count = std::min(each, queries_of(k) - first);
        if (count <= 0) return;
        Together all;
        all.heads = int(std::min(heads_of(k), s.kv_heads - kv));
        all.count = int(count * all.heads);
        for (int q = 0; q < all.count; q++) {
            const int64_t at = first + q % count, row = segments[k] + at / group, head = (kv + q / count) * group + at % group;
            const int64_t own = (row * s.heads + head) * s.dim, extra = visible.extra_begin[row];
            all.of[q] = Asking{query + own, attended + own, row, visible.first[row], visible.last[row], visible.extra + extra,
                               visible.extra_begin[row + 1] - extra, how.sinks ? std::max(how.sinks[head], NO_SCORE) : NO_SCORE};
        }
        const int64_t before = (slots[segments[k]] * s.kv_heads + kv) * apart;
        attend_by_tiles(all, Rows{keys + before, values + before, s.dim, width, apart}, how, room);
    });
}

#endif
