// What a pass measures of the whole image for the operation that starts the next pass. All of it is integers, added
// up or compared: neither tiles, nor threads, nor their order show.
//   GRAY_SUM   the sum of gray levels, in steps of a part of a level           1 word of the sample's memory
//   RANGE      each channel's least and greatest value                         3 words: greatest, then -least, of
//              R, G and B, 32 bits each, as integers in the order of the floats
//   HISTOGRAM  how many values of each channel round to each uint8 level       384 words: counts [3, 256] of 32 bits
//   CELL_HISTOGRAMS   the same for each cell of a grid                         384 words a cell; core/clahe.h
// A block counts a histogram in its scratch, and adds that to the sample's at the end. Cells it counts in the sample's
// memory, once its pixels are stored.
//
// Tested against Pillow's ImageOps, cv2.equalizeHist and tests/references/statistics.py.
#pragma once
#include "core/clahe.h"

constexpr int EQUALIZE_FLOATS = COUNTS + 3 * CHUNKS;

// How many words of memory a pass measures.
DEVICE int measured_words(const Sample& sample) {
    const int cells = sample.measure == CELL_HISTOGRAMS ? sample.grid.rows * sample.grid.columns : 1;
    return sample.measure >= HISTOGRAM ? cells * COUNTS / 2 : sample.measure == RANGE ? 3 : sample.measure;
}

// What operations and passes know of the statistics.
struct Statistics {
    const int64* before;  // what the pass before has measured
    int64* into;          // what this one measures
    const float*
        scratch;     // HISTOGRAM: [3, 256], the level that each level becomes; CELL_HISTOGRAMS: as core/clahe.h has it
    uint32* counts;  // [3, 256] in scratch: this block's histogram
};

// What one thread has measured. The greatest values, and the greatest of the negated ones.
struct Tally {
    int64 gray;
    int greatest[3], negated[3];
};

DEVICE Tally empty_tally() {
    constexpr int nothing = -2147483647 - 1;
    return {0, {nothing, nothing, nothing}, {nothing, nothing, nothing}};
}

// ITU-R BT.601 luma with the digits that torchvision uses.
template <class F>
DEVICE F gray(F r, F g, F b) {
    return 0.2989f * r + 0.587f * g + 0.114f * b;
}

// Integers in the order of the floats; and back.
DEVICE int order_of(float value) {
    const int bits = int(float_bits(value));
    return bits ^ ((bits >> 31) & 0x7fffffff);
}
DEVICE float of_order(int order) { return float_of_bits(uint32(order ^ ((order >> 31) & 0x7fffffff))); }

// --- measuring -------------------------------------------------------------------------------------------------------

// 2^30 bounds what values far outside the image's range can do to the sum. Whole levels first: AVX2 has no instruction
// that makes 64-bit integers of floats.
DEVICE void add_gray(const Sample& sample, const Strip& v, int count, Tally& tally) {
    const float scale = sample.measure_scale, most = 1073741824.0f;
    float levels[PIXELS] IN_LINES;
    for (int p = 0; p < PIXELS; p += FULL) {
        const Full<float> r = load_full(&v[0][p]), g = load_full(&v[1][p]);
        const Full<float> level = gray(r, g, load_full(&v[2][p])) * scale;
        store_full(levels + p, floor_of(larger(smaller(level, full_of(most)), full_of(-most)) + 0.5f));
    }
    for (int p = count; p < PIXELS; ++p) levels[p] = 0.0f;
    int whole[PIXELS];
    FOR_PIXELS(p) whole[p] = int(levels[p]);
    int64 sum = 0;
    FOR_PIXELS(p) sum += whole[p];
    tally.gray += sum;
}

// Of levels, the range is that of the nearest whole ones: a flat image that a resize left off by 1e-5 is still flat.
DEVICE void widen_range(const Sample& sample, const Strip& v, int count, Tally& tally) {
    const bool whole = sample.measure_scale > 0.0f;
    for (int c = 0; c < 3; ++c)
        for (int p = 0; p < count; ++p) {
            const float value = whole ? floor_of(v[c][p] + 0.5f) : v[c][p];
            tally.greatest[c] = larger(tally.greatest[c], order_of(value));
            tally.negated[c] = larger(tally.negated[c], order_of(-value));
        }
}

DEVICE void count_levels(const Sample& sample, const Strip& v, int count, uint32* counts) {
    int levels[3][PIXELS];
    for (int c = 0; c < 3; ++c)
        for (int p = 0; p < PIXELS; ++p) levels[c][p] = 256 * c + level_of(v[c][p], sample.measure_scale);
    // Channels in turn: what was just counted need not be waited for.
    for (int p = 0; p < count; ++p)
        for (int c = 0; c < 3; ++c) count_one(&counts[levels[c][p]]);
}

DEVICE void measure(const Sample& sample, const Statistics& statistics, const Strip& v, int count, Tally& tally) {
    switch (sample.measure) {
        case GRAY_SUM: add_gray(sample, v, count, tally); break;
        case RANGE: widen_range(sample, v, count, tally); break;
        case HISTOGRAM: count_levels(sample, v, count, statistics.counts); break;
    }
}

// --- using -----------------------------------------------------------------------------------------------------------

DEVICE float greatest_of(const int64* range, int c) {
    return of_order(int(reinterpret_cast<const uint32*>(range)[c] ^ 0x80000000u));
}
DEVICE float least_of(const int64* range, int c) { return -greatest_of(range, 3 + c); }

// The sums of the 3 x CHUNKS chunks of 256 / CHUNKS counts.
DEVICE void sum_chunks(const Block& block, const uint32* counts, uint32* sums) {
    for (int i = block.thread; i < 3 * CHUNKS; i += block.threads) {
        sums[i] = 0;
        for (int k = 0; k < EACH; ++k) sums[i] += counts[i * EACH + k];
    }
}

// table[c][i]: what level i becomes. Pillow's rule: about as many pixels lie below level i's result as are darker than
// i, in steps of 1 / 255 of all but the brightest pixels; an image with fewer than 255 of those stays as it is.
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
        for (int k = 0; k < EACH; ++k) {
            const uint32 count = counts[256 * c + last * EACH + k];
            brightest = count > 0 ? count : brightest;
        }
        const uint32 step = (all - brightest) / 255;
        for (int level = chunk * EACH; level < (chunk + 1) * EACH; ++level) {
            const uint32 wanted = step > 0 ? (darker + step / 2) / step : uint32(level);
            table[256 * c + level] = float(wanted < 255 ? wanted : 255);
            darker += counts[256 * c + level];
        }
    }
}

// --- a block's share -------------------------------------------------------------------------------------------------

// Floats of scratch that a block takes for this tile of a sample.
DEVICE int statistics_floats(const Sample& sample, const Tile& tile) {
    const int used = sample.measured == HISTOGRAM         ? EQUALIZE_FLOATS
                     : sample.measured == CELL_HISTOGRAMS ? cells_floats(sample, tile)
                                                          : 0;
    return used + (sample.measure == HISTOGRAM ? COUNTS : 0);
}

// Prepares what operations will ask for. `memory` is that of all samples and passes.
DEVICE Statistics begin_statistics(const Block& block, const Sample& sample, const Op* ops, int64* memory,
                                   const Tile& tile, float* scratch) {
    Statistics statistics = {memory + sample.measured_at, memory + sample.measure_at, scratch,
                             reinterpret_cast<uint32*>(scratch)};
    const uint32* counts = reinterpret_cast<const uint32*>(statistics.before);
    if (sample.measured == HISTOGRAM) {
        uint32* sums = reinterpret_cast<uint32*>(scratch + COUNTS);
        sum_chunks(block, counts, sums);
        block.sync();
        equalize(block, counts, sums, scratch);
        statistics.counts += EQUALIZE_FLOATS;
    }
    if (sample.measured == CELL_HISTOGRAMS) {
        const Op& waiting = ops[sample.op_begin];  // who asked for them
        make_cells(block, sample, tile, counts, waiting.a[2], waiting.a[3], scratch);
        statistics.counts += cells_floats(sample, tile);
    }
    if (sample.measure == HISTOGRAM)
        for (int i = block.thread; i < COUNTS; i += block.threads) statistics.counts[i] = 0;
    if (statistics_floats(sample, tile) > 0) block.sync();
    return statistics;
}

// Adds what this block has measured to the sample's. Every thread calls it.
DEVICE void end_statistics(const Block& block, const Sample& sample, const Statistics& statistics, const Tally& tally,
                           const Tile& tile) {
    uint32* words = reinterpret_cast<uint32*>(statistics.into);
    switch (sample.measure) {
        case GRAY_SUM: add_to(statistics.into, tally.gray); break;
        case RANGE:
            for (int c = 0; c < 3; ++c) {
                raise_to(&words[c], uint32(tally.greatest[c]) ^ 0x80000000u);
                raise_to(&words[3 + c], uint32(tally.negated[c]) ^ 0x80000000u);
            }
            break;
        case HISTOGRAM:
            block.sync();
            for (int i = block.thread; i < COUNTS; i += block.threads)
                if (statistics.counts[i] > 0) add_counts(&words[i], statistics.counts[i]);
            break;
        case CELL_HISTOGRAMS:
            block.sync();
            count_cells(block, sample, tile, words);
            break;
    }
}
