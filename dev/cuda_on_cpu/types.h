// types: CUDA's vector types and its 16- and 8-bit numbers, for g++ and clang++.
//
// Names, sizes, alignments and conversions are the toolkit's; the rounding is src/formats/formats.h, NaN patterns apart,
// which are the toolkit's. Arithmetic of 16-bit numbers is done in fp32 and rounded once.
// Always ours, even where the toolkit is installed: its headers bring driver types that clash with runtime.h.
#ifndef CUDA_ON_CPU_TYPES_H
#define CUDA_ON_CPU_TYPES_H
#include "formats/formats.h"

#include <cmath>
#include <cstdint>
#include <cstring>

// ---- vectors
#define EMU_VECTORS(T, name, a2, a4)                                                                     \
    struct name##1 { T x; };                                                                             \
    struct alignas(a2) name##2 { T x, y; };                                                              \
    struct name##3 { T x, y, z; };                                                                       \
    struct alignas(a4) name##4 { T x, y, z, w; };                                                        \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                           \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                   \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VECTORS(char, char, 2, 4)
EMU_VECTORS(unsigned char, uchar, 2, 4)
EMU_VECTORS(short, short, 4, 8)
EMU_VECTORS(unsigned short, ushort, 4, 8)
EMU_VECTORS(int, int, 8, 16)
EMU_VECTORS(unsigned, uint, 8, 16)
EMU_VECTORS(long long, longlong, 16, 16)
EMU_VECTORS(unsigned long long, ulonglong, 16, 16)
EMU_VECTORS(float, float, 8, 16)
EMU_VECTORS(double, double, 16, 16)
#undef EMU_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

namespace emu {
template <class To, class From> inline To bits(From v)
{
    static_assert(sizeof(To) == sizeof(From), "a change of type, not of size");
    To out;
    __builtin_memcpy(&out, &v, sizeof out);
    return out;
}
// The toolkit's NaN is all ones without the sign, in every format.
template <Format F> inline uint16_t narrow16(float v)
{
    return v != v ? (uint16_t)0x7fff : (uint16_t)formats_encode(F, v, false);
}
template <Format F> inline uint8_t narrow8(float v, bool saturate)
{
    return v != v ? (uint8_t)0x7f : (uint8_t)formats_encode(F, v, saturate);
}
// a b + c of 16-bit numbers in fp32, where what does not fit makes the last bit odd: rounded again to 16 bits it is
// what one rounding gives (Boldo & Melquiond, IEEE Trans. Computers 57(4), 2008). The product is exact in double.
inline float fused(double a, double b, double c)
{
    double product = a * b, sum = product + c, part = sum - product;
    double lost = (product - (sum - part)) + (c - part); // exact (Knuth, TAOCP 2, 4.2.2)
    float near = (float)sum;
    double rest = sum - (double)near;
    if (rest == 0) rest = lost;
    if (!std::isfinite(near) || rest == 0 || rest != rest || bits<uint32_t>(near) & 1) return near;
    return std::nextafter(near, rest > 0 ? INFINITY : -INFINITY);
}
} // namespace emu

inline unsigned __float_as_uint(float v) { return emu::bits<unsigned>(v); }
inline int __float_as_int(float v) { return emu::bits<int>(v); }
inline float __uint_as_float(unsigned v) { return emu::bits<float>(v); }
inline float __int_as_float(int v) { return emu::bits<float>(v); }
inline long long __double_as_longlong(double v) { return emu::bits<long long>(v); }
inline double __longlong_as_double(long long v) { return emu::bits<double>(v); }

// ---- 16 bits
#define EMU_SIXTEEN(T, F)                                                                                          \
    struct alignas(2) T {                                                                                          \
        uint16_t __x;                                                                                              \
        T() = default;                                                                                             \
        T(float v) : __x(emu::narrow16<F>(v)) {}                                                                   \
        T(double v) : __x(emu::narrow16<F>((float)v)) {}                                                           \
        T(int v) : __x(emu::narrow16<F>((float)v)) {}                                                              \
        operator float() const { return formats_decode(F, __x); }                                                  \
        T &operator+=(T b) { return *this = T((float)*this + (float)b); }                                          \
        T &operator-=(T b) { return *this = T((float)*this - (float)b); }                                          \
        T &operator*=(T b) { return *this = T((float)*this * (float)b); }                                          \
    };                                                                                                             \
    struct alignas(4) T##2_ { T x, y; };                                                                           \
    inline T operator+(T a, T b) { return T((float)a + (float)b); }                                                \
    inline T operator-(T a, T b) { return T((float)a - (float)b); }                                                \
    inline T operator*(T a, T b) { return T((float)a * (float)b); }                                                \
    inline T operator/(T a, T b) { return T((float)a / (float)b); }                                                \
    inline bool operator<(T a, T b) { return (float)a < (float)b; }                                                \
    inline bool operator>(T a, T b) { return (float)a > (float)b; }                                                \
    inline bool operator<=(T a, T b) { return (float)a <= (float)b; }                                              \
    inline bool operator>=(T a, T b) { return (float)a >= (float)b; }                                              \
    inline bool operator==(T a, T b) { return (float)a == (float)b; }                                              \
    inline bool operator!=(T a, T b) { return (float)a != (float)b; }                                              \
    inline T __hadd(T a, T b) { return a + b; }                                                                    \
    inline T __hsub(T a, T b) { return a - b; }                                                                    \
    inline T __hmul(T a, T b) { return a * b; }                                                                    \
    inline T __hfma(T a, T b, T c) { return T(emu::fused((float)a, (float)b, (float)c)); }               \
    inline T __hmax(T a, T b) { return (float)a != (float)a || a < b ? b : a; }                                    \
    inline T __hmin(T a, T b) { return (float)a != (float)a || b < a ? b : a; }                                    \
    inline bool __hisnan(T a) { return (float)a != (float)a; }
EMU_SIXTEEN(__nv_bfloat16, FORMAT_BF16)
EMU_SIXTEEN(__half, FORMAT_FP16)
#undef EMU_SIXTEEN
using __nv_bfloat162 = __nv_bfloat162_;
using __half2 = __half2_;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
using half = __half;
using half2 = __half2;

inline __nv_bfloat16 __float2bfloat16(float v) { return __nv_bfloat16(v); }
inline __nv_bfloat16 __float2bfloat16_rn(float v) { return __nv_bfloat16(v); }
inline float __bfloat162float(__nv_bfloat16 v) { return (float)v; }
inline __half __float2half(float v) { return __half(v); }
inline __half __float2half_rn(float v) { return __half(v); }
inline float __half2float(__half v) { return (float)v; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {(float)v.x, (float)v.y}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __float22half2_rn(float2 v) { return __floats2half2_rn(v.x, v.y); }
inline float2 __half22float2(__half2 v) { return {(float)v.x, (float)v.y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x + b.x, a.y + b.y}; }
inline __half2 __hadd2(__half2 a, __half2 b) { return {a.x + b.x, a.y + b.y}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 v) { return v.__x; }
inline unsigned short __half_as_ushort(__half v) { return v.__x; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short v) { return emu::bits<__nv_bfloat16>(v); }
inline __half __ushort_as_half(unsigned short v) { return emu::bits<__half>(v); }

// ---- 8 bits: construction saturates, as the toolkit's does
struct __nv_fp8_e4m3 {
    uint8_t __x;
    __nv_fp8_e4m3() = default;
    explicit __nv_fp8_e4m3(float v) : __x(emu::narrow8<FORMAT_E4M3>(v, true)) {}
    explicit operator float() const { return formats_decode(FORMAT_E4M3, __x); }
};
struct __nv_fp8_e5m2 {
    uint8_t __x;
    __nv_fp8_e5m2() = default;
    explicit __nv_fp8_e5m2(float v) : __x(emu::narrow8<FORMAT_E5M2>(v, true)) {}
    explicit operator float() const { return formats_decode(FORMAT_E5M2, __x); }
};
#endif
