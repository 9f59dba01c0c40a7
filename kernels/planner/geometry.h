// Computes: how crops, pads, flips, resizes, filters and warps fold into one Axis row: one sampling step.
// Threads:  the CPU's planner only.
// Reference: plan.h explains the fields. Positions and lengths along rows and columns are the source's, unless the
//           sample is `transposed`.
// Tests:    tests/properties/test_fusion.py, tests/properties/test_sampling.py.
#pragma once
#include "plan.h"

inline Axis& down(Sample& sample) { return sample.transposed ? sample.x : sample.y; }
inline Axis& across(Sample& sample) { return sample.transposed ? sample.y : sample.x; }

// The resized indices [low, high) that the output reads, in either direction.
struct Range {
    int64 low, high;

    explicit Range(const Axis& axis) {
        low = axis.step > 0 ? axis.start : int64(axis.start) - (axis.out - 1);
        high = low + axis.out;
    }
    Range(int64 low, int64 high) : low(low), high(high) {}

    // The part inside [first, end), at least one index.
    Range within(int64 first, int64 end) const {
        return {min<int64>(max<int64>(low, first), end - 1), min<int64>(max<int64>(high, first + 1), end)};
    }
};

// The identity on a source of `size` pixels.
inline void begin(Axis& axis, int64 size) {
    axis = {};
    axis.scale = 1.0;
    axis.step = 1;
    axis.high = axis.inner_high = axis.out = axis.seen_high = int(size);
}

inline bool shows_border(const Axis& axis) {
    const Range visible(axis);
    return visible.low < axis.seen_low || visible.high > axis.seen_high;
}

inline void crop(Axis& axis, int64 begin, int64 length) {
    axis.start = int(axis.start + axis.step * begin);
    axis.out = int(length);
}

inline void flip(Axis& axis) {
    axis.start += axis.step * (axis.out - 1);
    axis.step = -axis.step;
}

// Maximum length of rows and columns, and maximum coordinate.
constexpr int64 MAX_SIDE = 2147483647;

inline bool can_pad(const Axis& axis, int64 before, int64 after) {
    const Range visible(axis);
    const int64 longer = max<int64>(before, after);
    if (longer > MAX_SIDE || axis.out + before + after > MAX_SIDE) return false;
    return max<int64>(-visible.low, visible.high) + longer <= MAX_SIDE;
}

// Padding continues the visible pixels: pixels that a crop has cut off do not return.
inline void pad(Axis& axis, int64 before, int64 after) {
    const Range visible(axis);
    axis.seen_low = int(max<int64>(axis.seen_low, visible.low));
    axis.seen_high = int(min<int64>(axis.seen_high, visible.high));
    axis.start = int(axis.start - axis.step * before);
    axis.out = int(axis.out + before + after);
}

// The output shows the whole resized axis, in its present direction.
inline void show_whole(Axis& axis, int64 size) {
    axis.start = axis.step > 0 ? 0 : int(size - 1);
    axis.out = axis.seen_high = int(size);
    axis.seen_low = 0;
}

// The first resize of a pass: the visible part becomes the window, and its border the border before.
inline void resize(Axis& axis, int64 size) {
    const Range visible(axis);
    axis.inner_low = axis.origin + axis.seen_low, axis.inner_high = axis.origin + axis.seen_high;
    axis.low = int(axis.origin + visible.low), axis.high = int(axis.origin + visible.high);
    axis.origin = axis.low;
    axis.offset = 0.0;
    // Not old / new: nearest must select OpenCV's pixel to the last bit.
    axis.scale = 1.0 / (double(size) / axis.out);
    show_whole(axis, size);
}

// The pixel under the new center, for a row of NEAREST, which takes the pixel under the new pixel's first corner.
// A center between two pixels takes the second one, however the scale is rounded.
inline void take_center(Axis& axis) { axis.offset = (0.5 + 1e-9) * axis.scale; }

// A later resize of the same kind: one interpolation by the product of the scales, in the same window.
inline void compose_resize(Axis& axis, int64 size) {
    axis.offset += double(Range(axis).low) * axis.scale;
    axis.scale *= axis.out / double(size);
    show_whole(axis, size);
}

// Makes the visible part, unflipped and unscaled, the window of a filter of this radius.
inline void set_filter(Axis& axis, int64 radius) {
    const Range visible(axis);
    axis.inner_low = int(axis.origin + visible.low), axis.inner_high = int(axis.origin + visible.high);
    axis.low = int(axis.inner_low - radius), axis.high = int(axis.inner_high + radius);
    axis.origin = axis.inner_low;
    axis.start = axis.seen_low = 0;
    axis.seen_high = int(visible.high - visible.low);
    axis.taps = int(2 * radius + 1);
}

// Makes the visible part, unscaled, the window of a warp to `size` pixels. Returns the source position of the old
// output's first corner.
inline int64 warp(Axis& axis, int64 size) {
    const Range visible(axis);
    const int64 corner = axis.origin + (axis.step > 0 ? visible.low : visible.high);
    axis.low = axis.inner_low = int(axis.origin + visible.low);
    axis.high = axis.inner_high = int(axis.origin + visible.high);
    axis.origin = axis.start = axis.seen_low = 0;
    axis.step = 1;
    axis.out = axis.seen_high = int(size);
    return corner;
}

// The nearest whole number modulo 2^64; 0 for a NaN or an infinity.
inline int64 wrap_to_int64(double value) {
    if (!std::isfinite(value)) return 0;
    const double wrapped = std::fmod(std::rint(value), 18446744073709551616.0);
    return int64(wrapped < 0.0 ? -uint64(-wrapped) : uint64(wrapped));
}

// Sets the matrices that kernels read (core/warp_points.h) from `matrix`, for a warp to height x width.
inline void set_kernel_matrices(Sample& row, int64 height, int64 width) {
    double m[9];
    const double divisor = row.matrix[6] == 0.0 && row.matrix[7] == 0.0 && row.matrix[8] != 0.0 ? row.matrix[8] : 1.0;
    for (int k = 0; k < 9; ++k) m[k] = row.matrix[k] / divisor;
    for (double* to : {m, m + 3, m + 6}) to[2] += 0.5 * (to[0] + to[1]);  // from a pixel's index to its center
    // Interpolation looks for the pixel whose center is the last one before the point.
    if (row.filter != NEAREST)
        for (int k = 0; k < 6; ++k) m[k] -= 0.5 * m[6 + k % 3];
    const auto bound = [&](const double* to) {
        return std::fabs(to[0]) * double(width) + std::fabs(to[1]) * double(height) + std::fabs(to[2]);
    };
    const bool affine = m[6] == 0.0 && m[7] == 0.0 && m[8] == 1.0 && bound(m) < 0x1p30 && bound(m + 3) < 0x1p30;
    int exponent = 0;
    if (!affine && std::isfinite(bound(m + 6))) std::frexp(bound(m + 6), &exponent);
    const double fixed = std::ldexp(1.0, affine ? 32 : 59 - exponent), plain = affine ? 1.0 : fixed * 0x1p-32;
    for (int k = 0; k < 9; ++k) row.fixed_matrix[k] = wrap_to_int64(m[k] * fixed);
    for (int k = 0; k < 8; ++k) row.float_matrix[k] = float(m[k] * plain);
    row.warped = affine ? AFFINE : PERSPECTIVE;
}

// Maximum of source pixels per output pixel.
inline int taps(const Axis& axis, const Sample& sample) {
    const double plain = 2.0 * support_of(sample.filter);
    if (!sample.antialias || sample.filter == NEAREST) return int(plain);
    return int(std::ceil(plain * (axis.scale > 1.0 ? axis.scale : 1.0)));
}

// The inner source indices that the output can read, at least one: the region to decode.
inline Range region(const Axis& axis, const Sample& sample) {
    const bool sampled = sample.neighborhood == NONE;
    const Range visible(axis);
    const bool reflects = shows_border(axis) && sample.after.border >= REFLECT;
    const Range inside =
        reflects ? Range(axis.seen_low, axis.seen_high) : visible.within(axis.seen_low, axis.seen_high);
    int64 first = axis.origin + inside.low, end = axis.origin + inside.high;
    if (!(sampled && sample.filter == NEAREST && axis.scale == 1.0)) {
        // The taps, and a pixel of rounding to either side of the outermost centers.
        const int64 margin = axis.taps + 1;
        first = axis.origin + int64(floor(axis.offset + double(inside.low) * axis.scale)) - margin;
        end = axis.origin + int64(std::ceil(axis.offset + double(inside.high) * axis.scale)) + margin;
    }
    first = max<int64>(first, axis.low), end = min<int64>(end, axis.high);
    const bool mirrors = (first < axis.inner_low || end > axis.inner_high) && sample.before.border >= REFLECT;
    if (mirrors) return {axis.inner_low, axis.inner_high};
    return Range(first, end).within(axis.inner_low, axis.inner_high);
}

// Moves the taps (dy, dx, weight) of nonzero weight to the front, in order. Returns their number; radius_down and
// radius_across are their largest offsets.
inline int64 pack_taps(const float* taps, int64 count, float* packed, int64* radius_down, int64* radius_across) {
    int64 used = 0, at = 0;
    *radius_down = *radius_across = 0;
    for (const bool nonzero : {true, false}) {
        for (int64 k = 0; k < count; ++k) {
            const float* const tap = taps + 3 * k;
            if ((tap[2] != 0.0f) != nonzero) continue;
            for (int i = 0; i < 3; ++i) packed[3 * at + i] = tap[i];
            ++at;
            if (!nonzero) continue;
            ++used;
            *radius_down = max<int64>(*radius_down, int64(tap[0] < 0.0f ? -tap[0] : tap[0]));
            *radius_across = max<int64>(*radius_across, int64(tap[1] < 0.0f ? -tap[1] : tap[1]));
        }
    }
    return used;
}

// The size and position of a random window.
struct Window {
    double top, left, height, width;
};

// The first of `tries` windows that fits: whole pixels of a share of the image's area and a ratio of width to height,
// at least `margin` pixels smaller than the image. Returns whether one fits; otherwise the window has no size.
inline bool first_window(const double* share, const double* ratio, int64 tries, const double* place, int64 height,
                         int64 width, int64 margin, Window& window) {
    const double most_high = double(height - margin), most_wide = double(width - margin);
    bool found = false;
    window.height = window.width = 0.0;
    for (int64 k = 0; k < tries && !found; ++k) {
        const double pixels = double(height * width) * share[k];
        const double w = std::rint(std::sqrt(pixels * ratio[k])), h = std::rint(std::sqrt(pixels / ratio[k]));
        found = w > 0.0 && w <= most_wide && h > 0.0 && h <= most_high;
        if (found) window.height = h, window.width = w;
    }
    window.top = floor(place[0] * (double(height) - window.height + 1.0));
    window.left = floor(place[1] * (double(width) - window.width + 1.0));
    return found;
}

// Boxes are [4] xyxy.
inline bool holds_center(const double* window, const double* box) {
    const double x = (box[0] + box[2]) / 2.0, y = (box[1] + box[3]) / 2.0;
    return window[0] < x && x < window[2] && window[1] < y && y < window[3];
}

// Whether the intersection over union is at least min_iou.
inline bool overlaps(const double* window, const double* box, double min_iou) {
    const double wide = (box[2] < window[2] ? box[2] : window[2]) - (box[0] > window[0] ? box[0] : window[0]);
    const double high = (box[3] < window[3] ? box[3] : window[3]) - (box[1] > window[1] ? box[1] : window[1]);
    const double both = (wide > 0.0 ? wide : 0.0) * (high > 0.0 ? high : 0.0);
    const double either =
        (box[2] - box[0]) * (box[3] - box[1]) + (window[2] - window[0]) * (window[3] - window[1]) - both;
    return both >= min_iou * either;
}

// Bounds of a window's sides, as shares of the image's, and of width / height.
struct Shapes {
    double min_scale, max_scale, min_ratio, max_ratio;
};

// The first of `tries` windows, each of four uniform draws, that contains a box's center and overlaps that box enough.
// Returns whether there is one.
inline bool first_window_with_box(const double* numbers, int64 tries, const Shapes& shapes, int64 height, int64 width,
                                  double min_iou, const double* boxes, const bool* selected, int64 count,
                                  Window& found) {
    const double down = double(height), across = double(width), span = shapes.max_scale - shapes.min_scale;
    for (const double* drawn = numbers; drawn < numbers + 4 * tries; drawn += 4) {
        const double h = floor(down * (shapes.min_scale + span * drawn[1]));
        const double w = floor(across * (shapes.min_scale + span * drawn[0]));
        const double left = floor((across - w) * drawn[2]), top = floor((down - h) * drawn[3]);
        const double ratio = w / (h > 1.0 ? h : 1.0), window[] = {left, top, left + w, top + h};
        if (!(w > 0.0 && h > 0.0 && ratio >= shapes.min_ratio && ratio <= shapes.max_ratio)) continue;
        for (int64 k = 0; k < count; ++k)
            if (selected[k] && holds_center(window, boxes + 4 * k) && overlaps(window, boxes + 4 * k, min_iou)) {
                found = {top, left, h, w};
                return true;
            }
    }
    return false;
}

// Pixels by which rounding may move a point out of the image; as in cuaug/plan/boxes_keypoints.py.
constexpr double SLACK = 1e-6;

// Maps a box's corners [4, 2] by an affine matrix [3, 3] into an image of `size` (width, height). If they leave it, the
// enclosing box is clipped. Returns the share of the area that remains.
inline double move_box(double* corners, const double* matrix, const double* size) {
    double low[2], high[2];
    for (int k = 0; k < 4; ++k) {
        const double x = corners[2 * k], y = corners[2 * k + 1];
        for (int i = 0; i < 2; ++i) {
            const double place = matrix[3 * i] * x + matrix[3 * i + 1] * y + matrix[3 * i + 2];
            corners[2 * k + i] = place;
            low[i] = k == 0 || place < low[i] ? place : low[i];
            high[i] = k == 0 || place > high[i] ? place : high[i];
        }
    }
    bool inside = true;
    for (int i = 0; i < 2; ++i) inside = inside && low[i] >= -SLACK && high[i] <= size[i] + SLACK;
    if (inside) return 1.0;

    const double area = (high[0] - low[0]) * (high[1] - low[1]);
    for (double* ends : {low, high})
        for (int i = 0; i < 2; ++i) {
            ends[i] = ends[i] > 0.0 ? ends[i] : 0.0;
            ends[i] = ends[i] < size[i] ? ends[i] : size[i];
        }
    const double rectangle[] = {low[0], low[1], high[0], low[1], high[0], high[1], low[0], high[1]};
    memcpy(corners, rectangle, sizeof rectangle);
    return area > 0.0 ? (high[0] - low[0]) * (high[1] - low[1]) / area : 0.0;
}
