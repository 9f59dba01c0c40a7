// A plan while it is being written: what cuaug/plan/pass_table.py has its rows changed by. Each function changes the
// chosen samples, and begins a new pass for those whose pass cannot take in the change: what they are then becomes its
// source.
#pragma once
#include "planner/geometry.h"

// How the pixel operations of a pass get along with geometry that follows them; as in cuaug/plan/pass_table.py.
enum Kind { NO_OPS, POINTWISE, POSITIONAL };

// Mirrored in cuaug/plan/pass_table.py.
struct Writing {
    Sample* rows;      // [samples]: each one's current pass
    int64* pass;       // [samples]: the number of that
    bool* bound;       // [samples]: whether something in it, such as a resize, keeps other resamplings out
    signed char* ops;  // [samples]: the greatest Kind of its operations
    Sample* kept;      // [room, samples]: the passes before
    int64* begun;      // [2, room]: by the last call, from each pass, for its first and its second reason
    int64 samples, room;
    const Sample* fresh;         // what a row is at first
    const signed char* kind;     // [codes]: each operation's Kind
    const signed char* measure;  // [codes]: what it needs to know of the whole image
};

// What a function gives that has changed nothing: more passes than there is room for would begin. Else it gives how
// many have begun.
constexpr int64 NEEDS_ROOM = -1;
// What it gives that has changed nothing because that cannot be: a window that does not lie in its image, or a size
// that no image has.
constexpr int64 UNFIT = -2;

// Chosen samples of a plan: those numbered `which`, in ascending order, or the first n where it is null.
struct Some {
    Writing& plan;
    const int64* which;
    int64 n;

    int64 operator[](int64 i) const { return which ? which[i] : i; }
    Sample& row(int64 i) const { return plan.rows[(*this)[i]]; }
};

// to = from, in pieces that the compiler has instructions for: of a whole row GCC would make a `rep movsq`, which takes
// as long to begin as this takes.
inline void copy(Sample& to, const Sample& from) {
    constexpr int piece = 80;
    static_assert(sizeof(Sample) % piece == 0, "a row is whole pieces");
    for (size_t at = 0; at < sizeof(Sample); at += piece)
        memcpy(reinterpret_cast<char*>(&to) + at, reinterpret_cast<const char*>(&from) + at, piece);
}

// A source of so many pixels, as it is.
inline void begin(const Writing& plan, int64 k, int64 height, int64 width, int source_type) {
    Sample& row = plan.rows[k];
    copy(row, *plan.fresh);
    begin(row.y, height);
    begin(row.x, width);
    row.source_type = source_type;
    row.pitch = width * (source_type == UINT8 ? 3 : 12);
    plan.bound[k] = false;
    plan.ops[k] = NO_OPS;
}

inline void begin_pass(const Writing& plan, int64 k, int reason) {
    const int64 height = down(plan.rows[k]).out, width = across(plan.rows[k]).out;
    copy(plan.kept[plan.pass[k] * plan.samples + k], plan.rows[k]);
    ++plan.begun[reason * plan.room + plan.pass[k]++];
    begin(plan, k, height, width, FLOAT32);
}

// Begins a pass for each of some for which `reason(i)` gives one, 0 or 1; not where it gives -1.
template <class Reason>
int64 begin_passes(const Some& some, Reason reason) {
    Writing& plan = some.plan;
    int64 count = 0;
    for (int64 i = 0; i < some.n; ++i)
        if (reason(i) >= 0) {
            if (plan.pass[some[i]] >= plan.room) return NEEDS_ROOM;
            ++count;
        }
    if (count == 0) return 0;
    for (int64 pass = 0; pass < 2 * plan.room; ++pass) plan.begun[pass] = 0;
    for (int64 i = 0; i < some.n; ++i) {
        const int why = reason(i);
        if (why >= 0) begin_pass(plan, some[i], why);
    }
    return count;
}

inline int64 begin_where_positional(const Some& some) {
    return begin_passes(some, [&](int64 i) { return some.plan.ops[some[i]] == POSITIONAL ? 0 : -1; });
}

inline bool shows_padding(const Sample& row) { return shows_border(row.y) || shows_border(row.x); }
inline bool mirrored(const Sample& row) { return row.y.step < 0 || row.x.step < 0; }

// Which of the chosen is the first that its window does not fit; -1 where none is.
inline int64 misfit(const Some& some, const int64* top, const int64* left, const int64* height, const int64* width) {
    for (int64 i = 0; i < some.n; ++i) {
        const bool fits = top[i] >= 0 && left[i] >= 0 && height[i] >= 1 && width[i] >= 1;
        // Subtracted, as a sum may be more than 64 bits hold.
        if (!fits || top[i] > down(some.row(i)).out - height[i] || left[i] > across(some.row(i)).out - width[i])
            return i;
    }
    return -1;
}

inline int64 crop(const Some& some, const int64* top, const int64* left, const int64* height, const int64* width) {
    if (misfit(some, top, left, height, width) >= 0) return UNFIT;
    const int64 begun = begin_where_positional(some);
    if (begun == NEEDS_ROOM) return begun;
    for (int64 i = 0; i < some.n; ++i) {
        crop(down(some.row(i)), top[i], height[i]);
        crop(across(some.row(i)), left[i], width[i]);
    }
    return begun;
}

inline int64 pad(const Some& some, const int64* top, const int64* left, const int64* bottom, const int64* right) {
    for (int64 i = 0; i < some.n; ++i)
        if (!can_pad(down(some.row(i)), top[i], bottom[i]) || !can_pad(across(some.row(i)), left[i], right[i]))
            return UNFIT;
    for (int64 i = 0; i < some.n; ++i) {
        pad(down(some.row(i)), top[i], bottom[i]);
        pad(across(some.row(i)), left[i], right[i]);
    }
    return 0;
}

inline int64 flip(const Some& some, bool vertical) {
    const int64 begun = begin_where_positional(some);
    if (begun == NEEDS_ROOM) return begun;
    for (int64 i = 0; i < some.n; ++i) flip(vertical ? down(some.row(i)) : across(some.row(i)));
    return begun;
}

inline int64 transpose(const Some& some) {
    const int64 begun = begin_where_positional(some);
    if (begun == NEEDS_ROOM) return begun;
    for (int64 i = 0; i < some.n; ++i) some.row(i).transposed ^= 1;
    return begun;
}

inline bool are_sizes(int64 n, const int64* height, const int64* width) {
    for (int64 i = 0; i < n; ++i)
        if (min(height[i], width[i]) < 1 || max(height[i], width[i]) > LONGEST) return false;
    return true;
}

// Images of the new size stay as they are. Reasons: operations; a resampling of another kind.
inline int64 resize(const Some& some, const int64* height, const int64* width, int filter, bool antialias,
                    float clamp) {
    const Writing& plan = some.plan;
    if (!are_sizes(some.n, height, width)) return UNFIT;
    const auto fits = [&](int64 i) {
        return down(some.row(i)).out == height[i] && across(some.row(i)).out == width[i];
    };
    const int64 begun = begin_passes(some, [&](int64 i) {
        const Sample& row = some.row(i);
        if (fits(i)) return -1;
        if (plan.ops[some[i]] != NO_OPS) return 0;
        // Nearest rounds down, so it does not commute with a flip.
        if (!plan.bound[some[i]]) return filter == NEAREST && mirrored(row) ? 1 : -1;
        const bool same_kind = row.filter == filter && bool(row.antialias) == antialias && filter != NEAREST;
        return same_kind && !row.warped && !shows_padding(row) ? -1 : 1;
    });
    if (begun == NEEDS_ROOM) return begun;
    for (int64 i = 0; i < some.n; ++i) {
        if (fits(i)) continue;
        Sample& row = some.row(i);
        bool& again = plan.bound[some[i]];
        if (again) {
            compose_resize(down(row), height[i]);
            compose_resize(across(row), width[i]);
            continue;
        }
        resize(down(row), height[i]);
        resize(across(row), width[i]);
        row.border_before = row.border_after;
        memcpy(row.fill_before, row.fill_after, sizeof row.fill_before);
        row.filter = filter, row.antialias = antialias, row.clamp = clamp;
        again = true;
    }
    return begun;
}

// Makes of what the output shows the window of a warp, which sees as if it were not transposed. matrix [n, 3, 3]: from
// the points of the new image, (x, y, 1), to those of the output so far. Reasons: operations; another resampling.
inline int64 warp(const Some& some, const int64* height, const int64* width, const double* matrix, int filter,
                  int border, const float* fill, float clamp) {
    const Writing& plan = some.plan;
    if (!are_sizes(some.n, height, width)) return UNFIT;
    const int64 begun = begin_passes(some, [&](int64 i) {
        if (plan.ops[some[i]] != NO_OPS) return 0;
        return plan.bound[some[i]] || shows_padding(some.row(i)) ? 1 : -1;
    });
    if (begun == NEEDS_ROOM) return begun;
    for (int64 i = 0; i < some.n; ++i, matrix += 9) {
        Sample& row = some.row(i);
        double onto[9] = {0, 0, 0, 0, 0, 0, 0, 0, 1};  // from that output to the source
        // The matrix's rows are x's and then y's; its columns too, but for what is transposed.
        onto[row.transposed ? 1 : 0] = row.x.step, onto[2] = warp(row.x, width[i]);
        onto[row.transposed ? 3 : 4] = row.y.step, onto[5] = warp(row.y, height[i]);
        for (int k = 0; k < 9; ++k) {
            const double *left = onto + k / 3 * 3, *right = matrix + k % 3;
            row.matrix[k] = left[0] * right[0] + left[1] * right[3] + left[2] * right[6];
        }
        row.border_before = border;
        memcpy(row.fill_before, fill, sizeof row.fill_before);
        row.filter = filter, row.clamp = clamp;
        row.warped = 1, row.transposed = 0, row.antialias = 0;
        plan.bound[some[i]] = true;
    }
    return begun;
}

// A filter that looks `reach` pixels down and across. It sees the finished image before it.
inline int64 set_filter(const Some& some, const int64* reach_down, const int64* reach_across) {
    const Writing& plan = some.plan;
    const int64 begun = begin_passes(some, [&](int64 i) {
        const Sample& row = some.row(i);
        const bool busy = plan.ops[some[i]] != NO_OPS || plan.bound[some[i]] || row.transposed || mirrored(row);
        return busy || shows_padding(row) ? 0 : -1;
    });
    if (begun == NEEDS_ROOM) return begun;
    for (int64 i = 0; i < some.n; ++i) {
        set_filter(some.row(i).y, reach_down[i]);
        set_filter(some.row(i).x, reach_across[i]);
        plan.bound[some[i]] = true;
    }
    return begun;
}

// Gray levels are added up as integers of 1 / 65536 of a uint8 level: the sum does not depend on the order.
constexpr double MEASURE_STEPS = 65536.0;

// Lays CLAHE's grid over an image, and tells the operation what it has to know of the cells.
inline void lay_grid(Sample& row, Op& op) {
    double clip_limit;
    memcpy(&clip_limit, op.a + 6, sizeof clip_limit);
    const int64 height = down(row).out, width = across(row).out, rows = int64(op.a[4]), columns = int64(op.a[5]);
    // Where the grid does not divide the image, both sides grow, also one that it does divide: OpenCV's rule.
    const int64 more = height % rows == 0 && width % columns == 0 ? 0 : 1;
    row.grid = {int(rows), int(columns), int(height / rows + more), int(width / columns + more)};
    const int64 area = int64(row.grid.height) * row.grid.width;
    const double cut = clip_limit * double(area) / 256.0;
    op.a[2] = float(clip_limit > 0.0 && cut < double(area) ? max<int64>(int64(cut), 1) : area);
    op.a[3] = 255.0f / float(area);
}

// Adds an operation to each program, in an image whose white is `limit`. given [count]: one for all, or `given[k]` to
// sample k's. made [n]: what it becomes; place [n]: pass * samples + sample. Where it needs to know of the whole image,
// the pass before measures.
inline int64 append(const Some& some, const Op* given, int64 count, double limit, Op* made, int64* place) {
    const Writing& plan = some.plan;
    const double step = limit / 255.0 / MEASURE_STEPS, level = 255.0 / limit;
    const double scale[] = {0.0, 1.0 / step, limit == 255.0 ? 1.0 : 0.0, level, level};  // by Measure
    for (int64 i = 0; i < some.n; ++i) made[i] = given[count == 1 ? 0 : some[i]];
    const auto measured = [&](int64 i) { return int(plan.measure[made[i].code]); };
    // What is set here without there being room is set to the same once there is.
    for (int64 i = 0; i < some.n; ++i)
        if (const int what = measured(i)) {
            Sample& row = some.row(i);
            if (what == GRAY_SUM) made[i].a[1] = float(step / double(int64(down(row).out) * across(row).out));
            if (what == CELL_HISTOGRAMS) lay_grid(row, made[i]);
            row.measure = what, row.measure_scale = float(scale[what]);
        }
    const int64 begun = begin_passes(some, [&](int64 i) { return measured(i) ? 0 : -1; });
    if (begun == NEEDS_ROOM) return begun;
    for (int64 i = 0; i < some.n; ++i) {
        const int64 k = some[i];
        place[i] = plan.pass[k] * plan.samples + k;
        plan.ops[k] = plan.ops[k] > plan.kind[made[i].code] ? plan.ops[k] : plan.kind[made[i].code];
    }
    return begun;
}

// Words of 64 bits that a pass measures into.
inline int64 words_of(const Sample& row) {
    const int64 cells = row.measure == CELL_HISTOGRAMS ? int64(row.grid.rows) * row.grid.columns : 1;
    const int64 each[] = {0, 1, 3, 3 * 256 / 2, 3 * 256 / 2};  // by Measure
    return each[row.measure] * cells;
}

// Gives each measuring pass its words, and says where the pass before has measured; how many words there are.
inline int64 place_statistics(Sample* rows, int64 passes, int64 samples) {
    int64 words = 0;
    for (int64 i = 0; i < passes * samples; ++i) words += words_of(rows[i]);
    if (words == 0) return 0;
    words = 0;
    for (int64 i = 0; i < passes * samples; ++i) {
        Sample& row = rows[i];
        row.measure_at = int(words);
        words += words_of(row);
        if (i < samples) continue;
        const Sample& before = rows[i - samples];
        row.measured = before.measure, row.measured_at = before.measure_at, row.measured_grid = before.grid;
    }
    return words;
}

// made [passes, samples]: all rows of a finished plan, whose images have this type, layout and so many channels.
// Returns how many words they measure.
inline int64 finish(const Writing& plan, int64 passes, int type, int layout, int channels, Sample* made) {
    const int64 n = plan.samples;
    for (int64 i = 0; i < passes * n; ++i) {
        const int64 pass = i / n, k = i % n;
        Sample& row = made[i];
        if (pass > plan.pass[k]) {
            memset(static_cast<void*>(&row), 0, sizeof row);
        } else {
            copy(row, pass < plan.pass[k] ? plan.kept[i] : plan.rows[k]);
            if (pass == plan.pass[k])
                row.target_type = type, row.target_layout = layout, row.target_channels = channels;
        }
        if (row.neighbourhood == NONE)
            for (Axis* axis : {&row.y, &row.x}) axis->taps = taps(*axis, row);
    }
    return place_statistics(made, passes, n);
}

// Puts operations in order, each row's together and as they were written: made [count]. Sets the rows' ranges.
inline void put_in_order(Sample* rows, int64 n, const Op* ops, const int64* place, int64 count, Op* made) {
    for (int64 i = 0; i < count; ++i) ++rows[place[i]].op_end;
    int end = 0;
    for (int64 i = 0; i < n; ++i) {
        const int own = rows[i].op_end;
        rows[i].op_begin = rows[i].op_end = end;
        end += own;
    }
    for (int64 i = 0; i < count; ++i) made[rows[place[i]].op_end++] = ops[i];
}
