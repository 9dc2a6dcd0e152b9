// Matrix products y = x W^T whose every row is computed alike, however many rows there are.
//
// Weights lie in panels of 16 outputs, so that a panel streams through once: [panel][input][16], where with int8
// four inputs (with bf16 tiles two) of one output stand together, as the dot-product instructions want them.
#pragma once

#include "grouped.h"
#include "grouped_tiles.h"
#include "threads.h"

// How a product stores its weights and takes its rows.
enum Kind {
    FLOAT32 = 0,   // float32 weights and rows
    BF16_WIDE = 1, // bf16 weights, float32 rows and sums: any processor
    BF16_PAIRS = 2, // bf16 weights and rows, float32 sums: AMX or AVX-512 BF16
    INT8 = 3,      // int8 weights with a scale per output, rows of 8 bits with a scale per row, whole sums
    GROUPED4 = 4,  // 4-bit codes in groups, int8 rows with a scale by 32 inputs or a group (grouped.h)
    GROUPED5 = 5,  // the same with codes of 5 bits, in groups of 32 or more
    GROUPED6 = 6,  // of 6 bits
    GROUPED8 = 7,  // of 8 bits
    GROUPED2 = 8,  // of 2 bits
    GROUPED3 = 9,  // of 3 bits, in groups of 16 only where the inputs are a multiple of 32
};

inline bool is_grouped(int64_t kind) { return kind >= GROUPED4 && kind <= GROUPED3; }

struct Product {
    const void *weights;
    const float *scale;   // [outputs], INT8 only
    const int32_t *shift; // [outputs], INT8 only: 128 times the sum of an output's weights
    const float *bias;    // [outputs] or null
    int64_t inputs, outputs;
    int64_t kind;
    int64_t group, scales, minimum; // grouped kinds only: inputs of a group, and see `Grouping`
    const int32_t *order;           // the same
    const int8_t *table;            // the same
    int64_t results;                // numbers from a row's results to the next row's: `outputs`, and those of `more`
    const Product *more;            // further outputs of the same inputs, in codes of another kind; or null

    // Bytes of a row as this product takes it, from one row to the next, and as `more` takes it.
    int64_t row_bytes() const;
};

inline Grouping grouping(const Product &p) {
    constexpr int64_t BITS[] = {4, 5, 6, 8, 2, 3};  // by kind
    return Grouping{BITS[p.kind - GROUPED4], p.group, p.scales, p.minimum, p.inputs, p.order, p.table};
}

inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

inline int64_t number_bytes(int64_t kind) { return kind == FLOAT32 ? 4 : kind == INT8 ? 1 : 2; }

// Inputs of a row as the product reads them, zeros included.
inline int64_t padded_in(int64_t kind, int64_t in) {
    return kind == INT8 ? round_up(in, 64) : kind == BF16_PAIRS ? round_up(in, 32) : in;
}

inline int64_t row_bytes(int64_t kind, int64_t in) {
    if (is_grouped(kind)) return grouped_row_bytes(in);
    return padded_in(kind, in) * (kind == INT8 ? 1 : kind == BF16_PAIRS ? 2 : 4);
}

// From one row to the next. Never a multiple of 512 bytes: rows that are read together would fall into few sets of the
// cache.
inline int64_t row_stride(int64_t kind, int64_t in) {
    const int64_t bytes = row_bytes(kind, in);
    return bytes % 512 ? bytes : bytes + 64;
}

inline int64_t Product::row_bytes() const { return row_stride(kind, inputs) + (more ? more->row_bytes() : 0); }

inline int64_t panel_bytes(int64_t kind, int64_t in) { return padded_in(kind, in) * LANES * number_bytes(kind); }
inline int64_t panel_bytes(const Product &p) {
    return is_grouped(p.kind) ? grouping(p).panel_bytes() : panel_bytes(p.kind, p.inputs);
}

// Bytes of its weights, without those of `more`. Panels come in pairs.
inline int64_t weight_bytes(const Product &p) { return panel_bytes(p) * (round_up(p.outputs, 2 * LANES) / LANES); }

inline bool supported(int64_t kind) {
    return kind >= FLOAT32 && kind <= GROUPED3 && (kind != BF16_PAIRS || HAS_PAIRS);
}

// Rows that there must be room for where `count` are multiplied.
inline int64_t row_room(int64_t count) { return round_up(count, 32) + 16; }

// Where the rows that `more` takes begin, behind those of the product itself.
inline int64_t more_rows(const Product &p, int64_t count) { return row_room(count) * row_stride(p.kind, p.inputs); }

// Convert row r of `count` to the numbers that the next product takes.
inline void convert_row(const Product &next, const float *row, int64_t r, int64_t count, uint8_t *rows, float *scale) {
    if (next.more) convert_row(*next.more, row, r, count, rows + more_rows(next, count), scale);
    if (is_grouped(next.kind)) {
        convert_grouped(grouping(next), row, r, count, row_stride(next.kind, next.inputs), rows);
        return;
    }
    uint8_t *to = rows + r * row_stride(next.kind, next.inputs);
    const int64_t padded = padded_in(next.kind, next.inputs);
    if (next.kind == INT8)
        convert_row(row, next.inputs, padded, to, scale + r);
    else if (next.kind == BF16_PAIRS)
        convert_row(row, next.inputs, padded, (BFloat16 *)to, scale);
    else
        convert_row(row, next.inputs, padded, (float *)to, scale);
}

// -- packing ----------------------------------------------------------------------------------------------------------

inline float as_float(float v) { return v; }

inline float as_float(BFloat16 v) {
    uint32_t word = uint32_t(v.bits) << 16;
    float value;
    std::memcpy(&value, &word, sizeof value);
    return value;
}

// So many numbers of a row, up to sixteen, and zeros behind them.
template <class T>
void take_numbers(const T *from, int64_t count, T *to) {
    std::memset(to, 0, LANES * sizeof(T));
    std::memcpy(to, from, count * sizeof(T));
}

template <class W, class T>
void take_numbers(const W *from, int64_t count, T *to) {
    if (count == LANES) return store(to, load(from));
    W sixteen[LANES];
    take_numbers(from, count, sixteen);
    store(to, load(sixteen));
}

// Sixteen numbers of sixteen outputs, by `TOGETHER` of each output.
template <int TOGETHER, class T>
void put_numbers(const T (*from)[LANES], int64_t count, T *to) {
    for (int64_t i = 0; i < count; i += TOGETHER)
        for (int64_t n = 0; n < LANES; n++, to += TOGETHER) std::memcpy(to, &from[n][i], TOGETHER * sizeof(T));
}

// One panel of 16 outputs from `from` [out, in]. `TOGETHER` inputs of one output stand side by side.
template <int TOGETHER, class W, class T>
void pack_numbers(const W *from, int64_t panel, int64_t in, int64_t out, int64_t padded, T *to) {
    T sixteen[LANES][LANES];
    for (int64_t i = 0; i < padded; i += LANES) {
        for (int64_t n = 0; n < LANES; n++) {
            const int64_t output = panel * LANES + n, left = output < out ? std::max<int64_t>(in - i, 0) : 0;
            take_numbers(from + (left ? output * in + i : 0), std::min<int64_t>(left, LANES), sixteen[n]);
        }
        put_numbers<TOGETHER>(sixteen, std::min<int64_t>(padded - i, LANES), to + i * LANES);
    }
}

template <class W>
void pack_int8(const W *from, int64_t panel, int64_t in, int64_t out, int64_t padded, int8_t *to, float *scale,
               int32_t *shift) {
    std::memset(to, 0, padded * LANES);
    for (int64_t n = 0; n < LANES && panel * LANES + n < out; n++) {
        const int64_t output = panel * LANES + n;
        const W *row = from + output * in;
        float most = 0;
        for (int64_t i = 0; i < in; i++) {
            const float size = std::fabs(as_float(row[i]));
            if (!(size <= most)) most = size;  // a NaN stays
        }
        const float inverse = most > 0 ? 127.0f / most : 0.0f;
        int32_t total = 0;
        for (int64_t i = 0; i < in; i++) {
            const float scaled = as_float(row[i]) * inverse;
            const int32_t whole = scaled == scaled ? int32_t(std::nearbyint(scaled)) : 0;
            to[(i / 4 * LANES + n) * 4 + i % 4] = int8_t(whole);
            total += whole;
        }
        scale[output] = most / 127.0f;
        shift[output] = 128 * total;
    }
}

// The same of weights that are int8 already: they stay what they are.
inline void pack_whole(const int8_t *from, int64_t panel, int64_t in, int64_t out, int64_t padded, int8_t *to,
                       int32_t *shift) {
    std::memset(to, 0, padded * LANES);
    for (int64_t n = 0; n < LANES && panel * LANES + n < out; n++) {
        const int8_t *row = from + (panel * LANES + n) * in;
        int32_t total = 0;
        for (int64_t i = 0; i < in; i++) {
            to[(i / 4 * LANES + n) * 4 + i % 4] = row[i];
            total += row[i];
        }
        shift[panel * LANES + n] = 128 * total;
    }
}

template <class W>
void pack(int64_t kind, const W *from, int64_t in, int64_t out, uint8_t *to, float *scale, int32_t *shift,
          int threads) {
    const int64_t padded = padded_in(kind, in), panels = round_up(out, 2 * LANES) / LANES;
    run(threads, [&](Member &team) { team.each(panels, [&](int64_t panel) {
        uint8_t *at = to + panel * panel_bytes(kind, in);
        if (kind == INT8)
            pack_int8(from, panel, in, out, padded, (int8_t *)at, scale, shift);
        else if (kind == BF16_PAIRS)
            pack_numbers<2>(from, panel, in, out, padded, (BFloat16 *)at);
        else if (kind == BF16_WIDE)
            pack_numbers<1>(from, panel, in, out, padded, (BFloat16 *)at);
        else
            pack_numbers<1>(from, panel, in, out, padded, (float *)at);
    }); });
}

// -- results ----------------------------------------------------------------------------------------------------------

// Sixteen outputs of a product on their way into rows of results: what their sums are turned into numbers with, which is
// read once for all rows.
struct Outputs {
  private:
    template <class T>
    auto take(const T *from) const {
        if (count == LANES) return load(from + at);
        T sixteen[LANES] = {};
        std::memcpy(sixteen, from + at, count * sizeof(T));
        return load(sixteen);
    }

  public:
    Ints shift = {};
    Vec scale = {}, bias = {};
    int64_t at, count;  // the first of them, and how many of the sixteen there are
    bool biased;

    Outputs(const Product &p, int64_t output) : at(output), count(p.outputs - output), biased(p.bias) {
        if (count > LANES) count = LANES;
        if (count < 0) count = 0;
        if (p.kind == INT8) {
            if (ROW_ZERO) shift = take(p.shift);
            scale = take(p.scale);
        }
        if (biased) bias = take(p.bias);
    }

    // Of a row at y.
    void put(Vec v, float *y) const {
        if (biased) v += bias;
        put_all(v, y);
    }

    // The same of a product of the kind INT8, whose row has this scale.
    void put_whole(Ints sums, float row_scale, float *y) const {
        const Vec v = to_floats(sums - shift) * scale;
        put_all(biased ? fused(v, splat(row_scale), bias) : v * row_scale, y);
    }

  private:
    void put_all(Vec v, float *y) const {
        if (count == LANES) {
            store(y + at, v);
            return;
        }
        float sixteen[LANES];
        store(sixteen, v);
        std::memcpy(y + at, sixteen, count * sizeof(float));
    }

};

// -- tiles ------------------------------------------------------------------------------------------------------------

#if defined(HEADSTART_TILES)

// A tile of weights some steps on is on its way when it is needed. So many bytes on: few rows, whose time is that of reading.
constexpr int64_t TILES_AHEAD = 2048;

inline void fetch_tile(const uint8_t *w) {
    for (int64_t line = 0; line < 1024; line += 64) __builtin_prefetch(w + TILES_AHEAD + line);
}

// The sums in tile S += those of the rows in tile 4 with the weights at `from`, by way of tile W: numbers that must be literal.
// Each tile's fetching stands before its own loads. Where that of four tiles came first, their 64 lines took all places that the
// processor has for lines under way, the loads waited for them, and one row of bf16 read at 0.77 of a plain read instead of 0.89.
#define TILE_STEP(S, W, from)         \
    fetch_tile(from);                 \
    _tile_loadd(W, from, 64);         \
    if (KIND == INT8)                 \
        _tile_dpbusd(S, 4, W);        \
    else                              \
        _tile_dpbf16ps(S, 4, W)

template <int KIND>
inline void tile_panels(const uint8_t *x, int64_t stride, bool two, const uint8_t *w0, const uint8_t *w1, int64_t steps,
                        int32_t (*sums)[256]) {
    _tile_zero(0);
    _tile_zero(1);
    if (two) {
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t s = 0; s < steps; s++) {
            _tile_loadd(4, x + s * 64, stride);
            _tile_loadd(5, x + 16 * stride + s * 64, stride);
            _tile_loadd(6, w0 + s * 1024, 64);
            _tile_loadd(7, w1 + s * 1024, 64);
            if (KIND == INT8) {
                _tile_dpbusd(0, 4, 6);
                _tile_dpbusd(1, 4, 7);
                _tile_dpbusd(2, 5, 6);
                _tile_dpbusd(3, 5, 7);
            } else {
                _tile_dpbf16ps(0, 4, 6);
                _tile_dpbf16ps(1, 4, 7);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
        }
        _tile_stored(2, sums[2], 64);
        _tile_stored(3, sums[3], 64);
    } else {
        for (int64_t s = 0; s < steps; s++) {
            _tile_loadd(4, x + s * 64, stride);
            TILE_STEP(0, 6, w0 + s * 1024);
            TILE_STEP(1, 7, w1 + s * 1024);
        }
    }
    _tile_stored(0, sums[0], 64);
    _tile_stored(1, sums[1], 64);
}

// Sixteen rows, or fewer, with four panels: a row's tile is loaded once for all of them, and four sums are under way.
template <int KIND>
inline void tile_four(const uint8_t *x, int64_t stride, const uint8_t *w, int64_t bytes, int64_t steps,
                      int32_t (*sums)[256]) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t s = 0; s < steps; s++, w += 1024) {
        _tile_loadd(4, x + s * 64, stride);
        TILE_STEP(0, 5, w);
        TILE_STEP(1, 6, w + bytes);
        TILE_STEP(2, 7, w + 2 * bytes);
        TILE_STEP(3, 5, w + 3 * bytes);
    }
    _tile_stored(0, sums[0], 64);
    _tile_stored(1, sums[1], 64);
    _tile_stored(2, sums[2], 64);
    _tile_stored(3, sums[3], 64);
}

#undef TILE_STEP

// The sums of one row with sixteen outputs, as a result.
template <int KIND>
inline void put_tile_row(const Outputs &outputs, const int32_t *sums, const float *x_scale, float *y) {
    if (KIND == INT8) {
        outputs.put_whole(load(sums), *x_scale, y);
    } else {
        outputs.put(load((const float *)sums), y);
    }
}

// At most sixteen rows against two pairs of panels.
template <int KIND>
inline void multiply_few(const Product &p, int64_t pair, const uint8_t *x, const float *x_scale, int64_t count, float *y) {
    const int64_t bytes = panel_bytes(KIND, p.inputs);
    alignas(64) int32_t sums[4][256];
    tile_four<KIND>(x, row_stride(KIND, p.inputs), (const uint8_t *)p.weights + 2 * pair * bytes, bytes,
                    row_bytes(KIND, p.inputs) / 64, sums);
    const Outputs outputs[4] = {{p, 2 * pair * LANES}, {p, (2 * pair + 1) * LANES}, {p, (2 * pair + 2) * LANES},
                                {p, (2 * pair + 3) * LANES}};
    for (int64_t r = 0; r < count; r++)
        for (int side = 0; side < 4; side++)
            put_tile_row<KIND>(outputs[side], sums[side] + r * LANES, x_scale + r, y + r * p.results);
}

template <int KIND>
inline void multiply_rows(const Product &p, int64_t pair, const uint8_t *x, const float *x_scale, int64_t m,
                          int64_t count, float *y) {
    const int64_t stride = row_stride(KIND, p.inputs), bytes = panel_bytes(KIND, p.inputs);
    const uint8_t *w0 = (const uint8_t *)p.weights + 2 * pair * bytes;
    alignas(64) int32_t sums[4][256];
    {
        const bool two = m + 16 < count;
        tile_panels<KIND>(x + m * stride, stride, two, w0, w0 + bytes, row_bytes(KIND, p.inputs) / 64, sums);
        const int64_t rows = count - m < 32 ? count - m : 32;
        const Outputs outputs[2] = {{p, 2 * pair * LANES}, {p, (2 * pair + 1) * LANES}};
        for (int64_t r = 0; r < rows; r++)
            for (int side = 0; side < 2; side++)
                put_tile_row<KIND>(outputs[side], sums[r / 16 * 2 + side] + r % 16 * LANES, x_scale + m + r,
                                   y + (m + r) * p.results);
    }
}

// All rows against the pairs of panels [from, to). With many rows a few pairs at a time, which then stay in the
// second-level cache while the rows pass by.
template <int KIND>
inline void multiply_pairs(const Product &p, int64_t from, int64_t to, const uint8_t *x, const float *x_scale,
                           int64_t count, float *y) {
    const int64_t bytes = 2 * panel_bytes(KIND, p.inputs), fit = (1 << 19) / bytes;
    const int64_t step = count <= 32 || fit < 1 ? 1 : fit;
    if (count <= LANES) {
        for (; from + 2 <= to; from += 2) multiply_few<KIND>(p, from, x, x_scale, count, y);
        for (; from < to; from++) multiply_rows<KIND>(p, from, x, x_scale, 0, count, y);
        return;
    }
    for (int64_t first = from; first < to; first += step)
        for (int64_t m = 0; m < count; m += 32)
            for (int64_t pair = first; pair < first + step && pair < to; pair++)
                multiply_rows<KIND>(p, pair, x, x_scale, m, count, y);
}

#endif

// -- vectors ----------------------------------------------------------------------------------------------------------

// What a chain of sums adds in one step: four bytes of a row (a float32, two bf16 or four uint8), times the weights of
// sixteen outputs. UNFETCHED: up to so many rows are little work beside reading the weights, which the processor fetches by
// itself, as they follow each other: to ask for them only takes time. So it is with AMD's; Intel's fetch less far ahead, but
// take tiles for these where they have them.
template <class W>
struct WideStep {
    typedef Vec Sum;
    typedef Vec Weights;
    static constexpr int64_t bytes = LANES * sizeof(W);
    static constexpr int UNFETCHED = 0;
    static Weights weights(const uint8_t *w) { return load((const W *)w); }
    static Sum add(Sum sum, const uint8_t *x, Weights w) {
        float one;
        std::memcpy(&one, x, 4);
        return sum + w * one;
    }
};

struct Bf16Step {
    typedef Vec Sum;
    typedef Words Weights;
    static constexpr int64_t bytes = 64;
    static constexpr int UNFETCHED = 1;
    static Weights weights(const uint8_t *w) { return load_codes(w); }
    static Sum add(Sum sum, const uint8_t *x, Weights w) { return add_pairs(sum, w, x); }
};

struct Int8Step {
    typedef Ints Sum;
    typedef Words Weights;
    static constexpr int64_t bytes = 64;
    static constexpr int UNFETCHED = 4;
    static Weights weights(const uint8_t *w) { return load_codes(w); }
    static Sum add(Sum sum, const uint8_t *x, Weights w) { return add_int8(sum, w, x); }
};

// Of two panels at a time, at most: 12 KB, which stay in the first-level cache beside the rows and the steps that are fetched.
constexpr int64_t STEPS = 96;

// The next steps of the sums of N rows with some panels. Each sum is one chain over the inputs, so it may be put away and
// taken up again. `next` are the weights that come later: where FETCHES, they are on their way when they are needed.
template <class S, bool FETCHES, int PANELS, int N>
void advance(const uint8_t *x, int64_t stride, const uint8_t *const *w, const uint8_t *const *next, int64_t steps,
             typename S::Sum (*sums)[PANELS]) {
    typename S::Sum s[N][PANELS];
    HEADSTART_UNROLL
    for (int r = 0; r < N; r++)
        HEADSTART_UNROLL
        for (int p = 0; p < PANELS; p++) s[r][p] = sums[r][p];
    const uint8_t *from[PANELS], *later[PANELS];
    HEADSTART_UNROLL
    for (int p = 0; p < PANELS; p++) from[p] = w[p], later[p] = next[p];
    for (int64_t i = 0; i < steps; i++) {
        typename S::Weights own[PANELS];
        HEADSTART_UNROLL
        for (int p = 0; p < PANELS; p++) own[p] = S::weights(from[p] + i * S::bytes);
        if constexpr (FETCHES) {
            HEADSTART_UNROLL
            for (int p = 0; p < PANELS; p++) __builtin_prefetch(later[p] + i * S::bytes);
        }
        HEADSTART_UNROLL
        for (int r = 0; r < N; r++)
            HEADSTART_UNROLL
            for (int p = 0; p < PANELS; p++) s[r][p] = S::add(s[r][p], x + r * stride + i * 4, own[p]);
    }
    HEADSTART_UNROLL
    for (int r = 0; r < N; r++)
        HEADSTART_UNROLL
        for (int p = 0; p < PANELS; p++) sums[r][p] = s[r][p];
}

template <class S, bool FETCHES, int PANELS, int N>
inline void advance_some(int64_t n, const uint8_t *x, int64_t stride, const uint8_t *const *w, const uint8_t *const *next,
                         int64_t steps, typename S::Sum (*sums)[PANELS]) {
    if constexpr (N > 0) {
        if (n == N)
            advance<S, FETCHES, PANELS, N>(x, stride, w, next, steps, sums);
        else
            advance_some<S, FETCHES, PANELS, N - 1>(n, x, stride, w, next, steps, sums);
    }
}

inline void put_sums(const Outputs &outputs, Vec sums, float, float *y) { outputs.put(sums, y); }

inline void put_sums(const Outputs &outputs, Ints sums, float row_scale, float *y) { outputs.put_whole(sums, row_scale, y); }

// Numbers that the sums of a product of so many rows take, and what aligning them takes.
inline int64_t sums_of(int64_t count) { return count * 2 * LANES + LANES; }

// Rows against the pairs of panels [from, to), PANELS after PANELS, at most MOST rows at a time: a few steps of all rows, then
// the next steps. The first rows fetch the next steps' weights of one panel, the second of the other, so that memory is read
// while later rows are computed. `work` has room for the sums: see `sums_of`.
template <class S, int PANELS, int MOST>
inline void chain_block(const Product &p, int64_t from, int64_t to, const uint8_t *x, const float *x_scale, int64_t count,
                        float *work, float *y) {
    typedef typename S::Sum(*Sums)[PANELS];
    const int64_t stride = row_stride(p.kind, p.inputs), all = row_bytes(p.kind, p.inputs) / 4, bytes = panel_bytes(p.kind, p.inputs);
    const int64_t groups = (count + MOST - 1) / MOST, most = (count + groups - 1) / groups;
    const int64_t parts = (all + STEPS - 1) / STEPS, step = (all + parts - 1) / parts;
    const Sums sums = (Sums)(((uintptr_t)work + 63) / 64 * 64);
    for (int64_t first = 2 * from; first < 2 * to; first += PANELS) {
        const uint8_t *panel = (const uint8_t *)p.weights + first * bytes;
        std::memset((void *)sums, 0, count * sizeof *sums);
        for (int64_t done = 0; done < all; done += step) {
            const int64_t steps = all - done < step ? all - done : step;
            const uint8_t *w[2] = {panel + done * S::bytes, panel + bytes + done * S::bytes};
            const uint8_t *later = w[0];
            if (done + steps < all)
                later += steps * S::bytes;
            else if (first + PANELS < 2 * to)
                later = panel + PANELS * bytes;
            for (int64_t m = 0, group = 0; m < count; m += most, group++) {
                const uint8_t *next[2] = {w[0], w[1]};
                if (later != w[0] && group == 0) next[0] = later;
                if (later != w[0] && group == (groups > 1)) next[1] = later + bytes;
                const int64_t n = count - m < most ? count - m : most;
                const uint8_t *rows = x + m * stride + done * 4;
                if (count <= S::UNFETCHED)
                    advance_some<S, false, PANELS, S::UNFETCHED>(n, rows, stride, w, next, steps, sums + m);
                else
                    advance_some<S, true, PANELS, MOST>(n, rows, stride, w, next, steps, sums + m);
            }
        }
        for (int side = 0; side < PANELS; side++) {
            const Outputs outputs(p, (first + side) * LANES);
            for (int64_t r = 0; r < count; r++) put_sums(outputs, sums[r][side], x_scale[r], y + r * p.results);
        }
    }
}

constexpr int64_t ROWS_BYTES = 3 << 17;  // of rows that pass by the same panels: they stay in the second-level cache

// All rows against the pairs of panels [from, to), in blocks of rows.
template <class S>
inline void chain_pairs(const Product &p, int64_t from, int64_t to, const uint8_t *x, const float *x_scale, int64_t count,
                        float *work, float *y) {
    constexpr int PANELS = sizeof(Floats) < sizeof(Vec) ? 1 : 2;  // more rows of one panel ask for fewer weights at a time
    constexpr int MOST = MOST_ROWS * 2 / PANELS;
    if (count <= MOST_ROWS) return chain_block<S, 2, MOST_ROWS>(p, from, to, x, x_scale, count, work, y);
    const int64_t stride = row_stride(p.kind, p.inputs), fit = ROWS_BYTES / stride, least = 4 * MOST;
    const int64_t blocks = (count - 1) / (fit > least ? fit : least) + 1;
    const int64_t most = round_up((count + blocks - 1) / blocks, MOST);
    for (int64_t m = 0; m < count; m += most)
        chain_block<S, PANELS, MOST>(p, from, to, x + m * stride, x_scale + m, count - m < most ? count - m : most, work,
                                     y + m * p.results);
}

#if defined(HEADSTART_TILES)

// The places of the results of sixteen rows from m on are on their way to the cache while the results are computed: the rows
// lie far apart, and waiting for each would take as long as its product.
inline void fetch_results(const Product &p, float *y, int64_t m, int64_t count, int64_t output) {
    const int64_t end = m + LANES < count ? m + LANES : count;
    for (int64_t r = m; r < end; r++) __builtin_prefetch(y + r * p.results + output, 1);
}

// All rows against the pairs of panels [from, to) of codes in groups, by tiles, so many rows at a time that their results
// stay in the second-level cache: a block of 256 inputs of a panel is made ready, then these rows pass by.
template <int BITS>
inline void tiled_pairs(const Product &p, int64_t from, int64_t to, const uint8_t *x, int64_t count, float *y) {
    const Grouping of = grouping(p);
    const int64_t bytes = of.panel_bytes();
    const Tiles tiles(LANES, of.group < LINE ? of.group : LINE);
    TilePipeline pipeline(of, count, x, row_stride(p.kind, p.inputs));
    alignas(64) float totals[2][PASSING * LANES];
    for (int64_t first = 0; first < count; first += PASSING) {
        const int64_t rows = count - first < PASSING ? count - first : PASSING;
        for (int64_t pair = from; pair < to; pair++) {
            for (float *side : totals) std::memset(side, 0, round_up(rows, LANES) * LANES * sizeof(float));
            const uint8_t *w = (const uint8_t *)p.weights + 2 * pair * bytes;
            for (int64_t block = 0; block < of.blocks(); block++) {
                for (int side = 0; side < 2; side++) {
                    pipeline.take<BITS>(w + side * bytes, block);
                    for (int64_t m = 0; m < rows; m += LANES) {
                        if (block == 0) fetch_results(p, y, first + m, count, (2 * pair + side) * LANES);
                        pipeline.multiply(first + m, totals[side] + m * LANES);
                    }
                }
                w += of.record_bytes(of.groups(block));
            }
            pipeline.finish();
            const Outputs outputs[2] = {{p, 2 * pair * LANES}, {p, (2 * pair + 1) * LANES}};
            for (int64_t m = 0; m < rows; m++)
                for (int side = 0; side < 2; side++)
                    outputs[side].put(load(totals[side] + m * LANES), y + (first + m) * p.results);
        }
    }
}

#endif

// All rows against the pairs of panels [from, to) of codes in groups: a few blocks of all rows, then the next blocks. The
// rows of one call of the inner product are as many as fit into registers.
template <int BITS>
inline void grouped_pairs(const Product &p, int64_t from, int64_t to, const uint8_t *x, int64_t count, float *totals,
                          float *y) {
    const Grouping of = grouping(p);
    const int64_t stride = row_stride(p.kind, p.inputs), blocks = of.blocks(), bytes = of.panel_bytes();
    const auto [step, tiled] = interleaved(of, count);
#if defined(HEADSTART_TILES)
    if constexpr (BITS != 2 && BITS != 3)
        if (tiled) return tiled_pairs<BITS>(p, from, to, x, count, y);
#endif
    const GroupedRows multiply = grouped_rows_in<BITS>(of, step);
    const int64_t together = count > step ? 4 : blocks;  // few enough blocks to stay in the first-level cache
    const int64_t panels = panels_at_once<BITS>(step);
    for (int64_t panel = 2 * from; panel < 2 * to; panel += panels) {
        const uint8_t *w = (const uint8_t *)p.weights + panel * bytes;
        std::memset(totals, 0, round_up(count, step) * panels * LANES * sizeof(float));
        for (int64_t block = 0; block < blocks; block += together) {
            const int64_t end = block + together < blocks ? block + together : blocks;
            for (int64_t m = 0; m < count; m += step)
                multiply(of, w, bytes, block, end, x + m * stride, totals + m * panels * LANES);
            w += together * of.record_bytes(of.groups(0));
        }
        for (int64_t side = 0; side < panels; side++) {
            const Outputs outputs(p, (panel + side) * LANES);
            for (int64_t m = 0; m < count; m++)
                outputs.put(load(totals + (m / step * step * panels + side * step + m % step) * LANES), y + m * p.results);
        }
    }
}

inline int64_t pairs_of(const Product &p) { return round_up(p.outputs, 2 * LANES) / (2 * LANES); }

constexpr int64_t PIECE_BYTES = 1 << 17;  // of weights: 10 microseconds of one core's reading

// Pairs of panels that are taken at a time: so few that all members of a team end together, and so many that taking them is
// little work. Many rows pass by each piece, so there are fewer, larger pieces then. Tiles take pairs by two.
inline int64_t pairs_together(const Product &p, int64_t count, int64_t threads) {
    const int64_t bytes = 2 * panel_bytes(p);
    const int64_t pairs = pairs_of(p), read = PIECE_BYTES / bytes + 1, eighth = pairs / (8 * threads);
    const int64_t most = pairs / (2 * threads), wanted = count > LANES && eighth > read ? eighth : read;
    const int64_t together = wanted < most ? wanted : most;
    return together > 1 ? together / 2 * 2 : 1;
}

// The pairs of panels [from, to), without those of `more`.
inline void multiply_own(const Product &p, int64_t from, int64_t to, const uint8_t *x, const float *x_scale, int64_t count,
                         float *work, float *y) {
    const auto chains = [&](auto step) { chain_pairs<decltype(step)>(p, from, to, x, x_scale, count, work, y); };
    switch (p.kind) {
        case FLOAT32: return chains(WideStep<float>());
        case BF16_WIDE: return chains(WideStep<BFloat16>());
#if defined(HEADSTART_TILES)
        case BF16_PAIRS:
            if (tiles_permitted()) return multiply_pairs<BF16_PAIRS>(p, from, to, x, x_scale, count, y);
            return chains(Bf16Step());
        case INT8:
            if (tiles_permitted()) return multiply_pairs<INT8>(p, from, to, x, x_scale, count, y);
            return chains(Int8Step());
#else
        case BF16_PAIRS: return chains(Bf16Step());
        case INT8: return chains(Int8Step());
#endif
        case GROUPED4:
            return (p.table ? grouped_pairs<TABLED> : grouped_pairs<4>)(p, from, to, x, count, work, y);
        case GROUPED5: return grouped_pairs<5>(p, from, to, x, count, work, y);
        case GROUPED6: return grouped_pairs<6>(p, from, to, x, count, work, y);
        case GROUPED2: return grouped_pairs<2>(p, from, to, x, count, work, y);
        case GROUPED3: return grouped_pairs<3>(p, from, to, x, count, work, y);
        case GROUPED8: return grouped_pairs<8>(p, from, to, x, count, work, y);
    }
}

// Pieces that a product of so many rows is shared out in, those of `more` behind its own.
inline int64_t pieces_of(const Product &p, int64_t count, int64_t threads) {
    int64_t pieces = 0;
    for (const Product *own = &p; own; own = own->more) {
        const int64_t together = pairs_together(*own, count, threads);
        pieces += (pairs_of(*own) + together - 1) / together;
    }
    return pieces;
}

// One of them.
inline void multiply_piece(const Product &p, int64_t piece, const uint8_t *rows, const float *x_scale, int64_t count,
                           int64_t threads, float *work, float *results) {
    for (const Product *own = &p; own; own = own->more) {
        const int64_t together = pairs_together(*own, count, threads), pairs = pairs_of(*own);
        const int64_t its = (pairs + together - 1) / together;
        if (piece < its) {
            const int64_t from = piece * together, to = from + together < pairs ? from + together : pairs;
            return multiply_own(*own, from, to, rows, x_scale, count, work, results);
        }
        piece -= its;
        rows += more_rows(*own, count);
        results += own->outputs;
    }
}

// y [count, results] = x W^T (+ bias), shared out by panels to a team. work: the member's own, `sums_of(count)` numbers.
inline void multiply(Member &team, const Product &p, const uint8_t *x, const float *x_scale, int64_t count, float *work,
                     float *y) {
    team.pieces(pieces_of(p, count, team.threads()),
                [&](int64_t piece) { multiply_piece(p, piece, x, x_scale, count, team.threads(), work, y); });
}
