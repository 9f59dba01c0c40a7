// Computes: statistics of the whole image that the operation at the start of the next pass needs. All are integers,
//           summed or compared, so the result depends neither on tiles nor on threads nor on their order.
//             GRAY_SUM         sum of gray levels in fixed point               1 word of 64 bits
//             RANGE            maximum, then -minimum, of each channel         3 words: 6 ordered integers of 32 bits
//             HISTOGRAM        counts of each uint8 level of each channel      384 words: [C, 256] of 32 bits
//             CELL_HISTOGRAMS  the same for each cell of a grid                384 words per cell; core/clahe.h
// Threads:  a thread accumulates its own pixels, then the block adds them to the sample's memory. A block counts a
//           histogram in scratch; cells are counted in the sample's memory after the tile is stored.
// Reference: Pillow's ImageOps.equalize, autocontrast and ImageEnhance.Contrast.
// Tests:    tests/properties/test_statistics.py against Pillow, cv2.equalizeHist and tests/references/statistics.py.
#pragma once
#include "core/clahe.h"

// Words of 64 bits that a pass measures.
DEVICE int measured_words(const Sample& sample) {
    const int cells =
        sample.measure.kind == CELL_HISTOGRAMS ? sample.measure.grid.rows * sample.measure.grid.columns : 1;
    return sample.measure.kind >= HISTOGRAM ? cells * COUNTS / 2
           : sample.measure.kind == RANGE   ? 3
                                            : sample.measure.kind;
}

// The statistics that a tile reads and writes.
struct Statistics {
    const int64* before;   // of the pass before
    int64* into;           // of this pass
    const float* scratch;  // HISTOGRAM: [C, 256] table; CELL_HISTOGRAMS: core/clahe.h
    uint32* counts;        // [C, 256] in scratch: the histogram of this block
};

// The statistics of one thread: maxima of the values and of the negated values.
struct PartialStats {
    int64 gray;
    int maximum[3], negated_maximum[3];
};

DEVICE PartialStats empty_stats() {
    constexpr int nothing = -2147483647 - 1;
    return {0, {nothing, nothing, nothing}, {nothing, nothing, nothing}};
}

// ITU-R BT.601 luma with the digits that torchvision uses.
template <class F>
DEVICE F gray(F r, F g, F b) {
    return 0.2989f * r + 0.587f * g + 0.114f * b;
}

// Floats as integers of the same order; and back.
DEVICE int to_ordered_int(float value) {
    const int bits = int(float_bits(value));
    return bits ^ ((bits >> 31) & 0x7fffffff);
}
DEVICE float from_ordered_int(int order) { return bits_to_float(uint32(order ^ ((order >> 31) & 0x7fffffff))); }

// --- measuring -------------------------------------------------------------------------------------------------------

// 2^30 limits the effect of values far outside the range. AVX2 cannot convert floats to 64-bit integers, so 32 bits
// come first.
DEVICE void add_gray(const Sample& sample, const PixelBlock& v, int count, PartialStats& stats) {
    const float scale = sample.measure_scale, limit = 1073741824.0f;
    float levels[PIXELS] CACHE_ALIGNED;
    for (int p = 0; p < PIXELS; p += VEC_LANES) {
        const Vec<float> r = load_vec(&v[0][p]), g = load_vec(&v[1][p]);
        const Vec<float> level = gray(r, g, load_vec(&v[2][p])) * scale;
        store(levels + p, floor(max(min(level, splat(limit)), splat(-limit)) + 0.5f));
    }
    for (int p = count; p < PIXELS; ++p) levels[p] = 0.0f;
    int whole[PIXELS];
    FOR_PIXELS(p) whole[p] = int(levels[p]);
    int64 sum = 0;
    FOR_PIXELS(p) sum += whole[p];
    stats.gray += sum;
}

// Ranges of levels use rounded levels: a flat image that a resize changed by 1e-5 stays flat.
DEVICE void update_range(const Sample& sample, const PixelBlock& v, int count, PartialStats& stats) {
    const bool whole = sample.measure_scale > 0.0f;
    for (int c = 0; c < 3; ++c)
        for (int p = 0; p < count; ++p) {
            const float value = whole ? floor(v[c][p] + 0.5f) : v[c][p];
            stats.maximum[c] = max(stats.maximum[c], to_ordered_int(value));
            stats.negated_maximum[c] = max(stats.negated_maximum[c], to_ordered_int(-value));
        }
}

DEVICE void count_levels(const Sample& sample, const PixelBlock& v, int count, uint32* counts) {
    int levels[3][PIXELS];
    for (int c = 0; c < 3; ++c)
        for (int p = 0; p < PIXELS; ++p) levels[c][p] = 256 * c + to_level(v[c][p], sample.measure_scale);
    // Channels alternate, so an increment does not wait for the last one.
    for (int p = 0; p < count; ++p)
        for (int c = 0; c < 3; ++c) increment(&counts[levels[c][p]]);
}

DEVICE void measure(const Sample& sample, const Statistics& statistics, const PixelBlock& v, int count,
                    PartialStats& stats) {
    if (is<Measures>(sample.measure.kind, GRAY_SUM)) add_gray(sample, v, count, stats);
    if (is<Measures>(sample.measure.kind, RANGE)) update_range(sample, v, count, stats);
    if (is<Measures>(sample.measure.kind, HISTOGRAM)) count_levels(sample, v, count, statistics.counts);
}

// --- using -----------------------------------------------------------------------------------------------------------

DEVICE float maximum_of(const int64* range, int c) {
    return from_ordered_int(int(reinterpret_cast<const uint32*>(range)[c] ^ 0x80000000u));
}
DEVICE float minimum_of(const int64* range, int c) { return -maximum_of(range, 3 + c); }

// sums [C, CHUNKS] of CHUNK_LEVELS counts each.
DEVICE void sum_chunks(const Block& block, const uint32* counts, uint32* sums) {
    for (int i = block.thread; i < 3 * CHUNKS; i += block.threads) {
        sums[i] = 0;
        for (int k = 0; k < CHUNK_LEVELS; ++k) sums[i] += counts[i * CHUNK_LEVELS + k];
    }
}

// table[c][i] = the equalized level i by Pillow's rule: as many pixels lie below it as are darker than i, in steps of 1
// / 255 of all pixels but the brightest. An image with fewer than 255 of those stays unchanged.
DEVICE void equalize(const Block& block, const uint32* counts, const uint32* sums, float* table) {
    for (int i = block.thread; i < 3 * CHUNKS; i += block.threads) {
        const int c = i / CHUNKS, chunk = i % CHUNKS;
        uint32 all = 0, darker = 0, brightest = 0;
        int last = 0;
        for (int k = 0; k < CHUNKS; ++k) {
            const uint32 sum = sums[c * CHUNKS + k];
            all += sum;
            darker += k < chunk ? sum : 0;
            last = sum > 0 ? k : last;
        }
        for (int k = 0; k < CHUNK_LEVELS; ++k) {
            const uint32 count = counts[256 * c + last * CHUNK_LEVELS + k];
            brightest = count > 0 ? count : brightest;
        }
        const uint32 step = (all - brightest) / 255;
        for (int level = chunk * CHUNK_LEVELS; level < (chunk + 1) * CHUNK_LEVELS; ++level) {
            const uint32 level_out = step > 0 ? (darker + step / 2) / step : uint32(level);
            table[256 * c + level] = float(level_out < 255 ? level_out : 255);
            darker += counts[256 * c + level];
        }
    }
}

// --- a block's share -------------------------------------------------------------------------------------------------

// Prepares the statistics of a tile. memory: the statistics of all samples and passes.
DEVICE Statistics begin_statistics(const Block& block, const Sample& sample, const Op* ops, int64* memory,
                                   const Tile& tile, float* scratch) {
    Statistics statistics = {memory + sample.measured.at, memory + sample.measure.at, scratch,
                             reinterpret_cast<uint32*>(scratch)};
    const uint32* counts = reinterpret_cast<const uint32*>(statistics.before);
    if (is<PriorMeasures>(sample.measured.kind, HISTOGRAM)) {
        uint32* sums = reinterpret_cast<uint32*>(scratch + COUNTS);
        sum_chunks(block, counts, sums);
        block.sync();
        equalize(block, counts, sums, scratch);
        statistics.counts += EQUALIZE_FLOATS;
    }
    if (is<PriorMeasures>(sample.measured.kind, CELL_HISTOGRAMS)) {
        const Op& op = ops[sample.op_begin];  // the operation that needs them
        make_clahe_tables(block, sample, tile, counts, op.a[2], op.a[3], scratch);
        statistics.counts += clahe_floats(SCRATCH, sample, tile.rows, tile.columns);
    }
    if (is<Measures>(sample.measure.kind, HISTOGRAM))
        for (int i = block.thread; i < COUNTS; i += block.threads) statistics.counts[i] = 0;
    if (statistics_floats(SCRATCH, sample, tile.rows, tile.columns) > 0) block.sync();
    return statistics;
}

// Adds a block's statistics to the sample's. Every thread calls it.
DEVICE void end_statistics(const Block& block, const Sample& sample, const Statistics& statistics,
                           const PartialStats& stats, const Tile& tile) {
    uint32* words = reinterpret_cast<uint32*>(statistics.into);
    if (is<Measures>(sample.measure.kind, GRAY_SUM)) {
        block_sum(statistics.into, stats.gray);
    } else if (is<Measures>(sample.measure.kind, RANGE)) {
        for (int c = 0; c < 3; ++c) {
            block_max(&words[c], uint32(stats.maximum[c]) ^ 0x80000000u);
            block_max(&words[3 + c], uint32(stats.negated_maximum[c]) ^ 0x80000000u);
        }
    } else if (is<Measures>(sample.measure.kind, HISTOGRAM)) {
        block.sync();
        for (int i = block.thread; i < COUNTS; i += block.threads)
            if (statistics.counts[i] > 0) atomic_add(&words[i], statistics.counts[i]);
    } else if (is<Measures>(sample.measure.kind, CELL_HISTOGRAMS)) {
        block.sync();
        count_cell_histograms(block, sample, tile, words);
    }
}
