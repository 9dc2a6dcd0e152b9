// The rows of a packed batch as the row kernels read them: what each is, where it lies, and whom it sees.
//
// A draft's levels have a few rows each and a forward of a head little time, in which a loop of Python for each number would
// take a good part.

#include <algorithm>
#include <cstdint>
#include <vector>

// given: of each segment its slot, the slot's length, committed tokens, nodes held, nodes and judged rows; then the committed
// tokens, the tokens of the nodes and their parents. windows: of attention, 0 for none. limits: of tokens, positions, slots and
// places. out: ids, positions, slots, places and judged rows [room] each, where segments begin and the last ends [room + 1]; and
// for each window whom each row sees, in the order of the text: first, last [room], extra_begin [room + 1], extra [more]. These are
// the tokens [first, last) of its slot, then extra[extra_begin[r]] up to the next row's, which are its ancestors in a draft that is
// no chain, and itself.
//
// Returns how many rows are judged: one where nobody asks for any, so that no layer sees zero. 0 where there is no row; -1 - part
// where a number of that part is outside its limit, which is then out[0].
extern "C" int64_t headstart_rows(const int64_t *given, int64_t segments, const int64_t *windows, int64_t window_count, const int64_t *limits, int64_t room, int64_t more, int64_t *out) {
    constexpr int CHECKED = 4;
    int64_t *const ids = out, *const positions = ids + room, *const slots = positions + room, *const places = slots + room;
    int64_t *const judged = places + room, *const bounds = judged + room, *const visible = bounds + room + 1;
    int64_t rows = 0, asked = 0;
    std::vector<int64_t> depths;
    bounds[0] = 0;
    for (int64_t w = 0; w < window_count; ++w) visible[w * (3 * room + 1 + more) + 2 * room] = 0;
    for (int64_t s = 0; s < segments; ++s) {
        const int64_t slot = given[0], start = given[1], causal = given[2], held = given[3], nodes = given[4], wanted = given[5];
        const int64_t *const text = given + 6, *const tokens = text + causal, *const parents = tokens + nodes;
        const int64_t fed = causal + nodes - held, begin = rows, end = start + causal;
        given = parents + nodes;
        if (wanted > fed) return out[0] = fed - wanted, -1 - CHECKED;
        bool chain = true;
        depths.resize(nodes);
        for (int64_t node = 0; node < nodes; ++node) {
            chain &= parents[node] == node - 1;
            depths[node] = parents[node] < 0 ? 1 : depths[parents[node]] + 1;
        }
        for (int64_t i = 0; i < fed; ++i, ++rows) {
            const int64_t node = i - causal + held;  // or, below `held`, a committed token
            ids[rows] = i < causal ? text[i] : tokens[node];
            positions[rows] = i < causal ? start + i : end - 1 + depths[node];
            slots[rows] = slot;
            places[rows] = start + held + i;
        }
        for (int64_t row = rows - wanted; row < rows; ++row) judged[asked++] = row;
        bounds[s + 1] = rows;
        const int64_t plain = chain ? fed : causal;  // a chain is more committed tokens as far as seeing goes
        for (int64_t w = 0; w < window_count; ++w) {
            int64_t *const first = visible + w * (3 * room + 1 + more), *const last = first + room;
            int64_t *const extra_begin = last + room, *const extra = extra_begin + room + 1;
            for (int64_t r = begin; r < rows; ++r) {
                const int64_t next = positions[r] + 1, oldest = windows[w] ? std::max<int64_t>(0, next - windows[w]) : 0;
                first[r] = oldest;
                last[r] = next;
                extra_begin[r + 1] = extra_begin[r];
                if (r - begin < plain) continue;
                last[r] = std::max(oldest, end);  // where the first of `extra` would lie if its text were consecutive
                int64_t *to = extra + (extra_begin[r + 1] += next - last[r]);
                for (int64_t node = r - begin - causal + held; to > extra + extra_begin[r]; node = parents[node]) *--to = end + node;
            }
        }
    }
    const int64_t *const parts[CHECKED] = {ids, positions, slots, places};
    for (int part = 0; part < CHECKED; ++part)
        for (int64_t r = 0; r < rows; ++r)
            if (parts[part][r] < 0 || parts[part][r] >= limits[part]) return out[0] = parts[part][r], -1 - part;
    if (rows && !asked) judged[asked++] = rows - 1;
    return rows ? asked : 0;
}
