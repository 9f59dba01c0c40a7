// The C interface of planning, called from cuaug/plan/pass_table.py and geometry.py. What changes the samples `which`
// of a plan, [n] in ascending order (null: the first n), returns what planner/plan_builder.h says.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace {

using std::memcpy;
using std::memset;

#include "planner/plan_builder.h"

}  // namespace

extern "C" {

EXPORT int64_t cuaug_writing_size() { return sizeof(Writing); }

// size [2, samples]: height, width of the sources.
EXPORT void cuaug_begin(Writing* plan, const int64_t* size, int32_t source_type) {
    for (int64_t k = 0; k < plan->samples; ++k) begin(*plan, k, size[k], size[plan->samples + k], source_type);
}

// Begins a pass for each.
EXPORT int64_t cuaug_split(Writing* plan, const int64_t* which, int64_t n) {
    return begin_passes({*plan, which, n}, [](int64_t) { return 0; });
}

// out [2, n]: height, width as they are now.
EXPORT void cuaug_sizes_now(Writing* plan, const int64_t* which, int64_t n, int64_t* out) {
    const Some some = {*plan, which, n};
    for (int64_t i = 0; i < n; ++i) out[i] = down(some.row(i)).out, out[n + i] = across(some.row(i)).out;
}

// window [4, n]: top, left, height, width. Returns -1, or which of the n is the first whose window does not fit.
EXPORT int64_t cuaug_misfit(Writing* plan, const int64_t* which, int64_t n, const int64_t* window) {
    return misfit({*plan, which, n}, window, window + n, window + 2 * n, window + 3 * n);
}

// window [4, n]: top, left, height, width.
EXPORT int64_t cuaug_crop(Writing* plan, const int64_t* which, int64_t n, const int64_t* window) {
    return crop({*plan, which, n}, window, window + n, window + 2 * n, window + 3 * n);
}

EXPORT int64_t cuaug_flip(Writing* plan, const int64_t* which, int64_t n, int32_t vertical) {
    return flip({*plan, which, n}, vertical);
}

EXPORT int64_t cuaug_transpose(Writing* plan, const int64_t* which, int64_t n) { return transpose({*plan, which, n}); }

// sides [4, n]: top, left, bottom, right.
EXPORT int64_t cuaug_pad(Writing* plan, const int64_t* which, int64_t n, const int64_t* sides) {
    return pad({*plan, which, n}, sides, sides + n, sides + 2 * n, sides + 3 * n);
}

// size [2, n]: height, width.
EXPORT int64_t cuaug_resize(Writing* plan, const int64_t* which, int64_t n, const int64_t* size, int32_t filter,
                            int32_t antialias, float clamp) {
    return resize({*plan, which, n}, size, size + n, filter, antialias, clamp);
}

// size [2, n]: height, width. matrix [n, 3, 3]; fill [3].
EXPORT int64_t cuaug_warp(Writing* plan, const int64_t* which, int64_t n, const int64_t* size, const double* matrix,
                          int32_t filter, int32_t border, const float* fill, float clamp) {
    return warp({*plan, which, n}, size, size + n, matrix, filter, border, fill, clamp);
}

// reach [2, n]: how far a filter looks down and across.
EXPORT int64_t cuaug_set_filter(Writing* plan, const int64_t* which, int64_t n, const int64_t* reach) {
    return set_filter({*plan, which, n}, reach, reach + n);
}

// padded [n]: whether the output shows pixels that padding made; some_left [n]: whether it shows others.
EXPORT void cuaug_borders(Writing* plan, const int64_t* which, int64_t n, bool* padded, bool* some_left) {
    const Some some = {*plan, which, n};
    for (int64_t i = 0; i < n; ++i) {
        padded[i] = false, some_left[i] = true;
        for (const Axis* axis : {&some.row(i).y, &some.row(i).x}) {
            const Range shown(*axis);
            padded[i] |= shows_border(*axis);
            some_left[i] &= min<int64>(shown.high, axis->seen_high) > max<int64>(shown.low, axis->seen_low);
        }
    }
}

// ops [count]: for all, or each sample; made, place [n].
EXPORT int64_t cuaug_append(Writing* plan, const int64_t* which, int64_t n, const void* ops, int64_t count,
                            double limit, void* made, int64_t* place) {
    return append({*plan, which, n}, static_cast<const Op*>(ops), count, limit, static_cast<Op*>(made), place);
}

// rows [passes, samples].
EXPORT int64_t cuaug_finish(Writing* plan, int64_t passes, int32_t type, int32_t layout, int32_t channels, void* rows) {
    return finish(*plan, passes, type, layout, channels, static_cast<Sample*>(rows));
}

// rows [n]; ops, place, made [count].
EXPORT void cuaug_put_in_order(void* rows, int64_t n, const void* ops, const int64_t* place, int64_t count,
                               void* made) {
    put_in_order(static_cast<Sample*>(rows), n, static_cast<const Op*>(ops), place, count, static_cast<Op*>(made));
}

// out [n, 4]: rows y0 .. y1 - 1 and columns x0 .. x1 - 1 (as y0, x0, y1, x1) of what finished rows can read, but for
// warped ones. Returns how many of these there are.
EXPORT int64_t cuaug_regions(const void* rows, int64_t n, int64_t* out) {
    const Sample* const all = static_cast<const Sample*>(rows);
    int64_t warped = 0;
    for (int64_t i = 0; i < n; ++i) {
        const Range y = region(all[i].y, all[i]), x = region(all[i].x, all[i]);
        out[4 * i] = y.low, out[4 * i + 1] = x.low, out[4 * i + 2] = y.high, out[4 * i + 3] = x.high;
        warped += all[i].warped;
    }
    return warped;
}

// out [2, n]: height, width of what finished rows [passes, n] make in the end.
EXPORT void cuaug_sizes_made(const void* rows, int64_t passes, int64_t n, int64_t* out) {
    const Sample* const all = static_cast<const Sample*>(rows);
    for (int64_t k = 0; k < n; ++k) {
        const Sample* last = all + k;
        while (last + n < all + passes * n && last[n].active) last += n;
        out[k] = (last->transposed ? last->x : last->y).out;
        out[n + k] = (last->transposed ? last->y : last->x).out;
    }
}

// taps, packed [n, count, 3], reach [2, n], used [n]: as `pack_taps` has them.
EXPORT void cuaug_pack_taps(const float* taps, int64_t n, int64_t count, float* packed, int64_t* reach, int64_t* used) {
    for (int64_t i = 0; i < n; ++i) {
        const int64_t begin = 3 * count * i;
        used[i] = pack_taps(taps + begin, count, packed + begin, reach + i, reach + n + i);
    }
}

// share, ratio [n, tries], place [n, 2], height, width [n]: as `first_window` takes them. window [4, n]: top, left,
// height, width; found [n].
EXPORT void cuaug_first_window(int64_t n, int64_t tries, const double* share, const double* ratio, const double* place,
                               const int64_t* height, const int64_t* width, int64_t margin, double* window,
                               bool* found) {
    for (int64_t i = 0; i < n; ++i) {
        Window one;
        found[i] =
            first_window(share + i * tries, ratio + i * tries, tries, place + 2 * i, height[i], width[i], margin, one);
        window[i] = one.top, window[n + i] = one.left, window[2 * n + i] = one.height, window[3 * n + i] = one.width;
    }
}

// numbers [n, tries, 4], height, width, least [n], boxes [B, 4], wanted [B]; ends [2, n]: which boxes are each one's.
// window [4, n]: top, left, height, width; found [n]. All as `first_window_with_box` takes them.
EXPORT void cuaug_first_holding(int64_t n, int64_t tries, const double* numbers, const int64_t* height,
                                const int64_t* width, const double* least, const double* boxes, const bool* wanted,
                                const int64_t* ends, const double* shapes, double* window, bool* found) {
    const Shapes bounds = {shapes[0], shapes[1], shapes[2], shapes[3]};
    for (int64_t i = 0; i < n; ++i) {
        Window one = {};
        const int64_t first = ends[i], count = ends[n + i] - first;
        found[i] = first_window_with_box(numbers + 4 * tries * i, tries, bounds, height[i], width[i], least[i],
                                         boxes + 4 * first, wanted + first, count, one);
        window[i] = one.top, window[n + i] = one.left, window[2 * n + i] = one.height, window[3 * n + i] = one.width;
    }
}

// corners [n, 4, 2] and kept [n] of boxes, changed where `of` [n] gives a number: of matrices [m, 3, 3] and size [m,
// 2], as `move_box` takes them; it is -1 elsewhere.
EXPORT void cuaug_move_boxes(double* corners, double* kept, const int64_t* of, int64_t n, const double* matrices,
                             const double* size) {
    for (int64_t i = 0; i < n; ++i)
        if (of[i] >= 0) kept[i] *= move_box(corners + 8 * i, matrices + 9 * of[i], size + 2 * of[i]);
}
}
