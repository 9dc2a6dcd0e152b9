// Sixteen numbers at a time, and the operations that each instruction set has in its own way: one header for each, of which
// the compiler's flags select one. `generic.h` is the plainest, and says in C++ what every one of them computes.
//
//   Vec, Ints, Words      sixteen float32, int32 and uint32: + - * / & | << >> among themselves and with single numbers,
//                         < and > give a mask (Ints) for `select`. v[i] reads one of them.
//   Floats                what one register holds of float32, with the same operators: columns of a state (mixers.h)
//   HAS_PAIRS             whether there are dot products of pairs of bf16: `add_pairs`
//   LIFTED                is added to the numbers of a table, where products want weights without a sign (`table_of`)
//   LOWERED               is taken off codes of 8 bits, where products want weights with a sign (`dot`)
//   ROW_ZERO              is added to the int8 numbers of a row, where the products of INT8 want rows without a sign
//   MOST_ROWS, GROUPED_ROWS, MOST_QUERIES, tiles_at_once, TOGETHER
//                         how much is done at once: as much as the registers hold. MOST_ROWS: with two panels
//   HEADSTART_SHORT_SUMS  is defined where products of codes of few bits first add up in 16 bits: see `add_short`
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

constexpr int LANES = 16;
typedef uint8_t Bytes __attribute__((vector_size(16)));
typedef uint32_t Fours __attribute__((vector_size(16)));

struct BFloat16 {
    uint16_t bits;
};

// Unless it unrolls loops over an array of sums early, GCC 12 writes all sums to memory in every step, at a third of the speed.
#if defined(__clang__)
#define HEADSTART_UNROLL _Pragma("unroll")
#else
#define HEADSTART_UNROLL _Pragma("GCC unroll 16")
#endif

inline int32_t four_at(const uint8_t *from) {
    int32_t four;
    std::memcpy(&four, from, sizeof four);
    return four;
}

inline float float_at(const uint8_t *from) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && defined(__AVX512VNNI__)
#include "avx512.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "avx2.h"
#else
#include "generic.h"
#endif

// Sums of 16 bits that hold the products of 32 inputs, each of a code of at most 4 bits.
#if !defined(HEADSTART_SHORT_SUMS)
constexpr bool SHORT_SUMS = false;
inline Ints add_short(Ints sums, Words, const uint8_t *) { return sums; }
inline Ints add_shorts(Ints sum, Ints) { return sum; }
#endif

// -- codes: four bytes of each of sixteen outputs ---------------------------------------------------------------------

inline Words low_half(Words v) { return v & 0x0f0f0f0fu; }
inline Words high_half(Words v) { return (v >> 4) & 0x0f0f0f0fu; }

// v by `LEFT` bits to the left, or to the right if that is negative. Bits of one byte come into the next one, where a mask
// takes them off.
template <int LEFT>
inline Words moved(Words v) {
    if constexpr (LEFT >= 0)
        return v << LEFT;
    else
        return v >> -LEFT;
}

// The bits of `mask` of each byte of v, which was moved.
template <int LEFT>
inline Words shifted(Words v, uint8_t mask) { return moved<LEFT>(v) & (mask * 0x01010101u); }

// Each byte's low half, and the bits of `mask` from `high`, which was moved to where they belong.
template <int LEFT>
inline Words joined(Words low, Words high, uint8_t mask) { return masked_or(low, 0x0f0f0f0fu, shifted<LEFT>(high, mask)); }
