// Which tokens can win a draw, in one pass over the distribution: the part of noise.py that takes as long as the
// vocabulary is wide.
//
// A token's race time is weight / -log(u), and -log(u) >= 1 - u bounds it from above by weight / (1 - u). The numbers u
// are those of noise.py to the bit; the bounds are float32, and GUARD is far more than their rounding errors. Whoever
// wins is among the tokens found here; noise.py draws it from them.

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace {

constexpr uint64_t GOLDEN = 0x9E3779B97F4A7C15ull, MIX1 = 0xBF58476D1CE4E5B9ull, MIX2 = 0x94D049BB133111EBull;
constexpr int LANES = 16;
constexpr int64_t BLOCK = 256, MOST_BLOCKS = 4096;
constexpr float LEAST = 1e-30f, GREATEST = 1e30f;  // beyond these, float32 would lose digits
constexpr double GUARD = 1e-6;

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

bool all_zero(const float *distribution, int64_t size) {
    int any = 0;
    for (int64_t i = 0; i < size; ++i) any |= distribution[i] != 0.0f;
    return !any;
}

// The greatest bound of a block, whose first token has the number z. Each lane keeps its own: no order is asked for.
float greatest(const float *distribution, int64_t size, uint64_t z) {
    float found[LANES] = {};
    uint64_t lanes[LANES];
    for (int j = 0; j < LANES; ++j) lanes[j] = z + j * GOLDEN;
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES)
        for (int j = 0; j < LANES; ++j) {
            const float x = bound(distribution[i + j], lanes[j]);
            found[j] = x > found[j] ? x : found[j];
            lanes[j] += LANES * GOLDEN;
        }
    for (int j = 0; i + j < size; ++j) found[j] = std::max(found[j], bound(distribution[i + j], lanes[j]));
    return *std::max_element(found, found + LANES);
}

}  // namespace

// Writes the tokens of distribution [size] that can win, in rising order, and returns how many; -1 where there are more than
// `most`, or where float32 cannot tell. key: of the seed, position, purpose and lane.
extern "C" int headstart_able(const float *distribution, int64_t size, uint64_t key, int64_t *able, int most) {
    const int64_t blocks = (size + BLOCK - 1) / BLOCK;
    if (blocks > MOST_BLOCKS) return -1;
    float tops[MOST_BLOCKS], top = 0;
    int64_t leader = 0;
    for (int64_t b = 0; b < blocks; ++b) {
        const int64_t from = b * BLOCK, count = std::min(BLOCK, size - from);
        tops[b] = all_zero(distribution + from, count) ? 0 : greatest(distribution + from, count, key + (from + 1) * GOLDEN);
        if (tops[b] > top) top = tops[b], leader = b;
    }
    if (!(top > LEAST && top < GREATEST)) return -1;

    double reached = 0;  // a race time that somebody has: nobody with a lower bound can win
    for (int64_t i = leader * BLOCK; i < std::min((leader + 1) * BLOCK, size); ++i)
        if (bound(distribution[i], key + (i + 1) * GOLDEN) >= top * (1 - GUARD))
            reached = std::max(reached, race_time(distribution[i], key + (i + 1) * GOLDEN));

    int found = 0;
    for (int64_t b = 0; b < blocks; ++b) {
        if (tops[b] < reached * (1 - GUARD)) continue;
        for (int64_t i = b * BLOCK; i < std::min((b + 1) * BLOCK, size); ++i)
            if (bound(distribution[i], key + (i + 1) * GOLDEN) >= reached * (1 - GUARD)) {
                if (found == most) return -1;
                able[found++] = i;
            }
    }
    return found;
}
