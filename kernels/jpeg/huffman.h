// Computes: block boundaries in entropy-coded data, by skipping Huffman codes instead of decoding them; bit copies. AC
//           coefficients need only the lengths of their codes: one look-up of the next 12 bits usually skips two
//           symbols with their values. It takes half the time that libjpeg-turbo takes to skip pixels. DC coefficients
//           are coded as differences, so their values are summed. Data that no encoder writes ends the skipping;
//           nothing is read or written out of bounds.
// Threads:  the caller's alone.
// Reference: ITU-T T.81, annex C (Huffman tables), F.1.2 and F.2.2 (Huffman coding of sequential DCT).
// Tests:    tests/codec/test_index.py; under sanitizers: tests/kernels/test_sanitizers.py.
#pragma once
#include <cstdint>
#include <cstring>

namespace {

// --- bits ------------------------------------------------------------------------------------------------------------

// Non-zero if any of eight bytes is 0xFF. The lowest set bit is the high bit of the first such byte.
uint64_t find_ff(uint64_t bytes) { return (~bytes - 0x0101010101010101u) & bytes & 0x8080808080808080u; }

struct BitPosition {
    const unsigned char* byte;  // never a stuffed zero
    int bit;                    // from the high bit on
};

// Reads entropy-coded data bit by bit up to the next marker, without the zeros stuffed after each 0xFF (F.1.2.3).
struct BitReader {
    const unsigned char* begin;
    const unsigned char* end;
    const unsigned char* next;
    uint64_t bits;    // the next bits, from the high bit on
    int count;        // of them
    int64_t padding;  // zeros read beyond the end

    BitReader(BitPosition from, const unsigned char* end)
        : begin(from.byte), end(end), next(from.byte), bits(0), count(0), padding(0) {
        refill();
        drop(from.bit);
    }

    // Makes at least 56 bits available.
    void refill() {
        uint64_t bytes;
        if (end - next >= 8 && (memcpy(&bytes, next, 8), !find_ff(bytes))) {
            bits |= __builtin_bswap64(bytes) >> count;
            next += (63 - count) >> 3;
            count |= 56;
        } else {
            *this = refilled_slowly(*this);  // a static function: a method would take this address, out of registers
        }
    }

    static __attribute__((noinline)) BitReader refilled_slowly(BitReader reader) {
        for (; reader.count < 56; reader.count += 8) {
            const bool is_ff = reader.next < reader.end && *reader.next == 0xff;
            uint64_t byte = 0;
            if (reader.next == reader.end || (is_ff && (reader.end - reader.next < 2 || reader.next[1]))) {
                reader.padding += 8;
            } else {
                byte = *reader.next;
                reader.next += 1 + is_ff;
            }
            reader.bits |= byte << (56 - reader.count);
        }
        return reader;
    }

    void drop(int n) { bits <<= n, count -= n; }
    bool ran_out() const { return count < padding; }

    BitPosition position() const {  // unless it ran out
        const unsigned char* at = next;
        int64_t back = count - padding;
        for (; back > 0; back -= 8) at -= at - begin >= 2 && at[-1] == 0 && at[-2] == 0xff ? 2 : 1;
        return {at, int(-back)};
    }
};

// Writes entropy-coded data, with stuffed zeros.
struct BitWriter {
    unsigned char* next;
    unsigned char* end;
    uint64_t bits = 0;
    int count = 0;  // number of bits; fewer than 8 between calls
    bool is_full = false;

    BitWriter(unsigned char* begin, unsigned char* end) : next(begin), end(end) {}

    void write(uint64_t value, int n) {  // the low n bits, 1 to 56
        bits |= value << (64 - n) >> count;
        count += n;
        if (end - next < 16) {
            is_full = true, count &= 7;
        } else if (find_ff(bits)) {
            for (; count >= 8; count -= 8, bits <<= 8) {
                *next++ = uint8_t(bits >> 56);
                if (bits >> 56 == 0xff) *next++ = 0;
            }
        } else {
            const uint64_t bytes = __builtin_bswap64(bits);
            memcpy(next, &bytes, 8);
            next += count >> 3, bits <<= count & 56, count &= 7;
        }
    }

    // Copies the bits from one position to a later one in the same data.
    void copy(BitPosition from, BitPosition to) {
        const unsigned char* at = from.byte;
        if (from.bit && at < to.byte) {
            write(*at, 8 - from.bit);
            at += *at == 0xff ? 2 : 1, from.bit = 0;
        }
        while (at < to.byte && !is_full) {
            int64_t size = to.byte - at < end - next ? to.byte - at : end - next;
            uint64_t bytes, value;
            for (const int shift = count; size >= 8; size -= 8) {
                memcpy(&bytes, at, 8);
                value = __builtin_bswap64(bytes);
                const uint64_t joined = __builtin_bswap64(bits | value >> shift);
                if (find_ff(bytes) | find_ff(joined)) break;  // zeros are stuffed here, or must be
                memcpy(next, &joined, 8);
                bits = value << 1 << (63 - shift);
                at += 8, next += 8;
            }
            if (at == to.byte) break;
            const uint64_t mask = size >= 8 ? find_ff(bytes) : 1;
            if (const int bytes_before_ff = mask ? __builtin_ctzll(mask) / 8 : 7) {
                write(value >> (64 - 8 * bytes_before_ff), 8 * bytes_before_ff);
                at += bytes_before_ff;
            } else {
                write(*at, 8);
                at += *at == 0xff ? 2 : 1;
            }
        }
        if (at == to.byte && to.bit > from.bit) write(uint64_t(*at >> (8 - to.bit)), to.bit - from.bit);
    }

    void finish() {
        if (count) write((1 << (8 - count)) - 1, 8 - count);  // pads to whole bytes with ones (F.1.2.3)
    }
};

// --- Huffman tables --------------------------------------------------------------------------------------------------

constexpr int DC_LOOKUP_BITS = 10, AC_LOOKUP_BITS = 12;
constexpr int MAX_DC_BITS = 11, MAX_AC_BITS = 10;  // of a value, with 8-bit samples (Tables F.1, F.2)

// Built from a definition as in DHT segments (B.2.4.2): the number of codes of 1 to 16 bits, then their symbols.
struct HuffmanTable {
    unsigned char definition[16 + 256];
    int64_t size = 0;     // bytes of a valid definition; else 0
    uint32_t limits[17];  // per length: the first 16-bit value beyond its codes
    int32_t offsets[17];  // per length: from a code to the index of its symbol

    int symbol_at(uint32_t code, int length) const {
        return definition[16 + ((offsets[length] + int(code >> (16 - length))) & 255)];
    }

    // Returns whether the table is built from this definition; if not, loads it. is_valid: codes of these lengths
    // exist.
    bool load(const unsigned char* given, bool& is_valid) {
        int64_t given_size = 16;
        for (int i = 0; i < 16; ++i) given_size += given[i];
        if (given_size == size && memcmp(given, definition, size_t(given_size)) == 0) return is_valid = true;
        memcpy(definition, given, size_t(given_size));
        size = 0;
        uint32_t code = 0;  // C.2
        int symbols = 0;
        limits[0] = 0;
        for (int length = 1; length <= 16; ++length) {
            code <<= 1;
            offsets[length] = symbols - int(code);
            symbols += given[length - 1], code += given[length - 1];
            if (code >= 1u << length) return is_valid = false;  // no code is all ones
            limits[length] = code << (16 - length);
        }
        size = given_size, is_valid = true;
        return false;
    }

    // Reads the symbol of the next code, which is longer than `shorter` bits; -1 if there is no such code.
    int read_symbol(BitReader& reader, int shorter) const {
        const auto code = uint32_t(reader.bits >> 48);
        for (int length = shorter + 1; length <= 16; ++length) {
            if (code >= limits[length]) continue;
            reader.drop(length);
            return symbol_at(code, length);
        }
        return -1;
    }

    // Calls use(first, count, symbol, length) for each code of up to `bits` bits: the range of `bits`-bit numbers that
    // begin with it.
    template <class Use>
    void for_each_code(int bits, Use use) const {
        for (int length = 1; length <= bits; ++length)
            for (uint32_t code = limits[length - 1]; code < limits[length]; code += 1u << (16 - length))
                use(code >> (16 - bits), 1u << (bits - length), symbol_at(code, length), length);
    }
};

// EXTEND (Figure F.12): the value of `size` bits; a leading 0 means negative.
int extend(uint32_t bits, int size) { return size && !(bits >> (size - 1)) ? int(bits) - (1 << size) + 1 : int(bits); }

struct DcTable : HuffmanTable {
    int32_t
        lookup[1 << DC_LOOKUP_BITS];  // indexed by the next bits: value << 8 | bits of code and value; 0: does not fit
    uint16_t code[MAX_DC_BITS + 1], length[MAX_DC_BITS + 1];  // by bits of the value; length 0: no code

    bool build(const unsigned char* given) {
        bool is_valid;
        if (load(given, is_valid) || !is_valid) return is_valid;
        memset(lookup, 0, sizeof lookup), memset(length, 0, sizeof length);
        for_each_code(16, [&](uint32_t first, uint32_t, int value_bits, int bits) {
            if (value_bits > MAX_DC_BITS) return void(is_valid = false);
            code[value_bits] = uint16_t(first >> (16 - bits)), length[value_bits] = uint16_t(bits);
        });
        if (is_valid)
            for_each_code(DC_LOOKUP_BITS, [&](uint32_t first, uint32_t count, int value_bits, int bits) {
                const int left = DC_LOOKUP_BITS - bits - value_bits;
                for (uint32_t i = 0; left >= 0 && i < count; ++i)
                    lookup[first + i] = extend(i >> left, value_bits) * 256 | (bits + value_bits);
            });
        if (!is_valid) size = 0;
        return is_valid;
    }

    // Adds the next difference to `sum`, and leaves 56 bits available. False if there is none.
    __attribute__((always_inline)) bool skip(BitReader& reader, int64_t& sum) const {
        reader.refill();
        const int32_t entry = lookup[reader.bits >> (64 - DC_LOOKUP_BITS)];
        if (__builtin_expect(entry != 0, 1)) {
            sum += entry >> 8;
            reader.drop(entry & 63);
        } else {
            const int value_bits = read_symbol(reader, 0);
            if (value_bits < 0) return false;
            if (value_bits) sum += extend(uint32_t(reader.bits >> (64 - value_bits)), value_bits);
            reader.drop(value_bits);
        }
        reader.refill();
        return true;
    }

    // Writes a difference. False if the table has no code for it.
    bool write(BitWriter& writer, int64_t value) const {
        const uint64_t magnitude = uint64_t(value < 0 ? -value : value);
        const int value_bits = magnitude ? 64 - __builtin_clzll(magnitude) : 0;
        if (value_bits > MAX_DC_BITS || !length[value_bits]) return false;
        writer.write(code[value_bits], length[value_bits]);
        if (value_bits) writer.write(uint64_t(value < 0 ? value + (1 << value_bits) - 1 : value), value_bits);
        return true;
    }
};

struct AcTable : HuffmanTable {
    static constexpr int END = 0x40;  // the block ends
    static constexpr int LONG = 64;   // more coefficients than a block has: read symbol by symbol
    static constexpr int ZRL = 0xf0;  // a run of 16 zeros (F.1.2.2)

    // Indexed by the next bits, for all symbols whose codes fit: coefficients << 8 | END | bits of codes and values.
    uint16_t lookup[1 << AC_LOOKUP_BITS];

    bool build(const unsigned char* given) {
        bool is_valid;
        if (load(given, is_valid) || !is_valid) return is_valid;
        // For the first symbol alone: coefficients << 16 | END << 8 | bits of code and value << 8 | bits of the code.
        uint32_t singles[1 << AC_LOOKUP_BITS] = {};
        for_each_code(AC_LOOKUP_BITS, [&](uint32_t first, uint32_t count, int symbol, int bits) {
            const int value_bits = symbol & 15, run = is_end(symbol) ? 0 : (symbol >> 4) + 1;
            const uint32_t single =
                uint32_t(run << 16 | (is_end(symbol) ? END << 8 : 0) | (bits + value_bits) << 8 | bits);
            for (uint32_t i = 0; i < count; ++i) singles[first + i] = single;
        });
        for_each_code(
            16, [&](uint32_t, uint32_t, int symbol, int) { is_valid = is_valid && (symbol & 15) <= MAX_AC_BITS; });
        for (uint32_t i = 0; i < 1u << AC_LOOKUP_BITS; ++i) {
            uint32_t entry = singles[i] ? singles[i] >> 8 : LONG << 8;
            for (int bits = entry & 63; bits && bits < AC_LOOKUP_BITS && !(entry & END); bits = entry & 63) {
                const uint32_t single = singles[i << bits & ((1 << AC_LOOKUP_BITS) - 1)];
                const bool fits = single && bits + int(single & 255) <= AC_LOOKUP_BITS;
                if (!fits || (entry >> 8) + (single >> 16) >= LONG) break;
                entry += single >> 8;
            }
            lookup[i] = uint16_t(entry);
        }
        if (!is_valid) size = 0;
        return is_valid;
    }

    // End of block. libjpeg takes any symbol without value bits for it, except ZRL; T.81 only 0.
    static bool is_end(int symbol) { return !(symbol & 15) && symbol != ZRL; }

    // Skips the AC coefficients of a block, with 56 bits available. False if they are invalid.
    __attribute__((always_inline)) bool skip(BitReader& reader) const {
        for (int k = 1;; reader.refill()) {
            uint32_t entry = lookup[reader.bits >> (64 - AC_LOOKUP_BITS)];
            if (__builtin_expect(k + (entry >> 8) < 64, 1)) {
                k += int(entry >> 8), reader.drop(entry & 63);
                if (entry & END) return true;
                entry = lookup[reader.bits >> (64 - AC_LOOKUP_BITS)];
                if (__builtin_expect(k + (entry >> 8) < 64, 1)) {
                    k += int(entry >> 8), reader.drop(entry & 63);
                    if (entry & END) return true;
                    continue;
                }
            }
            reader.refill();
            const int symbol = read_symbol(reader, entry >> 8 == LONG ? AC_LOOKUP_BITS : 0);
            if (symbol < 0) return false;
            if (is_end(symbol)) return true;
            reader.drop(symbol & 15);
            k += (symbol >> 4) + 1;
            if (k >= 64) return k == 64;
        }
    }
};

}  // namespace
