// A mixture of experts: a router gives each row a few of many MLPs, and their outputs are added by its weights.
//
// Each row's choice depends on that row alone, and ties go to the lower index. The rows that chose an expert are brought
// together, so that its weights are read once for all of them, and the products of all experts that anyone chose are shared
// out to the team as one list. What a row's experts made of it is added in the order of their indices, in one sum. So a row
// has the same bits whatever rows are in its company.
//
// An expert that all rows take (shared) is the last one: number `count`.
#pragma once

#include "activations.h"
#include "norms.h"
#include "products.h"
#include "reading.h"

enum Score : int32_t { SOFTMAX, SIGMOID, CHOSEN };  // CHOSEN: a softmax of those that are chosen, by their logits

struct Experts {
    const Product *gate_up, *down;  // of each expert, and of the shared one
    Product router;                 // a logit for each expert, and one for the shared one's gate if it has one
    Norm router_norm;               // of the stream, for the router; or none: it takes what the experts take
    Norm input_norm, output_norm, shared_norm;  // of the stream, for all but the shared one; of what they add; of what that one adds
    const float *choice_bias;       // [count], or null: added to scores for the choice alone
    const float *expert_factors;    // [count], or null: of weights
    Gate gate;
    int64_t count, chosen;
    int64_t groups, groups_kept, group_best;  // experts are chosen in the groups whose so many best have the largest sum
    float least_sum, factor;        // what is added to the sum that weights are divided by; of weights
    int32_t score, normalised, shared, shared_gated;
    int32_t mapped;                 // whether all but the shared one lie in a file
};

// An expert and the rows that chose it.
struct Chosen {
    int64_t expert, count;
    int64_t first;                 // of its rows, among all that are brought together
    int64_t rows_up, rows_down;    // where their numbers begin, in bytes, as its products take them
    int64_t pieces_up, pieces_down;  // its first piece of all
};

// How many experts of a layer are looked for in memory, and how many pieces the products of its experts have.
struct ExpertPieces {
    int64_t looked, up, down;
};

// Row buffers of the experts of one layer, for n rows and `pairs_of(n)` of a row and an expert.
struct Mixture {
    std::vector<float> normed, shared, logits, weights, y, added;
    std::vector<int32_t> ids, places, sources, counts;
    std::vector<Chosen> list;
    // Of each layer apart: a member of the team that comes late reads how many pieces it has missed when the others may
    // be layers further on.
    std::vector<ExpertPieces> pieces;
    int64_t listed = 0;
    Missing missing;  // of mapped experts
};

inline int64_t pairs_of(const Experts &e, int64_t n) { return n * (e.chosen + (e.shared ? 1 : 0)); }

// The most bytes that the rows of all experts take, where n rows choose.
inline int64_t experts_row_bytes(const Experts &e, int64_t n) {
    int64_t most = 0;
    for (int64_t i = 0; i < e.count + (e.shared ? 1 : 0); i++)
        most = std::max(most, std::max(e.gate_up[i].row_bytes(), e.down[i].row_bytes()));
    const int64_t touched = std::min(e.count, n * e.chosen);
    return (n * e.chosen + (row_room(1) - 1) * touched + row_room(n)) * most;
}

// Numbers that one thread needs beside a row: scores, choices, and those of groups.
inline int64_t experts_scratch(const Experts &e) { return 2 * round_up(e.count, LANES) + 2 * e.groups; }

inline void grow(const Experts &e, int64_t n, int64_t width, Mixture &m) {
    const auto grow = [](auto &v, int64_t size) {
        if (int64_t(v.size()) < size) v.resize(size);
    };
    int64_t up = 0;
    for (int64_t i = 0; i < e.count; i++) up = std::max(up, e.gate_up[i].results);
    const int64_t shared = e.shared ? std::max(e.gate_up[e.count].results, width) : 0;
    grow(m.normed, n * width);
    if (e.input_norm.kind) grow(m.shared, n * width);
    grow(m.logits, n * e.router.outputs + LANES);
    grow(m.weights, n * e.chosen);
    grow(m.y, n * e.chosen * std::max(up, width) + n * shared);
    grow(m.added, n * width);
    grow(m.ids, n * e.chosen);
    grow(m.places, n * e.chosen);
    grow(m.sources, pairs_of(e, n));
    grow(m.counts, e.count + 1);
    grow(m.list, std::min(e.count, n * e.chosen) + 1);
}

// The k largest of `numbers` [n], the lower index first where two are alike, into `indices` [k].
template <class I>
inline void largest_of(const float *numbers, int64_t n, int64_t k, I *indices) {
    int64_t held = 0;
    for (int64_t i = 0; i < n; i++) {
        if (held == k && !(numbers[i] > numbers[indices[k - 1]])) continue;
        int64_t at = held < k ? held++ : k - 1;
        for (; at > 0 && numbers[i] > numbers[indices[at - 1]]; at--) indices[at] = indices[at - 1];
        indices[at] = I(i);
    }
}

// e^(x - peak) in place of `numbers` [n], and their sum.
inline float softmax_terms(float *numbers, int64_t n) {
    float peak = numbers[0];
    for (int64_t i = 1; i < n; i++) peak = numbers[i] > peak ? numbers[i] : peak;
    float total = 0;
    for (int64_t i = 0; i < n; i += LANES) {
        float some[LANES] = {};
        const int64_t count = n - i < LANES ? n - i : LANES;
        std::memcpy(some, numbers + i, count * sizeof(float));
        store(some, exponential(load(some) - peak));
        std::memcpy(numbers + i, some, count * sizeof(float));
        for (int64_t j = 0; j < count; j++) total += some[j];
    }
    return total;
}

constexpr int64_t EXPERT_GROUPS = 64, GROUP_BEST = 2;  // the most, as in recipes/experts.py

// Choices outside of the groups that are kept become minus infinity.
inline void keep_groups(const Experts &e, float *choice, float *scratch) {
    const int64_t size = e.count / e.groups;
    float *sums = scratch;
    int32_t kept[EXPERT_GROUPS], best[GROUP_BEST];
    for (int64_t g = 0; g < e.groups; g++) {
        largest_of(choice + g * size, size, e.group_best, best);
        sums[g] = 0;
        for (int64_t i = 0; i < e.group_best; i++) sums[g] += choice[g * size + best[i]];
    }
    largest_of(sums, e.groups, e.groups_kept, kept);
    float *is_kept = scratch + e.groups;
    for (int64_t g = 0; g < e.groups; g++) is_kept[g] = 0;
    for (int64_t i = 0; i < e.groups_kept; i++) is_kept[kept[i]] = 1;
    for (int64_t g = 0; g < e.groups; g++)
        for (int64_t i = 0; i < size && !is_kept[g]; i++) choice[g * size + i] = -__builtin_inff();
}

// The experts of one row by its logits, their indices rising, and their weights.
inline void choose(const Experts &e, const float *logits, float *scratch, int32_t *ids, float *weights) {
    float *scores = scratch, *choice = scores + round_up(e.count, LANES);
    const size_t bytes = e.count * sizeof(float);
    std::memcpy(scores, logits, bytes);
    if (e.score == SOFTMAX) {
        const float total = softmax_terms(scores, e.count);
        for (int64_t i = 0; i < e.count; i++) scores[i] /= total;
    }
    if (e.score == SIGMOID)
        for (int64_t i = 0; i < e.count; i += LANES) store(scores + i, sigmoid(load(scores + i)));
    std::memcpy(choice, scores, bytes);
    if (e.choice_bias)
        for (int64_t i = 0; i < e.count; i++) choice[i] += e.choice_bias[i];
    if (e.groups > 1) keep_groups(e, choice, choice + round_up(e.count, LANES));
    largest_of(choice, e.count, e.chosen, ids);
    for (int64_t i = 1; i < e.chosen; i++) {
        const int32_t id = ids[i];
        int64_t at = i;
        for (; at > 0 && ids[at - 1] > id; at--) ids[at] = ids[at - 1];
        ids[at] = id;
    }
    for (int64_t i = 0; i < e.chosen; i++) weights[i] = scores[ids[i]];
    float total = 0;
    if (e.score == CHOSEN)
        total = softmax_terms(weights, e.chosen);
    else if (e.normalised) {
        for (int64_t i = 0; i < e.chosen; i++) total += weights[i];
        total += e.least_sum;
    }
    for (int64_t i = 0; i < e.chosen; i++) {
        if (e.score == CHOSEN || e.normalised) weights[i] /= total;
        weights[i] *= e.factor;
        if (e.expert_factors) weights[i] *= e.expert_factors[ids[i]];
    }
}

// Brings the rows of each expert together: fills in all of `m` but its numbers.
inline void gather_choices(const Experts &e, int64_t n, int64_t threads, Mixture &m, ExpertPieces &pieces) {
    int32_t *begins = m.counts.data();
    std::fill(begins, begins + e.count + 1, 0);
    for (int64_t i = 0; i < n * e.chosen; i++) begins[m.ids[i] + 1]++;
    m.listed = 0;
    pieces = ExpertPieces{};
    int64_t up = 0, down = 0;
    const auto list = [&](int64_t expert, int64_t first, int64_t count) {
        const Product &to = e.gate_up[expert], &from = e.down[expert];
        m.list[m.listed++] = Chosen{expert, count, first, up, down, pieces.up, pieces.down};
        up += row_room(count) * to.row_bytes();
        down += row_room(count) * from.row_bytes();
        pieces.up += pieces_of(to, count, threads);
        pieces.down += pieces_of(from, count, threads);
    };
    for (int64_t expert = 0; expert < e.count; expert++) {
        const int64_t count = begins[expert + 1];
        begins[expert + 1] += begins[expert];
        if (count) list(expert, begins[expert], count);
    }
    for (int64_t i = 0; i < n * e.chosen; i++) {
        const int32_t place = begins[m.ids[i]]++;
        m.places[i] = place;
        m.sources[place] = int32_t(i / e.chosen);
    }
    if (e.mapped && m.missing.suspected()) pieces.looked = m.listed;
    if (!e.shared) return;
    list(e.count, n * e.chosen, n);
    for (int64_t r = 0; r < n; r++) m.sources[n * e.chosen + r] = int32_t(r);
}

// The list's entry of a row that was brought together, or of a piece: the last that begins no later.
template <int64_t Chosen::*BEGIN>
inline const Chosen &chosen_at(const Mixture &m, int64_t at) {
    int64_t low = 0, high = m.listed;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        (m.list[middle].*BEGIN <= at ? low : high) = middle;
    }
    return m.list[low];
}

// Of n rows, whose normed numbers stand in m (see `Mixture`), and as the router takes them in `rows`: what the layer adds,
// into m.added. Of the scratch it takes a row, and `experts_scratch`. Returns in `touched` how many experts were chosen,
// without the shared one, beside what stands there. layer: of the model, counting from 0.
inline void mix_experts(Member &team, const Experts &e, int64_t layer, int64_t n, int64_t width, Mixture &m, float *scratch,
                        float *sums, uint8_t *rows, float *scale, int64_t *touched) {
    ExpertPieces &pieces = m.pieces[layer];
    const int64_t logits = e.router.outputs, pairs = pairs_of(e, n), routed = n * e.chosen;
    multiply(team, e.router, rows, scale, n, sums, m.logits.data());
    team.each(n, [&](int64_t r) {
        choose(e, m.logits.data() + r * logits, scratch, m.ids.data() + r * e.chosen, m.weights.data() + r * e.chosen);
    });
    team.pieces(1, [&](int64_t) {
        gather_choices(e, n, team.threads(), m, pieces);
        *touched += m.listed - (e.shared ? 1 : 0);
    });
    if (e.mapped)
        team.pieces(2 * pieces.looked, [&](int64_t i) {
            const Product *of = i < pieces.looked ? e.gate_up + m.list[i].expert : e.down + m.list[i - pieces.looked].expert;
            for (; of; of = of->more) m.missing.look(of->weights, weight_bytes(*of));
        });
    team.each(pairs, [&](int64_t p) {
        const Chosen &of = chosen_at<&Chosen::first>(m, p);
        const float *from = (of.expert == e.count && e.input_norm.kind ? m.shared : m.normed).data() + m.sources[p] * width;
        convert_row(e.gate_up[of.expert], from, p - of.first, of.count, rows + of.rows_up, scale + of.first);
    });
    const int64_t results = e.gate_up[0].results;  // of all but the shared one, which comes last
    team.pieces(pieces.up, [&](int64_t piece) {
        const Chosen &of = chosen_at<&Chosen::pieces_up>(m, piece);
        multiply_piece(e.gate_up[of.expert], piece - of.pieces_up, rows + of.rows_up, scale + of.first, of.count,
                       team.threads(), sums, m.y.data() + of.first * results);
    });
    team.each(pairs, [&](int64_t p) {
        const Chosen &of = chosen_at<&Chosen::first>(m, p);
        const Product &next = e.down[of.expert];
        const float *y = m.y.data() + of.first * results + (p - of.first) * e.gate_up[of.expert].results;
        gate_row(e.gate, y, next.inputs, scratch);
        convert_row(next, scratch, p - of.first, of.count, rows + of.rows_down, scale + of.first);
    });
    team.pieces(pieces.down, [&](int64_t piece) {
        const Chosen &of = chosen_at<&Chosen::pieces_down>(m, piece);
        multiply_piece(e.down[of.expert], piece - of.pieces_down, rows + of.rows_down, scale + of.first, of.count,
                       team.threads(), sums, m.y.data() + of.first * width);
    });
    team.each(n, [&](int64_t r) {
        float *to = m.added.data() + r * width;
        const int32_t *places = m.places.data() + r * e.chosen;
        const float *weights = m.weights.data() + r * e.chosen;
        for (int64_t i = 0; i < width; i += LANES) {
            Vec sum = {};
            for (int64_t k = 0; k < e.chosen; k++) sum = sum + load(m.y.data() + places[k] * width + i) * weights[k];
            store(to + i, sum);
        }
        if (e.output_norm.kind) norm_row(to, e.output_norm, width, to);
        if (!e.shared) return;
        float *shared = m.y.data() + (routed + r) * width;
        if (e.shared_norm.kind) norm_row(shared, e.shared_norm, width, shared);
        float by = 1.0f;
        if (e.shared_gated) {
            float gate[LANES];
            store(gate, sigmoid(splat(m.logits[r * logits + e.count])));
            by = gate[0];
        }
        for (int64_t i = 0; i < width; i += LANES) store(to + i, load(to + i) + load(shared + i) * by);
    });
}
