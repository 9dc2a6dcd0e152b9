// Any processor: what each operation means, in plain C++ and in vectors of 16 bytes, which compilers turn into what there is.
#pragma once

constexpr int WIDTH = 16;
#include "registers.h"

constexpr int64_t LIFTED = 0, LOWERED = 128;
constexpr int32_t ROW_ZERO = 0;
constexpr int MOST_ROWS = 2;
constexpr int64_t GROUPED_ROWS = 2;
constexpr int TOGETHER = 1;
constexpr int MOST_QUERIES = 2;
constexpr int tiles_at_once(int) { return 1; }

// -- numbers ----------------------------------------------------------------------------------------------------------

// A float16, exactly.
inline float half_to_float(uint16_t half) {
    const uint32_t sign = uint32_t(half & 0x8000) << 16, exponent = half >> 10 & 31, rest = half & 1023;
    if (exponent == 0) return std::copysign(float(rest) * 0x1p-24f, sign ? -1.0f : 1.0f);
    uint32_t word = sign | (exponent + 112) << 23 | rest << 13;
    if (exponent == 31) word = sign | 0x7f800000 | rest << 13 | (rest ? 0x400000 : 0);
    float value;
    std::memcpy(&value, &word, sizeof value);
    return value;
}

// The nearest float16, the even one of two.
inline uint16_t float_to_half(float value) {
    uint32_t word;
    std::memcpy(&word, &value, sizeof word);
    const uint32_t sign = word >> 16 & 0x8000, size = word & 0x7fffffff;
    if (size > 0x7f800000) return uint16_t(sign | 0x7e00 | (size >> 13 & 1023));
    if (size >= 0x477ff000) return uint16_t(sign | 0x7c00);             // rounds beyond the largest
    if (size < 0x38800000) {                                            // a multiple of 2^-24, or nothing
        const float shifted = std::fabs(value) + 0.5f;                  // whose last bit is worth as much
        uint32_t bits;
        std::memcpy(&bits, &shifted, sizeof bits);
        return uint16_t(sign | (bits - 0x3f000000));
    }
    return uint16_t(sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
}

template <class F>
inline Vec each(F make) {
    float sixteen[LANES];
    for (int i = 0; i < LANES; i++) sixteen[i] = make(i);
    return load(sixteen);
}

inline Vec load(const BFloat16 *from) {
    return Vec::of([&](int p) {
        Naturals words;
        for (int i = 0; i < Vec::EACH; i++) words[i] = uint32_t(from[p * Vec::EACH + i].bits) << 16;
        return (Floats)words;
    });
}
inline Vec load_halves(const uint8_t *from) {
    return each([&](int i) {
        uint16_t half;
        std::memcpy(&half, from + 2 * i, sizeof half);
        return half_to_float(half);
    });
}
inline Vec load_bytes(const uint8_t *from) {
    return each([&](int i) { return float(((const int8_t *)from)[i]); });
}
inline Vec load_powers(const uint8_t *from) {
    return Vec::of([&](int p) {
        Naturals words;
        for (int i = 0; i < Vec::EACH; i++) words[i] = uint32_t(from[p * Vec::EACH + i]) << 23;
        return (Floats)words;
    });
}
inline void store_low_halves(uint16_t *to, Words v) {
    for (int i = 0; i < LANES; i++) to[i] = uint16_t(v[i]);
}
inline Bytes low_bytes(Ints v) {
    Bytes bytes;
    for (int i = 0; i < LANES; i++) bytes[i] = uint8_t(v[i]);
    return bytes;
}
inline Vec spread_float(const uint8_t *from) { return splat(float_at(from)); }

// a * b + c, rounded once.
inline float fused(float a, float b, float c) {
#if defined(__FP_FAST_FMAF)
    return __builtin_fmaf(a, b, c);
#else
    // As doubles the product is exact. If the sum is not, its last bit becomes 1, so that no later rounding takes it for a tie.
    const double product = double(a) * double(b), more = c, sum = product + more, back = sum - product;
    const double error = (product - (sum - back)) + (more - back);
    int64_t bits;
    std::memcpy(&bits, &sum, sizeof bits);
    if ((error > 0 || error < 0) && !(bits & 1)) bits += (error > 0) == (sum > 0) ? 1 : -1;
    double odd;
    std::memcpy(&odd, &bits, sizeof odd);
    return float(odd);
#endif
}
inline Vec fused(Vec a, Vec b, Vec c) {
    return each([&](int i) { return fused(a[i], b[i], c[i]); });
}
inline Floats fused(Floats a, Floats b, Floats c) { return a * b + c; }  // of states, whose bits are those of one level

inline int32_t sum(Ints v) {
    const Integers four = (v.part[0] + v.part[1]) + (v.part[2] + v.part[3]);
    return (four[0] + four[1]) + (four[2] + four[3]);
}
inline float largest(Vec v) {
    float best = v[0];
    for (int i = 1; i < LANES; i++) best = v[i] > best ? v[i] : best;
    return best;
}

inline Floats in_register(Floats v) { return v; }

// -- codes ------------------------------------------------------------------------------------------------------------

inline Words masked_or(Words v, uint32_t mask, Words bits) { return (v & mask) | bits; }
inline Words table_of(const int8_t *numbers) {
    return Words::of([&](int) {
        Naturals table;
        std::memcpy(&table, numbers, sizeof table);
        return table;
    });
}
inline Words looked_up(Words table, Words codes) {
    return Words::of([&](int p) {
        const Bytes numbers = (Bytes)table.part[p], places = (Bytes)codes.part[p];
        Bytes found;
        for (int i = 0; i < 16; i++) found[i] = numbers[places[i]];
        return (Naturals)found;
    });
}

typedef int16_t Shorts __attribute__((vector_size(16)));

// sum += four times four bytes of each output, by products of 16 bits: those of the even bytes, and of the odd. SIGNED:
// whether weights have a sign; others have at most 6 bits. So two products fit 16 bits.
template <bool SIGNED>
inline Integers fours(Integers sum, Naturals weights, Naturals x) {
    const Shorts own = (Shorts)weights, row = (Shorts)x;
    const Shorts even = SIGNED ? own << 8 >> 8 : own & 255, odd = own >> 8;
    const Integers pairs = (Integers)(even * (row << 8 >> 8) + odd * (row >> 8));
    return sum + ((pairs << 16 >> 16) + (pairs >> 16));
}

template <int BITS>
inline Ints dot(Ints sum, Words codes, const uint8_t *four) {
    const Naturals x = uint32_t(four_at(four)) - Naturals{};
    return Ints::of([&](int p) {
        if constexpr (BITS == 0) return fours<true>(sum.part[p], codes.part[p], x);
        if constexpr (BITS == 8) return fours<true>(sum.part[p], codes.part[p] ^ 0x80808080u, x);
        return fours<false>(sum.part[p], codes.part[p], x);
    });
}

// -- products of numbers that are not codes ---------------------------------------------------------------------------

inline Ints add_int8(Ints sum, Words weights, const uint8_t *four) {
    const Naturals x = uint32_t(four_at(four)) - Naturals{};
    return Ints::of([&](int p) { return fours<true>(sum.part[p], weights.part[p], x); });
}

constexpr bool HAS_PAIRS = false;
inline Vec add_pairs(Vec sum, Words, const uint8_t *) { return sum; }
