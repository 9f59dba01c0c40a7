// Computes: RGB pixels of a region from a JPEG's samples: upsampling, then YCbCr to RGB, with libjpeg-turbo's bits.
// Threads:  eight pixels of a row per thread, into shared memory. Then a warp per row stores whole vectors of 16 bytes.
// Reference: libjpeg-turbo's jdsample.c and jdcolor.c; JFIF 1.02.
// Tests:    tests/kernels/test_decode_jpeg.py: Pillow's bits; tests/kernels/test_emulated_jpeg.py: barriers.
#pragma once
#include "core/simd.h"
#include "jpeg_batch.h"

constexpr int TILE_WIDTH = 128, TILE_HEIGHT = 16;
// Rows are as far from a multiple of 16 bytes as in the target, by up to 15 bytes.
constexpr int TILE_ROW_BYTES = 3 * TILE_WIDTH + 16;

// The address of a sample; eight of a block's row lie side by side.
DEVICE const uint8* sample_at(const JpegComponent& component, int y, int x) {
    const int row = y - component.top, column = x - component.left;
    const int block = (row >> 3) * component.blocks_across + (column >> 3);
    return reinterpret_cast<const uint8*>(component.samples) + int64(block) * BLOCK_SAMPLES + (row & 7) * 8 +
           (column & 7);
}

// `count` samples, a multiple of 4, from x on, a multiple of 4. Blocks end at multiples of 8.
template <int count>
DEVICE void load_samples(const JpegComponent& component, int y, int x, int* out) {
    const uint32* const words = reinterpret_cast<const uint32*>(sample_at(component, y, x));
    UNROLL
    for (int i = 0; i < count; i += 4) {
        const uint32 word = load_global(words + i / 4);
        for (int k = 0; k < 4; ++k) out[i + k] = int(word >> 8 * k & 255);
    }
}

// Samples x - 1 to x + 4, for x a multiple of 4. Beyond an edge the last one repeats, to which libjpeg's special cases
// amount.
DEVICE void load_with_neighbours(const JpegComponent& component, int y, int x, int (&out)[6]) {
    load_samples<4>(component, y, x, out + 1);
    out[0] = x > component.left ? *sample_at(component, y, x - 1) : out[1];
    out[5] = x + 4 < component.right ? *sample_at(component, y, x + 4) : 0;
    UNROLL
    for (int i = 1; i < 5; ++i)
        if (x + i >= component.right) out[i + 1] = out[i];
}

// Eight samples of a component that pixels of row y from x on, a multiple of 8, repeat.
DEVICE void repeat_samples(const JpegComponent& component, int y, int x, int (&out)[8]) {
    const int row = y / component.scale_y;
    if (component.scale_x == 1) return load_samples<8>(component, row, x, out);
    int samples[4];
    load_samples<4>(component, row, x / component.scale_x & ~3, samples);
    UNROLL
    for (int i = 0; i < 8; ++i) {
        const int k = (x + i) / component.scale_x & 3;
        out[i] = k == 0 ? samples[0] : k == 1 ? samples[1] : k == 2 ? samples[2] : samples[3];
    }
}

// A component's values at pixels x to x + 7 of row y. x is a multiple of 8.
DEVICE void upsample(const JpegComponent& component, int y, int x, int (&out)[8]) {
    if (component.upsampling == REPEAT) return repeat_samples(component, y, x, out);
    const int near = component.upsampling == ACROSS ? y : y >> 1;
    const int far = clamp((y & 1) ? near + 1 : near - 1, component.top, component.bottom - 1);
    if (component.upsampling == DOWN) {  // h1v2
        int other[8];
        load_samples<8>(component, near, x, out), load_samples<8>(component, far, x, other);
        UNROLL
        for (int i = 0; i < 8; ++i) out[i] = (3 * out[i] + other[i] + (y & 1 ? 2 : 1)) >> 2;
        return;
    }
    int line[6];
    load_with_neighbours(component, near, x >> 1, line);
    if (component.upsampling == ACROSS) {  // h2v1
        UNROLL
        for (int i = 0; i < 4; ++i) {
            out[2 * i] = (3 * line[i + 1] + line[i] + 1) >> 2;
            out[2 * i + 1] = (3 * line[i + 1] + line[i + 2] + 2) >> 2;
        }
        return;
    }
    int other[6];  // h2v2
    load_with_neighbours(component, far, x >> 1, other);
    UNROLL
    for (int i = 0; i < 6; ++i) line[i] = 3 * line[i] + other[i];
    UNROLL
    for (int i = 0; i < 4; ++i) {
        out[2 * i] = (3 * line[i + 1] + line[i] + 8) >> 4;
        out[2 * i + 1] = (3 * line[i + 1] + line[i + 2] + 7) >> 4;
    }
}

// One pixel, in fixed point with 16 bits.
DEVICE void ycc_to_rgb(int y, int cb, int cr, int* rgb) {
    cb -= 128, cr -= 128;
    rgb[0] = clamp(y + ((91881 * cr + 32768) >> 16), 0, 255);
    rgb[1] = clamp(y + ((-22554 * cb - 46802 * cr + 32768) >> 16), 0, 255);
    rgb[2] = clamp(y + ((116130 * cb + 32768) >> 16), 0, 255);
}

// Eight pixels of row y from x on, a multiple of 8.
DEVICE void color_pixels(const JpegImage& image, int y, int x, int (&rgb)[8][3]) {
    int first[8], second[8], third[8];
    upsample(image.component[0], y, x, first);
    if (image.color != GRAY_ONLY) {
        upsample(image.component[1], y, x, second);
        upsample(image.component[2], y, x, third);
    }
    UNROLL
    for (int i = 0; i < 8; ++i) {
        if (image.color == YCC) {
            ycc_to_rgb(first[i], second[i], third[i], rgb[i]);
        } else {
            const bool is_gray = image.color == GRAY_ONLY;
            rgb[i][0] = first[i], rgb[i][1] = is_gray ? first[i] : second[i], rgb[i][2] = is_gray ? first[i] : third[i];
        }
    }
}

// The address in the target of a pixel of the stored image.
DEVICE uint64 target_of(const JpegImage& image, int y, int x) {
    return image.target + uint64((y - image.top) * image.row_step + (x - image.left) * image.column_step);
}

// Converts the tile whose first pixel is (y, x); x is a multiple of 8. rows [TILE_HEIGHT, TILE_ROW_BYTES] is shared.
DEVICE void color_tile(const Block& block, const JpegImage& image, int y, int x, uint8* rows) {
    const bool is_packed = image.column_step == 3;  // not turned or mirrored by the EXIF orientation
    constexpr int GROUPS = TILE_WIDTH / 8;
    for (int i = block.thread; i < GROUPS * TILE_HEIGHT; i += block.threads) {
        const int row = y + i / GROUPS, column = x + 8 * (i % GROUPS);
        if (row >= image.bottom || column >= image.right) continue;
        int rgb[8][3];
        color_pixels(image, row, column, rgb);
        uint8* const packed = rows + i / GROUPS * TILE_ROW_BYTES + (target_of(image, row, x) & 15) + 24 * (i % GROUPS);
        UNROLL
        for (int k = 0; k < 8; ++k) {
            uint8* out = packed + 3 * k;
            if (!is_packed) {
                if (column + k < image.left || column + k >= image.right) continue;
                out = reinterpret_cast<uint8*>(target_of(image, row, column + k));
            }
            for (int c = 0; c < 3; ++c) out[c] = uint8(rgb[k][c]);
        }
    }
    if (!is_packed) return;  // all threads: no barrier waits
    block.sync();
    const int left = max(x, image.left), right = min(x + TILE_WIDTH, image.right);
    constexpr int VECTORS = TILE_ROW_BYTES / 16;
    for (int i = block.thread; i < 32 * TILE_HEIGHT; i += block.threads) {
        const int row = y + i / 32, vector = i % 32;
        if (row >= image.bottom || vector >= VECTORS) continue;
        const uint64 begin = target_of(image, row, left), end = target_of(image, row, right);
        const uint64 at = (target_of(image, row, x) & ~uint64(15)) + 16 * uint64(vector);
        if (at + 16 <= begin || at >= end) continue;
        const uint8* const from = rows + i / 32 * TILE_ROW_BYTES + 16 * vector;
        if (at >= begin && at + 16 <= end) {
            store_as(reinterpret_cast<uint8*>(at), load_as<Packed<4>>(from));
        } else {
            for (uint64 k = max(at, begin); k < min(end, at + 16); ++k) *reinterpret_cast<uint8*>(k) = from[k - at];
        }
    }
}
