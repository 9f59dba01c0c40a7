// Computes: vectors of values, for code that both builds share. On CUDA a vector is one value.
//             Vec<T>      the widest vector: VEC_LANES floats (CUDA 1, AVX-512 16, else 8), lanes_in<T> values
//             Vec32<T>    a vector of 32 bytes, VEC32_LANES floats: AVX-512 builds run most code faster with it
//             FloatVec    one register of LANES floats, for the sums of resampling and filters
//             Rgb         one pixel as floats
//           load_vec, load_vec32 and store move them; splat and splat32 fill them; min, max, floor and sqrt act on each
//           lane; load_block and interleave convert packed pixels to and from planes.
// Threads:  each thread holds its own vectors.
// Reference: GCC vector extensions; Intel Intrinsics Guide.
// Tests:    tests/properties compares the instruction sets bit by bit; tests/kernels/test_portable.py the code without.
#pragma once
#include "platform.h"

#if defined(__CUDACC__)
#include "cuda/simd.h"
#else
#include "cpu/deinterleave.h"
#include "cpu/fixed_point.h"
#endif
