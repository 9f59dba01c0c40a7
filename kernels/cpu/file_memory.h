// Computes: whole files and ranges of files in memory: the files of a batch lie in a few chunks.
// Threads:  any; `FileMemory` locks.
// Reference: POSIX open, read, pread.
// Tests:    tests/sources, tests/loader/test_native_work.py, tests/loader/test_native_tars.py.
#pragma once
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "cpu/crc32.h"
#include "cpu/file_part.h"
#include "cpu/file_status.h"

namespace {

// Chunks that the next batch's files reuse: fresh memory costs a page fault for each 4 kB.
class KeptChunks {
  public:
    unsigned char* take() {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!count_) return static_cast<unsigned char*>(malloc(size_t(BYTES)));
        return chunks_[--count_];
    }

    void give_back(unsigned char* chunk) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (count_ < MAX_COUNT) {
                chunks_[count_++] = chunk;
                return;
            }
        }
        free(chunk);
    }

    void release() {
        const std::lock_guard<std::mutex> lock(mutex_);
        while (count_) free(chunks_[--count_]);
    }

    static constexpr int64_t BYTES = 4 << 20;

  private:
    static constexpr int MAX_COUNT = 32;
    std::mutex mutex_;
    unsigned char* chunks_[MAX_COUNT];
    int count_ = 0;
};

KeptChunks*& current_chunks() {  // never destroyed: threads may give chunks back at exit
    static KeptChunks* chunks = new KeptChunks;
    return chunks;
}

KeptChunks& kept_chunks() {
    // A forked child begins anew: a thread that it lacks may have held the lock.
    static const int is_registered = pthread_atfork(nullptr, nullptr, [] { current_chunks() = new KeptChunks; });
    (void)is_registered;
    return *current_chunks();
}

class FileMemory {
  public:
    FileMemory() = default;
    FileMemory(const FileMemory&) = delete;
    ~FileMemory() {
        for (const Chunk& chunk : chunks_) free_chunk(chunk.data, chunk.size);
    }

    // Memory for a file, and where that is; null if there is none.
    unsigned char* allocate(int64_t size, int64_t& chunk, int64_t& offset) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (chunks_.empty() || chunks_.back().size - used_ < size) {
            const int64_t bytes = std::max(size, KeptChunks::BYTES);
            auto* const data =
                bytes > KeptChunks::BYTES ? static_cast<unsigned char*>(malloc(size_t(bytes))) : kept_chunks().take();
            if (!data) return nullptr;
            try {
                chunks_.push_back({data, bytes});
            } catch (const std::bad_alloc&) {
                free_chunk(data, bytes);
                return nullptr;
            }
            used_ = 0;
        }
        chunk = int64_t(chunks_.size()) - 1, offset = used_;
        used_ += size;
        return chunks_.back().data + offset;
    }

    int64_t chunks() const { return int64_t(chunks_.size()); }

    // The caller owns the chunk from now on.
    unsigned char* release(int64_t chunk, int64_t& size) {
        size = chunks_[size_t(chunk)].size;
        return std::exchange(chunks_[size_t(chunk)].data, nullptr);
    }

    static void free_chunk(unsigned char* data, int64_t size) {
        if (data && size == KeptChunks::BYTES)
            kept_chunks().give_back(data);
        else
            free(data);
    }

  private:
    struct Chunk {
        unsigned char* data;
        int64_t size;
    };

    std::mutex mutex_;
    std::vector<Chunk> chunks_;
    int64_t used_ = 0;  // bytes of the last chunk
};

constexpr int64_t MAX_HEADER_BYTES = 512;  // of a tar

// Reads a whole regular file. `data` stays null if it cannot be opened at once, is empty, has more than max_bytes, or
// is incomplete. Returns whether its status was the same before and after.
bool read_file(const char* path, int64_t max_bytes, FileMemory& memory, const unsigned char*& data, int64_t& size,
               int64_t& chunk, int64_t& offset, FileStatus& status) {
    data = nullptr, size = 0;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for its writer
    if (file < 0) return false;
    if (status.read(file) && status.is_regular && status.size > 0 && status.size <= max_bytes) {
        unsigned char* const to = memory.allocate(status.size, chunk, offset);
        while (to && size < status.size) {
            const ssize_t came = read(file, to + size, size_t(status.size - size));
            if (came > 0)
                size += came;
            else if (came == 0 || errno != EINTR)
                break;
        }
        if (to && size == status.size) data = to;
    }
    FileStatus after;
    const bool is_same = after.read(file) && after == status;
    close(file);
    return is_same;
}

// An open file, and the state that it had when its content was known to be good; or bytes in memory.
struct OpenFile {
    int64_t descriptor;  // -1: bytes in memory
    int64_t size;
    int64_t modified;  // in nanoseconds; or the address of the bytes in memory
    int64_t changed;
};

// status: receives what is known of a file, but of bytes in memory.
bool is_unchanged(const OpenFile& file, FileStatus& status) {
    if (file.descriptor < 0) return true;
    return status.read(int(file.descriptor)) && status.size == file.size && status.modified == file.modified &&
           status.changed == file.changed;
}

bool read_fully(const OpenFile& file, int64_t begin, int64_t size, unsigned char* to) {
    if (file.descriptor < 0) {
        if (begin < 0 || size < 0 || begin > file.size || size > file.size - begin) return false;
        if (size) memcpy(to, reinterpret_cast<const unsigned char*>(file.modified) + begin, size_t(size));
        return true;
    }
    return read_at(int(file.descriptor), to, size, begin) == size;
}

// Reads a range of a file, or of bytes in memory. `data` stays null if it has more than max_bytes or is incomplete, if
// the file has changed, or if the header_bytes before the range have another CRC-32. Both checks come after reading, as
// in cuaug/sources/shards/shards.py: the file may change at any moment. Returns whether it was read from a file.
bool read_range(const OpenFile& file, int64_t begin, int64_t size, int64_t header_bytes, uint32_t header_crc,
                int64_t max_bytes, FileMemory& memory, const unsigned char*& data, int64_t& chunk, int64_t& offset,
                FileStatus& status) {
    unsigned char header[MAX_HEADER_BYTES];
    data = nullptr;
    if (size > max_bytes || header_bytes > MAX_HEADER_BYTES) return false;
    unsigned char* const to = memory.allocate(size, chunk, offset);
    if (!to || !read_fully(file, begin, size, to) || !is_unchanged(file, status)) return false;
    if (header_bytes &&
        (!read_fully(file, begin - header_bytes, header_bytes, header) || crc32(header, header_bytes) != header_crc))
        return false;
    data = to;
    return file.descriptor >= 0;
}

}  // namespace

extern "C" {

EXPORT void* cuaug_file_memory_new() { return new (std::nothrow) FileMemory; }

EXPORT void cuaug_file_memory_delete(void* memory) { delete static_cast<FileMemory*>(memory); }

EXPORT int64_t cuaug_file_memory_chunks(void* memory) { return static_cast<FileMemory*>(memory)->chunks(); }

// Returns the chunk's address, and its size; the caller frees it with cuaug_free_chunk.
EXPORT void* cuaug_file_memory_release(void* memory, int64_t chunk, int64_t* size) {
    return static_cast<FileMemory*>(memory)->release(chunk, *size);
}

EXPORT void cuaug_free_chunk(void* chunk, int64_t size) {
    FileMemory::free_chunk(static_cast<unsigned char*>(chunk), size);
}

// Frees the memory that is kept for the next files.
EXPORT void cuaug_free_kept_chunks() { kept_chunks().release(); }
}
