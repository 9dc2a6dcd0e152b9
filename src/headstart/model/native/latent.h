// Latent attention: all heads attend to one row of numbers for each token, [latent | key], of which the latent is the value
// too. Rows lie one after the other, [capacity, dim], and are all that is stored.
//
// A head's query goes through a product of its own into the space of rows, and what it attends to through another one to its
// values. What a row of the forward becomes depends on the row and its text alone: see attention.h.
#pragma once

#include "attention.h"
#include "norms.h"
#include "products.h"

struct Latent {
    Product query;                   // of queries of low rank, which are normed before; or empty: they are queries
    const Product *keys, *values;    // of each head, from its query to a latent and from there to its values; or null
    int64_t rank, nope, value_dim;   // of a latent; numbers of a query that do not turn, before those that do; of a value
};

// -- products of each head ----------------------------------------------------------------------------------------------

// from(r, head) goes through the head's product into y + head * step, for each row r; the products have `results`, from a
// row's results to the next row's.
template <class From>
inline void multiply_heads(Member &team, const Product *products, int64_t heads, int64_t count, const From &from, uint8_t *rows,
                           float *scale, float *sums, float *y, int64_t step) {
    const int64_t bytes = row_room(count) * products->row_bytes(), scales = round_up(count, 32);
    team.each(heads * count, [&](int64_t n) {
        const int64_t head = n / count, r = n % count;
        convert_row(products[head], from(r, head), r, count, rows + head * bytes, scale + head * scales);
    });
    const int64_t pairs = pairs_of(*products), together = pairs_together(*products, count, team.threads());
    const int64_t pieces = (pairs + together - 1) / together;
    team.pieces(heads * pieces, [&](int64_t piece) {
        const int64_t head = piece / pieces, first = piece % pieces * together;
        const int64_t last = first + together < pairs ? first + together : pairs;
        multiply_own(products[head], first, last, rows + head * bytes, scale + head * scales, count, sums, y + head * step);
    });
}

// Numbers that turn, each with the one half of them further on; without a cosine none does.
inline void turn(const float *from, int64_t count, const float *cosine, const float *sine, float *to) {
    const int64_t half = cosine ? count / 2 : 0;
    for (int64_t i = 0; i < half; i++) {
        const float a = from[i], b = from[i + half];
        to[i] = a * cosine[i] - b * sine[i];
        to[i + half] = b * cosine[i] + a * sine[i];
    }
    for (int64_t i = 2 * half; i < count; i++) to[i] = from[i];
}

// -- scores -------------------------------------------------------------------------------------------------------------

// The sum of each of sixteen vectors, added up as `sum` does.
inline Vec sums_of_sixteen(const Vec *v) {
#if defined(HEADSTART_SUMS)
    return sums_at_once(v);
#else
    float sums[LANES];
    for (int i = 0; i < LANES; i++) sums[i] = sum(v[i]);
    return load(sums);
#endif
}

constexpr int QUERIES = MOST_QUERIES < 4 ? 2 : 4;  // that are scored at once, with 16 / QUERIES tokens
constexpr int TOKENS = MOST_QUERIES < 8 ? 2 : 4;

// Scores of N queries with T tokens; the numbers of a row are added up in sixteen lanes.
template <int N, int T, class KV>
inline void score_rows_part(const float *const *queries, const KV *rows, int64_t dim, float scaling, float *scores,
                            int64_t stride) {
    Vec sums[N * T];
    HEADSTART_UNROLL
    for (int n = 0; n < N * T; n++) sums[n] = Vec{};
    for (int64_t i = 0; i < dim; i += LANES) {
        Vec row[T];
        HEADSTART_UNROLL
        for (int t = 0; t < T; t++) row[t] = load(rows + t * dim + i);
        HEADSTART_UNROLL
        for (int q = 0; q < N; q++) {
            const Vec own = load(queries[q] + i);
            HEADSTART_UNROLL
            for (int t = 0; t < T; t++) sums[q * T + t] += own * row[t];
        }
    }
    if constexpr (N * T == LANES) {
        float all[LANES];
        store(all, sums_of_sixteen(sums) * scaling);
        for (int q = 0; q < N; q++) std::memcpy(scores + q * stride, all + q * T, T * sizeof(float));
    } else {
        for (int q = 0; q < N; q++)
            for (int t = 0; t < T; t++) scores[q * stride + t] = sum(sums[q * T + t]) * scaling;
    }
}

template <int N, class KV>
inline void score_rows_of(const float *const *queries, const KV *rows, int64_t dim, float scaling, float *scores,
                          int64_t stride, int64_t from, int64_t to) {
    int64_t token = from;
    for (; token + TOKENS <= to; token += TOKENS)
        score_rows_part<N, TOKENS>(queries, rows + token * dim, dim, scaling, scores + token, stride);
    for (; token < to; token++) score_rows_part<N, 1>(queries, rows + token * dim, dim, scaling, scores + token, stride);
}

constexpr int64_t ROWS_TOGETHER = 128;  // tokens that stay in the second-level cache while the queries of a block pass by

// Scores of n queries with the rows [from, to).
template <class KV>
inline void score_rows(int n, const float *const *queries, const KV *rows, int64_t dim, float scaling, float *scores,
                       int64_t stride, int64_t from, int64_t to) {
    for (int64_t first = from; first < to; first += ROWS_TOGETHER) {
        const int64_t last = to - first < ROWS_TOGETHER ? to : first + ROWS_TOGETHER;
        int q = 0;
        for (; q + QUERIES <= n; q += QUERIES)
            score_rows_of<QUERIES>(queries + q, rows, dim, scaling, scores + q * stride, stride, first, last);
        for (; q < n; q++) score_rows_of<1>(queries + q, rows, dim, scaling, scores + q * stride, stride, first, last);
    }
}

// Row r's latent is normed and its key turned, on the way to its place in the cache. from: [latent | key]; scratch: as many.
template <class KV>
inline void store_latent(const float *from, const Latent &latent, const Norm &norm, int64_t turning, const float *cosine,
                         const float *sine, float *scratch, KV *to) {
    if (norm.kind)
        norm_row(from, norm, latent.rank, scratch);
    else
        std::memcpy(scratch, from, latent.rank * sizeof(float));
    turn(from + latent.rank, turning, cosine, sine, scratch + latent.rank);
    for (int64_t i = 0; i < latent.rank + turning; i += LANES) store(to + i, load(scratch + i));
}

// The accepted path's rows to consecutive places: row path[i] to row i, in rising order.
inline void gather_rows(uint8_t *rows, int64_t row_bytes, const int64_t *path, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (path[i] != i) std::memcpy(rows + i * row_bytes, rows + path[i] * row_bytes, row_bytes);
}
