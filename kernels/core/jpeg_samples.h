// A JPEG's samples: blocks of luma and chroma, where a tile keeps them, and how they come from the source's pixels.
//
// Tested through core/jpeg_compression.h.
#pragma once
#include "core/dct.h"
#include "core/neighbourhood.h"

// With several threads for each tile the host does as CUDA, so that the barriers are tested.
#if defined(__CUDACC__) || defined(CUAUG_BLOCK_THREADS)
#define WHOLE_BLOCKS 0
typedef int Kept;
#else
#define WHOLE_BLOCKS 1
typedef uint8 Kept;
#endif

// The most blocks of 8 that n neighbouring samples lie in.
DEVICE int blocks_over(int n) { return (n + 14) / 8; }

// In floats. Strips of several pixels may read some samples beyond the last, which they do not use.
DEVICE int64 jpeg_scratch(int rows, int columns) {
    const int64 luma = int64(blocks_over(rows)) * blocks_over(columns);
    const int64 chroma = int64(blocks_over(rows / 2 + 3)) * blocks_over(columns / 2 + 3);
    const int64 samples = 64 * (luma + 2 * chroma) + (PIXELS > 1 ? PIXELS : 0);
    return samples * int64(sizeof(Kept)) / int64(sizeof(float));
}

// Blocks of one component that a tile needs: the first sample, and how many samples down and across.
struct Plane {
    int y, x, rows, columns;
    Kept* samples;
};

DEVICE Kept* place_in(const Plane& plane, int y, int x) {
    return plane.samples + int64(y - plane.y) * plane.columns + (x - plane.x);
}

// The blocks of samples low .. high (both included) down and left .. right across.
DEVICE Plane plane_over(int low, int high, int left, int right, Kept* samples) {
    const int y = low & ~7, x = left & ~7;
    return {y, x, (high & ~7) + 8 - y, (right & ~7) + 8 - x, samples};
}

// Values in levels, as an encoder is given them.
template <class Real>
DEVICE Real to_levels(Real value, float per) {
    return to_floats(to_ints(smaller(larger(value * per, Real{}), Real{} + 255.0f) + 0.5f));
}

// Pixel (y, x) of the window.
template <class T>
DEVICE const T* pixel_at(const Sample& sample, int y, int x) {
    return row_of<T>(sample, sample.y.inner_low + y) + int64(sample.x.inner_low + x - sample.x.held_low) * 3;
}

// JFIF's colours, in libjpeg's 16 bits. No sum reaches 2^24: all of it is exact.
template <class Real>
DEVICE auto luma_of(Real r, Real g, Real b) {
    return to_ints((19595.0f * r + 38470.0f * g + 7471.0f * b + 32768.0f) * (1.0f / 65536));
}
template <class Real>
DEVICE auto blue_of(Real r, Real g, Real b) {
    return to_ints((32768.0f * b - 11059.0f * r - 21709.0f * g + 8421375.0f) * (1.0f / 65536));
}
template <class Real>
DEVICE auto red_of(Real r, Real g, Real b) {
    return to_ints((32768.0f * r - 27439.0f * g - 5329.0f * b + 8421375.0f) * (1.0f / 65536));
}

// The mean of 2 x 2 samples of chroma that lie in column x, halves rounded down and up in turn.
DEVICE int mean_of(int sum, int x) { return (sum + 1 + (x & 1)) >> 2; }

#if WHOLE_BLOCKS

// The levels of PIXELS pixels of a row of the window from column x on; beyond its last one that repeats.
template <class T>
DEVICE void levels_from(const Sample& sample, int y, int x, int width, Strip& v) {
    if (x + PIXELS <= width) {
        unpack(pixel_at<T>(sample, y, x), v);
    } else {
        T pixels[3 * PIXELS];
        for (int p = 0; p < PIXELS; ++p)
            memcpy(pixels + 3 * p, pixel_at<T>(sample, y, smaller(x + p, width - 1)), 3 * sizeof(T));
        unpack(pixels, v);
    }
    if (sizeof(T) == sizeof(uint8) && sample.level == 1.0f) return;
    const float per = 1.0f / sample.level;
    for (int c = 0; c < 3; ++c)
        for (int p = 0; p < PIXELS; p += 8) store_many(&v[c][p], to_levels(load_many(&v[c][p]), per));
}

// Samples `x` and on of a row of a plane become those of `values` that lie in it.
template <int count>
DEVICE void put(const Plane& plane, int y, int x, const uint8* values) {
    const int begin = larger(x, plane.x), end = smaller(x + count, plane.x + plane.columns);
    if (y < plane.y || y >= plane.y + plane.rows || begin >= end) return;
    uint8* const to = place_in(plane, y, begin);
    if (end - begin == count)
        memcpy(to, values, count);
    else
        memcpy(to, values + (begin - x), size_t(end - begin));
}

// means[i] = the mean of what two neighbouring values of `sums` sum up.
DEVICE void to_means(const int* sums, uint8* means) {
#if defined(__SSE2__)
    const __m128i ones = _mm_set1_epi16(1), half = _mm_setr_epi32(1, 2, 1, 2);
    __m128i words[PIXELS / 8];
    for (int i = 0; i < PIXELS / 8; ++i) {
        const __m128i eight = _mm_packs_epi32(load<__m128i>(sums + 8 * i), load<__m128i>(sums + 8 * i + 4));
        const __m128i pairs = _mm_madd_epi16(eight, ones);
        words[i] = _mm_srai_epi32(_mm_add_epi32(pairs, half), 2);
    }
    for (int i = 0; i < PIXELS / 8; i += 4) {
        const __m128i low = _mm_packs_epi32(words[i], words[i + 1]), high = _mm_packs_epi32(words[i + 2], words[i + 3]);
        const __m128i bytes = _mm_packus_epi16(low, high);
        memcpy(means + 4 * i, &bytes, sizeof bytes);
    }
#else
    for (int i = 0; i < PIXELS / 2; ++i) means[i] = uint8(mean_of(sums[2 * i] + sums[2 * i + 1], i));
#endif
}

// The samples of two rows of the window, from y on, for PIXELS columns of it: luma, and chroma between the rows.
template <class T>
DEVICE void read_rows(const Sample& sample, const Plane* planes, int y, int x, int height, int width) {
    int luma[2][PIXELS], blue[PIXELS], red[PIXELS];
    uint8 bytes[PIXELS];
    Strip v[2];
    for (int row = 0; row < 2; ++row) levels_from<T>(sample, smaller(y + row, height - 1), x, width, v[row]);
    for (int p = 0; p < PIXELS; p += 8) {
        Many<int> cb = {}, cr = {};
        for (int row = 0; row < 2; ++row) {
            const Many<float> r = load_many(&v[row][0][p]), g = load_many(&v[row][1][p]);
            const Many<float> b = load_many(&v[row][2][p]);
            store_many(luma[row] + p, luma_of(r, g, b));
            cb += blue_of(r, g, b), cr += red_of(r, g, b);
        }
        store_many(blue + p, cb);
        store_many(red + p, cr);
    }
    for (int row = 0; row < 2; ++row) {
        to_bytes(luma[row], bytes);
        put<PIXELS>(planes[0], y + row, x, bytes);
    }
    to_means(blue, bytes);
    put<PIXELS / 2>(planes[1], y / 2, x / 2, bytes);
    to_means(red, bytes);
    put<PIXELS / 2>(planes[2], y / 2, x / 2, bytes);
}

// Rows of a plane from `end` on repeat the one before.
DEVICE void repeat_last_row(const Plane& plane, int end) {
    for (int y = end; y < plane.y + plane.rows; ++y)
        memcpy(place_in(plane, y, plane.x), place_in(plane, end - 1, plane.x), size_t(plane.columns));
}

template <class T>
DEVICE void read_samples(const Block&, const Sample& sample, const Plane* planes, int height, int width) {
    const Plane& chroma = planes[1];  // reaches at least as far as luma
    const int end = smaller(chroma.y + chroma.rows, (height + 1) / 2);
    for (int y = chroma.y; y < end; ++y)
        for (int x = chroma.x; x < chroma.x + chroma.columns; x += PIXELS / 2)
            read_rows<T>(sample, planes, 2 * y, 2 * x, height, width);
    repeat_last_row(planes[0], height);
    for (int k = 1; k < 3; ++k) repeat_last_row(planes[k], (height + 1) / 2);
}

#else

// The levels of the pixel of the window nearest to (y, x).
template <class T>
DEVICE void levels_at(const Sample& sample, int y, int x, int height, int width, float* rgb) {
    const T* pixel = pixel_at<T>(sample, smaller(y, height - 1), smaller(x, width - 1));
    for (int c = 0; c < 3; ++c) rgb[c] = to_levels(float(pixel[c]), 1.0f / sample.level);
}

// Downwards it is chroma's last row that repeats, sideways the window's last column.
template <class T>
DEVICE void read_samples(const Block& block, const Sample& sample, const Plane* planes, int height, int width) {
    float rgb[3];
    for (int i = block.thread; i < planes[0].rows * planes[0].columns; i += block.threads) {
        const int y = planes[0].y + i / planes[0].columns, x = planes[0].x + i % planes[0].columns;
        levels_at<T>(sample, y, x, height, width, rgb);
        planes[0].samples[i] = luma_of(rgb[0], rgb[1], rgb[2]) - 128;
    }
    for (int i = block.thread; i < planes[1].rows * planes[1].columns; i += block.threads) {
        const int y = smaller(planes[1].y + i / planes[1].columns, (height - 1) / 2);
        const int x = planes[1].x + i % planes[1].columns;
        int blue = 0, red = 0;
        for (int k = 0; k < 4; ++k) {
            levels_at<T>(sample, 2 * y + k / 2, 2 * x + k % 2, height, width, rgb);
            blue += blue_of(rgb[0], rgb[1], rgb[2]), red += red_of(rgb[0], rgb[1], rgb[2]);
        }
        planes[1].samples[i] = mean_of(blue, x) - 128, planes[2].samples[i] = mean_of(red, x) - 128;
    }
}

#endif
