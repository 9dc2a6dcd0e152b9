// The softmax between the products of attention by tiles: the scores of sixteen queries become weights, a chunk at a time.
#pragma once

#include <algorithm>

#include "tile_rows.h"

#if defined(HEADSTART_TILES)

constexpr int BESIDE = CHUNK / 16;               // pieces of the tiles' work beside a chunk's weights
constexpr float LOG2_E = 1.44269504f;
constexpr float NO_SCORE = -1e38f, NO_PEAK = -1e30f;  // below all scores, and below all that a text has seen

// Each vector's numbers as bf16, side by side. A NaN need not stay one: the sum that is divided by has it.
inline __m512i rounded_pairs(Vec even, Vec odd) {
    const __m512i half = _mm512_set1_epi32(0x8000);
    const __m512i low = _mm512_srli_epi32(_mm512_add_epi32((__m512i)even, half), 16), high = _mm512_add_epi32((__m512i)odd, half);
    return _mm512_ternarylogic_epi32(high, _mm512_set1_epi32(int32_t(0xffff0000)), low, 0xEA);  // (high & mask) | low
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

// Of sixteen queries: which tokens each sees, the largest score so far, and the sum of the weights.
struct Seen {
    Vec first, last, peak, total;
    int64_t early, late;   // the first token that any of them sees, and from which on all of them do
    int64_t least, most;   // of `last`
};

// What will be needed soon: the processor does not foresee the next chunk where a chunk ends. token, tokens: of that one.
template <class KV>
struct Ahead {
    const Rows<KV> &of;
    int heads;
    int64_t token, tokens;

    void fetch(int64_t t) const {
        if (t >= tokens) return;
        const int64_t bytes = of.stride() * sizeof(KV);
        for (int head = 0; head < heads; head++) {
            const int64_t from = head * of.apart + token * of.stride();
            for (int64_t at = round_up(t * bytes, 64); at < (t + 1) * bytes; at += 64) {
                _mm_prefetch((const char *)(of.keys + from) + at, _MM_HINT_T1);
                if (of.values != of.keys) _mm_prefetch((const char *)(of.values + from) + at, _MM_HINT_T1);
            }
        }
    }
};

// What scores of a chunk's tokens are to be multiplied by, and weights before they meet the values, where rows are codes: those of
// each query's own head, [CHUNK][16 queries].
struct Unscaled {
    static constexpr bool SOME = false;
    Vec key(int64_t) const { return Vec{}; }
    Vec value(int64_t) const { return Vec{}; }
};
struct OwnScales {
    static constexpr bool SOME = true;
    const float *keys, *values;
    Vec key(int64_t t) const { return load(keys + t * LANES); }
    Vec value(int64_t t) const { return load(values + t * LANES); }
};

// The scores [count][16 queries] of the tokens from `begin` on become weights, as tiles take them. Returns what the sums so far
// are to be multiplied by. Largest scores and sums are of every fourth token first, so that one need not wait for the other.
// beside(): a piece of the tiles' work, BESIDE times.
template <class By, class KV, class Beside>
inline Vec weigh(float *scores, int64_t begin, int64_t count, const How &how, const By &scales, Seen &seen,
                 const Ahead<KV> &ahead, uint32_t *weights, const Beside &beside) {
    constexpr int APART = 4;
    const bool late = begin < seen.late, early = begin + count > seen.least, made = late || early || how.softcap != 0.0f;
    if (made)
        for (int64_t t = 0; t < count; t++) {
            const Vec at = splat(float(begin + t)), none = splat(NO_SCORE);
            Vec score = load(scores + t * LANES);
            if (By::SOME) score = score * scales.key(t);
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
            Vec score = load(scores + (t + n) * LANES);
            if (By::SOME && !made && t + n < count) {
                score = score * scales.key(t + n);
                store(scores + (t + n) * LANES, score);
            }
            peaks[n] = _mm512_max_ps((__m512)score, peaks[n]);  // not if it is a NaN
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
            if (By::SOME) own[n] = own[n] * scales.value(t + n);
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

#endif
