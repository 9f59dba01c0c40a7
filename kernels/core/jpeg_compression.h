// What encoding as a JPEG and decoding it again leaves of an image: baseline, 4:2:0, as libjpeg does both by default
// (and so Pillow and torchvision), bit for bit: its colours (core/jpeg_samples.h), its DCT and quantiser (core/dct.h),
// its "fancy" upsampling. Entropy coding loses nothing and is left out.
//
// A block of threads makes the 8 x 8 blocks of luma and chroma that its tile needs, in scratch, in phases divided by
// barriers: samples; rows forwards; columns forwards, quantised, and columns back; rows back; pixels. Blocks that
// tiles share are made by each.
//
// Scratch (for CUDA, core/scratch.h sizes it by the same sum): one plane of luma, two of chroma, of 64 *
// blocks_over(rows) * blocks_over(columns) samples; chroma's rows and columns are n / 2 + 3 of the tile's n. A sample
// is an integer on CUDA and a byte on the host, whose threads make a block of 8 x 8 as a whole, in registers.
//
// Tested against Pillow's save and load, and tests/references/jpeg.py.
#pragma once
#include "core/jpeg_samples.h"
#include "core/store.h"

// --- there and back in blocks ----------------------------------------------------------------------------------------

#if WHOLE_BLOCKS

DEVICE void code_blocks(const Block&, const float* tables, const Plane* planes) {
    for (int k = 0; k < 3; ++k)
        code_plane(k == 0 ? tables : tables + 64, planes[k].samples, planes[k].rows, planes[k].columns);
}

#else

DEVICE void rows_forward(const Block& block, Plane plane) {
    for (int i = block.thread; i < plane.rows * plane.columns / 8; i += block.threads)
        forward_dct<false>(plane.samples + 8 * i);
}

DEVICE void rows_back(const Block& block, Plane plane) {
    for (int i = block.thread; i < plane.rows * plane.columns / 8; i += block.threads) {
        int* row = plane.samples + 8 * i;
        inverse_dct<false>(row);
        for (int k = 0; k < 8; ++k) row[k] = to_sample(row[k]);
    }
}

DEVICE void columns_there_and_back(const Block& block, const float* steps, Plane plane) {
    for (int i = block.thread; i < plane.rows / 8 * plane.columns; i += block.threads) {
        int* top = plane.samples + i / plane.columns * 8 * plane.columns + i % plane.columns;
        int column[8];
        for (int k = 0; k < 8; ++k) column[k] = top[k * plane.columns];
        there_and_back(steps + (i & 7), column);
        for (int k = 0; k < 8; ++k) top[k * plane.columns] = column[k];
    }
}

DEVICE void code_blocks(const Block& block, const float* tables, const Plane* planes) {
    for (int k = 0; k < 3; ++k) rows_forward(block, planes[k]);
    block.sync();
    for (int k = 0; k < 3; ++k) columns_there_and_back(block, k == 0 ? tables : tables + 64, planes[k]);
    block.sync();
    for (int k = 0; k < 3; ++k) rows_back(block, planes[k]);
}

#endif

// --- back to pixels --------------------------------------------------------------------------------------------------

// Chroma at pixel (y, x): a quarter of the way to the neighbouring samples; narrow images have the nearest.
DEVICE int upsampled(const Plane& plane, int y, int x, int height, int width) {
    const int last_row = (height - 1) / 2, last_column = (width - 1) / 2;
    if (last_column < 2) return *place_in(plane, y / 2, x / 2);
    const int far = smaller(larger(y / 2 + (y & 1 ? 1 : -1), 0), last_row);
    const int beside = smaller(larger(x / 2 + (x & 1 ? 1 : -1), 0), last_column);
    const int near_sum = 3 * *place_in(plane, y / 2, x / 2) + *place_in(plane, far, x / 2);
    const int far_sum = 3 * *place_in(plane, y / 2, beside) + *place_in(plane, far, beside);
    return (3 * near_sum + far_sum + (x & 1 ? 7 : 8)) >> 4;
}

// JFIF's colours, back: what chroma adds to luma.
template <class Value>
DEVICE Value red_part(Value red) {
    return (91881 * (red - 128) + 32768) >> 16;
}
template <class Value>
DEVICE Value green_part(Value blue, Value red) {
    return (-22554 * (blue - 128) - 46802 * (red - 128) + 32768) >> 16;
}
template <class Value>
DEVICE Value blue_part(Value blue) {
    return (116130 * (blue - 128) + 32768) >> 16;
}

// The pixels of the window that some output indices show; none where they show fill alone.
DEVICE Span shown_range(const Sample& sample, const Axis& axis, int begin, int count) {
    int low = 2147483647, high = -1;
    for (int i = begin; i < begin + count; ++i) {
        const int at = shown(sample, axis, i);
        if (at == AFTER) continue;
        low = smaller(low, at - axis.inner_low);
        high = larger(high, at - axis.inner_low);
    }
    return high < 0 ? Span{0, 0} : Span{low, high + 1 - low};
}

// The decoded blocks that a tile of these pixels of the window needs, in scratch. All threads leave together.
template <class T>
DEVICE void jpeg_planes(const Block& block, const Sample& sample, const float* tables, Span rows, Span columns,
                        Kept* scratch, Plane* planes) {
    if (rows.count == 0 || columns.count == 0) return;
    const int low = rows.first, high = rows.first + rows.count - 1;
    const int left = columns.first, right = columns.first + columns.count - 1;
    const int height = sample.y.inner_high - sample.y.inner_low, width = sample.x.inner_high - sample.x.inner_low;
    const int chroma_low = larger(low / 2 - 1, 0), chroma_high = smaller(high / 2 + 1, (height - 1) / 2);
    const int chroma_left = larger(left / 2 - 1, 0), chroma_right = smaller(right / 2 + 1, (width - 1) / 2);
    for (int k = 0; k < 3; ++k) {
        planes[k] = k == 0 ? plane_over(low, high, left, right, scratch)
                           : plane_over(chroma_low, chroma_high, chroma_left, chroma_right, scratch);
        scratch += planes[k].rows * planes[k].columns;
    }
    read_samples<T>(block, sample, planes, height, width);
    block.sync();
    code_blocks(block, tables + sample.weights, planes);
    block.sync();
}

#if !defined(__CUDACC__)

// 16 samples; 8 words; 16 pairs of two words.
DEVICE Many<uint16> words_at(const uint8* p) {
#if defined(__AVX2__)
    return Many<uint16>(_mm256_cvtepu8_epi16(load<__m128i>(p)));
#else
    typedef uint8 Bytes __attribute__((vector_size(16)));
    return __builtin_convertvector(load<Bytes>(p), Many<uint16>);
#endif
}
DEVICE Many<uint16> words_at(const int* p) {
    Many<uint16> words;
    for (int i = 0; i < 16; ++i) words[i] = uint16(p[i]);
    return words;
}
DEVICE Many<int> ints_at(const uint16* p) {
#if defined(__AVX2__)
    return Many<int>(_mm256_cvtepu16_epi32(load<__m128i>(p)));
#else
    typedef uint16 Words __attribute__((vector_size(16)));
    return __builtin_convertvector(load<Words>(p), Many<int>);
#endif
}
DEVICE void store_pairs(const Many<uint16>& first, const Many<uint16>& second, uint16* out) {
#if defined(__AVX2__)
    const __m256i low = _mm256_unpacklo_epi16(__m256i(first), __m256i(second));
    const __m256i high = _mm256_unpackhi_epi16(__m256i(first), __m256i(second));
    store_many(out, Many<uint16>(_mm256_permute2x128_si256(low, high, 0x20)));
    store_many(out + 16, Many<uint16>(_mm256_permute2x128_si256(low, high, 0x31)));
#else
    for (int i = 0; i < 16; ++i) out[2 * i] = first[i], out[2 * i + 1] = second[i];
#endif
}

// PIXELS samples of a row of chroma from `first` on, which may be -1: where they lie, or where the window's first or
// last column is among those that matter, a copy in which it repeats once.
DEVICE const Kept* smooth_row(const Plane& plane, int y, int first, int last, Kept (&copy)[PIXELS]) {
    const Kept* const row = place_in(plane, y, first);
    const int behind = last + 1 - first;
    if (first >= 0 && behind >= PIXELS / 2 + 2) return row;
    memcpy(copy, row, sizeof copy);
    if (first < 0) copy[0] = copy[1];
    if (behind < PIXELS) copy[behind] = copy[behind - 1];
    return copy;
}

// Chroma of PIXELS neighbouring pixels of a row of the window, from column x on. They may end beyond it, but begin in
// it.
DEVICE void upsampled_row(const Plane& plane, int y, int x, int height, int width, uint16* out) {
    const int last_row = (height - 1) / 2, last_column = (width - 1) / 2;
    const int far_y = smaller(larger(y / 2 + (y & 1 ? 1 : -1), 0), last_row);
    if (last_column < 2) {
        FOR_PIXELS(p) out[p] = *place_in(plane, y / 2, smaller((x + p) / 2, last_column));
        return;
    }
    const int first = (x + 1) / 2 - 1;
    Kept near_copy[PIXELS], far_copy[PIXELS];
    const Kept* const near = smooth_row(plane, y / 2, first, last_column, near_copy);
    const Kept* const far = smooth_row(plane, far_y, first, last_column, far_copy);
    // Of an even column and the odd one beside it, the sample before, theirs, and that behind; of an odd one and the
    // even one beside it, both theirs.
    Many<uint16> sums[3];
    for (int k = 0; k < 3; ++k) sums[k] = 3 * words_at(near + k) + words_at(far + k);
    if (x & 1)
        store_pairs((3 * sums[0] + sums[1] + 7) >> 4, (3 * sums[1] + sums[0] + 8) >> 4, out);
    else
        store_pairs((3 * sums[1] + sums[0] + 8) >> 4, (3 * sums[1] + sums[2] + 7) >> 4, out);
}

// The levels of PIXELS neighbouring pixels of a row of the window, likewise.
DEVICE void decoded_row(const Sample& sample, const Plane* planes, int y, int x, uint8 (*levels)[PIXELS]) {
    const int height = sample.y.inner_high - sample.y.inner_low, width = sample.x.inner_high - sample.x.inner_low;
    uint16 luma[PIXELS], blue[PIXELS], red[PIXELS];
    int rgb[3][PIXELS];
    for (int p = 0; p < PIXELS; p += 16) store_many(luma + p, words_at(place_in(planes[0], y, x) + p));
    upsampled_row(planes[1], y, x, height, width, blue);
    upsampled_row(planes[2], y, x, height, width, red);
    for (int p = 0; p < PIXELS; p += 8) {
        const Many<int> bright = ints_at(luma + p), cb = ints_at(blue + p), cr = ints_at(red + p);
        store_many(rgb[0] + p, bright + red_part(cr));
        store_many(rgb[1] + p, bright + green_part(cb, cr));
        store_many(rgb[2] + p, bright + blue_part(cb));
    }
    for (int c = 0; c < 3; ++c) to_bytes(rgb[c], levels[c]);
}

// v = the levels of each channel in the units of the image, where one is `level`.
DEVICE void to_values(const uint8 (*levels)[PIXELS], float level, Strip& v) {
    for (int c = 0; c < 3; ++c)
        for (int p = 0; p < PIXELS; p += LANES) store(&v[c][p], level * widen(levels[c] + p));
}

// Stores a strip of output row y as bytes, if it is of such a pass and shows neighbours from left to right.
DEVICE bool store_levels(const Sample& sample, const Plane* planes, int y, int x, int pixels) {
    if (sample.level != 1.0f || !only_packs(sample)) return false;
    const Shown at = shown_strip(sample, y, x, pixels);
    if (at.row == AFTER || !at.neighbours || at.step < 0) return false;
    uint8 levels[3][PIXELS], packed[3 * PIXELS];
    Strip v;
    decoded_row(sample, planes, at.row - sample.y.inner_low, at.left - sample.x.inner_low, levels);
    uint8* const target = reinterpret_cast<uint8*>(sample.target) + 3 * (int64(y) * sample.x.out + x);
    to_values(levels, 1.0f, v);
    store_packed(v, pixels == PIXELS ? target : packed);
    if (pixels < PIXELS) memcpy(target, packed, 3 * size_t(pixels));
    return true;
}

#else

DEVICE bool store_levels(const Sample&, const Plane*, int, int, int) { return false; }

#endif

DEVICE void jpeg_strip(const Sample& sample, const Plane* planes, const Shown& at, Strip& v) {
#if !defined(__CUDACC__)
    if (at.row != AFTER && at.neighbours) {
        uint8 levels[3][PIXELS];
        decoded_row(sample, planes, at.row - sample.y.inner_low, at.left - sample.x.inner_low, levels);
        to_values(levels, sample.level, v);
        if (at.step < 0) reverse(v, at.pixels);
        return;
    }
#endif
    const int height = sample.y.inner_high - sample.y.inner_low, width = sample.x.inner_high - sample.x.inner_low;
    const int y = at.row - sample.y.inner_low;
    for (int p = 0; p < PIXELS; ++p) {
        const int x = at.column[p] - sample.x.inner_low;
        if (at.row == AFTER || at.column[p] == AFTER) {
            for (int c = 0; c < 3; ++c) v[c][p] = sample.fill_after[c];
            continue;
        }
        const int luma = *place_in(planes[0], y, x);
        const int blue = upsampled(planes[1], y, x, height, width), red = upsampled(planes[2], y, x, height, width);
        const int parts[3] = {red_part(red), green_part(blue, red), blue_part(blue)};
        for (int c = 0; c < 3; ++c) v[c][p] = float(smaller(larger(luma + parts[c], 0), 255)) * sample.level;
    }
}
