// Computes: pixels of stored images, or of regions of them, by nvImageCodec's CPU decoders. C
//           interface of cuaug/codec/_nvimgcodec_c.py.
// Threads:  the caller's alone; one decoder serves one thread at a time.
// Reference: kernels/jpeg/nvimgcodec.h.
// Tests:    tests/codec/test_nvimgcodec_c.py, test_regions.py; under sanitizers: tests/sanitize/sanitized_decoding.py.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <new>

#include "jpeg/nvimgcodec.h"
#include "jpeg/crop.h"

namespace {

// nvImageCodec with its extensions. It is never freed: decoders of other threads may run at exit.
struct Codec {
    nvimgcodec::Functions call;
    void* instance = nullptr;
};

// nvImageCodec objects of one decode, reused by the next.
struct Handles {
    void *stream = nullptr, *region = nullptr, *image = nullptr;
};

// A cropped JPEG may be larger than its file by this much: its codes are aligned differently and may need stuffing.
constexpr int64_t SPARE_BYTES = 64;
// Largest buffer for cropped JPEGs that is kept for the next call.
constexpr int64_t MAX_KEPT_BYTES = 64 << 20;

enum Status : uint8_t { FAILED = 0, FROM_FILE = 1, FROM_CROP = 2 };

struct NativeDecoder {
    const Codec* codec;
    void* decoder = nullptr;
    Handles handles;
    std::unique_ptr<unsigned char[]> crop_buffer;
    int64_t crop_capacity = 0;
    const pid_t process = getpid();
};

// Sizes and regions are in pixels, as stored.
struct Request {
    int64_t data, size;                // the file: address, bytes
    int64_t height, width;             // of its image
    int64_t top, left, bottom, right;  // in: the region, ends excluded; out: the decoded region, which contains it
    int64_t pixels, capacity;          // output: address and bytes, for packed [h, w, 3] uint8
    int64_t crop;                      // whether to try a JPEG crop first
};

bool read_size(const Codec& codec, void* stream, int64_t& height, int64_t& width) {
    auto info = nvimgcodec::make<nvimgcodec::ImageInfo>();
    if (codec.call.get_image_info(stream, &info) != nvimgcodec::STATUS_SUCCESS) return false;
    height = info.plane_info[0].height, width = info.plane_info[0].width;
    return true;
}

bool open_stream(const Codec& codec, const unsigned char* data, int64_t size, void*& stream) {
    return codec.call.code_stream_create(codec.instance, &stream, data, size_t(size), nullptr) ==
           nvimgcodec::STATUS_SUCCESS;
}

// Opens the code stream of the request's region; null where nvImageCodec reads another image size, or none.
void* open_region(const Codec& codec, const Request& request, Handles& handles) {
    int64_t height, width;
    if (!open_stream(codec, reinterpret_cast<const unsigned char*>(request.data), request.size, handles.stream) ||
        !read_size(codec, handles.stream, height, width) || height != request.height || width != request.width)
        return nullptr;
    if (!request.top && !request.left && request.bottom == height && request.right == width) return handles.stream;
    auto view = nvimgcodec::make<nvimgcodec::CodeStreamView>();
    view.region = nvimgcodec::make<nvimgcodec::Region>();
    view.region.ndim = 2;
    view.region.start[0] = int32_t(request.top), view.region.start[1] = int32_t(request.left);
    view.region.end[0] = int32_t(request.bottom), view.region.end[1] = int32_t(request.right);
    return codec.call.get_sub_code_stream(handles.stream, &handles.region, &view) == nvimgcodec::STATUS_SUCCESS
               ? handles.region
               : nullptr;
}

// The same from a JPEG crop, written to `buffer`. The whole crop is decoded if its pixels fit: libjpeg-turbo takes
// longer to leave out the few pixels around the region.
void* open_crop(const Codec& codec, Request& request, JpegIndex* index, unsigned char* buffer, Handles& handles) {
    const Rectangle region = {request.top, request.left, request.bottom, request.right};
    Rectangle crop = {};
    const auto* const data = reinterpret_cast<const unsigned char*>(request.data);
    const int64_t written = crop_jpeg(data, request.size, region, index, buffer, request.size + SPARE_BYTES, crop);
    if (!written) return nullptr;
    const int64_t height = crop.bottom - crop.top, width = crop.right - crop.left;
    const Rectangle& decoded = 3 * height * width <= request.capacity ? crop : region;
    Request inner = request;
    inner.data = int64_t(buffer), inner.size = written, inner.height = height, inner.width = width;
    inner.top = decoded.top - crop.top, inner.left = decoded.left - crop.left;
    inner.bottom = decoded.bottom - crop.top, inner.right = decoded.right - crop.left;
    void* const stream = open_region(codec, inner, handles);
    if (stream) {
        request.top = decoded.top, request.left = decoded.left;
        request.bottom = decoded.bottom, request.right = decoded.right;
    }
    return stream;
}

// The buffer for a crop of a file of this size.
unsigned char* reserve_crop_buffer(NativeDecoder& decoder, int64_t size) {
    if (size + SPARE_BYTES > decoder.crop_capacity || decoder.crop_capacity > MAX_KEPT_BYTES) {
        decoder.crop_capacity = 0;
        decoder.crop_buffer.reset(new unsigned char[size_t(size + SPARE_BYTES)]);
        decoder.crop_capacity = size + SPARE_BYTES;
    }
    return decoder.crop_buffer.get();
}

bool open_output(const Codec& codec, const Request& request, Handles& handles) {
    auto image = nvimgcodec::make<nvimgcodec::ImageInfo>();
    image.color_spec = nvimgcodec::COLORSPEC_SRGB;
    image.sample_format = nvimgcodec::SAMPLEFORMAT_I_RGB;
    image.orientation = nvimgcodec::make<nvimgcodec::Orientation>();
    image.num_planes = 1;
    auto& plane = image.plane_info[0] = nvimgcodec::make<nvimgcodec::ImagePlaneInfo>();
    plane.height = uint32_t(request.bottom - request.top), plane.width = uint32_t(request.right - request.left);
    plane.row_stride = 3 * size_t(plane.width);
    plane.num_channels = 3;
    plane.sample_type = nvimgcodec::SAMPLE_DATA_TYPE_UINT8;
    image.buffer = reinterpret_cast<void*>(request.pixels);
    image.buffer_kind = nvimgcodec::IMAGE_BUFFER_KIND_STRIDED_HOST;
    return codec.call.image_create(codec.instance, &handles.image, &image) == nvimgcodec::STATUS_SUCCESS;
}

// Decodes one image in a call of its own: captured lines belong to it, and a bad file cannot spoil another.
Status decode_image(NativeDecoder& decoder, Request& request, JpegIndex* index) {
    const Codec& codec = *decoder.codec;
    const auto& call = codec.call;
    Handles& handles = decoder.handles;
    void* stream = nullptr;
    if (request.crop) stream = open_crop(codec, request, index, reserve_crop_buffer(decoder, request.size), handles);
    const Status status_if_decoded = stream ? FROM_CROP : FROM_FILE;
    if (!stream) stream = open_region(codec, request, handles);
    if (!stream || !open_output(codec, request, handles)) return FAILED;
    const auto as_stored = nvimgcodec::make<nvimgcodec::DecodeParams>();
    void* future = nullptr;
    uint32_t status = 0;
    size_t count = 1;
    const bool has_status =
        call.decode(decoder.decoder, &stream, &handles.image, 1, &as_stored, &future) == nvimgcodec::STATUS_SUCCESS &&
        call.future_wait(future) == nvimgcodec::STATUS_SUCCESS &&
        call.future_get_status(future, &status, &count) == nvimgcodec::STATUS_SUCCESS;
    if (future) call.future_destroy(future);
    return has_status && status == nvimgcodec::PROCESSING_STATUS_SUCCESS ? status_if_decoded : FAILED;
}

}  // namespace

extern "C" {

// The version of nvImageCodec as 1000 * major + 100 * minor + patch; -1 on failure.
EXPORT int64_t cuaug_codec_version(const nvimgcodec::Functions* functions) {
    auto properties = nvimgcodec::make<nvimgcodec::Properties>();
    return functions->get_properties(&properties) == nvimgcodec::STATUS_SUCCESS ? properties.version : -1;
}

// Makes nvImageCodec with the extensions whose entry points are `entries` [count]; null on failure.
EXPORT void* cuaug_codec_new(const nvimgcodec::Functions* functions,
                             int32_t (*const* entries)(nvimgcodec::ExtensionDesc*), int64_t count) {
    std::unique_ptr<Codec> codec(new (std::nothrow) Codec{*functions});
    auto create = nvimgcodec::make<nvimgcodec::InstanceCreateInfo>();
    create.load_builtin_modules = 1;
    if (!codec || codec->call.instance_create(&codec->instance, &create) != nvimgcodec::STATUS_SUCCESS) return nullptr;
    for (int64_t i = 0; i < count; ++i) {
        auto extension = nvimgcodec::make<nvimgcodec::ExtensionDesc>();
        void* loaded = nullptr;
        if (entries[i](&extension) != nvimgcodec::STATUS_SUCCESS ||
            codec->call.extension_create(codec->instance, &loaded, &extension) != nvimgcodec::STATUS_SUCCESS)
            return nullptr;
    }
    return codec.release();
}

// size [2]: stored height and width of an encoded image. Returns whether nvImageCodec can read them.
EXPORT int32_t cuaug_codec_size(const void* codec, const unsigned char* data, int64_t bytes, int64_t* size) {
    const Codec& its = *static_cast<const Codec*>(codec);
    void* stream = nullptr;
    const bool has_size = open_stream(its, data, bytes, stream) && read_size(its, stream, size[0], size[1]);
    if (stream) its.call.code_stream_destroy(stream);
    return has_size;
}

// Makes a decoder for one thread; null on failure.
EXPORT void* cuaug_decoder_new(const void* codec, const char* options) {
    std::unique_ptr<NativeDecoder> decoder(new (std::nothrow) NativeDecoder{static_cast<const Codec*>(codec)});
    if (!decoder) return nullptr;
    auto backend = nvimgcodec::make<nvimgcodec::Backend>();
    backend.kind = nvimgcodec::BACKEND_KIND_CPU_ONLY;
    backend.params = nvimgcodec::make<nvimgcodec::BackendParams>();
    backend.params.load_hint = 1, backend.params.load_hint_policy = nvimgcodec::LOAD_HINT_POLICY_IGNORE;
    auto execution = nvimgcodec::make<nvimgcodec::ExecutionParams>();
    execution.max_num_cpu_threads = 1;  // the caller's
    execution.device_id = nvimgcodec::DEVICE_CPU_ONLY;
    execution.backends = &backend, execution.num_backends = 1;
    const Codec& its = *decoder->codec;
    const int32_t status = its.call.decoder_create(its.instance, &decoder->decoder, &execution, options);
    return status == nvimgcodec::STATUS_SUCCESS ? decoder.release() : nullptr;
}

// A forked child frees nothing: a thread of the parent may have been decoding at the fork.
EXPORT void cuaug_decoder_delete(void* decoder) {
    if (static_cast<NativeDecoder*>(decoder)->process != getpid()) return;
    const std::unique_ptr<NativeDecoder> owned(static_cast<NativeDecoder*>(decoder));
    const auto& call = owned->codec->call;
    if (owned->handles.image) call.image_destroy(owned->handles.image);
    if (owned->handles.region) call.code_stream_destroy(owned->handles.region);
    if (owned->handles.stream) call.code_stream_destroy(owned->handles.stream);
    call.decoder_destroy(owned->decoder);
}
}
