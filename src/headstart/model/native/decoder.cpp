// The forward of a Llama-shaped decoder on a CPU, over the packed rows of a ragged batch of trees.
//
// Every row (one token) is computed by itself and in one fixed order of operations: its result has the same bits
// whether it runs alone, beside the rows of a draft, or in a batch. Work is shared out over threads in whole rows, in
// panels of outputs or in blocks of queries, never inside a sum. The residual stream is float32.
//
// A drafting head (EAGLE) is such a decoder too, of one layer, but for its ends: its rows begin with hidden states,
// and the row that leaves its layer is wanted as well, to begin the next step's with. See `DraftHead`.

#include <algorithm>
#include <cstddef>
#include <exception>
#include <string>

#include "attention.h"
#include "products.h"
#include "rounding.h"

// The structures that Python fills (structs.py). `headstart_layout` says how they lie in memory.

struct Layer {
    const float *input_gain;         // of the norm before attention, or null: no norm
    const float *mlp_gain;           // of the norm before gate and up
    const float *q_gain, *k_gain;    // gains of each head's norm (Qwen3), or null
    Product qkv, out, gate_up, down;
    int64_t window;                  // which of the batch's `visible` its attention uses
    float scaling;
};

struct Model {
    const Layer *layers;
    int64_t layer_count, width, heads, kv_heads, dim;
    const void *embedding;           // [tokens, width], or null: `table` holds it
    const float *final_gain;         // or null: no norm before the head
    const float *cosine, *sine;      // [positions, dim / 2]
    Product head;
    Product table;                   // the embedding as codes: an output of inputs `width` for each token
    float eps;
    int32_t bf16;                    // the embedding's numbers and the cache's, or else float32
};

// What the rows of a drafting head (EAGLE) begin with. Its residual stream is `fuse` of [embedding | state] (EAGLE-1), or of
// the features of several layers, or the state itself (EAGLE-3, whose first product then takes
// [normed embedding | normed stream]).
struct DraftHead {
    Product fuse;
    const float *state_gain;         // EAGLE-3: gain of the stream's norm; null for EAGLE-1
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
};

namespace {

// The rows that go on after a layer's attention: all, or (after the last layer's, unless its output is tapped) the judged
// ones, which then stand first in x.
struct Selected {
    int64_t count;
    const int64_t *rows;             // or null for all
    int64_t row(int64_t n) const { return rows ? rows[n] : n; }
};

// What one thread needs of its own.
struct Scratch {
    float *row;      // rows on their way into a product
    float *scores;   // of a block of queries, by token: [BLOCK, capacity + 16]
    float *weights;  // of one query, in the order of its text: [capacity + 16]
    float *queries;  // of a block, side by side: [dim, BLOCK]
    float *sums;     // of a product: see `sums_of`
};

// Row buffers of a forward, kept from call to call: fresh pages would cost more than the work. They are sized before the
// parallel region: an allocation that fails inside one ends the process.
struct Buffers {
    std::vector<uint8_t> rows;
    std::vector<float> x, scale, y, query, attended;  // x: the residual stream
    std::vector<float> scratch;
    int64_t row = 0, tokens = 0, queries = 0, sums = 0;            // numbers of each part of a thread's scratch

    template <class T>
    static void grow(std::vector<T> &v, int64_t n) {
        if (int64_t(v.size()) < n) v.resize(n);
    }

    // For products of `count` rows, by `threads`; each converts rows of up to `row` numbers and attends to `capacity` with
    // queries of `dim`.
    void grow_scratch(int64_t count, int64_t threads, int64_t row_numbers, int64_t capacity, int64_t dim) {
        row = round_up(row_numbers, LANES);
        tokens = capacity ? capacity + LANES : 0;
        queries = BLOCK * dim;
        sums = sums_of(count);
        grow(scratch, std::max(threads, int64_t(1)) * numbers());
    }

    int64_t numbers() const { return row + (BLOCK + 1) * tokens + queries + sums; }

    Scratch of_thread() {
#if defined(_OPENMP)
        float *own = scratch.data() + omp_get_thread_num() * numbers();
#else
        float *own = scratch.data();
#endif
        float *scores = own + row, *weights = scores + BLOCK * tokens;
        return Scratch{own, scores, weights, weights + tokens, weights + tokens + queries};
    }
};

// out = x / rms(x) * gain
inline void norm_row(const float *x, const float *gain, float eps, int64_t width, float *out) {
    Vec squares = {};
    for (int64_t i = 0; i < width; i += LANES) squares += load(x + i) * load(x + i);
    const float factor = 1.0f / std::sqrt(sum(squares) / float(width) + eps);
    for (int64_t i = 0; i < width; i += LANES) store(out + i, load(x + i) * factor * load(gain + i));
}

// x += y (if any), then the normed row goes into the next product (as it is, without a gain). normed: scratch.
void norm(float *x, const float *y, const float *gain, float eps, int64_t count, const Product &next, float *normed,
          uint8_t *rows, float *scale) {
    const int64_t width = next.inputs;
#pragma omp for schedule(static)
    for (int64_t r = 0; r < count; r++) {
        float *row = x + r * width;
        if (y)
            for (int64_t i = 0; i < width; i += LANES) store(row + i, load(row + i) + load(y + r * width + i));
        if (gain) norm_row(row, gain, eps, width, normed);
        convert_row(next, gain ? normed : row, r, count, rows, scale);
    }
}

// silu(gate) * up, where y holds gate and up side by side. row: scratch.
void gate(const float *y, int64_t count, const Product &next, float *row, uint8_t *rows, float *scale) {
    const int64_t width = next.inputs;
#pragma omp for schedule(static)
    for (int64_t r = 0; r < count; r++) {
        const float *g = y + r * 2 * width, *u = g + width;
        for (int64_t i = 0; i < width; i += LANES)
            store(row + i, load(g + i) / (1.0f + exponential(-load(g + i))) * load(u + i));
        convert_row(next, row, r, count, rows, scale);
    }
}

// Unpack [q | k | v] of each row, norm (Qwen3) and rotate q and k, write k and v to their place in the cache. head:
// scratch for three heads (normed, rotated, and as it is stored).
template <class KV>
void rotate(const float *y, const Layer &layer, const Model &model, const Batch &batch, const Shape &s, KV *keys,
            KV *values, float *head, float *query) {
    const int64_t all = s.heads + 2 * s.kv_heads, half = s.dim / 2;
#pragma omp for schedule(static)
    for (int64_t r = 0; r < batch.count; r++) {
        const float *c = model.cosine + batch.positions[r] * half, *d = model.sine + batch.positions[r] * half;
        const int64_t slot = batch.slots[r], place = batch.places[r];
        for (int64_t h = 0; h < all; h++) {
            const float *from = y + (r * all + h) * s.dim;
            if (h >= s.heads + s.kv_heads) {
                KV *to = value_row(values, s, slot, h - s.heads - s.kv_heads, place);
                for (int64_t i = 0; i < s.dim; i += LANES) store(to + i, load(from + i));
                continue;
            }
            const float *gain = h < s.heads ? layer.q_gain : layer.k_gain;
            if (gain) {
                norm_row(from, gain, model.eps, s.dim, head);
                from = head;
            }
            float *rotated = h < s.heads ? query + (r * s.heads + h) * s.dim : head + s.dim;
            for (int64_t i = 0; i < half; i++) {
                rotated[i] = from[i] * c[i] - from[i + half] * d[i];
                rotated[i + half] = from[i + half] * c[i] + from[i] * d[i];
            }
            if (h < s.heads) continue;
            KV *stored = (KV *)(rotated + s.dim);
            for (int64_t i = 0; i < s.dim; i += LANES) store(stored + i, load(rotated + i));
            KV *tile = key_tile(keys, s, slot, h - s.heads, place) + place % LANES;
            for (int64_t i = 0; i < s.dim; i++) tile[i * LANES] = stored[i];
        }
    }
}

template <class KV>
void attend(const float *query, const KV *keys, const KV *values, const Batch &batch, const Layer &layer, const Shape &s,
            const Scratch &scratch, float *attended, const Selected &selected, uint8_t *rows, float *scale) {
    const Visible &visible = batch.visible[layer.window];
    const int64_t group = s.heads / s.kv_heads;
    for (int64_t segment = 0; segment < batch.segment_count; segment++) {
        const int64_t begin = batch.segments[segment] * group, end = batch.segments[segment + 1] * group;
        const int64_t slot = batch.slots[batch.segments[segment]], blocks = (end - begin + BLOCK - 1) / BLOCK;
#pragma omp for schedule(dynamic) nowait
        for (int64_t task = 0; task < blocks * s.kv_heads; task++) {
            const int64_t kv = task / blocks, at = begin + task % blocks * BLOCK;
            const int n = int(end - at < BLOCK ? end - at : BLOCK);
            attend_block(query, key_tile(keys, s, slot, kv, 0), value_row(values, s, slot, kv, 0), visible, s,
                         layer.scaling, kv, at, n, attended, scratch.queries, scratch.scores, scratch.weights);
        }
    }
#pragma omp barrier
#pragma omp for schedule(static)
    for (int64_t n = 0; n < selected.count; n++)
        convert_row(layer.out, attended + selected.row(n) * s.heads * s.dim, n, selected.count, rows, scale);
}

void tap(const Batch &batch, const float *x, int64_t layer, int64_t width) {
    if (!batch.taps || !batch.taps[layer]) return;
#pragma omp for schedule(static)
    for (int64_t r = 0; r < batch.count; r++)
        std::memcpy(batch.taps[layer] + r * width, x + r * width, width * sizeof(float));
}

template <class W>
void embed_row(const Model &model, int64_t token, float *to) {
#if defined(HEADSTART_GROUPED)
    if (!model.embedding) {
        const Grouping of = grouping(model.table);
        unpack_grouped(of, (const uint8_t *)model.table.weights + token / LANES * of.panel_bytes(), token % LANES, to);
        return;
    }
#endif
    const W *from = (const W *)model.embedding + token * model.width;
    for (int64_t i = 0; i < model.width; i += LANES) store(to + i, load(from + i));
}

template <class W>
void embed(const Model &model, const Batch &batch, float *x) {
#pragma omp for schedule(static)
    for (int64_t r = 0; r < batch.count; r++) embed_row<W>(model, batch.ids[r], x + r * model.width);
}

// The residual stream of a drafting head: see `DraftHead`.
template <class W>
void fuse(const Model &model, const Batch &batch, float *x, const Scratch &scratch, uint8_t *rows, float *scale) {
    const DraftHead &head = *batch.draft_head;
    const int64_t width = model.width;
    const bool paired = head.state_gain;
    if (paired && batch.states) {
#pragma omp for schedule(static)
        for (int64_t r = 0; r < batch.count; r++)
            std::memcpy(x + r * width, batch.states + r * width, width * sizeof(float));
        return;
    }
    const W *table = (const W *)model.embedding;
    float *row = scratch.row;
#pragma omp for schedule(static)
    for (int64_t r = 0; r < batch.count; r++) {
        if (paired) {
            convert_row(head.fuse, batch.features + r * head.fuse.inputs, r, batch.count, rows, scale);
            continue;
        }
        for (int64_t i = 0; i < width; i += LANES) store(row + i, load(table + batch.ids[r] * width + i));
        std::memcpy(row + width, batch.states + r * width, width * sizeof(float));
        convert_row(head.fuse, row, r, batch.count, rows, scale);
    }
    multiply(head.fuse, rows, scale, batch.count, scratch.sums, x);
}

// [normed embedding | normed stream] of each row goes into the next product. pair: scratch for three rows.
template <class W>
void norm_pair(const Model &model, const Batch &batch, float *x, const Layer &layer, float *pair, uint8_t *rows,
               float *scale) {
    const DraftHead &head = *batch.draft_head;
    const int64_t width = model.width;
    const W *table = (const W *)model.embedding;
    float *embedded = pair + 2 * width;
#pragma omp for schedule(static)
    for (int64_t r = 0; r < batch.count; r++) {
        for (int64_t i = 0; i < width; i += LANES) store(embedded + i, load(table + batch.ids[r] * width + i));
        norm_row(embedded, layer.input_gain, model.eps, width, pair);
        norm_row(x + r * width, head.state_gain, model.eps, width, pair + width);
        if (head.residual_normed) std::memcpy(x + r * width, pair + width, width * sizeof(float));
        convert_row(layer.qkv, pair, r, batch.count, rows, scale);
    }
}

// x[n] = x[selected.row(n)]; rows rise, so none is overwritten before it has been read.
void gather_rows(float *x, const Selected &selected, int64_t width) {
#pragma omp single
    for (int64_t n = 0; n < selected.count; n++)
        if (selected.row(n) != n) std::memcpy(x + n * width, x + selected.row(n) * width, width * sizeof(float));
}

// After the last layer: the final norm of the judged rows and the head; the normed rows of all if they are tapped.
void final_norm_and_head(const Model &model, const Batch &batch, const Selected &selected, float *x, const float *y,
                         const Scratch &scratch, uint8_t *rows, float *scale) {
    const int64_t width = model.width;
    float *tapped = batch.taps ? batch.taps[model.layer_count] : nullptr, *normed = scratch.row;
#pragma omp for schedule(static)
    for (int64_t r = 0; r < selected.count; r++) {
        float *row = x + r * width;
        for (int64_t i = 0; i < width; i += LANES) store(row + i, load(row + i) + load(y + r * width + i));
        if (tapped) norm_row(row, model.final_gain, model.eps, width, tapped + r * width);
    }
#pragma omp for schedule(static)
    for (int64_t n = 0; n < batch.judged_count; n++) {
        const float *row = x + (selected.rows ? n : batch.judged[n]) * width;
        if (model.final_gain) norm_row(row, model.final_gain, model.eps, width, normed);
        const float *output = model.final_gain ? normed : row;
        if (batch.draft_head)
            std::memcpy(batch.output_states + n * width, batch.draft_head->output_normed ? output : row,
                        width * sizeof(float));
        convert_row(model.head, output, n, batch.judged_count, rows, scale);
    }
    multiply(model.head, rows, scale, batch.judged_count, scratch.sums, batch.logits);
}

template <class KV>
void forward(const Model &model, const Batch &batch, Buffers &b) {
    const Shape s{model.heads, model.kv_heads, model.dim, batch.capacity};
    uint8_t *rows = b.rows.data();
    float *x = b.x.data(), *scale = b.scale.data(), *y = b.y.data();
    const bool tapped = batch.taps && batch.taps[model.layer_count];
    const Selected all{batch.count, nullptr}, judged{batch.judged_count, batch.judged};
#pragma omp parallel num_threads(batch.threads) if (batch.threads > 1)
    {
        Tiles tiles(batch.count);
        const Scratch scratch = b.of_thread();
        if (batch.draft_head)
            fuse<KV>(model, batch, x, scratch, rows, scale);
        else
            embed<KV>(model, batch, x);
        for (int64_t l = 0; l < model.layer_count; l++) {
            const Layer &layer = model.layers[l];
            const Selected &selected = l + 1 < model.layer_count || tapped ? all : judged;
            KV *keys = (KV *)batch.keys[l], *values = (KV *)batch.values[l];
            if (l == 0 && batch.draft_head && batch.draft_head->state_gain)
                norm_pair<KV>(model, batch, x, layer, scratch.row, rows, scale);
            else
                norm(x, l ? y : nullptr, layer.input_gain, model.eps, batch.count, layer.qkv, scratch.row, rows, scale);
            tap(batch, x, l, model.width);
            multiply(layer.qkv, rows, scale, batch.count, scratch.sums, y);
            rotate(y, layer, model, batch, s, keys, values, scratch.row, b.query.data());
            attend(b.query.data(), keys, values, batch, layer, s, scratch, b.attended.data(), selected, rows, scale);
            if (selected.rows) gather_rows(x, selected, model.width);
            multiply(layer.out, rows, scale, selected.count, scratch.sums, y);
            norm(x, y, layer.mlp_gain, model.eps, selected.count, layer.gate_up, scratch.row, rows, scale);
            multiply(layer.gate_up, rows, scale, selected.count, scratch.sums, y);
            gate(y, selected.count, layer.down, scratch.row, rows, scale);
            multiply(layer.down, rows, scale, selected.count, scratch.sums, y);
        }
        final_norm_and_head(model, batch, tapped ? all : judged, x, y, scratch, rows, scale);
    }
}

// All memory of a forward. Throws where there is none.
void grow(const Model &model, const Batch &batch, Buffers &b) {
    const int64_t padded = round_up(batch.count, 32), heads = model.heads * model.dim;
    int64_t bytes = row_stride(model.head.kind, model.head.inputs), widest = 0;
    int64_t row = 3 * std::max(model.dim, model.width);
    for (int64_t l = 0; l < model.layer_count; l++)
        for (const Product *p : {&model.layers[l].qkv, &model.layers[l].out, &model.layers[l].gate_up,
                                 &model.layers[l].down}) {
            bytes = std::max(bytes, row_stride(p->kind, p->inputs));
            widest = std::max(widest, p->outputs);
            row = std::max(row, p->inputs);
        }
    if (const DraftHead *head = batch.draft_head)
        bytes = std::max(bytes, row_stride(head->fuse.kind, head->fuse.inputs));
    Buffers::grow(b.rows, row_room(batch.count) * bytes);
    Buffers::grow(b.x, padded * model.width);
    Buffers::grow(b.scale, padded);
    Buffers::grow(b.y, padded * widest);
    Buffers::grow(b.query, padded * heads);
    Buffers::grow(b.attended, padded * heads);
    b.grow_scratch(std::max(batch.count, batch.judged_count), batch.threads, row, batch.capacity, model.dim);
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
    FIELD(Product, scales), FIELD(Product, minimum), FIELD(Product, order);
    STRUCT(Layer);
    FIELD(Layer, input_gain), FIELD(Layer, mlp_gain), FIELD(Layer, q_gain), FIELD(Layer, k_gain);
    FIELD(Layer, qkv), FIELD(Layer, out), FIELD(Layer, gate_up), FIELD(Layer, down);
    FIELD(Layer, window), FIELD(Layer, scaling);
    STRUCT(Model);
    FIELD(Model, layers), FIELD(Model, layer_count), FIELD(Model, width), FIELD(Model, heads), FIELD(Model, kv_heads);
    FIELD(Model, dim), FIELD(Model, embedding), FIELD(Model, final_gain), FIELD(Model, cosine), FIELD(Model, sine);
    FIELD(Model, head), FIELD(Model, table), FIELD(Model, eps), FIELD(Model, bf16);
    STRUCT(Visible);
    FIELD(Visible, first), FIELD(Visible, last), FIELD(Visible, extra_begin), FIELD(Visible, extra);
    STRUCT(DraftHead);
    FIELD(DraftHead, fuse), FIELD(DraftHead, state_gain), FIELD(DraftHead, residual_normed);
    FIELD(DraftHead, output_normed);
    STRUCT(Batch);
    FIELD(Batch, count), FIELD(Batch, ids), FIELD(Batch, positions), FIELD(Batch, slots), FIELD(Batch, places);
    FIELD(Batch, segments), FIELD(Batch, segment_count), FIELD(Batch, visible), FIELD(Batch, keys);
    FIELD(Batch, values), FIELD(Batch, capacity), FIELD(Batch, judged), FIELD(Batch, judged_count);
    FIELD(Batch, logits), FIELD(Batch, taps), FIELD(Batch, threads), FIELD(Batch, draft_head), FIELD(Batch, states);
    FIELD(Batch, features), FIELD(Batch, output_states);
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
#pragma omp parallel for schedule(static) num_threads(int(threads)) if (threads > 1)
    for (int64_t panel = 0; panel < panels; panel++)
        pack_whole(from, panel, in, out, padded_in(INT8, in), (int8_t *)to + panel * bytes, shift);
}

// Bytes of a product of a grouped kind, whose sizes and forms are set.
int64_t headstart_grouped_bytes(const Product *p) {
    return grouping(*p).panel_bytes() * (round_up(p->outputs, 2 * LANES) / LANES);
}

void headstart_pack_grouped(const Product *p, const uint8_t *codes, const float *scales, const float *minimums,
                            const float *scale_units, const float *minimum_units, uint8_t *to, int64_t threads) {
#if defined(HEADSTART_GROUPED)
    const Grouping of = grouping(*p);
    const GroupedSource from{codes, scales, minimums, scale_units, minimum_units};
    const int64_t panels = round_up(p->outputs, 2 * LANES) / LANES;
#pragma omp parallel for schedule(static) num_threads(int(threads)) if (threads > 1)
    for (int64_t panel = 0; panel < panels; panel++)
        pack_grouped(of, from, panel, p->outputs, to + panel * of.panel_bytes());
#endif
}

// Groups of weights [groups, 32] to codes of 4 or 8 bits [groups, 32], scales and minimums [groups].
void headstart_round_groups(int64_t bits, const float *from, int64_t groups, uint8_t *codes, float *scales,
                            float *minimums) {
#if defined(HEADSTART_GROUPED)
    for (int64_t g = 0; g < groups; g++)
        (bits == 4 ? round_four_bits : round_eight_bits)(from + g * ROUNDED, codes + g * ROUNDED, scales + g, minimums + g);
#endif
}

// The weights of some outputs of a product of a grouped kind as numbers [count, inputs].
void headstart_unpack_grouped(const Product *p, const int64_t *outputs, int64_t count, float *to) {
#if defined(HEADSTART_GROUPED)
    const Grouping of = grouping(*p);
    for (int64_t n = 0; n < count; n++)
        unpack_grouped(of, (const uint8_t *)p->weights + outputs[n] / LANES * of.panel_bytes(), outputs[n] % LANES,
                       to + n * p->inputs);
#endif
}

// One product by itself, for heads of products and for tests: x [count, inputs] float32 is converted row by row.
// Returns 0, or 1 if there is no memory for it.
int headstart_multiply(const Product *p, const float *x, int64_t count, float *y, int64_t threads) {
    static thread_local Buffers kept;
    Buffers &b = kept;  // this thread's, for all threads of the region below
    try {
        Buffers::grow(b.rows, row_room(count) * row_stride(p->kind, p->inputs));
        Buffers::grow(b.scale, round_up(count, 32));
        b.grow_scratch(count, threads, 0, 0, 0);
    } catch (const std::exception &) {
        return 1;
    }
    uint8_t *rows = b.rows.data();
    float *scale = b.scale.data();
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        Tiles tiles(count);
#pragma omp for schedule(static)
        for (int64_t r = 0; r < count; r++) convert_row(*p, x + r * p->inputs, r, count, rows, scale);
        multiply(*p, rows, scale, count, b.of_thread().sums, y);
    }
    return 0;
}

// The gate's nonlinearity by itself, for tests: count is a multiple of 16.
void headstart_silu(const float *x, float *y, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) store(y + i, load(x + i) / (1.0f + exponential(-load(x + i))));
}

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

void headstart_gather(void *keys, void *values, int kv_bf16, int64_t kv_heads, int64_t dim, int64_t capacity,
                      int64_t slot, int64_t base, const int64_t *path, int64_t count) {
    const Shape s{kv_heads, kv_heads, dim, capacity};
    if (kv_bf16)
        gather((BFloat16 *)keys, (BFloat16 *)values, s, slot, base, path, count);
    else
        gather((float *)keys, (float *)values, s, slot, base, path, count);
}
}
