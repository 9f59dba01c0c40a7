// Computes: a region of an encoded image as displayed: which part of the stored image to decode, whether to crop the
//           JPEG first, and the EXIF orientation of the pixels. C interface of cuaug/codec/cpu_decoder.py.
// Threads:  the caller's alone; one decoder serves one thread at a time.
// Reference: tests/codec/test_regions.py slices the whole image; EXIF 2.3, 4.6.4, tag 274.
// Tests:    tests/codec/test_regions.py, test_exif.py, test_index.py; under sanitizers:
//           tests/sanitize/sanitized_decoding.py.
#pragma once
#include <algorithm>
#include <cstdint>

#include "cpu/stderr_capture.h"
#include "jpeg/decode.h"
#include "jpeg/exif_transpose.h"

namespace {

// Narrower regions, in pixels, are sliced from the whole image: libjpeg does not smooth the chroma of an image, or of a
// cropped row, that is a few pixels wide, and the region would differ from the image by some levels.
constexpr int64_t MIN_CROP_SIDE = 8;
// Bytes of a JPEG that a crop by the index must leave out to pay for its checksum and its copy.
constexpr int64_t MIN_BYTES_SAVED = 8192;
// Pixels by which a JPEG crop may extend beyond its region on each side: the distance of entry points plus the
// neighbors that chroma smoothing reads.
constexpr int64_t CROP_MARGIN = 80;

// A row of int64 that Python fills in. Sizes and regions are in pixels, as displayed.
struct EncodedRegion {
    int64_t data, size;        // the file: address, bytes
    int64_t height, width;     // of its image
    int64_t orientation;       // EXIF, 1 to 8
    int64_t restart_interval;  // MCUs; 0 without restart markers
    int64_t is_jpeg;
    int64_t y0, x0, y1, x1;  // the ends are excluded
};

// The stored pixels to decode.
struct StoredRegion {
    int64_t height, width;  // of the stored image
    Rectangle region;
    bool crop;         // whether to try a JPEG crop first
    int64_t capacity;  // bytes for decoded pixels
    int64_t bytes;     // the same, and for their orientation
};

// Whether a decoder without the crop, which reads all rows down to the region's last, would read many bytes in vain.
bool pays_to_crop(const EncodedRegion& image, const StoredRegion& stored, bool has_index) {
    const Rectangle& region = stored.region;
    if (!image.restart_interval && !(has_index && image.is_jpeg)) return false;
    const int64_t min_bytes = image.restart_interval ? 0 : MIN_BYTES_SAVED;
    const int64_t left_out = region.bottom * stored.width - (region.bottom - region.top) * (region.right - region.left);
    return left_out * image.size >= min_bytes * stored.height * stored.width;
}

// A region of the displayed image in the stored image [height, width].
Rectangle stored_rectangle(int64_t orientation, int64_t height, int64_t width, Rectangle region) {
    if (swaps_axes(orientation)) region = {region.left, region.top, region.right, region.bottom};
    if (flips_rows(orientation)) region = {height - region.bottom, region.left, height - region.top, region.right};
    if (flips_columns(orientation)) region = {region.top, width - region.right, region.bottom, width - region.left};
    return region;
}

StoredRegion find_stored_region(const EncodedRegion& image, bool has_index) {
    StoredRegion stored = {image.height, image.width, {0, 0, image.height, image.width}, false, 0, 0};
    const bool is_whole = image.y1 - image.y0 == image.height && image.x1 - image.x0 == image.width;
    const bool is_narrow = std::min(image.y1 - image.y0, image.x1 - image.x0) < MIN_CROP_SIDE;
    if (!is_whole && !is_narrow) stored.region = {image.y0, image.x0, image.y1, image.x1};
    if (swaps_axes(image.orientation)) std::swap(stored.height, stored.width);
    const Rectangle region = stored.region =
        stored_rectangle(image.orientation, stored.height, stored.width, stored.region);
    int64_t height = region.bottom - region.top, width = region.right - region.left;
    const int64_t oriented_bytes = image.orientation == 1 ? 0 : 3 * height * width;
    stored.crop = !is_whole && !is_narrow && pays_to_crop(image, stored, has_index);
    if (stored.crop) {
        height = std::min(height + 2 * CROP_MARGIN, stored.height);
        width = std::min(width + 2 * CROP_MARGIN, stored.width);
    }
    stored.capacity = 3 * height * width;
    stored.bytes = stored.capacity + oriented_bytes;
    return stored;
}

// Decoded pixels of a region: the address of pixel (y0, x0), and bytes between rows.
struct RegionPixels {
    const uint8_t* first;
    int64_t pitch;
};

// Decodes into `memory` [stored.bytes].
Status decode_region(NativeDecoder& decoder, const EncodedRegion& image, const StoredRegion& stored, JpegIndex* index,
                     uint8_t* memory, RegionPixels& pixels) {
    const Rectangle& region = stored.region;
    Request request = {image.data,    image.size,   stored.height,   stored.width,    region.top, region.left,
                       region.bottom, region.right, int64_t(memory), stored.capacity, stored.crop};
    Status status = FAILED;
    try {
        status = decode_image(decoder, request, index);
    } catch (const std::bad_alloc&) {
    }
    if (status == FAILED) return FAILED;
    int64_t pitch = 3 * (request.right - request.left);
    const uint8_t* first = memory + (region.top - request.top) * pitch + 3 * (region.left - request.left);
    // We orient the pixels: nvImageCodec takes as long for that as for decoding, and orients the whole image.
    const int64_t height = region.bottom - region.top, width = region.right - region.left;
    if (image.orientation != 1) {
        uint8_t* const oriented = memory + stored.capacity;
        cuaug_apply_orientation(first, pitch, height, width, int(image.orientation), oriented);
        first = oriented, pitch = 3 * (swaps_axes(image.orientation) ? height : width);
    }
    const bool holds_all = height * width == image.height * image.width;
    pixels = {holds_all ? first + image.y0 * pitch + 3 * image.x0 : first, pitch};
    return status;
}

}  // namespace

extern "C" {

// Decodes one region in the calling thread. region: `EncodedRegion`. index: a `JpegIndex` or null.
// memory [capacity]: receives the pixels. out [4]: the offset of pixel (y0, x0) in `memory`, bytes between rows, bytes
// of memory that are needed, bytes of text. text [text_size]: lines printed to stderr. Returns a `Status`; FAILED with
// out[2] > capacity if the memory is too small.
EXPORT int32_t cuaug_decode_region(void* decoder, const void* region, void* index, uint8_t* memory, int64_t capacity,
                                   int64_t* out, char* text, int64_t text_size) {
    const auto& image = *static_cast<const EncodedRegion*>(region);
    const StoredRegion stored = find_stored_region(image, index);
    out[0] = out[1] = out[3] = 0, out[2] = stored.bytes;
    if (stored.bytes > capacity) return FAILED;
    RegionPixels pixels = {memory, 0};
    capture.begin();
    const Status status = decode_region(*static_cast<NativeDecoder*>(decoder), image, stored,
                                        static_cast<JpegIndex*>(index), memory, pixels);
    out[3] = capture.end(text, text_size);
    out[0] = pixels.first - memory, out[1] = pixels.pitch;
    return status;
}
}
