// Softmax of rows of logits, their likeliest tokens, and what a rejected token leaves: what of a distribution takes as long as
// the vocabulary is wide.
//
// A forward has just read all of the model, so that little else is left in the caches: one short piece of code is worth more
// here than fast parts. Each row is computed alone, in an order that its width alone decides.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

namespace {

constexpr int LANES = 16, WIDE = 64, MOST = 64;
constexpr int64_t BLOCK = 256, MOST_BLOCKS = 4096;
constexpr double GUARD = 1.001;  // far more than the rounding errors of a logarithm
constexpr float LOWEST = -87.0f;  // of exponents: what is less likely has the probability 0, before float32 loses digits

// e**y for y <= 0: a power of two times the series of e**r, |r| <= log(2) / 2, whose rest is below float32's rounding.
inline float power(float y) {
    const float inside = y > LOWEST ? y : LOWEST;
    const float shifted = inside * 1.44269504f + 12582912.0f;  // 1.5 * 2**23: the sum's last bits are a whole number
    const float n = shifted - 12582912.0f;
    const float r = (inside - n * 0.693359375f) + n * 2.12194440e-4f;  // log(2) in two parts, the first of few digits
    float e = 1.0f / 5040;
    e = e * r + 1.0f / 720;
    e = e * r + 1.0f / 120;
    e = e * r + 1.0f / 24;
    e = e * r + 1.0f / 6;
    e = e * r + 0.5f;
    e = e * r + 1.0f;
    e = e * r + 1.0f;
    uint32_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + (127u << 23);
    float scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return y > LOWEST ? e * scale : 0.0f;
}

// The largest of some logits; NaN where one of them is.
float largest(const float *x, int64_t size) {
    int bad = 0;
    for (int64_t i = 0; i < size; ++i) bad |= x[i] != x[i];
    if (bad) return NAN;
    float found[WIDE];
    std::fill(found, found + WIDE, -INFINITY);
    int64_t i = 0;
    for (; i + WIDE <= size; i += WIDE)
        for (int j = 0; j < WIDE; ++j) found[j] = x[i + j] > found[j] ? x[i + j] : found[j];
    for (int j = 0; i + j < size; ++j) found[j] = x[i + j] > found[j] ? x[i + j] : found[j];
    for (int half = WIDE / 2; half > 0; half /= 2)
        for (int j = 0; j < half; ++j) found[j] = found[j + half] > found[j] ? found[j + half] : found[j];
    return found[0];
}

// The sum of e**(x / temperature - top) over a block, whose terms are written to `terms`. It is divided, so that logits that
// were divided before give the same bits.
float exponentials(const float *__restrict x, int64_t size, float temperature, float top, float *__restrict terms) {
    for (int64_t i = 0; i < size; ++i) terms[i] = power(x[i] / temperature - top);
    float sums[LANES] = {};
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES)
        for (int j = 0; j < LANES; ++j) sums[j] += terms[i + j];
    for (int j = 0; i + j < size; ++j) sums[j] += terms[i + j];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
    return sums[0];
}

void add(const float *x, int64_t size, double *sums) {
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES)
        for (int j = 0; j < LANES; ++j) sums[j] += x[i + j];
    for (int j = 0; i + j < size; ++j) sums[j] += x[i + j];
}

// By a product where it has the reciprocal: that of a sum below 3e-39 is infinite in float.
void divide(float *x, int64_t size, double sum) {
    const float factor = static_cast<float>(1 / sum);
    if (std::isfinite(factor)) {
        for (int64_t i = 0; i < size; ++i) x[i] *= factor;
    } else {
        for (int64_t i = 0; i < size; ++i) x[i] = static_cast<float>(x[i] / sum);
    }
}

// The `count` likeliest columns of a row of logits, the likeliest first and equals in their order, and the logarithms of their
// probabilities. False where the row has no distribution, and where no probability reaches 1 / most.
bool likeliest(const float *logits, int64_t size, int64_t count, double most, int64_t *columns, float *scores) {
    const int64_t blocks = (size + BLOCK - 1) / BLOCK;
    float tops[MOST_BLOCKS], terms[BLOCK], top = -INFINITY;
    for (int64_t b = 0; b < blocks && top == top; ++b) {
        tops[b] = largest(logits + b * BLOCK, std::min(BLOCK, size - b * BLOCK));
        top = tops[b] <= top ? top : tops[b];
    }
    if (!std::isfinite(top)) return false;
    double sum = 0;
    for (int64_t i = 0; i < size; i += BLOCK) {
        sum += exponentials(logits + i, std::min(BLOCK, size - i), 1, top, terms);
        if (sum > most) return false;
    }
    int64_t found = 0;
    for (bool seen[MOST_BLOCKS] = {};;) {  // block by block, those with the largest logits first
        int64_t leader = -1;
        for (int64_t b = 0; b < blocks; ++b)
            if (!seen[b] && (leader < 0 || tops[b] > tops[leader])) leader = b;
        if (leader < 0 || (found == count && tops[leader] < logits[columns[count - 1]])) break;
        seen[leader] = true;
        const int64_t from = leader * BLOCK, end = std::min(from + BLOCK, size);
        for (int64_t group = from; group < end; group += LANES) {
            const int64_t last = std::min(group + LANES, end);
            if (found == count) {  // most groups hold nobody, which is seen at a glance
                const float least = logits[columns[count - 1]];
                int any = 0;
                for (int64_t i = group; i < last; ++i) any |= logits[i] >= least;
                if (!any) continue;
            }
            for (int64_t i = group; i < last; ++i) {
                const auto before = [&](int64_t other) {
                    return logits[i] > logits[other] || (logits[i] == logits[other] && i < other);
                };
                if (found == count && !before(columns[count - 1])) continue;
                int64_t place = found < count ? found++ : count - 1;
                for (; place > 0 && before(columns[place - 1]); --place) columns[place] = columns[place - 1];
                columns[place] = i;
            }
        }
    }
    const double all = std::log(sum);
    for (int64_t k = 0; k < count; ++k) scores[k] = static_cast<float>(static_cast<double>(logits[columns[k]] - top) - all);
    return true;
}

}  // namespace

// p [rows, size]: the softmax of each row of logits / temperature. NaN throughout where a logit is NaN or +inf, or all are -inf.
extern "C" void headstart_softmax(const float *logits, int64_t rows, int64_t size, const float *temperatures, float *p) {
    for (int64_t r = 0; r < rows; ++r, logits += size, p += size) {
        const float temperature = temperatures[r], top = largest(logits, size) / temperature;
        if (!std::isfinite(top)) {
            std::fill(p, p + size, NAN);
            continue;
        }
        double sum = 0;
        for (int64_t i = 0; i < size; i += BLOCK) sum += exponentials(logits + i, std::min(BLOCK, size - i), temperature, top, p + i);
        const auto share = static_cast<float>(1 / sum);
        for (int64_t i = 0; i < size; ++i) p[i] *= share;
    }
}

// The likeliest columns of rows of logits, `count` of each at most, for paths that go on from paths with these logarithms of
// their probabilities, `above` [rows]. found [2][rows * count]: the row and the column of each; scores: the logarithm of the
// probability of its path [rows * count], and room for as many. Only those of a score of `least` or more, and of all the `most`
// best with their equals. Row by row, the likeliest first. None of probability 0, or of a row without a distribution. Returns
// how many; -1 where there are too many.
extern "C" int64_t headstart_likeliest(const float *logits, int64_t rows, int64_t size, int64_t count, const double *above,
                                       double least, int64_t most, int64_t *found, double *scores) {
    if (size > MOST_BLOCKS * BLOCK || count > MOST || count > size) return -1;
    int64_t columns[MOST], kept = 0, *const of = found + rows * count;
    float values[MOST];
    for (int64_t r = 0; r < rows; ++r, logits += size) {
        if (!likeliest(logits, size, count, std::exp(above[r] - least) * GUARD, columns, values)) continue;
        for (int64_t k = 0; k < count && values[k] > -INFINITY; ++k) {
            // rounding must not make a path likelier than its beginning
            const double score = above[r] + std::min(static_cast<double>(values[k]), 0.0);
            if (score < least) break;
            found[kept] = r, of[kept] = columns[k], scores[kept++] = score;
        }
    }
    if (kept <= most) return kept;
    double *const best = scores + rows * count;
    std::copy(scores, scores + kept, best);
    std::nth_element(best, best + most - 1, best + kept, std::greater<double>());
    int64_t left = 0;
    for (int64_t i = 0; i < kept; ++i)
        if (scores[i] >= best[most - 1]) found[left] = found[i], of[left] = of[i], scores[left++] = scores[i];
    return left;
}

// rest [size]: max(weight * p - q, 0), divided by its sum if that is not 0. Returns the sum; -1 where a token is no place of p.
// tokens [width]: of q's weights, their places in p; null where q [size] has one for each.
extern "C" double headstart_left(const float *p, int64_t size, float weight, const float *q, const int64_t *tokens, int64_t width, float *rest) {
    double sums[LANES] = {}, sum = 0;
    int outside = 0;  // looked for apart, since a loop that may end at each token takes three times as long
    for (int64_t k = 0; tokens && k < width; ++k) outside |= static_cast<uint64_t>(tokens[k]) >= static_cast<uint64_t>(size);
    if (outside) return -1;
    for (int64_t from = 0; from < size; from += BLOCK) {
        const int64_t end = std::min(from + BLOCK, size);
        for (int64_t i = from; i < end; ++i) rest[i] = weight * p[i];
        if (tokens) continue;
        for (int64_t i = from; i < end; ++i) rest[i] = rest[i] > q[i] ? rest[i] - q[i] : 0.0f;
        add(rest + from, end - from, sums);
    }
    if (tokens) {
        for (int64_t k = 0; k < width; ++k) {
            const float x = rest[tokens[k]] - q[k];
            rest[tokens[k]] = x > 0 ? x : 0.0f;
        }
        add(rest, size, sums);
    }
    for (const double each : sums) sum += each;
    if (sum > 0) divide(rest, size, sum);
    return sum;
}

// rows [count, size]: of siblings, what each was drawn from. Row i is q[i]; where that is null, it is the row before without the
// column of the sibling before, divided by its sum.
extern "C" void headstart_siblings(const float *const *q, const int64_t *columns, int64_t count, int64_t size, float *rows) {
    for (int64_t k = 0; k < count; ++k, rows += size) {
        std::memcpy(rows, q[k] ? q[k] : rows - size, size * sizeof *rows);
        if (q[k]) continue;
        rows[columns[k - 1]] = 0;
        double sums[LANES] = {}, sum = 0;
        add(rows, size, sums);
        for (const double each : sums) sum += each;
        divide(rows, size, sum);
    }
}

// The least number of x [rows, size], and the sum of each row; NaN where there is one.
extern "C" float headstart_sums(const float *x, int64_t rows, int64_t size, double *found) {
    float lanes[WIDE];
    std::fill(lanes, lanes + WIDE, INFINITY);
    int bad = 0;
    for (int64_t r = 0; r < rows; ++r, x += size) {
        double sums[LANES] = {}, sum = 0;
        for (int64_t from = 0; from < size; from += BLOCK) {
            const float *block = x + from;
            const int64_t length = std::min(BLOCK, size - from);
            add(block, length, sums);
            int64_t i = 0;
            for (; i + WIDE <= length; i += WIDE)
                for (int j = 0; j < WIDE; ++j) lanes[j] = block[i + j] < lanes[j] ? block[i + j] : lanes[j];
            for (int j = 0; i + j < length; ++j) lanes[j] = block[i + j] < lanes[j] ? block[i + j] : lanes[j];
        }
        for (const double each : sums) sum += each;
        bad |= sum != sum;
        found[r] = sum;
    }
    return bad ? NAN : *std::min_element(lanes, lanes + WIDE);
}
