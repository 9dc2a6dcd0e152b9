// Queries, keys and values as the products of attention by tiles take them, all of bf16. Whole numbers of 8 bits are bf16 numbers
// too, so rows of those are widened as they are: their scales multiply scores and weights.
#pragma once

#include "attention.h"
#include "tiles.h"

#if defined(HEADSTART_TILES)

constexpr int64_t CHUNK = 64, STEP = 32;         // tokens; those, and numbers of a row, that a tile instruction sums up
constexpr int64_t TILE = LANES * LANES;          // numbers of four bytes

// One query, and what it sees: the tokens [first, last) of its slot, then `extra` ones. sink: one more score, or `NO_PEAK`.
struct Asking {
    const float *query;
    float *out;
    int64_t row, first, last;
    const int64_t *extra;
    int64_t extras;
    float sink;
};

// The rows of a slot that a KV head has, each of `dim` numbers and its scale if they are codes. values: the same rows for latent
// attention, of which the first `width` numbers are the value. apart: numbers from one head to the next.
template <class KV>
struct Rows {
    const KV *keys, *values;
    int64_t dim, width, apart;

    int64_t stride() const { return dim + SCALE<KV>; }
};

// Sixteen bf16 numbers in the low halves of words; those that are not finite become 0: they may be of a token that only other
// queries see, or none. Where a row that is seen has such numbers, its key has them as a rule, and its score is none.
inline __m512i finite_numbers(const BFloat16 *from) {
    const __m256i numbers = _mm256_loadu_si256((const __m256i *)from), most = _mm256_set1_epi16(0x7f80);
    return _mm512_maskz_cvtepu16_epi32(_mm256_cmpneq_epi16_mask(_mm256_and_si256(numbers, most), most), numbers);
}

inline __m512i finite_numbers(const Code *from) { return _mm512_srli_epi32((__m512i)load(from), 16); }

inline Vec finite(Vec v) { return select(v - v == 0.0f, v, Vec{}); }

inline void copy_key(const BFloat16 *from, int64_t dim, BFloat16 *to) { std::memcpy(to, from, dim * sizeof(BFloat16)); }
inline void copy_key(const Code *from, int64_t dim, BFloat16 *to) {
    for (int64_t i = 0; i < dim; i += 2 * LANES) {
        const __m512 low = (__m512)load(from + i), high = (__m512)load(from + i + LANES);
        _mm512_storeu_si512(to + i, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
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

// The values of `count` tokens of a chunk, by numbers instead of by tokens: [chunk / 32][width][32 tokens]; zeros behind.
// row(t): where the numbers of token t begin.
template <class Row>
inline void pack_values(const Row &row, int64_t count, int64_t width, uint32_t *to) {
    __m512i pairs[LANES];
    for (int64_t begin = 0; begin < count; begin += STEP)
        for (int64_t i = 0; i < width; i += LANES, to += TILE) {
            for (int64_t p = 0; p < LANES; p++) {
                const int64_t t = begin + 2 * p;
                pairs[p] = t < count ? finite_numbers(row(t) + i) : _mm512_setzero_si512();
                if (t + 1 < count) pairs[p] = _mm512_or_si512(pairs[p], _mm512_slli_epi32(finite_numbers(row(t + 1) + i), 16));
            }
            transpose(pairs);
            for (int64_t n = 0; n < LANES; n++) _mm512_store_si512(to + n * LANES, pairs[n]);
        }
    written();
}

#endif
