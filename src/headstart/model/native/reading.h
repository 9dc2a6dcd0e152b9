// Reading memory and doing nothing with it: what a product of one row would take if arithmetic took no time.
#pragma once

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
