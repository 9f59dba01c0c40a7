// Where the rows of units begin in JPEGs that were seen before, and all along them: what lets a part of a file be cut
// out that has no restart markers. The C interface of cuaug/codec/jpeg_crop.py; jpeg/crop.h cuts.
//
// Finding an entry point takes a pass over all codes before it, so all of a file's are noted in one. A file is known by
// its bytes: one that is written anew is another file.
#pragma once
#include <unistd.h>

#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <unordered_map>
#include <vector>

#include "jpeg/huffman.h"
#include "jpeg/frame.h"

namespace {

// From one entry point to the next, about: a part is up to two of these wider than what is wanted of it. The most is
// what cuaug/codec/jpegtran.py has between restart markers.
constexpr int64_t LEAST_PIXELS_APART = 16, MOST_PIXELS_APART = 64;

int64_t units_in(const Frame& frame, int64_t pixels) { return frame.mcu_width < pixels ? pixels / frame.mcu_width : 1; }

struct Codes {
    DcCode dc[CODES_OF_A_KIND];
    AcCode ac[CODES_OF_A_KIND];
};

// Makes the codes that the frame uses, unless they are the last file's. False where one is missing or makes no sense.
bool make_codes(const Frame& frame, const unsigned char* data, Codes& codes) {
    for (int i = 0; i < frame.components; ++i) {
        const int dc = frame.component[i].codes[0], ac = frame.component[i].codes[1];
        if (dc >= CODES_OF_A_KIND || ac >= CODES_OF_A_KIND) return false;
        const int64_t dc_at = frame.codes_at[0][dc], ac_at = frame.codes_at[1][ac];
        if (!dc_at || !ac_at || !codes.dc[dc].make(data + dc_at) || !codes.ac[ac].make(data + ac_at)) return false;
    }
    return true;
}

// A file's entry points: all along each row, from its first unit on, and behind the last row.
struct Index {
    int64_t size;                       // of the file
    int64_t components, apart, across;  // units from one entry point to the next; entry points in a row
    std::vector<uint32_t> at;           // bits from the file's beginning, stuffed zeros among them
    std::vector<int16_t> dc;            // the components' DC coefficients before it

    const int16_t* before(int64_t number) const { return dc.data() + components * number; }
    Place place(const unsigned char* data, int64_t number) const {
        return {data + at[size_t(number)] / 8, int(at[size_t(number)] % 8)};
    }

    Index(const Frame& frame, int64_t size, int64_t apart)
        : size(size), components(frame.components), apart(apart), across(ceil_div(frame.across, apart)) {}

    // Whether this is as such a file's is made, and there are entry points at all.
    bool fits(const Frame& frame, int64_t its_size, int64_t its_apart) const {
        const Index its(frame, its_size, its_apart);
        return size == its.size && components == its.components && apart == its.apart && across == its.across &&
               int64_t(at.size()) == its.points(frame);
    }

    int64_t points(const Frame& frame) const { return frame.down * across + 1; }
    int64_t bytes(int64_t points) const { return int64_t(sizeof(Index)) + points * (4 + 2 * components); }

    // Notes them all. False where the data end too soon, or are not as encoders write them. A part has nothing of what
    // follows the codes, so this has to be the file's end: decoders may fail on more.
    bool make(const Frame& frame, const Codes& codes, const unsigned char* data) {
        Bits bits({data + frame.begin, 0}, data + size);
        int64_t sums[MOST_COMPONENTS] = {};
        at.reserve(size_t(points(frame))), dc.reserve(size_t(points(frame) * components));
        for (int64_t row = 0; row < frame.down; ++row)
            for (int64_t unit = 0; unit < frame.across; unit += apart) {
                const int64_t left = frame.across - unit;
                if (!note(frame, data, bits, sums) || !pass(frame, codes, left < apart ? left : apart, bits, sums))
                    return false;
            }
        if (!note(frame, data, bits, sums)) return false;
        const int64_t marker = next_marker(data, size, at.back() / 8);
        return marker >= 0 && data[marker + 1] == 0xd9;
    }

    // Goes past so many units. False where their codes make no sense.
    static bool pass(const Frame& frame, const Codes& codes, int64_t units, Bits& bits, int64_t* sums) {
        Bits here = bits;  // in registers
        for (int64_t unit = 0; unit < units; ++unit)
            for (int i = 0; i < frame.components; ++i) {
                const Component& component = frame.component[i];
                const DcCode& dc = codes.dc[component.codes[0]];
                const AcCode& ac = codes.ac[component.codes[1]];
                for (int block = 0; block < component.blocks; ++block)
                    if (!dc.pass(here, sums[i]) || !ac.pass(here)) return false;
            }
        bits = here;
        return true;
    }

    bool note(const Frame& frame, const unsigned char* data, const Bits& bits, const int64_t* sums) {
        if (bits.ran_out()) return false;
        const Place here = bits.place();
        at.push_back(uint32_t(8 * (here.byte - data) + here.bit));
        for (int i = 0; i < frame.components; ++i) {
            if (sums[i] != int16_t(sums[i])) return false;
            dc.push_back(int16_t(sums[i]));
        }
        return true;
    }
};

// The indexes of many files, by what their bytes come to: made at once where that pays for itself, else when a file is
// seen for the second time, as one pass over a dataset would pay for them in vain. Kept as long as there is room.
// Threads share it. A fork's copy finds nothing, keeps nothing and is not freed: a thread that the child does not have
// may hold the lock, and be at it.
struct Indexes {
    Indexes(int64_t limit, int64_t files) : left(limit), once(limit / 2), share(limit / (files < 1 ? 1 : files)) {
        std::random_device random;
        for (uint64_t& key : keys) key = uint64_t(random()) << 32 | random();
    }

    // Units from one entry point of such a file to the next: as few as leave room for the other files.
    int64_t units_apart(const Frame& frame) const {
        for (int64_t pixels = LEAST_PIXELS_APART; pixels < MOST_PIXELS_APART; pixels *= 2) {
            const Index index(frame, 0, units_in(frame, pixels));
            if (ENTRY + index.bytes(index.points(frame)) <= share) return index.apart;
        }
        return units_in(frame, MOST_PIXELS_APART);
    }

    // The index of a file, with so many units between entry points, which stays where it is; null where none can be
    // made, or not yet.
    const Index* of(const Frame& frame, const Codes& codes, const unsigned char* data, int64_t size, int64_t apart,
                    bool at_once) {
        if (!own() || size >= int64_t(1) << 29) return nullptr;  // the latter in bits is more than `at` holds
        const uint64_t key = checksum(data, size);
        int64_t room;
        {
            const std::lock_guard<std::mutex> hold(lock);
            const auto found = known.find(key);
            if (found == known.end()) {
                if (left >= ENTRY && once >= ENTRY) known.emplace(key, nullptr), left -= ENTRY, once -= ENTRY;
                if (!at_once) return nullptr;
            } else if (found->second) {
                return found->second->fits(frame, size, apart) ? found->second.get() : nullptr;
            }
            room = left;
        }
        auto made = std::make_unique<Index>(frame, size, apart);
        if (room < made->bytes(made->points(frame))) return nullptr;
        if (!made->make(frame, codes, data)) *made = Index(frame, size, apart);  // empty, and not to be tried again
        const std::lock_guard<std::mutex> hold(lock);
        std::unique_ptr<Index>& place = known[key];
        if (!place) {  // else another thread was quicker
            const int64_t takes = made->bytes(int64_t(made->at.size()));
            if (left < takes) return nullptr;
            left -= takes, place = std::move(made);
        }
        return place->fits(frame, size, apart) ? place.get() : nullptr;
    }

    // Whether this process made it, and did not get it by a fork.
    bool own() const { return process == getpid(); }

  private:
    static constexpr int64_t ENTRY = 64;  // bytes that a file takes without an index, about

    std::mutex lock;
    const pid_t process = getpid();
    std::unordered_map<uint64_t, std::unique_ptr<Index>> known;
    int64_t left;         // bytes
    int64_t once;         // bytes for files that were seen once, which leave the others to indexes
    const int64_t share;  // bytes for each file where all are to have an index
    uint64_t keys[8];

    // Of all bytes, in four chains, each sixteen at a time: their halves are multiplied, and what that comes to folded.
    // The keys are random, so that nobody can aim at two files that come to the same: one would be cut as the other.
    uint64_t checksum(const unsigned char* data, int64_t size) const {
        uint64_t sums[4];
        for (int chain = 0; chain < 4; ++chain) sums[chain] = keys[chain] + uint64_t(size);
        const auto add = [&](const unsigned char* bytes, int chain) {
            uint64_t words[2];
            memcpy(words, bytes, 16);
            sums[chain] = folded_product(words[0] ^ keys[4 + chain], words[1] ^ sums[chain]);
        };
        int64_t at = 0;
        for (; at + 64 <= size; at += 64)
            for (int chain = 0; chain < 4; ++chain) add(data + at + 16 * chain, chain);
        unsigned char rest[64] = {};
        memcpy(rest, data + at, size_t(size - at));
        for (int chain = 0; chain < 4; ++chain) add(rest + 16 * chain, chain);
        return folded_product(sums[0] ^ keys[4], sums[1]) ^ folded_product(sums[2] ^ keys[5], sums[3]);
    }

    static uint64_t folded_product(uint64_t a, uint64_t b) {
        const auto product = static_cast<unsigned __int128>(a) * b;
        return uint64_t(product) ^ uint64_t(product >> 64);
    }
};

}  // namespace

extern "C" {

// limit: the most bytes that the indexes may take together, of so many files. Null where there is no memory, or nothing
// random.
EXPORT void* cuaug_jpeg_index_new(int64_t limit, int64_t files) {
    try {
        return new Indexes(limit, files);
    } catch (const std::exception&) {
        return nullptr;
    }
}

// Nobody may be using them.
EXPORT void cuaug_jpeg_index_delete(void* indexes) {
    const auto its = static_cast<Indexes*>(indexes);
    if (its && its->own()) delete its;
}
}
