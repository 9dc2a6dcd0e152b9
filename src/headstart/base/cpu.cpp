// What the processor offers that `levels` asks after, in GCC's names of the features, one space between them.
//
// On x86 the processor itself is asked (CPUID), and the system whether it keeps the registers (XGETBV): without its
// consent an instruction that exists would end the process. Elsewhere only the system can say.

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__) && defined(_WIN32)
#include <windows.h>
#endif

namespace {

struct Names {
    char text[256] = {};  // all names together are shorter
    void add(bool there, const char *name) {
        if (!there) return;
        if (text[0]) std::strcat(text, " ");
        std::strcat(text, name);
    }
};

#if defined(__x86_64__)

struct Leaf {
    unsigned a = 0, b = 0, c = 0, d = 0;
    Leaf(unsigned leaf, unsigned sub) { __get_cpuid_count(leaf, sub, &a, &b, &c, &d); }  // zeros where there is none
};

bool bit(unsigned of, int at) { return of >> at & 1; }

// Which registers the system keeps: Intel's manual, volume 1, chapter 13 (XCR0).
unsigned kept_registers() {
    if (!bit(Leaf(1, 0).c, 27)) return 0;  // OSXSAVE
    unsigned low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

void find(Names &names) {
    const unsigned kept = kept_registers();
    const bool ymm = (kept & 0x6) == 0x6, zmm = ymm && (kept & 0xe0) == 0xe0, tiles = zmm && (kept & 0x60000) == 0x60000;
    const Leaf first(1, 0), seventh(7, 0), more(7, 1);
    names.add(ymm && bit(first.c, 12), "fma");
    names.add(ymm && bit(first.c, 29), "f16c");
    names.add(ymm && bit(seventh.b, 5), "avx2");
    names.add(bit(seventh.b, 3), "bmi");
    names.add(bit(seventh.b, 8), "bmi2");
    names.add(ymm && bit(more.a, 4), "avxvnni");
    names.add(zmm && bit(seventh.b, 16), "avx512f");
    names.add(zmm && bit(seventh.b, 17), "avx512dq");
    names.add(zmm && bit(seventh.b, 30), "avx512bw");
    names.add(zmm && bit(seventh.b, 31), "avx512vl");
    names.add(zmm && bit(seventh.c, 11), "avx512vnni");
    names.add(zmm && bit(more.a, 5), "avx512bf16");
#if defined(__linux__)  // the kernels ask Linux for the tiles, and no other system
    names.add(tiles && bit(seventh.d, 22), "amx-bf16");
    names.add(tiles && bit(seventh.d, 24), "amx-tile");
    names.add(tiles && bit(seventh.d, 25), "amx-int8");
#endif
}

#elif defined(__aarch64__) && defined(__linux__)

// Bits of Linux's arch/arm64/include/uapi/asm/hwcap.h.
void find(Names &names) {
    const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    names.add(first >> 10 & 1, "fp16");  // ASIMDHP
    names.add(first >> 20 & 1, "dotprod");
    names.add(first >> 22 & 1, "sve");
    names.add(second >> 13 & 1, "i8mm");
    names.add(second >> 14 & 1, "bf16");
}

#elif defined(__aarch64__) && defined(__APPLE__)

void find(Names &names) {
    static const char *const asked[][2] = {
        {"hw.optional.arm.FEAT_FP16", "fp16"},
        {"hw.optional.arm.FEAT_DotProd", "dotprod"},
        {"hw.optional.arm.FEAT_I8MM", "i8mm"},
        {"hw.optional.arm.FEAT_BF16", "bf16"},
    };
    for (const auto &one : asked) {
        int there = 0;
        size_t size = sizeof there;
        names.add(sysctlbyname(one[0], &there, &size, nullptr, 0) == 0 && there, one[1]);
    }
}

#elif defined(__aarch64__) && defined(_WIN32)

// Every Windows on ARM64 with the dot product also has halves; it does not say whether there is more.
void find(Names &names) {
    const bool there = IsProcessorFeaturePresent(43);  // PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE
    names.add(there, "fp16");
    names.add(there, "dotprod");
}

#else

void find(Names &) {}

#endif

}  // namespace

extern "C" const char *headstart_features() {
    static const Names names = [] {
        Names found;
        find(found);
        return found;
    }();
    return names.text;
}
