// The forward of a decoder on a CPU, over the packed rows of a ragged batch of trees. What each layer is, its `Layer` says
// (recipe.py says where that comes from); a Llama's is the plainest.
//
// Every row (one token) is computed by itself and in one fixed order of operations: its result has the same bits
// whether it runs alone, beside the rows of a draft, or in a batch. Work is shared out over threads in whole rows, in
// panels of outputs, in blocks of queries or in columns of a state, never inside a sum. The residual stream is float32.
//
// A layer attends, or it is recurrent: see mixers.h. What either makes of the rows goes through `out` into the stream. Then
// comes its MLP, or a mixture of experts (experts.h). A layer may lack one of the two; then the products of that part have no
// weights. A layer may also do both on the same input, which `qkv` makes for both side by side; what its recurrence makes
// then goes through `beside_out`.
//
// A drafting head (EAGLE) is such a decoder too, of one layer, but for its ends: its rows begin with hidden states,
// and the row that leaves its layer is wanted as well, to begin the next step's with. See `DraftHead`.

#include <algorithm>
#include <cstddef>
#include <exception>
#include <string>

#include "activations.h"
#include "attention.h"
#include "blocks.h"
#include "experts.h"
#include "latent.h"
#include "attention_tiles.h"
#include "mixers.h"
#include "norms.h"
#include "products.h"
#include "reading.h"
#include "rounding.h"
#include "rows.h"

// The structures that Python fills (structs.py). `headstart_layout` says how they lie in memory.

struct Layer {
    Latent latent;                               // how it attends to latents, if it does; q_norm and k_norm are then its
    Mixer mixer;                                 // what it is instead of attention, or beside it, if it is
    Norm attention_in, attention_out;            // before and after attention: its input, and what it adds
    Norm mlp_in, mlp_out;
    Norm q_norm, k_norm, v_norm;                 // of each head, or of all heads together: see `norm_over_all`
    Product qkv, out, beside_out, gate_up, down; // gate_up: `up` alone where there is no gate
    Product mixer_decays, mixer_gate;            // of CHANNEL_RULE: from what `qkv` makes of each to what the mixer reads
    Product input_gate, input_out;               // of an input of this layer's own for each token (Gemma 4), or empty
    Norm input_norm;
    const Experts *experts;                      // instead of `gate_up` and `down`, or null
    const float *cosine, *sine;                  // [positions, rotary / 2], or null: no rotation
    const float *query_factors;                  // [positions], or null: what a query there is multiplied by
    const float *sinks;                          // [heads], or null: a score for each head that has no value
    const float *activation_numbers;             // learnt numbers of XIELU
    int64_t heads, kv_heads, dim, rotary;        // rotary: numbers of a head that turn, the first ones
    int64_t keys_of;                             // the layer whose keys and values it attends to; itself mostly
    int64_t window;                              // which of the batch's `visible` its attention uses
    int64_t mixer_from;                          // where in a row of `qkv` the recurrence's part begins
    float scaling, softcap;                      // softcap: 0 for none
    float mixer_factor, beside_factor;           // of what goes through `out` and `beside_out`
    float mlp_factor, gate_factor, layer_factor; // of what the MLP adds; of its gate; of the stream after the layer
    int32_t activation, gated;
    int32_t norm_over_all, gain_by_head;         // q_norm and k_norm of all heads together; of each by its own gain
    int32_t norm_after_rotation, value_is_key;
    int32_t parallel;                            // attention and MLP read the same stream
    int32_t attention_gated;                     // after queries, keys and values, `qkv` makes a gate of what is attended

    bool feeds() const { return down.weights || experts; }  // or it is a mixer alone
};

// Where the layers' own inputs of each token come from (Gemma 4): (norm(projection_factor * projection of the embedded
// token) + factor * table[token]) * sum_factor, a norm of `width` numbers for each layer.
struct TokenInputs {
    const void *table;               // [tokens, projection.outputs], or null: `codes` holds it
    Product codes;                   // the table as codes: an output for each token
    Product projection;
    Norm norm;
    int64_t width;                   // of one layer's input
    float factor, projection_factor, sum_factor;
};

struct Model {
    const Layer *layers;
    int64_t layer_count, width;
    const void *embedding;           // [tokens, width], or null: `table` holds it
    const float *places;             // [positions, width] that are added to embeddings, or null
    Norm embedding_norm, final_norm;
    Product head;
    Product table;                   // the embedding as codes: an output of inputs `width` for each token
    TokenInputs inputs;              // or empty, where no layer has inputs of its own
    float embedding_factor, logit_factor, logit_softcap;
    int32_t bf16;                    // the embedding's numbers, and the cache's unless those are rounded, or else float32
};

// What the rows of a drafting head (EAGLE, MTP) begin with. Its residual stream is `fuse` of [embedding | state], both normed
// (MTP) or not (EAGLE-1), or of the features of several layers, or the state itself (EAGLE-3, whose first product then takes
// [normed embedding | normed stream]).
struct DraftHead {
    Product fuse;
    Norm state_norm, embedding_norm; // none for EAGLE-1; EAGLE-3 has the first alone, as the stream's norm
    int32_t state_first;             // `fuse` takes [state | embedding]
    int32_t residual_normed;         // whether the stream goes on normed
    int32_t output_normed;           // whether its states are those after the final norm
};

struct Batch {
    int64_t count;                   // rows
    const int64_t *ids, *positions, *slots, *places;
    const int64_t *segments;
    int64_t segment_count;
    const Visible *visible;          // of each window that some layer has
    void *const *keys, *const *values;  // of each layer
    int64_t capacity;
    const int64_t *judged;
    int64_t judged_count;
    float *logits;                   // [judged_count, vocabulary]
    float *const *taps;              // [layer_count + 1]: where to leave a layer's input, or null; or null
    int64_t threads;
    const DraftHead *draft_head;     // or null: an ordinary decoder, whose rows are embedded tokens
    const float *states, *features;  // [count, width], [count, fuse.inputs]: one of them, of a drafting head
    float *output_states;            // [judged_count, width]: the head's own states of the judged rows
    const Walks *walks;              // or null, where no layer is recurrent
    int64_t *experts_touched;        // how many experts were chosen, of all layers together; null where there are none
    int32_t coded;                   // keys and values are rounded to 8 bits: see `Code`
};

namespace {

// The rows that go on after a layer's mixer: all, or (after the last mixer, unless a later stream is tapped) the judged ones,
// which then stand first in x.
struct Selected {
    int64_t count;
    const int64_t *rows;             // or null for all
    int64_t row(int64_t n) const { return rows ? rows[n] : n; }
};

// What one thread needs of its own.
struct Scratch {
    Member &team;    // that it is
    float *row;      // rows on their way into a product
    float *scores;   // of a block of queries, by token: [BLOCK, capacity + 16]
    float *weights;  // of one query, in the order of its text: [capacity + 16]
    float *queries;  // of a block, side by side: [dim, BLOCK]
    float *sums;     // of a product: see `sums_of`
    float *states;   // of one tile of a recurrent layer: see `states_of`
    float *tiles;    // of queries by tiles: see `TilesRoom`
};

// Row buffers of a forward, kept from call to call: fresh pages would cost more than the work. They are sized before the
// parallel region: an allocation that fails inside one ends the process.
struct Buffers {
    std::vector<uint8_t> rows;
    std::vector<float> x, scale, y, query, attended;  // x: the residual stream
    std::vector<float> inputs;                        // of layers with inputs of their own: see `TokenInputs`
    std::vector<float> channels, gates, zeros;        // of recurrent layers: see `Mixed`
    std::vector<float> beside;                        // what recurrences beside attention add
    std::vector<float> gated;                         // [z | a | b] of rows: see CHANNEL_RULE
    Mixture mixture;
    std::vector<float> scratch;
    int64_t row = 0, tokens = 0, queries = 0, sums = 0, states = 0, tiles = 0;  // numbers of a thread's scratch

    template <class T>
    static void grow(std::vector<T> &v, int64_t n) {
        if (int64_t(v.size()) < n) v.resize(n);
    }

    // Rows of so many bytes, from the beginning of a line of the cache on: see `LINE`.
    void grow_rows(int64_t bytes) { grow(rows, bytes + LINE); }
    uint8_t *lines() { return rows.data() + (LINE - uintptr_t(rows.data()) % LINE) % LINE; }

    // For products of `count` rows, by `threads`; each converts rows of up to `row` numbers and attends to `capacity` with
    // queries of `dim`, or has `state_numbers` of states, or `tile_numbers` of attention by tiles.
    void grow_scratch(int64_t count, int64_t threads, int64_t row_numbers, int64_t capacity, int64_t dim,
                      int64_t state_numbers = 0, int64_t tile_numbers = 0) {
        row = round_up(row_numbers, LANES);
        tokens = capacity ? capacity + LANES : 0;
        queries = BLOCK * dim;
        sums = sums_of(count);
        states = state_numbers ? state_numbers + LANES : 0;
        tiles = tile_numbers;
        grow(scratch, std::max(threads, int64_t(1)) * numbers());
    }

    int64_t numbers() const { return row + (BLOCK + 1) * tokens + queries + sums + states + tiles; }

    Scratch of_member(Member &team) {
        float *own = scratch.data() + team.number() * numbers();
        float *scores = own + row, *weights = scores + BLOCK * tokens;
        float *sum = weights + tokens + queries, *state = sum + sums;
        state += (64 - uintptr_t(state) % 64) % 64 / sizeof(float);  // a vector that lies in two cache lines is read twice
        return Scratch{team, own, scores, weights, weights + tokens, sum, state, own + numbers() - tiles};
    }
};

// What a part of a layer adds to the stream, and how: x = (x + factor * norm(y) + beside_factor * beside) * after.
struct Added {
    float *y;        // or null: nothing
    Norm norm;
    float factor, after;
    const float *beside;  // or null
    float beside_factor;
};

inline void add_row(float *x, const Added &added, int64_t r, int64_t width) {
    float *y = added.y + r * width;
    if (added.norm.kind) norm_row(y, added.norm, width, y);
    for (int64_t i = 0; i < width; i += LANES) {
        Vec v = load(x + i);
        if (added.beside)
            v = v + (load(y + i) * added.factor + load(added.beside + r * width + i) * added.beside_factor);
        else
            v = v + load(y + i) * added.factor;
        if (added.after != 1.0f) v = v * added.after;
        store(x + i, v);
    }
}

// x takes in what was added (if anything), then take(row, normed row, r), where a row without a norm is normed as it is.
// early: the norm reads the stream of before.
template <class Take>
void add_and_norm(float *x, const Added &added, const Norm &norm, bool early, int64_t count, int64_t width,
                  const Scratch &scratch, const Take &take) {
    float *normed = scratch.row;
    scratch.team.each(count, [&](int64_t r) {
        float *row = x + r * width;
        if (early) norm_row(row, norm, width, normed);
        if (added.y) add_row(row, added, r, width);
        if (norm.kind && !early) norm_row(row, norm, width, normed);
        take(row, norm.kind ? normed : row, r);
    });
}

// The same; the normed row goes into the next product.
void norm(float *x, const Added &added, const Norm &norm, bool early, int64_t count, const Product &next,
          const Scratch &scratch, uint8_t *rows, float *scale) {
    add_and_norm(x, added, norm, early, count, next.inputs, scratch, [&](const float *, const float *normed, int64_t r) {
        convert_row(next, normed, r, count, rows, scale);
    });
}

// The MLP of a layer, or its experts: x takes in what was added, and what the layer adds is returned.
float *feed(const Layer &layer, int64_t l, float *x, const Added &added, bool early, int64_t count, int64_t width,
            const Batch &batch, float *y, const Scratch &scratch, uint8_t *rows, float *scale, Mixture &mixture) {
    scratch.team.begin(Part::NORMS);
    if (const Experts *e = layer.experts) {
        add_and_norm(x, added, layer.mlp_in, early, count, width, scratch,
                     [&](const float *row, const float *normed, int64_t r) {
                         float *own = mixture.normed.data() + r * width;
                         std::memcpy(e->input_norm.kind ? mixture.shared.data() + r * width : own, normed, width * sizeof(float));
                         if (e->input_norm.kind) norm_row(row, e->input_norm, width, own);
                         if (e->router_norm.kind) norm_row(row, e->router_norm, width, scratch.row);
                         convert_row(e->router, e->router_norm.kind ? scratch.row : own, r, count, rows, scale);
                     });
        scratch.team.begin(Part::EXPERTS);
        mix_experts(scratch.team, *e, l, count, width, mixture, scratch.row, scratch.sums, rows, scale,
                    batch.experts_touched);
        return mixture.added.data();
    }
    norm(x, added, layer.mlp_in, early, count, layer.gate_up, scratch, rows, scale);
    scratch.team.begin(Part::GATE_UP);
    multiply(scratch.team, layer.gate_up, rows, scale, count, scratch.sums, y);
    scratch.team.begin(Part::ACTIVATION);
    const Gate gate{layer.activation, layer.gated, layer.gate_factor, layer.activation_numbers};
    scratch.team.each(count, [&](int64_t r) {
        gate_row(gate, y + r * (layer.gated ? 2 : 1) * layer.down.inputs, layer.down.inputs, scratch.row);
        convert_row(layer.down, scratch.row, r, count, rows, scale);
    });
    scratch.team.begin(Part::DOWN);
    multiply(scratch.team, layer.down, rows, scale, count, scratch.sums, y);
    return y;
}

// gelu(y) * the layer's own input of the row's token (Gemma 4). inputs: see `token_inputs`.
void gate_input(const Model &model, const float *inputs, const Layer &layer, int64_t index, const Selected &selected,
                const float *y, const Scratch &scratch, uint8_t *rows, float *scale) {
    float *row = scratch.row;
    const int64_t width = model.inputs.width, all = model.inputs.projection.outputs;
    scratch.team.each(selected.count, [&](int64_t n) {
        const float *own = inputs + selected.row(n) * all + index * width, *g = y + n * width;
        for (int64_t i = 0; i < width; i += LANES)
            store(row + i, activated<GELU_TANH>(load(g + i), nullptr) * load(own + i));
        convert_row(layer.input_out, row, n, selected.count, rows, scale);
    });
}

// Head `h`, normed and turned as its layer says. to: [dim]; from: may be `to`.
inline void turn_head(const float *from, Norm norm, const Layer &layer, int64_t h, int64_t position, float *scratch,
                      float *to) {
    const bool own = norm.kind && !layer.norm_over_all;
    if (layer.gain_by_head && norm.gain) norm.gain += h * layer.dim;
    const int64_t half = layer.cosine ? layer.rotary / 2 : 0;
    if (own && !layer.norm_after_rotation) {
        norm_row(from, norm, layer.dim, scratch);
        from = scratch;
    }
    const float *c = layer.cosine + position * half, *d = layer.sine + position * half;
    for (int64_t i = 0; i < half; i++) {
        const float a = from[i], b = from[i + half];
        to[i] = a * c[i] - b * d[i];
        to[i + half] = b * c[i] + a * d[i];
    }
    for (int64_t i = 2 * half; i < layer.dim; i++) to[i] = from[i];
    if (own && layer.norm_after_rotation) norm_row(to, norm, layer.dim, to);
}

// Whether attention of a model, of bf16 or not, is by the processor's tiles where keys are so wide. They then lie as values do,
// instead of in tiles of sixteen tokens.
inline bool by_tiles(int64_t dim, bool bf16) {
#if defined(HEADSTART_TILES)
    return bf16 && dim % STEP == 0 && tiles_permitted();
#endif
    return bf16 && dim < 0;
}

// Rows of which one member takes a head: the keys of consecutive tokens lie in the same lines of the cache.
constexpr int64_t ROWS_OF_HEAD = LANES;

// Unpack [q | k | v] of each row, norm and rotate q and k, write k and v to their place in the cache. A layer that attends
// to another's keys has q alone. Work is shared out head by head in the order of the product's outputs, so that members mostly
// find what they have computed themselves. Of the scratch it takes three heads (normed, rotated, and as it is stored).
template <class KV>
void rotate(float *y, const Layer &layer, bool stores, const Batch &batch, const Shape &s, bool in_rows, KV *keys, KV *values,
            const Scratch &scratch, float *query) {
    float *head = scratch.row;
    const auto from = [&](int64_t r, int64_t h) { return y + r * layer.qkv.results + h * s.dim; };
    if (layer.norm_over_all)
        scratch.team.each(batch.count, [&](int64_t r) {
            if (layer.q_norm.kind) norm_row(from(r, 0), layer.q_norm, s.heads * s.dim, from(r, 0));
            if (layer.k_norm.kind && stores)
                norm_row(from(r, s.heads), layer.k_norm, s.kv_heads * s.dim, from(r, s.heads));
        });
    const auto turn_query = [&](int64_t r, int64_t h) {
        const int64_t position = batch.positions[r];
        float *turned = query + (r * s.heads + h) * s.dim;
        turn_head(from(r, h), layer.q_norm, layer, h, position, head, turned);
        if (!layer.query_factors) return;
        const float factor = layer.query_factors[position];
        for (int64_t i = 0; i < s.dim; i += LANES) store(turned + i, load(turned + i) * factor);
    };
    const auto store_value = [&](int64_t r, int64_t h) {
        const float *value = from(r, s.heads + h + (layer.value_is_key ? 0 : s.kv_heads));
        KV *to = value_row(values, s, batch.slots[r], h, batch.places[r]);
        if (!layer.v_norm.kind) return store_row(value, s.dim, to);
        norm_row(value, layer.v_norm, s.dim, head);
        store_row(head, s.dim, to);
    };
    const auto store_key = [&](int64_t r, int64_t h) {
        const int64_t slot = batch.slots[r], place = batch.places[r];
        float *turned = head + s.dim;
        turn_head(from(r, s.heads + h), layer.k_norm, layer, h, batch.positions[r], head, turned);
        if (in_rows) return store_row(turned, s.dim, value_row(keys, s, slot, h, place));
        KV *stored = (KV *)(turned + s.dim);
        store_row(turned, s.dim, stored);
        place_key(stored, s.dim, key_tile(keys, s, slot, h, place), place % LANES);
    };
    const auto take_head = [&](int64_t h, int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; r++) {
            if (h < s.heads)
                turn_query(r, h);
            else if (h < s.heads + s.kv_heads)
                store_key(r, h - s.heads);
            else
                store_value(r, h - s.heads - s.kv_heads);
        }
    };
    const int64_t blocks = (batch.count + ROWS_OF_HEAD - 1) / ROWS_OF_HEAD;
    const int64_t tasks = (s.heads + (stores ? 2 * s.kv_heads : 0)) * blocks;
    const int64_t together = std::max(tasks / (2 * scratch.team.threads()), int64_t(1));
    scratch.team.each((tasks + together - 1) / together, [&](int64_t piece) {
        for (int64_t task = piece * together; task < std::min((piece + 1) * together, tasks); task++) {
            const int64_t begin = task % blocks * ROWS_OF_HEAD;
            take_head(task / blocks, begin, std::min(begin + ROWS_OF_HEAD, batch.count));
        }
    });
}

// The same of latent attention: from y = [queries or what they are made of | latent | key] of each row to its queries as wide as
// a row of the cache, and its own row there. made: room for queries as they are made.
template <class KV>
void rotate_latent(const float *y, const Layer &layer, const Batch &batch, const Shape &s, KV *stored, const Scratch &scratch,
                   uint8_t *rows, float *scale, float *made, float *query) {
    const Latent &of = layer.latent;
    const int64_t turning = s.dim - of.rank, width = of.nope + turning, given = layer.qkv.results - s.dim, half = turning / 2;
    const auto angle = [&](const float *table, int64_t position) { return table ? table + position * half : nullptr; };
    scratch.team.each(batch.count, [&](int64_t r) {
        const float *row = y + r * layer.qkv.results;
        const int64_t position = batch.positions[r];
        KV *to = stored + (batch.slots[r] * s.capacity + batch.places[r]) * s.dim;
        store_latent(row + given, of, layer.k_norm, turning, angle(layer.cosine, position), angle(layer.sine, position),
                     scratch.row, to);
        if (!of.query.weights) return;
        if (layer.q_norm.kind) norm_row(row, layer.q_norm, given, scratch.row);
        convert_row(of.query, layer.q_norm.kind ? scratch.row : row, r, batch.count, rows, scale);
    });
    const float *queries = y;
    int64_t stride = layer.qkv.results;
    if (of.query.weights) {
        multiply(scratch.team, of.query, rows, scale, batch.count, scratch.sums, made);
        queries = made;
        stride = of.query.results;
    }
    multiply_heads(scratch.team, of.keys, s.heads, batch.count, [&](int64_t r, int64_t head) {
        return queries + r * stride + head * width;
    }, rows, scale, scratch.sums, query, s.dim);
    scratch.team.each(batch.count, [&](int64_t r) {
        const int64_t position = batch.positions[r];
        float *own = query + r * s.heads * s.dim;
        for (int64_t h = 0; h < s.heads; h++)
            turn(queries + r * stride + h * width + of.nope, turning, angle(layer.cosine, position),
                 angle(layer.sine, position), own + h * s.dim + of.rank);
        if (!layer.query_factors) return;
        for (int64_t i = 0; i < s.heads * s.dim; i += LANES)
            store(own + i, load(own + i) * layer.query_factors[position]);
    });
}

template <class KV>
void attend(float *query, const float *y, const KV *keys, const KV *values, const Batch &batch, const Layer &layer,
            const Shape &s, bool in_rows, const Scratch &scratch, float *attended, const Selected &selected, uint8_t *rows,
            float *scale) {
    const Visible &visible = batch.visible[layer.window];
    const int64_t group = s.heads / s.kv_heads;
    const auto blocks_of = [&](int64_t segment) {
        return ((batch.segments[segment + 1] - batch.segments[segment]) * group + BLOCK - 1) / BLOCK;
    };
    const How how{layer.scaling, layer.softcap, layer.sinks};
    int64_t tasks = 0;
    for (int64_t segment = 0; segment < batch.segment_count; segment++) tasks += blocks_of(segment) * s.kv_heads;
#if defined(HEADSTART_TILES)
    if constexpr (!std::is_same_v<KV, float>)
        if (in_rows) {
            const int64_t rank = layer.latent.rank;
            attend_by_tiles(scratch.team, query, keys, rank ? keys : values, rank ? rank : s.dim, visible, s, how, batch.segments,
                            batch.segment_count, batch.slots, attended, scratch.tiles);
            tasks = 0;
        }
#endif
    scratch.team.each(tasks, [&](int64_t task) {
        int64_t segment = 0;
        for (; task >= blocks_of(segment) * s.kv_heads; segment++) task -= blocks_of(segment) * s.kv_heads;
        const int64_t blocks = blocks_of(segment), kv = task / blocks, slot = batch.slots[batch.segments[segment]];
        const int64_t at = batch.segments[segment] * group + task % blocks * BLOCK;
        const int64_t end = batch.segments[segment + 1] * group;
        const int n = int(end - at < BLOCK ? end - at : BLOCK);
        const auto attend_by = [&](const auto &scored, const Values<KV> &values) {
            attend_block(query, scored, values, visible, s, how, kv, at, n, attended, scratch.scores, scratch.weights);
        };
        const KV *first = key_tile(keys, s, slot, kv, 0);
        if constexpr (SCALE<KV> == 0)  // latent rows are not rounded
            if (layer.latent.rank) {
                attend_by([&](int n, const float *const *own, int64_t from, int64_t to) {
                    score_rows(n, own, first, s.dim, how.scaling, scratch.scores, s.capacity + LANES, from, to);
                }, Values<KV>{first, layer.latent.rank, s.dim, ROWS_TOGETHER});
                return;
            }
        attend_by([&](int n, const float *const *own, int64_t from, int64_t to) {
            score_keys(n, own, first, s, how.scaling, scratch.queries, scratch.scores, from, to);
        }, Values<KV>{value_row(values, s, slot, kv, 0), s.dim, s.dim + SCALE<KV>, s.capacity});
    });
    if (layer.latent.rank) {
        float *found = query;  // which are done with
        const int64_t width = s.heads * layer.latent.value_dim;
        multiply_heads(scratch.team, layer.latent.values, s.heads, selected.count, [&](int64_t n, int64_t head) {
            return attended + (selected.row(n) * s.heads + head) * s.dim;
        }, rows, scale, scratch.sums, found, layer.latent.value_dim);
        scratch.team.each(selected.count, [&](int64_t n) {
            convert_row(layer.out, found + n * width, n, selected.count, rows, scale);
        });
        return;
    }
    scratch.team.each(selected.count, [&](int64_t n) {
        const int64_t width = s.heads * s.dim;
        const float *row = attended + selected.row(n) * width;
        if (layer.attention_gated) {
            const int64_t own = layer.mixer.kind ? layer.mixer_from : layer.qkv.results;
            const float *gate = y + selected.row(n) * layer.qkv.results + own - width;
            for (int64_t i = 0; i < width; i += LANES) store(scratch.row + i, load(row + i) * sigmoid(load(gate + i)));
            row = scratch.row;
        }
        convert_row(layer.out, row, n, selected.count, rows, scale);
    });
}

// Rows [z | a | b] of CHANNEL_RULE, made of those behind what its convolution takes: [what a is made of | z is | b].
Beside gates_of_channels(const Layer &layer, const Batch &batch, const float *y, const Scratch &scratch, uint8_t *rows,
                         float *scale, float *gated) {
    const Product &decays = layer.mixer_decays, &gate = layer.mixer_gate;
    const int64_t heads = layer.mixer.heads, outputs = gate.results;
    y += layer.mixer.channels;
    scratch.team.each(batch.count, [&](int64_t r) {
        const float *row = y + r * layer.qkv.results;
        std::memcpy(gated + (r + 1) * outputs - heads, row + decays.inputs + gate.inputs, heads * sizeof(float));
        convert_row(decays, row, r, batch.count, rows, scale);
    });
    multiply(scratch.team, decays, rows, scale, batch.count, scratch.sums, gated + gate.outputs);
    scratch.team.each(batch.count, [&](int64_t r) {
        convert_row(gate, y + r * layer.qkv.results + decays.inputs, r, batch.count, rows, scale);
    });
    multiply(scratch.team, gate, rows, scale, batch.count, scratch.sums, gated);
    return {gated, outputs};
}

// What a recurrence makes of y, the outputs of its layer's input product, as rows of the next product.
void recur(const Layer &layer, int64_t index, const Batch &batch, const float *y, const Mixed &mixed, const Scratch &scratch,
           float *gated, float *mixed_rows, const Selected &selected, const Product &next, uint8_t *rows, float *scale) {
    const int64_t width = next.inputs;
    y += layer.mixer_from;
    Beside beside{y + layer.mixer.channels, layer.qkv.results};
    if (layer.mixer.kind == CHANNEL_RULE) beside = gates_of_channels(layer, batch, y, scratch, rows, scale, gated);
    mix(scratch.team, layer.mixer, *batch.walks, index, batch.segments, batch.slots, y, layer.qkv.results, beside, mixed,
        scratch.states, mixed_rows);
    scratch.team.each(selected.count, [&](int64_t n) {
        const int64_t r = selected.row(n);
        gate_output(layer.mixer, mixed_rows + r * width, y + r * layer.qkv.results, beside.rows + r * beside.outputs,
                    scratch.row);
        convert_row(next, scratch.row, n, selected.count, rows, scale);
    });
}

void tap(const Batch &batch, const float *x, int64_t layer, int64_t width, const Scratch &scratch) {
    if (!batch.taps || !batch.taps[layer]) return;
    scratch.team.each(batch.count, [&](int64_t r) {
        std::memcpy(batch.taps[layer] + r * width, x + r * width, width * sizeof(float));
    });
}

// A token's row [width] of a table of numbers, or of codes where there are none.
template <class W>
void look_up(const void *table, const Product &codes, int64_t token, int64_t width, float *to) {
    if (!table) {
        const Grouping of = grouping(codes);
        unpack_grouped(of, (const uint8_t *)codes.weights + token / LANES * of.panel_bytes(), token % LANES, to);
        return;
    }
    const W *from = (const W *)table + token * width;
    for (int64_t i = 0; i < width; i += LANES) store(to + i, load(from + i));
}

template <class W>
void embed(const Model &model, const Batch &batch, float *x, const Scratch &scratch) {
    const int64_t width = model.width;
    scratch.team.each(batch.count, [&](int64_t r) {
        float *row = x + r * width;
        look_up<W>(model.embedding, model.table, batch.ids[r], width, row);
        if (model.embedding_factor != 1.0f)
            for (int64_t i = 0; i < width; i += LANES) store(row + i, load(row + i) * model.embedding_factor);
        if (model.places)
            for (int64_t i = 0; i < width; i += LANES)
                store(row + i, load(row + i) + load(model.places + batch.positions[r] * width + i));
        if (model.embedding_norm.kind) norm_row(row, model.embedding_norm, width, row);
    });
}

// The layers' own inputs [projection.outputs] of each row, from its embedded token in x: see `TokenInputs`.
template <class W>
void token_inputs(const Model &model, const Batch &batch, const float *x, const Scratch &scratch, uint8_t *rows,
                  float *scale, float *inputs) {
    const TokenInputs &of = model.inputs;
    const int64_t all = of.projection.outputs;
    scratch.team.each(batch.count, [&](int64_t r) {
        convert_row(of.projection, x + r * model.width, r, batch.count, rows, scale);
    });
    multiply(scratch.team, of.projection, rows, scale, batch.count, scratch.sums, inputs);
    scratch.team.each(batch.count, [&](int64_t r) {
        float *row = inputs + r * all, *looked_up = scratch.row;
        look_up<W>(of.table, of.codes, batch.ids[r], all, looked_up);
        for (int64_t i = 0; i < all; i += LANES) store(row + i, load(row + i) * of.projection_factor);
        for (int64_t i = 0; i < all; i += of.width) norm_row(row + i, of.norm, of.width, row + i);
        for (int64_t i = 0; i < all; i += LANES)
            store(row + i, (load(row + i) + load(looked_up + i) * of.factor) * of.sum_factor);
    });
}

// Whether a head is of EAGLE-3's kind, whose stream comes from the target's features.
inline bool norms_stream(const DraftHead &head) { return head.state_norm.kind && !head.embedding_norm.kind; }

// The residual stream of a drafting head: see `DraftHead`.
template <class W>
void fuse(const Model &model, const Batch &batch, float *x, const Scratch &scratch, uint8_t *rows, float *scale) {
    const DraftHead &head = *batch.draft_head;
    const int64_t width = model.width;
    const bool features = norms_stream(head);
    if (features && batch.states) {
        scratch.team.each(batch.count, [&](int64_t r) {
            std::memcpy(x + r * width, batch.states + r * width, width * sizeof(float));
        });
        return;
    }
    float *row = scratch.row;
    scratch.team.each(batch.count, [&](int64_t r) {
        if (features) {
            convert_row(head.fuse, batch.features + r * head.fuse.inputs, r, batch.count, rows, scale);
            return;
        }
        float *embedded = row + (head.state_first ? width : 0), *state = row + (head.state_first ? 0 : width);
        look_up<W>(model.embedding, model.table, batch.ids[r], width, embedded);
        std::memcpy(state, batch.states + r * width, width * sizeof(float));
        if (head.embedding_norm.kind) {
            norm_row(embedded, head.embedding_norm, width, embedded);
            norm_row(state, head.state_norm, width, state);
        }
        convert_row(head.fuse, row, r, batch.count, rows, scale);
    });
    multiply(scratch.team, head.fuse, rows, scale, batch.count, scratch.sums, x);
}

// [normed embedding | normed stream] of each row goes into the next product. Of the scratch it takes three rows.
template <class W>
void norm_pair(const Model &model, const Batch &batch, float *x, const Layer &layer, const Scratch &scratch,
               uint8_t *rows, float *scale) {
    const DraftHead &head = *batch.draft_head;
    const int64_t width = model.width;
    float *pair = scratch.row, *embedded = pair + 2 * width;
    scratch.team.each(batch.count, [&](int64_t r) {
        look_up<W>(model.embedding, model.table, batch.ids[r], width, embedded);
        norm_row(embedded, layer.attention_in, width, pair);
        norm_row(x + r * width, head.state_norm, width, pair + width);
        if (head.residual_normed) std::memcpy(x + r * width, pair + width, width * sizeof(float));
        convert_row(layer.qkv, pair, r, batch.count, rows, scale);
    });
}

// x[n] = x[selected.row(n)]; rows rise, so none is overwritten before it has been read.
void gather_rows(float *x, const Selected &selected, int64_t width, const Scratch &scratch) {
    scratch.team.pieces(1, [&](int64_t) {
        for (int64_t n = 0; n < selected.count; n++)
            if (selected.row(n) != n) std::memcpy(x + n * width, x + selected.row(n) * width, width * sizeof(float));
    });
}

// factor * logits, then capped: cap * tanh(logits / cap).
void scale_logits(const Model &model, const Batch &batch, const Scratch &scratch) {
    const int64_t outputs = model.head.outputs;
    if (model.logit_factor == 1.0f && model.logit_softcap == 0.0f) return;
    scratch.team.each(batch.judged_count, [&](int64_t n) {
        for (int64_t i = 0; i < outputs; i += LANES) {
            float some[LANES] = {};
            const size_t bytes = std::min(outputs - i, int64_t(LANES)) * sizeof(float);
            std::memcpy(some, batch.logits + n * outputs + i, bytes);
            Vec v = load(some) * model.logit_factor;
            if (model.logit_softcap != 0.0f) v = capped(v, model.logit_softcap);
            store(some, v);
            std::memcpy(batch.logits + n * outputs + i, some, bytes);
        }
    });
}

// After the last layer: the final norm of the judged rows and the head; the normed rows of all if they are tapped.
void final_norm_and_head(const Model &model, const Batch &batch, const Selected &selected, float *x, const Added &added,
                         const Scratch &scratch, uint8_t *rows, float *scale) {
    scratch.team.begin(Part::NORMS);
    const int64_t width = model.width;
    const Norm &last = model.final_norm;
    float *tapped = batch.taps ? batch.taps[model.layer_count] : nullptr, *normed = scratch.row;
    scratch.team.each(selected.count, [&](int64_t r) {
        float *row = x + r * width;
        add_row(row, added, r, width);
        if (tapped) norm_row(row, last, width, tapped + r * width);
    });
    scratch.team.each(batch.judged_count, [&](int64_t n) {
        const float *row = x + (selected.rows ? n : batch.judged[n]) * width;
        if (last.kind) norm_row(row, last, width, normed);
        const float *output = last.kind ? normed : row;
        if (batch.draft_head)
            std::memcpy(batch.output_states + n * width, batch.draft_head->output_normed ? output : row,
                        width * sizeof(float));
        convert_row(model.head, output, n, batch.judged_count, rows, scale);
    });
    scratch.team.begin(Part::HEAD);
    multiply(scratch.team, model.head, rows, scale, batch.judged_count, scratch.sums, batch.logits);
    scale_logits(model, batch, scratch);
}

template <class W>
void forward(const Model &model, const Batch &batch, Buffers &b) {
    uint8_t *rows = b.lines();
    float *x = b.x.data(), *scale = b.scale.data(), *y = b.y.data(), *query = b.query.data(), *attended = b.attended.data();
    int64_t last = model.layer_count - 1;  // the last layer that looks at other rows, or -1
    bool tapped = batch.taps && batch.taps[model.layer_count];
    for (; last >= 0 && !model.layers[last].out.weights; last--) tapped |= batch.taps && batch.taps[last];
    const Selected all{batch.count, nullptr}, judged{batch.judged_count, batch.judged};
    const Mixed mixed{b.channels.data(), b.gates.data(), b.zeros.data()};
    run(batch.threads, [&](Member &team) {
        Tiles tiles(batch.count);
        const Scratch scratch = b.of_member(team);
        if (batch.draft_head)
            fuse<W>(model, batch, x, scratch, rows, scale);
        else
            embed<W>(model, batch, x, scratch);
        if (model.inputs.width) token_inputs<W>(model, batch, x, scratch, rows, scale, b.inputs.data());
        if (last < 0 && !tapped) gather_rows(x, judged, model.width, scratch);
        Added added{};
        for (int64_t l = 0; l < model.layer_count; l++) {
            const Layer &layer = model.layers[l];
            const Selected &selected = l < last || tapped ? all : judged;
            if (!layer.out.weights) {
                float *fed = feed(layer, l, x, added, false, selected.count, model.width, batch, y, scratch, rows, scale,
                                  b.mixture);
                tap(batch, x, l, model.width, scratch);  // x has taken in what the layer before added, and no more yet
                added = Added{fed, layer.mlp_out, layer.mlp_factor, layer.layer_factor, nullptr, 0};
                continue;
            }
            scratch.team.begin(Part::NORMS);
            if (l == 0 && batch.draft_head && norms_stream(*batch.draft_head))
                norm_pair<W>(model, batch, x, layer, scratch, rows, scale);
            else
                norm(x, added, layer.attention_in, false, batch.count, layer.qkv, scratch, rows, scale);
            tap(batch, x, l, model.width, scratch);
            scratch.team.begin(Part::QKV);
            multiply(scratch.team, layer.qkv, rows, scale, batch.count, scratch.sums, y);
            scratch.team.begin(Part::RECURRENCE);
            float *beside = layer.beside_out.weights ? b.beside.data() : nullptr;
            if (layer.mixer.kind)
                recur(layer, l, batch, y, mixed, scratch, b.gated.data(), attended, selected, beside ? layer.beside_out : layer.out, rows,
                      scale);
            if (beside) multiply(scratch.team, layer.beside_out, rows, scale, selected.count, scratch.sums, beside);
            if (beside || !layer.mixer.kind) {
                const Shape s{layer.heads, layer.kv_heads, layer.dim, batch.capacity};
                scratch.team.begin(Part::ROTATION);
                const bool in_rows = by_tiles(layer.dim, model.bf16);
                const auto look = [&](auto *keys, auto *values) {
                    if (!layer.latent.rank)
                        rotate(y, layer, layer.keys_of == l, batch, s, in_rows, keys, values, scratch, query);
                    else if constexpr (SCALE<std::remove_pointer_t<decltype(keys)>> == 0)
                        rotate_latent(y, layer, batch, s, keys, scratch, rows, scale, attended, query);
                    scratch.team.begin(Part::ATTENTION);
                    attend(query, y, keys, values, batch, layer, s, in_rows, scratch, attended, selected, rows, scale);
                };
                void *keys = batch.keys[layer.keys_of], *values = batch.values[layer.keys_of];
                if (batch.coded)
                    look((Code *)keys, (Code *)values);
                else
                    look((W *)keys, (W *)values);
            }
            scratch.team.begin(Part::OUT);
            if (selected.rows) gather_rows(x, selected, model.width, scratch);
            multiply(scratch.team, layer.out, rows, scale, selected.count, scratch.sums, y);
            const float after = layer.feeds() ? 1.0f : layer.layer_factor;
            added = Added{y, layer.attention_out, layer.mixer_factor, after, beside, layer.beside_factor};
            if (!layer.feeds()) continue;
            float *fed = feed(layer, l, x, added, layer.parallel, selected.count, model.width, batch, y, scratch, rows,
                              scale, b.mixture);
            added = Added{fed, layer.mlp_out, layer.mlp_factor, layer.layer_factor, nullptr, 0};
            if (!layer.input_gate.weights) continue;
            added.after = 1.0f;
            scratch.team.begin(Part::NORMS);  // the layer's own input counts as its norm
            norm(x, added, Norm{}, false, selected.count, layer.input_gate, scratch, rows, scale);
            multiply(scratch.team, layer.input_gate, rows, scale, selected.count, scratch.sums, y);
            gate_input(model, b.inputs.data(), layer, l, selected, y, scratch, rows, scale);
            multiply(scratch.team, layer.input_out, rows, scale, selected.count, scratch.sums, y);
            added = Added{y, layer.input_norm, 1.0f, layer.layer_factor, nullptr, 0};
        }
        final_norm_and_head(model, batch, tapped ? all : judged, x, added, scratch, rows, scale);
    });
}

// All memory of a forward. Throws where there is none.
void grow(const Model &model, const Batch &batch, Buffers &b) {
    const int64_t padded = round_up(batch.count, 32);
    int64_t bytes = model.head.row_bytes(), widest = 0, heads = 0, dim = 0, row = 0, states = 0, scales = 1, tiles = 0;
    const int64_t visits = batch.walks ? batch.walks->visit_begin[batch.segment_count] : 0;
    for (int64_t l = 0; l < model.layer_count; l++) {
        const Layer &layer = model.layers[l];
        heads = std::max(heads, layer.heads * layer.dim);
        dim = std::max(dim, layer.dim);
        if (const Latent &of = layer.latent; of.rank) {
            const int64_t each = std::max({layer.dim, of.nope + layer.dim - of.rank, of.value_dim});
            heads = std::max(heads, layer.heads * each);
            scales = std::max(scales, layer.heads);
            for (const Product *p : {of.keys, of.values}) bytes = std::max(bytes, layer.heads * p->row_bytes());
            if (of.query.weights) bytes = std::max(bytes, of.query.row_bytes());
            row = std::max(row, layer.qkv.results);
        }
#if defined(HEADSTART_TILES)
        const int64_t width = layer.latent.rank ? layer.latent.rank : layer.dim;
        if (layer.heads && by_tiles(layer.dim, model.bf16)) tiles = std::max(tiles, TilesRoom{layer.dim, width}.numbers());
#endif
        if (const Mixer &m = layer.mixer; m.kind) {
            heads = std::max(heads, m.heads * m.value_dim);
            if (layer.beside_out.weights) Buffers::grow(b.beside, padded * model.width);
            states = std::max(states, states_of(m, *batch.walks));
            Buffers::grow(b.zeros, m.channels);
            if (m.kind != SHORT_CONV) {
                Buffers::grow(b.channels, visits * m.channels);
                Buffers::grow(b.gates, visits * gate_room(m));
            }
            if (m.kind == CHANNEL_RULE) {
                bytes = std::max({bytes, layer.mixer_decays.row_bytes(), layer.mixer_gate.row_bytes()});
                Buffers::grow(b.gated, padded * layer.mixer_gate.results);
            }
        }
        for (const Product *p : {&layer.qkv, &layer.out, &layer.beside_out, &layer.gate_up, &layer.down, &layer.input_gate,
                                 &layer.input_out}) {
            if (!p->weights) continue;
            bytes = std::max(bytes, p->row_bytes());
            widest = std::max(widest, p->results);
            row = std::max(row, p->inputs);
        }
        if (const Experts *e = layer.experts) {
            grow(*e, batch.count, model.width, b.mixture);
            Buffers::grow(b.mixture.pieces, model.layer_count);
            b.grow_rows(std::max(experts_row_bytes(*e, batch.count), row_room(batch.count) * e->router.row_bytes()));
            Buffers::grow(b.scale, pairs_of(*e, batch.count));
            row = std::max(row, experts_scratch(*e));
            for (int64_t i = 0; i < e->count + e->shared; i++) row = std::max(row, e->down[i].inputs);
        }
    }
    row = std::max(row, 3 * std::max(dim, model.width));
    if (const DraftHead *head = batch.draft_head)
        bytes = std::max(bytes, head->fuse.row_bytes());
    if (model.inputs.width) {
        const Product &projection = model.inputs.projection;
        bytes = std::max(bytes, projection.row_bytes());
        row = std::max(row, projection.outputs);
        Buffers::grow(b.inputs, padded * projection.outputs);
    }
    b.grow_rows(row_room(batch.count) * bytes);
    Buffers::grow(b.x, padded * model.width);
    Buffers::grow(b.scale, padded * scales);
    Buffers::grow(b.y, padded * widest);
    Buffers::grow(b.query, padded * heads);
    Buffers::grow(b.attended, padded * heads);
    b.grow_scratch(std::max(batch.count, batch.judged_count), batch.threads, row, batch.capacity, dim, states, tiles);
}

// How the structures of this file and of products.h lie in memory, one a line: name, size, each field with its offset and
// size.
std::string layout() {
    std::string text;
#define STRUCT(type) text += "\n" #type " " + std::to_string(sizeof(type))
#define FIELD(type, field) \
    text += " " #field " " + std::to_string(offsetof(type, field)) + "+" + std::to_string(sizeof(type::field))
    STRUCT(Product);
    FIELD(Product, weights), FIELD(Product, scale), FIELD(Product, shift), FIELD(Product, bias);
    FIELD(Product, inputs), FIELD(Product, outputs), FIELD(Product, kind), FIELD(Product, group);
    FIELD(Product, scales), FIELD(Product, minimum), FIELD(Product, order), FIELD(Product, table);
    FIELD(Product, results), FIELD(Product, more);
    STRUCT(BlockMatrix);
    FIELD(BlockMatrix, product), FIELD(BlockMatrix, type), FIELD(BlockMatrix, rows), FIELD(BlockMatrix, to);
    FIELD(BlockMatrix, damaged);
    STRUCT(Norm);
    FIELD(Norm, gain), FIELD(Norm, bias), FIELD(Norm, eps), FIELD(Norm, kind);
    STRUCT(Latent);
    FIELD(Latent, query), FIELD(Latent, keys), FIELD(Latent, values), FIELD(Latent, rank), FIELD(Latent, nope);
    FIELD(Latent, value_dim);
    STRUCT(Mixer);
    FIELD(Mixer, taps), FIELD(Mixer, conv_bias), FIELD(Mixer, decay), FIELD(Mixer, step_bias), FIELD(Mixer, skip);
    FIELD(Mixer, norm), FIELD(Mixer, channels), FIELD(Mixer, gates), FIELD(Mixer, heads), FIELD(Mixer, groups);
    FIELD(Mixer, key_dim), FIELD(Mixer, value_dim), FIELD(Mixer, kind), FIELD(Mixer, written);
    FIELD(Mixer, gate_factor), FIELD(Mixer, step_factor), FIELD(Mixer, norm_first);
    STRUCT(Gate);
    FIELD(Gate, activation), FIELD(Gate, gated), FIELD(Gate, factor), FIELD(Gate, numbers);
    STRUCT(Experts);
    FIELD(Experts, gate_up), FIELD(Experts, down), FIELD(Experts, router), FIELD(Experts, router_norm);
    FIELD(Experts, input_norm), FIELD(Experts, output_norm), FIELD(Experts, shared_norm), FIELD(Experts, choice_bias);
    FIELD(Experts, expert_factors), FIELD(Experts, gate), FIELD(Experts, count), FIELD(Experts, chosen);
    FIELD(Experts, groups), FIELD(Experts, groups_kept), FIELD(Experts, group_best), FIELD(Experts, least_sum);
    FIELD(Experts, factor), FIELD(Experts, score), FIELD(Experts, normalised), FIELD(Experts, shared);
    FIELD(Experts, shared_gated), FIELD(Experts, mapped);
    STRUCT(Layer);
    FIELD(Layer, latent), FIELD(Layer, mixer), FIELD(Layer, attention_in), FIELD(Layer, attention_out), FIELD(Layer, mlp_in), FIELD(Layer, mlp_out);
    FIELD(Layer, q_norm), FIELD(Layer, k_norm), FIELD(Layer, v_norm), FIELD(Layer, qkv), FIELD(Layer, out);
    FIELD(Layer, beside_out), FIELD(Layer, gate_up), FIELD(Layer, down), FIELD(Layer, mixer_decays), FIELD(Layer, mixer_gate);
    FIELD(Layer, input_gate), FIELD(Layer, input_out);
    FIELD(Layer, input_norm), FIELD(Layer, experts), FIELD(Layer, cosine), FIELD(Layer, sine), FIELD(Layer, query_factors);
    FIELD(Layer, sinks), FIELD(Layer, activation_numbers), FIELD(Layer, heads), FIELD(Layer, kv_heads);
    FIELD(Layer, dim), FIELD(Layer, rotary), FIELD(Layer, keys_of), FIELD(Layer, window), FIELD(Layer, mixer_from);
    FIELD(Layer, scaling), FIELD(Layer, softcap), FIELD(Layer, mixer_factor), FIELD(Layer, beside_factor);
    FIELD(Layer, mlp_factor), FIELD(Layer, gate_factor), FIELD(Layer, layer_factor), FIELD(Layer, activation);
    FIELD(Layer, gated), FIELD(Layer, norm_over_all), FIELD(Layer, gain_by_head), FIELD(Layer, norm_after_rotation);
    FIELD(Layer, value_is_key), FIELD(Layer, parallel), FIELD(Layer, attention_gated);
    STRUCT(TokenInputs);
    FIELD(TokenInputs, table), FIELD(TokenInputs, codes), FIELD(TokenInputs, projection), FIELD(TokenInputs, norm);
    FIELD(TokenInputs, width), FIELD(TokenInputs, factor), FIELD(TokenInputs, projection_factor);
    FIELD(TokenInputs, sum_factor);
    STRUCT(Model);
    FIELD(Model, layers), FIELD(Model, layer_count), FIELD(Model, width), FIELD(Model, embedding);
    FIELD(Model, places), FIELD(Model, embedding_norm), FIELD(Model, final_norm), FIELD(Model, head);
    FIELD(Model, table), FIELD(Model, inputs), FIELD(Model, embedding_factor), FIELD(Model, logit_factor), FIELD(Model, logit_softcap);
    FIELD(Model, bf16);
    STRUCT(Visible);
    FIELD(Visible, first), FIELD(Visible, last), FIELD(Visible, extra_begin), FIELD(Visible, extra);
    STRUCT(Walks);
    FIELD(Walks, planes), FIELD(Walks, kept), FIELD(Walks, log), FIELD(Walks, slots), FIELD(Walks, log_rows);
    FIELD(Walks, taps), FIELD(Walks, sources), FIELD(Walks, logged_begin), FIELD(Walks, logged);
    FIELD(Walks, visit_begin), FIELD(Walks, inputs), FIELD(Walks, depths), FIELD(Walks, store_begin);
    FIELD(Walks, store_visits), FIELD(Walks, store_planes), FIELD(Walks, store_inputs), FIELD(Walks, write_begin);
    FIELD(Walks, write_rows), FIELD(Walks, write_places), FIELD(Walks, segments), FIELD(Walks, deepest);
    STRUCT(DraftHead);
    FIELD(DraftHead, fuse), FIELD(DraftHead, state_norm), FIELD(DraftHead, embedding_norm);
    FIELD(DraftHead, state_first), FIELD(DraftHead, residual_normed), FIELD(DraftHead, output_normed);
    STRUCT(Batch);
    FIELD(Batch, count), FIELD(Batch, ids), FIELD(Batch, positions), FIELD(Batch, slots), FIELD(Batch, places);
    FIELD(Batch, segments), FIELD(Batch, segment_count), FIELD(Batch, visible), FIELD(Batch, keys);
    FIELD(Batch, values), FIELD(Batch, capacity), FIELD(Batch, judged), FIELD(Batch, judged_count);
    FIELD(Batch, logits), FIELD(Batch, taps), FIELD(Batch, threads), FIELD(Batch, draft_head), FIELD(Batch, states);
    FIELD(Batch, features), FIELD(Batch, output_states), FIELD(Batch, walks), FIELD(Batch, experts_touched), FIELD(Batch, coded);
#undef STRUCT
#undef FIELD
    return text.substr(1);
}

}  // namespace

extern "C" {

const char *headstart_layout() {
    static const std::string text = layout();
    return text.c_str();
}

// From now on forwards run on the threads of a GNU OpenMP runtime: GOMP_parallel and omp_get_thread_num. Null: on our own.
void headstart_use_openmp(void *parallel, void *number) {
    openmp = OpenMP{(decltype(OpenMP::parallel))parallel, (decltype(OpenMP::number))number, process()};
}

int headstart_supported(int64_t kind) { return supported(kind); }

int64_t headstart_packed_bytes(int64_t kind, int64_t in, int64_t out) {
    return panel_bytes(kind, in) * (round_up(out, 2 * LANES) / LANES);
}

void headstart_pack(int64_t kind, const void *from, int from_bf16, int64_t in, int64_t out, void *to, float *scale,
                    int32_t *shift, int64_t threads) {
    if (from_bf16)
        pack(kind, (const BFloat16 *)from, in, out, (uint8_t *)to, scale, shift, int(threads));
    else
        pack(kind, (const float *)from, in, out, (uint8_t *)to, scale, shift, int(threads));
}

// Weights of the kind INT8 [out, in] that are whole numbers already, whose scales the caller has.
void headstart_pack_whole(const int8_t *from, int64_t in, int64_t out, void *to, int32_t *shift, int64_t threads) {
    const int64_t panels = round_up(out, 2 * LANES) / LANES, bytes = panel_bytes(INT8, in);
    run(threads, [&](Member &team) {
        team.each(panels, [&](int64_t panel) {
            pack_whole(from, panel, in, out, padded_in(INT8, in), (int8_t *)to + panel * bytes, shift);
        });
    });
}

// Bytes of a product of a grouped kind, whose sizes and forms are set.
int64_t headstart_grouped_bytes(const Product *p) {
    return weight_bytes(*p);
}

void headstart_pack_grouped(const Product *p, const uint8_t *codes, const float *scales, const float *minimums,
                            const float *scale_units, const float *minimum_units, uint8_t *to, int64_t threads) {
    const Grouping of = grouping(*p);
    const GroupedSource from{codes, scales, minimums, scale_units, minimum_units};
    const int64_t panels = round_up(p->outputs, 2 * LANES) / LANES;
    run(threads, [&](Member &team) {
        team.each(panels, [&](int64_t panel) { pack_grouped(of, from, panel, p->outputs, to + panel * of.panel_bytes()); });
    });
}

// Matrices from the blocks of a file, all at once. Returns 0, or 1 if there is no memory for it.
int headstart_pack_blocks(BlockMatrix *matrices, int64_t count, int64_t threads) {
    try {
        int64_t most = 0;
        std::vector<int64_t> ends(count);
        for (int64_t i = 0; i < count; i++) {
            const Product &p = *matrices[i].product;
            ends[i] = (i ? ends[i - 1] : 0) + round_up(p.outputs, 2 * LANES) / LANES;
            most = std::max(most, DecodedPanel(p).numbers());
        }
        std::vector<float> scratch(std::max(threads, int64_t(1)) * most);
        run(threads, [&](Member &team) {
            team.each(count ? ends[count - 1] : 0, [&](int64_t panel) {
                const int64_t i = std::upper_bound(ends.begin(), ends.end(), panel) - ends.begin();
                pack_blocks(matrices[i], panel - (i ? ends[i - 1] : 0), scratch.data() + team.number() * most);
            });
        });
    } catch (const std::exception &) {
        return 1;
    }
    return 0;
}

// Codes of 4 bits from blocks of a file: of each block, `stride` bytes after the one before it, `size` bytes are taken, and
// become as many codes of their low halves, then of their high ones.
void headstart_nibbles(const uint8_t *from, int64_t blocks, int64_t stride, int64_t size, uint8_t *to) {
    for (int64_t b = 0; b < blocks; b++, from += stride, to += 2 * size)
        for (int64_t i = 0; i < size; i++) {
            to[i] = from[i] & 15;
            to[size + i] = from[i] >> 4;
        }
}

// Groups of weights [groups, 32] to codes of 4 or 8 bits [groups, 32], scales and minimums [groups].
void headstart_round_groups(int64_t bits, const float *from, int64_t groups, uint8_t *codes, float *scales,
                            float *minimums) {
    for (int64_t g = 0; g < groups; g++)
        (bits == 4 ? round_four_bits : round_eight_bits)(from + g * ROUNDED, codes + g * ROUNDED, scales + g, minimums + g);
}

// The weights of some outputs of a product of a grouped kind as numbers [count, inputs].
void headstart_unpack_grouped(const Product *p, const int64_t *outputs, int64_t count, float *to) {
    const Grouping of = grouping(*p);
    for (int64_t n = 0; n < count; n++)
        unpack_grouped(of, (const uint8_t *)p->weights + outputs[n] / LANES * of.panel_bytes(), outputs[n] % LANES,
                       to + n * p->inputs);
}

// One product by itself, for heads of products and for tests: x [count, inputs] float32 is converted row by row.
// Returns 0, or 1 if there is no memory for it.
int headstart_multiply(const Product *p, const float *x, int64_t count, float *y, int64_t threads) {
    static thread_local Buffers kept;
    Buffers &b = kept;  // this thread's, for all threads of the region below
    try {
        b.grow_rows(row_room(count) * p->row_bytes());
        Buffers::grow(b.scale, round_up(count, 32));
        b.grow_scratch(count, threads, 0, 0, 0);
    } catch (const std::exception &) {
        return 1;
    }
    uint8_t *rows = b.lines();
    float *scale = b.scale.data();
    run(threads, [&](Member &team) {
        Tiles tiles(count);
        team.each(count, [&](int64_t r) { convert_row(*p, x + r * p->inputs, r, count, rows, scale); });
        multiply(team, *p, rows, scale, count, b.of_member(team).sums, y);
    });
    return 0;
}

// Lays out the rows of a batch: see rows.h.
int64_t headstart_rows(const int64_t *given, int64_t segments, const int64_t *windows, int64_t window_count,
                       const int64_t *limits, int64_t room, int64_t more, int64_t *out) {
    return lay_rows(given, segments, windows, window_count, limits, RowsRoom(room, more, out));
}

// Reads memory, for the time that it takes.
uint32_t headstart_read(const void *from, int64_t bytes, int64_t threads) {
    return read_bytes((const uint8_t *)from, bytes, threads);
}

// A gate's nonlinearity by itself, for tests: count is a multiple of 16. numbers: those of XIELU.
void headstart_activate(int64_t activation, const float *x, const float *numbers, float *y, int64_t count) {
    gate_row(Gate{int32_t(activation), 0, 1.0f, numbers}, x, count, y);
}

// From now on the nanoseconds of each part of forwards are added up: see `part_times`, which has room for so many members as
// there are threads. Null: no more.
void headstart_time_parts(int64_t *times) { part_times = times; }

// A forward. Returns 0, or 1 if there is no memory for it.
int headstart_forward(const Model *model, const Batch *batch) {
    static thread_local Buffers b;
    try {
        grow(*model, *batch, b);
    } catch (const std::exception &) {
        return 1;
    }
    if (model->bf16)
        forward<BFloat16>(*model, *batch, b);
    else
        forward<float>(*model, *batch, b);
    return 0;
}

// Rows of `row_bytes` of an accepted path to consecutive places, of each of `layers` alike: [slots, heads, capacity] rows.
void headstart_gather_rows(void *const *rows, int64_t layers, int64_t row_bytes, int64_t heads, int64_t capacity,
                           int64_t slot, int64_t base, const int64_t *path, int64_t count) {
    for (int64_t at = 0; at < layers * heads; at++) {
        uint8_t *of_layer = (uint8_t *)rows[at / heads];
        gather_rows(of_layer + ((slot * heads + at % heads) * capacity + base) * row_bytes, row_bytes, path, count);
    }
}

// Whether keys of a model of bf16 lie as values do, [heads, capacity, dim], where they are so wide.
int headstart_rows_of_keys(int64_t dim) { return by_tiles(dim, true); }

// The same of keys in tiles of sixteen tokens, and their values. bytes: of a number, 4, 2, or 1 for one that is rounded.
void headstart_gather(void *const *keys, void *const *values, int64_t layers, int bytes, int64_t kv_heads, int64_t dim,
                      int64_t capacity, int64_t slot, int64_t base, const int64_t *path, int64_t count) {
    const Shape s{kv_heads, kv_heads, dim, capacity};
    for (int64_t l = 0; l < layers; l++) {
        if (bytes == sizeof(Code))
            gather((Code *)keys[l], (Code *)values[l], s, slot, base, path, count);
        else if (bytes == sizeof(BFloat16))
            gather((BFloat16 *)keys[l], (BFloat16 *)values[l], s, slot, base, path, count);
        else
            gather((float *)keys[l], (float *)values[l], s, slot, base, path, count);
    }
}
}
