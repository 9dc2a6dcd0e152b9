// Attention by tiles (AMX): sixteen queries at a time with rows of bf16 or of codes, where the processor has tiles. Keys lie as
// values do, a row for each token.
//
// Each query passes through its text in its own order, CHUNK tokens at a time, counted from the text's first token. After a
// chunk the sums so far are scaled to the largest score so far (online softmax, arXiv:1805.02867). Tokens that a query does not
// see have the weight 0 and change no sum. So its result depends on its text alone, whatever queries are beside it.
#pragma once

#include <algorithm>

#include "latent.h"
#include "tile_products.h"
#include "tile_softmax.h"

#if defined(HEADSTART_TILES)

constexpr int MOST_SIXTEENS = 16;                // of sixteen queries, for which a chunk's values are made ready once
constexpr int MOST_HEADS = 4;                    // that share a group, each with a few queries

// Queries of one segment that are attended together: as many of each of `heads` KV heads. Those of several heads fit into a
// group.
struct Together {
    int count, heads;
    Asking of[MOST_SIXTEENS * LANES];

    int groups() const { return (count + LANES - 1) / LANES; }
    int of_head() const { return count / heads; }
};

// A thread's room for all that, in numbers of four bytes.
struct TilesRoom {
    int64_t dim, width;

    int64_t queries() const { return dim / 2 * LANES; }            // of a group or a head, as products take them
    int64_t values() const { return CHUNK * width / 2; }           // of a chunk, the same
    int64_t keys() const { return CHUNK * dim / 2; }               // of a chunk, where they are not taken as they lie
    int64_t sums() const { return LANES * width; }                 // of a group
    int64_t numbers() const {
        return MOST_SIXTEENS * (queries() + sums()) + MOST_HEADS * (values() + keys()) + CHUNK * LANES * 5 + LANES;
    }
};
static_assert(MOST_HEADS <= MOST_SIXTEENS);

// Attention of queries of one segment to rows of its slot. room: see `TilesRoom`.
template <class KV>
inline void attend_by_tiles(const Together &all, const Rows<KV> &of, const How &how, float *room) {
    constexpr bool CODED = SCALE<KV> > 0;
    const Tiles tiles(LANES);
    const int64_t dim = of.dim, width = of.width;
    const TilesRoom sizes{dim, width};
    const int groups = all.groups(), heads = all.heads, own_of = all.of_head();
    uint32_t *queries = (uint32_t *)((uintptr_t(room) + 63) / 64 * 64), *packed = queries + MOST_SIXTEENS * sizes.queries();
    uint32_t *weights = packed + MOST_HEADS * sizes.values();
    float *scores = (float *)(weights + CHUNK * LANES), *sums = scores + 2 * CHUNK * LANES;
    float *key_scales = sums + MOST_SIXTEENS * sizes.sums(), *value_scales = key_scales + CHUNK * LANES;
    BFloat16 *own_keys = (BFloat16 *)(value_scales + CHUNK * LANES);
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
    const auto pass = [&](const Passing *passing, int n, const Chunk &chunk, int64_t first, Ahead<KV> ahead) {
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
            const auto weighed = [&](const auto &scales) {
                return weigh(scores + k % 2 * CHUNK * LANES, first, own.count, how, scales, *own.seen, ahead,
                             weights + k % 2 * CHUNK * LANES / 2, [&] {
                    for (int64_t i = 0; i < std::max(scores_each, sums_each); i++) {
                        if (i < scores_each && next.left) next.step();
                        if (i < sums_each && last.left) last.step();
                    }
                });
            };
            Vec before;
            if constexpr (!CODED)
                before = weighed(Unscaled{});
            else
                before = weighed(OwnScales{key_scales, value_scales});
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
    __mmask16 of_heads[MOST_HEADS];  // the queries of each
    for (int head = 0; head < heads; head++) of_heads[head] = heads > 1 ? __mmask16(((1u << own_of) - 1) << head * own_of) : 0xffff;
    const auto copy_scales = [&](int64_t count, const auto &token) {
        for (int64_t t = 0; t < count; t++) {
            __m512 key = _mm512_setzero_ps(), value = key;
            for (int head = 0; head < heads; head++) {
                const int64_t behind = head * of.apart + token(t) * of.stride() + dim;
                key = _mm512_mask_mov_ps(key, of_heads[head], _mm512_set1_ps(scale_at((const Code *)of.keys + behind)));
                value = _mm512_mask_mov_ps(value, of_heads[head], _mm512_set1_ps(scale_at((const Code *)of.values + behind)));
            }
            store(key_scales + t * LANES, (Vec)key);
            store(value_scales + t * LANES, finite((Vec)value));
        }
        for (int64_t t = count; t < round_up(count, 4); t++) store(value_scales + t * LANES, Vec{});  // which `weigh` takes too
    };
    // Makes `count` tokens ready; token(t): the t-th of them. in_place: their keys are taken as they lie.
    const auto ready = [&](int64_t count, bool in_place, const auto &token) {
        const int64_t stride = of.stride();
        for (int head = 0; head < heads; head++) {
            const KV *keys = of.keys + head * of.apart, *values = of.values + head * of.apart;
            pack_values([=](int64_t t) { return values + token(t) * stride; }, count, width, packed + head * sizes.values());
            if (in_place) continue;
            for (int64_t t = 0; t < count; t++) copy_key(keys + token(t) * stride, dim, own_keys + (head * CHUNK + t) * dim);
        }
        if (CODED) copy_scales(count, token);
        written();
    };
    const Chunk copied{own_keys, dim, CHUNK * dim};
    for (int64_t first = begin; first < end; first += CHUNK) {
        const int64_t count = std::min(end - first, CHUNK), next = first + CHUNK;
        ready(count, !CODED, [&](int64_t t) { return first + t; });
        Chunk chunk = copied;
        if constexpr (!CODED) chunk = Chunk{of.keys + first * dim, dim, of.apart};
        Passing passing[MOST_SIXTEENS];
        int n = 0;
        for (int g = 0; g < groups; g++) {
            const int64_t own = std::min(seen[g].most - first, count);
            if (own > 0 && first + own > seen[g].early) passing[n++] = Passing{g, own, &seen[g]};
        }
        pass(passing, n, chunk, first, Ahead<KV>{of, heads, next, std::min(end - next, CHUNK)});
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
                ready(count, false, [&](int64_t t) {
                    return first + t < own.last ? first + t : own.extra[first + t - own.last];
                });
                const Passing own_pass{g, count, &only};
                pass(&own_pass, 1, copied, first, Ahead<KV>{of, heads, 0, 0});
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
template <class KV>
inline void attend_by_tiles(Member &team, const float *query, const KV *keys, const KV *values, int64_t width,
                            const Visible &visible, const Shape &s, const How &how, const int64_t *segments, int64_t segment_count,
                            const int64_t *slots, float *attended, float *room) {
    const int64_t group = s.heads / s.kv_heads, apart = s.capacity * (s.dim + SCALE<KV>);
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
        attend_by_tiles(all, Rows<KV>{keys + before, values + before, s.dim, width, apart}, how, room);
    });
}

#endif
