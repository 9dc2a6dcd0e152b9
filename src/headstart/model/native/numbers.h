// Sixteen numbers at a time: functions of them, and conversions of rows.
#pragma once

#include <vector>

#include "simd/simd.h"

// Round to nearest, ties to even; a NaN keeps its upper bits and is made quiet.
inline void store(BFloat16 *to, Vec v) {
    const Words words = words_of(v), high = words >> 16;
    store_low_halves((uint16_t *)to, select(is_nan(v), high | 0x40u, (words + ((high & 1u) + 0x7fffu)) >> 16));
}

// Halves are added to each other until there is one number left: in the same order everywhere.
inline float sum(Vec v) {
    float halves[LANES];
    store(halves, v);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) halves[i] += halves[i + width];
    return halves[0];
}

inline Vec larger(Vec a, Vec b) { return select(a > b, a, b); }

inline Vec size_of(Vec v) { return select(v < 0.0f, -v, v); }

// e^x to within two units in the last place: 2^n times a polynomial of degree 6 on |r| <= ln(2)/2. NaN stays NaN.
inline Vec exponential(Vec x) {
    x = select(x < -87.0f, splat(-87.0f), x);
    x = select(x > 88.0f, splat(88.0f), x);
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
    return y * floats_of((to_ints(n) + 127) << 23);
}

inline Vec sigmoid(Vec x) { return 1.0f / (1.0f + exponential(-x)); }

inline Vec silu(Vec x) { return x / (1.0f + exponential(-x)); }

// ln(1 + e^x), by ln(1 + y) = 2 artanh(y / (2 + y)) for y = e^-|x|: the artanh of a third or less, whose series ends soon.
inline Vec softplus(Vec x) {
    const Vec y = exponential(-size_of(x)), s = y / (y + 2.0f), square = s * s;
    Vec series = splat(1.0f / 17);
    HEADSTART_UNROLL
    for (int n = 15; n > 0; n -= 2) series = series * square + 1.0f / float(n);
    return larger(x, Vec{}) + series * s * 2.0f;
}

// cap * tanh(x / cap)
inline Vec capped(Vec x, float cap) { return cap - (2.0f * cap) / (exponential(x * (2.0f / cap)) + 1.0f); }

// The error function to within 2e-7 (Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26).
inline Vec error_function(Vec x) {
    const Vec most = size_of(x), t = 1.0f / (most * 0.3275911f + 1.0f);
    Vec y = splat(1.061405429f);
    y = y * t - 1.453152027f;
    y = y * t + 1.421413741f;
    y = y * t - 0.284496736f;
    y = y * t + 0.254829592f;
    y = 1.0f - y * t * exponential(-most * most);
    return select(x < 0.0f, -y, y);
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

// Symmetric int8 with the row's own scale, and with `zero` for zero. A NaN or an infinity makes the scale NaN.
inline void round_row(const float *row, int64_t width, int32_t zero, uint8_t *to, float *scale) {
    Vec peak = {}, finite = {};
    for (int64_t i = 0; i < width; i += LANES) {
        Vec v = load(row + i);
        peak = larger(peak, size_of(v));
        finite += v * 0.0f;
    }
    float most = largest(peak);
    *scale = most / 127.0f + sum(finite);
    float inverse = most > 0 ? 127.0f / most : 0.0f;
    const Vec by = splat(inverse), magic = splat(12582912.0f);
    for (int64_t i = 0; i < width; i += LANES) {
        const Vec rounded = fused(load(row + i), by, magic);  // the low bits of 1.5 * 2^23 + q are q
        const Bytes bytes = low_bytes(bits_of(rounded) + zero);
        std::memcpy(to + i, &bytes, sizeof bytes);
    }
}

inline void convert_row(const float *row, int64_t width, int64_t padded, uint8_t *to, float *scale) {
    round_row(row, width, ROW_ZERO, to, scale);
    std::memset(to + width, 0, padded - width);
}
