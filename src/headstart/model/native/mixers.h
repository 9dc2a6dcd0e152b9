// Recurrent layers: what recipes/mixers.py says, along the walks of walks.py, in float32.
//
// A row's result is a function of its path. Each visit is one application of a layer's function to one row's numbers and
// one state, always by the same instructions, so that a state has the same bits however the text was read. Threads share
// the channels of the convolution, and tiles of a state's columns; no sum is ever split.
//
// A state is kept as [head][tile of columns][key][width of a tile]: what a thread works on lies together.
#pragma once

#include <algorithm>
#include <cmath>

#include "norms.h"
#include "team.h"

enum MixerKind : int64_t { ATTENTION, SHORT_CONV, DELTA_RULE, MAMBA2, CHANNEL_RULE };

// What a layer is that does not attend, or does beside it. Its product `qkv` makes what it reads, side by side:
//   SHORT_CONV  [b | c | x], whose convolution takes b * x
//   DELTA_RULE  [q k v | z | b | a], whose convolution takes q, k and v
//   MAMBA2      [z | x B C | dt], whose convolution takes x, B and C
//   CHANNEL_RULE  [q k v | .. ], as DELTA_RULE; and rows [z | a | b] lie elsewhere, with an `a` for each channel of keys
struct Mixer {
    const float *taps;               // [taps, channels]
    const float *conv_bias;          // [channels], or null
    const float *decay;              // [heads]: -exp(A)
    const float *step_bias;          // [heads], or [heads, key_dim] (CHANNEL_RULE): what is added before softplus
    const float *skip;               // [heads], of MAMBA2: D
    Norm norm;                       // of each head (both rules), of each group by its own gain (MAMBA2), or none
    int64_t channels, gates;         // of the convolution; further numbers of a row
    int64_t heads, groups;           // groups: heads of keys, which several heads share
    int64_t key_dim, value_dim;      // of a head's state, whose columns are its values
    int64_t kind;                    // MixerKind
    float written;                   // both rules: a factor of beta
    float gate_factor, step_factor;  // of MAMBA2's z and dt
    int32_t norm_first;              // MAMBA2: the norm comes before the gate
};

inline bool is_rule(const Mixer &m) { return m.kind == DELTA_RULE || m.kind == CHANNEL_RULE; }

// Rows that what is made of a text reads beside the convolution's: [z | gates] of each, or what a layer has in their place.
struct Beside {
    const float *rows;
    int64_t outputs;                 // from one to the next
};

// How the rows of each segment pass through the states of its slot, and where those lie: see walks.py. Of the parts that
// end in `begin`, segment s has the entries from begin[s] to begin[s + 1] of what follows them.
struct Walks {
    float *const *planes, *const *kept, *const *log;  // of each layer
    int64_t slots, log_rows, taps;
    const int64_t *sources;                           // [segments]: planes to begin with, or -1
    const int64_t *logged_begin, *logged;             // rows of the log
    const int64_t *visit_begin, *inputs, *depths;     // inputs: [visits, taps], the visit's own last
    const int64_t *store_begin, *store_visits, *store_planes, *store_inputs;  // store_inputs: [stores, taps - 1]
    const int64_t *write_begin, *write_rows, *write_places;
    int64_t segments, deepest;                        // of the batch; the depth of its deepest node
};

constexpr int64_t MOST_TAPS = 16;
constexpr int64_t RUN = 32;        // visits that a state takes in one call
constexpr int64_t CHANNELS = 256;  // of a convolution that are one task, where heads do not say otherwise

// What a layer's function needs of each visit, made of the convolution. channels: of each segment [visits, channels], but
// first those of one head (or of its key) of all visits, since a head's state asks for them in turn. gates: [visits,
// `gate_room`].
struct Mixed {
    float *channels, *gates;
    const float *zeros;              // as many as there are channels: what stands before every text
};

// Where the inputs of one segment lie that its walk numbers: its rows, the logged ones, those that the source has kept.
class MixerInputs {
  public:
    // y: the mixer's part of the first row that the layer's input product makes, whose rows are `outputs` apart; first: the
    // segment's first row.
    MixerInputs(const Mixer &m, const Walks &walks, int64_t layer, int64_t segment, int64_t slot, int64_t first, int64_t fed,
                const float *y, int64_t outputs, Beside beside, const float *zeros)
        : fed_(fed), outputs_(outputs), gate_outputs_(beside.outputs), channels_(m.channels), stride_(m.channels + m.gates) {
        const int64_t begin = walks.logged_begin[segment], source = walks.sources[segment];
        logged_ = walks.logged + begin;
        log_count_ = walks.logged_begin[segment + 1] - begin;
        log_ = walks.log[layer] + slot * walks.log_rows * stride_;
        kept_ = source < 0 ? nullptr : walks.kept[layer] + (source * walks.slots + slot) * (walks.taps - 1) * channels_;
        zeros_ = zeros;
        const float *rows = y + first * outputs;
        const int64_t width = m.heads * m.value_dim;
        rows_ = rows + (m.kind == MAMBA2 ? width : 0);
        gates_ = beside.rows + first * beside.outputs + width;
        factors_ = m.kind == SHORT_CONV ? rows + 2 * m.channels : nullptr;
    }

    // What the convolution takes, but for the factor that a row of SHORT_CONV still has.
    const float *channels(int64_t number) const {
        if (number < fed_) return rows_ + number * outputs_;
        number -= fed_;
        if (number < log_count_) return log_ + logged_[number] * stride_;
        return kept_ ? kept_ + (number - log_count_) * channels_ : zeros_;
    }

    const float *factor(int64_t number) const {
        return factors_ && number < fed_ ? factors_ + number * outputs_ : nullptr;
    }

    // Of a visit, whose own input is a row or a logged one.
    const float *gates(int64_t number) const {
        return number < fed_ ? gates_ + number * gate_outputs_ : log_ + logged_[number - fed_] * stride_ + channels_;
    }

    int64_t fed() const { return fed_; }

  private:
    const int64_t *logged_;
    const float *rows_, *gates_, *factors_, *log_, *kept_, *zeros_;
    int64_t fed_, log_count_, outputs_, gate_outputs_, channels_, stride_;
};

// Channels that are one task: what is normed together, or a piece of them all.
struct Channels {
    int64_t begin, count;
};

inline int64_t channel_tasks(const Mixer &m) {
    if (m.kind == SHORT_CONV) return (m.channels + CHANNELS - 1) / CHANNELS;
    return m.heads + 2 * m.groups;
}

inline Channels channels_of(const Mixer &m, int64_t task) {
    if (m.kind == SHORT_CONV) return {task * CHANNELS, std::min(CHANNELS, m.channels - task * CHANNELS)};
    const int64_t keys = 2 * m.groups, values = m.heads;
    if (is_rule(m)) {  // queries and keys first
        if (task < keys) return {task * m.key_dim, m.key_dim};
        return {keys * m.key_dim + (task - keys) * m.value_dim, m.value_dim};
    }
    if (task < values) return {task * m.value_dim, m.value_dim};
    return {values * m.value_dim + (task - values) * m.key_dim, m.key_dim};
}

inline int64_t padded_heads(const Mixer &m) { return (m.heads + LANES - 1) / LANES * LANES; }

// Numbers of a visit's gates: see `make_gates`.
inline int64_t gate_room(const Mixer &m) { return 2 * padded_heads(m) + (m.kind == CHANNEL_RULE ? m.heads * m.key_dim : 0); }

// The convolution of one visit in some channels, and silu where a state follows. TAPS: 0 for any number.
template <int TAPS, bool SHORT>
inline void convolve_by(const Mixer &m, int64_t taps, const MixerInputs &inputs, const int64_t *numbers, Channels of,
                        float *to) {
    const float *from[MOST_TAPS], *factors[MOST_TAPS], *weights[MOST_TAPS];
    const int count = TAPS ? TAPS : int(taps);
    for (int t = 0; t < count; t++) {
        from[t] = inputs.channels(numbers[t]) + of.begin;
        weights[t] = m.taps + t * m.channels + of.begin;
        if (!SHORT) continue;
        factors[t] = inputs.factor(numbers[t]);
        if (factors[t]) factors[t] += of.begin;
    }
    for (int64_t i = 0; i < of.count; i += LANES) {
        Vec total = m.conv_bias ? load(m.conv_bias + of.begin + i) : Vec{};
        HEADSTART_UNROLL
        for (int t = 0; t < count; t++) {
            Vec v = load(from[t] + i);
            if (SHORT && factors[t]) v = v * load(factors[t] + i);
            total = fused(v, load(weights[t] + i), total);
        }
        store(to + i, SHORT ? total : silu(total));
    }
}

inline void convolve(const Mixer &m, int64_t taps, const MixerInputs &inputs, const int64_t *numbers, Channels of, float *to) {
    if (m.kind == SHORT_CONV) return convolve_by<0, true>(m, taps, inputs, numbers, of, to);
    if (taps == 4) return convolve_by<4, false>(m, taps, inputs, numbers, of, to);
    convolve_by<0, false>(m, taps, inputs, numbers, of, to);
}

// A row of length `factor`, but for one of nothing but zeros.
inline void make_unit(float *row, int64_t count, float factor) {
    Vec squares = {};
    for (int64_t i = 0; i < count; i += LANES) squares += load(row + i) * load(row + i);
    const float by = factor / std::sqrt(sum(squares) + 1e-6f);
    for (int64_t i = 0; i < count; i += LANES) store(row + i, load(row + i) * by);
}

inline Vec load_some(const float *from, int64_t count) {
    float some[LANES] = {};
    std::memcpy(some, from, std::min(count, int64_t(LANES)) * sizeof(float));
    return load(some);
}

// What of the state stays at a visit, and how much of its input is written: [heads] each, `padded_heads` apart. Of
// CHANNEL_RULE what stays of each channel comes behind them.
inline void make_gates(const Mixer &m, const float *from, float *to) {
    const int64_t padded = padded_heads(m);
    if (m.kind == CHANNEL_RULE) {
        const int64_t channels = m.heads * m.key_dim;
        for (int64_t h = 0; h < m.heads; h += LANES) {
            store(to + h, Vec{});
            store(to + padded + h, sigmoid(load_some(from + channels + h, m.heads - h)) * m.written);
        }
        for (int64_t i = 0; i < channels; i += LANES) {
            const Vec step = softplus(load(from + i) + load(m.step_bias + i));
            store(to + 2 * padded + i, exponential(step * m.decay[i / m.key_dim]));
        }
        return;
    }
    for (int64_t h = 0; h < m.heads; h += LANES) {
        const int64_t rest = m.heads - h;
        const float *steps = m.kind == DELTA_RULE ? from + m.heads : from;
        const Vec step = softplus(load_some(steps + h, rest) * m.step_factor + load_some(m.step_bias + h, rest));
        store(to + h, exponential(step * load_some(m.decay + h, rest)));
        store(to + padded + h, m.kind == DELTA_RULE ? sigmoid(load_some(from + h, rest)) * m.written : step);
    }
}

// One visit, of TILES tiles of columns of one head's state.
struct Step {
    const float *key, *query, *value;  // [key_dim] twice, and a tile of values
    float kept, written, skip;
    const float *decays;               // [key_dim], of CHANNEL_RULE: in place of `kept`
    float *state, *out;                // what it makes: a state, which may lie where the one before it does, and an output,
                                       // or null for a row that was read before
};

// Columns of a state that go through it together, with all their sums in registers: `TOGETHER` times those of one register.
typedef Floats Columns;
constexpr int COLUMNS = sizeof(Columns) / sizeof(float);

inline Columns load_columns(const float *from) {
    Columns v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline void store_columns(float *to, Columns v) { std::memcpy(to, &v, sizeof v); }

// A number in all lanes of a register. The compiler would rather read it from memory again for each product, and reading is
// what a state takes longest for.
inline Columns spread(float value) {
    return in_register(value - Columns{});
}

// The sums over the keys of COUNT times COLUMNS columns, of which SUMS run side by side.
template <int COUNT>
struct Sums {
    static constexpr int SUMS = 4;
    Columns parts[SUMS][COUNT];

    void clear() {
        HEADSTART_UNROLL
        for (int a = 0; a < SUMS; a++)
            HEADSTART_UNROLL
            for (int t = 0; t < COUNT; t++) parts[a][t] = Columns{};
    }

    Columns total(int t) const { return (parts[0][t] + parts[1][t]) + (parts[2][t] + parts[3][t]); }
};

// What a state is asked with before a visit writes into it: its key, which CHANNELS have decayed by then.
template <bool CHANNELS>
inline float held_key(const Step &step, int64_t i) {
    return CHANNELS ? step.key[i] * step.decays[i] : step.key[i];
}

// state = before * kept + written * key, its sums with the query, and where READ those with the key of the next visit.
// Rows of a state are `width` apart.
template <int COUNT, bool READ, bool CHANNELS>
inline void write_state(const float *before, const Step &step, int64_t from, const Columns *written, const Step &next,
                        int64_t keys, int64_t width, Sums<COUNT> &asked, Sums<COUNT> &held) {
    constexpr int SUMS = Sums<COUNT>::SUMS;
    const float *key = step.key, *query = step.query;
    float *state = step.state + from;
    Columns kept = spread(step.kept);
    asked.clear();
    held.clear();
    for (int64_t i = 0; i < keys; i += SUMS)
        HEADSTART_UNROLL
        for (int a = 0; a < SUMS; a++) {
            const Columns by_key = spread(key[i + a]), by_query = spread(query[i + a]);
            Columns by_next;
            if constexpr (READ) by_next = spread(held_key<CHANNELS>(next, i + a));
            if constexpr (CHANNELS) kept = spread(step.decays[i + a]);
            HEADSTART_UNROLL
            for (int t = 0; t < COUNT; t++) {
                const int64_t at = (i + a) * width + t * COLUMNS;
                const Columns made = fused(load_columns(before + at), kept, written[t] * by_key);
                store_columns(state + at, made);
                asked.parts[a][t] = fused(made, by_query, asked.parts[a][t]);
                if constexpr (READ) held.parts[a][t] = fused(made, by_next, held.parts[a][t]);
            }
        }
}

// Some visits of a rule in turn, each of which goes on from the state that the one before it made (`before`, for the
// first), in the columns from `from` on. What a state holds of the next visit's key is asked while the state is being written,
// so that it is read once a visit.
template <int COUNT, bool CHANNELS>
inline void advance_columns(const float *before, const Step *steps, int64_t count, int64_t keys, int64_t width, int64_t from) {
    constexpr int SUMS = Sums<COUNT>::SUMS;
    Sums<COUNT> asked, held;
    held.clear();
    before += from;
    for (int64_t i = 0; i < keys; i += SUMS)
        HEADSTART_UNROLL
        for (int a = 0; a < SUMS; a++) {
            const Columns by_key = spread(held_key<CHANNELS>(*steps, i + a));
            HEADSTART_UNROLL
            for (int t = 0; t < COUNT; t++)
                held.parts[a][t] =
                    fused(load_columns(before + (i + a) * width + t * COLUMNS), by_key, held.parts[a][t]);
        }
    for (const Step *step = steps; step < steps + count; step++) {
        Columns written[COUNT];
        HEADSTART_UNROLL
        for (int t = 0; t < COUNT; t++) {
            const Columns value = load_columns(step->value + from + t * COLUMNS);
            if constexpr (CHANNELS)
                written[t] = (value - held.total(t)) * step->written;
            else
                written[t] = fused(-held.total(t), spread(step->kept), value) * step->written;
        }
        if (step + 1 < steps + count)
            write_state<COUNT, true, CHANNELS>(before, *step, from, written, step[1], keys, width, asked, held);
        else
            write_state<COUNT, false, CHANNELS>(before, *step, from, written, *step, keys, width, asked, held);
        HEADSTART_UNROLL
        for (int t = 0; t < COUNT; t++) store_columns(step->out + from + t * COLUMNS, asked.total(t));
        before = step->state + from;
    }
}

// Visits of MAMBA2 that make their states in the same place, of which only the last has an output where ASKED: each number
// of the state is read and written once for all of them, which is most of what a visit takes.
template <int COUNT, int VISITS, bool ASKED>
inline void replay_columns(const float *before, const Step *steps, int64_t keys, int64_t width, int64_t from) {
    constexpr int SUMS = Sums<COUNT>::SUMS;
    const Step &last = steps[VISITS - 1];
    Columns kept[VISITS], written[VISITS][COUNT];
    HEADSTART_UNROLL
    for (int v = 0; v < VISITS; v++) {
        kept[v] = spread(steps[v].kept);
        HEADSTART_UNROLL
        for (int t = 0; t < COUNT; t++) written[v][t] = load_columns(steps[v].value + from + t * COLUMNS) * steps[v].written;
    }
    Sums<COUNT> asked;
    asked.clear();
    for (int64_t i = 0; i < keys; i += SUMS)
        HEADSTART_UNROLL
        for (int a = 0; a < SUMS; a++) {
            Columns made[COUNT];
            HEADSTART_UNROLL
            for (int t = 0; t < COUNT; t++) made[t] = load_columns(before + from + (i + a) * width + t * COLUMNS);
            HEADSTART_UNROLL
            for (int v = 0; v < VISITS; v++) {
                const Columns by_key = spread(steps[v].key[i + a]);
                HEADSTART_UNROLL
                for (int t = 0; t < COUNT; t++) made[t] = fused(made[t], kept[v], written[v][t] * by_key);
            }
            HEADSTART_UNROLL
            for (int t = 0; t < COUNT; t++) store_columns(last.state + from + (i + a) * width + t * COLUMNS, made[t]);
            if constexpr (!ASKED) continue;
            const Columns by_query = spread(last.query[i + a]);
            HEADSTART_UNROLL
            for (int t = 0; t < COUNT; t++) asked.parts[a][t] = fused(made[t], by_query, asked.parts[a][t]);
        }
    if constexpr (!ASKED) return;
    HEADSTART_UNROLL
    for (int t = 0; t < COUNT; t++) {
        const Columns value = load_columns(last.value + from + t * COLUMNS);
        store_columns(last.out + from + t * COLUMNS, fused(value, spread(last.skip), asked.total(t)));
    }
}

// Some visits of MAMBA2 in turn, those that were read before together with what comes after them.
template <int COUNT>
inline void replay(const float *before, const Step *steps, int64_t count, int64_t keys, int64_t width, int64_t from) {
    for (const Step *step = steps, *end = steps + count; step < end;) {
        const auto goes_on = [&](int n) {
            return step + n < end && !step[n - 1].out && step[n].state == step[n - 1].state;
        };
        const int visits = !goes_on(1) ? 1 : !goes_on(2) ? 2 : !goes_on(3) ? 3 : 4;
        const bool asked = step[visits - 1].out;
        switch (visits) {
#define HEADSTART_REPLAY(n) \
    case n: \
        if (asked) \
            replay_columns<COUNT, n, true>(before, step, keys, width, from); \
        else \
            replay_columns<COUNT, n, false>(before, step, keys, width, from); \
        break
            HEADSTART_REPLAY(1);
            HEADSTART_REPLAY(2);
            HEADSTART_REPLAY(3);
            HEADSTART_REPLAY(4);
#undef HEADSTART_REPLAY
        }
        before = step[visits - 1].state;
        step += visits;
    }
}

// The same in all columns of a tile.
template <int TILES, MixerKind KIND>
void advance(const float *before, const Step *steps, int64_t count, int64_t keys) {
    constexpr int WIDTH = TILES * LANES, COUNT = TILES < TOGETHER ? TILES : TOGETHER;
    for (int64_t from = 0; from < WIDTH; from += COUNT * COLUMNS)
        if constexpr (KIND != MAMBA2)
            advance_columns<COUNT, KIND == CHANNEL_RULE>(before, steps, count, keys, WIDTH, from);
        else
            replay<COUNT>(before, steps, count, keys, WIDTH, from);
}

inline int64_t tile_width(const Mixer &m) { return m.value_dim % (2 * LANES) ? LANES : 2 * LANES; }

// Numbers of the states that a thread holds at once: the text's, and one of each depth of a draft.
inline int64_t states_of(const Mixer &m, const Walks &walks) {
    return is_rule(m) || m.kind == MAMBA2 ? (walks.deepest + 1) * m.key_dim * tile_width(m) : 0;
}

// One tile of one head's state through a segment's walk. mixed: of the segment's visits. states: room for `states_of`.
// out: the outputs of the segment's rows [fed, heads * value_dim].
template <int TILES, MixerKind KIND>
void walk_tile(const Mixer &m, const Walks &walks, int64_t layer, int64_t segment, int64_t slot, int64_t fed, int64_t head,
               int64_t tile, const Mixed &mixed, float *states, float *out) {
    constexpr int64_t WIDTH = TILES * LANES;
    constexpr bool DELTA = KIND != MAMBA2;
    const int64_t numbers = m.key_dim * WIDTH, whole = m.heads * m.value_dim * m.key_dim, width = m.heads * m.value_dim;
    const int64_t own = head * m.value_dim * m.key_dim + tile * numbers, column = head * m.value_dim + tile * WIDTH;
    const int64_t group = head / (m.heads / m.groups), padded = padded_heads(m), groups = m.groups * m.key_dim;
    const int64_t queries = DELTA ? 0 : width + groups, keys = DELTA ? groups : width, values = DELTA ? 2 * groups : 0;
    const auto plane = [&](int64_t number) { return walks.planes[layer] + (number * walks.slots + slot) * whole + own; };
    const float *text = states;
    if (walks.sources[segment] < 0)
        std::memset(states, 0, numbers * sizeof(float));
    else
        text = plane(walks.sources[segment]);
    int64_t stored = walks.store_begin[segment];
    const int64_t stores = walks.store_begin[segment + 1];
    const int64_t begin = walks.visit_begin[segment], visits = walks.visit_begin[segment + 1] - begin;
    const float *channels = mixed.channels + begin * m.channels;
    const float *key = channels + (keys + group * m.key_dim) * visits;
    const float *query = channels + (queries + group * m.key_dim) * visits;
    const float *value = channels + (values + head * m.value_dim) * visits + tile * WIDTH;
    const int64_t *depths = walks.depths + begin;
    const auto goes_on = [&](int64_t v) { return depths[v] == depths[v - 1] + 1 || (depths[v] == 0 && depths[v - 1] == 0); };
    float unread[WIDTH];
    Step steps[RUN];
    for (int64_t v = 0; v <= visits;) {
        for (; stored < stores && walks.store_visits[stored] == v; stored++)
            std::memmove(plane(walks.store_planes[stored]), text, numbers * sizeof(float));
        if (v == visits) break;
        const float *before = depths[v] > 1 ? states + (depths[v] - 1) * numbers : text;
        int64_t count = 0;
        do {  // visits that go on from each other, up to the next one whose state is stored
            const int64_t row = walks.inputs[(begin + v + 1) * walks.taps - 1];
            const float *gates = mixed.gates + (begin + v) * gate_room(m);
            steps[count++] = {key + v * m.key_dim,
                              query + v * m.key_dim,
                              value + v * m.value_dim,
                              gates[head],
                              gates[padded + head],
                              DELTA ? 0 : m.skip[head],
                              KIND == CHANNEL_RULE ? gates + 2 * padded + head * m.key_dim : nullptr,
                              states + depths[v] * numbers,
                              DELTA ? unread : nullptr};
            if (row < fed) steps[count - 1].out = out + row * width + column;
            if (depths[v] == 0) text = states;
            v++;
        } while (count < RUN && v < visits && goes_on(v) && !(stored < stores && walks.store_visits[stored] == v));
        advance<TILES, KIND>(before, steps, count, m.key_dim);
    }
}

// The kept inputs of a segment's stores, then its rows of the log, in some channels: the log may hold what a store keeps.
inline void log_channels(const Mixer &m, const Walks &walks, int64_t layer, int64_t segment, int64_t slot,
                         const MixerInputs &inputs, Channels of, float *log) {
    const int64_t before = walks.taps - 1, begin = walks.store_begin[segment], end = walks.store_begin[segment + 1];
    const auto read = [&](int64_t number, int64_t i) {
        const Vec v = load(inputs.channels(number) + of.begin + i);
        const float *factor = inputs.factor(number);
        return factor ? v * load(factor + of.begin + i) : v;
    };
    for (int64_t i = 0; i < of.count; i += LANES) {
        Vec held[2][MOST_TAPS];  // a walk has two stores at most
        for (int64_t s = begin; s < end; s++)
            for (int64_t t = 0; t < before; t++) held[s - begin][t] = read(walks.store_inputs[s * before + t], i);
        for (int64_t s = begin; s < end; s++) {
            float *to = walks.kept[layer] + (walks.store_planes[s] * walks.slots + slot) * before * m.channels;
            for (int64_t t = 0; t < before; t++) store(to + t * m.channels + of.begin + i, held[s - begin][t]);
        }
        for (int64_t w = walks.write_begin[segment]; w < walks.write_begin[segment + 1]; w++)
            store(log + walks.write_places[w] * (m.channels + m.gates) + of.begin + i, read(walks.write_rows[w], i));
    }
}

// norm(output) by silu of its gate, or its sigmoid (CHANNEL_RULE), of one row: y, what the input product made of it; z: of
// both rules.
inline void gate_output(const Mixer &m, const float *output, const float *y, const float *z, float *to) {
    const int64_t width = m.heads * m.value_dim;
    if (m.kind == SHORT_CONV) {
        for (int64_t i = 0; i < m.channels; i += LANES) store(to + i, load(output + i) * load(y + m.channels + i));
        return;
    }
    if (is_rule(m)) {
        for (int64_t h = 0; h < width; h += m.value_dim) norm_row(output + h, m.norm, m.value_dim, to + h);
        for (int64_t i = 0; i < width; i += LANES)
            store(to + i, load(to + i) * (m.kind == CHANNEL_RULE ? sigmoid(load(z + i)) : silu(load(z + i))));
        return;
    }
    const int64_t each = m.norm.kind ? width / m.groups : width;
    for (int64_t at = 0; at < width; at += each) {
        const float *from = output + at;
        Norm norm = m.norm;
        norm.gain += at;
        if (m.norm_first) {
            norm_row(from, norm, each, to + at);
            from = to + at;
        }
        for (int64_t i = 0; i < each; i += LANES)
            store(to + at + i, load(from + i) * silu(load(y + at + i) * m.gate_factor));
        if (norm.kind && !m.norm_first) norm_row(to + at, norm, each, to + at);
    }
}

// What a recurrent layer makes of the outputs of its input product: out [rows, width]. bounds: where each segment's rows
// begin. slots: of each row. states: the member's own room.
inline void mix(Member &team, const Mixer &m, const Walks &walks, int64_t layer, const int64_t *bounds, const int64_t *slots,
                const float *y, int64_t outputs, Beside beside, const Mixed &mixed, float *states, float *out) {
    const int64_t tasks = channel_tasks(m), width = m.heads * m.value_dim;
    const auto inputs_of = [&](int64_t s) {
        return MixerInputs(m, walks, layer, s, slots[bounds[s]], bounds[s], bounds[s + 1] - bounds[s], y, outputs,
                           beside, mixed.zeros);
    };
    const int64_t gated = m.kind == SHORT_CONV ? 0 : 1;  // one more task of each visit
    team.each(walks.visit_begin[walks.segments] * (tasks + gated), [&](int64_t n) {
        const int64_t visit = n / (tasks + gated), task = n % (tasks + gated);
        int64_t s = 0;
        while (visit >= walks.visit_begin[s + 1]) s++;
        const MixerInputs inputs = inputs_of(s);
        const int64_t begin = walks.visit_begin[s], visits = walks.visit_begin[s + 1] - begin;
        const int64_t *numbers = walks.inputs + visit * walks.taps, own = numbers[walks.taps - 1];
        if (task == tasks) return make_gates(m, inputs.gates(own), mixed.gates + visit * gate_room(m));
        const Channels of = channels_of(m, task);
        if (m.kind == SHORT_CONV) {
            if (own < inputs.fed())
                convolve(m, walks.taps, inputs, numbers, of, out + (bounds[s] + own) * m.channels + of.begin);
            return;
        }
        float *to = mixed.channels + begin * m.channels + of.begin * visits + (visit - begin) * of.count;
        convolve(m, walks.taps, inputs, numbers, of, to);
        if (is_rule(m) && task < 2 * m.groups)
            make_unit(to, of.count, task < m.groups ? 1.0f / std::sqrt(float(m.key_dim)) : 1.0f);
    });
    const bool narrow = tile_width(m) == LANES;
    const auto walk = m.kind == SHORT_CONV     ? nullptr
                      : m.kind == DELTA_RULE   ? (narrow ? walk_tile<1, DELTA_RULE> : walk_tile<2, DELTA_RULE>)
                      : m.kind == CHANNEL_RULE ? (narrow ? walk_tile<1, CHANNEL_RULE> : walk_tile<2, CHANNEL_RULE>)
                                               : (narrow ? walk_tile<1, MAMBA2> : walk_tile<2, MAMBA2>);
    const int64_t tiles = walk ? m.value_dim / tile_width(m) : 0;
    // all that a forward reads of a log it has read, so walks and writing need not wait for each other
    const int64_t walked = m.heads * tiles, each = walked + tasks + gated;
    team.each(walks.segments * each, [&](int64_t n) {
        const int64_t s = n / each, slot = slots[bounds[s]], task = n % each - walked;
        const MixerInputs inputs = inputs_of(s);
        if (task < 0)
            return walk(m, walks, layer, s, slot, inputs.fed(), (task + walked) / tiles, (task + walked) % tiles, mixed,
                        states, out + bounds[s] * width);
        float *log = walks.log[layer] + slot * walks.log_rows * (m.channels + m.gates);
        if (task < tasks) return log_channels(m, walks, layer, s, slot, inputs, channels_of(m, task), log);
        for (int64_t w = walks.write_begin[s]; w < walks.write_begin[s + 1]; w++)
            std::memcpy(log + walks.write_places[w] * (m.channels + m.gates) + m.channels,
                        inputs.gates(walks.write_rows[w]), m.gates * sizeof(float));
    });
}
