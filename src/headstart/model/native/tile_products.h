// The two products of attention by tiles: queries times keys, and weights times values.
#pragma once

#include "tile_rows.h"

#if defined(HEADSTART_TILES)

// The keys of a chunk, `dim` numbers from one to the next. apart: numbers from one head to the next.
struct Chunk {
    const BFloat16 *keys;
    int64_t dim, apart;
};

// A group's work for tiles goes on beside vectors' work, a step of a few instructions at a time: what tiles have summed up takes
// long to come, and a processor looks some hundred instructions ahead. Here: the scores of sixteen queries with the tokens of a
// chunk, [tokens][16 queries]. Each query is scored with the keys of its own head: in the queries of another one it is zeros.
class Scoring {
  public:
    int64_t left;  // steps

    Scoring(const Chunk &of, int heads, int64_t count, const uint32_t *queries, float *scores)
        : left((count + 2 * LANES - 1) / (2 * LANES) * heads * (of.dim / STEP)), of_(of), heads_(heads), count_(count),
          all_(queries), queries_(queries), scores_(scores), row_(of.keys) {}

    void step() {
        const int64_t stride = of_.dim * sizeof(BFloat16);
        const bool two = token_ + LANES < count_;
        if (queries_ == all_) {
            _tile_zero(0);
            _tile_zero(1);
        }
        const BFloat16 *own = row_ + number_;
        _tile_loadd(6, queries_, 64);
        _tile_loadd(4, own, stride);
        _tile_dpbf16ps(0, 4, 6);
        if (two) {
            _tile_loadd(5, own + LANES * of_.dim, stride);
            _tile_dpbf16ps(1, 5, 6);
        }
        left--;
        queries_ += TILE;
        number_ += STEP;
        if (number_ < of_.dim) return;
        number_ = 0;
        row_ += of_.apart;
        if (++head_ < heads_) return;
        head_ = 0;
        queries_ = all_;
        _tile_stored(0, scores_ + token_ * LANES, 64);
        if (two) _tile_stored(1, scores_ + (token_ + LANES) * LANES, 64);
        token_ += 2 * LANES;
        row_ = of_.keys + token_ * of_.dim;
    }

  private:
    Chunk of_;
    int heads_, head_ = 0;
    int64_t count_, token_ = 0, number_ = 0;
    const uint32_t *all_, *queries_;
    float *scores_;
    const BFloat16 *row_;
};

// The same: sums [heads][width][16 queries] += values, as `pack_values` lays them, times weights [steps][16 pairs of tokens][16
// queries][2].
class Adding {
  public:
    int64_t left;

    Adding(const uint32_t *weights, const uint32_t *values, int heads, int64_t count, int64_t width, float *sums)
        : left(heads * ((width + 2 * LANES - 1) / (2 * LANES)) * ((count + STEP - 1) / STEP)), steps_((count + STEP - 1) / STEP),
          width_(width), weights_(weights), values_(values), sums_(sums) {}

    void step() {
        const bool two = number_ + LANES < width_;
        if (step_ == 0) {
            _tile_loadd(2, sums_, 64);
            if (two) _tile_loadd(3, sums_ + TILE, 64);
        }
        const uint32_t *own = values_ + (step_ * width_ + number_) * LANES;
        _tile_loadd(7, weights_ + step_ * TILE, 64);
        _tile_loadd(4, own, 64);
        _tile_dpbf16ps(2, 4, 7);
        if (two) {
            _tile_loadd(5, own + TILE, 64);
            _tile_dpbf16ps(3, 5, 7);
        }
        left--;
        if (++step_ < steps_) return;
        step_ = 0;
        _tile_stored(2, sums_, 64);
        if (two) _tile_stored(3, sums_ + TILE, 64);
        sums_ += two ? 2 * TILE : TILE;
        number_ += 2 * LANES;
        if (number_ < width_) return;
        number_ = 0;
        values_ += CHUNK * width_ / 2;
    }

  private:
    int64_t steps_, step_ = 0, width_, number_ = 0;
    const uint32_t *weights_, *values_;
    float *sums_;
};

#endif
