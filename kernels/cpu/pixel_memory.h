// Computes: memory for the pixels of one image, kept for the next.
// Threads:  one at a time.
// Reference: none.
// Tests:    tests/loader/test_memory.py.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace {

// A mapping of its own: malloc would keep large freed blocks, and blocks of many sizes, used by many threads, fragment
// its heap.
class PixelMemory {
  public:
    PixelMemory() = default;
    PixelMemory(const PixelMemory&) = delete;
    ~PixelMemory() { free(); }

    // At least `size` bytes, or a std::bad_alloc. A giant image's memory is freed after SHRINK_AFTER smaller images.
    uint8_t* reserve(int64_t size) {
        if (size > capacity_) {
            allocate(std::max({size, std::min(2 * capacity_, MAX_KEPT), MIN_KEPT}));
        } else if (capacity_ > MAX_KEPT) {
            small_uses_ = size <= MAX_KEPT ? small_uses_ + 1 : 0;
            if (small_uses_ == SHRINK_AFTER) allocate(MAX_KEPT);
        }
        return data_;
    }

  private:
    static constexpr int64_t MIN_KEPT = 3 << 18, MAX_KEPT = 64 << 20, HUGE_PAGES_FROM = 4 << 20;
    static constexpr int SHRINK_AFTER = 256;

    void free() {
        if (data_) munmap(data_, size_t(capacity_));
        data_ = nullptr, capacity_ = 0, small_uses_ = 0;
    }

    void allocate(int64_t capacity) {
        free();
        void* const memory =
            mmap(nullptr, size_t(capacity), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
        if (capacity >= HUGE_PAGES_FROM) (void)madvise(memory, size_t(capacity), MADV_HUGEPAGE);
#endif
        data_ = static_cast<uint8_t*>(memory), capacity_ = capacity;
    }

    uint8_t* data_ = nullptr;
    int64_t capacity_ = 0;
    int small_uses_ = 0;
};

}  // namespace
