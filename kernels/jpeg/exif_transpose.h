// Computes: the displayed image [h, w, 3] of a stored image, by its EXIF orientation. C
//           interface of cuaug/codec/sniff.py.
// Threads:  the caller's alone.
// Reference: EXIF 2.3, 4.6.4, tag 274; PIL.ImageOps.exif_transpose.
// Tests:    tests/codec/test_exif.py.
#pragma once
#include <cstdint>
#include <cstring>

namespace {

bool flips_rows(int64_t orientation) {
    return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}
bool flips_columns(int64_t orientation) {
    return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}
bool swaps_axes(int64_t orientation) { return orientation >= 5; }

}  // namespace

extern "C" {

// pixels [height, width, 3]: rows `pitch` bytes apart, pixels packed. out [height, width, 3], or [width, height, 3] for
// orientations 5 to 8: packed, in other memory.
EXPORT void cuaug_apply_orientation(const uint8_t* pixels, int64_t pitch, int64_t height, int64_t width,
                                    int orientation, uint8_t* out) {
    constexpr int64_t BLOCK = 32;  // pixels to a side: the rows of a block stay in the L1 cache, read and written
    const bool up = flips_rows(orientation), back = flips_columns(orientation), swaps = swaps_axes(orientation);
    const int64_t row_step = up ? -pitch : pitch, column_step = back ? -3 : 3;
    const int64_t y_step = swaps ? column_step : row_step, x_step = swaps ? row_step : column_step;
    const int64_t rows = swaps ? width : height, columns = swaps ? height : width;
    const uint8_t* const first = pixels + (up ? pitch * (height - 1) : 0) + (back ? 3 * (width - 1) : 0);
    for (int64_t top = 0; top < rows; top += BLOCK)
        for (int64_t left = 0; left < columns; left += BLOCK)
            for (int64_t y = top; y < rows && y < top + BLOCK; ++y)
                for (int64_t x = left; x < columns && x < left + BLOCK; ++x)
                    memcpy(out + 3 * (y * columns + x), first + y * y_step + x * x_step, 3);
}
}
