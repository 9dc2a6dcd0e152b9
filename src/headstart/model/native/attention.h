// Attention of single rows over cached keys and values, in an order that depends on the row's text alone.
#pragma once

#include "numbers.h"

// Where everything of one attention layer lies. Keys are stored in tiles of 16 tokens, [heads, capacity / 16, dim, 16],
// so that sixteen scores are computed at once; values as [heads, capacity, dim].
struct Shape {
    int64_t heads, kv_heads, dim, capacity;
};

// A number of a key or a value that is rounded to 8 bits. What it is a multiple of is a float32 of its row, which stands behind
// the numbers, as four more.
struct Code {
    int8_t number;
};

// Numbers of a row's kind that its scale takes.
template <class KV>
constexpr int64_t SCALE = std::is_same_v<std::remove_const_t<KV>, Code> ? sizeof(float) / sizeof(KV) : 0;

inline Vec load(const Code *from) { return load_bytes((const uint8_t *)from); }

// What the numbers before `behind` are multiples of.
inline float scale_at(const Code *behind) { return float_at((const uint8_t *)behind); }

template <class KV>
inline void store_row(const float *row, int64_t dim, KV *to) {
    for (int64_t i = 0; i < dim; i += LANES) store(to + i, load(row + i));
}

inline void store_row(const float *row, int64_t dim, Code *to) {
    float scale;
    round_row(row, dim, 0, (uint8_t *)to, &scale);
    std::memcpy(to + dim, &scale, sizeof scale);
}

template <class KV>
inline KV *key_tile(KV *keys, const Shape &s, int64_t slot, int64_t head, int64_t token) {
    return keys + ((slot * s.kv_heads + head) * (s.capacity / LANES) + token / LANES) * (s.dim + SCALE<KV>) * LANES;
}

template <class KV>
inline KV *value_row(KV *values, const Shape &s, int64_t slot, int64_t head, int64_t token) {
    return values + ((slot * s.kv_heads + head) * s.capacity + token) * (s.dim + SCALE<KV>);
}

// A key, as `store_row` leaves it, to its place in a tile.
template <class KV>
inline void place_key(const KV *key, int64_t dim, KV *tile, int64_t place) {
    for (int64_t i = 0; i < dim + SCALE<KV>; i++) tile[i * LANES + place] = key[i];
}

// The scales of sixteen keys, from behind their tile.
inline Vec scales_behind(const Code *tile) {
    uint8_t bytes[LANES * sizeof(float)];
    for (int t = 0; t < LANES; t++)
        for (int b = 0; b < int(sizeof(float)); b++) bytes[t * sizeof(float) + b] = uint8_t(tile[b * LANES + t].number);
    float scales[LANES];
    std::memcpy(scales, bytes, sizeof scales);
    return load(scales);
}

// Who sees whom. A row's keys, in order: the cached tokens [first, last), then `extra` ones listed one by one.
struct Visible {
    const int64_t *first, *last, *extra_begin, *extra;
};

constexpr int BLOCK = 8;

// Scores of N queries against the keys of TILES tiles, sixteen each; one chain of sums over dim for each score. The queries
// stand side by side, [dim, BLOCK], so that one address leads to all of them. The next tiles are on their way meanwhile: since
// this layer's last turn all weights have passed through the cache.
template <int N, int TILES, class KV>
inline void score_tiles(const float *queries, const KV *tiles, int64_t dim, float scaling, float *scores, int64_t stride) {
    const int64_t stride_of_tiles = (dim + SCALE<KV>) * LANES;
    Vec sums[TILES][N];
    HEADSTART_UNROLL
    for (int t = 0; t < TILES; t++)
        HEADSTART_UNROLL
        for (int q = 0; q < N; q++) sums[t][q] = Vec{};
    for (int64_t i = 0; i < dim; i++) {
        Vec k[TILES];
        HEADSTART_UNROLL
        for (int t = 0; t < TILES; t++) {
            __builtin_prefetch(tiles + (TILES + t) * stride_of_tiles + i * LANES);
            k[t] = load(tiles + t * stride_of_tiles + i * LANES);
        }
        HEADSTART_UNROLL
        for (int q = 0; q < N; q++)
            HEADSTART_UNROLL
            for (int t = 0; t < TILES; t++) sums[t][q] += k[t] * queries[i * BLOCK + q];
    }
    if constexpr (SCALE<KV> > 0) {
        HEADSTART_UNROLL
        for (int t = 0; t < TILES; t++) {
            const Vec scales = scales_behind(tiles + t * stride_of_tiles + dim * LANES);
            HEADSTART_UNROLL
            for (int q = 0; q < N; q++) sums[t][q] = sums[t][q] * scales;
        }
    }
    HEADSTART_UNROLL
    for (int q = 0; q < N; q++)
        HEADSTART_UNROLL
        for (int t = 0; t < TILES; t++) store(scores + q * stride + t * LANES, sums[t][q] * scaling);
}

// Queries and tiles that are scored at once: so many that the sums fill the registers. A sum can go on every fourth cycle and
// two are begun in each, so that fewer than eight leave the processor waiting.
static_assert(MOST_QUERIES <= BLOCK);

// Scores of N queries against the tiles [from, to); those of a query are `stride` numbers apart from the next one's.
template <int N, class KV>
inline void score_some(const float *queries, const KV *tiles, int64_t dim, float scaling, float *scores, int64_t stride,
                       int64_t from, int64_t to) {
    constexpr int MOST = tiles_at_once(N);
    int64_t tile = from;
    for (; tile + MOST <= to; tile += MOST)
        score_tiles<N, MOST>(queries, tiles + tile * (dim + SCALE<KV>) * LANES, dim, scaling, scores + tile * LANES, stride);
    for (; tile < to; tile++)
        score_tiles<N, 1>(queries, tiles + tile * (dim + SCALE<KV>) * LANES, dim, scaling, scores + tile * LANES, stride);
}

template <int N, class KV>
inline void score_exactly(int n, const float *queries, const KV *tiles, int64_t dim, float scaling, float *scores,
                          int64_t stride, int64_t from, int64_t to) {
    if constexpr (N > 0) {
        if (n == N)
            score_some<N>(queries, tiles, dim, scaling, scores, stride, from, to);
        else
            score_exactly<N - 1>(n, queries, tiles, dim, scaling, scores, stride, from, to);
    }
}

template <class KV>
inline void score(int n, const float *queries, const KV *tiles, int64_t dim, float scaling, float *scores, int64_t stride,
                  int64_t from, int64_t to) {
    for (int q = 0; q < n; q += MOST_QUERIES)
        score_exactly<MOST_QUERIES>(n - q < MOST_QUERIES ? n - q : MOST_QUERIES, queries + q, tiles, dim, scaling,
                                    scores + q * stride, stride, from, to);
}

// weights[0..count) become e^(score - max); returns their sum, added up in sixteen lanes by place in the row's order. sink: one
// more score, whose term comes first; or minus infinity.
inline float softmax(float *weights, int64_t count, float sink) {
    const int64_t padded = (count + LANES - 1) / LANES * LANES;
    for (int64_t i = count; i < padded; i++) weights[i] = -INFINITY;
    Vec peak = splat(sink);
    for (int64_t i = 0; i < padded; i += LANES) peak = larger(peak, load(weights + i));
    const float most = largest(peak);
    for (int64_t i = 0; i < padded; i += LANES) store(weights + i, exponential(load(weights + i) - most));
    for (int64_t i = count; i < padded; i++) weights[i] = 0;
    float own[LANES] = {};
    if (sink != -INFINITY) own[0] = exponential(splat(sink - most))[0];
    Vec total = load(own);
    for (int64_t i = 0; i < padded; i += LANES) total += load(weights + i);
    return sum(total);
}

// Where the values that a KV head has lie: `width` numbers of each token, `stride` from one token to the next. `together`: so
// many tokens are taken at a time, with all queries.
template <class KV>
struct Values {
    const KV *at;
    int64_t width, stride, together;
};

// out[q] += sum over the tokens [from, to), in order, of weights[q][token] * value; 64 numbers of each of N queries, from `d` on,
// stay in registers. The weights are given by token.
template <int N, int PARTS, class KV>
inline void weighted_sum_part(const float *const *weights, const Values<KV> &values, int64_t d, int64_t from, int64_t to,
                              float *const *out) {
    Vec sums[N][PARTS];
    HEADSTART_UNROLL
    for (int q = 0; q < N; q++)
        HEADSTART_UNROLL
        for (int p = 0; p < PARTS; p++) sums[q][p] = load(out[q] + d + p * LANES);
    for (int64_t token = from; token < to; token++) {
        const KV *row = values.at + token * values.stride;
        float own[N];
        for (int q = 0; q < N; q++) own[q] = weights[q][token];
        if constexpr (SCALE<KV> > 0)
            for (int q = 0; q < N; q++) own[q] *= scale_at(row + values.width);
        HEADSTART_UNROLL
        for (int p = 0; p < PARTS; p++) {
            Vec v = load(row + d + p * LANES);
            HEADSTART_UNROLL
            for (int q = 0; q < N; q++) sums[q][p] += v * own[q];
        }
    }
    HEADSTART_UNROLL
    for (int q = 0; q < N; q++)
        HEADSTART_UNROLL
        for (int p = 0; p < PARTS; p++) store(out[q] + d + p * LANES, sums[q][p]);
}

template <int N, class KV>
inline void weighted_sum(const float *const *weights, const Values<KV> &values, int64_t from, int64_t to, float *const *out) {
    for (int64_t d = 0; d < values.width;) {
        if (values.width - d >= 4 * LANES) {
            weighted_sum_part<N, 4>(weights, values, d, from, to, out);
            d += 4 * LANES;
        } else {
            weighted_sum_part<N, 1>(weights, values, d, from, to, out);
            d += LANES;
        }
    }
}

// One query of a block: its scores by token, which become its weights by token, and the tokens it sees.
struct Query {
    float *scores, *out;
    int64_t first, last, extras;
    const int64_t *extra;
};

// How a layer turns queries and keys into weights. softcap: 0 for none. sinks: a score of each head that has no value, or null.
struct How {
    float scaling, softcap;
    const float *sinks;
};

// Softmax in the order of the text, so that the sum's order does not depend on where a draft's nodes happen to lie.
inline void softmax(Query &query, const How &how, int64_t head, float *logical) {
    const int64_t run = query.last - query.first;
    std::memcpy(logical, query.scores + query.first, run * sizeof(float));
    for (int64_t e = 0; e < query.extras; e++) logical[run + e] = query.scores[query.extra[e]];
    if (how.softcap != 0.0f)
        for (int64_t i = 0; i < run + query.extras; i += LANES) store(logical + i, capped(load(logical + i), how.softcap));
    const float inverse = 1.0f / softmax(logical, run + query.extras, how.sinks ? how.sinks[head] : -INFINITY);
    for (int64_t i = 0; i < run; i++) query.scores[query.first + i] = logical[i] * inverse;
    for (int64_t e = 0; e < query.extras; e++) query.scores[query.extra[e]] = logical[run + e] * inverse;
}

// The values that all queries see without a gap are read once for four of them; the others once for each query.
template <class KV>
inline void weighted_sum_block(Query *queries, int n, const Values<KV> &values) {
    int64_t from = queries[0].first, to = queries[0].last;
    for (int q = 1; q < n; q++) {
        if (queries[q].first > from) from = queries[q].first;
        if (queries[q].last < to) to = queries[q].last;
    }
    if (to < from) to = from;
    const float *weights[BLOCK];
    float *out[BLOCK];
    for (int q = 0; q < n; q++) {
        weights[q] = queries[q].scores;
        out[q] = queries[q].out;
        std::memset(out[q], 0, values.width * sizeof(float));
        const int64_t early = from < queries[q].last ? from : queries[q].last;
        weighted_sum<1>(weights + q, values, queries[q].first, early, out + q);
    }
    for (int64_t first = from; first < to; first += values.together) {
        const int64_t last = to - first < values.together ? to : first + values.together;
        int q = 0;
        for (; q + 4 <= n; q += 4) weighted_sum<4>(weights + q, values, first, last, out + q);
        if (n - q == 3) weighted_sum<3>(weights + q, values, first, last, out + q);
        if (n - q == 2) weighted_sum<2>(weights + q, values, first, last, out + q);
        if (n - q == 1) weighted_sum<1>(weights + q, values, first, last, out + q);
    }
    for (int q = 0; q < n; q++) {
        const Query &own = queries[q];
        weighted_sum<1>(weights + q, values, to > own.first ? to : own.first, own.last, out + q);
        for (const int64_t *e = own.extra; e < own.extra + own.extras; e++)
            weighted_sum<1>(weights + q, values, *e, *e + 1, out + q);
    }
}

// Attention of n queries from `at` on that share a KV head. scored(n, their numbers, from, to) leaves the scores of the tokens
// [from, to), and of some beside them, in physical: by token, [n, capacity + 16]. logical: the scores of one query in the order
// of its text, [capacity + 16].
template <class KV, class Scored>
inline void attend_block(const float *query, const Scored &scored, const Values<KV> &values, const Visible &visible,
                         const Shape &s, const How &how, int64_t kv, int64_t at, int n, float *attended, float *physical,
                         float *logical) {
    const int64_t group = s.heads / s.kv_heads, stride = s.capacity + LANES;
    const float *own[BLOCK];
    Query queries[BLOCK];
    int64_t low = s.capacity, high = 0;
    for (int q = 0; q < n; q++) {
        const int64_t row = (at + q) / group, head = kv * group + (at + q) % group;
        const int64_t begin = visible.extra_begin[row], extras = visible.extra_begin[row + 1] - begin;
        own[q] = query + (row * s.heads + head) * s.dim;
        const int64_t first = visible.first[row], last = visible.last[row], *extra = visible.extra + begin;
        float *out = attended + (row * s.heads + head) * s.dim;
        queries[q] = Query{physical + q * stride, out, first, last, extras, extra};
        const int64_t end = extras ? extra[extras - 1] + 1 : last;  // extras rise
        const int64_t start = first < last || !extras ? first : extra[0];
        if (start < low) low = start;
        if (end > high) high = end;
    }
    scored(n, own, low, high);
    for (int q = 0; q < n; q++) softmax(queries[q], how, kv * group + (at + q) % group, logical);
    weighted_sum_block(queries, n, values);
}

// Scores of n queries with keys in tiles: see `attend_block`. vectors: room for the queries, [dim, BLOCK].
template <class KV>
inline void score_keys(int n, const float *const *own, const KV *tiles, const Shape &s, float scaling, float *vectors,
                       float *scores, int64_t from, int64_t to) {
    for (int q = 0; q < n; q++)
        for (int64_t i = 0; i < s.dim; i++) vectors[i * BLOCK + q] = own[q][i];
    score(n, vectors, tiles, s.dim, scaling, scores, s.capacity + LANES, from / LANES, (to + LANES - 1) / LANES);
}

// The accepted path's keys and values to consecutive places: token base + path[i] to base + i, in rising order.
template <class KV>
void gather(KV *keys, KV *values, const Shape &s, int64_t slot, int64_t base, const int64_t *path, int64_t count) {
    for (int64_t h = 0; h < s.kv_heads; h++)
        for (int64_t i = 0; i < count; i++) {
            const int64_t from = base + path[i], to = base + i;
            if (from == to) continue;
            const KV *source = key_tile(keys, s, slot, h, from);
            KV *target = key_tile(keys, s, slot, h, to);
            const int64_t numbers = s.dim + SCALE<KV>;
            for (int64_t d = 0; d < numbers; d++) target[d * LANES + to % LANES] = source[d * LANES + from % LANES];
            std::memcpy(value_row(values, s, slot, h, to), value_row(values, s, slot, h, from), numbers * sizeof(KV));
        }
}
