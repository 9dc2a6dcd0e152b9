// Attention by tiles (AMX): sixteen queries at a time with rows of bf16, where the processor has tiles. Keys lie as values do,
// a row for each token.
//
// Each query passes through its text in its own order, CHUNK tokens at a time, counted from the text's first token. After a
// chunk the sums so far are scaled to the largest score so far (online softmax, arXiv:1805.02867). Tokens that a query does not
// see have the weight 0 and change no sum. So its result depends on its text alone, whatever queries are beside it.
#pragma once

#include <algorithm>

#include "latent.h"
#include "tiles.h"

#if defined(HEADSTART_TILES)

constexpr int64_t CHUNK = 64, STEP = 32;         // tokens; those, and numbers of a row, that a tile instruction sums up
constexpr int MOST_SIXTEENS = 16;                // of sixteen queries, for which a chunk's values are made ready once
constexpr int BESIDE = CHUNK / 16;               // pieces of the tiles' work beside a chunk's weights
constexpr int MOST_HEADS = 4;                    // that share a group, each with a few queries
constexpr int64_t TILE = LANES * LANES;          // numbers of four bytes

constexpr float LOG2_E = 1.44269504f;
constexpr float NO_SCORE = -1e38f, NO_PEAK = -1e30f;  // below all scores, and below all that a text has seen

// One query, and what it sees: the tokens [first, last) of its slot, then `extra` ones. sink: one more score, or `NO_PEAK`.
struct Asking {
    const float *query;
    float *out;
    int64_t row, first, last;
    const int64_t *extra;
    int64_t extras;
    float sink;
};

// Queries of one segment that are attended together: as many of each of `heads` KV heads. Those of several heads fit into a
// group.
struct Together {
    int count, heads;
    Asking of[MOST_SIXTEENS * LANES];

    int groups() const { return (count + LANES - 1) / LANES; }
    int of_head() const { return count / heads; }
};

// The rows of a slot that a KV head has, `dim` numbers from one to the next. values: the same rows for latent attention, of which
// the first `width` numbers are the value. apart: numbers from one head to the next.
struct Rows {
    const BFloat16 *keys, *values;
    int64_t dim, width, apart;
};

// A thread's room for all that, in numbers of four bytes.
struct TilesRoom {
    int64_t dim, width;

    int64_t queries() const { return dim / 2 * LANES; }            // of a group or a head, as products take them
    int64_t values() const { return CHUNK * width / 2; }           // of a chunk, the same
    int64_t rows() const { return CHUNK * dim; }                   // keys and values, where they do not lie together
    int64_t sums() const { return LANES * width; }                 // of a group
    int64_t numbers() const {
        return MOST_SIXTEENS * (queries() + sums()) + MOST_HEADS * (values() + rows()) + CHUNK * LANES * 3 + LANES;
    }
};
static_assert(MOST_HEADS <= MOST_SIXTEENS);

inline bool by_tiles(int64_t dim, bool bf16) { return bf16 && dim % STEP == 0 && tiles_permitted(); }

// Each vector's numbers as bf16, side by side. A NaN need not stay one: the sum that is divided by has it.
inline __m512i rounded_pairs(Vec even, Vec odd) {
    const __m512i half = _mm512_set1_epi32(0x8000);
    const __m512i low = _mm512_srli_epi32(_mm512_add_epi32((__m512i)even, half), 16), high = _mm512_add_epi32((__m512i)odd, half);
    return _mm512_ternarylogic_epi32(high, _mm512_set1_epi32(int32_t(0xffff0000)), low, 0xEA);  // (high & mask) | low
}

// Sixteen bf16 numbers in the low halves of words; those that are not finite become 0: they may be of a token that only other
// queries see, or none. Where a row that is seen has such numbers, its key has them as a rule, and its score is none.
inline __m512i finite_numbers(const BFloat16 *from) {
    const __m256i numbers = _mm256_loadu_si256((const __m256i *)from), most = _mm256_set1_epi16(0x7f80);
    return _mm512_maskz_cvtepu16_epi32(_mm256_cmpneq_epi16_mask(_mm256_and_si256(numbers, most), most), numbers);
}

// Number c of vector r to number r of vector c.
inline void transpose(__m512i *v) {
    const __m512i places = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    HEADSTART_UNROLL
    for (int width = 8; width; width /= 2) {
        // of vectors r and r + width, the blocks of `width` numbers in odd and in even places change places
        const __m512i bit = _mm512_set1_epi32(width);
        const __mmask16 odd = _mm512_test_epi32_mask(places, bit);
        const __m512i low = _mm512_mask_add_epi32(places, odd, _mm512_sub_epi32(places, bit), _mm512_set1_epi32(LANES));
        const __m512i high = _mm512_mask_add_epi32(_mm512_add_epi32(places, bit), odd, places, _mm512_set1_epi32(LANES));
        HEADSTART_UNROLL
        for (int r = 0; r < LANES; r++) {
            if (r & width) continue;
            const __m512i a = v[r], b = v[r + width];
            v[r] = _mm512_permutex2var_epi32(a, low, b);
            v[r + width] = _mm512_permutex2var_epi32(a, high, b);
        }
    }
}

// The queries [from, to) of sixteen, by two numbers of each: [dim / 2][16 queries][2]; zeros for the others.
inline void pack_queries(const Asking *all, int from, int to, int64_t dim, uint32_t *packed) {
    __m512i pairs[LANES];
    for (int64_t i = 0; i < dim; i += 2 * LANES) {
        for (int q = 0; q < LANES; q++) {
            pairs[q] = _mm512_setzero_si512();
            if (q < from || q >= to) continue;
            BFloat16 numbers[2 * LANES];
            store(numbers, load(all[q].query + i));
            store(numbers + LANES, load(all[q].query + i + LANES));
            pairs[q] = _mm512_loadu_si512(numbers);
        }
        transpose(pairs);
        for (int p = 0; p < LANES; p++) _mm512_store_si512(packed + (i / 2 + p) * LANES, pairs[p]);
    }
    written();
}

// The values of `count` tokens of a chunk, by numbers instead of by tokens: [chunk / 32][width][32 tokens]; zeros behind.
inline void pack_values(const BFloat16 *rows, int64_t count, int64_t dim, int64_t width, uint32_t *to) {
    __m512i pairs[LANES];
    for (int64_t begin = 0; begin < count; begin += STEP)
        for (int64_t i = 0; i < width; i += LANES, to += TILE) {
            for (int64_t p = 0; p < LANES; p++) {
                const int64_t token = begin + 2 * p;
                const BFloat16 *own = rows + token * dim + i;
                pairs[p] = token < count ? finite_numbers(own) : _mm512_setzero_si512();
                if (token + 1 < count) pairs[p] = _mm512_or_si512(pairs[p], _mm512_slli_epi32(finite_numbers(own + dim), 16));
            }
            transpose(pairs);
            for (int64_t n = 0; n < LANES; n++) _mm512_store_si512(to + n * LANES, pairs[n]);
        }
    written();
}

// 2^x to within 1e-4 of it, for weights that are rounded to bf16: 2^n times a polynomial on 0 <= r < 1. NaN stays NaN.
inline Vec power_of_two(Vec x) {
    const __m512 t = (__m512)x, r = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 y = _mm512_set1_ps(7.706705e-2f);
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(2.2764498e-1f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(6.9511679e-1f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f));
    return (Vec)_mm512_scalef_ps(y, t);
}

// A group's work for tiles goes on beside vectors' work, a step of a few instructions at a time: what tiles have summed up takes
// long to come, and a processor looks some hundred instructions ahead. Here: the scores of sixteen queries with the tokens of a
// chunk, [tokens][16 queries]. Each query is scored with the keys of its own head: in the queries of another one it is zeros.
class Scoring {
  public:
    int64_t left;  // steps

    Scoring(const Rows &of, int heads, int64_t count, const uint32_t *queries, float *scores)
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
    const Rows &of_;
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

// Of sixteen queries: which tokens each sees, the largest score so far, and the sum of the weights.
struct Seen {
    Vec first, last, peak, total;
    int64_t early, late;   // the first token that any of them sees, and from which on all of them do
    int64_t least, most;   // of `last`
};

// What will be needed soon: the processor does not foresee the next chunk where a chunk ends. token, tokens: of that one.
struct Ahead {
    const Rows &of;
    int heads;
    int64_t token, tokens;

    void fetch(int64_t t) const {
        if (t >= tokens) return;
        for (int head = 0; head < heads; head++)
            for (int64_t i = (token + t) * of.dim; i < (token + t + 1) * of.dim; i += 32) {
                _mm_prefetch((const char *)(of.keys + head * of.apart + i), _MM_HINT_T1);
                if (of.values != of.keys) _mm_prefetch((const char *)(of.values + head * of.apart + i), _MM_HINT_T1);
            }
    }
};

// The scores [count][16 queries] of the tokens from `begin` on become weights, as tiles take them. Returns what the sums so far
// are to be multiplied by. Largest scores and sums are of every fourth token first, so that one need not wait for the other.
// beside(): a piece of the tiles' work, BESIDE times.
template <class Beside>
inline Vec weigh(float *scores, int64_t begin, int64_t count, const How &how, Seen &seen, const Ahead &ahead,
                 uint32_t *weights, const Beside &beside) {
    constexpr int APART = 4;
    const bool late = begin < seen.late, early = begin + count > seen.least;
    if (late || early || how.softcap != 0.0f)
        for (int64_t t = 0; t < count; t++) {
            const Vec at = splat(float(begin + t)), none = splat(NO_SCORE);
            Vec score = load(scores + t * LANES);
            if (how.softcap != 0.0f) score = capped(score * how.scaling, how.softcap);
            if (early) score = select(at < seen.last, score, none);
            if (late) score = select(at < seen.first, none, score);
            store(scores + t * LANES, score);
        }
    const float unit = how.softcap != 0.0f ? LOG2_E : how.scaling * LOG2_E;  // of scores, of which weights are powers of two
    __m512 peaks[APART];
    for (auto &peak : peaks) peak = _mm512_set1_ps(NO_SCORE);
    for (int64_t t = count; t < round_up(count, APART); t++) store(scores + t * LANES, splat(NO_SCORE));
    for (int64_t t = 0; t < count; t += APART) {
        HEADSTART_UNROLL
        for (int n = 0; n < APART; n++) {
            ahead.fetch(t + n);
            peaks[n] = _mm512_max_ps(_mm512_loadu_ps(scores + (t + n) * LANES), peaks[n]);  // not if it is a NaN
        }
    }
    const Vec most = (Vec)_mm512_max_ps(_mm512_max_ps(peaks[0], peaks[1]), _mm512_max_ps(peaks[2], peaks[3])) * unit;
    const Vec peak = larger(most, seen.peak), before = power_of_two(seen.peak - peak), units = splat(unit);
    Vec totals[APART] = {seen.total * before, Vec{}, Vec{}, Vec{}};
    for (int64_t t = 0; t < CHUNK; t += APART) {
        if (t % LANES == 0) beside();
        if (t >= count) continue;
        Vec own[APART];
        HEADSTART_UNROLL
        for (int n = 0; n < APART; n++) {
            own[n] = power_of_two((Vec)_mm512_fmsub_ps(_mm512_loadu_ps(scores + (t + n) * LANES), (__m512)units, (__m512)peak));
            totals[n] = totals[n] + own[n];
        }
        HEADSTART_UNROLL
        for (int n = 0; n < APART; n += 2) _mm512_store_si512(weights + (t + n) / 2 * LANES, rounded_pairs(own[n], own[n + 1]));
    }
    for (int64_t t = round_up(count, APART); t < round_up(count, STEP); t += 2)
        _mm512_store_si512(weights + t / 2 * LANES, _mm512_setzero_si512());
    seen.peak = peak;
    seen.total = (totals[0] + totals[1]) + (totals[2] + totals[3]);
    return before;
}

// Attention of queries of one segment to rows of its slot. room: see `TilesRoom`.
inline void attend_by_tiles(const Together &all, const Rows &of, const How &how, float *room) {
    const Tiles tiles(LANES);
    const int64_t dim = of.dim, width = of.width;
    const bool apart = of.values != of.keys;
    const TilesRoom sizes{dim, width};
    const int groups = all.groups(), heads = all.heads, own_of = all.of_head();
    uint32_t *queries = (uint32_t *)((uintptr_t(room) + 63) / 64 * 64), *packed = queries + MOST_SIXTEENS * sizes.queries();
    uint32_t *weights = packed + MOST_HEADS * sizes.values();
    float *scores = (float *)(weights + CHUNK * LANES), *sums = scores + 2 * CHUNK * LANES;
    BFloat16 *own_rows = (BFloat16 *)(sums + MOST_SIXTEENS * sizes.sums());
    Seen seen[MOST_SIXTEENS];
    int64_t begin = INT64_MAX, end = 0, shared = INT64_MAX;
    bool extras = false;
    for (int q = 0; q < all.count; q++) {
        begin = std::min(begin, all.of[q].first / CHUNK * CHUNK);
        end = std::max(end, all.of[q].last);
        shared = std::min(shared, all.of[q].last / CHUNK * CHUNK);
        extras |= all.of[q].extras > 0;
    }
    if (extras) end = std::max(begin, shared);  // what lies behind is seen by each row in an order of its own
    // only: of the queries of one row, which see their extra tokens too, behind the others; or -1
    const auto see = [&](int g, int64_t only, Seen &seen) {
        float first[LANES], last[LANES];
        seen.early = seen.least = INT64_MAX;
        seen.late = seen.most = 0;
        for (int q = 0; q < LANES; q++) {
            const Asking &own = all.of[std::min(g * LANES + q, all.count - 1)];
            const bool sees = only < 0 || own.row == only;
            const int64_t from = sees ? own.first : int64_t(1) << 24, to = own.last + (only < 0 ? 0 : own.extras);
            first[q] = float(from);
            last[q] = float(to);
            seen.late = std::max(seen.late, from);
            if (!sees) continue;
            seen.early = std::min(seen.early, from);
            seen.least = std::min(seen.least, to);
            seen.most = std::max(seen.most, to);
        }
        seen.first = load(first);
        seen.last = load(last);
    };
    for (int g = 0; g < groups; g++) {
        float peak[LANES], total[LANES];
        see(g, -1, seen[g]);
        for (int q = 0; q < LANES; q++) {
            peak[q] = all.of[std::min(g * LANES + q, all.count - 1)].sink;
            total[q] = peak[q] == NO_PEAK ? 0.0f : 1.0f;
        }
        seen[g].peak = load(peak);
        seen[g].total = load(total);
        if (heads == 1) pack_queries(all.of + g * LANES, 0, std::min(all.count - g * LANES, LANES), dim, queries + g * sizes.queries());
    }
    for (int head = 0; head < heads && heads > 1; head++)
        pack_queries(all.of, head * own_of, (head + 1) * own_of, dim, queries + head * sizes.queries());
    std::memset(sums, 0, std::max(groups, heads) * sizes.sums() * sizeof(float));
    // Tokens of a chunk, through which a group passes.
    struct Passing {
        int g;
        int64_t count;
        Seen *seen;
    };
    // Groups pass through a chunk from token `first` on, whose values are packed. While vectors weigh the scores of one of them,
    // tiles score the next one's and add up the values of the one before.
    const auto pass = [&](const Passing *passing, int n, const Rows &chunk, int64_t first, Ahead ahead) {
        if (!n) return;
        const auto scoring = [&](int k) {
            const Passing &own = passing[std::min(k, n - 1)];
            return Scoring(chunk, heads, k < n ? own.count : 0, queries + own.g * sizes.queries(), scores + k % 2 * CHUNK * LANES);
        };
        const auto adding = [&](int k) {
            const Passing &own = passing[std::max(k, 0)];
            return Adding(weights + (k & 1) * CHUNK * LANES / 2, packed, heads, k < 0 ? 0 : own.count, width,
                          sums + own.g * sizes.sums());
        };
        for (Scoring first_scores = scoring(0); first_scores.left;) first_scores.step();
        for (int k = 0; k < n; k++) {
            const Passing &own = passing[k];
            Scoring next = scoring(k + 1);
            Adding last = adding(k - 1);
            const int64_t scores_each = (next.left + BESIDE - 1) / BESIDE, sums_each = (last.left + BESIDE - 1) / BESIDE;
            written();
            const Vec before = weigh(scores + k % 2 * CHUNK * LANES, first, own.count, how, *own.seen, ahead,
                                     weights + k % 2 * CHUNK * LANES / 2, [&] {
                for (int64_t i = 0; i < std::max(scores_each, sums_each); i++) {
                    if (i < scores_each && next.left) next.step();
                    if (i < sums_each && last.left) last.step();
                }
            });
            written();
            ahead.tokens = 0;  // once is enough
            float *sum = sums + own.g * sizes.sums();  // of several heads, if there are some, each with a room of its own
            if (_mm512_cmpneq_ps_mask((__m512)before, _mm512_set1_ps(1.0f)))
                for (int64_t i = 0; i < heads * sizes.sums(); i += LANES) store(sum + i, load(sum + i) * before);
        }
        written();
        for (Adding last = adding(n - 1); last.left;) last.step();
        written();
    };
    const auto pack = [&](const Rows &chunk, int64_t count) {
        for (int head = 0; head < heads; head++)
            pack_values(chunk.values + head * chunk.apart, count, dim, width, packed + head * sizes.values());
    };
    for (int64_t first = begin; first < end; first += CHUNK) {
        const int64_t count = std::min(end - first, CHUNK), next = first + CHUNK;
        const Rows chunk{of.keys + first * dim, of.values + first * dim, dim, width, of.apart};
        pack(chunk, count);
        Passing passing[MOST_SIXTEENS];
        int n = 0;
        for (int g = 0; g < groups; g++) {
            const int64_t own = std::min(seen[g].most - first, count);
            if (own > 0 && first + own > seen[g].early) passing[n++] = Passing{g, own, &seen[g]};
        }
        pass(passing, n, chunk, first, Ahead{of, heads, next, std::min(end - next, CHUNK)});
    }
    for (int g = 0; g < groups && extras; g++)
        for (int q = g * LANES; q < std::min((g + 1) * LANES, all.count); q++) {
            const Asking &own = all.of[q];
            bool done = false;  // by an earlier query of the same row
            for (int other = g * LANES; other < q; other++) done |= all.of[other].row == own.row;
            if (done) continue;
            Seen only = seen[g];
            see(g, own.row, only);
            for (int64_t first = std::max(end, own.first / CHUNK * CHUNK); first < own.last + own.extras; first += CHUNK) {
                const int64_t count = std::min(own.last + own.extras - first, CHUNK);
                Rows chunk{own_rows, apart ? own_rows + CHUNK * dim : own_rows, dim, width, CHUNK * dim * 2};
                for (int head = 0; head < heads; head++)
                    for (int64_t t = 0; t < count; t++) {
                        const int64_t token = first + t < own.last ? first + t : own.extra[first + t - own.last];
                        const int64_t from = head * of.apart + token * dim, to = head * chunk.apart + t * dim;
                        std::memcpy(own_rows + to, of.keys + from, dim * sizeof(BFloat16));
                        if (apart) std::memcpy(own_rows + CHUNK * dim + to, of.values + from, dim * sizeof(BFloat16));
                    }
                written();
                pack(chunk, count);
                const Passing own_pass{g, count, &only};
                pass(&own_pass, 1, chunk, first, Ahead{of, heads, 0, 0});
            }
            seen[g].peak = only.peak;
            seen[g].total = only.total;
        }
    for (int g = 0; g < groups; g++)
        for (int head = 0; head < heads; head++)
            for (int64_t i = 0; i < width; i += LANES) {
                __m512i numbers[LANES];
                const float *sum = sums + (g + head) * sizes.sums() + i * LANES;
                for (int n = 0; n < LANES; n++) numbers[n] = _mm512_loadu_si512(sum + n * LANES);
                transpose(numbers);
                const int from = heads > 1 ? head * own_of : 0, to = heads > 1 ? from + own_of : LANES;
                for (int q = from; q < std::min(to, all.count - g * LANES); q++)
                    store(all.of[g * LANES + q].out + i, (Vec)numbers[q] * (1.0f / seen[g].total[q]));
            }
}

// Attention of all queries of a batch: query and attended [rows, heads, dim]. keys, values, width: see `Rows`.
inline void attend_by_tiles(Member &team, const float *query, const BFloat16 *keys, const BFloat16 *values, int64_t width,
                            const Visible &visible, const Shape &s, const How &how, const int64_t *segments,
                            int64_t segment_count, const int64_t *slots, float *attended, float *room) {
    const int64_t group = s.heads / s.kv_heads, apart = s.capacity * s.dim;
    const auto queries_of = [&](int64_t k) { return (segments[k + 1] - segments[k]) * group; };  // of a KV head
    // KV heads whose queries make up a group, where threads are busy without more tasks than that
    const auto heads_of = [&](int64_t k) {
        const int64_t fit = std::min(LANES / std::max(int64_t(1), queries_of(k)), s.kv_heads * segment_count / team.threads());
        return std::max(int64_t(1), std::min({fit, int64_t(MOST_HEADS), s.kv_heads}));
    };
    const auto parts = [&](int64_t k) {
        const int64_t groups = (queries_of(k) + LANES - 1) / LANES, most = (groups + MOST_SIXTEENS - 1) / MOST_SIXTEENS;
        return std::max(most, std::min(groups, (team.threads() + s.kv_heads - 1) / s.kv_heads));
    };
    const auto tasks_of = [&](int64_t k) { return (s.kv_heads + heads_of(k) - 1) / heads_of(k) * parts(k); };
    int64_t tasks = 0;
    for (int64_t k = 0; k < segment_count; k++) tasks += tasks_of(k);
    team.pieces(tasks, [&](int64_t task) {
        int64_t k = 0;
        for (; task >= tasks_of(k); k++) task -= tasks_of(k);
        const int64_t part = parts(k), kv = task / part * heads_of(k), groups = (queries_of(k) + LANES - 1) / LANES;
        const int64_t each = (groups + part - 1) / part * LANES, first = task % part * each;
        const int64_t count = std::min(each, queries_of(k) - first);
        if (count <= 0) return;
        Together all;
        all.heads = int(std::min(heads_of(k), s.kv_heads - kv));
        all.count = int(count * all.heads);
        for (int q = 0; q < all.count; q++) {
            const int64_t at = first + q % count, row = segments[k] + at / group, head = (kv + q / count) * group + at % group;
            const int64_t own = (row * s.heads + head) * s.dim, extra = visible.extra_begin[row];
            all.of[q] = Asking{query + own, attended + own, row, visible.first[row], visible.last[row], visible.extra + extra,
                               visible.extra_begin[row + 1] - extra, how.sinks ? std::max(how.sinks[head] * LOG2_E, NO_PEAK) : NO_PEAK};
        }
        const int64_t before = (slots[segments[k]] * s.kv_heads + kv) * apart;
        attend_by_tiles(all, Rows{keys + before, values + before, s.dim, width, apart}, how, room);
    });
}

#endif
