// Computes: RGB pixels of a region from a JPEG's samples: upsampling, then YCbCr to RGB, with libjpeg-turbo's bits.
// Threads:  sixteen pixels of a row per thread, four values to a word, into shared memory. Then each thread stores
//           vectors of 16 bytes. Rows begin anywhere in memory, so that words are shifted on the way.
// Reference: libjpeg-turbo's jdsample.c and jdcolor.c; JFIF 1.02.
// Tests:    tests/kernels/test_decode_jpeg.py: Pillow's bits; tests/kernels/test_emulated_jpeg.py: barriers.
#pragma once
#include "jpeg_batch.h"
#include "platform.h"

constexpr int TILE_GROUPS = TILE_WIDTH / COLOR_PIXELS, TILE_ROW_WORDS = 3 * TILE_WIDTH / 4;
// One more: an unaligned word is read from two.
constexpr int TILE_WORDS = TILE_HEIGHT * TILE_ROW_WORDS + 4;

// --- upsampling ------------------------------------------------------------------------------------------------------

// The address of sample (y, x), for x a multiple of 8; eight of a block's row lie side by side.
DEVICE const uint8* sample_at(const JpegComponent& component, int y, int x) {
    const uint32 row = uint32(y - component.top), column = uint32(x - component.left);
    const uint32 place = (row >> 3) * uint32(component.blocks_across) * BLOCK_SAMPLES + (row & 7) * 8;
    return reinterpret_cast<const uint8*>(component.samples) + place + column * 8;
}

DEVICE uint64 load_eight(const uint8* samples) { return load_global(reinterpret_cast<const uint64*>(samples)); }

// Eight samples and their neighbors. pairs: 0 and 2, 1 and 3, 4 and 6, 5 and 7, 16 bits each.
struct EightSamples {
    uint32 pairs[4], before, after;
};

DEVICE void split_pairs(uint64 samples, uint32 (&pairs)[4]) {
    UNROLL
    for (int i = 0; i < 4; ++i) pairs[i] = uint32(samples >> (i & 2) * 16) >> (i & 1) * 8 & 0x00ff00ff;
}

// Four values from each pair's high bytes: those of `a` and `b` in turn.
DEVICE uint32 join_pairs(uint32 a, uint32 b) { return select_bytes(a, b, 0x7351); }

DEVICE EightSamples make_eight(uint64 samples, uint32 before, uint32 after) {
    EightSamples row = {{}, before, after};
    split_pairs(samples, row.pairs);
    return row;
}

// Replaces samples from number `count` on, which lie beyond the edge, by the last one before.
DEVICE uint64 repeat_last(uint64 samples, int count) {
    const uint64 last = samples >> 8 * (count - 1) & 255, beyond = ~uint64(0) << 8 * (count - 1);
    return (samples & ~beyond) | (last * 0x0101010101010101u & beyond);
}

// Sixteen values between eight samples of two rows: h2v2. halves: what even and odd values add to round.
DEVICE void interpolate(const EightSamples& near, const EightSamples& far, uint32 even_half, uint32 odd_half,
                        uint32 (&out)[4]) {
    uint32 sums[4];  // four times the values between the rows
    UNROLL
    for (int i = 0; i < 4; ++i) sums[i] = 3 * near.pairs[i] + far.pairs[i];
    const uint32 before = 3 * near.before + far.before, after = 3 * near.after + far.after;
    UNROLL
    for (int i = 0; i < 2; ++i) {
        const uint32 even = sums[2 * i], odd = sums[2 * i + 1];
        const uint32 left = odd << 16 | (i ? sums[1] >> 16 : before), right = even >> 16 | (i ? after : sums[2]) << 16;
        // 16 times the sums of 16 samples: the high byte is the mean.
        const uint32 low = join_pairs(48 * even + even_half + 16 * left, 48 * even + odd_half + 16 * odd);
        const uint32 high = join_pairs(48 * odd + even_half + 16 * even, 48 * odd + odd_half + 16 * right);
        out[2 * i] = select_bytes(low, high, 0x5410), out[2 * i + 1] = select_bytes(low, high, 0x7632);
    }
}

// Sixteen values from samples x to x + 7, for x a multiple of 8, and their neighbors. Beyond an edge the last sample
// repeats, to which libjpeg's special cases amount.
DEVICE void interpolate_rows(const JpegComponent& component, int near, int far, int x, uint32 (&out)[4]) {
    const uint8 *const near_at = sample_at(component, near, x), *const far_at = sample_at(component, far, x);
    uint64 near_samples = load_eight(near_at), far_samples = load_eight(far_at);
    const int count = component.right - x;
    uint32 near_after = 0, far_after = 0;
    if (count > 8) {
        near_after = load_global(near_at + BLOCK_SAMPLES), far_after = load_global(far_at + BLOCK_SAMPLES);
    } else {
        near_samples = repeat_last(near_samples, count), far_samples = repeat_last(far_samples, count);
        near_after = uint32(near_samples >> 56), far_after = uint32(far_samples >> 56);
    }
    uint32 near_before = uint32(near_samples) & 255, far_before = uint32(far_samples) & 255;
    if (x > component.left)
        near_before = load_global(near_at - BLOCK_SAMPLES + 7), far_before = load_global(far_at - BLOCK_SAMPLES + 7);
    const bool is_h2v1 = component.upsampling == ACROSS;  // both rows are the same one
    interpolate(make_eight(near_samples, near_before, near_after), make_eight(far_samples, far_before, far_after),
                is_h2v1 ? 0x00400040 : 0x00800080, is_h2v1 ? 0x00800080 : 0x00700070, out);
}

// Sixteen samples that pixels of row y from x on repeat.
DEVICE void repeat_samples(const JpegComponent& component, int y, int x, uint32 (&out)[4]) {
    const int scale = component.scale_x, column = x >> (scale >> 1);
    const uint8* const at = sample_at(component, y >> (component.scale_y >> 1), column & ~7) + (column & 4);
    if (scale == 1) {
        const bool has_second = x + 8 < component.right;
        const uint64 first = load_eight(at), second = has_second ? load_eight(at + BLOCK_SAMPLES) : 0;
        out[0] = uint32(first), out[1] = uint32(first >> 32), out[2] = uint32(second), out[3] = uint32(second >> 32);
        return;
    }
    const uint32 low = load_global(reinterpret_cast<const uint32*>(at));
    const uint32 high = scale == 2 ? load_global(reinterpret_cast<const uint32*>(at) + 1) : 0;
    out[0] = select_bytes(low, high, scale == 2 ? 0x1100 : 0x0000);
    out[1] = select_bytes(low, high, scale == 2 ? 0x3322 : 0x1111);
    out[2] = select_bytes(low, high, scale == 2 ? 0x5544 : 0x2222);
    out[3] = select_bytes(low, high, scale == 2 ? 0x7766 : 0x3333);
}

// A component's values at pixels x to x + 15 of row y. x is a multiple of 16 from the rectangle's left edge on.
DEVICE void upsample(const JpegComponent& component, int y, int x, uint32 (&out)[4]) {
    const int kind = component.upsampling;
    if (kind == REPEAT) return repeat_samples(component, y, x, out);
    const int near = kind == ACROSS ? y : y >> 1, other = near + ((y & 1) ? 1 : -1);
    const int far = kind == ACROSS ? y : clamp(other, component.top, component.bottom - 1);
    if (kind != DOWN) return interpolate_rows(component, near, far, x >> 1, out);
    const uint8 *const near_at = sample_at(component, near, x), *const far_at = sample_at(component, far, x);
    for (int i = 0; i < 2 && x + 8 * i < component.right; ++i) {  // h1v2
        uint32 pairs[4], others[4];
        split_pairs(load_eight(near_at + BLOCK_SAMPLES * i), pairs);
        split_pairs(load_eight(far_at + BLOCK_SAMPLES * i), others);
        UNROLL
        for (int k = 0; k < 4; ++k) pairs[k] = 192 * pairs[k] + 64 * others[k] + (y & 1 ? 0x00800080 : 0x00400040);
        out[2 * i] = join_pairs(pairs[0], pairs[1]), out[2 * i + 1] = join_pairs(pairs[2], pairs[3]);
    }
}

// --- colors ----------------------------------------------------------------------------------------------------------

DEVICE int byte_of(uint32 word, int number) { return int(word >> 8 * number & 255); }

// libjpeg's factors for red and blue have 16 bits of fraction. With 14 bits they fit add_product.
DEVICE constexpr bool are_equal(int factor_16, int factor_14, int half_14) {
    for (int value = -128; value < 128; ++value)
        if ((factor_16 * value + 32768) >> 16 != (factor_14 * value + half_14) >> 14) return false;
    return true;
}
constexpr int RED = 22970, RED_HALF = 8178, BLUE = 29033, BLUE_HALF = 8164;
static_assert(are_equal(91881, RED, RED_HALF) && are_equal(116130, BLUE, BLUE_HALF), "for every chroma");

// Four pixels. Chroma is read as signed bytes, from which 128 is subtracted.
DEVICE void convert_ycc(uint32 y, uint32 cb, uint32 cr, int (&rgb)[12]) {
    cb ^= 0x80808080, cr ^= 0x80808080;
    UNROLL
    for (int i = 0; i < 4; ++i) {
        const int luma = byte_of(y, i);
        rgb[3 * i] = luma + (add_product(RED_HALF, RED, cr, i) >> 14);
        rgb[3 * i + 1] = luma + (add_product(add_product(16384, -11277, cb, i), -23401, cr, i) >> 15);
        rgb[3 * i + 2] = luma + (add_product(BLUE_HALF, BLUE, cb, i) >> 14);
    }
}

// Sixteen pixels of row y from x on.
DEVICE void color_pixels(const JpegImage& image, int y, int x, uint32* out) {
    uint32 values[3][4];
    upsample(image.component[0], y, x, values[0]);
    const int color = image.color;
    if (color != GRAY_ONLY) {
        upsample(image.component[1], y, x, values[1]);
        upsample(image.component[2], y, x, values[2]);
    }
    Packed<4> words[3];
    UNROLL
    for (int i = 0; i < 4; ++i) {
        int rgb[12];
        if (color == YCC) {
            convert_ycc(values[0][i], values[1][i], values[2][i], rgb);
        } else {
            UNROLL
            for (int k = 0; k < 12; ++k) rgb[k] = byte_of(values[color == GRAY_ONLY ? 0 : k % 3][i], k / 3);
        }
        UNROLL
        for (int k = 0; k < 3; ++k)
            words[(3 * i + k) / 4].word[(3 * i + k) % 4] =
                pack_saturated(rgb[4 * k], rgb[4 * k + 1], rgb[4 * k + 2], rgb[4 * k + 3]);
    }
    UNROLL
    for (int i = 0; i < 3; ++i) store_as(out + 4 * i, words[i]);
}

// --- tiles -----------------------------------------------------------------------------------------------------------

// Where the pixels of a tile go. Bytes of a row count from the tile's first pixel on, which may be left of the region.
struct TileTarget {
    uint64 begin;
    int row_step, column_step;
    int rows, left, right;  // the end is excluded

    METHOD TileTarget(const JpegImage& image, int y, int x) {
        row_step = image.row_step, column_step = image.column_step;
        begin = image.target + uint64(int64(y - image.top) * row_step + int64(x - image.left) * column_step);
        rows = min(image.bottom - y, TILE_HEIGHT);
        left = 3 * max(image.left - x, 0), right = 3 * min(image.right - x, TILE_WIDTH);
    }
};

// Stores pixels one by one: the EXIF orientation turns or mirrors them.
DEVICE void store_turned(const Block& block, const TileTarget& target, const uint32* shared) {
    const uint8* const bytes = reinterpret_cast<const uint8*>(shared);
    for (int i = block.thread; i < TILE_WIDTH * TILE_HEIGHT; i += block.threads) {
        const int row = i % TILE_HEIGHT, column = i / TILE_HEIGHT;
        if (row >= target.rows || 3 * column < target.left || 3 * column >= target.right) continue;
        const int64 offset = int64(row) * target.row_step + int64(column) * target.column_step;
        uint8* const out = reinterpret_cast<uint8*>(target.begin + uint64(offset));
        for (int c = 0; c < 3; ++c) out[c] = bytes[3 * (row * TILE_WIDTH + column) + c];
    }
}

// Stores rows: the whole vectors of 16 bytes, which the threads of a row take in turn; then, of the vectors in which
// the row begins and ends, four bytes per thread.
DEVICE void store_rows(const Block& block, const TileTarget& target, const uint32* shared) {
    static_assert(TILE_GROUPS % 8 == 0, "eight threads store the ends of a row");
    const int left = target.left, right = target.right;
    for (uint32 i = uint32(block.thread); i < TILE_GROUPS * TILE_HEIGHT; i += uint32(block.threads)) {
        const int row = int(i / TILE_GROUPS), part = int(i % TILE_GROUPS);
        if (row >= target.rows) continue;
        const uint64 begin = target.begin + uint64(int64(row) * target.row_step);
        const uint8* const bytes = reinterpret_cast<const uint8*>(shared + row * TILE_ROW_WORDS);
        const int first = int(uint32(-begin) & 15) + 16 * part;
        const uint32* const from = reinterpret_cast<const uint32*>(bytes + (first & ~3));
        uint8* const out = reinterpret_cast<uint8*>(begin) + first;
        UNROLL
        for (int k = 0; k < TILE_ROW_WORDS / 4; k += TILE_GROUPS) {
            if (first + 16 * k < left || first + 16 * k + 16 > right) continue;
            Packed<4> vector;
            UNROLL
            for (int j = 0; j < 4; ++j)
                vector.word[j] = little_endian_word(from[4 * k + j], from[4 * k + j + 1], uint32(first) & 3);
            store_as(out + 16 * k, vector);
        }
        const int end = part & 4 ? right : left, vector = end - int((uint32(begin) + uint32(end)) & 15);
        if (part >= 8 || (vector >= left && vector + 16 <= right)) continue;
        const int at = vector + 4 * (part & 3);
        uint8* const out_bytes = reinterpret_cast<uint8*>(begin) + at;
        UNROLL
        for (int j = 0; j < 4; ++j)
            if (at + j >= left && at + j < right) out_bytes[j] = bytes[at + j];
    }
}

// Converts the tile whose first pixel is (y, x). x is a multiple of 16 from the rectangle's left edge on. shared
// [TILE_WORDS], from a multiple of 16 bytes on.
DEVICE void color_tile(const Block& block, const JpegImage& image, int y, int x, uint32* shared) {
    for (int i = block.thread; i < TILE_GROUPS * TILE_HEIGHT; i += block.threads) {
        const int row = y + i / TILE_GROUPS, column = x + COLOR_PIXELS * (i % TILE_GROUPS);
        if (row < image.bottom && column < image.right) color_pixels(image, row, column, shared + 12 * i);
    }
    const TileTarget target(image, y, x);
    block.sync();  // before pixels are stored
    if (target.column_step == 3)
        store_rows(block, target, shared);
    else
        store_turned(block, target, shared);
}
