// Packed RGB bytes in a row, without floats in between: repeated, turned round, sent through tables. For the host
// alone: on CUDA a thread has one pixel.
//
// Tested by tests/properties/test_bytes.py.
#pragma once
#include "cpu/simd.h"

// out = `count` pixels of one colour.
DEVICE void repeat(const uint8* rgb, int count, uint8* out) {
    const uint8 colour[3] = {rgb[0], rgb[1], rgb[2]};
    const int64 all = 3 * int64(count);
    if (colour[0] == colour[1] && colour[1] == colour[2]) {
        memset(out, colour[0], size_t(all));
        return;
    }
    for (int64 done = 0; done < all; done = done > 0 ? 2 * done : 3)
        memcpy(out + done, done > 0 ? out : colour, size_t(done == 0 ? 3 : done < all - done ? done : all - done));
}

#if defined(__AVX2__)
// A register that one instruction shuffles byte by byte. It holds some pixels, and one byte more.
#if defined(__AVX512VBMI__)
typedef __m512i ByteVec;
DEVICE ByteVec shuffle_bytes(ByteVec bytes, ByteVec order) { return _mm512_permutexvar_epi8(order, bytes); }
#else
typedef __m128i ByteVec;
DEVICE ByteVec shuffle_bytes(ByteVec bytes, ByteVec order) { return _mm_shuffle_epi8(bytes, order); }
#endif
constexpr int BYTE_LANES = int(sizeof(ByteVec)), PIXELS_PER_VEC = BYTE_LANES / 3;
#endif

// out = the pixels from the last to the first.
DEVICE void reverse(const uint8* pixels, int count, uint8* out) {
    const uint8* end = pixels + 3 * int64(count);
#if defined(__AVX2__)
    uint8 order[BYTE_LANES];
    for (int i = 0; i < 3 * PIXELS_PER_VEC; ++i) order[i] = uint8(BYTE_LANES - 3 - i / 3 * 3 + i % 3);
    order[BYTE_LANES - 1] = 0;  // the next pixel's, which comes later
    for (; end - pixels > BYTE_LANES; end -= 3 * PIXELS_PER_VEC, out += 3 * PIXELS_PER_VEC) {
        const ByteVec some = shuffle_bytes(load<ByteVec>(end - BYTE_LANES), load<ByteVec>(order));
        memcpy(out, &some, sizeof some);
    }
#endif
    for (; end > pixels; end -= 3, out += 3) memcpy(out, end - 3, 3);
}

// out = the pixels, in which channel c is what channel from[c] was. Both may be the same.
DEVICE void permute(const int* from, const uint8* pixels, int count, uint8* out) {
    const uint8* const end = pixels + 3 * int64(count);
#if defined(__AVX2__)
    uint8 order[BYTE_LANES];
    for (int i = 0; i < 3 * PIXELS_PER_VEC; ++i) order[i] = uint8(i / 3 * 3 + from[i % 3]);
    order[BYTE_LANES - 1] = BYTE_LANES - 1;  // the next pixel's, as it is
    for (; end - pixels > BYTE_LANES; pixels += 3 * PIXELS_PER_VEC, out += 3 * PIXELS_PER_VEC) {
        const ByteVec some = shuffle_bytes(load<ByteVec>(pixels), load<ByteVec>(order));
        memcpy(out, &some, sizeof some);
    }
#endif
    for (; pixels < end; pixels += 3, out += 3) {
        const uint8 rgb[3] = {pixels[from[0]], pixels[from[1]], pixels[from[2]]};
        memcpy(out, rgb, 3);
    }
}

// Which channel each comes from, what each level of that becomes, and what makes it faster than looking it up.
struct ChannelLuts {
    int from[3];
    uint8 table[3][256];
    bool bitwise, identity, shared;  // each level becomes (level & keep) ^ flip; itself; so in all channels
    uint8 keep[3 * lanes_in<uint8>], flip[3 * lanes_in<uint8>];  // packed
    uint8 blocks[16][16];  // the table of all channels in blocks: `found` says how
};

DEVICE bool is_bitwise(const uint8* table, uint8 keep, uint8 flip) {
    int wrong = 0;
    for (int i = 0; i < 256; ++i) wrong |= ((i & keep) ^ flip) ^ table[i];
    return wrong == 0;
}

// Fills in what follows from the tables.
DEVICE void classify_luts(ChannelLuts& map) {
    map.bitwise = map.identity = true;
    for (int c = 0; c < 3; ++c) {
        const uint8 flip = map.table[c][0], keep = map.table[c][255] ^ flip;
        map.bitwise &= is_bitwise(map.table[c], keep, flip);
        map.identity &= map.bitwise && keep == 255 && flip == 0;
        for (int i = c; i < 3 * lanes_in<uint8>; i += 3) map.keep[i] = keep, map.flip[i] = flip;
    }
    map.shared = memcmp(map.table[0], map.table[1], 256) == 0 && memcmp(map.table[0], map.table[2], 256) == 0;
    for (int i = 0; i < 256; ++i)
        map.blocks[i / 16][i % 16] = uint8(map.table[0][i] ^ (i % 128 < 16 ? 0 : map.table[0][i - 16]));
}

#if defined(__AVX512VBMI__)
// One instruction looks 64 levels up among 128 entries, in two registers, by their lower seven bits.
struct Table {
    __m512i quarters[4];

    explicit Table(const uint8* entries) { memcpy(quarters, entries, sizeof quarters); }
    __m512i operator[](__m512i levels) const {
        const __m512i below = _mm512_permutex2var_epi8(quarters[0], levels, quarters[1]);
        const __m512i above = _mm512_permutex2var_epi8(quarters[2], levels, quarters[3]);
        return _mm512_mask_blend_epi8(_mm512_movepi8_mask(levels), below, above);
    }
};

// out[i] = the entry of in[i], by `find(levels, channel)` of 64 at a time; the first of them is of that channel.
template <class Find>
DEVICE void look_up(const uint8* in, int64 count, uint8* out, Find find) {
    for (int channel = 0; count > 0; count -= 64, in += 64, out += 64, channel = channel == 2 ? 0 : channel + 1) {
        const uint64 some = count < 64 ? (uint64(1) << count) - 1 : ~uint64(0);
        _mm512_mask_storeu_epi8(out, some, find(_mm512_maskz_loadu_epi8(some, in), channel));
    }
}

// out[i] = table[c][in[i]], where in[0] is of channel c = 0; in and out may be the same.
DEVICE void look_up(const ChannelLuts& map, const uint8* in, int64 count, uint8* out) {
    const Table red(map.table[0]);
    if (map.shared) {
        look_up(in, count, out, [&](__m512i levels, int) { return red[levels]; });
        return;
    }
    const Table green(map.table[1]), blue(map.table[2]);
    look_up(in, count, out, [&](__m512i levels, int channel) {
        constexpr uint64 each_third = 0x9249249249249249;
        const __m512i two = _mm512_mask_blend_epi8(each_third << (4 - channel) % 3, red[levels], green[levels]);
        return _mm512_mask_blend_epi8(each_third << (5 - channel) % 3, two, blue[levels]);
    });
}
#else
// One after the other.
DEVICE void look_up(const uint8 (*table)[256], const uint8* in, int64 count, uint8* out) {
    int64 i = 0;
    for (; i + 3 <= count; i += 3) {
        const uint8 r = table[0][in[i]], g = table[1][in[i + 1]], b = table[2][in[i + 2]];
        out[i] = r, out[i + 1] = g, out[i + 2] = b;
    }
    for (int c = 0; i < count; ++i, ++c) out[i] = table[c][in[i]];
}

#if defined(__AVX2__)
// The entries of 32 levels in the one table. A byte shuffle looks 16 entries up by the lower four bits of a level, and
// gives 0 where bit 7 is set: so do levels below the block, of those it is moved down by. All blocks up to a level's
// own add up, by XOR, to its own; those of the levels from 128 on apart.
DEVICE __m256i look_up_32(const ChannelLuts& map, __m256i levels) {
    const __m256i block = _mm256_set1_epi8(16);
    __m256i low = levels, high = _mm256_xor_si256(levels, _mm256_set1_epi8(-128));
    __m256i below = _mm256_setzero_si256(), above = below;
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
        const __m256i first = _mm256_broadcastsi128_si256(load<__m128i>(map.blocks[k]));
        const __m256i second = _mm256_broadcastsi128_si256(load<__m128i>(map.blocks[8 + k]));
        below = _mm256_xor_si256(below, _mm256_shuffle_epi8(first, low));
        above = _mm256_xor_si256(above, _mm256_shuffle_epi8(second, high));
        low = _mm256_sub_epi8(low, block), high = _mm256_sub_epi8(high, block);
    }
    return _mm256_blendv_epi8(below, above, levels);
}
#endif

DEVICE void look_up(const ChannelLuts& map, const uint8* in, int64 count, uint8* out) {
    int64 i = 0;
#if defined(__AVX2__)
    for (; map.shared && i + 32 <= count; i += 32) {
        const __m256i levels = look_up_32(map, load<__m256i>(in + i));
        memcpy(out + i, &levels, sizeof levels);
    }
#endif
    look_up(map.table, in + i, count - i, out + i);
}
#endif

// out = the pixels sent through the tables; both may be the same.
DEVICE void apply_luts(const ChannelLuts& map, const uint8* pixels, int count, uint8* out) {
    const int64 all = 3 * int64(count);
    int64 i = 0;
    if (map.from[0] != 0 || map.from[1] != 1 || map.from[2] != 2) {
        permute(map.from, pixels, count, out);
        pixels = out;
    }
    if (map.identity) {
        if (out != pixels) memcpy(out, pixels, size_t(all));
        return;
    }
    if (map.bitwise) {
        constexpr int each = lanes_in<uint8>;
        Vec<uint8> keep[3], flip[3];
        memcpy(keep, map.keep, sizeof keep);
        memcpy(flip, map.flip, sizeof flip);
        for (; i + 3 * each <= all; i += 3 * each)
            for (int k = 0; k < 3; ++k)
                store(out + i + k * each, (load_vec(pixels + i + k * each) & keep[k]) ^ flip[k]);
    }
    look_up(map, pixels + i, all - i, out + i);
}
