// Computes: Huffman codes of a JPEG, and their look-up tables.
// Threads:  a reader belongs to one thread. The tables are built by the threads of a block.
// Reference: ITU-T T.81, annex C and F.2.2; the limits of kernels/jpeg/huffman.h.
// Tests:    tests/kernels/test_decode_jpeg.py.
#pragma once
#include "jpeg_batch.h"

// The words of the data, of which three beyond its end can be loaded.
struct GlobalWords {
    const uint32* data;
    METHOD uint32 at(uint32 byte) const { return load_global(data + byte / 4); }  // the word that holds a byte
};

// Reads entropy-coded data up to a marker, without the zero stuffed after each 0xFF (F.1.2.3). Beyond it reads zeros.
template <class Words>
struct JpegBits {
    Words words;
    uint32 next, end;    // bytes; `next` goes on beyond the end
    uint32 here, ahead;  // the words that hold bytes `next` to `next + 3`
    uint32 irregular;    // the last `next` after bytes among which zeros were stuffed, or the end
    uint64 bits;         // the last 64 bits that were read
    int used;            // of them

    METHOD void begin(const Words& its_words, uint32 size, uint32 bit) {
        words = its_words, end = size, next = irregular = min(bit / 8, size);
        bits = 0, used = 64;
        load_words();
        refill(), refill();
        drop(int(bit & 7));
    }

    METHOD void load_words() { here = words.at(min(next, end)), ahead = words.at(min(next, end) + 4); }
    METHOD void drop(int n) { used += n; }
    METHOD uint32 top() const { return uint32(bits << used >> 32); }

    // Whether 33 bits are available: a code of 16 bits and its value fit.
    METHOD bool is_full() const { return used < 32; }
    METHOD void refill() {
        if (is_full()) return;
        uint32 word = big_endian_word(here, ahead, next & 3);
        const uint32 has_ff = (~word - 0x01010101u) & word & 0x80808080u;
        if (has_ff || next + 4 > end) {
            word = read_bytes();
        } else {
            next += 4;
            here = ahead;
            ahead = words.at(next + 4);
        }
        bits = bits << 32 | word;
        used -= 32;
    }

    METHOD uint32 byte_at(uint32 at) const { return load_global(words.data + at / 4) >> (at & 3) * 8 & 255; }

    // The next four bytes, one by one. Without branches: the other threads of a warp wait.
    METHOD uint32 read_bytes() {
        const uint32 first = big_endian_word(here, ahead, next & 3);
        const uint32 second = big_endian_word(ahead, words.at(min(next, end) + 8), next & 3);
        uint64 bytes = uint64(first) << 32 | second;
        uint32 word = 0;
        UNROLL
        for (int i = 0; i < 4; ++i) {
            const uint32 byte = uint32(bytes >> 56), step = byte == 0xff ? 2 : 1;
            const bool is_marker = (uint32(bytes >> 48) ^ 0xff00) - 1 < 0xff;  // 0xff and not 0
            const bool is_end = (next + step > end) | is_marker;
            end = is_end ? min(end, next) : end;
            word = word << 8 | (is_end ? 0 : byte);
            next += is_end ? 1 : step;
            bytes <<= 8 * step;
        }
        load_words();
        irregular = next;
        return word;
    }

    METHOD int left() const { return 64 - used; }  // bits that were read, but not used
    METHOD bool ran_out() const { return next > end && left() < int(8 * (next - end)); }

    // The position, unless zeros are stuffed before `next`: then it is less.
    METHOD uint32 last_position() const { return 8 * next - uint32(left()); }

    // Offset of the next bit, stuffed zeros included. It is never inside a stuffed zero.
    METHOD uint32 position() const {
        if (next - irregular >= 8) return last_position();
        uint32 at = min(next, end);
        int back = left() - int(8 * (next - at));
        NO_UNROLL
        for (; back > 0; back -= 8) at -= at >= 2 && byte_at(at - 1) == 0 && byte_at(at - 2) == 0xff ? 2 : 1;
        return 8 * at + uint32(-back);
    }
};

// --- codes -----------------------------------------------------------------------------------------------------------

// The entry of the code that `top` begins with: its bits << 8 | symbol; NO_CODE.
template <class Lookup>
DEVICE int find_code(const Lookup& lookup, uint32 top) {
    const int entry = lookup.first[top >> (32 - FIRST_BITS)];
    if (!(entry & IS_LONGER)) return entry;
    return lookup.longer[(entry & 0xfff) + int(top << FIRST_BITS >> (32 - (entry >> 12 & 7)))];
}

// EXTEND (Figure F.12) of the `size` bits after a code of `length` bits; size is 1 to 15.
DEVICE int value_after(uint32 top, int length, int size) {
    const uint32 aligned = top << length;
    const int is_negative = ~int(aligned) >> 31;
    return int(aligned >> (32 - size)) + (is_negative & (1 - (1 << size)));
}

// Reads a block into `out` [64], which holds zeros: coefficients times quantizer steps, row by row. Adds to the DC
// prediction. False at an invalid code.
DEVICE bool read_block(JpegBits<GlobalWords>& bits, const HuffmanLookup<DC_LONGER>& dc_lookup,
                       const HuffmanLookup<AC_LONGER>& ac_lookup, const uint32* quantizer, int& dc, short* out) {
    bits.refill();
    int entry = find_code(dc_lookup, bits.top());
    if (entry == NO_CODE) return false;
    int length = entry >> 8, size = entry & 15;
    if (size) dc += value_after(bits.top(), length, size);
    bits.drop(length + size);
    out[0] = short(uint32(dc) * (quantizer[0] & 0xffff));  // 16 bits, as in libjpeg
    for (int k = 1; k < 64; ++k) {
        bits.refill();
        const uint32 top = bits.top();
        entry = find_code(ac_lookup, top);
        if (entry == NO_CODE) return false;
        length = entry >> 8, size = entry & 15;
        bits.drop(length + size);
        const int run = entry >> 4 & 15;
        if (!size && run != 15) break;  // libjpeg takes any such symbol for the end of the block
        k += run;
        if (k > 63) return false;
        if (size) {
            const uint32 place = quantizer[k];
            out[place >> 16] = short(value_after(top, length, size) * int(place & 0xffff));
        }
    }
    return true;
}

// --- tables ----------------------------------------------------------------------------------------------------------

// The entry of the code that 16 bits begin with. Codes of a length are consecutive, and follow all shorter ones.
DEVICE int find_entry(const HuffmanDefinition& definition, int bits) {
    int begin = 0, symbol = 0;  // of the codes of `length` bits
    NO_UNROLL
    for (int length = 1; length <= 16; ++length) {
        const int count = definition.counts[length - 1], number = (bits - begin) >> (16 - length);
        if (number < count) return length << 8 | definition.symbols[(symbol + number) & 255];
        begin += count << (16 - length), symbol += count;
    }
    return NO_CODE;
}

// Builds a table. jpeg/device_batch.h has checked that its codes exist and that the longer ones fit. Every entry is
// found by itself: prefixes whose longest code has `length` bits are consecutive, and so are their entries in `longer`.
template <class Lookup>
DEVICE void build_lookup(const Block& block, const HuffmanDefinition& definition, Lookup& lookup) {
    constexpr int REST = 16 - FIRST_BITS;
    for (int prefix = block.thread; prefix < FIRST_ENTRIES; prefix += block.threads) {
        const int entry = find_entry(definition, prefix << REST);
        if (entry >> 8 <= FIRST_BITS) lookup.first[prefix] = uint16(entry);  // the first code of the others is longer
    }
    int end = 0, last = 0;  // of the codes up to `length` bits, and of all, in 16 bits
    for (int length = 1; length <= 16; ++length) last += definition.counts[length - 1] << (16 - length);
    for (int length = 1; length <= FIRST_BITS; ++length) end += definition.counts[length - 1] << (16 - length);
    int prefix = end >> REST, first = 0;
    NO_UNROLL
    for (int length = FIRST_BITS + 1; length <= 16; ++length) {
        end += definition.counts[length - 1] << (16 - length);
        const int more = length - FIRST_BITS, prefix_end = (end == last ? end + (1 << REST) - 1 : end) >> REST;
        for (int i = block.thread; i < (prefix_end - prefix) << more; i += block.threads) {
            lookup.longer[first + i] = uint16(find_entry(definition, ((prefix << more) + i) << (16 - length)));
            if (!(i & ((1 << more) - 1)))
                lookup.first[prefix + (i >> more)] = uint16(IS_LONGER | more << 12 | (first + i));
        }
        first += (prefix_end - prefix) << more, prefix = prefix_end;
    }
}

// One of a set's tables.
DEVICE void build_table(const Block& block, const HuffmanDefinitions& definitions, int number,
                        HuffmanLookups& lookups) {
    if (number < 2)
        build_lookup(block, definitions.dc[number], lookups.dc[number]);
    else
        build_lookup(block, definitions.ac[number - 2], lookups.ac[number - 2]);
}
