// Computes: the PIXELS neighboring pixels of an output row that a thread holds: how they are loaded, where they lie in
//           the image, and which source index a border gives.
// Threads:  one block of pixels per thread.
// Reference: borders: NumPy's pad modes edge, reflect, symmetric and wrap.
// Tests:    tests/properties/test_sampling.py.
#pragma once
#include "core/signature.h"
#include "simd.h"

// The output pixels that a block of threads computes.
struct Tile {
    int y, x, rows, columns;
};

typedef float PixelBlock[3][PIXELS] CACHE_ALIGNED;  // [C, PIXELS]
#define FOR_PIXELS(p) for (int p = 0; p < PIXELS; ++p)

// Reverses the order of the first `count` pixels.
DEVICE void reverse(PixelBlock& v, int count) {
    for (int c = 0; c < 3; ++c)
        for (int p = 0; p < count / 2; ++p) {
            const float left = v[c][p];
            v[c][p] = v[c][count - 1 - p];
            v[c][count - 1 - p] = left;
        }
}

// v = `count` packed pixels, reversed where step is -1; 0 beyond.
template <class T>
DEVICE void load_block(const T* pixels, int count, int step, PixelBlock& v) {
    if (count == PIXELS)
        unpack(pixels, v);
    else
        for (int p = 0; p < PIXELS; ++p)
            for (int c = 0; c < 3; ++c) v[c][p] = p < count ? float(pixels[3 * p + c]) : 0.0f;
    if (step < 0) reverse(v, count);
}

// Positions of a block's pixels in the finished image: pixel p at row y + p * dy, column x + p * dx.
struct Place {
    int y, x, dy, dx;
};

DEVICE Place place_of(const Sample& sample, int y, int x) {
    return sample.transposed ? Place{x, y, 1, 0} : Place{y, x, 0, 1};
}

// The nearest uint8 level, halves up.
DEVICE int to_level(float value, float scale) { return int(clamp(value * scale + 0.5f, 0.0f, 255.0f)); }

// The index in [low, high) that index i shows under a border; -1 for the constant fill. 0 <= low < high.
DEVICE int border_index(int i, int low, int high, int border) {
    if (i >= low && i < high) return i;
    if (is<Borders>(border, CONSTANT)) return -1;
    const int n = high - low;
    if (is<Borders>(border, EDGE) || n == 1) return i < low ? low : high - 1;
    if (is<Borders>(border, WRAP)) {
        const int k = (i - low) % n;
        return low + (k < 0 ? k + n : k);
    }
    // REFLECT mirrors at the center of the last pixel, SYMMETRIC at its edge.
    const bool reflects = is<Borders>(border, REFLECT);
    const int period = reflects ? 2 * n - 2 : 2 * n;
    int k = (i - low) % period;
    if (k < 0) k += period;
    if (k >= n) k = (reflects ? period : period - 1) - k;
    return low + k;
}

// r[p] = the resized index that output index first + p shows, -1 for the fill color; indices from `pixels` on repeat
// the last one. Returns whether all lie between the borders.
DEVICE bool resized_indices(const Sample& sample, const Axis& axis, int first, int pixels, int* r) {
    const int begin = axis.start + axis.step * first, last = begin + axis.step * (pixels - 1);
    FOR_PIXELS(p) r[p] = begin + axis.step * min(p, pixels - 1);
    if (min(begin, last) >= axis.seen_low && max(begin, last) < axis.seen_high) return true;
    FOR_PIXELS(p) r[p] = border_index(r[p], axis.seen_low, axis.seen_high, sample.after.border);
    return false;
}

// The address of source row `y` (an inner index); its first pixel is column x.held_low.
template <class T>
DEVICE const T* row_of(const Sample& sample, int y) {
    return reinterpret_cast<const T*>(sample.source.address +
                                      uint64(int64(y - sample.y.held_low) * sample.source.pitch));
}

// One source value, inside the image or on its border.
template <class T>
DEVICE float load_bordered(const Sample& sample, int y, int x, int channel) {
    y = border_index(y, sample.y.inner_low, sample.y.inner_high, sample.before.border);
    x = border_index(x, sample.x.inner_low, sample.x.inner_high, sample.before.border);
    const bool inside = y != -1 && x != -1;
    return inside ? float(row_of<T>(sample, y)[int64(x - sample.x.held_low) * 3 + channel])
                  : sample.before.fill[channel];
}
