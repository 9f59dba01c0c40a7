// The median of the size x size values around a pixel, for each channel; size is 3, 5 or 7. Only minima and maxima, at
// places that the compiler knows, so that all stay in registers: of bytes where the source is bytes.
//
// By forgetful selection: of n values the smallest and the largest of any n / 2 + 2 cannot be the median, so they are
// dropped and the next value taken in, until three are left. On the host, where neighbours are made together, each
// column of a window is sorted first, once for all windows that it is in, then their rows; what then lies on the
// diagonals from lower left to upper right leaves few candidates.
//
// Tested against cv2.medianBlur and tests/references/filters.py.
#pragma once
#include "core/neighbourhood.h"

template <class Values>
DEVICE void sort_pair(Values& low, Values& high) {
    const Values a = low, b = high;
    low = min(a, b);
    high = max(a, b);
}

// The median is among kept[0 .. count) and next(k), next(k + 1) ..., count - 3 of them; it ends up in kept[1].
template <int count, class Values, class Next>
DEVICE void forgetful_select(Values* candidates, int k, const Next& next) {
    UNROLL
    for (int i = 1; i < count; ++i) sort_pair(candidates[0], candidates[i]);
    UNROLL
    for (int i = 1; i < count - 1; ++i) sort_pair(candidates[i], candidates[count - 1]);
    if constexpr (count > 3) {
        candidates[0] = next(k);
        forgetful_select<count - 1>(candidates, k + 1, next);
    }
}

#if defined(__CUDACC__)
#include "cuda/median.h"  // median_block
#else
#include "cpu/median.h"
#endif
