// Products of weights that are codes of 2 to 6 or 8 bits in groups of inputs, each group with a scale and a minimum
// (weight = scale * code - minimum), or codes of 4 bits that stand for the numbers of a table (weight = scale *
// table[code]), with rows rounded to int8.
//
// Sums inside a group are whole numbers, which have no order. Each is then multiplied by its weights' scale and added,
// times its row's own scale, to the groups before it by fused multiply-adds. These steps are the same in every
// instruction set and for every number of rows, so a row's result has the same bits everywhere.
#pragma once

#include "numbers.h"
#include "tiles.h"

// How scales and minimums are stored. All give the same numbers: the smallest form that holds them is taken.
enum Scales {
    SCALES_FLOAT = 0,  // float32
    SCALES_HALF = 1,   // float16
    SCALES_UNITS = 2,  // a float16 unit for each 256 inputs, and int8 multiples of it
    SCALES_POWERS = 3, // powers of two: the exponent's bits of a float32, 0 for zero
};

constexpr int64_t UNIT = 256;  // inputs whose weights lie together
constexpr int64_t STORED = -1; // of `minimum`: minimums are stored. Otherwise a minimum is so many times its scale
constexpr int TABLED = 0;      // of BITS: codes of 4 bits, which are looked up in the table

struct Grouping {
    int64_t bits, group, scales, minimum, inputs;
    const int32_t *order;  // [inputs]: the place in a row of each input of the codes, or null: they stand alike
    const int8_t *table;   // [16]: the numbers that codes of 4 bits stand for, or null: they are the numbers

    // Inputs of a row that are rounded together.
    int64_t rounded() const { return group > 32 ? group : 32; }

    int64_t blocks() const { return (inputs + UNIT - 1) / UNIT; }

    // Groups of a block of 256 inputs; the last may have fewer.
    int64_t groups(int64_t block) const {
        const int64_t left = inputs - block * UNIT, here = left < UNIT ? left : UNIT;
        return (here + group - 1) / group;
    }

    int64_t code_bytes(int64_t groups) const { return groups * group * LANES * bits / 8; }

    // Of the scales of a block's groups, or of the minimums.
    int64_t scale_bytes(int64_t groups) const {
        if (scales == SCALES_UNITS) return (2 + groups) * LANES;
        if (scales == SCALES_POWERS) return groups * LANES;
        return groups * LANES * (scales == SCALES_HALF ? 2 : 4);
    }

    // Of a panel's block: codes, scales, minimums if they are stored; whole cache lines.
    int64_t record_bytes(int64_t groups) const {
        const int64_t scaled = scale_bytes(groups) * (minimum == STORED ? 2 : 1);
        return code_bytes(groups) + (scaled + 63) / 64 * 64;
    }

    // So many times a group's sum of a row is taken off its whole sum, where no minimums are stored. A table's numbers have a
    // sign, codes have none: whichever the products do not want are `LIFTED` or `LOWERED`, which this puts right again.
    int64_t taken_off() const { return table ? LIFTED : bits == 8 ? minimum - LOWERED : minimum; }

    // Whether codes, their minimum taken off where it is a whole number, are bytes. Those of 2 and 3 bits are not made ready
    // for tiles.
    bool fits_tiles() const { return bits > 3 && (table || minimum <= 0 || (int64_t(1) << bits) - 1 - minimum <= 127); }

    int64_t panel_bytes() const {
        return (blocks() - 1) * record_bytes(groups(0)) + record_bytes(groups(blocks() - 1));
    }
};

// Rows that are multiplied together lie interleaved, so that one address reaches all of them: 64 inputs of the first, of the
// second, ...; then the next 64. These are a line of the cache, so that members of a team that each make a row ready do not
// write to one line. So many are taken at a time: the products are compiled for these numbers alone. What is computed of rows
// that do not exist, in memory that does, is not used.
constexpr int64_t LINE = 64;

inline int64_t grouped_step(int64_t count) {
    const int64_t calls = (count + GROUPED_ROWS - 1) / GROUPED_ROWS, most = (count + calls - 1) / calls;
    return most <= 4 ? most : (most + 1) / 2 * 2;
}

// How rows lie: `step` of them interleaved. tiled: they are multiplied by tiles.
struct Interleaved {
    int64_t step;
    bool tiled;
};

#if defined(HEADSTART_TILES)
constexpr int64_t TILED_ROWS = 25;  // from so many on tiles are quicker than vectors
#endif

inline Interleaved interleaved(const Grouping &of, int64_t count) {
#if defined(HEADSTART_TILES)
    if (count >= TILED_ROWS && of.fits_tiles() && tiles_permitted()) return {LANES, true};
#else
    (void)of;
#endif
    return {grouped_step(count), false};
}

// A row: int8 codes (zeros up to whole groups of any size), a scale for each `rounded` inputs, and for each group its sum,
// as the product wants it: `taken_off` times the negative sum as int32, or where minimums are stored the negative sum as float32.
// Interleaved rows have the first of these parts of all of them, then the second, then the third.
inline int64_t grouped_padded(int64_t inputs) { return (inputs + 127) / 128 * 128; }
inline int64_t in_lines(int64_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }
inline int64_t grouped_sums_at(int64_t inputs) { return grouped_padded(inputs) + in_lines((inputs + 31) / 32 * 4); }
inline int64_t grouped_row_bytes(int64_t inputs) { return grouped_sums_at(inputs) + in_lines((inputs + 15) / 16 * 4); }

// -- rows -------------------------------------------------------------------------------------------------------------

// Sixteen inputs of a row from the i-th on, in the order of the codes.
inline Vec ordered(const Grouping &of, const float *row, int64_t i) {
    if (!of.order) return load(row + i);
    float found[LANES];
    for (int n = 0; n < LANES; n++) found[n] = row[of.order[i + n]];
    return load(found);
}

// Where byte `at` of a part of a row lies, from its first on, where `step` rows are interleaved.
inline int64_t interleaved_at(int64_t at, int64_t step) { return (at & -LINE) * step + (at & (LINE - 1)); }

// Row r of `count`: rounded to int8 by blocks, the largest number of each becoming 127. A NaN or an infinity makes
// its scale NaN. stride: bytes of a row.
inline void convert_grouped(const Grouping &of, const float *row, int64_t r, int64_t count, int64_t stride, uint8_t *rows) {
    const auto [step, tiled] = interleaved(of, count);
    const int64_t padded = grouped_padded(of.inputs), by = of.group / LANES, place = r % step;
    uint8_t *codes = rows + r / step * step * stride + place * LINE;
    uint8_t *scales = codes + padded * step, *sums = codes + grouped_sums_at(of.inputs) * step;
    for (int64_t begin = 0, block = 0; begin < of.inputs; begin += of.rounded(), block++) {
        const int64_t end = begin + of.rounded() < of.inputs ? begin + of.rounded() : of.inputs;
        Vec peak = {}, finite = {};
        for (int64_t i = begin; i < end; i += LANES) {
            const Vec v = ordered(of, row, i);
            peak = larger(peak, size_of(v));
            finite += v * 0.0f;
        }
        const float most = largest(peak), scale = most / 127.0f + sum(finite);
        std::memcpy(scales + interleaved_at(block * 4, step), &scale, sizeof scale);
        const Vec inverse = splat(most > 1e-30f ? 127.0f / most : 0.0f), magic = splat(12582912.0f);
        Ints total = {};
        for (int64_t i = begin; i < end; i += LANES) {
            const Vec rounded = fused(ordered(of, row, i), inverse, magic);  // the low bits of 1.5 * 2^23 + q are q
            const Ints words = bits_of(rounded);
            const Bytes bytes = low_bytes(words);
            std::memcpy(codes + interleaved_at(i, step), &bytes, sizeof bytes);
            total += words << 24 >> 24;
            const int64_t unit = i / LANES;
            if ((unit + 1) % by && i + LANES < end) continue;
            const int32_t whole = sum(total), times = -int32_t(of.taken_off()) * whole;
            const float negative = -float(whole);
            std::memcpy(sums + interleaved_at(unit / by * 4, step), of.minimum == STORED ? (const void *)&negative : &times, 4);
            total = Ints{};
        }
    }
    for (int64_t i = of.inputs; i < padded; i += LANES) std::memset(codes + interleaved_at(i, step), 0, LANES);
    if (!tiled || r + 1 < count) return;
    // The rows up to the sixteenth are multiplied with the last: any codes will do, but not any float.
    for (int64_t missing = place + 1; missing < step; missing++) {
        scales += LINE, sums += LINE;
        for (int64_t i = 0; i < (of.inputs + 31) / 32 * 4; i += LINE) std::memset(scales + i * step, 0, LINE);
        for (int64_t i = 0; i < (of.inputs + 15) / 16 * 4; i += LINE) std::memset(sums + i * step, 0, LINE);
    }
}

// -- packing ----------------------------------------------------------------------------------------------------------

inline void put_half(uint8_t *to, float value) {
    const uint16_t half = float_to_half(value);
    std::memcpy(to, &half, sizeof half);
}

inline uint8_t exponent_bits(float power) {
    uint32_t word;
    std::memcpy(&word, &power, sizeof word);
    return uint8_t(word >> 23);
}

// Scales or minimums of one output and block, at place n of sixteen. units: of this output, or null.
inline void pack_scales(const Grouping &of, const float *scales, const float *unit, int64_t groups, int64_t n, uint8_t *to) {
    if (of.scales == SCALES_UNITS) put_half(to + 2 * n, *unit);
    for (int64_t g = 0; g < groups; g++) {
        const int64_t at = g * LANES + n;
        if (of.scales == SCALES_UNITS)
            ((int8_t *)to)[2 * LANES + at] = *unit == 0.0f ? 0 : int8_t(std::nearbyint(scales[g] / *unit));
        else if (of.scales == SCALES_HALF)
            put_half(to + 2 * at, scales[g]);
        else if (of.scales == SCALES_POWERS)
            to[at] = exponent_bits(scales[g]);
        else
            std::memcpy(to + 4 * at, scales + g, sizeof(float));
    }
}

struct GroupedSource {
    const uint8_t *codes;                        // [outputs, inputs]
    const float *scales, *minimums;              // [outputs, groups]
    const float *scale_units, *minimum_units;    // [outputs, blocks], or null
};

// Where the code of an input lies among the codes of its block, four inputs of an output side by side: sixteen outputs
// times four inputs, a step, are the bytes of one vector. Of codes below 8 bits the low four bits of four steps lie in
// two vectors: steps 0 and 1 in their low halves, 2 and 3 in the high. The rest follows: two bits each of four steps in
// one more vector, or one bit each of eight steps. Codes of 2 bits of four steps lie in one vector. Of codes of 3 bits three
// vectors hold six steps, two in the lower bits of each, and in their upper two bits the other two steps.
struct Place {
    int64_t low, low_shift, low_bits = 4, high = 0, high_shift = 0, high_mask = 0;

    Place(int64_t bits, int64_t in, int64_t n) {
        if (bits == 2) {
            low = in / 16 * 64 + n * 4 + in % 4;
            low_shift = in / 4 % 4 * 2;
            low_bits = 2;
            return;
        }
        if (bits == 3) {
            const int64_t step = in / 4 % 8, first = in / 32 * 192 + n * 4 + in % 4;
            low = first + (step < 6 ? step / 2 : step - 5) * 64;
            low_shift = step < 6 ? step % 2 * 3 : step == 6 ? 7 : 6;
            low_bits = step < 6 ? 3 : step - 5;
            high = first + (step - 6) * 64;
            high_shift = 6;
            high_mask = step < 6 ? 0 : step == 6 ? 3 : 1;
            return;
        }
        const int64_t step = in / 4, byte = n * 4 + in % 4, more = bits == 5 ? 8 : 4;  // steps that share a vector
        const int64_t vectors = bits == 4 ? 2 : more / 2 + 1, part = step / more, s = step % more;
        low = (part * vectors + s / 4 * 2 + s % 2) * 64 + byte;
        low_shift = s % 4 < 2 ? 0 : 4;
        high = (part * vectors + more / 2) * 64 + byte;
        high_shift = bits == 5 ? s : 2 * s;
        high_mask = bits == 4 ? 0 : bits == 5 ? 1 : 3;
    }
};

// Four codes, a byte each: the steps of a block are put into place as one number.
inline uint32_t four_codes(const uint8_t *from, int64_t count) {
    uint32_t codes = 0;
    std::memcpy(&codes, from, count < 4 ? count : 4);
    return codes;
}

inline void add_bits(uint8_t *to, uint32_t bits) {
    uint32_t held;
    std::memcpy(&held, to, sizeof held);
    held |= bits;
    std::memcpy(to, &held, sizeof held);
}

// The codes of so many outputs [count, stride], of which a block takes `inputs`.
inline void put_codes(int64_t bits, const uint8_t *from, int64_t inputs, int64_t count, int64_t stride, uint8_t *codes) {
    constexpr uint32_t EACH = 0x01010101;
    if (bits == 4 && inputs % LANES == 0) {  // four steps at once, without a look at what is there
        constexpr uint64_t LOW = 0x0f0f0f0f0f0f0f0f;
        for (int64_t in = 0; in < inputs; in += LANES, codes += 128)
            for (int64_t n = 0; n < count; n++) {
                uint64_t halves[2];
                std::memcpy(halves, from + n * stride + in, sizeof halves);
                const uint64_t both = (halves[0] & LOW) | (halves[1] & LOW) << 4;
                const uint32_t first = uint32_t(both), second = uint32_t(both >> 32);
                std::memcpy(codes + n * 4, &first, sizeof first);
                std::memcpy(codes + 64 + n * 4, &second, sizeof second);
            }
        return;
    }
    for (int64_t in = 0; in < inputs; in += 4) {
        if (bits == 8) {
            for (int64_t n = 0; n < count; n++)
                add_bits(codes + in / 4 * 64 + n * 4, four_codes(from + n * stride + in, inputs - in));
            continue;
        }
        const Place at(bits, in, 0);
        const uint32_t low = EACH * ((1u << at.low_bits) - 1), high = EACH * uint32_t(at.high_mask);
        for (int64_t n = 0; n < count; n++) {
            const uint32_t four = four_codes(from + n * stride + in, inputs - in);
            add_bits(codes + at.low + n * 4, (four & low) << at.low_shift);
            if (high) add_bits(codes + at.high + n * 4, (four >> at.low_bits & high) << at.high_shift);
        }
    }
}

inline int64_t code_at(int64_t bits, const uint8_t *codes, int64_t in, int64_t n) {
    if (bits == 8) return codes[in / 4 * 64 + n * 4 + in % 4];
    const Place at(bits, in, n);
    const int64_t low = codes[at.low] >> at.low_shift & ((1 << at.low_bits) - 1);
    return at.high_mask ? low | (codes[at.high] >> at.high_shift & at.high_mask) << at.low_bits : low;
}

// One panel: for each block of 256 inputs its codes (see `Place`), then scales and minimums.
inline void pack_grouped(const Grouping &of, const GroupedSource &from, int64_t panel, int64_t outputs, uint8_t *to) {
    const int64_t all = (of.inputs + of.group - 1) / of.group;
    std::memset(to, 0, of.panel_bytes());
    for (int64_t block = 0; block < of.blocks(); block++) {
        const int64_t groups = of.groups(block), begin = block * UNIT;
        const int64_t end = begin + UNIT < of.inputs ? begin + UNIT : of.inputs;
        uint8_t *scales = to + of.code_bytes(groups), *minimums = scales + of.scale_bytes(groups);
        const int64_t left = outputs - panel * LANES, here = left < LANES ? left : LANES;
        put_codes(of.bits, from.codes + panel * LANES * of.inputs + begin, end - begin, here, of.inputs, to);
        for (int64_t n = 0; n < here; n++) {
            const int64_t output = panel * LANES + n, first = output * all + begin / of.group;
            const int64_t unit = output * of.blocks() + block;
            pack_scales(of, from.scales + first, from.scale_units ? from.scale_units + unit : nullptr, groups, n, scales);
            if (of.minimum == STORED)
                pack_scales(of, from.minimums + first, from.minimum_units ? from.minimum_units + unit : nullptr, groups,
                            n, minimums);
        }
        to += of.record_bytes(groups);
    }
}

inline float half_at(const uint8_t *from) {
    uint16_t half;
    std::memcpy(&half, from, sizeof half);
    return half_to_float(half);
}

// The scale or minimum of output n of sixteen in a group of a block, as it was before it was packed.
inline float unpacked_scale(const Grouping &of, const uint8_t *from, int64_t group, int64_t n) {
    const int64_t at = group * LANES + n;
    if (of.scales == SCALES_UNITS) return half_at(from + 2 * n) * float(((const int8_t *)from)[2 * LANES + at]);
    if (of.scales == SCALES_HALF) return half_at(from + 2 * at);
    const uint32_t power = uint32_t(from[at]) << 23;
    float value;
    std::memcpy(&value, of.scales == SCALES_POWERS ? (const uint8_t *)&power : from + 4 * at, sizeof value);
    return value;
}

// The weights of output n of a panel's sixteen as numbers, each rounded once: what `pack_grouped` has packed.
inline void unpack_grouped(const Grouping &of, const uint8_t *panel, int64_t n, float *to) {
    for (int64_t block = 0; block < of.blocks(); block++) {
        const int64_t groups = of.groups(block), begin = block * UNIT;
        const int64_t end = begin + UNIT < of.inputs ? begin + UNIT : of.inputs;
        const uint8_t *scales = panel + of.code_bytes(groups), *minimums = scales + of.scale_bytes(groups);
        for (int64_t first = begin; first < end; first += of.group) {
            const int64_t group = (first - begin) / of.group, last = first + of.group < end ? first + of.group : end;
            const float scale = unpacked_scale(of, scales, group, n);
            const float minimum = of.minimum == STORED ? unpacked_scale(of, minimums, group, n) : 0.0f;
            for (int64_t i = first; i < last; i++) {
                const int64_t code = code_at(of.bits, panel, i - begin, n);
                if (of.table)
                    to[i] = scale * float(of.table[code]);
                else
                    to[i] = of.minimum == STORED ? std::fma(scale, float(code), -minimum) : scale * float(code - of.minimum);
            }
        }
        panel += of.record_bytes(groups);
    }
}

// -- products ---------------------------------------------------------------------------------------------------------

// Bytes of weights that are fetched before they are needed. Processors fetch ahead themselves, but not so far while they
// compute.
constexpr int64_t AHEAD = 4096;

// unit: what `unit_of` says of the block.
inline Vec scale_of(const Grouping &of, Vec unit, const uint8_t *from, int64_t group) {
    if (of.scales == SCALES_HALF) return load_halves(from + group * 2 * LANES);
    if (of.scales == SCALES_FLOAT) return load((const float *)from + group * LANES);
    if (of.scales == SCALES_POWERS) return load_powers(from + group * LANES);
    return unit * load_bytes(from + (2 + group) * LANES);
}

inline Vec unit_of(const Grouping &of, const uint8_t *from) { return of.scales == SCALES_UNITS ? load_halves(from) : Vec{}; }

// Whether products of such codes add up in 16 bits, 32 inputs at a time.
template <int BITS>
constexpr bool in_short() { return SHORT_SUMS && BITS != TABLED && BITS <= 4; }

// sums += the codes of a step of four inputs times those of N rows.
template <int BITS, int N>
inline void add_step(Words codes, const uint8_t *four, Ints *sums) {
    HEADSTART_UNROLL
    for (int r = 0; r < N; r++)
        sums[r] = in_short<BITS>() ? add_short(sums[r], codes, four + r * LINE) : dot<BITS>(sums[r], codes, four + r * LINE);
}

// The same of four steps, whose codes have more than four bits: their low halves in two vectors, the rest in `high`, at
// bit FIRST and following.
template <int BITS, int FIRST, int N>
inline void add_four(const uint8_t *low, Words high, const uint8_t *x, Ints *sums) {
    constexpr int EACH = BITS - 4;
    constexpr uint8_t MASK = EACH == 1 ? 16 : 48;
    const Words a = load_codes(low), b = load_codes(low + 64);
    add_step<BITS, N>(joined<4 - FIRST>(a, high, MASK), x, sums);
    add_step<BITS, N>(joined<4 - FIRST - EACH>(b, high, MASK), x + 4, sums);
    add_step<BITS, N>(joined<4 - FIRST - 2 * EACH>(moved<-4>(a), high, MASK), x + 8, sums);
    add_step<BITS, N>(joined<4 - FIRST - 3 * EACH>(moved<-4>(b), high, MASK), x + 12, sums);
}

// The same of four steps of codes of two bits.
template <int N>
inline void add_pairs_of_bits(Words w, const uint8_t *x, Ints *sums) {
    add_step<2, N>(shifted<0>(w, 3), x, sums);
    add_step<2, N>(shifted<-2>(w, 3), x + 4, sums);
    add_step<2, N>(shifted<-4>(w, 3), x + 8, sums);
    add_step<2, N>(shifted<-6>(w, 3), x + 12, sums);
}

// The first four steps of codes of three bits, of which 32 inputs lie at w.
template <int N>
inline void add_first_threes(const uint8_t *w, const uint8_t *x, Ints *sums) {
    const Words a = load_codes(w), b = load_codes(w + 64);
    add_step<3, N>(shifted<0>(a, 7), x, sums);
    add_step<3, N>(shifted<-3>(a, 7), x + 4, sums);
    add_step<3, N>(shifted<0>(b, 7), x + 8, sums);
    add_step<3, N>(shifted<-3>(b, 7), x + 12, sums);
}

// The other four, of which two have their bits at the upper end of all three vectors.
template <int N>
inline void add_last_threes(const uint8_t *w, const uint8_t *x, Ints *sums) {
    const Words a = load_codes(w), b = load_codes(w + 64), c = load_codes(w + 128);
    const Words some = masked_or(moved<-2>(b), 0x30303030u, shifted<-4>(c, 12)), upper = masked_or(a, 0xc0c0c0c0u, some);
    add_step<3, N>(shifted<0>(c, 7), x, sums);
    add_step<3, N>(shifted<-3>(c, 7), x + 4, sums);
    add_step<3, N>(shifted<-5>(upper, 7), x + 8, sums);
    add_step<3, N>(shifted<-2>(upper, 7), x + 12, sums);
}

// Bytes of the codes of 16 * UNITS inputs of sixteen outputs. odd: of codes of 3 bits, which lie by 32 inputs: whether these
// are the second 16.
template <int BITS, int UNITS>
inline int64_t codes_on(bool odd) {
    if (BITS == 3 && UNITS == 1) return odd ? 192 : 0;
    return LANES * LANES * UNITS * (BITS == TABLED ? 4 : BITS) / 8;
}

// sums += the codes of 16 * UNITS inputs, which lie at w, times those of N rows. ahead: bytes to what is fetched. table: for
// TABLED alone. odd: see `codes_on`.
template <int BITS, int UNITS, int N>
inline void add_codes(const uint8_t *w, int64_t ahead, const uint8_t *x, Words table, bool odd, Ints *sums) {
    if constexpr (BITS == 3 && UNITS == 1) {
        if (odd) {
            __builtin_prefetch(w + 128 + ahead);
            return add_last_threes<N>(w, x, sums);
        }
    }
    constexpr int BYTES = LANES * LANES * UNITS * (BITS == TABLED ? 4 : BITS) / 8;
    HEADSTART_UNROLL
    for (int at = 0; at < BYTES; at += 64) __builtin_prefetch(w + at + ahead);
    if constexpr (BITS == 3) {
        add_first_threes<N>(w, x, sums);
        if constexpr (UNITS == 2) add_last_threes<N>(w, x + 16, sums);
    } else if constexpr (BITS == 2) {
        HEADSTART_UNROLL
        for (int u = 0; u < UNITS; u++) add_pairs_of_bits<N>(load_codes(w + u * 64), x + u * LANES, sums);
    } else if constexpr (BITS == 5) {
        const Words high = load_codes(w + 256);
        add_four<5, 0, N>(w, high, x, sums);
        add_four<5, 4, N>(w + 128, high, x + 16, sums);
    } else if constexpr (BITS == 6) {
        HEADSTART_UNROLL
        for (int u = 0; u < UNITS; u++)
            add_four<6, 0, N>(w + u * 192, load_codes(w + u * 192 + 128), x + u * LANES, sums);
    } else {
        constexpr int VECTORS = BITS == 8 ? 4 : 2;
        HEADSTART_UNROLL
        for (int v = 0; v < VECTORS * UNITS; v++) {
            const uint8_t *four = x + v / VECTORS * LANES + v % VECTORS * 4;
            const Words codes = load_codes(w + v * 64);
            if constexpr (BITS == 8) {
                add_step<8, N>(codes, four, sums);
            } else {
                const Words low = low_half(codes), high = high_half(codes);
                add_step<BITS, N>(BITS == TABLED ? looked_up(table, low) : low, four, sums);
                add_step<BITS, N>(BITS == TABLED ? looked_up(table, high) : high, four + 8, sums);
            }
        }
    }
}

// What the whole sums of a group begin with where minimums are stored, whose rows have negative sums of floats.
template <int BITS>
inline Ints lowered_start(const uint8_t *start) {
    if constexpr (BITS == 8 && LOWERED != 0) return to_ints(spread_float(start) * float(-LOWERED));
    return Ints{};
}

// The form that codes of 2, 3 and 6 bits have in the files that most of them come from (Q2_K, Q3_K, Q6_K): groups of 16, scales
// and minimums in units. Their groups are so small that to ask for the form in each takes a tenth of the time.
template <int BITS>
constexpr bool HAS_USUAL_FORM = BITS == 2 || BITS == 3 || BITS == 6;

template <int BITS>
inline bool in_usual_form(const Grouping &of) {
    return HAS_USUAL_FORM<BITS> && of.group == LANES && of.scales == SCALES_UNITS && (of.minimum == STORED) == (BITS == 2);
}

// So many bytes on in a part of a row, of N interleaved ones. They begin with a line of the cache, so that the address tells
// where a row's line ends.
template <int N>
inline const uint8_t *next_of(const uint8_t *at, int64_t bytes) {
    at += bytes;
    return N == 1 || uintptr_t(at) % LINE ? at : at + LINE * (N - 1);
}

// The blocks [from, to) of PANELS panels, the first at `w`, the next `apart` bytes behind, times N interleaved rows; `totals`
// [PANELS][N][16] go on. A group is whole 16 * UNITS inputs: a number that the compiler knows keeps the sums in registers.
// USUAL: they are `in_usual_form`, which the compiler then knows too.
template <int BITS, int UNITS, bool USUAL, int N, int PANELS>
void grouped_rows(const Grouping &shape, const uint8_t *w, int64_t apart, int64_t from, int64_t to, const uint8_t *x,
                  float *totals) {
    Grouping of = shape;
    if constexpr (USUAL) {
        of.bits = BITS;
        of.group = LANES;
        of.scales = SCALES_UNITS;
        of.minimum = BITS == 2 ? STORED : 0;  // how many times its scale has gone into the rows' sums
    }
    const int64_t parts = of.group / (LANES * UNITS);
    const uint8_t *factors = x + grouped_padded(of.inputs) * N + interleaved_at(from * UNIT / of.rounded() * 4, N);
    const uint8_t *starts = x + grouped_sums_at(of.inputs) * N + interleaved_at(from * UNIT / of.group * 4, N);
    const uint8_t *end = w + of.panel_bytes() - from * of.record_bytes(of.groups(0));
    const Words table = BITS == TABLED ? table_of(of.table) : Words{};
    x += from * UNIT * N;
    Vec sums[PANELS][N];
    HEADSTART_UNROLL
    for (int p = 0; p < PANELS; p++)
        HEADSTART_UNROLL
        for (int r = 0; r < N; r++) sums[p][r] = load(totals + (p * N + r) * LANES);
    for (int64_t block = from; block < to; block++) {
        const int64_t groups = of.groups(block);
        const uint8_t *scales = w + of.code_bytes(groups);
        const int64_t lowered = of.scale_bytes(groups);
        Vec unit[PANELS], least[PANELS];
        HEADSTART_UNROLL
        for (int p = 0; p < PANELS; p++) {
            unit[p] = unit_of(of, scales + p * apart);
            least[p] = of.minimum == STORED ? unit_of(of, scales + p * apart + lowered) : Vec{};
        }
        for (int64_t g = 0; g < groups; g++, starts = next_of<N>(starts, 4)) {
            Ints whole[PANELS][N];
            HEADSTART_UNROLL
            for (int p = 0; p < PANELS; p++)
                HEADSTART_UNROLL
                for (int r = 0; r < N; r++)
                    whole[p][r] = of.minimum == STORED ? lowered_start<BITS>(starts + r * LINE) : spread_int(starts + r * LINE);
            // Behind a panel lies the next one, which passes by at the same time: what comes then lies behind both.
            const int64_t ahead = w + AHEAD < end ? AHEAD : AHEAD + (PANELS - 1) * apart;
            HEADSTART_UNROLL
            for (int p = 0; p < PANELS; p++) __builtin_prefetch(scales + p * apart + g * 32 * UNITS + ahead);
            int64_t part = parts;
            do {
                HEADSTART_UNROLL
                for (int p = 0; p < PANELS; p++) {
                    if constexpr (in_short<BITS>()) {
                        Ints shorts[N] = {};
                        add_codes<BITS, UNITS, N>(w + p * apart, ahead, x, table, g % 2, shorts);
                        HEADSTART_UNROLL
                        for (int r = 0; r < N; r++) whole[p][r] = add_shorts(whole[p][r], shorts[r]);
                    } else {
                        add_codes<BITS, UNITS, N>(w + p * apart, ahead, x, table, g % 2, whole[p]);
                    }
                }
                w += codes_on<BITS, UNITS>(g % 2);
                x = next_of<N>(x, LANES * UNITS);
            } while (--part > 0);
            HEADSTART_UNROLL
            for (int p = 0; p < PANELS; p++) {
                const Vec scale = scale_of(of, unit[p], scales + p * apart, g);
                if (of.minimum == STORED) {
                    const Vec minimum = scale_of(of, least[p], scales + p * apart + lowered, g);
                    HEADSTART_UNROLL
                    for (int r = 0; r < N; r++) {
                        const Vec scaled = to_floats(whole[p][r]) * scale;
                        const Vec less = fused(spread_float(starts + r * LINE), minimum, scaled);
                        sums[p][r] = fused(less, spread_float(factors + r * LINE), sums[p][r]);
                    }
                } else {
                    HEADSTART_UNROLL
                    for (int r = 0; r < N; r++)
                        sums[p][r] = fused(to_floats(whole[p][r]) * scale, spread_float(factors + r * LINE), sums[p][r]);
                }
            }
            if (UNITS > 1 || g % 2) factors = next_of<N>(factors, 4);  // groups of 16 share the factors by two
        }
        w += of.record_bytes(groups) - of.code_bytes(groups);
    }
    HEADSTART_UNROLL
    for (int p = 0; p < PANELS; p++)
        HEADSTART_UNROLL
        for (int r = 0; r < N; r++) store(totals + (p * N + r) * LANES, sums[p][r]);
}

typedef void (*GroupedRows)(const Grouping &, const uint8_t *, int64_t, int64_t, int64_t, const uint8_t *, float *);

// Panels that pass by `step` rows side by side: two where the registers hold the sums of both, since memory is read sooner from
// two places. More than one row of codes of 2 and 3 bits is more work than reading.
template <int BITS>
constexpr int panels_at_once(int64_t step) {
    return (BITS == 2 || BITS == 3 ? step == 1 : 3 * step <= GROUPED_ROWS) ? 2 : 1;
}

template <int BITS, int UNITS, bool USUAL, int N>
inline GroupedRows rows_up_to() {
    if constexpr (N <= GROUPED_ROWS) return grouped_rows<BITS, UNITS, USUAL, N, panels_at_once<BITS>(N)>;
    return nullptr;
}

// The product of `step` rows: see `grouped_step`.
template <int BITS, int UNITS, bool USUAL = false>
inline GroupedRows grouped_rows_of(int64_t step) {
    switch (step) {
        case 1: return rows_up_to<BITS, UNITS, USUAL, 1>();
        case 3: return rows_up_to<BITS, UNITS, USUAL, 3>();
        case 4: return rows_up_to<BITS, UNITS, USUAL, 4>();
        case 6: return rows_up_to<BITS, UNITS, USUAL, 6>();
        case 8: return rows_up_to<BITS, UNITS, USUAL, 8>();
        case 10: return rows_up_to<BITS, UNITS, USUAL, 10>();
        case 12: return rows_up_to<BITS, UNITS, USUAL, 12>();
        default: return rows_up_to<BITS, UNITS, USUAL, 2>();
    }
}

// The same, of codes in groups of any size.
template <int BITS>
inline GroupedRows grouped_rows_in(const Grouping &of, int64_t step) {
    if constexpr (HAS_USUAL_FORM<BITS>)
        if (in_usual_form<BITS>(of)) return grouped_rows_of<BITS, 1, true>(step);
    constexpr int LEAST = BITS == 5 ? 2 : 1;  // codes of 5 bits lie by 32 inputs, so groups are not smaller
    return of.group == LANES ? grouped_rows_of<BITS, LEAST>(step) : grouped_rows_of<BITS, 2>(step);
}
