// From coefficients to pixels, as libjpeg-turbo does it, bit for bit: the inverse DCT, the upsampling of chroma, and
// the colours. Each with SSE where there is some, and in plain loops for other processors; both give the same.
//
// Tested with host_jpeg.cpp, which includes this.
#pragma once

inline uint8_t sample_of(int value) { return uint8_t(value < -128 ? 0 : value > 127 ? 255 : value + 128); }

#if defined(__SSE2__)

// 32 bits for each of eight columns.
struct Wide {
    __m128i low, high;
};

// a * of_a + b * of_b
inline Wide products(__m128i a, __m128i b, int of_a, int of_b) {
    const __m128i factors = _mm_set1_epi32(int(uint32_t(of_b) << 16 | (uint32_t(of_a) & 0xFFFF)));
    return {_mm_madd_epi16(_mm_unpacklo_epi16(a, b), factors), _mm_madd_epi16(_mm_unpackhi_epi16(a, b), factors)};
}

inline Wide times_8192(__m128i a) {
    const __m128i zero = _mm_setzero_si128();
    return {_mm_srai_epi32(_mm_unpacklo_epi16(zero, a), 3), _mm_srai_epi32(_mm_unpackhi_epi16(zero, a), 3)};
}

inline Wide operator+(Wide a, Wide b) { return {_mm_add_epi32(a.low, b.low), _mm_add_epi32(a.high, b.high)}; }
inline Wide operator-(Wide a, Wide b) { return {_mm_sub_epi32(a.low, b.low), _mm_sub_epi32(a.high, b.high)}; }

template <int shift>
inline __m128i descaled_to_16(Wide a) {
    const __m128i half = _mm_set1_epi32(1 << (shift - 1));
    return _mm_packs_epi32(_mm_srai_epi32(_mm_add_epi32(a.low, half), shift),
                           _mm_srai_epi32(_mm_add_epi32(a.high, half), shift));
}

// Half of the inverse DCT: of eight columns at once, each row of which is a vector of 16 bits.
template <int shift>
inline void inverse_dct_half(__m128i* d) {
    const Wide t3 = products(d[2], d[6], 10703, 4433), t2 = products(d[2], d[6], 4433, -10704);
    const Wide t0 = times_8192(_mm_add_epi16(d[0], d[4])), t1 = times_8192(_mm_sub_epi16(d[0], d[4]));
    const Wide t10 = t0 + t3, t13 = t0 - t3, t11 = t1 + t2, t12 = t1 - t2;
    const __m128i s3 = _mm_add_epi16(d[7], d[3]), s4 = _mm_add_epi16(d[5], d[1]);
    const Wide z3 = products(s3, s4, -6436, 9633), z4 = products(s3, s4, 9633, 6437);
    const Wide u0 = products(d[7], d[1], -4927, -7373) + z3, u1 = products(d[5], d[3], -4176, -20995) + z4;
    const Wide u2 = products(d[5], d[3], -20995, 4177) + z3, u3 = products(d[7], d[1], -7373, 4926) + z4;
    d[0] = descaled_to_16<shift>(t10 + u3), d[7] = descaled_to_16<shift>(t10 - u3);
    d[1] = descaled_to_16<shift>(t11 + u2), d[6] = descaled_to_16<shift>(t11 - u2);
    d[2] = descaled_to_16<shift>(t12 + u1), d[5] = descaled_to_16<shift>(t12 - u1);
    d[3] = descaled_to_16<shift>(t13 + u0), d[4] = descaled_to_16<shift>(t13 - u0);
}

inline void transpose(__m128i* d) {
    __m128i a[8], b[8];
    for (int i = 0; i < 4; ++i) {
        a[2 * i] = _mm_unpacklo_epi16(d[2 * i], d[2 * i + 1]);
        a[2 * i + 1] = _mm_unpackhi_epi16(d[2 * i], d[2 * i + 1]);
    }
    for (int i = 0; i < 2; ++i) {  // rows 4 i ... 4 i + 3, two columns in each
        b[4 * i] = _mm_unpacklo_epi32(a[4 * i], a[4 * i + 2]);
        b[4 * i + 1] = _mm_unpackhi_epi32(a[4 * i], a[4 * i + 2]);
        b[4 * i + 2] = _mm_unpacklo_epi32(a[4 * i + 1], a[4 * i + 3]);
        b[4 * i + 3] = _mm_unpackhi_epi32(a[4 * i + 1], a[4 * i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
        d[2 * i] = _mm_unpacklo_epi64(b[i], b[4 + i]);
        d[2 * i + 1] = _mm_unpackhi_epi64(b[i], b[4 + i]);
    }
}

// A block's samples from its coefficients, of which those below the top row are 0 if `top_only`.
inline void inverse_dct(const int16_t* block, const int16_t* steps, bool top_only, uint8_t* out, int64_t pitch) {
    __m128i d[8];
    const __m128i* const in = reinterpret_cast<const __m128i*>(block);
    const __m128i* const by = reinterpret_cast<const __m128i*>(steps);
    if (top_only) {
        d[0] = _mm_slli_epi16(_mm_mullo_epi16(in[0], by[0]), 2);
        for (int y = 1; y < 8; ++y) d[y] = d[0];
    } else {
        for (int y = 0; y < 8; ++y) d[y] = _mm_mullo_epi16(in[y], by[y]);
        inverse_dct_half<11>(d);
    }
    transpose(d);
    inverse_dct_half<18>(d);
    transpose(d);
    for (int y = 0; y < 8; y += 2) {
        const __m128i both = _mm_xor_si128(_mm_packs_epi16(d[y], d[y + 1]), _mm_set1_epi8(-128));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(out + y * pitch), both);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(out + (y + 1) * pitch), _mm_unpackhi_epi64(both, both));
    }
}

#else

// Half of the inverse DCT, over columns, with the overflows of libjpeg-turbo's SIMD, which keeps 16 bits.
template <int shift>
inline void inverse_dct_half(int16_t (*d)[8]) {
    for (int i = 0; i < 8; ++i) {
        const int d0 = d[0][i], d1 = d[1][i], d2 = d[2][i], d3 = d[3][i];
        const int d4 = d[4][i], d5 = d[5][i], d6 = d[6][i], d7 = d[7][i];
        const int t3 = d2 * 10703 + d6 * 4433, t2 = d2 * 4433 - d6 * 10704;
        const int t0 = int16_t(d0 + d4) * 8192, t1 = int16_t(d0 - d4) * 8192;
        const int t10 = t0 + t3, t13 = t0 - t3, t11 = t1 + t2, t12 = t1 - t2;
        const int s3 = int16_t(d7 + d3), s4 = int16_t(d5 + d1);
        const int z3 = s3 * -6436 + s4 * 9633, z4 = s3 * 9633 + s4 * 6437;
        const int u0 = d7 * -4927 - d1 * 7373 + z3, u1 = d5 * -4176 - d3 * 20995 + z4;
        const int u2 = d3 * 4177 - d5 * 20995 + z3, u3 = d1 * 4926 - d7 * 7373 + z4;
        const int sums[8] = {t10 + u3, t11 + u2, t12 + u1, t13 + u0, t13 - u0, t12 - u1, t11 - u2, t10 - u3};
        for (int k = 0; k < 8; ++k) {
            const int value = (sums[k] + (1 << (shift - 1))) >> shift;
            d[k][i] = int16_t(value < -32768 ? -32768 : value > 32767 ? 32767 : value);
        }
    }
}

inline void transpose(int16_t (*d)[8]) {
    int16_t was[8][8];
    memcpy(was, d, sizeof was);
    for (int y = 0; y < 8; ++y)
        for (int x = 0; x < 8; ++x) d[y][x] = was[x][y];
}

// A block's samples from its coefficients, of which those below the top row are 0 if `top_only`.
inline void inverse_dct(const int16_t* block, const int16_t* steps, bool top_only, uint8_t* out, int64_t pitch) {
    int16_t d[8][8];
    for (int k = 0; k < 64; ++k) d[k / 8][k % 8] = int16_t(block[k] * steps[k]);
    if (top_only) {
        for (int x = 0; x < 8; ++x) d[0][x] = int16_t(d[0][x] * 4);
        for (int y = 1; y < 8; ++y) memcpy(d[y], d[0], sizeof d[0]);
    } else {
        inverse_dct_half<11>(d);
    }
    transpose(d);
    inverse_dct_half<18>(d);
    transpose(d);
    for (int y = 0; y < 8; ++y)
        for (int x = 0; x < 8; ++x) out[y * pitch + x] = sample_of(d[y][x]);
}

#endif

// The same, where the coefficients that are not zero lie at `places`.
inline void make_block(const int16_t* block, const int16_t* steps, int places, uint8_t* out, int64_t pitch) {
    if (places) {
        inverse_dct(block, steps, places < 8, out, pitch);
        return;
    }
    const uint8_t sample = sample_of((int16_t(block[0] * steps[0] * 4) + 16) >> 5);
    for (int y = 0; y < 8; ++y) memset(out + y * pitch, sample, 8);
}

// A row of chroma at full width from two rows at half width, the nearer one counting three times.
inline void widen_both(const uint8_t* near, const uint8_t* far, int count, int16_t* sums, uint8_t* out) {
    for (int i = 0; i < count; ++i) sums[i] = int16_t(3 * near[i] + far[i]);
    sums[-1] = sums[0], sums[count] = sums[count - 1];
    for (int i = 0; i < count; ++i) {
        out[2 * i] = uint8_t((3 * sums[i] + sums[i - 1] + 8) >> 4);
        out[2 * i + 1] = uint8_t((3 * sums[i] + sums[i + 1] + 7) >> 4);
    }
}

inline void widen(const uint8_t* row, int count, int16_t* sums, uint8_t* out) {
    for (int i = 0; i < count; ++i) sums[i] = row[i];
    sums[-1] = sums[0], sums[count] = sums[count - 1];
    for (int i = 0; i < count; ++i) {
        out[2 * i] = uint8_t((3 * sums[i] + sums[i - 1] + 1) >> 2);
        out[2 * i + 1] = uint8_t((3 * sums[i] + sums[i + 1] + 2) >> 2);
    }
}

inline uint8_t to_byte_of(int value) { return uint8_t(value < 0 ? 0 : value > 255 ? 255 : value); }

inline void to_rgb_one_by_one(const uint8_t* luma, const uint8_t* blue, const uint8_t* red, int count, uint8_t* out) {
    for (int i = 0; i < count; ++i) {
        const int y = luma[i], cb = blue[i] - 128, cr = red[i] - 128;
        out[3 * i] = to_byte_of(y + ((91881 * cr + 32768) >> 16));
        out[3 * i + 1] = to_byte_of(y + ((-22554 * cb - 46802 * cr + 32768) >> 16));
        out[3 * i + 2] = to_byte_of(y + ((116130 * cb + 32768) >> 16));
    }
}

#if defined(__SSSE3__)

// Eight pixels: 16 bits for each of red, green and blue, not clamped yet.
struct Eight {
    __m128i r, g, b;
};

// The same sums in 16 bits: 91881 / 65536 is 1 and 26345 / 65536, 116130 is 2 less 14942, -46802 is 18734 less 1.
inline Eight eight(__m128i y, __m128i cb, __m128i cr) {
    const __m128i one = _mm_set1_epi16(1), cb2 = _mm_add_epi16(cb, cb), cr2 = _mm_add_epi16(cr, cr);
    const __m128i of_red = _mm_srai_epi16(_mm_add_epi16(_mm_mulhi_epi16(cr2, _mm_set1_epi16(26345)), one), 1);
    const __m128i of_blue = _mm_srai_epi16(_mm_add_epi16(_mm_mulhi_epi16(cb2, _mm_set1_epi16(-14942)), one), 1);
    const __m128i factors = _mm_set1_epi32(int(18734u << 16 | (uint32_t(-22554) & 0xFFFF))),
                  half = _mm_set1_epi32(32768);
    const __m128i low = _mm_madd_epi16(_mm_unpacklo_epi16(cb, cr), factors);
    const __m128i high = _mm_madd_epi16(_mm_unpackhi_epi16(cb, cr), factors);
    const __m128i of_green =
        _mm_packs_epi32(_mm_srai_epi32(_mm_add_epi32(low, half), 16), _mm_srai_epi32(_mm_add_epi32(high, half), 16));
    return {_mm_add_epi16(y, _mm_add_epi16(cr, of_red)), _mm_add_epi16(y, _mm_sub_epi16(of_green, cr)),
            _mm_add_epi16(y, _mm_add_epi16(cb2, of_blue))};
}

inline void to_rgb(const uint8_t* luma, const uint8_t* blue, const uint8_t* red, int count, uint8_t* out) {
    const __m128i zero = _mm_setzero_si128(), middle = _mm_set1_epi16(128);
    constexpr char O = -128;
    const __m128i places[3][3] = {
        {_mm_setr_epi8(0, O, O, 1, O, O, 2, O, O, 3, O, O, 4, O, O, 5),
         _mm_setr_epi8(O, 0, O, O, 1, O, O, 2, O, O, 3, O, O, 4, O, O),
         _mm_setr_epi8(O, O, 0, O, O, 1, O, O, 2, O, O, 3, O, O, 4, O)},
        {_mm_setr_epi8(O, O, 6, O, O, 7, O, O, 8, O, O, 9, O, O, 10, O),
         _mm_setr_epi8(5, O, O, 6, O, O, 7, O, O, 8, O, O, 9, O, O, 10),
         _mm_setr_epi8(O, 5, O, O, 6, O, O, 7, O, O, 8, O, O, 9, O, O)},
        {_mm_setr_epi8(O, 11, O, O, 12, O, O, 13, O, O, 14, O, O, 15, O, O),
         _mm_setr_epi8(O, O, 11, O, O, 12, O, O, 13, O, O, 14, O, O, 15, O),
         _mm_setr_epi8(10, O, O, 11, O, O, 12, O, O, 13, O, O, 14, O, O, 15)},
    };
    int i = 0;
    for (; i + 16 <= count; i += 16) {
        const __m128i y = _mm_loadu_si128(reinterpret_cast<const __m128i*>(luma + i));
        const __m128i cb = _mm_loadu_si128(reinterpret_cast<const __m128i*>(blue + i));
        const __m128i cr = _mm_loadu_si128(reinterpret_cast<const __m128i*>(red + i));
        const Eight low = eight(_mm_unpacklo_epi8(y, zero), _mm_sub_epi16(_mm_unpacklo_epi8(cb, zero), middle),
                                _mm_sub_epi16(_mm_unpacklo_epi8(cr, zero), middle));
        const Eight high = eight(_mm_unpackhi_epi8(y, zero), _mm_sub_epi16(_mm_unpackhi_epi8(cb, zero), middle),
                                 _mm_sub_epi16(_mm_unpackhi_epi8(cr, zero), middle));
        const __m128i r = _mm_packus_epi16(low.r, high.r), g = _mm_packus_epi16(low.g, high.g);
        const __m128i b = _mm_packus_epi16(low.b, high.b);
        for (int k = 0; k < 3; ++k) {
            const __m128i part =
                _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(r, places[k][0]), _mm_shuffle_epi8(g, places[k][1])),
                             _mm_shuffle_epi8(b, places[k][2]));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 3 * i + 16 * k), part);
        }
    }
    to_rgb_one_by_one(luma + i, blue + i, red + i, count - i, out + 3 * i);
}

#else

inline void to_rgb(const uint8_t* luma, const uint8_t* blue, const uint8_t* red, int count, uint8_t* out) {
    to_rgb_one_by_one(luma, blue, red, count, out);
}

#endif
