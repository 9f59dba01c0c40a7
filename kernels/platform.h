// Computes: scalar helpers that both builds share. The CUDA build (NVRTC) and the CPU build (any C++17 compiler)
//           compile core/ from one source, written against this list:
//             KERNEL, DEVICE        function qualifiers; METHOD for member functions, NEVER_INLINE for one copy
//             UNROLL, NO_UNROLL     before a loop over an array that CUDA keeps in registers; before a long loop
//             CACHE_ALIGNED         after an array: it begins at a cache line, so no vector spans two lines
//             Block                 number of this thread, threads per block, barrier
//             ROWS, PIXELS          output pixels, down and across, that a thread computes together
//             JpegSample            type of the JPEG samples in scratch
//             divide_to_float       the quotient of doubles, rounded to double, then to float
//             load_global           a load from the source image, through CUDA's read-only cache
//             load_as, store_as     moves memory of another type, aligned as the given one
//             big_endian_word       four bytes from byte 0 to 3 of two little-endian words on, the first one highest
//             ThreadWarp            number of this thread in its warp, threads that run it, barrier
//             half_bits             binary32 to binary16
//             block_sum, block_max  reductions into global memory; every thread of the block calls them
//             atomic_add            adds to a counter that many blocks share
//             increment             adds 1 to a counter that the threads of one sample share; returns the number before
//           simd.h adds vectors.
// Threads:  cuda/platform.h has one pixel per thread. cpu/platform.h has one thread per block (shipped), or
//           CUAUG_BLOCK_THREADS threads with a real barrier (for ThreadSanitizer).
// Reference: bfloat16: truncated binary32, rounded to nearest even.
// Tests:    tests/properties, tests/kernels/test_scratch.py (CUDA branch on a CPU), tests/kernels/test_portable.py.
#pragma once

// The CPU build sizes CUDA's scratch, so it needs CUDA's ROWS too.
constexpr int CUDA_ROWS = 4;

#if defined(__CUDACC__)
#include "cuda/platform.h"
#else
#include "cpu/platform.h"
#endif

// A NaN in `a` gives `b`; the vector versions agree. GCC vectors compare lane by lane.
template <class T>
DEVICE T min(T a, T b) {
    return a < b ? a : b;
}
template <class T>
DEVICE T max(T a, T b) {
    return a > b ? a : b;
}
// A NaN becomes `low`.
template <class T>
DEVICE T clamp(T value, T low, T high) {
    return min(max(value, low), high);
}

// Moved by one instruction.
template <int count>
struct alignas(4 * count) Packed {
    uint32 word[count];
};

// Rounds to nearest, halves up, and saturates. A NaN becomes 0.
DEVICE uint8 to_uint8(float value) { return uint8(clamp(value, 0.0f, 255.0f) + 0.5f); }

// value / 2^bits, rounded to nearest, halves up.
template <int bits, class Value>
DEVICE Value descale(Value value) {
    return (value + (1 << (bits - 1))) >> bits;
}

DEVICE int to_int(float value) { return int(value); }
DEVICE float to_float(int value) { return float(value); }
// Below 2^31: every device has an instruction for signed integers.
DEVICE float to_float(uint32 value) { return float(int(value)); }

// A NaN stays a quiet NaN.
DEVICE uint16 bfloat16_bits(float value) {
    const uint32 bits = float_bits(value);
    const uint32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return uint16((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}
