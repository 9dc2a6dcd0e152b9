// The first tokens in the race of a draw: the part of noise.py that takes as long as the vocabulary is wide.
//
// A token's race time is weight / -log(u), and -log(u) >= 1 - u bounds it from above by weight / (1 - u). The numbers u
// are those of noise.py to the bit; the bounds are float32, and GUARD is far more than their rounding errors. Only the
// tokens whose bound is high enough have their race times computed. Where two of these are so close that another
// library's logarithm might order them otherwise, noise.py decides.

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace {

constexpr uint64_t GOLDEN = 0x9E3779B97F4A7C15ull, MIX1 = 0xBF58476D1CE4E5B9ull, MIX2 = 0x94D049BB133111EBull;
constexpr int LANES = 16;
constexpr int64_t BLOCK = 256, MOST_BLOCKS = 4096;
constexpr int MOST_DRAWN = 64;
constexpr float LEAST = 1e-30f, GREATEST = 1e30f;  // beyond these, float32 would lose digits
constexpr double GUARD = 1e-6;
constexpr double CLOSE = 1e-12;  // logarithms differ by less than a thousandth of it

struct Runner {
    double time;
    int64_t token;
};

// 53 random bits. z: the key and the token's counter.
inline uint64_t mixed(uint64_t z) {
    z = (z ^ (z >> 30)) * MIX1;
    z = (z ^ (z >> 27)) * MIX2;
    return (z ^ (z >> 31)) >> 11;
}

inline float bound(float weight, uint64_t z) {
    // u = (bits + 0.5) / 2**53, rounded to a float64: 1 - u is this many or one more
    const auto least = static_cast<int64_t>((1ull << 53) - 1 - mixed(z));
    return weight / (static_cast<float>(least) * 0x1p-53f);
}

inline double race_time(float weight, uint64_t z) {
    return weight / -std::log((static_cast<double>(mixed(z)) + 0.5) * 0x1p-53);
}

bool all_zero(const float *weights, int64_t size) {
    int any = 0;
    for (int64_t i = 0; i < size; ++i) any |= weights[i] != 0.0f;
    return !any;
}

// The greatest bound of a block, whose first token has the number z. Each lane keeps its own: no order is asked for.
float greatest(const float *weights, int64_t size, uint64_t z) {
    float found[LANES] = {};
    uint64_t lanes[LANES];
    for (int j = 0; j < LANES; ++j) lanes[j] = z + j * GOLDEN;
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES)
        for (int j = 0; j < LANES; ++j) {
            const float x = bound(weights[i + j], lanes[j]);
            found[j] = x > found[j] ? x : found[j];
            lanes[j] += LANES * GOLDEN;
        }
    for (int j = 0; i + j < size; ++j) found[j] = std::max(found[j], bound(weights[i + j], lanes[j]));
    return *std::max_element(found, found + LANES);
}

// The same of weights that belong to these tokens.
float greatest_of(const float *weights, const int64_t *tokens, int64_t size, uint64_t key) {
    float found[LANES] = {};
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES)
        for (int j = 0; j < LANES; ++j) {
            const float x = bound(weights[i + j], key + (tokens[i + j] + 1) * GOLDEN);
            found[j] = x > found[j] ? x : found[j];
        }
    for (int j = 0; i + j < size; ++j) found[j] = std::max(found[j], bound(weights[i + j], key + (tokens[i + j] + 1) * GOLDEN));
    return *std::max_element(found, found + LANES);
}

}  // namespace

// Writes the places of the first `count` of the race of weights [size], the winner first, and returns how many there are:
// fewer where no others have a weight; -1 where noise.py must decide. tokens: of each weight, its token; null where that is
// its place. key: of the seed, position, purpose and lane.
extern "C" int headstart_draw(const float *weights, const int64_t *tokens, int64_t size, uint64_t key, int64_t *drawn, int count) {
    const int64_t blocks = (size + BLOCK - 1) / BLOCK;
    if (blocks > MOST_BLOCKS || count > MOST_DRAWN) return -1;
    float tops[MOST_BLOCKS], top = 0;
    for (int64_t b = 0; b < blocks; ++b) {
        const int64_t from = b * BLOCK, length = std::min(BLOCK, size - from);
        if (all_zero(weights + from, length))
            tops[b] = 0;
        else
            tops[b] = tokens ? greatest_of(weights + from, tokens + from, length, key)
                             : greatest(weights + from, length, key + (from + 1) * GOLDEN);
        top = std::max(top, tops[b]);
    }
    if (!(top > LEAST && top < GREATEST)) return -1;

    // one more than are drawn, to see how close the last of them is to the next
    Runner first[MOST_DRAWN + 1];
    int found = 0;
    double reached = 0;  // nobody with a lower bound is among the first
    for (;;) {
        float *leader = std::max_element(tops, tops + blocks);
        if (*leader <= reached * (1 - GUARD)) break;
        *leader = 0;
        const int64_t from = (leader - tops) * BLOCK;
        for (int64_t i = from; i < std::min(from + BLOCK, size); ++i) {
            const uint64_t z = key + ((tokens ? tokens[i] : i) + 1) * GOLDEN;
            if (weights[i] == 0 || bound(weights[i], z) < reached * (1 - GUARD)) continue;
            const Runner runner = {race_time(weights[i], z), i};
            int place = found <= count ? found++ : count;  // behind all, or in the place of the last
            if (reached > 0 && runner.time <= reached) continue;
            for (; place > 0 && first[place - 1].time < runner.time; --place) first[place] = first[place - 1];
            first[place] = runner;
            if (found > count) reached = first[count].time;
        }
    }
    const int taken = std::min(found, count);
    if (taken == 0 || first[taken - 1].time < LEAST) return -1;
    for (int k = 0; k + 1 < found; ++k)
        if (first[k].time - first[k + 1].time <= CLOSE * first[k].time) return -1;
    for (int k = 0; k < taken; ++k) drawn[k] = first[k].token;
    return taken;
}
