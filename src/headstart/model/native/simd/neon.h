// AArch64: sixteen numbers are four of its 32 registers. Products of bytes are as the level has them: widening ones (ARMv8.0),
// dot products of numbers with signs (DotProd), and of codes without (I8MM).
#pragma once

#include <arm_neon.h>

constexpr int WIDTH = 16;
#include "registers.h"

#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr int64_t LIFTED = 0, LOWERED = 0;
#else
constexpr int64_t LIFTED = 0, LOWERED = 128;
#endif
constexpr int32_t ROW_ZERO = 0;
constexpr int MOST_ROWS = 2;         // 16 sums, 8 registers of weights and the rows' numbers: 26 of 32
constexpr int64_t GROUPED_ROWS = 4;  // 16 whole sums, codes and masks; float sums may wait in memory until a group ends
constexpr int TOGETHER = 1;
constexpr int MOST_QUERIES = 4;
constexpr int tiles_at_once(int queries) { return queries > 2 ? 1 : queries > 1 ? 2 : 3; }

// -- numbers ----------------------------------------------------------------------------------------------------------

inline Vec load(const BFloat16 *from) {
    return Vec::of([&](int p) { return (Floats)vshll_n_u16(vld1_u16((const uint16_t *)from + 4 * p), 16); });
}
inline Vec load_halves(const uint8_t *from) {
    return Vec::of([&](int p) { return (Floats)vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(from + 8 * p))); });
}
inline Vec load_bytes(const uint8_t *from) {
    const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(from));
    const int16x8_t halves[2] = {vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)};
    return Vec::of([&](int p) {
        const int16x8_t half = halves[p / 2];
        return (Floats)vcvtq_f32_s32(p % 2 ? vmovl_high_s16(half) : vmovl_s16(vget_low_s16(half)));
    });
}
inline Vec load_powers(const uint8_t *from) {
    const uint8x16_t bytes = vld1q_u8(from);
    const uint16x8_t halves[2] = {vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)};
    return Vec::of([&](int p) {
        const uint16x8_t half = halves[p / 2];
        return (Floats)vshlq_n_u32(p % 2 ? vmovl_high_u16(half) : vmovl_u16(vget_low_u16(half)), 23);
    });
}

// The lower halves of eight numbers: Arm's vectors begin with the lowest byte.
inline uint16x8_t low_halves(Naturals a, Naturals b) { return vuzp1q_u16((uint16x8_t)a, (uint16x8_t)b); }

inline void store_low_halves(uint16_t *to, Words v) {
    vst1q_u16(to, low_halves(v.part[0], v.part[1]));
    vst1q_u16(to + 8, low_halves(v.part[2], v.part[3]));
}
inline Bytes low_bytes(Ints v) {
    const uint16x8_t a = low_halves((Naturals)v.part[0], (Naturals)v.part[1]);
    const uint16x8_t b = low_halves((Naturals)v.part[2], (Naturals)v.part[3]);
    return (Bytes)vuzp1q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
}
inline Vec spread_float(const uint8_t *from) {
    const float32x4_t value = vdupq_n_f32(float_at(from));
    return Vec::of([&](int) { return (Floats)value; });
}

inline Floats fused(Floats a, Floats b, Floats c) { return (Floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
inline Vec fused(Vec a, Vec b, Vec c) {
    return Vec::of([&](int p) { return fused(a.part[p], b.part[p], c.part[p]); });
}
inline int32_t sum(Ints v) { return vaddvq_s32((int32x4_t)((v.part[0] + v.part[1]) + (v.part[2] + v.part[3]))); }
inline float largest(Vec v) {
    const float32x4_t a = vmaxq_f32((float32x4_t)v.part[0], (float32x4_t)v.part[1]);
    return vmaxvq_f32(vmaxq_f32(a, vmaxq_f32((float32x4_t)v.part[2], (float32x4_t)v.part[3])));
}

inline Floats in_register(Floats v) {
    asm("" : "+w"(v));
    return v;
}

inline float half_to_float(uint16_t half) {
    __fp16 value;
    std::memcpy(&value, &half, sizeof value);
    return float(value);
}
inline uint16_t float_to_half(float value) {
    const __fp16 rounded = __fp16(value);
    uint16_t half;
    std::memcpy(&half, &rounded, sizeof half);
    return half;
}

// -- codes ------------------------------------------------------------------------------------------------------------

inline Words masked_or(Words v, uint32_t mask, Words bits) {  // of bits that the mask has not
    return Words::of([&](int p) { return (Naturals)vbslq_u32(vdupq_n_u32(mask), (uint32x4_t)v.part[p], (uint32x4_t)bits.part[p]); });
}
inline Words high_half(Words v) {
    return Words::of([&](int p) { return (Naturals)vshrq_n_u8((uint8x16_t)v.part[p], 4); });
}
inline Words table_of(const int8_t *numbers) {
    const uint8x16_t table = vreinterpretq_u8_s8(vld1q_s8(numbers));
    return Words::of([&](int) { return (Naturals)table; });
}
inline Words looked_up(Words table, Words codes) {
    return Words::of([&](int p) { return (Naturals)vqtbl1q_u8((uint8x16_t)table.part[p], (uint8x16_t)codes.part[p]); });
}

// Four numbers of a row, as the products take them.
#if defined(__ARM_FEATURE_DOTPROD)
typedef int8x8_t RowFour;
inline RowFour row_four(const uint8_t *four) { return vcreate_s8(uint64_t(uint32_t(four_at(four)))); }
#else
typedef int8x16_t RowFour;
inline RowFour row_four(const uint8_t *four) { return vreinterpretq_s8_s32(vdupq_n_s32(four_at(four))); }
#endif

// sum += four times four bytes of each output, whose weights have a sign.
inline Integers fours(Integers sum, Naturals weights, RowFour x) {
    const int8x16_t w = (int8x16_t)weights;
#if defined(__ARM_FEATURE_DOTPROD)
    return (Integers)vdotq_lane_s32((int32x4_t)sum, w, x, 0);
#else
    // Two products of at most 128 * 127 fit 16 bits.
    const int16x8_t pairs = vpaddq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)), vmull_high_s8(w, x));
    return (Integers)vpadalq_s16((int32x4_t)sum, pairs);
#endif
}

template <int BITS>
inline Ints dot(Ints sum, Words codes, const uint8_t *four) {
    const RowFour x = row_four(four);
    return Ints::of([&](int p) {
        const Naturals code = codes.part[p];
#if defined(__ARM_FEATURE_MATMUL_INT8)
        if constexpr (BITS == 8) return (Integers)vusdotq_lane_s32((int32x4_t)sum.part[p], (uint8x16_t)code, x, 0);
#endif
        return fours(sum.part[p], BITS == 8 ? code ^ 0x80808080u : code, x);
    });
}

// -- products of numbers that are not codes ---------------------------------------------------------------------------

inline Ints add_int8(Ints sum, Words weights, const uint8_t *four) {
    const RowFour x = row_four(four);
    return Ints::of([&](int p) { return fours(sum.part[p], weights.part[p], x); });
}

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
// Its rounding is its own, and the same for any number of rows.
constexpr bool HAS_PAIRS = true;
inline Vec add_pairs(Vec sum, Words weights, const uint8_t *pair) {
    const bfloat16x4_t x = (bfloat16x4_t)vcreate_u8(uint64_t(uint32_t(four_at(pair))));
    return Vec::of([&](int p) {
        return (Floats)vbfdotq_lane_f32((float32x4_t)sum.part[p], (bfloat16x8_t)weights.part[p], x, 0);
    });
}
#else
constexpr bool HAS_PAIRS = false;
inline Vec add_pairs(Vec sum, Words, const uint8_t *) { return sum; }
#endif
