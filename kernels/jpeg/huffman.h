// The Huffman codes of JPEGs (ITU-T T.81, annexes C and F): passed over, not decoded. For jpeg/index.h.
//
// To know where a block ends, of its AC coefficients only the lengths are needed, and of several codes together: one
// look at the next 12 bits passes two symbols as a rule, with their values, and takes half the time of libjpeg-turbo
// where nobody wants its pixels. Of DC coefficients, which are coded as differences, the values are summed.
//
// Data that no encoder writes end the passing; nothing is read or written outside of what is given.
#pragma once
#include <cstdint>
#include <cstring>

namespace {

// --- bits ------------------------------------------------------------------------------------------------------------

// Whether any of eight bytes is 0xFF, whose complement is zero. The lowest bit that is set is the first one's highest.
uint64_t any_ones(uint64_t bytes) { return (~bytes - 0x0101010101010101u) & bytes & 0x8080808080808080u; }

// Of a bit: its byte, which is never a stuffed zero, and its number from the highest on.
struct Place {
    const unsigned char* byte;
    int bit;
};

// Entropy-coded data, read bit by bit, without the zeros stuffed behind each 0xFF, up to the next marker.
struct Bits {
    const unsigned char* begin;
    const unsigned char* end;
    const unsigned char* next;
    uint64_t held;     // the next bits, from the highest on
    int count;         // how many of them there are
    int64_t invented;  // zeros that were taken from behind the end

    Bits(Place from, const unsigned char* end)
        : begin(from.byte), end(end), next(from.byte), held(0), count(0), invented(0) {
        refill();
        drop(from.bit);
    }

    // At least 56 bits are at hand after it.
    void refill() {
        uint64_t bytes;
        if (end - next >= 8 && (memcpy(&bytes, next, 8), !any_ones(bytes))) {
            held |= __builtin_bswap64(bytes) >> count;
            next += (63 - count) >> 3;
            count |= 56;
        } else {
            *this = refilled_slowly(*this);  // not a method of this one: its address would keep it out of registers
        }
    }

    static __attribute__((noinline)) Bits refilled_slowly(Bits bits) {
        for (; bits.count < 56; bits.count += 8) {
            const bool ones = bits.next < bits.end && *bits.next == 0xff;
            uint64_t byte = 0;
            if (bits.next == bits.end || (ones && (bits.end - bits.next < 2 || bits.next[1]))) {
                bits.invented += 8;
            } else {
                byte = *bits.next;
                bits.next += 1 + ones;
            }
            bits.held |= byte << (56 - bits.count);
        }
        return bits;
    }

    void drop(int n) { held <<= n, count -= n; }
    bool ran_out() const { return count < invented; }

    Place place() const {  // unless it ran out
        const unsigned char* at = next;
        int64_t back = count - invented;
        for (; back > 0; back -= 8) at -= at - begin >= 2 && at[-1] == 0 && at[-2] == 0xff ? 2 : 1;
        return {at, int(-back)};
    }
};

// Entropy-coded data, written.
struct Writer {
    unsigned char* next;
    unsigned char* end;
    uint64_t held = 0;
    int count = 0;  // of bits held; between calls fewer than 8
    bool full = false;

    Writer(unsigned char* begin, unsigned char* end) : next(begin), end(end) {}

    void put(uint64_t value, int bits) {  // the lowest, 1 to 56 of them
        held |= value << (64 - bits) >> count;
        count += bits;
        if (end - next < 16) {
            full = true, count &= 7;
        } else if (any_ones(held)) {
            for (; count >= 8; count -= 8, held <<= 8) {
                *next++ = uint8_t(held >> 56);
                if (held >> 56 == 0xff) *next++ = 0;
            }
        } else {
            const uint64_t bytes = __builtin_bswap64(held);
            memcpy(next, &bytes, 8);
            next += count >> 3, held <<= count & 56, count &= 7;
        }
    }

    // Copies all bits from one place to another, which lies behind it in the same data.
    void copy(Place from, Place to) {
        const unsigned char* at = from.byte;
        if (from.bit && at < to.byte) {
            put(*at, 8 - from.bit);
            at += *at == 0xff ? 2 : 1, from.bit = 0;
        }
        while (at < to.byte && !full) {
            int64_t room = to.byte - at < end - next ? to.byte - at : end - next;
            uint64_t bytes, value;
            for (const int shift = count; room >= 8; room -= 8) {
                memcpy(&bytes, at, 8);
                value = __builtin_bswap64(bytes);
                const uint64_t joined = __builtin_bswap64(held | value >> shift);
                if (any_ones(bytes) | any_ones(joined)) break;  // zeros are stuffed here, or will be
                memcpy(next, &joined, 8);
                held = value << 1 << (63 - shift);
                at += 8, next += 8;
            }
            if (at == to.byte) break;
            const uint64_t ones = room >= 8 ? any_ones(bytes) : 1;
            if (const int before = ones ? __builtin_ctzll(ones) / 8 : 7) {
                put(value >> (64 - 8 * before), 8 * before);
                at += before;
            } else {
                put(*at, 8);
                at += *at == 0xff ? 2 : 1;
            }
        }
        if (at == to.byte && to.bit > from.bit) put(uint64_t(*at >> (8 - to.bit)), to.bit - from.bit);
    }

    void finish() {
        if (count) put((1 << (8 - count)) - 1, 8 - count);  // to whole bytes by ones (F.1.2.3)
    }
};

// --- codes -----------------------------------------------------------------------------------------------------------

constexpr int DC_LOOKUP = 10, AC_LOOKUP = 12;        // bits
constexpr int MOST_DC_BITS = 11, MOST_AC_BITS = 10;  // of a value, with 8 bits a sample (F.1.2)

// From a definition, as DHT segments have them: how many codes there are of 1 to 16 bits, and then their symbols.
struct Code {
    unsigned char definition[16 + 256];
    int64_t known = 0;    // bytes of it
    uint32_t limits[17];  // of the codes of each length, as 16 bits: the first that is none any more
    int32_t offsets[17];  // from a code of that length to its symbol

    int symbol_at(uint32_t code, int length) const {
        return definition[16 + ((offsets[length] + int(code >> (16 - length))) & 255)];
    }

    // Whether it is as the one before; otherwise it takes it, and `sound` says whether codes of these lengths exist.
    bool same(const unsigned char* given, bool& sound) {
        int64_t size = 16;
        for (int i = 0; i < 16; ++i) size += given[i];
        if (size == known && memcmp(given, definition, size_t(size)) == 0) return sound = true;
        memcpy(definition, given, size_t(size));
        known = 0;
        uint32_t code = 0;
        int before = 0;
        limits[0] = 0;
        for (int length = 1; length <= 16; ++length) {
            code <<= 1;
            offsets[length] = before - int(code);
            before += given[length - 1], code += given[length - 1];
            if (code > 1u << length) return sound = false;
            limits[length] = code << (16 - length);
        }
        known = size, sound = true;
        return false;
    }

    // Drops the next code, which is longer than `shorter` bits. Gives its symbol; -1 where there is no such code.
    int take(Bits& bits, int shorter) const {
        const auto code = uint32_t(bits.held >> 48);
        for (int length = shorter + 1; length <= 16; ++length) {
            if (code >= limits[length]) continue;
            bits.drop(length);
            return symbol_at(code, length);
        }
        return -1;
    }

    // Calls use(first, count, symbol, length) for the codes of up to `bits` bits: which numbers of so many bits begin
    // with each.
    template <class Use>
    void each(int bits, Use use) const {
        for (int length = 1; length <= bits; ++length)
            for (uint32_t code = limits[length - 1]; code < limits[length]; code += 1u << (16 - length))
                use(code >> (16 - bits), 1u << (bits - length), symbol_at(code, length), length);
    }
};

// The value that `size` bits stand for: the half that begins with 0 is negative (F.2.2.1).
int signed_value(uint32_t bits, int size) {
    return size && !(bits >> (size - 1)) ? int(bits) - (1 << size) + 1 : int(bits);
}

struct DcCode : Code {
    int32_t quick[1 << DC_LOOKUP];  // by the next bits: the value << 8 | bits of code and value; 0 where that is more
    uint16_t code[MOST_DC_BITS + 1], length[MOST_DC_BITS + 1];  // of values of so many bits; length 0: there is none

    bool make(const unsigned char* given) {
        bool sound;
        if (same(given, sound) || !sound) return sound;
        memset(quick, 0, sizeof quick), memset(length, 0, sizeof length);
        each(16, [&](uint32_t first, uint32_t, int size, int bits) {
            if (size > MOST_DC_BITS) return void(sound = false);
            code[size] = uint16_t(first >> (16 - bits)), length[size] = uint16_t(bits);
        });
        if (sound)
            each(DC_LOOKUP, [&](uint32_t first, uint32_t count, int size, int bits) {
                const int left = DC_LOOKUP - bits - size;
                for (uint32_t i = 0; left >= 0 && i < count; ++i)
                    quick[first + i] = signed_value(i >> left, size) * 256 | (bits + size);
            });
        if (!sound) known = 0;
        return sound;
    }

    // Adds the next value, and leaves 56 bits at hand. False where there is none.
    __attribute__((always_inline)) bool pass(Bits& bits, int64_t& sum) const {
        bits.refill();
        const int32_t entry = quick[bits.held >> (64 - DC_LOOKUP)];
        if (__builtin_expect(entry != 0, 1)) {
            sum += entry >> 8;
            bits.drop(entry & 63);
        } else {
            const int size = take(bits, 0);
            if (size < 0) return false;
            if (size) sum += signed_value(uint32_t(bits.held >> (64 - size)), size);
            bits.drop(size);
        }
        bits.refill();
        return true;
    }

    // Whether there is a code for the value; if so, writes it.
    bool put(Writer& to, int64_t value) const {
        const uint64_t magnitude = uint64_t(value < 0 ? -value : value);
        const int size = magnitude ? 64 - __builtin_clzll(magnitude) : 0;
        if (size > MOST_DC_BITS || !length[size]) return false;
        to.put(code[size], length[size]);
        if (size) to.put(uint64_t(value < 0 ? value + (1 << size) - 1 : value), size);
        return true;
    }
};

struct AcCode : Code {
    static constexpr int LAST = 0x40;  // the block ends
    static constexpr int NONE = 64;    // more coefficients than a block has: to be looked at one by one

    // By the next bits, for as many symbols as have their codes there: coefficients << 8 | LAST | bits with the values.
    uint16_t quick[1 << AC_LOOKUP];

    bool make(const unsigned char* given) {
        bool sound;
        if (same(given, sound) || !sound) return sound;
        // The first of them alone: coefficients << 16 | LAST << 8 | bits << 8 | bits of the code.
        uint32_t ones[1 << AC_LOOKUP] = {};
        each(AC_LOOKUP, [&](uint32_t first, uint32_t count, int symbol, int bits) {
            const int size = symbol & 15, run = ends(symbol) ? 0 : (symbol >> 4) + 1;
            const uint32_t one = uint32_t(run << 16 | (ends(symbol) ? LAST << 8 : 0) | (bits + size) << 8 | bits);
            for (uint32_t i = 0; i < count; ++i) ones[first + i] = one;
        });
        each(16, [&](uint32_t, uint32_t, int symbol, int) { sound = sound && (symbol & 15) <= MOST_AC_BITS; });
        for (uint32_t i = 0; i < 1u << AC_LOOKUP; ++i) {
            uint32_t entry = ones[i] ? ones[i] >> 8 : NONE << 8;
            for (int bits = entry & 63; bits && bits < AC_LOOKUP && !(entry & LAST); bits = entry & 63) {
                const uint32_t one = ones[i << bits & ((1 << AC_LOOKUP) - 1)];
                if (!one || bits + int(one & 255) > AC_LOOKUP || (entry >> 8) + (one >> 16) >= NONE) break;
                entry += one >> 8;
            }
            quick[i] = uint16_t(entry);
        }
        if (!sound) known = 0;
        return sound;
    }

    static bool ends(int symbol) { return !(symbol & 15) && symbol != 0xf0; }  // as libjpeg has it; it should be 0

    // Goes past the AC coefficients of a block, with 56 bits at hand. False where that is not possible.
    __attribute__((always_inline)) bool pass(Bits& bits) const {
        for (int k = 1;; bits.refill()) {
            uint32_t entry = quick[bits.held >> (64 - AC_LOOKUP)];
            if (__builtin_expect(k + (entry >> 8) < 64, 1)) {
                k += int(entry >> 8), bits.drop(entry & 63);
                if (entry & LAST) return true;
                entry = quick[bits.held >> (64 - AC_LOOKUP)];
                if (__builtin_expect(k + (entry >> 8) < 64, 1)) {
                    k += int(entry >> 8), bits.drop(entry & 63);
                    if (entry & LAST) return true;
                    continue;
                }
            }
            bits.refill();
            const int symbol = take(bits, entry >> 8 == NONE ? AC_LOOKUP : 0);
            if (symbol < 0) return false;
            if (ends(symbol)) return true;
            bits.drop(symbol & 15);
            k += (symbol >> 4) + 1;
            if (k >= 64) return k == 64;
        }
    }
};

}  // namespace
