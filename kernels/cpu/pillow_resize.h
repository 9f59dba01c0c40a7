// Computes: the CPU half of core/pillow_resize.h. Sums down a row are vectors of its values. Sums across act on the
//           same value of GROUP_ROWS rows at a time: lines[GROUP_ROWS * (3 * i + c) + row].
// Threads:  one row, or group of rows, per thread.
// Reference: core/pillow_resize.h.
// Tests:    tests/properties/test_pillow.py.
#pragma once
#include "core/pillow_resize.h"

typedef int IntVec __attribute__((vector_size(4 * LANES)));
constexpr int GROUP_ROWS = LANES < 8 ? 8 : LANES;
constexpr int VECS = PIXELS / LANES;       // that to_bytes packs
constexpr int MAX_SPAN = 512;              // source columns that are transposed together
constexpr int CHUNK = 4 * PIXELS;          // output columns, at most, that are summed together
constexpr int STEP = PIXELS / GROUP_ROWS;  // output columns whose levels to_bytes packs by three calls

DEVICE IntVec load_ints(const uint8* p) {
#if defined(__AVX512VBMI__)
    return IntVec(_mm512_cvtepu8_epi32(load<__m128i>(p)));
#elif defined(__AVX2__)
    return IntVec(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
    return IntVec{p[0], p[1], p[2], p[3]};
#endif
}

// bytes = the levels of PIXELS sums.
DEVICE void sums_to_levels(const IntVec* sums, uint8* bytes) {
    int values[PIXELS] CACHE_ALIGNED;
    for (int i = 0; i < VECS; ++i) store(values + i * LANES, descale<WEIGHT_BITS>(sums[i]));
    to_bytes(values, bytes);
}

DEVICE void sum_down(const Block& block, LevelRows from, int first_row, const LevelSpan* spans, int rows,
                     const int* weights, int values, LevelRows to) {
    for (int row = block.thread; row < rows; row += block.threads) {
        const LevelSpan span = spans[row];
        const int* const own = weights + span.weights;
        const uint8* const top = from.first + (span.first - first_row) * from.pitch;
        uint8* const out = to.first + row * to.pitch;
        if (span.count == 0) continue;
        for (int j = 0; j < values && values >= PIXELS; j += PIXELS) {
            const int at = min(j, values - PIXELS);  // the last vector overlaps those before
            IntVec sums[VECS] = {};
            const uint8* p = top + at;
            for (int k = 0; k < span.count; ++k, p += from.pitch)
#pragma GCC unroll 8
                for (int i = 0; i < VECS; ++i) sums[i] += own[k] * load_ints(p + i * LANES);
            sums_to_levels(sums, out + at);
        }
        for (int j = 0; j < values && values < PIXELS; ++j) {
            int sum = 0;
            for (int k = 0; k < span.count; ++k) sum += own[k] * top[k * from.pitch + j];
            out[j] = uint8(sum_to_level(sum));
        }
    }
}

// to[j * to_pitch + i] = from[i * from_pitch + j] for i, j < 8.
DEVICE void transpose_bytes(const uint8* from, int64 from_pitch, uint8* to, int64 to_pitch) {
#if defined(__SSE2__)
    __m128i rows[8];
    for (int i = 0; i < 8; ++i) rows[i] = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i * from_pitch));
    __m128i pairs[4], fours[4];
    for (int i = 0; i < 4; ++i) pairs[i] = _mm_unpacklo_epi8(rows[2 * i], rows[2 * i + 1]);
    for (int i = 0; i < 2; ++i) {
        fours[i] = i ? _mm_unpackhi_epi16(pairs[0], pairs[1]) : _mm_unpacklo_epi16(pairs[0], pairs[1]);
        fours[2 + i] = i ? _mm_unpackhi_epi16(pairs[2], pairs[3]) : _mm_unpacklo_epi16(pairs[2], pairs[3]);
    }
    for (int i = 0; i < 2; ++i) {
        const __m128i first = _mm_unpacklo_epi32(fours[i], fours[2 + i]);
        const __m128i last = _mm_unpackhi_epi32(fours[i], fours[2 + i]);
        uint8* const p = to + 4 * i * to_pitch;
        _mm_storel_epi64(reinterpret_cast<__m128i*>(p), first);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(p + to_pitch), _mm_unpackhi_epi64(first, first));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(p + 2 * to_pitch), last);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(p + 3 * to_pitch), _mm_unpackhi_epi64(last, last));
    }
#else
    for (int i = 0; i < 8; ++i)
        for (int j = 0; j < 8; ++j) to[j * to_pitch + i] = from[i * from_pitch + j];
#endif
}

// lines[GROUP_ROWS * i + row] = value i of each row; rows from `rows` on repeat the last one.
DEVICE void gather_lines(LevelRows from, int rows, int values, uint8* lines) {
    for (int half = 0; half < GROUP_ROWS; half += 8) {
        const uint8* const first = from.first + half * from.pitch;
        const bool whole = half + 8 <= rows && values >= 8;
        for (int i = 0; whole && i < values; i += 8) {
            const int at = min(i, values - 8);
            transpose_bytes(first + at, from.pitch, lines + GROUP_ROWS * at + half, GROUP_ROWS);
        }
        for (int row = half; row < half + 8 && !whole; ++row) {
            const uint8* const line = from.first + min(row, rows - 1) * from.pitch;
            for (int i = 0; i < values; ++i) lines[GROUP_ROWS * i + row] = line[i];
        }
    }
}

// The inverse: the first `rows` rows of `to`.
DEVICE void scatter_lines(const uint8* lines, int rows, int values, LevelRows to) {
    for (int half = 0; half < rows; half += 8) {
        const bool whole = half + 8 <= rows && values >= 8;
        for (int i = 0; whole && i < values; i += 8) {
            const int at = min(i, values - 8);
            transpose_bytes(lines + GROUP_ROWS * at + half, GROUP_ROWS, to.first + half * to.pitch + at, to.pitch);
        }
        for (int row = half; row < min(half + 8, rows) && !whole; ++row)
            for (int i = 0; i < values; ++i) to.first[row * to.pitch + i] = lines[GROUP_ROWS * i + row];
    }
}

// A pixel of each of `rows` rows, which reads too many source columns for `lines`.
DEVICE void sum_wide_span(LevelRows from, const int* weights, int taps, int rows, uint8* to, int64 pitch) {
    for (int row = 0; row < rows; ++row) {
        const uint8* p = from.first + row * from.pitch;
        int sums[3] = {};
        for (int k = 0; k < taps; ++k, p += 3)
            for (int c = 0; c < 3; ++c) sums[c] += weights[k] * p[c];
        for (int c = 0; c < 3; ++c) to[row * pitch + c] = uint8(sum_to_level(sums[c]));
    }
}

// out[3 * GROUP_ROWS * x + ...] = the levels of output column x, for spans of `count` columns of `lines`.
DEVICE void sum_chunk(const LevelSpan* spans, int columns, const int* weights, int count, int low, const uint8* lines,
                      uint8* out) {
    constexpr int vecs = 3 * GROUP_ROWS / LANES;
    for (int x = 0; x < columns; x += STEP) {
        IntVec sums[STEP * vecs];
        for (int p = 0; p < STEP; ++p) {
            const LevelSpan span = spans[min(x + p, columns - 1)];
            const int* const own = weights + span.weights;
            const uint8* const line = lines + 3 * GROUP_ROWS * (span.count == 0 ? 0 : span.first - low);
            IntVec sum[vecs] = {};
            for (int k = 0; k < count; ++k)
#pragma GCC unroll 8
                for (int i = 0; i < vecs; ++i) sum[i] += own[k] * load_ints(line + 3 * GROUP_ROWS * k + i * LANES);
#pragma GCC unroll 8
            for (int i = 0; i < vecs; ++i) sums[vecs * p + i] = sum[i];
        }
        for (int i = 0; i < 3; ++i) sums_to_levels(sums + VECS * i, out + 3 * GROUP_ROWS * x + PIXELS * i);
    }
}

DEVICE void sum_across(const Block& block, LevelRows from, int first_column, const LevelSpan* spans, int columns,
                       const int* weights, int rows, LevelRows to) {
    uint8 lines[3 * MAX_SPAN * GROUP_ROWS] CACHE_ALIGNED, out[3 * CHUNK * GROUP_ROWS] CACHE_ALIGNED;
    for (int begin = 0, end = 0; begin < columns; begin = end) {
        Span read = {0, 0};  // by the columns begin ... end - 1
        int taps = 0;
        for (end = begin; end < min(columns, begin + CHUNK); ++end) {
            const LevelSpan span = spans[end];
            if (span.count == 0) continue;
            const int low = taps ? min(read.first, span.first) : span.first;
            const int high = max(taps ? read.first + read.count : 0, span.first + span.count);
            if (taps && high - low > MAX_SPAN) break;
            read = {low, high - low}, taps = span.count;
        }
        for (int row = GROUP_ROWS * block.thread; row < rows && taps > 0; row += GROUP_ROWS * block.threads) {
            const int count = min(GROUP_ROWS, rows - row);
            const LevelRows group = {from.first + row * from.pitch + 3 * int64(read.first - first_column), from.pitch};
            const LevelRows target = {to.first + row * to.pitch + 3 * begin, to.pitch};
            if (taps > MAX_SPAN) {
                for (int x = begin; x < end; ++x)
                    if (spans[x].count > 0)
                        sum_wide_span(group, weights + spans[x].weights, taps, count, target.first + 3 * (x - begin),
                                      to.pitch);
                continue;
            }
            gather_lines(group, count, 3 * read.count, lines);
            sum_chunk(spans + begin, end - begin, weights, taps, read.first, lines, out);
            scatter_lines(out, count, 3 * (end - begin), target);
        }
    }
}
