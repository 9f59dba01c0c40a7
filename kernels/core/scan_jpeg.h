// Computes: the segments of a JPEG whose entry points are not known. Huffman codes synchronize themselves: a reader
//           that begins anywhere soon meets the symbols of the encoder. The result is that of jpeg/entry_points.h.
// Threads:  a block per image. Its data is cut into runs, a thread each:
//             1. Every thread reads its run from a guess, and notes the state in which the run ends.
//             2. A run whose predecessor ends in another state than it began with is read again, until there is none.
//                A listed run may stop where it meets a state of its last reading. By induction from the first run, all
//                states are true.
//             3. Every thread reads its run again, with DC coefficients, and writes the segments that begin in it.
//           A prefix sum of blocks before 3., and one of DC differences after it, make the runs' numbers the image's.
// Reference: Klein and Wiseman, Parallel Huffman Decoding; Weißenberger and Schmidt, arXiv 2111.09219, who decode
//           pixels so. Here later visits need segments too.
// Tests:    tests/kernels/test_scan_jpeg.py; barriers: tests/kernels/test_emulated_jpeg.py.
#pragma once
#include "core/jpeg_bits.h"

// --- symbols ---------------------------------------------------------------------------------------------------------

// Symbols to skip at once:
//   bits 0 to 4    bits of their codes and values
//   ENDS_BLOCK     the last one ends its block
//   IS_INVALID     no encoder writes it
//   bits 8 to 14   coefficients; of a DC symbol: bits of its value
constexpr uint32 ENDS_BLOCK = 1 << 6, IS_INVALID = 1 << 7;
constexpr uint32 READ_ONE = 127 << 8;  // more coefficients than a block has: see `read_symbol`

// Symbols are looked up by their first bits.
constexpr int SKIP_BITS = 11, SKIP_ENTRIES = 1 << SKIP_BITS;

DEVICE int coefficients_of(uint32 symbols) { return int(symbols >> 8); }
DEVICE uint32 pack_symbols(int coefficients, int bits) { return uint32(coefficients << 8 | bits); }
DEVICE bool is_end_of_block(int entry) { return !(entry & 15) && (entry & 255) != 0xf0; }

// The next symbol, for coefficient k. After an invalid one, which wrong guesses meet, a block begins one bit later: any
// rule does that depends on the state alone. tables: 0, 1: DC; 2, 3: AC.
DEVICE uint32 read_symbol(const HuffmanLookups& lookups, int table, uint32 top, int k) {
    const int entry = table < 2 ? find_code(lookups.dc[table], top) : find_code(lookups.ac[table - 2], top);
    if (entry == NO_CODE) return IS_INVALID | ENDS_BLOCK | 1;
    const int length = entry >> 8, size = entry & 15;
    if (table < 2) return pack_symbols(size, length + size);
    if (is_end_of_block(entry)) return ENDS_BLOCK | uint32(length);
    const int coefficients = (entry >> 4 & 15) + 1, after = k + coefficients;
    return pack_symbols(coefficients, length + size) | (after > 63 ? ENDS_BLOCK : 0) | (after > 64 ? IS_INVALID : 0);
}

// The DC symbol in the first SKIP_BITS bits of `top`. Its value may lie beyond.
DEVICE uint32 dc_symbol_in(const HuffmanLookup<DC_LONGER>& lookup, uint32 top) {
    const int entry = find_code(lookup, top), length = entry >> 8, size = entry & 15;
    return entry == NO_CODE || length > SKIP_BITS ? READ_ONE : pack_symbols(size, length + size);
}

// The AC symbols in the first SKIP_BITS bits of `top`. The first one's value may lie beyond.
DEVICE uint32 ac_symbols_in(const HuffmanLookup<AC_LONGER>& lookup, uint32 top) {
    int bits = 0, coefficients = 0;
    while (bits < SKIP_BITS) {
        const int entry = find_code(lookup, top << bits), length = entry >> 8, size = entry & 15;
        if (entry == NO_CODE || bits + length + (bits ? size : 0) > SKIP_BITS) break;
        // Counted as a coefficient: after the last one there is no end.
        if (is_end_of_block(entry)) return ENDS_BLOCK | pack_symbols(coefficients + 1, bits + length);
        const int more = (entry >> 4 & 15) + 1;
        if (coefficients + more > 63) break;
        bits += length + size, coefficients += more;
    }
    return bits ? pack_symbols(coefficients, bits) : READ_ONE;
}

// --- runs ------------------------------------------------------------------------------------------------------------

// The words of the data that a thread reads next, in shared memory: loads of 16 bytes bring them there long before.
constexpr int WINDOW_WORDS = 8, WINDOW_BYTES = 4 * WINDOW_WORDS;
// After so many refills the threads of a warp move their windows together: else each would wait for the loads of all.
constexpr int MAX_REFILLS = 4;

// What the threads of a block share. blocks, dc: per run; then of all runs before it.
struct alignas(16) ScanScratch {
    JpegScan scan;
    uint16 skips[4][SKIP_ENTRIES];               // by table
    uint32 windows[WINDOW_WORDS][SCAN_THREADS];  // of each thread
    uint32 starts[MAX_SCAN_RUNS];                // the state from which each run was last read
    uint32 blocks[1][MAX_SCAN_RUNS], dc[JPEG_COMPONENTS][MAX_SCAN_RUNS];
    uint16 listed[MAX_SCAN_RUNS];  // runs to read again
    uint32 count;                  // of these
    int is_complete, is_damaged;
};

// Between two symbols, at or after the first bit of a cell: bits after it | next coefficient << 8 | block of MCU << 16.
DEVICE uint32 pack_state(uint32 bits, int k, int block) { return bits | uint32(k) << 8 | uint32(block) << 16; }
DEVICE int next_coefficient(uint32 state) { return int(state >> 8 & 255); }

DEVICE int count_runs(const JpegScan& scan) { return (scan.cells + scan.cells_per_run - 1) / scan.cells_per_run; }
DEVICE JpegScanCell* cells_of(const JpegScan& scan) { return reinterpret_cast<JpegScanCell*>(scan.cells_at); }

struct WindowWords {
    const uint32* data;
    uint32* window;
    METHOD uint32& at(uint32 byte) const { return window[byte / 4 % WINDOW_WORDS * SCAN_THREADS]; }
};

struct SymbolReader {
    JpegBits<WindowWords> bits;
    uint32 window;       // the first byte in the window, a multiple of 16
    Packed<4> ahead;     // the words after the window
    uint32 last_vector;  // of the data, in bytes
    uint32 top;          // the bits in which the last symbols were
    int k, block;        // next coefficient, block of the MCU
    int finished;        // blocks
    int period;          // blocks of an MCU
    uint32 kind;         // the block's, as in `JpegScan`

    METHOD void begin(ScanScratch& scratch, int thread, uint32 bit, int first_k, int first_block, int blocks) {
        const JpegScan& scan = scratch.scan;
        const uint32 size = uint32(scan.data_size);
        bits.words = {reinterpret_cast<const uint32*>(scan.data), &scratch.windows[0][thread]};
        last_vector = size & ~15u;
        window = min(bit / 8, size) & ~15u;
        load_ahead(window), store_ahead(window);
        load_ahead(window + 16), store_ahead(window + 16);
        load_ahead(window + WINDOW_BYTES);
        bits.begin(bits.words, size, bit);
        k = first_k, block = first_block, finished = 0, period = blocks;
        kind = scan.kinds[block];
    }

    METHOD void load_ahead(uint32 byte) { ahead = load_as<Packed<4>>(bits.words.data + min(byte, last_vector) / 4); }
    METHOD void store_ahead(uint32 byte) {
        UNROLL
        for (uint32 i = 0; i < 4; ++i) bits.words.at(byte + 4 * i) = ahead.word[i];
    }

    // Whether the next words are in the window: after four bytes and as many stuffed zeros, two more.
    METHOD bool has_words() const { return bits.next < window + WINDOW_BYTES - 12; }
    METHOD void move_window() {
        if (bits.next < window + 16) return;
        store_ahead(window + WINDOW_BYTES);
        window += 16;
        load_ahead(window + WINDOW_BYTES);
    }

    METHOD bool is_before(uint32 bit) const { return bits.last_position() < bit || bits.position() < bit; }

    // Skips the next symbols, and returns them. `bits` is full.
    METHOD uint32 skip(const ScanScratch& scratch) {
        top = bits.top();
        const int table = int(k ? kind >> 8 : kind) & 3;
        uint32 symbols = scratch.skips[table][top >> (32 - SKIP_BITS)];
        if (k + coefficients_of(symbols) > 64)  // or a READ_ONE
            symbols = read_symbol(*reinterpret_cast<const HuffmanLookups*>(scratch.scan.lookups), table, top, k);
        bits.drop(int(symbols & 31));
        k = k ? k + coefficients_of(symbols) : 1;
        if (k == 64 || symbols & ENDS_BLOCK) {
            k = 0, ++finished;
            block = block + 1 == period ? 0 : block + 1;
            kind = scratch.scan.kinds[block];
        }
        return symbols;
    }

    // Skips symbols up to a position, which it is before, and at most those of MAX_REFILLS refills.
    METHOD void skip_several(const ScanScratch& scratch, uint32 bit) {
        move_window();
        int refills = 0;
        NO_UNROLL
        do {
            bits.refill();
            skip(scratch);
            // Often full still: the threads of a warp refill together, which takes as long for one as for all.
            if (bits.is_full() && bits.last_position() < bit) skip(scratch);
        } while (++refills < MAX_REFILLS && has_words() && bits.last_position() < bit);
    }
};

// Reads a run from its start on, and notes the ends of its cells. Stops where it meets the state of the last reading.
DEVICE void read_run(ScanScratch& scratch, int thread, int run, bool is_first) {
    const JpegScan& scan = scratch.scan;
    int cell = run * scan.cells_per_run;
    const int end = min(cell + scan.cells_per_run, scan.cells);
    const uint32 start = scratch.starts[run], cell_bits = 8 * uint32(scan.cell_bytes);
    uint32 boundary = uint32(cell) * cell_bits;
    SymbolReader reader;
    reader.begin(scratch, thread, boundary + (start & 255), next_coefficient(start), int(start >> 16), scan.period);
    boundary += cell_bits;
    NO_UNROLL
    while (true) {
        NO_UNROLL
        while (reader.is_before(boundary)) reader.skip_several(scratch, boundary);
        JpegScanCell& its = cells_of(scan)[cell];
        const uint32 state = pack_state(reader.bits.position() - boundary, reader.k, reader.block);
        const bool is_met = !is_first && its.end == state;
        its = {state, uint32(reader.finished)};
        if (is_met || ++cell == end) return;
        reader.finished = 0, boundary += cell_bits;
    }
}

// Lists the runs to read: all from a guess, later those whose predecessor ends in another state than they began with.
DEVICE void list_runs(const Block& block, ScanScratch& scratch, bool is_first) {
    const JpegScan& scan = scratch.scan;
    for (int run = block.thread; run < count_runs(scan); run += block.threads) {
        const int cell = run * scan.cells_per_run;
        uint32 start = 0;
        if (run && is_first) {
            const uint8* const first = reinterpret_cast<const uint8*>(scan.data) + int64(cell) * scan.cell_bytes;
            start = pack_state(first[-1] == 0xff && !first[0] ? 8 : 0, 0, 0);  // not at a stuffed zero
        } else if (run) {
            start = cells_of(scan)[cell - 1].end;
        }
        if (!is_first && start == scratch.starts[run]) continue;
        scratch.starts[run] = start;
        scratch.listed[increment(&scratch.count)] = uint16(run);
    }
}

// Reads all runs until their states are true. Returns how often some were read again; scan.max_rounds: it gave up.
DEVICE int synchronize(const Block& block, ScanScratch& scratch) {
    for (int round = 0;; ++round) {
        if (block.thread == 0) scratch.count = 0;
        block.sync();
        list_runs(block, scratch, round == 0);
        block.sync();
        const int count = int(scratch.count);
        if (!count || round > scratch.scan.max_rounds) return round - 1;
        // Few runs are spread over all warps, whose threads then seldom wait for each other.
        const int warps = block.threads / 32, first = block.thread % 32 * warps + block.thread / 32;
        for (int i = first; i < count; i += block.threads)
            read_run(scratch, block.thread, scratch.listed[i], round == 0);
        block.sync();
    }
}

// Replaces the sums of each run by those of all runs before it. One thread per sum, which loads several at once.
DEVICE void sum_before(const Block& block, uint32 (*sums)[MAX_SCAN_RUNS], int count, int runs) {
    constexpr int LOADS = 16;
    for (int i = block.thread; i < count; i += block.threads) {
        uint32 before = 0;
        for (int run = 0; run < runs; run += LOADS) {  // up to a multiple of LOADS: nobody reads those beyond
            uint32 own[LOADS];
            UNROLL
            for (int k = 0; k < LOADS; ++k) own[k] = sums[i][run + k];
            UNROLL
            for (int k = 0; k < LOADS; ++k) sums[i][run + k] = before, before += own[k];
        }
    }
}

// --- segments --------------------------------------------------------------------------------------------------------

// Where a segment begins that was not written yet.
struct NextSegment {
    int number, along;  // of all, and in its row
    int block;          // of the image

    METHOD void begin(const JpegScan& scan, int blocks_before, bool is_inside_block) {
        const int mcu = blocks_before / scan.mcu_blocks, row = mcu / scan.mcu_columns;
        along = (mcu - row * scan.mcu_columns) / scan.distance;
        number = row * scan.across + along;
        block = (row * scan.mcu_columns + along * scan.distance) * scan.mcu_blocks;
        if (block != blocks_before || is_inside_block) advance(scan);
    }

    METHOD void advance(const JpegScan& scan) {
        block += min(scan.distance, scan.mcu_columns - along * scan.distance) * scan.mcu_blocks;
        ++number;
        along = along + 1 == scan.across ? 0 : along + 1;
    }
};

// Writes the segments that begin in a run, with DC coefficients since its begin; `mcu_y` is the run.
DEVICE void write_segments(ScanScratch& scratch, int thread, int run) {
    const JpegScan& scan = scratch.scan;
    const uint32 last = uint32(scan.mcu_rows * scan.mcu_columns * scan.mcu_blocks), before = scratch.blocks[0][run];
    const uint32 start = scratch.starts[run], run_bits = 8 * uint32(scan.cells_per_run * scan.cell_bytes);
    const uint32 begin = uint32(run) * run_bits + (start & 255);
    const bool is_last = run + 1 == count_runs(scan);
    const uint32 end = is_last ? ~0u : uint32(run + 1) * run_bits;  // the last segment may begin where the data ends
    int dc0 = 0, dc1 = 0, dc2 = 0;
    SymbolReader reader;
    NextSegment next;
    const bool is_inside_block = next_coefficient(start) != 0;
    bool is_done = before > last || (before == last && is_inside_block);  // all segments have begun
    if (!is_done) {
        reader.begin(scratch, thread, begin, next_coefficient(start), int(before) % scan.mcu_blocks, scan.mcu_blocks);
        reader.finished = int(before);
        next.begin(scan, int(before), is_inside_block);
        if (begin > 8 * uint32(scan.data_size)) scratch.is_damaged = is_done = true;
    }
    NO_UNROLL
    while (!is_done && reader.is_before(end)) {
        reader.move_window();
        int refills = 0;
        NO_UNROLL
        do {
            if (reader.finished == next.block) {
                JpegSegment& segment = reinterpret_cast<JpegSegment*>(scan.segments)[next.number];
                segment = {reader.bits.position(), {short(dc0), short(dc1), short(dc2)}, 0, uint16(run), 0};
                const bool is_exact = dc0 == short(dc0) && dc1 == short(dc1) && dc2 == short(dc2);
                if (!is_exact || reader.bits.ran_out()) scratch.is_damaged = true;
                const bool is_terminator = next.block == int(last);
                if (is_terminator) scratch.is_complete = true;
                is_done = is_terminator || reader.bits.ran_out();
                if (is_done) break;
                next.advance(scan);
            }
            const int component = reader.k ? JPEG_COMPONENTS : int(reader.kind >> 16);  // JPEG_COMPONENTS: no DC symbol
            reader.bits.refill();
            const uint32 symbols = reader.skip(scratch);
            if (symbols & IS_INVALID) {
                scratch.is_damaged = is_done = true;
                break;
            }
            const int size = coefficients_of(symbols), length = int(symbols & 31) - size;
            const int difference = component == JPEG_COMPONENTS || !size ? 0 : value_after(reader.top, length, size);
            dc0 += component == 0 ? difference : 0;
            dc1 += component == 1 ? difference : 0;
            dc2 += component == 2 ? difference : 0;
        } while (++refills < 2 * MAX_REFILLS && reader.has_words() && reader.bits.last_position() < end);
    }
    scratch.dc[0][run] = uint32(dc0), scratch.dc[1][run] = uint32(dc1), scratch.dc[2][run] = uint32(dc2);
}

// Gives a segment its place, and adds the DC coefficients before its run. False if they exceed 16 bits.
DEVICE bool finish_segment(const ScanScratch& scratch, int number, JpegSegment& segment) {
    const JpegScan& scan = scratch.scan;
    const int run = segment.mcu_y, row = number / scan.across, x = (number - row * scan.across) * scan.distance;
    bool is_exact = true;
    for (int i = 0; i < JPEG_COMPONENTS; ++i) {
        const int dc = int(scratch.dc[i][run] + uint32(segment.dc[i]));
        is_exact = is_exact && dc == short(dc);
        segment.dc[i] = short(dc);
    }
    segment.mcu_x = uint16(x), segment.mcu_y = uint16(row);
    segment.mcus = uint16(row == scan.mcu_rows ? 0 : min(scan.distance, scan.mcu_columns - x));
    return is_exact;
}

// Finds the segments of scratch.scan, which every thread of the block sees. Returns the number of rounds.
DEVICE int scan_image(const Block& block, ScanScratch& scratch) {
    const JpegScan& scan = scratch.scan;
    const HuffmanLookups& lookups = *reinterpret_cast<const HuffmanLookups*>(scan.lookups);
    for (int i = block.thread; i < 2 * SKIP_ENTRIES; i += block.threads) {
        const int table = i / SKIP_ENTRIES, prefix = i % SKIP_ENTRIES;
        const uint32 top = uint32(prefix) << (32 - SKIP_BITS);
        scratch.skips[table][prefix] = dc_symbol_in(lookups.dc[table], top);
        scratch.skips[2 + table][prefix] = ac_symbols_in(lookups.ac[table], top);
    }
    if (block.thread == 0) scratch.is_complete = scratch.is_damaged = false;
    const int runs = count_runs(scan), rounds = synchronize(block, scratch);
    if (rounds < scan.max_rounds) {
        for (int run = block.thread; run < runs; run += block.threads) {
            uint32 blocks = 0;
            const int begin = run * scan.cells_per_run, end = min(begin + scan.cells_per_run, scan.cells);
            for (int cell = begin; cell < end; ++cell) blocks += cells_of(scan)[cell].blocks;
            scratch.blocks[0][run] = blocks;
        }
        block.sync();  // before blocks are summed
        sum_before(block, scratch.blocks, 1, runs);
        block.sync();  // before segments are written
        for (int run = block.thread; run < runs; run += block.threads) write_segments(scratch, block.thread, run);
        block.sync();  // before differences are summed
        sum_before(block, scratch.dc, JPEG_COMPONENTS, runs);
    }
    block.sync();  // before segments are finished
    bool is_damaged = !scratch.is_complete || scratch.is_damaged;
    const bool is_made = !is_damaged;
    JpegSegment* const segments = reinterpret_cast<JpegSegment*>(scan.segments);
    for (int i = block.thread; i < scan.mcu_rows * scan.across + 1; i += block.threads) {
        JpegSegment segment = {};
        if (is_made) segment = segments[i], is_damaged |= !finish_segment(scratch, i, segment);
        segments[i] = segment;
    }
    if (is_damaged) *reinterpret_cast<int*>(scan.status) = JPEG_DAMAGED;
    return rounds;
}
