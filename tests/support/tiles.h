// The instructions of the processor's tiles (AMX) in plain C++, for processors that have none. Included before the kernels'
// sources, which then see a processor that has them; `tiles.py` says how. Tiles that are not configured, and products of tiles of
// forms that do not fit, end the process. Sums of bf16 are added one by one, so their last bits may be other than a processor's.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#define __AMX_TILE__ 1
#define __AMX_INT8__ 1
#define __AMX_BF16__ 1
#define syscall(...) 0  // Linux permits them

struct EmulatedTiles {
    uint8_t config[64] = {}, data[8][16][64] = {};

    int rows(int tile) const { return config[48 + tile]; }
    int bytes(int tile) const { return config[16 + 2 * tile] | config[17 + 2 * tile] << 8; }

    void configure(const void *from) {
        if (from)
            std::memcpy(config, from, sizeof config);
        else
            std::memset(config, 0, sizeof config);
        std::memset(data, 0, sizeof data);
        for (int tile = 0; tile < 8; tile++)
            if (rows(tile) > 16 || bytes(tile) > 64) __builtin_trap();
    }

    void check(int tile) const {
        if (config[0] != 1 || !rows(tile)) __builtin_trap();
    }

    void zero(int tile) {
        check(tile);
        std::memset(data[tile], 0, sizeof data[tile]);
    }

    void load(int tile, const void *from, int64_t stride) {
        zero(tile);
        for (int r = 0; r < rows(tile); r++) std::memcpy(data[tile][r], (const char *)from + r * stride, bytes(tile));
    }

    void store(int tile, void *to, int64_t stride) const {
        check(tile);
        for (int r = 0; r < rows(tile); r++) std::memcpy((char *)to + r * stride, data[tile][r], bytes(tile));
    }

    // sums += a b, four bytes of a row of `a` at a time, each with a row of `b`: add(sum, bytes of a, bytes of b).
    template <class Number, class Add>
    void multiply(int sums, int a, int b, Add add) {
        check(sums);
        if (rows(a) != rows(sums) || 4 * rows(b) != bytes(a) || bytes(b) != bytes(sums)) __builtin_trap();
        for (int m = 0; m < rows(sums); m++)
            for (int n = 0; n < bytes(sums); n += 4) {
                Number sum;
                std::memcpy(&sum, data[sums][m] + n, sizeof sum);
                for (int k = 0; k < bytes(a); k += 4) sum = add(sum, data[a][m] + k, data[b][k / 4] + n);
                std::memcpy(data[sums][m] + n, &sum, sizeof sum);
            }
    }

    template <class A, class B>
    void multiply_bytes(int sums, int a, int b) {
        multiply<int32_t>(sums, a, b, [](int32_t sum, const uint8_t *x, const uint8_t *y) {
            for (int i = 0; i < 4; i++) sum += int32_t(A(x[i])) * int32_t(B(y[i]));
            return sum;
        });
    }

    static float number(const uint8_t *from) {
        uint16_t half;
        std::memcpy(&half, from, sizeof half);
        const uint32_t word = uint32_t(half) << 16;
        float value;
        std::memcpy(&value, &word, sizeof value);
        return value;
    }

    void multiply_pairs(int sums, int a, int b) {
        multiply<float>(sums, a, b, [](float sum, const uint8_t *x, const uint8_t *y) {
            return std::fma(number(x + 2), number(y + 2), std::fma(number(x), number(y), sum));
        });
    }
};

inline thread_local EmulatedTiles emulated_tiles;

#undef _tile_loadconfig
#undef _tile_storeconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbusd
#undef _tile_dpbsud
#undef _tile_dpbssd
#undef _tile_dpbf16ps
#define _tile_loadconfig(from) emulated_tiles.configure(from)
#define _tile_storeconfig(to) std::memcpy(to, emulated_tiles.config, 64)
#define _tile_release() emulated_tiles.configure(nullptr)
#define _tile_zero(tile) emulated_tiles.zero(tile)
#define _tile_loadd(tile, from, stride) emulated_tiles.load(tile, from, stride)
#define _tile_stored(tile, to, stride) emulated_tiles.store(tile, to, stride)
#define _tile_dpbusd(sums, a, b) emulated_tiles.multiply_bytes<uint8_t, int8_t>(sums, a, b)
#define _tile_dpbsud(sums, a, b) emulated_tiles.multiply_bytes<int8_t, uint8_t>(sums, a, b)
#define _tile_dpbssd(sums, a, b) emulated_tiles.multiply_bytes<int8_t, int8_t>(sums, a, b)
#define _tile_dpbf16ps(sums, a, b) emulated_tiles.multiply_pairs(sums, a, b)
