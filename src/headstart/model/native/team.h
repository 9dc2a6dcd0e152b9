// How the members of a team share out the work of a forward.
//
// All members run the same code. Where work is shared they call `pieces` or `each`: every member has a range of the pieces,
// takes them one by one from its front and, when it has none left, takes from the backs of the others' ranges. The call
// returns when all pieces are done, not when all members have come: what a member has missed it passes by.
//
// So a member holds the others up only while it holds a piece, and a system that gives its core to another program takes it
// away at such a moment, for milliseconds. A member that has run for long therefore offers its core between two pieces: if
// another program waits for it, that one has its turn while the member holds nothing.
//
// Who computes a piece changes no bit of it: pieces write to places of their own and depend on nothing that is shared out at
// the same time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

constexpr int MOST_MEMBERS = 256;

// Nanoseconds that a member runs before it offers its core, and that it waits for a piece of another's before it does. Linux
// with its usual settings gives a program a core for 3 to 4 ms and, of two of the same weight, takes it away hardly ever
// before 1.4.
constexpr int64_t RUNS = 1000000, WAITS = 200000;

// Looks at another's range before a member that has not begun is held to be away: it may be on its way.
constexpr int GRACE = 16;

inline int64_t nanoseconds() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Tells the processor that a loop waits for memory to change.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
}

// A function that the compiler writes once and calls. Written into each place that does a piece, it would be compiled once for
// each of them, and which product goes into a sum unrounded may differ: then bits would depend on who does a piece.
#if defined(__clang__)
#define HEADSTART_ONCE __attribute__((noinline))
#else
#define HEADSTART_ONCE __attribute__((noinline, noclone))
#endif

// What a forward's time goes to. `WAITING`: what a member waits for pieces that others hold, wherever that is.
enum class Part { START, NORMS, QKV, ROTATION, ATTENTION, RECURRENCE, OUT, GATE_UP, ACTIVATION, DOWN, EXPERTS, HEAD, WAITING };
constexpr int PARTS = int(Part::WAITING) + 1;

// Where the nanoseconds of each member's parts are added up, [members][PARTS]; null: nobody looks at a clock.
inline int64_t *part_times = nullptr;

// What the members of a team have in common.
struct Team {
    struct alignas(64) Range {
        std::atomic<uint64_t> word;  // of a member: see `Member::packed`
    };

    explicit Team(int64_t threads) : threads(threads) {
        for (int64_t t = 0; t < threads; t++) ranges[t].word.store(0, std::memory_order_relaxed);
    }

    const int64_t threads;
    alignas(64) std::atomic<int64_t> done{0};  // pieces, of all phases so far
    Range ranges[MOST_MEMBERS];
};

class Member {
  public:
    // number: of this member, from 0.
    Member(Team &team, int64_t number)
        : team(team), me(number), since(nanoseconds()), times(part_times ? part_times + number * PARTS : nullptr),
          part_since(since) {}
    Member(const Member &) = delete;
    ~Member() { begin(Part::START); }

    // From here on its time is that of another part.
    void begin(Part next) {
        if (!times) return;
        const int64_t at = nanoseconds();
        times[int(part)] += at - part_since;
        part_since = at;
        part = next;
    }

    int64_t number() const { return me; }
    int64_t threads() const { return team.threads; }

    // body(piece) for every piece below count, which is below 2^20.
    template <class Body>
    void pieces(int64_t count, const Body &body) {
        if (team.threads == 1) {
            for (int64_t piece = 0; piece < count; piece++) once(body, piece);
            return;
        }
        phase++;
        share = count;
        total += count;
        if (complete()) return;
        for (int64_t piece; (piece = take_front()) != NONE;) {
            once(body, piece);
            held++;
            offer();
        }
        report();
        take_from_others(body);
        wait();
    }

    // body(n) for every n below count.
    template <class Body>
    void each(int64_t count, const Body &body) {
        const int64_t together = (count >> 20) + 1;
        pieces((count + together - 1) / together, [&](int64_t piece) {
            const int64_t end = (piece + 1) * together;
            for (int64_t n = piece * together; n < (end < count ? end : count); n++) body(n);
        });
    }

  private:
    static constexpr int64_t NONE = -1, UNBEGUN = -2;
    static constexpr uint64_t PART = (1 << 20) - 1, PHASES = (1 << 24) - 1;

    template <class Body>
    HEADSTART_ONCE static void once(const Body &body, int64_t piece) {
        body(piece);
    }

    // A range [from, to) of the pieces of a phase, in one word, so that each of them is taken once.
    uint64_t packed(int64_t from, int64_t to) const { return phase << 40 | uint64_t(from) << 20 | uint64_t(to); }

    // The range of a member as the word says. Before anyone has taken from it the word is an earlier phase's, and it is the
    // member's whole share; a later phase's, if this member is late. Returns whether it has been begun.
    bool unpack(uint64_t word, int64_t member, int64_t *from, int64_t *to) const {
        const uint64_t later = ((word >> 40) - phase) & PHASES;
        if (later > PHASES / 2) {
            *from = (share * member + team.threads - 1) / team.threads;
            *to = (share * (member + 1) + team.threads - 1) / team.threads;
            return false;
        }
        *from = later ? 0 : int64_t(word >> 20 & PART);
        *to = later ? 0 : int64_t(word & PART);
        return true;
    }

    int64_t take_front() {
        std::atomic<uint64_t> &range = team.ranges[me].word;
        uint64_t word = range.load(std::memory_order_acquire);
        for (int64_t from, to;;) {
            unpack(word, me, &from, &to);
            if (from >= to) return NONE;
            if (range.compare_exchange_weak(word, packed(from + 1, to), std::memory_order_acq_rel)) return from;
        }
    }

    // The last piece of another's range. away: also if that member has not begun.
    int64_t take_back(int64_t other, bool away) {
        std::atomic<uint64_t> &range = team.ranges[other].word;
        uint64_t word = range.load(std::memory_order_acquire);
        for (int64_t from, to;;) {
            const bool begun = unpack(word, other, &from, &to);
            if (from >= to) return NONE;
            if (!begun && !away) return UNBEGUN;
            if (range.compare_exchange_weak(word, packed(from, to - 1), std::memory_order_acq_rel)) return to - 1;
        }
    }

    template <class Body>
    void take_from_others(const Body &body) {
        bool left = true;
        for (int looks = 0; left && !complete(); looks++, relax()) {
            left = false;
            for (int64_t step = 1; step < team.threads; step++) {
                const int64_t other = (me + step) % team.threads;
                int64_t piece;
                while ((piece = take_back(other, looks >= GRACE)) >= 0) {
                    once(body, piece);
                    held++;
                    report();
                    offer();
                }
                left |= piece == UNBEGUN;
            }
        }
    }

    // Until the pieces that others hold are done.
    void wait() {
        const Part before = part;
        begin(Part::WAITING);
        int64_t began = 0;
        for (int spins = 1; !complete(); spins++, relax()) {
            if (spins % 64) continue;
            const int64_t at = nanoseconds();
            if (!began) began = at;
            if (at - began > WAITS) since = at - RUNS;
            offer();
        }
        begin(before);
    }

    bool complete() const { return team.done.load(std::memory_order_acquire) >= total; }

    // The others know of the pieces that are done.
    void report() {
        if (held) team.done.fetch_add(held, std::memory_order_acq_rel);
        held = 0;
    }

    // The core, if this member has run for long. It returns at once where no other program wants it.
    void offer() {
        if (nanoseconds() - since < RUNS) return;
        report();
        std::this_thread::yield();
        since = nanoseconds();
    }

    Team &team;
    const int64_t me;
    int64_t since;              // when it last came to its core, as far as it knows
    uint64_t phase = 0;         // of the work that is shared out: a call of `pieces`
    int64_t share = 0;          // its pieces
    int64_t total = 0, held = 0;  // pieces up to the end of the phase; done, but not yet reported
    int64_t *const times;
    int64_t part_since;
    Part part = Part::START;
};
