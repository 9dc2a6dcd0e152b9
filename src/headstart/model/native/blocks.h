// Weights as the blocks of GGUF files, packed for products of codes without a copy of them between: of a panel's rows at a
// time codes, scales and minimums are made where a thread has them at hand.
//
// blocks.py has the same layouts in NumPy, and says where they are from. Forms of scales and minimums are those of the type
// (grouping.py), so no number is looked at to find them.
#pragma once

#include "products.h"

// As GGUF files number them.
enum BlockType : int64_t {
    Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q2_K = 10, Q3_K = 11, Q4_K = 12, Q5_K = 13, Q6_K = 14, IQ4_NL = 20,
    IQ4_XS = 23, MXFP4 = 39,
};

// A matrix to be packed.
struct BlockMatrix {
    const Product *product;        // its sizes and forms are set
    int64_t type;
    const uint8_t *const *rows;    // [outputs]: where each begins
    uint8_t *to;                   // where the panels go
    int64_t damaged;               // becomes 1 where a scale or minimum is no finite number
};

// Codes of sixteen bytes: their low halves and their high ones. They are copied, so that the compiler knows that nothing else
// lies there, and takes them all at once.
inline void split_nibbles(const uint8_t *from, uint8_t *low, uint8_t *high) {
    uint8_t bytes[16], lows[16], highs[16];
    std::memcpy(bytes, from, sizeof bytes);
    for (int i = 0; i < 16; i++) lows[i] = bytes[i] & 15, highs[i] = bytes[i] >> 4;
    std::memcpy(low, lows, sizeof lows);
    std::memcpy(high, highs, sizeof highs);
}

// So many bits of each of 32 bytes, from one bit on, go into 32 codes above those that are there.
inline void add_bits(const uint8_t *from, int first, uint8_t mask, int above, uint8_t *codes) {
    uint8_t bytes[32], sums[32];
    std::memcpy(bytes, from, sizeof bytes);
    std::memcpy(sums, codes, sizeof sums);
    for (int j = 0; j < 32; j++) sums[j] = uint8_t(sums[j] | (bytes[j] >> first & mask) << above);
    std::memcpy(codes, sums, sizeof sums);
}

// What is made of one row.
struct DecodedRow {
    uint8_t *codes;
    float *scales, *minimums, *scale_units, *minimum_units;

    // Of the block of 32 inputs at b, nibbles: low halves first.
    void nibbles(int64_t b, const uint8_t *from) const { split_nibbles(from, codes + b * 32, codes + b * 32 + 16); }

    // The same with their fifth bits.
    void fives(int64_t b, const uint8_t *fifth, const uint8_t *from) const {
        uint32_t bits;
        std::memcpy(&bits, fifth, sizeof bits);
        nibbles(b, from);
        for (int i = 0; i < 32; i++) codes[b * 32 + i] |= (bits >> i & 1) << 4;
    }

    // Of the block of 256 inputs at b, nibbles in chunks of `size` bytes.
    void chunks(int64_t b, const uint8_t *from, int64_t size) const {
        uint8_t *to = codes + b * UNIT;
        for (int64_t i = 0; i < UNIT / 2; i += size, from += size, to += 2 * size)
            for (int64_t j = 0; j < size; j += 16) split_nibbles(from + j, to + j, to + size + j);
    }

    // Two bits each: pair i of byte j of each half belongs to input 32 i + j. They go `above` so many bits.
    void pairs(int64_t b, const uint8_t *from, int above) const {
        for (int64_t half = 0; half < 2; half++)
            for (int i = 0; i < 4; i++) add_bits(from + half * 32, 2 * i, 3, above, codes + b * UNIT + half * 128 + i * 32);
    }

    // One bit each: bit i of byte j belongs to input 32 i + j.
    void singles(int64_t b, const uint8_t *from, int above) const {
        for (int i = 0; i < 8; i++) add_bits(from, i, 1, above, codes + b * UNIT + i * 32);
    }

    void clear(int64_t b) const { std::memset(codes + b * UNIT, 0, UNIT); }

    void units(int64_t b, float scale, float minimum) const { scale_units[b] = scale, minimum_units[b] = minimum; }

    // The 6-bit scales and minimums of Q4_K and Q5_K.
    void sixes(int64_t b, const uint8_t *from) const {
        const float unit = half_at(from), lowest = half_at(from + 2);
        const uint8_t *first = from + 4, *second = from + 8, *third = from + 12;
        units(b, unit, lowest);
        for (int i = 0; i < 4; i++) {
            scales[b * 8 + i] = unit * float(first[i] & 63);
            scales[b * 8 + 4 + i] = unit * float((third[i] & 15) | first[i] >> 6 << 4);
            minimums[b * 8 + i] = lowest * float(second[i] & 63);
            minimums[b * 8 + 4 + i] = lowest * float(third[i] >> 4 | second[i] >> 6 << 4);
        }
    }
};

inline void decode_block(int64_t type, const uint8_t *from, int64_t b, const DecodedRow &to) {
    switch (type) {
        case Q4_0:
        case IQ4_NL: to.scales[b] = half_at(from); return to.nibbles(b, from + 2);
        case Q4_1: to.scales[b] = half_at(from), to.minimums[b] = -half_at(from + 2); return to.nibbles(b, from + 4);
        case Q5_0: to.scales[b] = half_at(from); return to.fives(b, from + 2, from + 6);
        case Q5_1: to.scales[b] = half_at(from), to.minimums[b] = -half_at(from + 2); return to.fives(b, from + 4, from + 8);
        case Q8_0:
            to.scales[b] = half_at(from);
            for (int i = 0; i < 32; i++) to.codes[b * 32 + i] = from[2 + i] ^ 0x80;
            return;
        case MXFP4: {
            to.nibbles(b, from + 1);
            uint8_t any = 0;
            for (int i = 0; i < 16; i++) any |= from[1 + i] & 0x77;
            // Blocks of zeros have the smallest exponent, which no normal float has; 12 times the largest ones is no float.
            to.scales[b] = !any ? 0.0f : from[0] - 128 < 125 ? std::ldexp(1.0f, from[0] - 128) : __builtin_nanf("");
            return;
        }
        case Q4_K: to.sixes(b, from); return to.chunks(b, from + 16, 32);
        case Q5_K:
            to.sixes(b, from);
            to.chunks(b, from + 48, 32);
            return to.singles(b, from + 16, 4);
        case Q6_K: {
            const float unit = half_at(from + 208);
            to.units(b, unit, 0.0f);
            for (int g = 0; g < 16; g++) to.scales[b * 16 + g] = unit * float(int8_t(from[192 + g]));
            to.chunks(b, from, 64);
            return to.pairs(b, from + 128, 4);
        }
        case Q2_K: {
            const float unit = half_at(from + 80), lowest = half_at(from + 82);
            to.units(b, unit, lowest);
            for (int g = 0; g < 16; g++) {
                to.scales[b * 16 + g] = unit * float(from[g] & 15);
                to.minimums[b * 16 + g] = lowest * float(from[g] >> 4);
            }
            to.clear(b);
            return to.pairs(b, from + 16, 0);
        }
        case Q3_K: {
            const float unit = half_at(from + 108);
            to.units(b, unit, 0.0f);
            for (int g = 0; g < 16; g++) {
                const int low = g < 8 ? from[96 + g] & 15 : from[96 + g - 8] >> 4;
                const int high = from[104 + g % 4] >> g / 4 * 2 & 3;
                to.scales[b * 16 + g] = unit * float((low | high << 4) - 32);
            }
            to.clear(b);
            to.pairs(b, from + 32, 0);
            return to.singles(b, from, 2);
        }
        case IQ4_XS: {
            const float unit = half_at(from);
            to.units(b, unit, 0.0f);
            for (int g = 0; g < 8; g++) {
                const int low = from[4 + g / 2] >> g % 2 * 4 & 15, high = from[2 + g / 4] >> g % 4 * 2 & 3;
                to.scales[b * 8 + g] = unit * float((low | high << 4) - 32);
            }
            return to.chunks(b, from + 8, 16);
        }
    }
}

// Bytes of a block; 0 for a type that is not known.
inline int64_t block_bytes(int64_t type) {
    switch (type) {
        case Q4_0: case IQ4_NL: return 18;
        case Q4_1: return 20;
        case Q5_0: return 22;
        case Q5_1: return 24;
        case Q8_0: return 34;
        case Q2_K: return 84;
        case Q3_K: return 110;
        case Q4_K: return 144;
        case Q5_K: return 176;
        case Q6_K: return 210;
        case IQ4_XS: return 136;
        case MXFP4: return 17;
        default: return 0;
    }
}

inline bool all_finite(const float *numbers, int64_t n) {
    float sum = 0;
    for (int64_t i = 0; i < n; i++) sum += numbers[i] * 0.0f;
    return sum == sum;
}

// Room for the rows of a panel.
struct DecodedPanel {
    int64_t inputs, groups, units;

    explicit DecodedPanel(const Product &p)
        : inputs(p.inputs), groups((p.inputs + p.group - 1) / p.group), units((p.inputs + UNIT - 1) / UNIT) {}

    // In floats; codes come last.
    int64_t numbers() const { return LANES * (2 * groups + 2 * units) + (LANES * inputs + 3) / 4; }

    DecodedRow row(float *scratch, int64_t n) const {
        float *minimums = scratch + LANES * groups, *scale_units = minimums + LANES * groups;
        float *minimum_units = scale_units + LANES * units;
        uint8_t *codes = (uint8_t *)(minimum_units + LANES * units);
        return {codes + n * inputs, scratch + n * groups, minimums + n * groups, scale_units + n * units, minimum_units + n * units};
    }
};

inline void pack_blocks(BlockMatrix &m, int64_t panel, float *scratch) {
    const Product &p = *m.product;
    const Grouping of = grouping(p);
    const DecodedPanel room(p);
    const int64_t per = m.type >= Q2_K && m.type != IQ4_NL && m.type != MXFP4 ? UNIT : 32, size = block_bytes(m.type);
    const int64_t left = p.outputs - panel * LANES, here = left < 0 ? 0 : left < LANES ? left : LANES;
    for (int64_t n = 0; n < here; n++) {
        const DecodedRow row = room.row(scratch, n);
        const uint8_t *from = m.rows[panel * LANES + n];
        for (int64_t b = 0; b < p.inputs / per; b++, from += size) decode_block(m.type, from, b, row);
        if (!all_finite(row.scales, room.groups) || (p.minimum == STORED && !all_finite(row.minimums, room.groups)))
            __atomic_store_n(&m.damaged, 1, __ATOMIC_RELAXED);
    }
    const DecodedRow all = room.row(scratch, 0);
    pack_grouped(of, GroupedSource{all.codes, all.scales, all.minimums, all.scale_units, all.minimum_units}, 0, here,
                 m.to + panel * of.panel_bytes());
}
