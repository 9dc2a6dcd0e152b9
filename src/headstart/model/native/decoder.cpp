// The forward of a Llama-shaped decoder on a CPU, over the packed rows of a ragged batch of trees.
//
// Every row (one token) is computed by itself and in one fixed order of operations: its result has the same bits
// whether it runs alone, beside the rows of a draft, or in a batch. Work is shared out over threads in whole rows, in
// panels of outputs or in blocks of queries, never inside a sum. The residual stream is float32.
//
// A drafting head (EAGLE) is such a decoder too, of one layer, but for its ends: its rows begin with hidden states,
// and the row that leaves its layer is wanted as well, to begin the next step's with. See `Head`.

#include "attention.h"
#include "products.h"

namespace {

struct Layer {
    const float *before, *after;     // gains of the two norms; no `before`, no norm
    const float *q_gain, *k_gain;    // gains of each head's norm (Qwen3), or null
    Product qkv, out, gate_up, down;
    int64_t view;                    // which of the forward's views its attention uses
    float scaling;
};

struct Model {
    const Layer *layers;
    int64_t layer_count, width, heads, kv_heads, dim;
    const void *embedding;           // [tokens, width]
    const float *final_gain;         // or null: no norm before the head
    const float *cosine, *sine;      // [positions, dim / 2]
    Product head;
    float eps;
    int32_t bf16;                    // the embedding's numbers and the cache's, or else float32
};

// What the rows of a drafting head begin with. Its residual stream is `fuse` of [embedding | state] (EAGLE-1), or of
// the features of several layers, or the state itself (EAGLE-3, whose first product then takes
// [normed embedding | normed stream]).
struct Head {
    Product fuse;
    const float *state_gain;         // EAGLE-3: gain of the stream's norm; null for EAGLE-1
    int32_t residual_normed;         // whether the stream goes on normed
    int32_t output_normed;           // whether states are left behind the final norm
};

struct Batch {
    int64_t count;                   // rows
    const int64_t *ids, *positions, *slots, *places;
    const int64_t *segments;
    int64_t segment_count;
    const View *views;
    void *const *keys, *const *values;  // of each layer
    int64_t capacity;
    const int64_t *judged;
    int64_t judged_count;
    float *logits;                   // [judged_count, vocabulary]
    float *const *taps;              // [layer_count + 1]: where to leave a layer's input, or null; or null
    int64_t threads;
    const Head *drafting;            // or null: an ordinary decoder, whose rows are embedded tokens
    const float *states, *features;  // [count, width], [count, fuse.in]: one of them, of a drafting head
    float *left;                     // [judged_count, width]: the states it leaves
};

// The rows that go on after a layer's attention: all, or (after the last layer's, unless its output is tapped) the judged
// ones, which then stand first in x.
struct Kept {
    int64_t count;
    const int64_t *rows;             // or null for all
    int64_t row(int64_t n) const { return rows ? rows[n] : n; }
};

// Row buffers of a forward, kept from call to call.
struct Buffers {
    std::vector<uint8_t> rows;
    std::vector<float> x, scale, y, query, mixed;  // x: the residual stream

    static void grow(std::vector<float> &v, size_t n) {
        if (v.size() < n) v.resize(n);
    }
};

void emit_for(const Product &next, const float *row, int64_t r, uint8_t *rows, float *scale) {
    uint8_t *to = rows + r * row_stride(next.kind, next.in);
    const int64_t padded = padded_in(next.kind, next.in);
    if (next.kind == INT8)
        emit(row, next.in, padded, to, scale + r);
    else if (next.kind == BF16_PAIRS)
        emit(row, next.in, padded, (BFloat16 *)to, scale);
    else
        emit(row, next.in, padded, (float *)to, scale);
}

// out = x / rms(x) * gain
inline void norm_row(const float *x, const float *gain, float eps, int64_t width, float *out) {
    Vec squares = {};
    for (int64_t i = 0; i < width; i += LANES) squares += load(x + i) * load(x + i);
    const float factor = 1.0f / std::sqrt(sum(squares) / float(width) + eps);
    for (int64_t i = 0; i < width; i += LANES) store(out + i, load(x + i) * factor * load(gain + i));
}

// x += y (if any), then the normed row goes into the next product (as it is, without a gain).
void norm(float *x, const float *y, const float *gain, float eps, int64_t count, const Product &next, uint8_t *rows,
          float *scale) {
    const int64_t width = next.in;
    float *normed = scratch<0>(width);
#pragma omp for schedule(static)
    for (int64_t r = 0; r < count; r++) {
        float *row = x + r * width;
        if (y)
            for (int64_t i = 0; i < width; i += LANES) store(row + i, load(row + i) + load(y + r * width + i));
        if (gain) norm_row(row, gain, eps, width, normed);
        emit_for(next, gain ? normed : row, r, rows, scale);
    }
}

// silu(gate) * up, where y holds gate and up side by side.
void gate(const float *y, int64_t count, const Product &next, uint8_t *rows, float *scale) {
    const int64_t width = next.in;
    float *row = scratch<0>(width);
#pragma omp for schedule(static)
    for (int64_t r = 0; r < count; r++) {
        const float *g = y + r * 2 * width, *u = g + width;
        for (int64_t i = 0; i < width; i += LANES)
            store(row + i, load(g + i) / (1.0f + exponential(-load(g + i))) * load(u + i));
        emit_for(next, row, r, rows, scale);
    }
}

// Unpack [q | k | v] of each row, norm (Qwen3) and rotate q and k, write k and v to their place in the cache.
template <class KV>
void rotate(const float *y, const Layer &layer, const Model &model, const Batch &batch, const Shape &s, KV *keys,
            KV *values, float *query) {
    const int64_t all = s.heads + 2 * s.kv_heads, half = s.dim / 2;
    float *head = scratch<0>(3 * s.dim);  // normed, rotated, and as it is stored
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
void attend(const float *query, const KV *keys, const KV *values, const Batch &batch, const View &view, const Shape &s,
            float scaling, float *mixed, const Kept &kept, const Product &next, uint8_t *rows, float *scale) {
    const int64_t group = s.heads / s.kv_heads, room = s.capacity + LANES;
    float *physical = scratch<1>(BLOCK * room), *logical = scratch<2>(room);
    for (int64_t segment = 0; segment < batch.segment_count; segment++) {
        const int64_t begin = batch.segments[segment] * group, end = batch.segments[segment + 1] * group;
        const int64_t slot = batch.slots[batch.segments[segment]], blocks = (end - begin + BLOCK - 1) / BLOCK;
#pragma omp for schedule(dynamic) nowait
        for (int64_t task = 0; task < blocks * s.kv_heads; task++) {
            const int64_t kv = task / blocks, at = begin + task % blocks * BLOCK;
            const int n = int(end - at < BLOCK ? end - at : BLOCK);
            attend_block(query, key_tile(keys, s, slot, kv, 0), value_row(values, s, slot, kv, 0), view, s, scaling, kv,
                         at, n, mixed, physical, logical);
        }
    }
#pragma omp barrier
#pragma omp for schedule(static)
    for (int64_t n = 0; n < kept.count; n++) emit_for(next, mixed + kept.row(n) * s.heads * s.dim, n, rows, scale);
}

void tap(const Batch &batch, const float *x, int64_t layer, int64_t width) {
    if (!batch.taps || !batch.taps[layer]) return;
#pragma omp for schedule(static)
    for (int64_t r = 0; r < batch.count; r++)
        std::memcpy(batch.taps[layer] + r * width, x + r * width, width * sizeof(float));
}

template <class W>
void embed(const Model &model, const Batch &batch, float *x) {
    const W *table = (const W *)model.embedding;
#pragma omp for schedule(static)
    for (int64_t r = 0; r < batch.count; r++)
        for (int64_t i = 0; i < model.width; i += LANES)
            store(x + r * model.width + i, load(table + batch.ids[r] * model.width + i));
}

// The residual stream of a drafting head: see `Head`.
template <class W>
void begin(const Model &model, const Batch &batch, float *x, uint8_t *rows, float *scale) {
    const Head &head = *batch.drafting;
    const int64_t width = model.width;
    const bool paired = head.state_gain;
    if (paired && batch.states) {
#pragma omp for schedule(static)
        for (int64_t r = 0; r < batch.count; r++)
            std::memcpy(x + r * width, batch.states + r * width, width * sizeof(float));
        return;
    }
    const W *table = (const W *)model.embedding;
    float *row = scratch<0>(2 * width);
#pragma omp for schedule(static)
    for (int64_t r = 0; r < batch.count; r++) {
        if (paired) {
            emit_for(head.fuse, batch.features + r * head.fuse.in, r, rows, scale);
            continue;
        }
        for (int64_t i = 0; i < width; i += LANES) store(row + i, load(table + batch.ids[r] * width + i));
        std::memcpy(row + width, batch.states + r * width, width * sizeof(float));
        emit_for(head.fuse, row, r, rows, scale);
    }
    multiply(head.fuse, rows, scale, batch.count, x);
}

// [normed embedding | normed stream] of each row goes into the next product.
template <class W>
void norm_pair(const Model &model, const Batch &batch, float *x, const Layer &layer, uint8_t *rows, float *scale) {
    const Head &head = *batch.drafting;
    const int64_t width = model.width;
    const W *table = (const W *)model.embedding;
    float *pair = scratch<0>(3 * width), *embedded = pair + 2 * width;
#pragma omp for schedule(static)
    for (int64_t r = 0; r < batch.count; r++) {
        for (int64_t i = 0; i < width; i += LANES) store(embedded + i, load(table + batch.ids[r] * width + i));
        norm_row(embedded, layer.before, model.eps, width, pair);
        norm_row(x + r * width, head.state_gain, model.eps, width, pair + width);
        if (head.residual_normed) std::memcpy(x + r * width, pair + width, width * sizeof(float));
        emit_for(layer.qkv, pair, r, rows, scale);
    }
}

// x[n] = x[kept.row(n)]; rows rise, so none is overwritten before it has been read.
void gather_rows(float *x, const Kept &kept, int64_t width) {
#pragma omp single
    for (int64_t n = 0; n < kept.count; n++)
        if (kept.row(n) != n) std::memcpy(x + n * width, x + kept.row(n) * width, width * sizeof(float));
}

// After the last layer: the final norm of the judged rows and the head; the normed rows of all if they are tapped.
void judge(const Model &model, const Batch &batch, const Kept &kept, float *x, const float *y, uint8_t *rows,
           float *scale) {
    const int64_t width = model.width;
    float *tapped = batch.taps ? batch.taps[model.layer_count] : nullptr, *normed = scratch<0>(width);
#pragma omp for schedule(static)
    for (int64_t r = 0; r < kept.count; r++) {
        float *row = x + r * width;
        for (int64_t i = 0; i < width; i += LANES) store(row + i, load(row + i) + load(y + r * width + i));
        if (tapped) norm_row(row, model.final_gain, model.eps, width, tapped + r * width);
    }
#pragma omp for schedule(static)
    for (int64_t n = 0; n < batch.judged_count; n++) {
        const float *row = x + (kept.rows ? n : batch.judged[n]) * width;
        if (model.final_gain) norm_row(row, model.final_gain, model.eps, width, normed);
        const float *spoken = model.final_gain ? normed : row;
        if (batch.drafting)
            std::memcpy(batch.left + n * width, batch.drafting->output_normed ? spoken : row, width * sizeof(float));
        emit_for(model.head, spoken, n, rows, scale);
    }
    multiply(model.head, rows, scale, batch.judged_count, batch.logits);
}

template <class KV>
void forward(const Model &model, const Batch &batch, Buffers &b) {
    const Shape s{model.heads, model.kv_heads, model.dim, batch.capacity};
    uint8_t *rows = b.rows.data();
    float *x = b.x.data(), *scale = b.scale.data(), *y = b.y.data();
    const bool tapped = batch.taps && batch.taps[model.layer_count];
    const Kept all{batch.count, nullptr}, judged{batch.judged_count, batch.judged};
#pragma omp parallel num_threads(batch.threads) if (batch.threads > 1)
    {
        Tiles tiles(batch.count);
        if (batch.drafting)
            begin<KV>(model, batch, x, rows, scale);
        else
            embed<KV>(model, batch, x);
        for (int64_t l = 0; l < model.layer_count; l++) {
            const Layer &layer = model.layers[l];
            const Kept &kept = l + 1 < model.layer_count || tapped ? all : judged;
            KV *keys = (KV *)batch.keys[l], *values = (KV *)batch.values[l];
            if (l == 0 && batch.drafting && batch.drafting->state_gain)
                norm_pair<KV>(model, batch, x, layer, rows, scale);
            else
                norm(x, l ? y : nullptr, layer.before, model.eps, batch.count, layer.qkv, rows, scale);
            tap(batch, x, l, model.width);
            multiply(layer.qkv, rows, scale, batch.count, y);
            rotate(y, layer, model, batch, s, keys, values, b.query.data());
            attend(b.query.data(), keys, values, batch, batch.views[layer.view], s, layer.scaling, b.mixed.data(),
                   kept, layer.out, rows, scale);
            if (kept.rows) gather_rows(x, kept, model.width);
            multiply(layer.out, rows, scale, kept.count, y);
            norm(x, y, layer.after, model.eps, kept.count, layer.gate_up, rows, scale);
            multiply(layer.gate_up, rows, scale, kept.count, y);
            gate(y, kept.count, layer.down, rows, scale);
            multiply(layer.down, rows, scale, kept.count, y);
        }
        judge(model, batch, tapped ? all : judged, x, y, rows, scale);
    }
}

int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace

extern "C" {

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

// One product by itself, for tests and for measuring: x [count, in] float32 is converted row by row.
void headstart_multiply(const Product *p, const float *x, int64_t count, float *y, int64_t threads) {
    std::vector<uint8_t> rows(round_up(count, 32) * row_stride(p->kind, p->in));
    std::vector<float> scale(round_up(count, 32));
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        Tiles tiles(count);
#pragma omp for schedule(static)
        for (int64_t r = 0; r < count; r++) emit_for(*p, x + r * p->in, r, rows.data(), scale.data());
        multiply(*p, rows.data(), scale.data(), count, y);
    }
}

// The gate's nonlinearity by itself, for tests: count is a multiple of 16.
void headstart_silu(const float *x, float *y, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) store(y + i, load(x + i) / (1.0f + exponential(-load(x + i))));
}

void headstart_forward(const Model *model, const Batch *batch) {
    static thread_local Buffers b;
    const int64_t padded = round_up(batch->count, 32);
    int64_t bytes = row_stride(model->head.kind, model->head.in), widest = 0;
    for (int64_t l = 0; l < model->layer_count; l++)
        for (const Product *p : {&model->layers[l].qkv, &model->layers[l].out, &model->layers[l].gate_up,
                                 &model->layers[l].down}) {
            bytes = most(bytes, row_stride(p->kind, p->in));
            widest = most(widest, p->out);
        }
    if (batch->drafting) bytes = most(bytes, row_stride(batch->drafting->fuse.kind, batch->drafting->fuse.in));
    if (int64_t(b.rows.size()) < padded * bytes) b.rows.resize(padded * bytes);
    Buffers::grow(b.x, padded * model->width);
    Buffers::grow(b.scale, padded);
    Buffers::grow(b.y, padded * widest);
    Buffers::grow(b.query, padded * model->heads * model->dim);
    Buffers::grow(b.mixed, padded * model->heads * model->dim);
    if (model->bf16)
        forward<BFloat16>(*model, *batch, b);
    else
        forward<float>(*model, *batch, b);
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
