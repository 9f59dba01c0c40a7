// Computes: the pixels of decoded JPEG blocks, PIXELS of a row at once: chroma upsampled, then RGB.
// Threads:  one thread per tile.
// Reference: core/jpeg_compression.h.
// Tests:    tests/properties/test_jpeg.py.
#pragma once
#include "core/jpeg_compression.h"
#include "cpu/store.h"

// 16 samples as words; 8 words as integers; 16 pairs of words, interleaved.
DEVICE Vec32<uint16> load_words(const uint8* p) {
    typedef uint8 Bytes __attribute__((vector_size(16)));
    return __builtin_convertvector(load<Bytes>(p), Vec32<uint16>);
}
DEVICE Vec32<uint16> load_words(const int* p) {
    Vec32<uint16> words;
    for (int i = 0; i < 16; ++i) words[i] = uint16(p[i]);
    return words;
}
DEVICE Vec32<int> load_ints(const uint16* p) {
    typedef uint16 Words __attribute__((vector_size(16)));
    return __builtin_convertvector(load<Words>(p), Vec32<int>);
}
DEVICE void store_pairs(const Vec32<uint16>& first, const Vec32<uint16>& second, uint16* out) {
    for (int i = 0; i < 16; ++i) out[2 * i] = first[i], out[2 * i + 1] = second[i];
}

// PIXELS chroma samples of a row from `first` on, which may be -1. A copy repeats the window's first or last column
// once, where one of them is needed.
DEVICE const JpegSample* padded_row(const Plane& plane, int y, int first, int last, JpegSample (&copy)[PIXELS]) {
    const JpegSample* const row = sample_at(plane, y, first);
    const int remaining = last + 1 - first;
    if (first >= 0 && remaining >= PIXELS / 2 + 2) return row;
    memcpy(copy, row, sizeof copy);
    if (first < 0) copy[0] = copy[1];
    if (remaining < PIXELS) copy[remaining] = copy[remaining - 1];
    return copy;
}

// Chroma of PIXELS pixels of window row y from column x on. The first pixel lies in the window.
DEVICE void upsample_row(const Plane& plane, int y, int x, int height, int width, uint16* out) {
    const int last_row = (height - 1) / 2, last_column = (width - 1) / 2;
    const int far_y = min(max(y / 2 + (y & 1 ? 1 : -1), 0), last_row);
    if (last_column < 2) {
        FOR_PIXELS(p) out[p] = *sample_at(plane, y / 2, min((x + p) / 2, last_column));
        return;
    }
    const int first = (x + 1) / 2 - 1;
    JpegSample near_copy[PIXELS], far_copy[PIXELS];
    const JpegSample* const near = padded_row(plane, y / 2, first, last_column, near_copy);
    const JpegSample* const far = padded_row(plane, far_y, first, last_column, far_copy);
    // An even column and the next odd one need the sample before, their own, and the one after; an odd column and the
    // next even one need both of theirs.
    Vec32<uint16> sums[3];
    for (int k = 0; k < 3; ++k) sums[k] = 3 * load_words(near + k) + load_words(far + k);
    if (x & 1)
        store_pairs((3 * sums[0] + sums[1] + 7) >> 4, (3 * sums[1] + sums[0] + 8) >> 4, out);
    else
        store_pairs((3 * sums[1] + sums[0] + 8) >> 4, (3 * sums[1] + sums[2] + 7) >> 4, out);
}

// The levels of PIXELS pixels of window row y from column x on. The first pixel lies in the window.
DEVICE void decode_row(const Sample& sample, const Plane* planes, int y, int x, uint8 (*levels)[PIXELS]) {
    const int height = sample.y.inner_high - sample.y.inner_low, width = sample.x.inner_high - sample.x.inner_low;
    uint16 luma[PIXELS], blue[PIXELS], red[PIXELS];
    int rgb[3][PIXELS];
    for (int p = 0; p < PIXELS; p += 16) store(luma + p, load_words(sample_at(planes[0], y, x) + p));
    upsample_row(planes[1], y, x, height, width, blue);
    upsample_row(planes[2], y, x, height, width, red);
    for (int p = 0; p < PIXELS; p += 8) {
        const Vec32<int> bright = load_ints(luma + p), cb = load_ints(blue + p), cr = load_ints(red + p);
        store(rgb[0] + p, bright + red_offset(cr));
        store(rgb[1] + p, bright + green_offset(cb, cr));
        store(rgb[2] + p, bright + blue_offset(cb));
    }
    for (int c = 0; c < 3; ++c) to_bytes(rgb[c], levels[c]);
}

// v = levels times `level`.
DEVICE void to_values(const uint8 (*levels)[PIXELS], float level, PixelBlock& v) {
    for (int c = 0; c < 3; ++c)
        for (int p = 0; p < PIXELS; p += LANES) store(&v[c][p], level * load_floats(levels[c] + p));
}

// Stores a pixel block as uint8 directly, if nothing but rounding remains and the pixels are neighbors from left to
// right. Returns whether it did.
DEVICE bool store_levels(const Sample& sample, const Plane* planes, int y, int x, int pixels) {
    if (sample.level != 1.0f || !only_rounds(sample)) return false;
    const SourcePixels at = source_pixels(sample, y, x, pixels);
    if (at.row == FILL_AFTER || !at.contiguous || at.step < 0) return false;
    uint8 levels[3][PIXELS], packed[3 * PIXELS];
    PixelBlock v;
    decode_row(sample, planes, at.row - sample.y.inner_low, at.left - sample.x.inner_low, levels);
    uint8* const target = reinterpret_cast<uint8*>(sample.target.address) + 3 * (int64(y) * sample.x.out + x);
    to_values(levels, 1.0f, v);
    store_packed(v, pixels == PIXELS ? target : packed);
    if (pixels < PIXELS) memcpy(target, packed, 3 * size_t(pixels));
    return true;
}

// v = the pixels of a block, if they are neighbors in the window. Returns whether it did.
DEVICE bool decode_block(const Sample& sample, const Plane* planes, const SourcePixels& at, PixelBlock& v) {
    if (at.row == FILL_AFTER || !at.contiguous) return false;
    uint8 levels[3][PIXELS];
    decode_row(sample, planes, at.row - sample.y.inner_low, at.left - sample.x.inner_low, levels);
    to_values(levels, sample.level, v);
    if (at.step < 0) reverse(v, at.pixels);
    return true;
}
