// Norms of rows.
#pragma once

#include "numbers.h"

// out = gain * (x - mean) / spread + bias. A part that is null is left out.
struct Norm {
    const float *gain, *bias;
    float eps;
    int32_t kind;                    // NormKind
};

enum NormKind : int32_t { NO_NORM, RMS, LAYER };     // RMS takes no mean off

// out = norm(x); out may be x.
inline void norm_row(const float *x, const Norm &norm, int64_t width, float *out) {
    Vec mean = {};
    if (norm.kind == LAYER) {
        Vec total = {};
        for (int64_t i = 0; i < width; i += LANES) total += load(x + i);
        mean = splat(sum(total) / float(width));
    }
    Vec squares = {};
    for (int64_t i = 0; i < width; i += LANES) {
        const Vec v = load(x + i) - mean;
        squares += v * v;
    }
    const float factor = 1.0f / std::sqrt(sum(squares) / float(width) + norm.eps);
    for (int64_t i = 0; i < width; i += LANES) {
        Vec v = (load(x + i) - mean) * factor;
        if (norm.gain) v = v * load(norm.gain + i);
        if (norm.bias) v = v + load(norm.bias + i);
        store(out + i, v);
    }
}
