// Sixteen numbers at a time, in the vector extension of GCC and Clang: one AVX-512 register, two of AVX2, four of NEON.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__AVX512F__) || (defined(__AVX__) && defined(__FMA__))
#include <immintrin.h>
#endif

constexpr int LANES = 16;
typedef float Vec __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));
typedef uint8_t Bytes __attribute__((vector_size(16)));
typedef uint32_t Fours __attribute__((vector_size(16)));

// Unless it unrolls loops over an array of sums early, GCC 12 writes all sums to memory in every step, at a third of the speed.
#if defined(__clang__)
#define HEADSTART_UNROLL _Pragma("unroll")
#else
#define HEADSTART_UNROLL _Pragma("GCC unroll 16")
#endif

struct BFloat16 {
    uint16_t bits;
};

inline Vec load(const float *from) {
    Vec v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline Vec load(const BFloat16 *from) {
#if defined(__AVX512F__)
    return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from)), 16);
#else
    Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    Words words = __builtin_convertvector(halves, Words) << 16;
    Vec v;
    std::memcpy(&v, &words, sizeof v);
    return v;
#endif
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

inline Vec splat(float value) { return value - Vec{}; }  // x - 0 is x, and 0 + x is not: of -0

// a * b + c, rounded once wherever the processor can. Written as a product and a sum, the compiler chooses which of two
// products goes into the sum unrounded, and may choose otherwise in another place.
inline Vec fused(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
    return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX__) && defined(__FMA__)
    __m256 x[2], y[2], z[2];
    std::memcpy(x, &a, sizeof a);
    std::memcpy(y, &b, sizeof b);
    std::memcpy(z, &c, sizeof c);
    for (int i = 0; i < 2; i++) z[i] = _mm256_fmadd_ps(x[i], y[i], z[i]);
    std::memcpy(&c, z, sizeof c);
    return c;
#elif defined(__FP_FAST_FMAF)
    for (int i = 0; i < LANES; i++) c[i] = std::fma(a[i], b[i], c[i]);
    return c;
#else
    return a * b + c;
#endif
}

inline float sum(Vec v) {
    float halves[LANES];
    store(halves, v);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) halves[i] += halves[i + width];
    return halves[0];
}

inline Vec larger(Vec a, Vec b) { return a > b ? a : b; }

// The low byte of each. GCC 12 would take the numbers out one by one.
inline Bytes low_bytes(Ints v) {
#if defined(__AVX512F__)
    return (Bytes)_mm512_cvtepi32_epi8((__m512i)v);
#else
    return __builtin_convertvector((Words)v, Bytes);
#endif
}

// Of whole numbers, whose sum has no order.
inline int32_t sum(Ints v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_epi32((__m512i)v);
#else
    int32_t total = 0;
    for (int i = 0; i < LANES; i++) total += v[i];
    return total;
#endif
}

inline float largest(Vec v) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)v);
#else
    float best = v[0];
    for (int i = 1; i < LANES; i++) best = v[i] > best ? v[i] : best;
    return best;
#endif
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

inline Vec sigmoid(Vec x) { return 1.0f / (1.0f + exponential(-x)); }

inline Vec silu(Vec x) { return x / (1.0f + exponential(-x)); }

// ln(1 + e^x), by ln(1 + y) = 2 artanh(y / (2 + y)) for y = e^-|x|: the artanh of a third or less, whose series ends soon.
inline Vec softplus(Vec x) {
    const Vec y = exponential(x < 0 ? x : -x), s = y / (y + 2.0f), square = s * s;
    Vec series = splat(1.0f / 17);
    HEADSTART_UNROLL
    for (int n = 15; n > 0; n -= 2) series = series * square + 1.0f / float(n);
    return (x > 0 ? x : Vec{}) + series * s * 2.0f;
}

// cap * tanh(x / cap)
inline Vec capped(Vec x, float cap) { return cap - (2.0f * cap) / (exponential(x * (2.0f / cap)) + 1.0f); }

// The error function to within 2e-7 (Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26).
inline Vec error_function(Vec x) {
    const Vec most = x < 0 ? -x : x, t = 1.0f / (most * 0.3275911f + 1.0f);
    Vec y = splat(1.061405429f);
    y = y * t - 1.453152027f;
    y = y * t + 1.421413741f;
    y = y * t - 0.284496736f;
    y = y * t + 0.254829592f;
    y = 1.0f - y * t * exponential(-most * most);
    return x < 0 ? -y : y;
}

// Convert a row to the numbers a matrix product takes: `width` of them (a multiple of 16), then zeros up to `padded`.

inline void convert_row(const float *row, int64_t width, int64_t padded, float *to, float *) {
    if (row != to) std::memcpy(to, row, width * sizeof(float));
    for (int64_t i = width; i < padded; i++) to[i] = 0;
}

inline void convert_row(const float *row, int64_t width, int64_t padded, BFloat16 *to, float *) {
    for (int64_t i = 0; i < width; i += LANES) store(to + i, load(row + i));
    for (int64_t i = width; i < padded; i++) to[i].bits = 0;
}

// Symmetric int8 with zero point 128 and the row's own scale. A NaN or an infinity makes the scale NaN.
inline void convert_row(const float *row, int64_t width, int64_t padded, uint8_t *to, float *scale) {
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
        Ints words;
        std::memcpy(&words, &rounded, sizeof words);
        Bytes bytes = low_bytes(words + 128);  // the low bits of 1.5 * 2^23 + q are q
        std::memcpy(to + i, &bytes, sizeof bytes);
    }
    std::memset(to + width, 0, padded - width);
}
