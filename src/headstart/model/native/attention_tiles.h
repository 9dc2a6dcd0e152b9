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
constexpr int MOST_GROUPS_OF_QUERIES = 4;        // of sixteen, for which a chunk's values are made ready once
constexpr int64_t TILE = LANES * LANES;          // numbers of four bytes

// Queries of one segment that are attended together, and what each sees: the tokens [first, last) of its slot, then `extra` ones,
// which there are only where all are of the same row. sink: one more score, or `NO_SCORE`.
struct Together {
    int count;
    const float *query[MOST_GROUPS_OF_QUERIES * LANES];
    float *out[MOST_GROUPS_OF_QUERIES * LANES];
    int64_t first[MOST_GROUPS_OF_QUERIES * LANES], last[MOST_GROUPS_OF_QUERIES * LANES];
    float sink[MOST_GROUPS_OF_QUERIES * LANES];
    const int64_t *extra;
    int64_t extras;

    int groups() const { return (count + LANES - 1) / LANES; }
};

constexpr float NO_SCORE = -1e38f;  // below all scores, and its difference to itself is 0

// The rows of a slot that a KV head has, `dim` numbers from one to the next. values: the same rows for latent attention, of which
// the first `width` numbers are the value.
struct Rows {
    const BFloat16 *keys, *values;
    int64_t dim, width;
};

// A thread's room for all that, in numbers of four bytes.
struct TilesRoom {
    int64_t dim, width;

    int64_t queries() const { return dim / 2 * LANES; }            // of a group, as products take them
    int64_t values() const { return CHUNK * width / 2; }           // of a chunk, the same
    int64_t rows() const { return CHUNK * dim; }                   // keys and values, where they do not lie together
    int64_t sums() const { return LANES * width; }                 // of a group
    int64_t numbers() const {
        return MOST_GROUPS_OF_QUERIES * (queries() + sums()) + values() + rows() + CHUNK * LANES * 3 / 2 + LANES;
    }
};

inline bool by_tiles(int64_t dim, bool bf16) { return bf16 && dim % STEP == 0 && tiles_permitted(); }

inline __m512i rounded_words(Vec v) {  // a NaN need not stay one: the sum that is divided by has it
    const Words words = words_of(v);
    return (__m512i)((words + ((words >> 16 & 1u) + 0x7fffu)) >> 16);
}

inline __m512i paired(__m512i low, __m512i high) { return _mm512_or_si512(low, _mm512_slli_epi32(high, 16)); }

// 32 bf16 numbers; those that are not finite become 0, as their token's score is none either.
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

// Sixteen queries, or fewer, by two numbers of each: [dim / 2][16 queries][2].
inline void pack_queries(const float *const *queries, int count, int64_t dim, uint32_t *to) {
    __m512i pairs[LANES];
    for (int64_t i = 0; i < dim; i += 2 * LANES) {
        for (int q = 0; q < LANES; q++) {
            pairs[q] = _mm512_setzero_si512();
            if (q >= count) continue;
            BFloat16 numbers[2 * LANES];
            store(numbers, load(queries[q] + i));
            store(numbers + LANES, load(queries[q] + i + LANES));
            pairs[q] = _mm512_loadu_si512(numbers);
        }
        transpose(pairs);
        for (int p = 0; p < LANES; p++) _mm512_store_si512(to + (i / 2 + p) * LANES, pairs[p]);
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

// Scores of sixteen queries with four tiles of sixteen tokens, or fewer: [tokens][16 queries].
inline void score_by_tiles(const BFloat16 *rows, int64_t tiles, int64_t dim, const uint32_t *queries, float *scores) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    const int64_t stride = dim * sizeof(BFloat16), apart = LANES * dim;
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

// sums[16 queries][width] += weights [steps][16 queries][32 tokens] times values, as `pack_values` lays them.
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

// Rows that will be needed soon, as bytes: the processor does not foresee the next chunk where a chunk ends.
struct Ahead {
    const char *keys, *values;
    int64_t row, end;

    void fetch(int64_t token) const {
        for (int64_t byte = token * row; byte < std::min(end, token * row + row); byte += 64) {
            _mm_prefetch(keys + byte, _MM_HINT_T1);
            if (values != keys) _mm_prefetch(values + byte, _MM_HINT_T1);
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
    const TilesRoom sizes{dim, width};
    const int groups = all.groups();
    uint32_t *queries = (uint32_t *)((uintptr_t(room) + 63) / 64 * 64), *packed = queries + groups * sizes.queries();
    uint32_t *weights = packed + sizes.values();
    float *scores = (float *)(weights + CHUNK * LANES / 2), *sums = scores + CHUNK * LANES;
    BFloat16 *own_keys = (BFloat16 *)(sums + groups * sizes.sums()), *own_values = own_keys + CHUNK * dim;
    Seen seen[MOST_GROUPS_OF_QUERIES];
    int64_t begin = INT64_MAX, end = 0;
    for (int g = 0; g < groups; g++) {
        const int from = g * LANES, count = all.count - from < LANES ? all.count - from : LANES;
        float first[LANES], last[LANES], peak[LANES], total[LANES];
        seen[g] = Seen{{}, {}, {}, {}, INT64_MAX, 0, INT64_MAX, 0};
        for (int q = 0; q < LANES; q++) {
            const int own = from + (q < count ? q : 0);
            const int64_t tokens = all.last[own] + all.extras;
            first[q] = float(all.first[own]);
            last[q] = float(tokens);
            peak[q] = all.sink[own];
            total[q] = peak[q] == NO_SCORE ? 0.0f : 1.0f;
            seen[g].early = std::min(seen[g].early, all.first[own]);
            seen[g].late = std::max(seen[g].late, all.first[own]);
            seen[g].least = std::min(seen[g].least, tokens);
            seen[g].most = std::max(seen[g].most, tokens);
        }
        seen[g].first = load(first);
        seen[g].last = load(last);
        seen[g].peak = load(peak);
        seen[g].total = load(total);
        begin = std::min(begin, seen[g].early / CHUNK * CHUNK);
        end = std::max(end, seen[g].most);
        pack_queries(all.query + from, count, dim, queries + g * sizes.queries());
    }
    std::memset(sums, 0, groups * sizes.sums() * sizeof(float));
    for (int64_t first = begin; first < end; first += CHUNK) {
        const int64_t count = end - first < CHUNK ? end - first : CHUNK, run = all.last[0];
        const BFloat16 *keys = of.keys + first * dim, *values = of.values + first * dim;
        if (all.extras && first + count > run) {  // in the order of the text
            for (int64_t t = 0; t < count; t++) {
                const int64_t token = first + t < run ? first + t : all.extra[first + t - run];
                std::memcpy(own_keys + t * dim, of.keys + token * dim, dim * sizeof(BFloat16));
                if (of.values != of.keys)
                    std::memcpy(own_values + t * dim, of.values + token * dim, width * sizeof(BFloat16));
            }
            keys = own_keys;
            values = of.values == of.keys ? own_keys : own_values;
            written();
        }
        const int64_t row = dim * sizeof(BFloat16), rest = std::max(all.last[0] - first - CHUNK, int64_t(0));
        Ahead ahead{(const char *)(of.keys + (first + CHUNK) * dim), (const char *)(of.values + (first + CHUNK) * dim), row, rest * row};
        pack_values(values, count, dim, width, packed);
        for (int g = 0; g < groups; g++) {
            const int64_t most = seen[g].most - first, own = most < count ? most : count;
            if (own <= 0 || first + own <= seen[g].early) continue;
            for (int64_t t = 0; t < own; t += 4 * LANES)
                score_by_tiles(keys + t * dim, (own - t + LANES - 1) / LANES, dim, queries + g * sizes.queries(),
                            scores + t * LANES);
            float before[LANES];
            store(before, weigh(scores, first, own, how, seen[g], ahead, weights));
            ahead.end = 0;  // once is enough
            float *sum = sums + g * sizes.sums();
            for (int q = 0; q < LANES && first > begin; q++) {
                if (before[q] == 1.0f) continue;
                for (int64_t i = 0; i < width; i += LANES) store(sum + q * width + i, load(sum + q * width + i) * before[q]);
            }
            add_values(weights, packed, (own + STEP - 1) / STEP, width, sum);
        }
    }
    for (int q = 0; q < all.count; q++) {
        const float *sum = sums + q / LANES * sizes.sums() + q % LANES * width, inverse = 1.0f / seen[q / LANES].total[q % LANES];
        for (int64_t i = 0; i < width; i += LANES) store(all.out[q] + i, load(sum + i) * inverse);
    }
}

// Attention of all queries of a batch: query and attended [rows, heads, dim]. keys, values, width: see `Rows`.
inline void attend_by_tiles(Member &team, const float *query, const BFloat16 *keys, const BFloat16 *values, int64_t width,
                            const Visible &visible, const Shape &s, const How &how, const int64_t *segments,
                            int64_t segment_count, const int64_t *slots, float *attended, float *room) {
    const int64_t group = s.heads / s.kv_heads;
    // by row where rows see tokens one by one, else all rows of a segment
    const auto by_row = [&](int64_t k) { return visible.extra_begin[segments[k + 1]] > visible.extra_begin[segments[k]]; };
    const auto parts = [&](int64_t queries) {
        const int64_t groups = (queries + LANES - 1) / LANES;
        const int64_t most = (groups + MOST_GROUPS_OF_QUERIES - 1) / MOST_GROUPS_OF_QUERIES;
        return std::max(most, std::min(groups, (team.threads() + s.kv_heads - 1) / s.kv_heads));
    };
    const auto tasks_of = [&](int64_t k) {
        const int64_t rows = segments[k + 1] - segments[k];
        return s.kv_heads * (by_row(k) ? rows * parts(group) : parts(rows * group));
    };
    int64_t tasks = 0;
    for (int64_t k = 0; k < segment_count; k++) tasks += tasks_of(k);
    team.pieces(tasks, [&](int64_t task) {
        int64_t k = 0;
        for (; task >= tasks_of(k); k++) task -= tasks_of(k);
        const int64_t each_head = tasks_of(k) / s.kv_heads, kv = task / each_head;
        task %= each_head;
        int64_t from = segments[k] * group, to = segments[k + 1] * group;
        if (by_row(k)) {
            const int64_t row = segments[k] + task / parts(group);
            task %= parts(group);
            from = row * group;
            to = from + group;
        }
        const int64_t part = parts(to - from), groups = (to - from + LANES - 1) / LANES;
        const int64_t each = (groups + part - 1) / part * LANES, first = from + task * each, last = std::min(first + each, to);
        Together all;
        all.count = int(std::max(last - first, int64_t(0)));
        if (!all.count) return;
        for (int q = 0; q < all.count; q++) {
            const int64_t row = (first + q) / group, head = kv * group + (first + q) % group;
            all.query[q] = query + (row * s.heads + head) * s.dim;
            all.out[q] = attended + (row * s.heads + head) * s.dim;
            all.first[q] = visible.first[row];
            all.last[q] = visible.last[row];
            all.sink[q] = how.sinks ? how.sinks[head] : NO_SCORE;
        }
        const int64_t row = first / group, before = (slots[segments[k]] * s.kv_heads + kv) * s.capacity * s.dim;
        all.extras = by_row(k) ? visible.extra_begin[row + 1] - visible.extra_begin[row] : 0;
        all.extra = visible.extra + visible.extra_begin[row];
        attend_by_tiles(all, Rows{keys + before, values + before, s.dim, width}, how, room);
    });
}

#endif
