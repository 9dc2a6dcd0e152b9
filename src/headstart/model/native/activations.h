// What an MLP makes of its gate, or of the outputs of its first product alone.
#pragma once

#include "numbers.h"

enum Activation : int32_t { SILU, GELU_TANH, GELU, RELU, RELU2, XIELU, CLAMPED };

// numbers: those of XIELU and CLAMPED, or null.
template <int ACTIVATION>
inline Vec activated(Vec x, const float *numbers) {
    if constexpr (ACTIVATION == SILU) return silu(x);
    if constexpr (ACTIVATION == GELU_TANH) return x / (1.0f + exponential(x * (x * x * 0.044715f + 1.0f) * -1.5957691216f));
    if constexpr (ACTIVATION == GELU) return x * (error_function(x * 0.70710678f) + 1.0f) * 0.5f;
    if constexpr (ACTIVATION == RELU) return larger(x, Vec{});
    if constexpr (ACTIVATION == RELU2) return select(x > 0.0f, x * x, Vec{});
    if constexpr (ACTIVATION == CLAMPED) {  // numbers are the largest gate, and what it is multiplied by in the sigmoid
        const Vec most = select(x > numbers[0], splat(numbers[0]), x);
        return most / (1.0f + exponential(most * -numbers[1]));
    }
    // XIELU: numbers are the factors of the positive and the negative side, of x, and the largest exponent
    const Vec low = select(x < numbers[3], x, splat(numbers[3]));
    const Vec positive = x * x * numbers[0], negative = (exponential(low) - 1.0f - x) * numbers[1];
    return select(x > 0.0f, positive, negative) + x * numbers[2];
}

// What the gate is multiplied by. CLAMPED takes it up to its largest number on both sides, and adds 1.
template <int ACTIVATION>
inline Vec gated_by(Vec up, const float *numbers) {
    if constexpr (ACTIVATION != CLAMPED) return up;
    const Vec low = splat(-numbers[0]), high = splat(numbers[0]);
    up = select(up > numbers[0], high, up);
    return select(up < -numbers[0], low, up) + 1.0f;
}

// How an MLP goes from the outputs of its first product to the inputs of its second.
struct Gate {
    int32_t activation, gated;
    float factor;          // of the gate
    const float *numbers;  // learnt numbers of XIELU; see CLAMPED
};

// activation(factor * gate) * up, where y holds gate and up side by side; without a gate, activation(up).
template <int ACTIVATION>
inline void gate_row_by(const Gate &gate, const float *y, int64_t width, float *to) {
    if (gate.gated)
        for (int64_t i = 0; i < width; i += LANES)
            store(to + i, activated<ACTIVATION>(load(y + i) * gate.factor, gate.numbers) *
                              gated_by<ACTIVATION>(load(y + width + i), gate.numbers));
    else
        for (int64_t i = 0; i < width; i += LANES) store(to + i, activated<ACTIVATION>(load(y + i), gate.numbers));
}

inline void gate_row(const Gate &gate, const float *y, int64_t width, float *to) {
    switch (gate.activation) {
        case GELU_TANH: return gate_row_by<GELU_TANH>(gate, y, width, to);
        case GELU: return gate_row_by<GELU>(gate, y, width, to);
        case RELU: return gate_row_by<RELU>(gate, y, width, to);
        case RELU2: return gate_row_by<RELU2>(gate, y, width, to);
        case XIELU: return gate_row_by<XIELU>(gate, y, width, to);
        case CLAMPED: return gate_row_by<CLAMPED>(gate, y, width, to);
        default: return gate_row_by<SILU>(gate, y, width, to);
    }
}
