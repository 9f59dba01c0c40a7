// The C interface of planning, called from cuaug/plan/geometry.py: geometry.h for the samples `which` of `rows`, in
// ascending order, or for all n where `which` is null.
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

using std::ceil;
using std::floor;
using std::rint;
using std::sqrt;

#include "geometry.h"

}  // namespace

extern "C" {

// Copies rows to kept [passes, samples], each to the pass of that number.
EXPORT void cuaug_keep(const void* rows, const int64_t* which, int64_t n, void* kept, int64_t samples,
                       const int64_t* number) {
    const Sample* const all = static_cast<const Sample*>(rows);
    for (int64_t i = 0; i < n; ++i) {
        const int64_t k = which ? which[i] : i;
        static_cast<Sample*>(kept)[number[k] * samples + k] = all[k];
    }
}

// Makes of rows copies of `fresh`, the identity on sources of size [2, n], height and width, and of that type.
EXPORT void cuaug_begin(void* rows, const int64_t* which, int64_t n, const void* fresh, const int64_t* size,
                        int32_t source_type) {
    const Chosen chosen = {static_cast<Sample*>(rows), which, n};
    for (int64_t i = 0; i < n; ++i) {
        Sample& sample = chosen[i];
        sample = *static_cast<const Sample*>(fresh);
        begin(sample.y, size[i]);
        begin(sample.x, size[n + i]);
        sample.source_type = source_type;
        sample.pitch = size[n + i] * (source_type == UINT8 ? 3 : 12);
    }
}

// window [4, n]: top, left, height, width. Returns -1, or which of the n is the first whose window does not fit: then
// nothing has changed.
EXPORT int64_t cuaug_crop(void* rows, const int64_t* which, int64_t n, const int64_t* window) {
    const Chosen chosen = {static_cast<Sample*>(rows), which, n};
    const int64_t *top = window, *left = top + n, *height = left + n, *width = height + n;
    for (int64_t i = 0; i < n; ++i) {
        const bool fits = top[i] >= 0 && left[i] >= 0 && height[i] >= 1 && width[i] >= 1;
        if (!fits || top[i] + height[i] > down(chosen[i]).out || left[i] + width[i] > across(chosen[i]).out) return i;
    }
    for (int64_t i = 0; i < n; ++i) {
        crop(down(chosen[i]), top[i], height[i]);
        crop(across(chosen[i]), left[i], width[i]);
    }
    return -1;
}

EXPORT void cuaug_flip(void* rows, const int64_t* which, int64_t n, int32_t vertical) {
    const Chosen chosen = {static_cast<Sample*>(rows), which, n};
    for (int64_t i = 0; i < n; ++i) flip(vertical ? down(chosen[i]) : across(chosen[i]));
}

// sides [4, n]: top, left, bottom, right.
EXPORT void cuaug_pad(void* rows, const int64_t* which, int64_t n, const int64_t* sides) {
    const Chosen chosen = {static_cast<Sample*>(rows), which, n};
    for (int64_t i = 0; i < n; ++i) {
        pad(down(chosen[i]), sides[i], sides[2 * n + i]);
        pad(across(chosen[i]), sides[n + i], sides[3 * n + i]);
    }
}

// size [2, n]: height, width. resized: of every row, whether its pass has a resize already; the others begin with one.
EXPORT void cuaug_resize(void* rows, const int64_t* which, int64_t n, const int64_t* size, bool* resized,
                         int32_t filter, int32_t antialias, float clamp) {
    const Chosen chosen = {static_cast<Sample*>(rows), which, n};
    for (int64_t i = 0; i < n; ++i) {
        Sample& sample = chosen[i];
        bool& again = resized[&sample - chosen.rows];
        if (again) {
            compose_resize(down(sample), size[i]);
            compose_resize(across(sample), size[n + i]);
            continue;
        }
        resize(down(sample), size[i]);
        resize(across(sample), size[n + i]);
        sample.border_before = sample.border_after;
        memcpy(sample.fill_before, sample.fill_after, sizeof sample.fill_before);
        sample.filter = filter, sample.antialias = antialias, sample.clamp = clamp;
        again = true;
    }
}

// reach [2, n]: how far a filter looks down and across.
EXPORT void cuaug_surround(void* rows, const int64_t* which, int64_t n, const int64_t* reach) {
    const Chosen chosen = {static_cast<Sample*>(rows), which, n};
    for (int64_t i = 0; i < n; ++i) {
        surround(chosen[i].y, reach[i]);
        surround(chosen[i].x, reach[n + i]);
    }
}

// padded [n]: whether the output shows pixels that padding made; some_left [n]: whether it shows others.
EXPORT void cuaug_borders(void* rows, const int64_t* which, int64_t n, bool* padded, bool* some_left) {
    const Chosen chosen = {static_cast<Sample*>(rows), which, n};
    for (int64_t i = 0; i < n; ++i) {
        padded[i] = false, some_left[i] = true;
        for (const Axis* axis : {&chosen[i].y, &chosen[i].x}) {
            const Range shown(*axis);
            padded[i] |= reaches_border(*axis);
            some_left[i] &= least(shown.high, axis->seen_high) > most(shown.low, axis->seen_low);
        }
    }
}

// Sets the taps of finished rows that resample.
EXPORT void cuaug_set_taps(void* rows, int64_t n) {
    Sample* const all = static_cast<Sample*>(rows);
    for (Sample* sample = all; sample < all + n; ++sample)
        if (sample->neighbourhood == NONE)
            for (Axis* axis : {&sample->y, &sample->x}) axis->taps = taps(*axis, *sample);
}

// out [n, 4]: rows y0 .. y1 - 1 and columns x0 .. x1 - 1 (as y0, x0, y1, x1) of what finished rows can read.
EXPORT void cuaug_regions(const void* rows, int64_t n, int64_t* out) {
    const Sample* const all = static_cast<const Sample*>(rows);
    for (int64_t i = 0; i < n; ++i) {
        const Range y = region(all[i].y, all[i]), x = region(all[i].x, all[i]);
        out[4 * i] = y.low, out[4 * i + 1] = x.low, out[4 * i + 2] = y.high, out[4 * i + 3] = x.high;
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
}
