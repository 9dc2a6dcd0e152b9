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
    static std::vector<std::vector<uint8_t>> rooms(256);
    static std::vector<std::vector<float>> kept(256);
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
    constexpr int64_t TOKENS = 24, CAPACITY = 32;
    const Layer &layer = model.layers[0];
    std::vector<std::vector<uint8_t>> rooms(4);
    void *keys[2], *values[2];
    for (int i = 0; i < 2; i++) {
        keys[i] = aligned<void>(rooms[i], CAPACITY * layer.kv_heads * layer.dim * sizeof(KV));
        values[i] = aligned<void>(rooms[2 + i], CAPACITY * layer.kv_heads * layer.dim * sizeof(KV));
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
        if (headstart_forward(&model, &batch)) std::exit(2);
    }
    return found;
}

template <class KV>
void check_forward(const char *name, int64_t kind, int64_t grouped) {
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
        layer.qkv = product(kind, WIDTH, (HEADS + 2 * KV_HEADS) * DIM);
        layer.out = product(kind, HEADS * DIM, WIDTH);
        layer.gate_up = product(grouped, WIDTH, 512);
        layer.down = product(kind, 256, WIDTH);
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
    const std::vector<float> x = numbers(512), learnt = {0.8f, 0.8f, 0.5f, -1e-6f};
    for (int64_t activation = SILU; activation <= XIELU; activation++) {
        std::vector<float> y(512);
        headstart_activate(activation, x.data(), learnt.data(), y.data(), 512);
        tell("activation", activation, y);
    }
    check_forward<float>("forward", FLOAT32, FLOAT32);
    check_forward<BFloat16>("forward in bf16", supported(BF16_PAIRS) ? BF16_PAIRS : BF16_WIDE, GROUPED4);
    if (supported(INT8)) check_forward<BFloat16>("forward in int8", INT8, INT8);
}
