// Grouped products of many rows by tiles (AMX): the same whole sums as those of grouped.h, and the same steps after them.
#pragma once

#include "grouped.h"

#if defined(HEADSTART_TILES)

constexpr int64_t PASSING = 64;  // rows that pass by weights that were made ready
constexpr int64_t MOST_GROUPS = UNIT / LANES;  // of a block

// A block of 256 inputs of sixteen outputs, made ready for tiles once for all rows: codes as bytes, by four inputs, from
// which a whole minimum is taken off, and scales and minimums as float32.
struct alignas(64) Widened {
    uint8_t codes[UNIT * LANES];
    float scales[MOST_GROUPS * LANES], minimums[MOST_GROUPS * LANES];
};

inline void put_step(uint8_t *to, Words codes, Words less) {
    _mm512_store_si512(to, _mm512_sub_epi8((__m512i)codes, (__m512i)less));
}

// Four steps of codes of more than four bits: see `add_four`.
template <int BITS, int FIRST>
inline void widen_four(const uint8_t *low, Words high, Words less, uint8_t *to) {
    constexpr int EACH = BITS - 4;
    constexpr uint8_t MASK = EACH == 1 ? 16 : 48;
    const Words a = load_codes(low), b = load_codes(low + 64);
    put_step(to, joined<4 - FIRST>(a, high, MASK), less);
    put_step(to + 64, joined<4 - FIRST - EACH>(b, high, MASK), less);
    put_step(to + 128, joined<4 - FIRST - 2 * EACH>(moved<-4>(a), high, MASK), less);
    put_step(to + 192, joined<4 - FIRST - 3 * EACH>(moved<-4>(b), high, MASK), less);
}

// Codes of `inputs` inputs, a multiple of 16 (of 5 bits of 32).
template <int BITS>
inline void widen_codes(const Grouping &of, const uint8_t *w, int64_t inputs, uint8_t *to) {
    const int64_t taken = of.taken_off();
    const Words less = (Words)_mm512_set1_epi8(char(taken > 0 ? taken : 0));
    const int64_t bytes = inputs * LANES * (BITS == TABLED ? 4 : BITS) / 8;
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(w + at + 2 * AHEAD);
    if constexpr (BITS == 8) {
        for (int64_t at = 0; at < bytes; at += 64) put_step(to + at, load_codes(w + at), less);
    } else if constexpr (BITS == 4) {
        for (int64_t at = 0; at < bytes; at += 128, to += 256) {
            const Words a = load_codes(w + at), b = load_codes(w + at + 64);
            put_step(to, low_half(a), less);
            put_step(to + 64, low_half(b), less);
            put_step(to + 128, high_half(a), less);
            put_step(to + 192, high_half(b), less);
        }
    } else if constexpr (BITS == TABLED) {
        const Words table = table_of(of.table);
        for (int64_t at = 0; at < bytes; at += 128, to += 256) {
            const Words a = load_codes(w + at), b = load_codes(w + at + 64);
            put_step(to, looked_up(table, low_half(a)), less);
            put_step(to + 64, looked_up(table, low_half(b)), less);
            put_step(to + 128, looked_up(table, high_half(a)), less);
            put_step(to + 192, looked_up(table, high_half(b)), less);
        }
    } else if constexpr (BITS == 5) {
        for (int64_t at = 0; at < bytes; at += 320, to += 512) {
            const Words high = load_codes(w + at + 256);
            widen_four<5, 0>(w + at, high, less, to);
            widen_four<5, 4>(w + at + 128, high, less, to + 256);
        }
    } else {
        for (int64_t at = 0; at < bytes; at += 192, to += 256) widen_four<6, 0>(w + at, load_codes(w + at + 128), less, to);
    }
}

// The block at `w`, of so many groups.
template <int BITS>
inline void widen(const Grouping &of, const uint8_t *w, int64_t groups, Widened &to) {
    const uint8_t *scales = w + of.code_bytes(groups), *minimums = scales + of.scale_bytes(groups);
    widen_codes<BITS>(of, w, groups * of.group, to.codes);
    for (int64_t g = 0; g < groups; g++) {
        store(to.scales + g * LANES, scale_of(of, unit_of(of, scales), scales, g));
        if (of.minimum == STORED) store(to.minimums + g * LANES, scale_of(of, unit_of(of, minimums), minimums, g));
    }
    written();
}

// Whole sums of a group, of sixteen rows with sixteen outputs, in tile S by way of tiles X and W, whose numbers must be
// literal. x: the group's inputs, in pieces of 64.
#define TILE_GROUP(S, X, W)                                     \
    _tile_zero(S);                                              \
    for (int64_t i = 0; i < group; i += LINE) {                 \
        _tile_loadd(X, x + i * LANES, LINE);                    \
        _tile_loadd(W, w + i * LANES, 64);                      \
        if (SIGNED)                                             \
            _tile_dpbssd(S, X, W);                              \
        else                                                    \
            _tile_dpbsud(S, X, W);                              \
    }                                                           \
    _tile_stored(S, sums, 64)

template <int TILE, bool SIGNED>
inline void tile_group(const uint8_t *x, const uint8_t *w, int64_t group, int32_t *sums) {
    if constexpr (TILE == 0) {
        TILE_GROUP(0, 4, 6);
    } else if constexpr (TILE == 1) {
        TILE_GROUP(1, 5, 7);
    } else if constexpr (TILE == 2) {
        TILE_GROUP(2, 4, 6);
    } else {
        TILE_GROUP(3, 5, 7);
    }
}

#undef TILE_GROUP

// The whole sums of a group become numbers, which are added to N rows' own.
template <bool MINIMUMS, int N>
inline void add_group(const int32_t *whole, Vec scale, Vec minimum, const uint8_t *starts, const uint8_t *factors, Vec *sums) {
    HEADSTART_UNROLL
    for (int r = 0; r < N; r++) {
        Vec scaled = to_floats(load(whole + r * LANES)) * scale;
        if (MINIMUMS) scaled = fused(spread_float(starts + r * LINE), minimum, scaled);
        sums[r] = fused(scaled, spread_float(factors + r * LINE), sums[r]);
    }
}

typedef int32_t WholeTile[LANES * LANES];

// Whole sums of all groups of a block, of sixteen rows with sixteen outputs. x: the rows' codes from this block on.
template <bool SIGNED>
void tile_sums(const Grouping &of, const Widened &w, int64_t groups, const uint8_t *x, WholeTile *sums) {
    const int64_t group = of.group;
    const auto inputs = [&](int64_t g) { return x + interleaved_at(g * group, LANES); };
    const auto codes = [&](int64_t g) { return w.codes + g * group * LANES; };
    for (int64_t g = 0; g < groups; g += 4) {
        tile_group<0, SIGNED>(inputs(g), codes(g), group, sums[g]);
        if (g + 1 < groups) tile_group<1, SIGNED>(inputs(g + 1), codes(g + 1), group, sums[g + 1]);
        if (g + 2 < groups) tile_group<2, SIGNED>(inputs(g + 2), codes(g + 2), group, sums[g + 2]);
        if (g + 3 < groups) tile_group<3, SIGNED>(inputs(g + 3), codes(g + 3), group, sums[g + 3]);
    }
    written();
}

// These sums go into `totals` [16][16] of the first N rows. factors, starts: the rows' scales and their groups' sums, of which
// those of a block lie in one line.
template <bool MINIMUMS, int N>
void add_block(const Grouping &of, const Widened &w, int64_t groups, const WholeTile *whole, const uint8_t *factors,
               const uint8_t *starts, float *totals) {
    const int64_t each = of.rounded() / of.group;
    Vec sums[N];
    HEADSTART_UNROLL
    for (int r = 0; r < N; r++) sums[r] = load(totals + r * LANES);
    for (int64_t g = 0; g < groups; g++)
        add_group<MINIMUMS, N>(whole[g], load(w.scales + g * LANES), load(w.minimums + g * LANES),
                              starts + g * 4, factors + g / each * 4, sums);
    HEADSTART_UNROLL
    for (int r = 0; r < N; r++) store(totals + r * LANES, sums[r]);
}

// The rows of a product by sixteen, with one panel after the other. The sums of one block are added up while the tiles of the
// next are under way: one waits for the other no longer than it must.
class TilePipeline {
  public:
    TilePipeline(const Grouping &of, int64_t count, const uint8_t *x, int64_t stride)
        : of_(of), x_(x), stride_(stride), count_(count),
          sums_(of.taken_off() > 0 ? tile_sums<true> : tile_sums<false>),
          add_(of.minimum == STORED ? add_block<true, 16> : add_block<false, 16>),
          add_few_(of.minimum == STORED ? add_block<true, 8> : add_block<false, 8>) {}

    // Codes, at `w`, of a block of a panel: the next that rows are multiplied with.
    template <int BITS>
    void take(const uint8_t *w, int64_t block) {
        now_ ^= 1;
        block_ = block;
        widen<BITS>(of_, w, of_.groups(block), widened_[now_]);
    }

    // Rows from m on, sixteen or as many as there are. Their totals are complete after `finish`.
    void multiply(int64_t m, float *totals) {
        const uint8_t *rows = x_ + m * stride_;
        const int64_t begin = block_ * UNIT, slot = next_ & 1;
        const Pending task{&widened_[now_], whole_[slot], of_.groups(block_),
                           rows + grouped_padded(of_.inputs) * LANES + interleaved_at(begin / of_.rounded() * 4, LANES),
                           rows + grouped_sums_at(of_.inputs) * LANES + interleaved_at(begin / of_.group * 4, LANES), totals,
                           count_ - m > 8};
        sums_(of_, *task.w, task.groups, rows + begin * LANES, whole_[slot]);
        finish();
        pending_ = task;
        next_++;
    }

    void finish() {
        if (!pending_.w) return;
        (pending_.many ? add_ : add_few_)(of_, *pending_.w, pending_.groups, pending_.whole, pending_.factors, pending_.starts,
                                          pending_.totals);
        pending_.w = nullptr;
    }

  private:
    struct Pending {
        const Widened *w;
        const WholeTile *whole;
        int64_t groups;
        const uint8_t *factors, *starts;
        float *totals;
        bool many;
    };

    const Grouping of_;
    const uint8_t *x_;
    const int64_t stride_, count_;
    void (*const sums_)(const Grouping &, const Widened &, int64_t, const uint8_t *, WholeTile *);
    void (*const add_)(const Grouping &, const Widened &, int64_t, const WholeTile *, const uint8_t *, const uint8_t *, float *);
    void (*const add_few_)(const Grouping &, const Widened &, int64_t, const WholeTile *, const uint8_t *, const uint8_t *, float *);
    int64_t block_ = 0, now_ = 0, next_ = 0;
    Pending pending_ = {};
    Widened widened_[2];
    alignas(64) WholeTile whole_[2][MOST_GROUPS];
};

#endif
