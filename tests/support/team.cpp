// Teams at work, alone and two at once, with members that are late, away for long, or more than there are cores: every piece
// must be done once, and after all pieces of the phase before. Run by test_team.py, with the thread sanitizer where there is one.

#include <sys/resource.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "threads.h"

constexpr int64_t PHASES = 200, MOST = 97;

int64_t expected(int64_t phase) { return phase * 31 % MOST; }  // pieces; sometimes none

void fail(const char *what, int64_t phase, int64_t piece) {
    std::printf("%s: phase %ld, piece %ld\n", what, long(phase), long(piece));
    std::_Exit(1);
}

// Each phase adds up what the one before has written, and has as many pieces as that one has found out, without any
// synchronisation but the team's. sleepy: a member that
// sleeps in and between its pieces, so that the others take its range and pass it by; or -1.
void work(int64_t threads, int64_t sleepy) {
    std::vector<int64_t> written[2] = {std::vector<int64_t>(MOST), std::vector<int64_t>(MOST)};
    std::vector<int64_t> times(MOST), counted(PHASES + 1);  // counted: pieces of each phase, as the one before found out
    counted[1] = expected(1);
    int64_t out_of_order = 0;
    run(threads, [&](Member &team) {
        const auto nap = [&](int64_t at) {
            if (team.number() == sleepy && at % 37 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
        };
        for (int64_t phase = 1; phase < PHASES; phase++) {
            nap(phase);
            team.each(counted[phase], [&](int64_t piece) {
                nap(phase * piece + 1);
                int64_t before = 0;
                for (int64_t n = 0; n < expected(phase - 1); n++) before += written[(phase - 1) % 2][n];
                if (before != (phase - 1) * expected(phase - 1)) fail("a phase began too early", phase, piece);
                written[phase % 2][piece] = phase;
                times[piece]++;
            });
            team.pieces(1, [&](int64_t) {
                for (int64_t n = 0; n < MOST; n++)
                    if (times[n] != (n < expected(phase))) fail("not done once", phase, n);
                times.assign(MOST, 0);
                out_of_order += phase;
                counted[phase + 1] = expected(phase + 1);
            });
        }
    });
    if (out_of_order != PHASES * (PHASES - 1) / 2) fail("phases", out_of_order, 0);
}

double processor_seconds() {
    rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

int main() {
    for (int64_t threads : {1, 2, 3, 5, 16, 1000})
        for (int64_t sleepy : {-1, 0, 1, 4}) work(threads, sleepy);
    run(3, [&](Member &team) {  // more items than there can be pieces
        static std::atomic<int64_t> sum{0};
        team.each(3000000, [&](int64_t n) { sum.fetch_add(n, std::memory_order_relaxed); });
        if (sum != 3000000LL * 2999999 / 2) fail("many items", sum, 0);
    });

    std::thread other([] {
        for (int n = 0; n < 20; n++) work(3, 1);
    });
    for (int n = 0; n < 20; n++) work(2, -1);
    other.join();

    const double before = processor_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const double idle = processor_seconds() - before;
    if (idle > 0.1) fail("a crew without work took milliseconds of a half second", int64_t(idle * 1000), 0);

#if !defined(__SANITIZE_THREAD__)  // which does not follow a process that forks with threads
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        work(3, 1);
        std::exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0) fail("the child of a fork", status, 0);
#endif
    work(3, -1);
    std::printf("ran to the end\n");
}
