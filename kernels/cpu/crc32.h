// Computes: CRC-32, as zlib and gzip do.
// Threads:  any; the table is constant.
// Reference: RFC 1952, section 8 (polynomial 0xEDB88320, reflected).
// Tests:    tests/loader/test_native_tars.py.
#pragma once
#include <array>
#include <cstdint>

namespace {

constexpr std::array<uint32_t, 256> crc32_table() {
    std::array<uint32_t, 256> table{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
        table[byte] = crc;
    }
    return table;
}

uint32_t crc32(const unsigned char* data, int64_t size) {
    static constexpr std::array<uint32_t, 256> TABLE = crc32_table();
    uint32_t crc = ~0u;
    for (int64_t i = 0; i < size; ++i) crc = crc >> 8 ^ TABLE[(crc ^ data[i]) & 0xff];
    return ~crc;
}

}  // namespace
