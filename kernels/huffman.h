// The entropy coding of baseline JPEGs, read on the host: bits, and blocks of coefficients from them.
//
// What makes it quick: 64 bits at hand, refilled by 8 bytes at once where none of them is 0xFF, and one look-up in a
// table of the next bits that tells a run, a value and the length of both together.
//
// Whatever is not as an encoder writes it ends the decoding. Tested with host_jpeg.cpp, which includes this.
#pragma once

constexpr int LOOKUP_BITS = 11;
constexpr int MOST_DC_BITS = 11, MOST_AC_BITS = 10;  // of a value, with 8 bits a sample
constexpr int END_OF_BLOCK = 128;                    // as a run: more than any that is one

// Where the k-th coefficient of a block lies. Behind the 64th come runs that lead out of the block, and its end, all
// of which go to a place of their own behind it.
struct Zigzag {
    uint8_t at[64 + END_OF_BLOCK];

    constexpr Zigzag() : at() {
        int row = 0, column = 0;
        for (int k = 0; k < 64 + END_OF_BLOCK; ++k) at[k] = 64;
        for (int k = 0; k < 64; ++k) {
            at[k] = uint8_t(8 * row + column);
            const bool up = (row + column) % 2 == 0;
            if (up ? column == 7 : row == 7) {
                up ? ++row : ++column;
            } else {
                row += up ? -1 : 1, column += up ? 1 : -1;
                if (row < 0) row = 0;
                if (column < 0) column = 0;
            }
        }
    }
};
constexpr Zigzag ZIGZAG;

// The value that `size` bits stand for: the half that begins with 0 is negative.
inline int signed_value(uint32_t bits, int size) {
    return size && !(bits >> (size - 1)) ? int(bits) - (1 << size) + 1 : int(bits);
}

// A code, and what it stands for.
struct HuffmanTable {
    // By the next bits: value << 16 | run << 8 | length of code and value together, where they fit; else
    // symbol << 16 | length of the code << 8, or 0 where not even that fits.
    uint32_t quick[1 << LOOKUP_BITS];
    uint32_t limits[17];  // of the codes of each length, as 16 bits: the first that is no longer one
    int32_t offsets[17];  // from a code of that length to its symbol
    uint8_t symbols[256];
    bool known = false;

    // From a DHT segment: how many codes there are of 1 ... 16 bits, and their symbols. Whether they make sense.
    bool make(const uint8_t* counts, const uint8_t* given, int total, bool dc) {
        memcpy(symbols, given, size_t(total));
        memset(quick, 0, sizeof quick);
        uint32_t code = 0;
        int k = 0;
        for (int length = 1; length <= 16; ++length, code <<= 1) {
            offsets[length] = k - int(code);
            for (int i = 0; i < counts[length - 1]; ++i, ++k, ++code) {
                const int size = symbols[k] & 15;
                if (code >> length || (dc ? symbols[k] > MOST_DC_BITS : size > MOST_AC_BITS)) return false;
                if (length <= LOOKUP_BITS) fill(code, length, symbols[k], dc);
            }
            limits[length] = code << (16 - length);
        }
        return known = true;
    }

    void fill(uint32_t code, int length, uint8_t symbol, bool dc) {
        const int size = symbol & 15, free = LOOKUP_BITS - length;
        const int run = dc ? 0 : !size && symbol != 0xF0 ? END_OF_BLOCK : symbol >> 4;
        for (uint32_t i = 0; i < 1u << free; ++i) {
            uint32_t& entry = quick[code << free | i];
            if (size > free) {
                entry = uint32_t(symbol) << 16 | uint32_t(length) << 8;
            } else {
                const int value = signed_value(i >> (free - size), size);
                entry = uint32_t(value) << 16 | uint32_t(run) << 8 | uint32_t(length + size);
            }
        }
    }
};

// The coded data, bit by bit, up to the next marker.
struct Bits {
    const uint8_t* next;
    const uint8_t* end;
    uint64_t held = 0;  // the next bits, from the highest on
    int count = 0;      // how many of them there are
    int invented = 0;   // how many of those, the last, are zeros behind the end of the data

    Bits(const uint8_t* begin, const uint8_t* end) : next(begin), end(end) {}

    // At least 56 bits are at hand after it.
    void refill() {
        if (end - next >= 8) {
            uint64_t bytes;
            memcpy(&bytes, next, 8);
            if (!has_marker(bytes)) {
                held |= __builtin_bswap64(bytes) >> count;
                next += (63 - count) >> 3;
                count |= 56;
                return;
            }
        }
        refill_slowly();
    }

    static uint64_t has_marker(uint64_t bytes) {  // one of them is 0xFF: of the others, a zero in ~bytes
        const uint64_t zeros = ~bytes;
        return (zeros - 0x0101010101010101u) & bytes & 0x8080808080808080u;
    }

    void refill_slowly() {
        for (; count < 56; count += 8) {
            uint64_t byte = 0;
            const bool stuffed = end - next >= 2 && next[0] == 0xFF && next[1] == 0;
            if (next < end && (next[0] != 0xFF || stuffed)) {
                byte = *next;
                next += stuffed ? 2 : 1;
            } else {
                invented += 8;
            }
            held |= byte << (56 - count);
        }
    }

    void drop(int bits) { held <<= bits, count -= bits; }
    uint32_t take(int bits) {  // 0 of them too
        const uint32_t taken = uint32_t(held >> 1 >> (63 - bits));
        drop(bits);
        return taken;
    }
    bool ran_out() const { return count < invented; }

    // Goes past the restart marker number `which`, which must come now.
    bool restart(int which) {
        if (count - invented >= 8 || ran_out() || end - next < 2 || next[0] != 0xFF || next[1] != 0xD0 + which)
            return false;
        next += 2;
        held = 0, count = 0, invented = 0;
        return true;
    }
};

// The symbol that an entry of `quick` leaves open, and drops its code; -1 where there is no such code.
inline int slow_symbol(Bits& bits, const HuffmanTable& table, uint32_t entry) {
    if (entry) {
        bits.drop(int(entry >> 8 & 255));
        return int(entry >> 16);
    }
    const uint32_t code = uint32_t(bits.held >> 48);
    for (int length = LOOKUP_BITS + 1; length <= 16; ++length) {
        if (code < table.limits[length]) {
            bits.drop(length);
            return table.symbols[(table.offsets[length] + int(code >> (16 - length))) & 255];
        }
    }
    return -1;
}

// Reads one block: its coefficients, in their places, go to `block` [65], which holds zeros, if `keep`.
// Returns the places of those that are not zero, joined by "or"; -1 where the data make no sense.
template <bool keep>
inline int read_block(Bits& given, const HuffmanTable& dc, const HuffmanTable& ac, int& before, int16_t* block) {
    Bits bits = given;  // in registers
    bits.refill();
    uint32_t entry = dc.quick[bits.held >> (64 - LOOKUP_BITS)];
    if (entry & 255) {
        before += int32_t(entry) >> 16;
        bits.drop(int(entry & 255));
    } else {
        const int size = slow_symbol(bits, dc, entry);
        if (size < 0) return -1;
        before += signed_value(bits.take(size), size);
    }
    if (before < -32768 || before > 32767) return -1;
    if (keep) block[0] = int16_t(before);
    int k = 1, places = 0;
    while (k < 64) {
        bits.refill();
        for (int i = 0; i < 5; ++i) {  // of at most 11 bits each
            entry = ac.quick[bits.held >> (64 - LOOKUP_BITS)];
            if (__builtin_expect(!(entry & 255), 0)) {
                bits.refill();
                const int symbol = slow_symbol(bits, ac, entry);
                if (symbol < 0) return -1;
                const int size = symbol & 15;
                k += size || symbol == 0xF0 ? symbol >> 4 : END_OF_BLOCK;
                const int value = signed_value(bits.take(size), size);
                if (keep) block[ZIGZAG.at[k]] = int16_t(value), places |= ZIGZAG.at[k];
                ++k;
                break;
            }
            k += int(entry >> 8 & 255);
            if (keep) block[ZIGZAG.at[k]] = int16_t(entry >> 16), places |= ZIGZAG.at[k];
            ++k;
            bits.drop(int(entry & 255));
            if (k >= 64) break;
        }
    }
    given = bits;
    return k == 64 || k > END_OF_BLOCK ? places & 63 : -1;
}
