// Computes: the plan builder's inner loops, called from cuaug/plan/. Functions that change a plan take the samples
//           `indices` [n], ascending (null: the first n), and return the passes started, NEEDS_ROOM or UNFIT
//           (planner/plan_builder.h).
// Threads:  the caller's alone.
// Reference: planner/plan_builder.h, planner/geometry.h.
// Tests:    tests/transforms, tests/properties, tests/kernels/test_layout.py.
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

// size [2, samples]: height, width of the sources.
EXPORT void cuaug_begin(PassTable* plan, const int64_t* size, int32_t source_type) {
    for (int64_t k = 0; k < plan->samples; ++k) begin(*plan, k, size[k], size[plan->samples + k], source_type);
}

// Starts a pass for each sample.
EXPORT int64_t cuaug_split(PassTable* plan, const int64_t* indices, int64_t n) {
    return begin_passes({*plan, indices, n}, [](int64_t) { return 0; });
}

// out [2, n]: current height, width.
EXPORT void cuaug_current_sizes(PassTable* plan, const int64_t* indices, int64_t n, int64_t* out) {
    const Selection chosen = {*plan, indices, n};
    for (int64_t i = 0; i < n; ++i) out[i] = down(chosen.row(i)).out, out[n + i] = across(chosen.row(i)).out;
}

// window [4, n]: top, left, height, width. Returns the position of the first that does not fit; -1 if all do.
EXPORT int64_t cuaug_misfit(PassTable* plan, const int64_t* indices, int64_t n, const int64_t* window) {
    return misfit({*plan, indices, n}, window, window + n, window + 2 * n, window + 3 * n);
}

// window [4, n]: top, left, height, width.
EXPORT int64_t cuaug_crop(PassTable* plan, const int64_t* indices, int64_t n, const int64_t* window) {
    return crop({*plan, indices, n}, window, window + n, window + 2 * n, window + 3 * n);
}

EXPORT int64_t cuaug_flip(PassTable* plan, const int64_t* indices, int64_t n, int32_t vertical) {
    return flip({*plan, indices, n}, vertical);
}

EXPORT int64_t cuaug_transpose(PassTable* plan, const int64_t* indices, int64_t n) {
    return transpose({*plan, indices, n});
}

// sides [4, n]: top, left, bottom, right.
EXPORT int64_t cuaug_pad(PassTable* plan, const int64_t* indices, int64_t n, const int64_t* sides) {
    return pad({*plan, indices, n}, sides, sides + n, sides + 2 * n, sides + 3 * n);
}

// size [2, n]: height, width.
EXPORT int64_t cuaug_resize(PassTable* plan, const int64_t* indices, int64_t n, const int64_t* size, int32_t filter,
                            int32_t antialias, int32_t pillow, float clamp) {
    return resize({*plan, indices, n}, size, size + n, filter, antialias, pillow, clamp);
}

// size [2, n]: height, width. matrix [n, 3, 3]; fill [3].
EXPORT int64_t cuaug_warp(PassTable* plan, const int64_t* indices, int64_t n, const int64_t* size, const double* matrix,
                          int32_t filter, int32_t border, const float* fill, float clamp) {
    return warp({*plan, indices, n}, size, size + n, matrix, filter, border, fill, clamp);
}

// radius [2, n]: of the filter, along y and x, in pixels.
EXPORT int64_t cuaug_set_filter(PassTable* plan, const int64_t* indices, int64_t n, const int64_t* radius) {
    return set_filter({*plan, indices, n}, radius, radius + n);
}

// padded [n]: whether the output shows padding; has_pixels [n]: whether it shows pixels of the image.
EXPORT void cuaug_borders(PassTable* plan, const int64_t* indices, int64_t n, bool* padded, bool* has_pixels) {
    const Selection chosen = {*plan, indices, n};
    for (int64_t i = 0; i < n; ++i) {
        padded[i] = false, has_pixels[i] = true;
        for (const Axis* axis : {&chosen.row(i).y, &chosen.row(i).x}) {
            const Range shown(*axis);
            padded[i] |= shows_border(*axis);
            has_pixels[i] &= min<int64>(shown.high, axis->seen_high) > max<int64>(shown.low, axis->seen_low);
        }
    }
}

// ops [count]: one for all, or one per sample of the plan. Out: result [n], place [n].
EXPORT int64_t cuaug_append(PassTable* plan, const int64_t* indices, int64_t n, const void* ops, int64_t count,
                            double limit, void* result, int64_t* place) {
    return append({*plan, indices, n}, static_cast<const Op*>(ops), count, limit, static_cast<Op*>(result), place);
}

// rows [passes, samples].
EXPORT int64_t cuaug_finish(PassTable* plan, int64_t passes, int32_t type, int32_t layout, int32_t channels,
                            void* rows) {
    return finish(*plan, passes, type, layout, channels, static_cast<Sample*>(rows));
}

// rows [n]; tables: null, or room for the words that a call without it returned; see `weigh`.
EXPORT int64_t cuaug_weigh(void* rows, int64_t n, int64_t first, void* tables) {
    return weigh(static_cast<Sample*>(rows), n, first, static_cast<int*>(tables));
}

// rows [n]; ops, place, sorted [count].
EXPORT void cuaug_sort_operations(void* rows, int64_t n, const void* ops, const int64_t* place, int64_t count,
                                  void* sorted) {
    sort_operations(static_cast<Sample*>(rows), n, static_cast<const Op*>(ops), place, count, static_cast<Op*>(sorted));
}

// out [n, 4]: y0, x0, y1, x1, the ends excluded, of the source pixels that finished rows can read; undefined for warped
// rows. Returns the number of warped rows.
EXPORT int64_t cuaug_regions(const void* rows, int64_t n, int64_t* out) {
    const Sample* const all = static_cast<const Sample*>(rows);
    int64_t warped = 0;
    for (int64_t i = 0; i < n; ++i) {
        const Range y = region(all[i].y, all[i]), x = region(all[i].x, all[i]);
        out[4 * i] = y.low, out[4 * i + 1] = x.low, out[4 * i + 2] = y.high, out[4 * i + 3] = x.high;
        warped += all[i].warped != 0;
    }
    return warped;
}

// out [2, n]: height, width of the output of finished rows [passes, n].
EXPORT void cuaug_output_sizes(const void* rows, int64_t passes, int64_t n, int64_t* out) {
    const Sample* const all = static_cast<const Sample*>(rows);
    for (int64_t k = 0; k < n; ++k) {
        const Sample* last = all + k;
        while (last + n < all + passes * n && last[n].active) last += n;
        out[k] = (last->transposed ? last->x : last->y).out;
        out[n + k] = (last->transposed ? last->y : last->x).out;
    }
}

// taps, packed [n, count, 3], radius [2, n], used [n]; see `pack_taps`.
EXPORT void cuaug_pack_taps(const float* taps, int64_t n, int64_t count, float* packed, int64_t* radius,
                            int64_t* used) {
    for (int64_t i = 0; i < n; ++i) {
        const int64_t begin = 3 * count * i;
        used[i] = pack_taps(taps + begin, count, packed + begin, radius + i, radius + n + i);
    }
}

// area_share, ratio [n, tries]; place [n, 2]; height, width [n]; see `first_window`. Out: window [4, n], top, left,
// height, width; has_window [n].
EXPORT void cuaug_first_window(int64_t n, int64_t tries, const double* area_share, const double* ratio,
                               const double* place, const int64_t* height, const int64_t* width, int64_t margin,
                               double* window, bool* has_window) {
    for (int64_t i = 0; i < n; ++i) {
        Window result;
        has_window[i] = first_window(area_share + i * tries, ratio + i * tries, tries, place + 2 * i, height[i],
                                     width[i], margin, result);
        window[i] = result.top, window[n + i] = result.left;
        window[2 * n + i] = result.height, window[3 * n + i] = result.width;
    }
}

// numbers [n, tries, 4]; height, width, min_iou [n]; boxes [B, 4], eligible [B]; box_range [2, n]: begin and end of
// each image's boxes; see `first_window_with_box`. Out: window [4, n], top, left, height, width; has_window [n].
EXPORT void cuaug_first_window_with_box(int64_t n, int64_t tries, const double* numbers, const int64_t* height,
                                        const int64_t* width, const double* min_iou, const double* boxes,
                                        const bool* eligible, const int64_t* box_range, const double* shapes,
                                        double* window, bool* has_window) {
    const Shapes bounds = {shapes[0], shapes[1], shapes[2], shapes[3]};
    for (int64_t i = 0; i < n; ++i) {
        Window result = {};
        const int64_t first = box_range[i], count = box_range[n + i] - first;
        has_window[i] = first_window_with_box(numbers + 4 * tries * i, tries, bounds, height[i], width[i], min_iou[i],
                                              boxes + 4 * first, eligible + first, count, result);
        window[i] = result.top, window[n + i] = result.left;
        window[2 * n + i] = result.height, window[3 * n + i] = result.width;
    }
}

// Moves boxes. corners [n, 4, 2] and kept [n] change where matrix_index [n] is not -1; it numbers matrices [m, 3, 3]
// and size [m, 2]; see `move_box`.
EXPORT void cuaug_move_boxes(double* corners, double* kept, const int64_t* matrix_index, int64_t n,
                             const double* matrices, const double* size) {
    for (int64_t i = 0; i < n; ++i)
        if (matrix_index[i] >= 0)
            kept[i] *= move_box(corners + 8 * i, matrices + 9 * matrix_index[i], size + 2 * matrix_index[i]);
}
}
