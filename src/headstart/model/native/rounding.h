// Rounding weights to the codes of grouped products: groups of 32 numbers to codes, a scale and a minimum (int4.py says
// which). A group that holds a NaN or an infinity gets a scale that is none either, so that it is seen in every result.
#pragma once

#include "grouped.h"

constexpr int64_t ROUNDED = 32;  // weights of a group
constexpr float SPREADS[] = {1.0f, 0.94f, 0.88f, 0.82f};  // of its range that the codes may span: the best is taken

// Rounded to float16, but for numbers that it holds with less than ten bits.
inline float sixteen(float number) {
    const float half = half_to_float(float_to_half(number));
    return std::fabs(half - number) <= std::fabs(number) * 0x1p-10f ? half : number;
}

inline void put_codes(Vec codes, uint8_t *to) {
    const Bytes bytes = low_bytes(to_ints(codes));
    std::memcpy(to, &bytes, sizeof bytes);
}

// round((v + minimum) / scale), at least `low` and at most `high`. No number may be NaN.
inline Vec rounded(Vec v, float minimum, float scale, float low, float high) {
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding and taking it away rounds to a whole number
    Vec code = (v + minimum) / scale;
    code = select(code < low, splat(low), code);
    code = select(code > high, splat(high), code);
    return (code + magic) - magic;
}

// Where vectors would have to mind numbers that are none.
inline void round_unruly(const float *from, float minimum, float scale, float low, float high, float zero, uint8_t *codes) {
    for (int64_t i = 0; i < ROUNDED; i++) {
        const float code = std::nearbyint((from[i] + minimum) / scale);
        codes[i] = code != code ? 0 : uint8_t((code < low ? low : code > high ? high : code) + zero);
    }
}

// Codes 0 to 15 that span the group, or a little less if that is nearer: weight = scale * code - minimum.
inline void round_four_bits(const float *from, uint8_t *codes, float *scale, float *minimum) {
    const Vec a = load(from), b = load(from + LANES);
    const bool unruly = sum(a * 0.0f + b * 0.0f) != 0;
    float low = from[0], high = from[0];
    for (int64_t i = 0; i < ROUNDED; i++) {
        if (!(from[i] >= low)) low = low == low ? from[i] : low;  // a NaN stays
        if (!(from[i] <= high)) high = high == high ? from[i] : high;
    }
    const float middle = (low + high) / 2, half = (high - low) / 2;
    float least = INFINITY;
    for (const float spread : SPREADS) {
        const volatile float reach = half * spread;  // so that it is rounded by itself everywhere
        const float step = sixteen(half * (spread * 2 / 15)), lowest = sixteen(reach - middle);
        const float safe = step > 0 ? step : 1.0f;
        if (unruly) {
            *scale = step;
            *minimum = lowest;
            round_unruly(from, lowest, safe, 0, 15, 0, codes);
            continue;
        }
        const Vec first = rounded(a, lowest, safe, 0, 15), second = rounded(b, lowest, safe, 0, 15);
        const Vec by = splat(step), less = splat(-lowest);
        const Vec off = fused(first, by, less) - a, far = fused(second, by, less) - b;
        const float error = sum(fused(off, off, far * far));
        if (spread < 1.0f && error >= least) continue;
        least = error;
        *scale = step;
        *minimum = lowest;
        put_codes(first, codes);
        put_codes(second, codes + LANES);
    }
}

// Codes 1 to 255 with 128 for zero.
inline void round_eight_bits(const float *from, uint8_t *codes, float *scale, float *minimum) {
    const Vec a = load(from), b = load(from + LANES);
    const Vec size_a = size_of(a), size_b = size_of(b);
    const bool unruly = sum(a * 0.0f + b * 0.0f) != 0;
    float most = largest(larger(size_a, size_b));
    for (int64_t i = 0; unruly && i < ROUNDED; i++)
        if (!(std::fabs(from[i]) <= most)) most = most == most ? std::fabs(from[i]) : most;
    *scale = sixteen(most / 127);
    *minimum = *scale * 128;
    const float safe = *scale > 0 ? *scale : 1.0f;
    if (unruly) {
        round_unruly(from, 0, safe, -127, 127, 128, codes);
        return;
    }
    put_codes(rounded(a, 0, safe, -127, 127) + 128.0f, codes);
    put_codes(rounded(b, 0, safe, -127, 127) + 128.0f, codes + LANES);
}
