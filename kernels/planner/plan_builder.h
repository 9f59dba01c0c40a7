// Computes: changes to the rows of a plan, such as crop, resize, warp and append. A sample whose current pass cannot
//           take in the change starts a new pass, whose source is the image so far.
// Threads:  the caller's alone.
// Reference: kernels/plan.h (fields of a row), planner/geometry.h (arithmetic along an axis), cuaug/plan/pass_table.py.
// Tests:    tests/transforms, tests/properties; the structure's size: tests/kernels/test_layout.py.
#pragma once
#include "planner/pillow_weights.h"

// Whether geometry may follow the operations of a pass; as in cuaug/plan/pass_table.py.
enum OpsKind { NO_OPS, POINTWISE, POSITIONAL };

// Addresses of the arrays of `PassTable`; mirrored in cuaug/plan/pass_table.py.
struct PassTable {
    Sample* rows;        // [samples] current pass of each sample
    int64* pass;         // [samples] number of the current pass
    bool* is_resampled;  // [samples] whether a resize, warp or filter in the pass keeps other resamplings out
    signed char* ops;    // [samples] greatest OpsKind of the pass
    Sample* kept;        // [capacity, samples] earlier passes
    int64* started;      // [2, capacity] by reason: passes that the last call started, per number of the pass they end
    int64 samples, capacity;
    const Sample* initial;       // a row before any change
    const signed char* kind;     // [codes] OpsKind of each operation
    const signed char* measure;  // [codes] `Measure` of each operation: the statistic that it needs
};

// Results of functions that changed nothing; other results are the number of passes started.
constexpr int64 NEEDS_ROOM = -1;  // `kept` is too small
constexpr int64 UNFIT = -2;       // a window outside its image, or an impossible size

// Samples of a plan: those in `indices`, ascending, or the first n if it is null.
struct Selection {
    PassTable& plan;
    const int64* indices;
    int64 n;

    int64 operator[](int64 i) const { return indices ? indices[i] : i; }
    Sample& row(int64 i) const { return plan.rows[(*this)[i]]; }
};

// Copies a row in pieces of vector instructions. For a whole row GCC emits `rep movsq`, whose start-up takes as long as
// this copy.
inline void copy(Sample& to, const Sample& from) {
    constexpr int piece = 128;
    static_assert(sizeof(Sample) % piece == 0, "a row is whole pieces");
    for (size_t at = 0; at < sizeof(Sample); at += piece)
        memcpy(reinterpret_cast<char*>(&to) + at, reinterpret_cast<const char*>(&from) + at, piece);
}

// Resets sample k's row to the identity on a source of this size.
inline void begin(const PassTable& plan, int64 k, int64 height, int64 width, int source_type) {
    Sample& row = plan.rows[k];
    copy(row, *plan.initial);
    begin(row.y, height);
    begin(row.x, width);
    row.source_type = source_type;
    row.source.pitch = width * (source_type == UINT8 ? 3 : 12);
    plan.is_resampled[k] = false;
    plan.ops[k] = NO_OPS;
}

inline void begin_pass(const PassTable& plan, int64 k, int reason) {
    const int64 height = down(plan.rows[k]).out, width = across(plan.rows[k]).out;
    copy(plan.kept[plan.pass[k] * plan.samples + k], plan.rows[k]);
    ++plan.started[reason * plan.capacity + plan.pass[k]++];
    begin(plan, k, height, width, FLOAT32);
}

// Starts a pass for each sample for which `reason_for(i)` is 0 or 1, not -1.
template <class Reason>
int64 begin_passes(const Selection& chosen, Reason reason_for) {
    PassTable& plan = chosen.plan;
    int64 count = 0;
    for (int64 i = 0; i < chosen.n; ++i)
        if (reason_for(i) >= 0) {
            if (plan.pass[chosen[i]] >= plan.capacity) return NEEDS_ROOM;
            ++count;
        }
    if (count == 0) return 0;
    for (int64 pass = 0; pass < 2 * plan.capacity; ++pass) plan.started[pass] = 0;
    for (int64 i = 0; i < chosen.n; ++i) {
        const int reason = reason_for(i);
        if (reason >= 0) begin_pass(plan, chosen[i], reason);
    }
    return count;
}

inline int64 begin_where_positional(const Selection& chosen) {
    return begin_passes(chosen, [&](int64 i) { return chosen.plan.ops[chosen[i]] == POSITIONAL ? 0 : -1; });
}

inline bool shows_padding(const Sample& row) { return shows_border(row.y) || shows_border(row.x); }
inline bool is_mirrored(const Sample& row) { return row.y.step < 0 || row.x.step < 0; }

// Returns the position of the first sample whose window does not lie in its image; -1 if all do.
inline int64 misfit(const Selection& chosen, const int64* top, const int64* left, const int64* height,
                    const int64* width) {
    for (int64 i = 0; i < chosen.n; ++i) {
        const bool is_valid = top[i] >= 0 && left[i] >= 0 && height[i] >= 1 && width[i] >= 1;
        // Subtract: a sum may overflow 64 bits.
        if (!is_valid || top[i] > down(chosen.row(i)).out - height[i] || left[i] > across(chosen.row(i)).out - width[i])
            return i;
    }
    return -1;
}

inline int64 crop(const Selection& chosen, const int64* top, const int64* left, const int64* height,
                  const int64* width) {
    if (misfit(chosen, top, left, height, width) >= 0) return UNFIT;
    const int64 started = begin_where_positional(chosen);
    if (started == NEEDS_ROOM) return started;
    for (int64 i = 0; i < chosen.n; ++i) {
        crop(down(chosen.row(i)), top[i], height[i]);
        crop(across(chosen.row(i)), left[i], width[i]);
    }
    return started;
}

inline int64 pad(const Selection& chosen, const int64* top, const int64* left, const int64* bottom,
                 const int64* right) {
    for (int64 i = 0; i < chosen.n; ++i)
        if (!can_pad(down(chosen.row(i)), top[i], bottom[i]) || !can_pad(across(chosen.row(i)), left[i], right[i]))
            return UNFIT;
    for (int64 i = 0; i < chosen.n; ++i) {
        pad(down(chosen.row(i)), top[i], bottom[i]);
        pad(across(chosen.row(i)), left[i], right[i]);
    }
    return 0;
}

inline int64 flip(const Selection& chosen, bool vertical) {
    const int64 started = begin_where_positional(chosen);
    if (started == NEEDS_ROOM) return started;
    for (int64 i = 0; i < chosen.n; ++i) flip(vertical ? down(chosen.row(i)) : across(chosen.row(i)));
    return started;
}

inline int64 transpose(const Selection& chosen) {
    const int64 started = begin_where_positional(chosen);
    if (started == NEEDS_ROOM) return started;
    for (int64 i = 0; i < chosen.n; ++i) chosen.row(i).transposed ^= 1;
    return started;
}

inline bool are_sizes(int64 n, const int64* height, const int64* width) {
    for (int64 i = 0; i < n; ++i)
        if (min(height[i], width[i]) < 1 || max(height[i], width[i]) > MAX_SIDE) return false;
    return true;
}

// Whether Pillow sums columns first: version 13 does where that leaves fewer pixels to the other sums.
inline bool sums_columns_first(int pillow, int64 height, int64 width, int64 new_height, int64 new_width) {
    return pillow >= 13 && new_height < height && height - new_height > 2 * (width - new_width);
}

// Images of the requested size stay unchanged. pillow: 0, or the version whose integers resize. Reasons for a pass: 0, operations; 1, a resampling of another kind.
inline int64 resize(const Selection& chosen, const int64* height, const int64* width, int filter, bool antialias,
                    int pillow, float clamp) {
    const PassTable& plan = chosen.plan;
    if (!are_sizes(chosen.n, height, width)) return UNFIT;
    const bool is_exact = filter == NEAREST_EXACT;
    if (is_exact) filter = NEAREST;
    // These decide ties in one direction, so they do not commute with a flip.
    const bool has_direction = filter == NEAREST || filter == BOX || pillow;
    const auto has_size = [&](int64 i) {
        return down(chosen.row(i)).out == height[i] && across(chosen.row(i)).out == width[i];
    };
    const int64 started = begin_passes(chosen, [&](int64 i) {
        const Sample& row = chosen.row(i);
        if (has_size(i)) return -1;
        if (plan.ops[chosen[i]] != NO_OPS) return 0;
        if (!plan.is_resampled[chosen[i]]) return has_direction && is_mirrored(row) ? 1 : -1;
        const bool same_kind = row.filter == filter && row.antialias == int(antialias) && !has_direction;
        return same_kind && !row.warped && !shows_padding(row) ? -1 : 1;
    });
    if (started == NEEDS_ROOM) return started;
    for (int64 i = 0; i < chosen.n; ++i) {
        if (has_size(i)) continue;
        Sample& row = chosen.row(i);
        bool& is_resampled = plan.is_resampled[chosen[i]];
        if (is_resampled) {
            compose_resize(down(row), height[i]);
            compose_resize(across(row), width[i]);
            continue;
        }
        const bool columns_first = sums_columns_first(pillow, down(row).out, across(row).out, height[i], width[i]);
        resize(down(row), height[i]);
        resize(across(row), width[i]);
        if (is_exact || (pillow && filter == NEAREST)) take_center(row.y), take_center(row.x);
        row.before.border = row.after.border;
        memcpy(row.before.fill, row.after.fill, sizeof row.before.fill);
        row.filter = filter, row.antialias = antialias, row.clamp = clamp;
        if (pillow) row.antialias = columns_first != bool(row.transposed) ? Y_FIRST : X_FIRST;
        is_resampled = true;
    }
    return started;
}

// Makes the visible output the window of a warp, without transposition. matrix [n, 3, 3] maps points (x, y, 1) of the
// new image to the output so far. Reasons for a pass: 0, operations; 1, another resampling.
inline int64 warp(const Selection& chosen, const int64* height, const int64* width, const double* matrix, int filter,
                  int border, const float* fill, float clamp) {
    const PassTable& plan = chosen.plan;
    if (!are_sizes(chosen.n, height, width)) return UNFIT;
    const int64 started = begin_passes(chosen, [&](int64 i) {
        if (plan.ops[chosen[i]] != NO_OPS) return 0;
        return plan.is_resampled[chosen[i]] || shows_padding(chosen.row(i)) ? 1 : -1;
    });
    if (started == NEEDS_ROOM) return started;
    for (int64 i = 0; i < chosen.n; ++i, matrix += 9) {
        Sample& row = chosen.row(i);
        double to_source[9] = {0, 0, 0, 0, 0, 0, 0, 0, 1};  // from the output so far
        // Rows and columns are x, then y; a transposed sample swaps the columns.
        to_source[row.transposed ? 1 : 0] = row.x.step, to_source[2] = warp(row.x, width[i]);
        to_source[row.transposed ? 3 : 4] = row.y.step, to_source[5] = warp(row.y, height[i]);
        for (int k = 0; k < 9; ++k) {
            const double *left = to_source + k / 3 * 3, *right = matrix + k % 3;
            row.matrix[k] = left[0] * right[0] + left[1] * right[3] + left[2] * right[6];
        }
        row.before.border = border;
        memcpy(row.before.fill, fill, sizeof row.before.fill);
        row.filter = filter, row.clamp = clamp;
        row.transposed = 0, row.antialias = 0;
        set_kernel_matrices(row, height[i], width[i]);
        plan.is_resampled[chosen[i]] = true;
    }
    return started;
}

// Makes room for a filter with this radius, in pixels; it filters the finished image before it.
inline int64 set_filter(const Selection& chosen, const int64* radius_y, const int64* radius_x) {
    const PassTable& plan = chosen.plan;
    const int64 started = begin_passes(chosen, [&](int64 i) {
        const Sample& row = chosen.row(i);
        const bool is_changed =
            plan.ops[chosen[i]] != NO_OPS || plan.is_resampled[chosen[i]] || row.transposed || is_mirrored(row);
        return is_changed || shows_padding(row) ? 0 : -1;
    });
    if (started == NEEDS_ROOM) return started;
    for (int64 i = 0; i < chosen.n; ++i) {
        set_filter(chosen.row(i).y, radius_y[i]);
        set_filter(chosen.row(i).x, radius_x[i]);
        plan.is_resampled[chosen[i]] = true;
    }
    return started;
}

// Gray levels are summed as integers of 1 / 65536 of a uint8 level: the sum does not depend on the order.
constexpr double MEASURE_STEPS = 65536.0;

// Lays CLAHE's grid over an image, and stores the clip limit and the level per pixel of a cell in the operation.
inline void lay_grid(Sample& row, Op& op) {
    double clip_limit;
    memcpy(&clip_limit, op.a + 6, sizeof clip_limit);
    const int64 height = down(row).out, width = across(row).out, rows = int64(op.a[4]), columns = int64(op.a[5]);
    // OpenCV's rule: if the grid does not divide the image, both sides grow, even one that it divides.
    const int64 extra = height % rows == 0 && width % columns == 0 ? 0 : 1;
    row.measure.grid = {int(rows), int(columns), int(height / rows + extra), int(width / columns + extra)};
    const int64 area = int64(row.measure.grid.height) * row.measure.grid.width;
    const double clipped = clip_limit * double(area) / 256.0;
    op.a[2] = float(clip_limit > 0.0 && clipped < double(area) ? max<int64>(int64(clipped), 1) : area);
    op.a[3] = 255.0f / float(area);
}

// Appends an operation to each program, in an image whose white is `limit`. given [count]: one for all, or `given[k]`
// for sample k. If it needs a statistic, the pass before measures it. Out: result [n], the operations; place [n], pass
// * samples + sample.
inline int64 append(const Selection& chosen, const Op* given, int64 count, double limit, Op* result, int64* place) {
    const PassTable& plan = chosen.plan;
    const double step = limit / 255.0 / MEASURE_STEPS, level = 255.0 / limit;
    const double scale[] = {0.0, 1.0 / step, limit == 255.0 ? 1.0 : 0.0, level, level};  // by Measure
    for (int64 i = 0; i < chosen.n; ++i) result[i] = given[count == 1 ? 0 : chosen[i]];
    const auto measure_of = [&](int64 i) { return int(plan.measure[result[i].code]); };
    // If there is no room, the repeated call sets the same values again.
    for (int64 i = 0; i < chosen.n; ++i)
        if (const int measure = measure_of(i)) {
            Sample& row = chosen.row(i);
            if (measure == GRAY_SUM) result[i].a[1] = float(step / double(int64(down(row).out) * across(row).out));
            if (measure == CELL_HISTOGRAMS) lay_grid(row, result[i]);
            row.measure.kind = measure, row.measure_scale = float(scale[measure]);
        }
    const int64 started = begin_passes(chosen, [&](int64 i) { return measure_of(i) ? 0 : -1; });
    if (started == NEEDS_ROOM) return started;
    for (int64 i = 0; i < chosen.n; ++i) {
        const int64 k = chosen[i];
        place[i] = plan.pass[k] * plan.samples + k;
        const signed char kind = plan.kind[result[i].code];
        if (kind > plan.ops[k]) plan.ops[k] = kind;
    }
    return started;
}

// 64-bit words that a pass measures into.
inline int64 count_words(const Sample& row) {
    const int64 cells =
        row.measure.kind == CELL_HISTOGRAMS ? int64(row.measure.grid.rows) * row.measure.grid.columns : 1;
    const int64 words[] = {0, 1, 3, 3 * 256 / 2, 3 * 256 / 2};  // per cell, by Measure
    return words[row.measure.kind] * cells;
}

// Assigns words to each measuring pass, and tells the next pass where they are. Returns the total.
inline int64 place_statistics(Sample* rows, int64 passes, int64 samples) {
    int64 words = 0;
    for (int64 i = 0; i < passes * samples; ++i) words += count_words(rows[i]);
    if (words == 0) return 0;
    words = 0;
    for (int64 i = 0; i < passes * samples; ++i) {
        Sample& row = rows[i];
        row.measure.at = int(words);
        words += count_words(row);
        if (i >= samples) row.measured = rows[i - samples].measure;
    }
    return words;
}

// rows [passes, samples], out: all rows of the finished plan, whose images have this type, layout and channels.
// Returns the words of its statistics.
inline int64 finish(const PassTable& plan, int64 passes, int type, int layout, int channels, Sample* rows) {
    const int64 n = plan.samples;
    for (int64 i = 0; i < passes * n; ++i) {
        const int64 pass = i / n, k = i % n;
        Sample& row = rows[i];
        if (pass > plan.pass[k]) {
            memset(static_cast<void*>(&row), 0, sizeof row);
        } else {
            copy(row, pass < plan.pass[k] ? plan.kept[i] : plan.rows[k]);
            if (pass == plan.pass[k])
                row.target.type = type, row.target.layout = layout, row.target.channels = channels;
        }
        if (row.neighborhood == NONE)
            for (Axis* axis : {&row.y, &row.x})
                axis->taps = resizes_as_pillow(row) ? pillow_taps(*axis, row.filter) : taps(*axis, row);
    }
    return place_statistics(rows, passes, n);
}

// Groups operations by row, in the order of appending: sorted [count]. Sets each row's range.
inline void sort_operations(Sample* rows, int64 n, const Op* ops, const int64* place, int64 count, Op* sorted) {
    for (int64 i = 0; i < count; ++i) ++rows[place[i]].op_end;
    int end = 0;
    for (int64 i = 0; i < n; ++i) {
        const int row_count = rows[i].op_end;
        rows[i].op_begin = rows[i].op_end = end;
        end += row_count;
    }
    for (int64 i = 0; i < count; ++i) sorted[rows[place[i]].op_end++] = ops[i];
}
