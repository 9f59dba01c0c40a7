// Computes: rows of packed uint8 pixels without floats: repeated, reversed, permuted, sent through look-up tables.
// Threads:  none: each function acts on a row.
// Reference: Intel Intrinsics Guide (vpermb, vpermi2b, pshufb).
// Tests:    tests/properties/test_bytes.py.
#pragma once
#include "cpu/simd.h"

// out = `count` pixels of one color.
DEVICE void repeat(const uint8* rgb, int count, uint8* out) {
    const uint8 color[3] = {rgb[0], rgb[1], rgb[2]};
    const int64 total = 3 * int64(count);
    if (color[0] == color[1] && color[1] == color[2]) {
        memset(out, color[0], size_t(total));
        return;
    }
    for (int64 done = 0; done < total; done = done > 0 ? 2 * done : 3)
        memcpy(out + done, done > 0 ? out : color, size_t(done == 0 ? 3 : done < total - done ? done : total - done));
}

#if defined(__AVX2__)
// A register for byte shuffles: PIXELS_PER_VEC pixels and one more byte.
#if defined(__AVX512VBMI__)
typedef __m512i ByteVec;
DEVICE ByteVec shuffle_bytes(ByteVec bytes, ByteVec order) { return _mm512_permutexvar_epi8(order, bytes); }
#else
typedef __m128i ByteVec;
DEVICE ByteVec shuffle_bytes(ByteVec bytes, ByteVec order) { return _mm_shuffle_epi8(bytes, order); }
#endif
constexpr int BYTE_LANES = int(sizeof(ByteVec)), PIXELS_PER_VEC = BYTE_LANES / 3;
#endif

// out = the pixels in reverse order.
DEVICE void reverse(const uint8* pixels, int count, uint8* out) {
    const uint8* end = pixels + 3 * int64(count);
#if defined(__AVX2__)
    uint8 order[BYTE_LANES];
    for (int i = 0; i < 3 * PIXELS_PER_VEC; ++i) order[i] = uint8(BYTE_LANES - 3 - i / 3 * 3 + i % 3);
    order[BYTE_LANES - 1] = 0;  // of the next pixel, which is stored later
    for (; end - pixels > BYTE_LANES; end -= 3 * PIXELS_PER_VEC, out += 3 * PIXELS_PER_VEC) {
        const ByteVec bytes = shuffle_bytes(load<ByteVec>(end - BYTE_LANES), load<ByteVec>(order));
        memcpy(out, &bytes, sizeof bytes);
    }
#endif
    for (; end > pixels; end -= 3, out += 3) memcpy(out, end - 3, 3);
}

// out = the pixels with channel c from channel from[c]. out may be pixels.
DEVICE void permute(const int* from, const uint8* pixels, int count, uint8* out) {
    const uint8* const end = pixels + 3 * int64(count);
#if defined(__AVX2__)
    uint8 order[BYTE_LANES];
    for (int i = 0; i < 3 * PIXELS_PER_VEC; ++i) order[i] = uint8(i / 3 * 3 + from[i % 3]);
    order[BYTE_LANES - 1] = BYTE_LANES - 1;  // of the next pixel, unchanged
    for (; end - pixels > BYTE_LANES; pixels += 3 * PIXELS_PER_VEC, out += 3 * PIXELS_PER_VEC) {
        const ByteVec bytes = shuffle_bytes(load<ByteVec>(pixels), load<ByteVec>(order));
        memcpy(out, &bytes, sizeof bytes);
    }
#endif
    for (; pixels < end; pixels += 3, out += 3) {
        const uint8 rgb[3] = {pixels[from[0]], pixels[from[1]], pixels[from[2]]};
        memcpy(out, rgb, 3);
    }
}

// A permutation of channels, then a table per channel, and the shortcuts that replace the tables.
struct ChannelLuts {
    int from[3];
    uint8 table[3][256];
    bool bitwise, identity, shared;  // every level becomes (level & keep) ^ flip; itself; the same in all channels
    uint8 keep[3 * lanes_in<uint8>], flip[3 * lanes_in<uint8>];  // packed
    uint8 blocks[16][16];                                        // the shared table in blocks, for look_up_32
};

DEVICE bool is_bitwise(const uint8* table, uint8 keep, uint8 flip) {
    int wrong = 0;
    for (int i = 0; i < 256; ++i) wrong |= ((i & keep) ^ flip) ^ table[i];
    return wrong == 0;
}

// Finds the shortcuts.
DEVICE void classify_luts(ChannelLuts& luts) {
    luts.bitwise = luts.identity = true;
    for (int c = 0; c < 3; ++c) {
        const uint8 flip = luts.table[c][0], keep = luts.table[c][255] ^ flip;
        luts.bitwise &= is_bitwise(luts.table[c], keep, flip);
        luts.identity &= luts.bitwise && keep == 255 && flip == 0;
        for (int i = c; i < 3 * lanes_in<uint8>; i += 3) luts.keep[i] = keep, luts.flip[i] = flip;
    }
    luts.shared = memcmp(luts.table[0], luts.table[1], 256) == 0 && memcmp(luts.table[0], luts.table[2], 256) == 0;
    for (int i = 0; i < 256; ++i)
        luts.blocks[i / 16][i % 16] = uint8(luts.table[0][i] ^ (i % 128 < 16 ? 0 : luts.table[0][i - 16]));
}

#if defined(__AVX512VBMI__)
// A table of 256 entries: one instruction looks up 64 levels in 128 entries, by their lower seven bits.
struct Table {
    __m512i quarters[4];

    explicit Table(const uint8* entries) { memcpy(quarters, entries, sizeof quarters); }
    __m512i operator[](__m512i levels) const {
        const __m512i below = _mm512_permutex2var_epi8(quarters[0], levels, quarters[1]);
        const __m512i above = _mm512_permutex2var_epi8(quarters[2], levels, quarters[3]);
        return _mm512_mask_blend_epi8(_mm512_movepi8_mask(levels), below, above);
    }
};

// out[i] = look_up_64 of in[i], 64 at a time; `channel` is that of the first.
template <class Find>
DEVICE void look_up(const uint8* in, int64 count, uint8* out, Find look_up_64) {
    for (int channel = 0; count > 0; count -= 64, in += 64, out += 64, channel = channel == 2 ? 0 : channel + 1) {
        const uint64 bytes = count < 64 ? (uint64(1) << count) - 1 : ~uint64(0);
        _mm512_mask_storeu_epi8(out, bytes, look_up_64(_mm512_maskz_loadu_epi8(bytes, in), channel));
    }
}

// out[i] = table[c][in[i]]; in[0] is channel 0. out may be in.
DEVICE void look_up(const ChannelLuts& luts, const uint8* in, int64 count, uint8* out) {
    const Table red(luts.table[0]);
    if (luts.shared) {
        look_up(in, count, out, [&](__m512i levels, int) { return red[levels]; });
        return;
    }
    const Table green(luts.table[1]), blue(luts.table[2]);
    look_up(in, count, out, [&](__m512i levels, int channel) {
        constexpr uint64 each_third = 0x9249249249249249;
        const __m512i two = _mm512_mask_blend_epi8(each_third << (4 - channel) % 3, red[levels], green[levels]);
        return _mm512_mask_blend_epi8(each_third << (5 - channel) % 3, two, blue[levels]);
    });
}
#else
DEVICE void look_up(const uint8 (*table)[256], const uint8* in, int64 count, uint8* out) {
    int64 i = 0;
    for (; i + 3 <= count; i += 3) {
        const uint8 r = table[0][in[i]], g = table[1][in[i + 1]], b = table[2][in[i + 2]];
        out[i] = r, out[i + 1] = g, out[i + 2] = b;
    }
    for (int c = 0; i < count; ++i, ++c) out[i] = table[c][in[i]];
}

#if defined(__AVX2__)
// Looks up 32 levels in the shared table. A byte shuffle looks up 16 entries by the lower four bits, and gives 0 where
// bit 7 is set, as in levels moved below the block. The XOR of all blocks up to a level's own gives its entry; levels
// from 128 on are separate.
DEVICE __m256i look_up_32(const ChannelLuts& luts, __m256i levels) {
    const __m256i block = _mm256_set1_epi8(16);
    __m256i low = levels, high = _mm256_xor_si256(levels, _mm256_set1_epi8(-128));
    __m256i below = _mm256_setzero_si256(), above = below;
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
        const __m256i first = _mm256_broadcastsi128_si256(load<__m128i>(luts.blocks[k]));
        const __m256i second = _mm256_broadcastsi128_si256(load<__m128i>(luts.blocks[8 + k]));
        below = _mm256_xor_si256(below, _mm256_shuffle_epi8(first, low));
        above = _mm256_xor_si256(above, _mm256_shuffle_epi8(second, high));
        low = _mm256_sub_epi8(low, block), high = _mm256_sub_epi8(high, block);
    }
    return _mm256_blendv_epi8(below, above, levels);
}
#endif

DEVICE void look_up(const ChannelLuts& luts, const uint8* in, int64 count, uint8* out) {
    int64 i = 0;
#if defined(__AVX2__)
    for (; luts.shared && i + 32 <= count; i += 32) {
        const __m256i levels = look_up_32(luts, load<__m256i>(in + i));
        memcpy(out + i, &levels, sizeof levels);
    }
#endif
    look_up(luts.table, in + i, count - i, out + i);
}
#endif

// out = the pixels through permutation and tables. out may be pixels.
DEVICE void apply_luts(const ChannelLuts& luts, const uint8* pixels, int count, uint8* out) {
    const int64 total = 3 * int64(count);
    int64 i = 0;
    if (luts.from[0] != 0 || luts.from[1] != 1 || luts.from[2] != 2) {
        permute(luts.from, pixels, count, out);
        pixels = out;
    }
    if (luts.identity) {
        if (out != pixels) memcpy(out, pixels, size_t(total));
        return;
    }
    if (luts.bitwise) {
        constexpr int each = lanes_in<uint8>;
        Vec<uint8> keep[3], flip[3];
        memcpy(keep, luts.keep, sizeof keep);
        memcpy(flip, luts.flip, sizeof flip);
        for (; i + 3 * each <= total; i += 3 * each)
            for (int k = 0; k < 3; ++k)
                store(out + i + k * each, (load_vec(pixels + i + k * each) & keep[k]) ^ flip[k]);
    }
    look_up(luts, pixels + i, total - i, out + i);
}
