// A picture as stored to one as displayed, by its EXIF orientation: the C interface of cuaug/codec/exif.py.
#pragma once
#include <cstdint>
#include <cstring>

extern "C" {

// out: the pixels [height, width, 3] turned, packed; [width, height, 3] for orientations from 5 on. `pixels` are
// another memory, of `pitch` bytes from one row to the next.
EXPORT void cuaug_apply_orientation(const uint8_t* pixels, int64_t pitch, int64_t height, int64_t width, int orientation,
                       uint8_t* out) {
    constexpr int64_t BLOCK = 32;  // pixels to a side: the rows of one stay in the first cache, there and here
    const bool upside_down = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    const bool mirrored = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    const bool swaps = orientation >= 5;
    const int64_t row = upside_down ? -pitch : pitch, column = mirrored ? -3 : 3;
    const int64_t down = swaps ? column : row, across = swaps ? row : column;
    const int64_t rows = swaps ? width : height, columns = swaps ? height : width;
    const uint8_t* const first = pixels + (upside_down ? pitch * (height - 1) : 0) + (mirrored ? 3 * (width - 1) : 0);
    for (int64_t top = 0; top < rows; top += BLOCK)
        for (int64_t left = 0; left < columns; left += BLOCK)
            for (int64_t y = top; y < rows && y < top + BLOCK; ++y)
                for (int64_t x = left; x < columns && x < left + BLOCK; ++x)
                    memcpy(out + 3 * (y * columns + x), first + y * down + x * across, 3);
}
}
