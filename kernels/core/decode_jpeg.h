// Computes: the samples of a JPEG from its entropy-coded data, with libjpeg-turbo's bits.
// Threads:  a lane per segment. Block by block, the lanes of a warp read the codes of one 8 x 8 block each into shared
//           memory. Then the warp transforms these blocks together, a column or row of eight values per lane at a time,
//           and stores the samples. Coefficients never reach global memory.
// Reference: ITU-T T.81, F.2; libjpeg-turbo's jidctint (its SIMD code keeps 16 bits between columns and rows).
//           Segments: cuaug/codec/jpeg_index.py. Klein and Wiseman; Weißenberger and Schmidt, arXiv 2111.09219, decode
//           without an index.
// Tests:    tests/kernels/test_decode_jpeg.py: Pillow's bits; tests/kernels/test_emulated_jpeg.py: barriers.
#pragma once
#include "core/dct.h"
#include "core/jpeg_bits.h"

constexpr int WARP_LANES = 32;
// Lanes that one thread runs: the CPU has one thread per warp.
constexpr int OWN_LANES = PIXELS == 1 ? 1 : WARP_LANES;
// Values between two blocks in shared memory: a multiple of 16 bytes that spreads columns over all banks.
constexpr int BLOCK_STRIDE = 72;
constexpr int NOT_STORED = -1;

// What the lanes of a warp share. Coefficients are zeros between blocks.
struct alignas(16) WarpScratch {
    short coefficients[WARP_LANES * BLOCK_STRIDE];
    int places[WARP_LANES];  // of each lane's block in the component, or NOT_STORED
};

// A lane's segment while it is decoded.
struct SegmentReader {
    JpegBits<GlobalWords> bits;
    int dc0, dc1, dc2;  // no array: an index that varies would move it out of registers
    int left;           // MCUs; 0: the lane has no segment, or it is damaged
    int mcu_x, mcu_y;   // in the image
    bool is_damaged;

    METHOD void begin(const JpegImage& image, const JpegSegment& segment) {
        bits.begin({reinterpret_cast<const uint32*>(image.data)}, uint32(image.data_size), segment.bit);
        dc0 = segment.dc[0], dc1 = segment.dc[1], dc2 = segment.dc[2];
        left = segment.mcus, mcu_x = segment.mcu_x, mcu_y = segment.mcu_y;
    }

    METHOD int dc_of(int component) const { return component == 0 ? dc0 : component == 1 ? dc1 : dc2; }
    METHOD void set_dc(int component, int value) {
        if (component == 0)
            dc0 = value;
        else if (component == 1)
            dc1 = value;
        else
            dc2 = value;
    }

    // Reads block (x, y) of a component in the current MCU. Returns its place in the rectangle.
    METHOD int read(const JpegImage& image, int number, int x, int y, const HuffmanLookups& lookups, short* out) {
        if (!left) return NOT_STORED;
        const JpegComponent& component = image.component[number];
        int dc = dc_of(number);
        const bool is_valid = read_block(bits, lookups.dc[component.dc_table], lookups.ac[component.ac_table],
                                         image.quantizer[number], dc, out);
        set_dc(number, dc);
        if (!is_valid || bits.ran_out()) is_damaged = true, left = 0;
        const uint32 column = uint32(mcu_x - image.mcu_x), row = uint32(mcu_y - image.mcu_y);
        const bool is_inside = column < uint32(image.mcu_width) && row < uint32(image.mcu_height);
        const int place = (int(row) * component.v + y) * component.blocks_across + int(column) * component.h + x;
        // A block that is not stored is not transformed either, which would clear it.
        if (!is_inside)
            for (int i = 0; i < 64; ++i) out[i] = 0;
        return is_inside ? place : NOT_STORED;
    }

    METHOD void next_mcu(const JpegImage& image) {
        if (!left) return;
        --left;
        if (++mcu_x == image.mcu_columns) mcu_x = 0, ++mcu_y;
    }

    // Whether the segment has ended where the next one begins.
    METHOD bool ends_at(const JpegImage& image, const JpegSegment& next) {
        if (is_damaged) return false;
        if (image.ends_at_markers) {
            bits.drop(bits.left() & 7);  // padding
            return bits.position() + 16 == next.bit;
        }
        return bits.position() == next.bit && dc0 == next.dc[0] && dc1 == next.dc[1] && dc2 == next.dc[2];
    }
};

// In place: a column of a block. False if a value is so large that libjpeg-turbo's SIMD code would overflow, which each
// CPU does in another way: sums of two values have 16 bits there. No encoder's file has half of such values.
DEVICE bool transform_column(short* block, int column) {
    constexpr int limit = 1 << 14;
    int values[8], sum = 0;
    UNROLL
    for (int i = 0; i < 8; ++i) values[i] = block[8 * i + column];
    inverse_dct<true>(values);
    UNROLL
    for (int i = 0; i < 8; ++i) {
        block[8 * i + column] = short(values[i]);
        sum |= values[i] + limit;
    }
    return uint32(sum) < uint32(2 * limit);
}

// Eight samples of a row of a block whose columns are transformed. Leaves zeros for the next block.
DEVICE void transform_row(short* block, int row, uint8* out) {
    int values[8];
    const Packed<4> packed = load_as<Packed<4>>(block + 8 * row);
    store_as(block + 8 * row, Packed<4>{});
    UNROLL
    for (int i = 0; i < 8; ++i) values[i] = short(packed.word[i / 2] >> 16 * (i & 1));
    inverse_dct<false>(values);
    Packed<2> words = {};
    UNROLL
    for (int i = 0; i < 8; ++i) words.word[i / 4] |= uint32(to_sample(values[i])) << 8 * (i & 3);
    store_as(out + 8 * row, words);
}

// Decodes segments first ... first + count - 1 of an image, up to WARP_LANES.
DEVICE void decode_segments(const ThreadWarp& warp, const JpegImage& image, const HuffmanLookups& lookups, int first,
                            int count, WarpScratch& scratch) {
    const JpegSegment* const segments = reinterpret_cast<const JpegSegment*>(image.segments);
    const auto segment_at = [&](int number) {
        return segments + int64(number / image.across) * image.stride + number % image.across;
    };
    SegmentReader readers[OWN_LANES];
    UNROLL
    for (int k = 0; k < OWN_LANES; ++k) {
        const int lane = warp.lane + k;
        readers[k].left = 0, readers[k].is_damaged = false;
        if (lane < count) readers[k].begin(image, *segment_at(first + lane));
    }
    const int max_mcus = image.max_mcus, components = image.components;
    for (int mcu = 0; mcu < max_mcus; ++mcu) {
        for (int number = 0; number < components; ++number) {
            const JpegComponent& component = image.component[number];
            uint8* const samples = reinterpret_cast<uint8*>(component.samples);
            const int across = component.h, down = component.v;
            for (int y = 0; y < down; ++y)
                for (int x = 0; x < across; ++x) {
                    UNROLL
                    for (int k = 0; k < OWN_LANES; ++k) {
                        const int lane = warp.lane + k;
                        scratch.places[lane] =
                            readers[k].read(image, number, x, y, lookups, scratch.coefficients + lane * BLOCK_STRIDE);
                    }
                    warp.sync();  // before columns
                    for (int i = warp.lane; i < 8 * WARP_LANES; i += warp.lanes)
                        if (scratch.places[i / 8] != NOT_STORED &&
                            !transform_column(scratch.coefficients + i / 8 * BLOCK_STRIDE, i % 8))
                            *reinterpret_cast<int*>(image.status) = JPEG_DAMAGED;
                    warp.sync();  // before rows
                    for (int i = warp.lane; i < 8 * WARP_LANES; i += warp.lanes)
                        if (scratch.places[i / 8] != NOT_STORED)
                            transform_row(scratch.coefficients + i / 8 * BLOCK_STRIDE, i % 8,
                                          samples + int64(scratch.places[i / 8]) * BLOCK_SAMPLES);
                    warp.sync();  // before the next block
                }
        }
        UNROLL
        for (int k = 0; k < OWN_LANES; ++k) readers[k].next_mcu(image);
    }
    UNROLL
    for (int k = 0; k < OWN_LANES; ++k) {
        const int lane = warp.lane + k;
        if (lane >= count) continue;
        const JpegSegment* const segment = segment_at(first + lane);
        if (segment->mcus && !readers[k].ends_at(image, segment[1]))
            *reinterpret_cast<int*>(image.status) = JPEG_DAMAGED;
    }
}
