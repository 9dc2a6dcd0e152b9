// Reading memory and doing nothing with it: what a product of one row would take if arithmetic took no time. And having
// memory read from a file before it is needed.
#pragma once

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#endif

#include "simd/simd.h"
#include "threads.h"

// Places from which a member reads side by side. Processors fetch ahead within a page of 4 KiB, and begin slowly on the next
// one, so that one place after another is read at four fifths of the speed.
constexpr int STREAMS = 8;

constexpr int64_t READ_TOGETHER = 1 << 20;  // bytes that a member takes at a time

// The bits that some byte of four has, of whole streams of cache lines.
inline Words read_streams(const uint8_t *from, int64_t bytes) {
    const int64_t each = bytes / STREAMS;
    Words found[STREAMS] = {};
    for (int64_t i = 0; i < each; i += 64)
        HEADSTART_UNROLL
        for (int s = 0; s < STREAMS; s++) found[s] = found[s] | load_codes(from + s * each + i);
    HEADSTART_UNROLL
    for (int s = 1; s < STREAMS; s++) found[0] = found[0] | found[s];
    return found[0];
}

// Reads so many bytes, of which less than a line for each stream may be left out. The result is of no use but to have them read.
inline uint32_t read_bytes(const uint8_t *from, int64_t bytes, int64_t threads) {
    constexpr int64_t UNIT_OF_STREAMS = STREAMS * 64;
    const int64_t pieces = (bytes + READ_TOGETHER - 1) / READ_TOGETHER;
    std::atomic<uint32_t> any{0};
    run(threads, [&](Member &team) {
        team.pieces(pieces, [&](int64_t piece) {
            const int64_t begin = piece * bytes / pieces / UNIT_OF_STREAMS * UNIT_OF_STREAMS;
            const int64_t end = (piece + 1) * bytes / pieces / UNIT_OF_STREAMS * UNIT_OF_STREAMS;
            const Words found = read_streams(from + begin, end - begin);
            uint32_t word = 0;
            for (int i = 0; i < LANES; i++) word |= found[i];
            any.fetch_or(word, std::memory_order_relaxed);
        });
    });
    return any.load();
}

// Whether parts of mapped files may not be in memory. To look takes as long as a hundredth of a forward, so nobody looks
// while the process has waited for no page and the last look has found all that it looked for.
struct Missing {
    int64_t faults = -1;            // pages that the process has waited for so far
    std::atomic<bool> found{true};  // by the last look

    bool suspected() {
#if defined(__linux__)
        rusage used;
        getrusage(RUSAGE_SELF, &used);
        const bool waited = used.ru_majflt != faults;
        faults = used.ru_majflt;
        return found.exchange(false, std::memory_order_relaxed) || waited;
#else
        return false;
#endif
    }

    // Looks at a few pages of so many bytes, since what was read together was mostly given up together. Where one is missing
    // all are read from the disk: at once, and while this goes on. A forward that comes to a page that is missing would
    // otherwise wait for it, page after page.
    void look(const void *memory, int64_t bytes) {
#if defined(__linux__)
        static const uintptr_t page = sysconf(_SC_PAGESIZE);
        const uintptr_t begin = uintptr_t(memory) / page * page, pages = (uintptr_t(memory) + bytes - begin + page - 1) / page;
        for (const uintptr_t at : {uintptr_t(0), pages / 2, pages - 1}) {
            unsigned char held = 1;
            if (mincore((void *)(begin + at * page), page, &held) || held & 1) continue;
            found.store(true, std::memory_order_relaxed);
            madvise((void *)begin, pages * page, MADV_WILLNEED);
            return;
        }
#else
        (void)memory, (void)bytes;
#endif
    }
};
