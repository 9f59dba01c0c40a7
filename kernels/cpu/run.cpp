// Computes: all passes of one sample on the CPU. Compiled once per instruction set; CUAUG_ISA names the namespace, so
//           the linker never mixes code of two sets. For the same reason, no standard container is used.
// Threads:  the caller's; with CUAUG_BLOCK_THREADS, threads with a real barrier per block (ThreadSanitizer).
// Reference: core/augment.h.
// Tests:    tests/properties, tests/kernels/test_sanitizers.py.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "cpu/run.h"

#ifdef CUAUG_BLOCK_THREADS
#include <condition_variable>
#include <mutex>
#include <thread>
#endif

namespace CUAUG_ISA {

// Overloads for vectors, which the templates of core/ must find.
#include "cpu/bilinear_gather.h"
#include "cpu/philox_avx2.h"

#include "core/augment.h"
#include "cpu/clahe.h"
#include "cpu/fast_paths.h"
#ifdef CUAUG_BLOCK_THREADS
#include "core/jpeg_blocks.h"
#else
#include "cpu/jpeg_blocks.h"
#endif
#include "cpu/jpeg_pixels.h"
#include "cpu/median.h"
#include "cpu/pillow_resize.h"
#include "cpu/resample.h"
#include "cpu/store.h"
#include "cpu/yuv_rows.h"

namespace {

// Memory that a thread keeps from one image to the next.
struct Buffer {
    float* data = nullptr;
    size_t size = 0;

    bool hold(size_t floats, int64_t max_floats) {
        if (floats > uint64_t(max_floats)) return false;
#ifdef __SANITIZE_ADDRESS__
        if (floats == size) return true;  // exact, so that one float too many is out of bounds
#else
        if (floats <= size) return true;
#endif
        free(data);
        void* memory = nullptr;
        const bool have = posix_memalign(&memory, 64, floats * sizeof(float)) == 0;
        data = have ? static_cast<float*>(memory) : nullptr;
        size = have ? floats : 0;
        return have;
    }
    ~Buffer() { free(data); }
};

thread_local Buffer scratch, intermediate[2], counted;

#ifdef CUAUG_BLOCK_THREADS

struct RealBarrier : Barrier {
    std::mutex mutex;
    std::condition_variable all_here;
    int arrived = 0, generation = 0;

    void wait() override {
        std::unique_lock<std::mutex> lock(mutex);
        const int mine = generation;
        if (++arrived == CUAUG_BLOCK_THREADS) {
            arrived = 0, ++generation;
            all_here.notify_all();
        } else {
            all_here.wait(lock, [&] { return generation != mine; });
        }
    }
};

template <class Body>
void run_block(Body body) {
    RealBarrier barrier;
    std::thread threads[CUAUG_BLOCK_THREADS];
    for (int i = 0; i < CUAUG_BLOCK_THREADS; ++i)
        threads[i] = std::thread([&, i] { body(Block{i, CUAUG_BLOCK_THREADS, &barrier}); });
    for (auto& thread : threads) thread.join();
}

#else

template <class Body>
void run_block(Body body) {
    body(Block{});
}

#endif

bool run_pass(const Sample& sample, const Op* ops, const float* tables, int64* statistics, int tile_rows,
              int tile_columns, int64_t max_floats) {
    Buffer& memory = scratch;  // this thread's: the threads of the block share it
    bool has_memory = true;
    run_block([&](const Block& block) {
        for (int y = 0; y < sample.y.out; y += tile_rows) {
            for (int x = 0; x < sample.x.out; x += tile_columns) {
                const Tile tile = {y, x, min(tile_rows, sample.y.out - y), min(tile_columns, sample.x.out - x)};
                if (block.thread == 0)
                    has_memory =
                        has_memory && memory.hold(scratch_floats(SCRATCH, sample, tile.rows, tile.columns), max_floats);
                block.sync();
                if (has_memory) augment_tile(block, sample, ops, tables, statistics, tile, memory.data);
                block.sync();  // the memory is free again
            }
        }
    });
    return has_memory;
}

// A larger batch is written with streaming stores: the caches could not keep it, and would read every line before the
// write. tests/properties/test_store.py makes a batch just larger: adapt it.
constexpr int64 MAX_CACHED_BYTES = 16 << 20, CACHE_LINE = 64;

// Whole cache lines only: a line written in parts, some of them streamed, takes far longer.
bool streaming_stores(const Sample& sample, int64 samples) {
    if (sample.target.pitch > 0) return false;
    const int bytes = sample.target.type == UINT8 ? 1 : sample.target.type == FLOAT32 ? 4 : 2;
    const int64 row = int64(sample.x.out) * bytes * (sample.target.layout == HWC ? sample.target.channels : 1);
    const int64 planes = sample.target.layout == HWC ? 1 : sample.target.channels;
    return row % CACHE_LINE == 0 && samples * planes * sample.y.out * row > MAX_CACHED_BYTES;
}

// out = the values of three planes, interleaved.
template <class T>
void interleave_values(const void* planes, int64_t plane_bytes, int64_t pixels, void* out) {
    const T* const red = static_cast<const T*>(planes);
    const T* const green = red + plane_bytes / int64_t(sizeof(T));
    const T* const blue = green + plane_bytes / int64_t(sizeof(T));
    T* __restrict const to = static_cast<T*>(out);
    for (int64_t i = 0; i < pixels; ++i) to[3 * i] = red[i], to[3 * i + 1] = green[i], to[3 * i + 2] = blue[i];
}

// Chooses the output of a pass, the next one's source, and sets its target. Levels stay bytes; if they lie in the source
// as they are, there is no target. The address is 0 if memory ran out.
Source choose_output(Sample& sample, Buffer& buffer, int64_t max_floats) {
    const bool levels = keeps_uint8(sample);
    sample.target.address = 0;
    sample.target.type = levels ? UINT8 : FLOAT32;
    if (levels)
        if (const uint8* in_source = copied_source(sample))
            return {uint64(reinterpret_cast<uintptr_t>(in_source)), sample.source.pitch};
    const size_t pixels = size_t(sample.y.out) * sample.x.out, bytes = 3 * pixels * (levels ? 1 : sizeof(float));
    if (buffer.hold((bytes + sizeof(float) - 1) / sizeof(float), max_floats))
        sample.target.address = uint64(reinterpret_cast<uintptr_t>(buffer.data));
    return {sample.target.address, int64(bytes) / (sample.transposed ? sample.x.out : sample.y.out)};
}

}  // namespace

// Runs every pass of one sample. No buffer exceeds max_floats. rows: its row of the first pass; the next pass is
// `samples` rows on.
int run(const void* rows, int64_t samples, int passes, const void* ops, const float* tables, int64_t* statistics,
        const Image& image, void* target, int tile_rows, int tile_columns, int64_t max_floats) {
    const Sample* const first = static_cast<const Sample*>(rows);
    int max_words = 0;
    for (int pass = 0; pass < passes; ++pass) max_words = max(max_words, measured_words(first[pass * samples]));
    if (!statistics && !counted.hold(4 * size_t(max_words), max_floats)) return 1;
    int64* const memory = statistics ? statistics : reinterpret_cast<int64*>(counted.data);
    Source source = {uint64(reinterpret_cast<uintptr_t>(image.data)), image.pitch};
    int type = first->source_type;
    int unused = 0;  // the intermediate image that no pass reads
    for (int pass = 0; pass < passes; ++pass) {
        Sample sample = first[pass * samples];
        const bool is_last = pass + 1 == passes || !first[(pass + 1) * samples].active;
        sample.source = source, sample.source_type = type;
        if (pass == 0) sample.y.held_low = image.y, sample.x.held_low = image.x;
        if (is_last) {
            sample.target.address = uint64(reinterpret_cast<uintptr_t>(target));
            sample.target.streaming_stores = streaming_stores(sample, samples);
        } else {
            source = choose_output(sample, intermediate[unused], max_floats);
            type = sample.target.type;
            if (source.address == 0) return 1;
            if (sample.target.address == source.address) unused = 1 - unused;
        }
        if (!statistics) {  // statistics alternate: those before the last pass are free
            sample.measure.at = pass % 2 * max_words, sample.measured.at = (pass + 1) % 2 * max_words;
            if (sample.measure.kind) memset(memory + sample.measure.at, 0, sizeof(int64) * measured_words(sample));
        }
        const int rows = tile_rows > 0 ? tile_rows : sample.y.out;
        const int columns = tile_columns > 0 ? tile_columns : sample.x.out;
        const Op* program = static_cast<const Op*>(ops);
        if (!run_pass(sample, program, tables, memory, rows, columns, max_floats)) return 1;
        if (is_last) break;
    }
    streaming_fence();
    return 0;
}

void draw(uint32_t key0, uint32_t key1, const int64_t* index, int64_t n, uint32_t position, uint32_t first,
          int64_t count, double low, double span, double* out) {
    constexpr int GROUP = 16;  // samples whose counters the compiler vectorizes
    for (int64_t begin = 0; begin < n; begin += GROUP) {
        const int group = int(n - begin < GROUP ? n - begin : GROUP);
        uint32 index_low[GROUP] = {}, index_high[GROUP] = {}, words[4][GROUP];
        for (int i = 0; i < group; ++i) {
            index_low[i] = uint32(index[begin + i]);
            index_high[i] = uint32(uint64(index[begin + i]) >> 32);
        }
        for (int64_t k = 0; k < count; ++k) {
            const uint32 number = first + uint32(k);
            if (k == 0 || number % 4 == 0) {
                for (int i = 0; i < GROUP; ++i) {
                    const Philox block = philox(key0, key1, index_low[i], index_high[i], position, number / 4);
                    for (int word = 0; word < 4; ++word) words[word][i] = block.word[word];
                }
            }
            for (int i = 0; i < group; ++i)
                out[(begin + i) * count + k] = low + words[number % 4][i] * (1.0 / 4294967296.0) * span;
        }
    }
}

void interleave(const void* planes, int64_t plane_bytes, int64_t pixels, int bytes, void* out) {
    if (bytes == 1)
        interleave_values<uint8>(planes, plane_bytes, pixels, out);
    else
        interleave_values<float>(planes, plane_bytes, pixels, out);
}

void convert_yuv_images(const void* images, int64_t count) {
    const YuvImage* const frames = static_cast<const YuvImage*>(images);
    for (int64_t i = 0; i < count; ++i)
        if (frames[i].sample_bytes == 1)
            convert_yuv<uint8>(frames[i]);
        else
            convert_yuv<uint16>(frames[i]);
}

}  // namespace CUAUG_ISA
