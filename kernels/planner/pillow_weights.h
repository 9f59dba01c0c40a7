// Computes: the source pixels and integer weights of each output row and column of Pillow's resize, as kernels read
//           them. A table is of an axis: its first resized index, then for each visible one the first source pixel from
//           `low` on, and Axis.taps weights, some of them 0. Axes with equal tables may share one.
// Threads:  the caller's alone.
// Reference: Pillow's Resample.c (precompute_coeffs, normalize_coeffs_8bpc) and Geometry.c (ImagingScaleAffine).
// Tests:    tests/properties/test_pillow.py.
#pragma once
#include "planner/geometry.h"

// The filters' doubles, step by step as Pillow's: other steps would be rounded elsewhere.
inline double pillow_sinc(double x) {
    if (x == 0.0) return 1.0;
    x *= M_PI;
    return std::sin(x) / x;
}

template <int filter>
double pillow_filter(double x) {
    if (filter == BOX) return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
    if (filter == LANCZOS) return x >= -3.0 && x < 3.0 ? pillow_sinc(x) * pillow_sinc(x / 3.0) : 0.0;
    x = x < 0.0 ? -x : x;
    if (filter == BILINEAR) return x < 1.0 ? 1.0 - x : 0.0;
    if (filter == BICUBIC) {
        constexpr double a = -0.5;
        if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
        return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * a : 0.0;
    }
    if (x == 0.0) return 1.0;  // HAMMING
    if (x >= 1.0) return 0.0;
    x *= M_PI;
    return std::sin(x) / x * (double(0.54f) + double(0.46f) * std::cos(x));
}

inline bool resizes_as_pillow(const Sample& row) { return row.active && row.antialias >= X_FIRST; }

// Pixels of the whole resized axis. Later padding may have cut off what Axis shows of it.
inline int64 resized_size(const Axis& axis) { return std::llround((axis.high - axis.low) / axis.scale); }

// The most source pixels of an output pixel.
inline int pillow_taps(const Axis& axis, int filter) {
    if (filter == NEAREST) return 1;
    const double scale = double(axis.high - axis.low) / double(resized_size(axis));
    const double most = 2.0 * support_of(filter) * (scale > 1.0 ? scale : 1.0) + 1.0;
    return int(min(most + 1e-6, double(axis.high - axis.low)));  // rounding may reach a pixel further
}

// The resized indices that the output reads.
inline Range weighed(const Axis& axis, const Sample& row) {
    const bool reflects = shows_border(axis) && row.after.border >= REFLECT;
    return reflects ? Range(axis.seen_low, axis.seen_high) : Range(axis).within(axis.seen_low, axis.seen_high);
}

inline int64 table_words(const Axis& axis, const Sample& row) {
    const Range indices = weighed(axis, row);
    return 1 + (indices.high - indices.low) * (1 + axis.taps);
}

template <int filter>
void make_table(const Axis& axis, Range indices, int* table) {
    const int64 size = axis.high - axis.low;
    const double scale = double(size) / double(resized_size(axis)), stretch = scale > 1.0 ? scale : 1.0;
    const double support = support_of(filter) * stretch, shrink = 1.0 / stretch;
    *table++ = int(indices.low);
    for (int64 i = indices.low; i < indices.high; ++i, table += 1 + axis.taps) {
        const double center = (double(i) + 0.5) * scale;
        const int64 first = max<int64>(int64(center - support + 0.5), 0);
        const int64 count = min<int64>(int64(center + support + 0.5), size) - first;
        // All spans have one length: a loop whose count alternates costs more in mispredictions than sums of zeros.
        const int64 padded = min<int64>(first, size - axis.taps);
        int* const own = table + 1 + (first - padded);
        memset(table, 0, sizeof(int) * size_t(1 + axis.taps));
        table[0] = int(padded);
        double weights[64], total = 0.0;  // 64 at a time: later ones are computed again
        for (int64 k = 0; k < count; ++k) {
            const double weight = pillow_filter<filter>((double(first + k) - center + 0.5) * shrink);
            if (k < 64) weights[k] = weight;
            total += weight;
        }
        for (int64 k = 0; k < count; ++k) {
            double weight = k < 64 ? weights[k] : pillow_filter<filter>((double(first + k) - center + 0.5) * shrink);
            if (total != 0.0) weight /= total;
            own[k] = int((weight < 0.0 ? -0.5 : 0.5) + weight * (1 << WEIGHT_BITS));
        }
    }
}

// Positions add up, as Pillow's do: products would be rounded elsewhere.
template <>
inline void make_table<NEAREST>(const Axis& axis, Range indices, int* table) {
    const int64 size = axis.high - axis.low;
    const double scale = double(size) / double(resized_size(axis));
    double at = scale * 0.5;
    *table++ = int(indices.low);
    for (int64 i = 0; i < indices.high; ++i, at += scale) {
        if (i < indices.low) continue;
        table[0] = int(min<int64>(int64(at), size - 1)), table[1] = 1 << WEIGHT_BITS;
        table += 2;
    }
}

inline void make_table(const Axis& axis, const Sample& row, int* table) {
    const Range indices = weighed(axis, row);
    switch (row.filter) {
        case NEAREST: return make_table<NEAREST>(axis, indices, table);
        case BILINEAR: return make_table<BILINEAR>(axis, indices, table);
        case BICUBIC: return make_table<BICUBIC>(axis, indices, table);
        case BOX: return make_table<BOX>(axis, indices, table);
        case HAMMING: return make_table<HAMMING>(axis, indices, table);
        case LANCZOS: return make_table<LANCZOS>(axis, indices, table);
    }
}

// Whether two axes have one table.
inline bool share_table(const Axis& a, const Sample& row_a, const Axis& b, const Sample& row_b) {
    const Range indices_a = weighed(a, row_a), indices_b = weighed(b, row_b);
    return row_a.filter == row_b.filter && a.high - a.low == b.high - b.low && a.scale == b.scale &&
           indices_a.low == indices_b.low && indices_a.high == indices_b.high;
}

// Makes the tables of rows [n], from word `first` on, and sets where they lie. Without `tables` it only counts their
// words. A small hash table finds most axes that share one. Returns the number of words.
inline int64 weigh(Sample* rows, int64 n, int64 first, int* tables) {
    struct Known {
        const Axis* axis;
        const Sample* row;
        int at;
    } known[1024] = {};
    int64 words = 0;
    for (Sample* row = rows; row < rows + n; ++row) {
        if (!resizes_as_pillow(*row)) continue;
        for (const Axis* axis : {&row->y, &row->x}) {
            Known& seen = known[(17 * int64(axis->high - axis->low) + resized_size(*axis)) % 1024];
            if (!seen.axis || !share_table(*axis, *row, *seen.axis, *seen.row)) {
                seen = {axis, row, int(first + words)};
                if (tables) make_table(*axis, *row, tables + words);
                words += table_words(*axis, *row);
            }
            (axis == &row->y ? row->weights : row->extent) = seen.at;
        }
    }
    return words;
}
