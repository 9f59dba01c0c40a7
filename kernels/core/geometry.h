// The arithmetic by which crops, pads, flips and resizes fold into one sampling step. Plans are made on the host alone.
// What the fields mean is in plan.h; positions and lengths along an image's rows and columns are along those of the
// source, unless it is `transposed`.
#pragma once
#include "plan.h"

inline Axis& down(Sample& sample) { return sample.transposed ? sample.x : sample.y; }
inline Axis& across(Sample& sample) { return sample.transposed ? sample.y : sample.x; }

// The resized indices [low, high) that the output reads, whichever way it runs.
struct Range {
    int64 low, high;

    explicit Range(const Axis& axis) {
        low = axis.step > 0 ? axis.start : int64(axis.start) - (axis.out - 1);
        high = low + axis.out;
    }
    Range(int64 low, int64 high) : low(low), high(high) {}

    // As far as it lies in [first, end), but one index at least.
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
    const Range shown(axis);
    return shown.low < axis.seen_low || shown.high > axis.seen_high;
}

inline void crop(Axis& axis, int64 begin, int64 length) {
    axis.start = int(axis.start + axis.step * begin);
    axis.out = int(length);
}

inline void flip(Axis& axis) {
    axis.start += axis.step * (axis.out - 1);
    axis.step = -axis.step;
}

// The longest that rows and columns may be, and the farthest that they may reach.
constexpr int64 LONGEST = 2147483647;

inline bool can_pad(const Axis& axis, int64 before, int64 after) {
    const Range shown(axis);
    const int64 longer = max<int64>(before, after);
    if (longer > LONGEST || axis.out + before + after > LONGEST) return false;
    return max<int64>(-shown.low, shown.high) + longer <= LONGEST;
}

// Padding continues what is visible now: pixels that a crop has cut off do not come back.
inline void pad(Axis& axis, int64 before, int64 after) {
    const Range shown(axis);
    axis.seen_low = int(max<int64>(axis.seen_low, shown.low));
    axis.seen_high = int(min<int64>(axis.seen_high, shown.high));
    axis.start = int(axis.start - axis.step * before);
    axis.out = int(axis.out + before + after);
}

// The output is the whole resized axis, running the way it ran before.
inline void show_whole(Axis& axis, int64 size) {
    axis.start = axis.step > 0 ? 0 : int(size - 1);
    axis.out = axis.seen_high = int(size);
    axis.seen_low = 0;
}

// The first resize of a pass: what the output shows now becomes the window, its border the border before.
inline void resize(Axis& axis, int64 size) {
    const Range shown(axis);
    axis.inner_low = axis.origin + axis.seen_low, axis.inner_high = axis.origin + axis.seen_high;
    axis.low = int(axis.origin + shown.low), axis.high = int(axis.origin + shown.high);
    axis.origin = axis.low;
    axis.offset = 0.0;
    // 1 / (new / old) and not old / new: nearest must fall on OpenCV's pixel to the last bit.
    axis.scale = 1.0 / (double(size) / axis.out);
    show_whole(axis, size);
}

// A later resize of the same kind: one interpolation by the product of the scales, in the same window.
inline void compose_resize(Axis& axis, int64 size) {
    axis.offset += double(Range(axis).low) * axis.scale;
    axis.scale *= axis.out / double(size);
    show_whole(axis, size);
}

// Makes of what the output shows, unmirrored and unscaled, the window of a filter that sees `reach` beyond it.
inline void set_filter(Axis& axis, int64 reach) {
    const Range shown(axis);
    axis.inner_low = int(axis.origin + shown.low), axis.inner_high = int(axis.origin + shown.high);
    axis.low = int(axis.inner_low - reach), axis.high = int(axis.inner_high + reach);
    axis.origin = axis.inner_low;
    axis.start = axis.seen_low = 0;
    axis.seen_high = int(shown.high - shown.low);
    axis.taps = int(2 * reach + 1);
}

// Makes of what the output shows, unscaled, the window of a warp to `size` pixels. Returns the source position of the
// old output's first corner.
inline int64 warp(Axis& axis, int64 size) {
    const Range shown(axis);
    const int64 corner = axis.origin + (axis.step > 0 ? shown.low : shown.high);
    axis.low = axis.inner_low = int(axis.origin + shown.low);
    axis.high = axis.inner_high = int(axis.origin + shown.high);
    axis.origin = axis.start = axis.seen_low = 0;
    axis.step = 1;
    axis.out = axis.seen_high = int(size);
    return corner;
}

// Half the filter's width, in source pixels, where it does not widen it.
inline double radius(int filter) { return filter == NEAREST ? 0.5 : filter == BILINEAR ? 1.0 : 2.0; }

// The most source pixels that one output pixel needs: the filter's width with antialiasing, else 1, 2 or 4.
inline int taps(const Axis& axis, const Sample& sample) {
    const double plain = 2.0 * radius(sample.filter);
    if (!sample.antialias || sample.filter == NEAREST) return int(plain);
    return int(std::ceil(plain * (axis.scale > 1.0 ? axis.scale : 1.0)));
}

// The inner source indices that the output can read: what a decoder has to decode, at least one.
inline Range region(const Axis& axis, const Sample& sample) {
    const bool sampled = sample.neighbourhood == NONE;
    const Range shown(axis);
    const bool turns_back = shows_border(axis) && sample.border_after >= REFLECT;
    const Range inside =
        turns_back ? Range(axis.seen_low, axis.seen_high) : shown.within(axis.seen_low, axis.seen_high);
    int64 first = axis.origin + inside.low, end = axis.origin + inside.high;
    if (!(sampled && sample.filter == NEAREST && axis.scale == 1.0)) {
        // The taps and a pixel of rounding to either side of the outermost centres.
        const int64 reach = axis.taps + 1;
        first = axis.origin + int64(floor(axis.offset + double(inside.low) * axis.scale)) - reach;
        end = axis.origin + int64(std::ceil(axis.offset + double(inside.high) * axis.scale)) + reach;
    }
    first = max<int64>(first, axis.low), end = min<int64>(end, axis.high);
    const bool folds = (first < axis.inner_low || end > axis.inner_high) && sample.border_before >= REFLECT;
    if (folds) return {axis.inner_low, axis.inner_high};
    return Range(first, end).within(axis.inner_low, axis.inner_high);
}

// Puts those of `count` taps (dy, dx, weight) first whose weight is not 0, in the order in which they were; the others
// follow. reach: how far the first look down and across. Returns how many they are.
inline int64 pack_taps(const float* taps, int64 count, float* packed, int64* reach_down, int64* reach_across) {
    int64 used = 0, at = 0;
    *reach_down = *reach_across = 0;
    for (const bool wanted : {true, false}) {
        for (int64 k = 0; k < count; ++k) {
            const float* const tap = taps + 3 * k;
            if ((tap[2] != 0.0f) != wanted) continue;
            for (int i = 0; i < 3; ++i) packed[3 * at + i] = tap[i];
            ++at;
            if (!wanted) continue;
            ++used;
            *reach_down = max<int64>(*reach_down, int64(tap[0] < 0.0f ? -tap[0] : tap[0]));
            *reach_across = max<int64>(*reach_across, int64(tap[1] < 0.0f ? -tap[1] : tap[1]));
        }
    }
    return used;
}

// A random window, and where it lies.
struct Window {
    double top, left, height, width;
};

// The first of so many tries whose window fits: whole pixels of a share of the image's area and a ratio of width to
// height, `margin` pixels smaller than the image at least. Returns whether any does; else the window has no sides.
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

// Boxes are [4]: x0, y0, x1, y1.
inline bool holds_centre(const double* window, const double* box) {
    const double x = (box[0] + box[2]) / 2.0, y = (box[1] + box[3]) / 2.0;
    return window[0] < x && x < window[2] && window[1] < y && y < window[3];
}

// Whether their intersection over union is `least` or more.
inline bool overlaps(const double* window, const double* box, double min) {
    const double wide = (box[2] < window[2] ? box[2] : window[2]) - (box[0] > window[0] ? box[0] : window[0]);
    const double high = (box[3] < window[3] ? box[3] : window[3]) - (box[1] > window[1] ? box[1] : window[1]);
    const double both = (wide > 0.0 ? wide : 0.0) * (high > 0.0 ? high : 0.0);
    const double either =
        (box[2] - box[0]) * (box[3] - box[1]) + (window[2] - window[0]) * (window[3] - window[1]) - both;
    return both >= min * either;
}

// Bounds of a window's sides, in parts of the image's, and of its width / height.
struct Shapes {
    double min_scale, max_scale, min_ratio, max_ratio;
};

// The first of so many windows, each of four numbers in [0, 1), that has a box's centre in it and with that box enough
// in common. Returns whether any has.
inline bool first_holding(const double* numbers, int64 tries, const Shapes& shapes, int64 height, int64 width,
                          double min, const double* boxes, const bool* wanted, int64 count, Window& found) {
    const double down = double(height), across = double(width), span = shapes.max_scale - shapes.min_scale;
    for (const double* drawn = numbers; drawn < numbers + 4 * tries; drawn += 4) {
        const double h = floor(down * (shapes.min_scale + span * drawn[1]));
        const double w = floor(across * (shapes.min_scale + span * drawn[0]));
        const double left = floor((across - w) * drawn[2]), top = floor((down - h) * drawn[3]);
        const double ratio = w / (h > 1.0 ? h : 1.0), window[] = {left, top, left + w, top + h};
        if (!(w > 0.0 && h > 0.0 && ratio >= shapes.min_ratio && ratio <= shapes.max_ratio)) continue;
        for (int64 k = 0; k < count; ++k)
            if (wanted[k] && holds_centre(window, boxes + 4 * k) && overlaps(window, boxes + 4 * k, min)) {
                found = {top, left, h, w};
                return true;
            }
    }
    return false;
}

// A point may leave the image by rounding alone, in pixels; as in cuaug/plan/boxes_keypoints.py.
constexpr double SLACK = 1e-6;

// Moves a box's corners [4, 2] by an affine map, [3, 3], into an image of `size`, width and height. Where they leave
// it, what encloses them is cut off. Returns the share of the area that is left.
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
