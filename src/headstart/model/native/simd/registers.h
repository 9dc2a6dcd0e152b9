// Sixteen numbers in several registers of WIDTH bytes. The compilers' own vectors of 64 bytes would do the same, but GCC 12
// keeps those in memory where no register is as wide.
#pragma once

typedef float Floats __attribute__((vector_size(WIDTH)));
typedef int32_t Integers __attribute__((vector_size(WIDTH)));
typedef uint32_t Naturals __attribute__((vector_size(WIDTH)));

template <class R, class T>
struct Sixteen {
    typedef T Number;
    static constexpr int PARTS = LANES * sizeof(T) / sizeof(R), EACH = LANES / PARTS;
    R part[PARTS];

    // What `make` says for each part's number.
    template <class F>
    static Sixteen of(F make) {
        static_assert(PARTS == 2 || PARTS == 4);
        if constexpr (PARTS == 2)
            return {{make(0), make(1)}};
        else
            return {{make(0), make(1), make(2), make(3)}};
    }

    T operator[](int i) const { return part[i / EACH][i % EACH]; }
};

typedef Sixteen<Floats, float> Vec;
typedef Sixteen<Integers, int32_t> Ints;
typedef Sixteen<Naturals, uint32_t> Words;

#define HEADSTART_OPERATOR(SIGN)                                                                   \
    template <class R, class T>                                                                    \
    inline Sixteen<R, T> operator SIGN(Sixteen<R, T> a, Sixteen<R, T> b) {                         \
        return Sixteen<R, T>::of([&](int p) { return a.part[p] SIGN b.part[p]; });                 \
    }                                                                                              \
    template <class R, class T>                                                                    \
    inline Sixteen<R, T> operator SIGN(Sixteen<R, T> a, typename Sixteen<R, T>::Number b) {        \
        return Sixteen<R, T>::of([&](int p) { return a.part[p] SIGN b; });                         \
    }                                                                                              \
    template <class R, class T>                                                                    \
    inline Sixteen<R, T> operator SIGN(typename Sixteen<R, T>::Number a, Sixteen<R, T> b) {        \
        return Sixteen<R, T>::of([&](int p) { return a SIGN b.part[p]; });                         \
    }
HEADSTART_OPERATOR(+)
HEADSTART_OPERATOR(-)
HEADSTART_OPERATOR(*)
HEADSTART_OPERATOR(/)
HEADSTART_OPERATOR(&)
HEADSTART_OPERATOR(|)
#undef HEADSTART_OPERATOR

template <class R, class T>
inline Sixteen<R, T> operator<<(Sixteen<R, T> v, int by) {
    return Sixteen<R, T>::of([&](int p) { return v.part[p] << by; });
}
template <class R, class T>
inline Sixteen<R, T> operator>>(Sixteen<R, T> v, int by) {
    return Sixteen<R, T>::of([&](int p) { return v.part[p] >> by; });
}
template <class R, class T>
inline Sixteen<R, T> operator-(Sixteen<R, T> v) {
    return Sixteen<R, T>::of([&](int p) { return -v.part[p]; });
}
template <class R, class T, class V>
inline Sixteen<R, T> &operator+=(Sixteen<R, T> &a, V b) { return a = a + b; }

inline Ints operator<(Vec a, Vec b) {
    return Ints::of([&](int p) { return a.part[p] < b.part[p]; });
}
inline Ints operator>(Vec a, Vec b) { return b < a; }
inline Ints operator<(Vec a, float b) {
    return Ints::of([&](int p) { return a.part[p] < b; });
}
inline Ints operator>(Vec a, float b) {
    return Ints::of([&](int p) { return a.part[p] > b; });
}

inline Ints is_nan(Vec v) {
    return Ints::of([&](int p) { return v.part[p] != v.part[p]; });
}

template <class R, class T>
inline Sixteen<R, T> select(Ints mask, Sixteen<R, T> a, Sixteen<R, T> b) {
    return Sixteen<R, T>::of([&](int p) { return mask.part[p] ? a.part[p] : b.part[p]; });
}

inline Vec splat(float value) {
    return Vec::of([&](int) { return value - Floats{}; });  // x - 0 is x, and 0 + x is not: of -0
}

template <class S, class T>
inline S load_parts(const T *from) {
    return S::of([&](int p) {
        auto part = S{}.part[0];
        std::memcpy(&part, (const uint8_t *)from + p * sizeof part, sizeof part);
        return part;
    });
}

inline Vec load(const float *from) { return load_parts<Vec>(from); }
inline Ints load(const int32_t *from) { return load_parts<Ints>(from); }
inline Words load_codes(const uint8_t *from) { return load_parts<Words>(from); }
inline void store(float *to, Vec v) {
    for (int p = 0; p < Vec::PARTS; p++) std::memcpy(to + p * Vec::EACH, &v.part[p], sizeof v.part[p]);
}

// Whole numbers to floats, floats (rounded towards zero) to whole numbers, and the bits of either as the other.
inline Vec to_floats(Ints v) {
    return Vec::of([&](int p) { return __builtin_convertvector(v.part[p], Floats); });
}
inline Ints to_ints(Vec v) {
    return Ints::of([&](int p) { return __builtin_convertvector(v.part[p], Integers); });
}
inline Ints bits_of(Vec v) {
    return Ints::of([&](int p) { return (Integers)v.part[p]; });
}
inline Words words_of(Vec v) {
    return Words::of([&](int p) { return (Naturals)v.part[p]; });
}
inline Vec floats_of(Ints bits) {
    return Vec::of([&](int p) { return (Floats)bits.part[p]; });
}

inline Ints spread_int(const uint8_t *from) {
    const int32_t value = four_at(from);
    return Ints::of([&](int) { return value - Integers{}; });
}
