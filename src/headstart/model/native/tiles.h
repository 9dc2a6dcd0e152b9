// The processor's tiles (AMX): whether there are any, and how they are set.
#pragma once

#include <cstdint>

#if defined(__AMX_INT8__) && defined(__AMX_BF16__) && defined(__linux__)
#define HEADSTART_TILES 1
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

// Linux gives a process the tiles' registers only when it asks for them, once. Without that a tile instruction ends it.
inline bool tiles_permitted() {
    static const bool permitted = syscall(SYS_arch_prctl, 0x1023, 18) == 0;  // ARCH_REQ_XCOMP_PERM, tile data
    return permitted;
}

// What the compiler must have written before tiles are loaded: it does not know that these instructions read memory.
inline void written() { asm volatile("" ::: "memory"); }

struct alignas(64) TileConfig {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
};

// Tiles 0 to 3 hold sums, 4 and 5 rows (5 weights too, where there are few rows), 6 and 7 weights, from here to the end of the scope. What was configured before is
// put back. Where the permission is refused nothing is configured: no product then uses tiles.
class Tiles {
  public:
    // For products of `count` rows, or of any number if that is 16 or more, in steps of so many bytes of a row.
    explicit Tiles(int64_t count, int64_t bytes = 64) {
        if (!tiles_permitted()) return;
        _tile_storeconfig(&before_);
        TileConfig config;
        for (int t = 0; t < 8; t++) {
            config.bytes[t] = uint16_t(t == 4 || t == 5 ? bytes : 64);
            config.rows[t] = uint8_t(t > 5 ? bytes / 4 : 16);
        }
        for (int t = 0; t < 5 && count < 16; t++) config.rows[t] = uint8_t(count);
        written();
        _tile_loadconfig(&config);
    }

    Tiles(const Tiles &) = delete;
    ~Tiles() {
        if (!tiles_permitted()) return;
        if (before_.palette)
            _tile_loadconfig(&before_);
        else
            _tile_release();
    }

  private:
    TileConfig before_;
};

#else

class Tiles {
  public:
    explicit Tiles(int64_t) {}
};

#endif
