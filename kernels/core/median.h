// Computes: the median of the size x size values around a pixel, per channel; size is 3, 5 or 7. Only minima and maxima
//           at places known at compile time, so all values stay in registers; of bytes where the source is uint8.
//           Forgetful selection: of n values, the smallest and the largest of any n / 2 + 2 cannot be the median. They
//           are dropped, and the next value is added, until three remain. The CPU computes neighbors together: each
//           column is sorted once for all its windows, then the rows; few candidates remain on the diagonals.
// Threads:  CUDA: one pixel per thread. CPU: a vector of pixels.
// Reference: forgetful selection: Perrot, Domas, Couturier, "Fine-tuned high-speed implementation of a GPU-based median
//           filter", Journal of Signal Processing Systems, 2014.
// Tests:    tests/properties/test_filters.py against cv2.medianBlur and tests/references/filters.py.
#pragma once
#include "core/neighborhood.h"

template <class Values>
DEVICE void sort_pair(Values& low, Values& high) {
    const Values a = low, b = high;
    low = min(a, b);
    high = max(a, b);
}

// The median is among candidates[0 ... count - 1] and the count - 3 values next(k), next(k + 1), ... It ends in
// candidates[1].
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

// cpu/median.h and cuda/median.h define it.
template <class T>
DEVICE void median_block(const Sample& sample, const SourcePixels& at, PixelBlock& v);
