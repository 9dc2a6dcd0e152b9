// The rows of a packed batch as the kernels read them: what each is, where it lies, and which tokens it sees.
//
// A draft's levels have a few rows each and a forward of a head little time, in which a loop of Python for each number would
// take a good part.
#pragma once

#include <algorithm>
#include <cstdint>

// The array that rows are laid out in. Of each row its token, position, slot, place in its slot and, of judged rows, its number
// [room]; where segments begin and the last ends [room + 1]; the depths of a draft's nodes [room]; then for each window of
// attention what each row sees: first, last [room], extra_begin [room + 1], extra [more]. A row sees the tokens [first, last) of
// its slot. If it is a node of a draft that is no chain, it then sees extra[extra_begin[r]] up to the next row's: its ancestors in
// the draft, and itself.
struct RowsRoom {
    int64_t room, more;
    int64_t *ids, *positions, *slots, *places, *judged, *bounds, *depths, *visible;

    RowsRoom(int64_t room, int64_t more, int64_t *out)
        : room(room), more(more), ids(out), positions(ids + room), slots(positions + room), places(slots + room),
          judged(places + room), bounds(judged + room), depths(bounds + room + 1), visible(depths + room) {}

    int64_t *window(int64_t number) const { return visible + number * (3 * room + 1 + more); }
};

// given: of each segment its slot, the slot's length, committed tokens, nodes held, nodes and judged rows; then the committed
// tokens, the tokens of the nodes and their parents, each of which comes before its children (`Draft` sees to that). windows: of
// attention, 0 for none. limits: of tokens, positions, slots and places. There is room for the rows and segments, for the nodes of
// each draft, and for what all rows see of drafts that are no chains.
//
// Returns how many rows are judged: one where nobody asks for any, so that no layer sees zero. 0 where there is no row. -1 - part
// where a number of that part is not in [0, limit); the number is then the first of the array.
inline int64_t lay_rows(const int64_t *given, int64_t segments, const int64_t *windows, int64_t window_count,
                        const int64_t *limits, const RowsRoom &to) {
    constexpr int CHECKED = 4;
    int64_t rows = 0, asked = 0;
    to.bounds[0] = 0;
    for (int64_t w = 0; w < window_count; ++w) to.window(w)[2 * to.room] = 0;
    for (int64_t s = 0; s < segments; ++s) {
        const int64_t slot = given[0], start = given[1], causal = given[2], held = given[3], nodes = given[4], wanted = given[5];
        const int64_t *const text = given + 6, *const tokens = text + causal, *const parents = tokens + nodes;
        const int64_t fed = causal + nodes - held, begin = rows, end = start + causal;
        given = parents + nodes;
        if (wanted > fed) return to.ids[0] = fed - wanted, -1 - CHECKED;
        bool chain = true;
        for (int64_t node = 0; node < nodes; ++node) {
            chain &= parents[node] == node - 1;
            to.depths[node] = parents[node] < 0 ? 1 : to.depths[parents[node]] + 1;
        }
        for (int64_t i = 0; i < fed; ++i, ++rows) {
            const int64_t node = i - causal + held;  // or, below `held`, a committed token
            to.ids[rows] = i < causal ? text[i] : tokens[node];
            to.positions[rows] = i < causal ? start + i : end - 1 + to.depths[node];
            to.slots[rows] = slot;
            to.places[rows] = start + held + i;
        }
        for (int64_t row = rows - wanted; row < rows; ++row) to.judged[asked++] = row;
        to.bounds[s + 1] = rows;
        const int64_t plain = chain ? fed : causal;  // a chain is more committed tokens as far as seeing goes
        for (int64_t w = 0; w < window_count; ++w) {
            int64_t *const first = to.window(w), *const last = first + to.room;
            int64_t *const extra_begin = last + to.room, *const extra = extra_begin + to.room + 1;
            for (int64_t r = begin; r < rows; ++r) {
                const int64_t next = to.positions[r] + 1;
                const int64_t oldest = windows[w] ? std::max<int64_t>(0, next - windows[w]) : 0;
                first[r] = oldest;
                last[r] = next;
                extra_begin[r + 1] = extra_begin[r];
                if (r - begin < plain) continue;
                last[r] = std::max(oldest, end);  // where the first of `extra` would lie if its text were consecutive
                int64_t *at = extra + (extra_begin[r + 1] += next - last[r]), node = r - begin - causal + held;
                for (; at > extra + extra_begin[r]; node = parents[node]) *--at = end + node;
            }
        }
    }
    const int64_t *const parts[CHECKED] = {to.ids, to.positions, to.slots, to.places};
    for (int part = 0; part < CHECKED; ++part)
        for (int64_t r = 0; r < rows; ++r)
            if (parts[part][r] < 0 || parts[part][r] >= limits[part]) return to.ids[0] = parts[part][r], -1 - part;
    if (rows && !asked) to.judged[asked++] = rows - 1;
    return rows ? asked : 0;
}
