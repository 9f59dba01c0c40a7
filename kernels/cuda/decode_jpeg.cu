// Computes: the CUDA entry points of JPEG decoding, in the order of their launches: build_lookups,
//           scan_jpeg, decode_jpeg, color_jpeg.
// Threads:  build_lookups: grid (sets of tables, TABLES_PER_SET). scan_jpeg: a block per `JpegScan`. decode_jpeg: a
//           block per `JpegWork`. color_jpeg: a block per `JpegTile`. Their threads: jpeg_batch.h.
// Reference: core/scan_jpeg.h, core/decode_jpeg.h, core/color_jpeg.h.
// Tests:    tests/kernels/test_emulated_jpeg.py on a CPU; tests/cuda/test_jpeg.py.
namespace cuaug {

#include "core/decode_jpeg.h"
#include "core/color_jpeg.h"
#include "core/scan_jpeg.h"

// Copies a struct whose size is a multiple of 16 bytes to shared memory.
template <class T>
DEVICE void copy_to_shared(const Block& block, T& to, const T& from) {
    static_assert(sizeof(T) % 16 == 0, "whole vectors");
    for (int i = block.thread; i < int(sizeof(T) / 16); i += block.threads)
        reinterpret_cast<uint4*>(&to)[i] = __ldg(reinterpret_cast<const uint4*>(&from) + i);
}

extern "C" __global__ void __launch_bounds__(LOOKUP_THREADS)
    build_lookups(const HuffmanDefinitions* definitions, HuffmanLookups* lookups) {
    __shared__ HuffmanDefinitions shared;
    const Block block = {int(threadIdx.x), LOOKUP_THREADS};
    copy_to_shared(block, shared, definitions[blockIdx.x]);
    block.sync();
    build_table(block, shared, int(blockIdx.y), lookups[blockIdx.x]);
}

extern "C" __global__ void __launch_bounds__(SCAN_THREADS, 2) scan_jpeg(const JpegScan* scans) {
    __shared__ ScanScratch scratch;
    const Block block = {int(threadIdx.x), int(blockDim.x)};
    copy_to_shared(block, scratch.scan, scans[blockIdx.x]);
    block.sync();
    scan_image(block, scratch);
}

extern "C" __global__ void __launch_bounds__(DECODE_THREADS)
    decode_jpeg(const JpegImage* images, const JpegWork* work) {
    __shared__ __align__(16) HuffmanLookups lookups;
    __shared__ __align__(16) JpegImage image;
    __shared__ WarpScratch scratch[DECODE_THREADS / WARP_LANES];
    const Block block = {int(threadIdx.x), DECODE_THREADS};
    const JpegWork own = work[blockIdx.x];
    copy_to_shared(block, image, images[own.image]);
    copy_to_shared(block, lookups, *reinterpret_cast<const HuffmanLookups*>(images[own.image].lookups));
    for (int i = block.thread; i < int(sizeof scratch / 16); i += block.threads)
        reinterpret_cast<uint4*>(scratch)[i] = make_uint4(0, 0, 0, 0);
    block.sync();
    const int begin = block.thread / WARP_LANES * WARP_LANES;
    if (begin >= own.count) return;  // the whole warp; no barrier of the block follows
    decode_segments({block.thread % WARP_LANES}, image, lookups, own.first + begin, own.count - begin,
                    scratch[block.thread / WARP_LANES]);
}

extern "C" __global__ void __launch_bounds__(COLOR_THREADS) color_jpeg(const JpegImage* images, const JpegTile* tiles) {
    __shared__ __align__(16) JpegImage image;
    __shared__ __align__(16) uint32 rows[TILE_WORDS];
    const Block block = {int(threadIdx.x), COLOR_THREADS};
    const JpegTile own = tiles[blockIdx.x];
    copy_to_shared(block, image, images[own.image]);
    block.sync();
    color_tile(block, image, own.y, own.x, rows);
}

}  // namespace cuaug
