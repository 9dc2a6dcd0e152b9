// Threads that share out the work of a forward.
//
// All members of a team run the same code. Where work is to be shared they call `pieces` or `each`: every member has a
// range of the pieces, takes them one by one from its front and, when it has none left, takes from the backs of the
// others' ranges. A call returns when all pieces are done, not when all members have come: one whose core has other work
// to do holds the others up no longer than its last piece does, and what it has missed it passes by.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <time.h>

inline int64_t knob(const char *name, int64_t otherwise) {
    const char *v = getenv(name);
    return v ? atoll(v) : otherwise;
}
inline const int64_t MODE = knob("TEAM_MODE", 1);        // 0 nothing, 1 sleep, 2 yield, 3 nothing but waiter sleeps
inline const int64_t SLEEP = knob("TEAM_SLEEP", 1400000);
inline const int64_t BUDGET = knob("TEAM_BUDGET", 1300000);
inline const int64_t LATE = knob("TEAM_LATE", 200000);
inline const int64_t HOLD = knob("TEAM_HOLD", 100000000);
inline const int64_t WAITSLEEP = knob("TEAM_WAITSLEEP", 0);
inline const int64_t GRACE = knob("TEAM_GRACE", 16);

inline int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
}

inline void rest(int64_t ns) {
    struct timespec t = {0, long(ns)};
    nanosleep(&t, nullptr);
}

constexpr int MOST_THREADS = 256;

inline std::atomic<int64_t> crowded_until{0};

struct Pace {
    int64_t start = 0, last = 0, budget = BUDGET, shared_until = 0;
};

struct Stats { int64_t jumps = 0, rests = 0, waits = 0, waited = 0, stolen = 0, late = 0; };
inline thread_local Stats stats;

class Team {
  public:
    explicit Team(int threads) : threads(threads) {
        for (int t = 0; t < threads; t++) ranges[t].word.store(0, std::memory_order_relaxed);
    }

  private:
    friend class Member;
    struct alignas(64) Range {
        std::atomic<uint64_t> word;
    };
    const int threads;
    alignas(64) std::atomic<int64_t> done{0};
    Range ranges[MOST_THREADS];
};

class Member {
  public:
    Member(Team &team, int me, Pace &pace) : team(team), me(me), pace(pace) {}

    const int64_t number() const { return me; }
    int64_t threads() const { return team.threads; }

    // body(piece) for every piece.
    template <class Body>
    void pieces(int64_t count, const Body &body) {
        if (team.threads == 1) {
            for (int64_t n = 0; n < count; n++) body(n);
            return;
        }
        phase++;
        total += count;
        share = count;
        if (team.done.load(std::memory_order_acquire) >= total) { stats.late++; return; }
        int64_t mine = 0;
        for (int64_t n; (n = take_front()) >= 0;) {
            body(n);
            mine++;
            between(mine);
        }
        finish(mine, body);
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
    static uint64_t packed(uint64_t phase, int64_t from, int64_t to) { return phase << 40 | uint64_t(from) << 20 | uint64_t(to); }
    static constexpr uint64_t PART = (1 << 20) - 1;

    int64_t begin_of(int t) const { return (share * t + team.threads - 1) / team.threads; }

    bool read(uint64_t word, int t, int64_t *from, int64_t *to) const {
        const uint64_t ahead = ((word >> 40) - phase) & 0xffffff;
        if (ahead == 0) {
            *from = word >> 20 & PART, *to = word & PART;
            return true;
        }
        if (ahead < 0x800000) {
            *from = *to = 0;
            return true;
        }
        *from = begin_of(t), *to = begin_of(t + 1);
        return false;
    }

    int64_t take_front() {
        std::atomic<uint64_t> &at = team.ranges[me].word;
        uint64_t word = at.load(std::memory_order_relaxed);
        for (;;) {
            int64_t from, to;
            read(word, me, &from, &to);
            if (from >= to) return -1;
            if (at.compare_exchange_weak(word, packed(phase, from + 1, to), std::memory_order_acq_rel, std::memory_order_acquire))
                return from;
        }
    }

    // The last piece of another's range. -1: none; -2: the owner has not begun.
    int64_t take_back(int t, bool unbegun) {
        std::atomic<uint64_t> &at = team.ranges[t].word;
        uint64_t word = at.load(std::memory_order_relaxed);
        for (;;) {
            int64_t from, to;
            const bool begun = read(word, t, &from, &to);
            if (from >= to) return -1;
            if (!begun && !unbegun) return -2;
            if (at.compare_exchange_weak(word, packed(phase, from, to - 1), std::memory_order_acq_rel, std::memory_order_acquire))
                return to - 1;
        }
    }

    template <class Body>
    void finish(int64_t mine, const Body &body) {
        if (mine) team.done.fetch_add(mine, std::memory_order_acq_rel);
        bool more = true;
        int64_t began = 0;
        for (int64_t spins = 0; team.done.load(std::memory_order_acquire) < total; spins++) {
            if (more) {
                more = false;
                for (int step = 1; step < team.threads; step++) {
                    const int t = (me + step) % team.threads;
                    int64_t n;
                    while ((n = take_back(t, spins > GRACE)) >= 0) {
                        body(n);
                        stats.stolen++;
                        team.done.fetch_add(1, std::memory_order_acq_rel);
                        int64_t none = 0;
                        between(none);
                    }
                    more |= n == -2;
                }
                relax();
                continue;
            }
            relax();
            if (spins % 64 == 63) {
                const int64_t at = now();
                if (!began) began = at;
                if (at - began > LATE) {
                    if (began > 0) stats.waits++;
                    crowded_until.store(at + HOLD, std::memory_order_relaxed);
                    if (WAITSLEEP) rest(WAITSLEEP); else std::this_thread::yield();
                }
            }
        }
        if (began) stats.waited += now() - began;
    }

    // Between two pieces, while cores are wanted by others too.
    void between(int64_t &mine) {
        const int64_t until = crowded_until.load(std::memory_order_relaxed);
        if (!until || !MODE) return;
        const int64_t at = now();
        if (at > until) {
            pace.last = 0;
            return;
        }
        if (pace.last && at - pace.last > 500000 && at - pace.last < 50000000) {
            stats.jumps++;
            const int64_t ran = (pace.last - pace.start) * 9 / 10;
            if (ran < pace.budget) pace.budget = ran;
            if (pace.budget < 200000) pace.budget = 200000;
            pace.start = at;
            pace.shared_until = at + HOLD;
        }
        pace.last = at;
        if (at < pace.shared_until && at - pace.start > pace.budget) {
            if (mine) team.done.fetch_add(mine, std::memory_order_acq_rel);
            mine = 0;
            stats.rests++;
            if (MODE == 1) rest(SLEEP); else if (MODE == 2) std::this_thread::yield();
            pace.start = pace.last = now();
            pace.budget += pace.budget / 50;
            if (pace.budget > 10000000) pace.budget = 10000000;
        }
    }

    Team &team;
    const int me;
    Pace &pace;
    uint64_t phase = 0;
    int64_t total = 0, share = 0;
};

// -- where the threads come from ---------------------------------------------------------------------------------------

typedef void (*Parallel)(void (*)(void *), void *, unsigned, unsigned);
inline Parallel parallel_of_torch = nullptr;
inline int (*number_of_torch)() = nullptr;

template <class Body>
struct Region {
    Team team;
    const Body &body;
    static void enter(void *p) {
        static thread_local Pace pace;
        Region &r = *(Region *)p;
        Member member(r.team, number_of_torch(), pace);
        r.body(member);
    }
};

template <class Body>
void run(int64_t threads, const Body &body) {
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads < 1 || !parallel_of_torch) threads = 1;
    if (threads == 1) {
        Team team(1);
        static thread_local Pace pace;
        Member one(team, 0, pace);
        body(one);
        return;
    }
    Region<Body> region{Team(int(threads)), body};
    parallel_of_torch(&Region<Body>::enter, &region, unsigned(threads), 0);
}
