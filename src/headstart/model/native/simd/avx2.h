// AVX2 with FMA and F16C, and with AVX-VNNI where there is that: sixteen numbers are two registers of 16.
#pragma once

#include <immintrin.h>

constexpr int WIDTH = 32;
#include "registers.h"

#if defined(__AVXVNNI__)
constexpr int64_t LIFTED = 128, LOWERED = 0;
constexpr int32_t ROW_ZERO = 128;
#else
constexpr int64_t LIFTED = 0, LOWERED = 128;
constexpr int32_t ROW_ZERO = 0;
#endif
constexpr int MOST_ROWS = 3;         // 12 sums, the weights of a panel and a row's number: 15 of 16 registers
constexpr int64_t GROUPED_ROWS = 4;  // 8 whole sums, codes, masks and a row's numbers; float sums wait in memory
constexpr int TOGETHER = 1;
constexpr int MOST_QUERIES = 4;
constexpr int tiles_at_once(int queries) { return queries > 2 ? 1 : queries > 1 ? 2 : 3; }

// -- numbers ----------------------------------------------------------------------------------------------------------

inline Vec load(const BFloat16 *from) {
    return Vec::of([&](int p) {
        const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(from + 8 * p)));
        return (Floats)_mm256_slli_epi32(wide, 16);
    });
}
inline Vec load_halves(const uint8_t *from) {
    return Vec::of([&](int p) { return (Floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 16 * p))); });
}
inline Vec load_bytes(const uint8_t *from) {
    return Vec::of([&](int p) {
        return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(from + 8 * p))));
    });
}
inline Vec load_powers(const uint8_t *from) {
    return Vec::of([&](int p) {
        return (Floats)_mm256_slli_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(from + 8 * p))), 23);
    });
}
inline void store_low_halves(uint16_t *to, Words v) {
    const __m256i mask = _mm256_set1_epi32(0xffff);
    const __m256i a = _mm256_and_si256((__m256i)v.part[0], mask), b = _mm256_and_si256((__m256i)v.part[1], mask);
    _mm256_storeu_si256((__m256i *)to, _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xD8));
}
inline Bytes low_bytes(Ints v) {
    const __m256i mask = _mm256_set1_epi32(0xff);
    const __m256i a = _mm256_and_si256((__m256i)v.part[0], mask), b = _mm256_and_si256((__m256i)v.part[1], mask);
    const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xD8);
    return (Bytes)_mm_packus_epi16(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
}
inline Vec spread_float(const uint8_t *from) {
    const __m256 value = _mm256_set1_ps(float_at(from));
    return Vec::of([&](int) { return (Floats)value; });
}

inline Floats fused(Floats a, Floats b, Floats c) { return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
inline Vec fused(Vec a, Vec b, Vec c) {
    return Vec::of([&](int p) { return fused(a.part[p], b.part[p], c.part[p]); });
}
inline int32_t sum(Ints v) {
    const __m256i eight = (__m256i)(v.part[0] + v.part[1]);
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
}
inline float largest(Vec v) {
    const __m256 eight = _mm256_max_ps((__m256)v.part[0], (__m256)v.part[1]);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline Floats in_register(Floats v) {
    asm("" : "+x"(v));
    return v;
}

inline float half_to_float(uint16_t half) { return _cvtsh_ss(half); }
inline uint16_t float_to_half(float value) { return _cvtss_sh(value, 0); }

// -- codes ------------------------------------------------------------------------------------------------------------

inline Words masked_or(Words v, uint32_t mask, Words bits) { return (v & mask) | bits; }
inline Words table_of(const int8_t *numbers) {
    const __m128i lifted = _mm_xor_si128(_mm_loadu_si128((const __m128i *)numbers), _mm_set1_epi8(char(LIFTED)));
    return Words::of([&](int) { return (Naturals)_mm256_broadcastsi128_si256(lifted); });
}
inline Words looked_up(Words table, Words codes) {
    return Words::of([&](int p) { return (Naturals)_mm256_shuffle_epi8((__m256i)table.part[p], (__m256i)codes.part[p]); });
}

// sum += four times four bytes of each output. x: of a row, repeated.
inline __m256i fours_without_sign(__m256i sum, __m256i codes, __m256i x) {
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sum, codes, x);
#else
    const __m256i pairs = _mm256_maddubs_epi16(codes, x);  // of at most 2 * 63 * 127, which 16 bits hold
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
}

// The same of weights with a sign, which they give to the row's: pairs of at most 2 * 128 * 127 fit 16 bits.
inline __m256i fours_with_sign(__m256i sum, __m256i weights, __m256i x) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(x, weights));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#if !defined(__AVXVNNI__)
#define HEADSTART_SHORT_SUMS 1
constexpr bool SHORT_SUMS = true;

// The same of codes of at most 4 bits without adding up pairs, of which eight fit 16 bits: 8 * 2 * 15 * 127 is 30480.
inline Ints add_short(Ints sums, Words codes, const uint8_t *four) {
    const __m256i x = _mm256_set1_epi32(four_at(four));
    return Ints::of([&](int p) {
        return (Integers)_mm256_add_epi16((__m256i)sums.part[p], _mm256_maddubs_epi16((__m256i)codes.part[p], x));
    });
}

// sum += these pairs.
inline Ints add_shorts(Ints sum, Ints shorts) {
    return Ints::of([&](int p) {
        return sum.part[p] + (Integers)_mm256_madd_epi16((__m256i)shorts.part[p], _mm256_set1_epi16(1));
    });
}
#endif

template <int BITS>
inline Ints dot(Ints sum, Words codes, const uint8_t *four) {
    const __m256i x = _mm256_set1_epi32(four_at(four));
    return Ints::of([&](int p) {
        const __m256i own = (__m256i)sum.part[p], code = (__m256i)codes.part[p];
        if constexpr (BITS == 0 && LIFTED == 0) return (Integers)fours_with_sign(own, code, x);
        if constexpr (BITS == 8 && LOWERED != 0)
            return (Integers)fours_with_sign(own, _mm256_xor_si256(code, _mm256_set1_epi8(char(LOWERED))), x);
        return (Integers)fours_without_sign(own, code, x);
    });
}

// -- products of numbers that are not codes ---------------------------------------------------------------------------

inline Ints add_int8(Ints sum, Words weights, const uint8_t *four) {
    const __m256i x = _mm256_set1_epi32(four_at(four));
    return Ints::of([&](int p) {
        const __m256i own = (__m256i)sum.part[p], weight = (__m256i)weights.part[p];
        if constexpr (ROW_ZERO != 0) return (Integers)fours_without_sign(own, x, weight);
        return (Integers)fours_with_sign(own, weight, x);
    });
}

constexpr bool HAS_PAIRS = false;
inline Vec add_pairs(Vec sum, Words, const uint8_t *) { return sum; }
