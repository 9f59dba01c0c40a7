// Computes: the displayed image [h, w, 3] of a stored image, by its EXIF orientation. C interface of
// cuaug/codec/exif.py. Threads: the caller's alone. Reference: EXIF 2.3, 4.6.4, tag 274; PIL.ImageOps.exif_transpose.
// Tests: tests/codec/test_exif.py.
#pragma once
#include <cstdint>
#include <cstring>

extern "C" {

// pixels [height, width, 3]: rows `pitch` bytes apart, pixels packed. out [height, width, 3], or [width, height, 3] for
// orientations 5 to 8: packed, in other memory.
EXPORT void cuaug_apply_orientation(const uint8_t* pixels, int64_t pitch, int64_t height, int64_t width,
                                    int orientation, uint8_t* out) {
    constexpr int64_t BLOCK = 32;  // pixels to a side: the rows of a block stay in the L1 cache, read and written
    const bool flips_rows = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    const bool flips_columns = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    const bool swaps_axes = orientation >= 5;
    const int64_t row_step = flips_rows ? -pitch : pitch, column_step = flips_columns ? -3 : 3;
    const int64_t y_step = swaps_axes ? column_step : row_step, x_step = swaps_axes ? row_step : column_step;
    const int64_t rows = swaps_axes ? width : height, columns = swaps_axes ? height : width;
    const uint8_t* const first =
        pixels + (flips_rows ? pitch * (height - 1) : 0) + (flips_columns ? 3 * (width - 1) : 0);
    for (int64_t top = 0; top < rows; top += BLOCK)
        for (int64_t left = 0; left < columns; left += BLOCK)
            for (int64_t y = top; y < rows && y < top + BLOCK; ++y)
                for (int64_t x = left; x < columns && x < left + BLOCK; ++x)
                    memcpy(out + 3 * (y * columns + x), first + y * y_step + x * x_step, 3);
}
}
