// Products, activations and the forward of a small decoder, on numbers that are the same everywhere: prints a digest of the
// results' bits for each. Built for two systems and one level it prints the same on both; elsewhere.py compares. Ends with 1
// where a row depends on how many there are, or on threads.

#include "decoder.cpp"

#include <cstdio>
#include <cstring>

namespace {

uint64_t state = 1;

uint32_t drawn() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return uint32_t(state >> 33);
}

float number() { return float(int32_t(drawn() % 2001) - 1000) / 1024.0f; }

std::vector<float> numbers(int64_t count) {
    std::vector<float> found(count);
    for (float &each : found) each = number();
    return found;
}

template <class T>
T *aligned(std::vector<uint8_t> &room, int64_t bytes) {
    room.assign(bytes + 64, 0);
    return (T *)(room.data() + (64 - uint64_t(room.data()) % 64) % 64);
}

void tell(const char *what, int64_t of, const std::vector<float> &found) {
    uint64_t digest = 14695981039346656037u;  // FNV-1a
    for (const uint8_t *at = (const uint8_t *)found.data(), *end = (const uint8_t *)(found.data() + found.size()); at < end; at++)
        digest = (digest ^ *at) * 1099511628211u;
    std::printf("%s %d %016llx\n", what, int(of), (unsigned long long)digest);
}

void differs(const char *what) {
    std::printf("%s depends on the number of rows or threads\n", what);
    std::exit(1);
}

// Weights of a product, kept while the program runs.
Product product(int64_t kind, int64_t in, int64_t out, int64_t group = 32, int64_t scales = 0, int64_t minimum = STORED) {
    static std::vector<std::vector<uint8_t>> rooms(1024);
    static std::vector<std::vector<float>> kept(1024);
    static int used = 0;
    Product p{};
    p.kind = kind;
    p.inputs = in;
    p.outputs = p.results = out;
    kept[used] = numbers(out);
    p.bias = kept[used].data();
    if (is_grouped(kind)) {
        p.group = group;
        p.scales = scales;
        p.minimum = minimum;
        const int64_t bits = grouping(p).bits;
        std::vector<uint8_t> codes(out * in);
        for (uint8_t &code : codes) code = uint8_t(drawn() & ((1 << bits) - 1));
        std::vector<float> steps = numbers(out * (in / group)), least = numbers(out * (in / group));
        for (size_t i = 0; i < least.size() && minimum != STORED; i++) least[i] = float(minimum) * steps[i];
        uint8_t *to = aligned<uint8_t>(rooms[used++], headstart_grouped_bytes(&p));
        p.weights = to;
        headstart_pack_grouped(&p, codes.data(), steps.data(), least.data(), nullptr, nullptr, to, 2);
        return p;
    }
    const std::vector<float> from = numbers(in * out);
    const int64_t room = round_up(out, 2 * LANES);
    p.weights = aligned<uint8_t>(rooms[used], headstart_packed_bytes(kind, in, out));
    float *scale = aligned<float>(rooms[used + 1], room * 4);
    int32_t *shift = aligned<int32_t>(rooms[used + 2], room * 4);
    used += 3;
    headstart_pack(kind, from.data(), 0, in, out, (void *)p.weights, scale, shift, 2);
    p.scale = scale;
    p.shift = shift;
    return p;
}

void check_product(const char *name, const Product &p) {
    constexpr int64_t MOST = 40;
    const std::vector<float> x = numbers(MOST * p.inputs);
    std::vector<float> alone(MOST * p.outputs);
    for (int64_t r = 0; r < MOST; r++) headstart_multiply(&p, x.data() + r * p.inputs, 1, alone.data() + r * p.outputs, 1);
    for (int64_t count : {1, 2, 3, 5, 8, 12, 16, 17, 32, 40})
        for (int64_t threads : {1, 2}) {
            std::vector<float> y(count * p.outputs);
            headstart_multiply(&p, x.data(), count, y.data(), threads);
            if (std::memcmp(y.data(), alone.data(), y.size() * 4)) differs(name);
        }
    tell(name, p.kind, alone);
}

// Logits of a text of TOKENS tokens: in one forward, and in forwards of fewer rows.
template <class KV>
std::vector<float> logits(const Model &model, int64_t rows, int64_t threads) {
    constexpr int64_t TOKENS = 24, CAPACITY = 32, MOST = 64;  // numbers of a token in the cache
    std::vector<std::vector<uint8_t>> rooms(4);
    void *keys[2], *values[2];
    for (int i = 0; i < 2; i++) {
        keys[i] = aligned<void>(rooms[i], CAPACITY * MOST * sizeof(KV));
        values[i] = aligned<void>(rooms[2 + i], CAPACITY * MOST * sizeof(KV));
    }
    std::vector<float> found(TOKENS * model.head.outputs);
    for (int64_t from = 0; from < TOKENS; from += rows) {
        const int64_t count = std::min(rows, TOKENS - from);
        std::vector<int64_t> ids(count), places(count), zeros(count + 1), last(count), judged(count);
        for (int64_t r = 0; r < count; r++) {
            places[r] = from + r;
            last[r] = places[r] + 1;
            ids[r] = places[r] * 7 % 32;
            judged[r] = r;
        }
        const int64_t segments[2] = {0, count};
        const Visible visible{zeros.data(), last.data(), zeros.data(), zeros.data()};
        Batch batch{};
        batch.count = batch.judged_count = count;
        batch.ids = ids.data();
        batch.positions = batch.places = places.data();
        batch.slots = zeros.data();
        batch.segments = segments;
        batch.segment_count = 1;
        batch.visible = &visible;
        batch.keys = keys;
        batch.values = values;
        batch.capacity = CAPACITY;
        batch.judged = judged.data();
        batch.logits = found.data() + from * model.head.outputs;
        batch.threads = threads;
        int64_t touched = 0;
        batch.experts_touched = &touched;
        if (headstart_forward(&model, &batch)) std::exit(2);
    }
    return found;
}

// A router's four experts, of which a row chooses two, and one that all take.
void mix(Experts &e, std::vector<Product> &products, int64_t kind, int64_t grouped, int64_t width, int32_t score) {
    constexpr int64_t COUNT = 4, INSIDE = 64;
    for (int64_t i = 0; i <= COUNT; i++) products.push_back(product(grouped, width, 2 * INSIDE));
    for (int64_t i = 0; i <= COUNT; i++) products.push_back(product(kind, INSIDE, width));
    e.gate_up = products.data();
    e.down = products.data() + COUNT + 1;
    e.router = product(FLOAT32, width, COUNT + 1);
    e.gate = Gate{SILU, 1, 1.0f, nullptr};
    e.count = COUNT;
    e.chosen = 2;
    e.groups = 2;
    e.groups_kept = 1;
    e.group_best = 2;
    e.factor = 1.5f;
    e.score = score;
    e.normalised = e.shared = e.shared_gated = 1;
}

// Attention to latents by queries of low rank. Its rows are no whole steps of tiles, with which a processor's sums differ.
void attend_to_latents(Layer &layer, std::vector<Product> &products, int64_t kind, int64_t width, const Norm &rms) {
    constexpr int64_t RANK = 32, TURNING = 16, NOPE = 32, VALUE = 48, LOW = 32;
    for (int64_t h = 0; h < layer.heads; h++) {
        products.push_back(product(kind, NOPE, RANK));
        products.back().results = layer.heads * (RANK + TURNING);
    }
    for (int64_t h = 0; h < layer.heads; h++) {
        products.push_back(product(kind, RANK, VALUE));
        products.back().results = layer.heads * VALUE;
    }
    layer.latent = Latent{product(kind, LOW, layer.heads * (NOPE + TURNING)), products.data(), products.data() + layer.heads,
                          RANK, NOPE, VALUE};
    layer.q_norm = layer.k_norm = rms;
    layer.qkv = product(kind, width, LOW + RANK + TURNING);
    layer.out = product(kind, layer.heads * VALUE, width);
    layer.kv_heads = 1;
    layer.dim = RANK + TURNING;
    layer.rotary = TURNING;
}

// Two layers: attention and an MLP, then attention to latents and a mixture of experts.
template <class KV>
void check_forward(const char *name, int64_t kind, int64_t grouped, int32_t score) {
    constexpr int64_t WIDTH = 128, DIM = 32, HEADS = 4, KV_HEADS = 2, VOCABULARY = 64;
    const std::vector<float> gain = numbers(WIDTH), cosine = numbers(32 * DIM / 2), sine = numbers(32 * DIM / 2);
    std::vector<float> table = numbers(32 * WIDTH);
    std::vector<uint16_t> halves(32 * WIDTH);
    for (size_t i = 0; i < halves.size(); i++) {
        uint32_t bits;
        std::memcpy(&bits, &table[i], 4);
        halves[i] = uint16_t(bits >> 16);
    }
    const Norm rms{gain.data(), nullptr, 1e-5f, RMS};
    Layer layers[2] = {};
    for (int i = 0; i < 2; i++) {
        Layer &layer = layers[i];
        layer.attention_in = layer.mlp_in = rms;
        layer.cosine = cosine.data();
        layer.sine = sine.data();
        layer.heads = HEADS;
        layer.kv_heads = KV_HEADS;
        layer.dim = layer.rotary = DIM;
        layer.keys_of = i;
        layer.scaling = 0.1767767f;
        layer.mixer_factor = layer.mlp_factor = layer.gate_factor = layer.layer_factor = 1.0f;
        layer.activation = SILU;
        layer.gated = 1;
    }
    layers[0].qkv = product(kind, WIDTH, (HEADS + 2 * KV_HEADS) * DIM);
    layers[0].out = product(kind, HEADS * DIM, WIDTH);
    layers[0].gate_up = product(grouped, WIDTH, 512);
    layers[0].down = product(kind, 256, WIDTH);
    Experts experts{};
    std::vector<Product> of_experts, of_heads;
    of_experts.reserve(16);
    of_heads.reserve(16);
    mix(experts, of_experts, kind, grouped, WIDTH, score);
    layers[1].experts = &experts;
    attend_to_latents(layers[1], of_heads, kind, WIDTH, rms);
    Model model{};
    model.layers = layers;
    model.layer_count = 2;
    model.width = WIDTH;
    model.embedding = sizeof(KV) == 2 ? (const void *)halves.data() : table.data();
    model.final_norm = rms;
    model.head = product(kind, WIDTH, VOCABULARY);
    model.embedding_factor = model.logit_factor = 1.0f;
    model.bf16 = sizeof(KV) == 2;
    const std::vector<float> whole = logits<KV>(model, 24, 1);
    for (float each : whole)
        if (!std::isfinite(each)) std::exit(3);
    for (int64_t rows : {1, 2, 5, 8, 17})
        for (int64_t threads : {1, 2})
            if (std::memcmp(whole.data(), logits<KV>(model, rows, threads).data(), whole.size() * 4)) differs(name);
    tell(name, kind, whole);
}

}  // namespace

int main() {
    for (int64_t kind : {FLOAT32, BF16_WIDE, BF16_PAIRS, INT8})
        if (supported(kind)) check_product("product", product(kind, 192, 100));
    for (int64_t kind = GROUPED4; supported(kind) && kind <= 9; kind++) {
        check_product("groups of 32", product(kind, 320, 100, 32, SCALES_HALF));
        check_product("groups of 128", product(kind, 512, 70, 128, SCALES_FLOAT));
        if (kind == GROUPED4) check_product("groups around a middle", product(kind, 320, 64, 32, SCALES_HALF, 8));
    }
    const std::vector<float> x = numbers(512), parameters = {0.8f, 0.8f, 0.5f, -1e-6f};
    for (int64_t activation = SILU; activation <= CLAMPED; activation++) {
        std::vector<float> y(512);
        headstart_activate(activation, x.data(), parameters.data(), y.data(), 512);
        tell("activation", activation, y);
    }
    check_forward<float>("forward", FLOAT32, FLOAT32, SOFTMAX);
    check_forward<BFloat16>("forward in bf16", supported(BF16_PAIRS) ? BF16_PAIRS : BF16_WIDE, GROUPED4, SIGMOID);
    if (supported(INT8)) check_forward<BFloat16>("forward in int8", INT8, INT8, CHOSEN);
}
