// Computes: the one function of GCC's C++ library that containers need and that libraries before GCC 11 lack. With it,
//           a library that a newer GCC compiles also loads on older systems.
// Threads:  any.
// Reference: GCC's libstdc++, bits/functexcept.h.
// Tests:    tests/project/test_packaging.py: its symbol versions are checked.
#pragma once
#include <new>

#ifdef __GLIBCXX__
namespace std {
// Weak: a static libstdc++ defines it too.
[[noreturn]] __attribute__((weak)) void __throw_bad_array_new_length() { throw bad_array_new_length(); }
}  // namespace std
#endif
