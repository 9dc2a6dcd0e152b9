// AVX-512 with VNNI, and bf16 dot products where there are any: sixteen numbers are one register of 32.
#pragma once

#include <immintrin.h>

typedef float Vec __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef Vec Floats;

constexpr int64_t LIFTED = 128, LOWERED = 0;
constexpr int32_t ROW_ZERO = 128;
constexpr int MOST_ROWS = 12;        // 24 sums, the weights of two panels and a row's number: 27 of 32 registers
constexpr int64_t GROUPED_ROWS = 12; // 12 whole and 12 float sums, codes, scale and mask: 27 of 32 registers
constexpr int TOGETHER = 2;
constexpr int MOST_QUERIES = 8;
constexpr int tiles_at_once(int queries) { return queries > 4 ? 2 : queries > 2 ? 4 : 8; }

// -- numbers ----------------------------------------------------------------------------------------------------------

inline Vec load(const float *from) { return (Vec)_mm512_loadu_ps(from); }
inline Ints load(const int32_t *from) { return (Ints)_mm512_loadu_si512(from); }
inline Words load_codes(const uint8_t *from) { return (Words)_mm512_loadu_si512(from); }
inline Vec load(const BFloat16 *from) {
    return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from)), 16);
}
inline Vec load_halves(const uint8_t *from) { return (Vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from)); }
inline Vec load_bytes(const uint8_t *from) {
    return (Vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from)));
}
inline Vec load_powers(const uint8_t *from) {
    return (Vec)_mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from)), 23);
}
inline void store(float *to, Vec v) { _mm512_storeu_ps(to, (__m512)v); }
inline void store_low_halves(uint16_t *to, Words v) { _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16((__m512i)v)); }
inline Bytes low_bytes(Ints v) { return (Bytes)_mm512_cvtepi32_epi8((__m512i)v); }

inline Ints is_nan(Vec v) { return v != v; }
inline Vec select(Ints mask, Vec a, Vec b) { return mask ? a : b; }
inline Words select(Ints mask, Words a, Words b) { return mask ? a : b; }
inline Vec splat(float value) { return (Vec)_mm512_set1_ps(value); }
inline Vec spread_float(const uint8_t *from) { return (Vec)_mm512_set1_ps(float_at(from)); }
inline Ints spread_int(const uint8_t *from) { return (Ints)_mm512_set1_epi32(four_at(from)); }
inline Vec to_floats(Ints v) { return (Vec)_mm512_cvtepi32_ps((__m512i)v); }
inline Ints to_ints(Vec v) { return (Ints)_mm512_cvttps_epi32((__m512)v); }
inline Ints bits_of(Vec v) { return (Ints)v; }
inline Words words_of(Vec v) { return (Words)v; }
inline Vec floats_of(Ints bits) { return (Vec)bits; }

inline Vec fused(Vec a, Vec b, Vec c) { return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
inline int32_t sum(Ints v) { return _mm512_reduce_add_epi32((__m512i)v); }
inline float largest(Vec v) { return _mm512_reduce_max_ps((__m512)v); }

// The sum of each of sixteen vectors: halves of two of them at a time are added to each other, as `sum` does it with one.
#define HEADSTART_SUMS
inline Vec halves_added(Vec a, Vec b, __m512i low, __m512i high) {
    return (Vec)_mm512_permutex2var_ps((__m512)a, low, (__m512)b) + (Vec)_mm512_permutex2var_ps((__m512)a, high, (__m512)b);
}
inline Vec sums_at_once(const Vec *v) {
    const __m512i places = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    Vec halves[LANES];
    for (int i = 0; i < LANES; i++) halves[i] = v[i];
    HEADSTART_UNROLL
    for (int width = LANES / 2, count = LANES / 2; count; width /= 2, count /= 2) {
        // place p of the result is number p % width of block p / width, and blocks of 2 * width lie behind each other in a and b
        const __m512i within = _mm512_and_epi32(places, _mm512_set1_epi32(width - 1));
        const __m512i low = _mm512_add_epi32(within, _mm512_slli_epi32(_mm512_sub_epi32(places, within), 1));
        const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(width));
        HEADSTART_UNROLL
        for (int i = 0; i < LANES / 2; i++)
            if (i < count) halves[i] = halves_added(halves[2 * i], halves[2 * i + 1], low, high);
    }
    return halves[0];
}

inline Floats in_register(Floats v) {
    asm("" : "+v"(v));
    return v;
}

inline float half_to_float(uint16_t half) { return _cvtsh_ss(half); }
inline uint16_t float_to_half(float value) { return _cvtss_sh(value, 0); }

// -- codes ------------------------------------------------------------------------------------------------------------

inline Words masked_or(Words v, uint32_t mask, Words bits) {  // (v & mask) | bits
    return (Words)_mm512_ternarylogic_epi32((__m512i)v, _mm512_set1_epi32(int32_t(mask)), (__m512i)bits, 0xEA);
}
inline Words table_of(const int8_t *numbers) {
    const __m128i lifted = _mm_xor_si128(_mm_loadu_si128((const __m128i *)numbers), _mm_set1_epi8(char(LIFTED)));
    return (Words)_mm512_broadcast_i32x4(lifted);
}
inline Words looked_up(Words table, Words codes) { return (Words)_mm512_shuffle_epi8((__m512i)table, (__m512i)codes); }

template <int BITS>
inline Ints dot(Ints sum, Words codes, const uint8_t *four) {
    // _mm512_dpbusd_epi32(sum, codes, _mm512_set1_epi32(bytes)): GCC 12 loads the bytes apart and copies sums to and fro
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(codes), "m"(*(const uint8_t(*)[4])four));
    return sum;
}

// -- products of numbers that are not codes ---------------------------------------------------------------------------

inline Ints add_int8(Ints sum, Words weights, const uint8_t *four) {
    return (Ints)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32(four_at(four)), (__m512i)weights);
}

#if defined(__AVX512BF16__)
constexpr bool HAS_PAIRS = true;
inline Vec add_pairs(Vec sum, Words weights, const uint8_t *pair) {
    return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(four_at(pair)), (__m512bh)weights);
}
#else
constexpr bool HAS_PAIRS = false;
inline Vec add_pairs(Vec sum, Words, const uint8_t *) { return sum; }
#endif
