// -inf onto the logits of the tokens that a grammar forbids: the part of grammar.py that takes as long as the vocabulary is
// wide. A bit is 1 where the token may come. Words of 32 tokens that may all come are passed over, and -inf is added, not
// filled in: a NaN stays a NaN.

#include <cmath>
#include <cstdint>

extern "C" void headstart_mask(float *x, int64_t size, const uint32_t *allowed) {
    const float table[2] = {-INFINITY, 0.0f};
    const int64_t whole = size / 32;
    for (int64_t w = 0; w < whole; ++w) {
        const uint32_t word = allowed[w];
        if (word == 0xFFFFFFFFu) continue;
        float *at = x + 32 * w;
        if (word == 0) {
            for (int j = 0; j < 32; ++j) at[j] += -INFINITY;
            continue;
        }
        for (int j = 0; j < 32; ++j) at[j] += (word >> j & 1u) ? 0.0f : -INFINITY;
    }
    for (int64_t i = 32 * whole; i < size; ++i) x[i] += table[allowed[i / 32] >> (i % 32) & 1u];
}
