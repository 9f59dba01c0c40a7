// Pictures decoded on the CPU by nvImageCodec, some in a call: the C interface of cuaug/codec/_nvimgcodec_c.py.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <new>

#include "cpu/stderr_capture.h"
#include "jpeg/nvimgcodec.h"
#include "jpeg/crop.h"

namespace {

// nvImageCodec with its extensions. It lasts as long as the process: decoders of other threads may be at work at exit.
struct Codec {
    nvimgcodec::Functions call;
    void* instance = nullptr;
};

// What decoding a picture takes, kept for the next one.
struct Opened {
    void *stream = nullptr, *region = nullptr, *image = nullptr;
};

// By how many bytes a part may be larger than its file: codes that lie otherwise in their bytes can take more of them.
constexpr int64_t SPARE = 64;
// Memory for parts that is kept for the next call.
constexpr int64_t KEEP_BYTES = 64 << 20;

enum Done : uint8_t { NOT = 0, FROM_FILE = 1, FROM_CROP = 2 };

struct HostDecoder {
    const Codec* codec;
    void* decoder = nullptr;
    Opened opened;
    std::unique_ptr<unsigned char[]> part;
    int64_t part_size = 0;
    const pid_t process = getpid();
};

// What is to be decoded, and where to.
struct Encoded {
    int64_t data, size;                // the file: its address and bytes
    int64_t height, width;             // of its picture, as stored
    int64_t top, left, bottom, right;  // of the region, the ends excluded; then of what was decoded, which holds it
    int64_t pixels, room;              // the address of so many bytes, for packed pixels of three
    int64_t cut;                       // whether a part of the file, if there is one, is to be decoded instead
};

bool stream_size(const Codec& codec, void* stream, int64_t& height, int64_t& width) {
    auto info = nvimgcodec::made<nvimgcodec::Image>(nvimgcodec::Kind::IMAGE);
    if (codec.call.stream_info(stream, &info) != nvimgcodec::OK) return false;
    height = info.planes[0].height, width = info.planes[0].width;
    return true;
}

bool open_stream(const Codec& codec, const unsigned char* data, int64_t size, void*& stream) {
    return codec.call.code_stream(codec.instance, &stream, data, size_t(size), nullptr) == nvimgcodec::OK;
}

// The code stream that gives one of these regions, or null where nvImageCodec finds another picture, or none.
void* open_region(const Codec& codec, const Encoded& one, Opened& opened) {
    int64_t height, width;
    if (!open_stream(codec, reinterpret_cast<const unsigned char*>(one.data), one.size, opened.stream) ||
        !stream_size(codec, opened.stream, height, width) || height != one.height || width != one.width)
        return nullptr;
    if (!one.top && !one.left && one.bottom == height && one.right == width) return opened.stream;
    auto view = nvimgcodec::made<nvimgcodec::View>(nvimgcodec::Kind::VIEW);
    view.region = nvimgcodec::made<nvimgcodec::Region>(nvimgcodec::Kind::REGION);
    view.region.dimensions = 2;
    view.region.begin[0] = int32_t(one.top), view.region.begin[1] = int32_t(one.left);
    view.region.end[0] = int32_t(one.bottom), view.region.end[1] = int32_t(one.right);
    return codec.call.sub_stream(opened.stream, &opened.region, &view) == nvimgcodec::OK ? opened.region : nullptr;
}

// The same from a part of the file, which is written to `to`. Where there is room, all of the part is to be decoded:
// libjpeg-turbo takes longer to leave out what is beside a region, which is little.
void* open_part(const Codec& codec, Encoded& one, Indexes* indexes, unsigned char* to, Opened& opened) {
    const Rectangle region = {one.top, one.left, one.bottom, one.right};
    Rectangle part = {};
    const auto* const data = reinterpret_cast<const unsigned char*>(one.data);
    const int64_t written = cut_jpeg(data, one.size, region, indexes, to, one.size + SPARE, part);
    if (!written) return nullptr;
    const int64_t height = part.bottom - part.top, width = part.right - part.left;
    const Rectangle& shown = 3 * height * width <= one.room ? part : region;
    Encoded inside = one;
    inside.data = int64_t(to), inside.size = written, inside.height = height, inside.width = width;
    inside.top = shown.top - part.top, inside.left = shown.left - part.left;
    inside.bottom = shown.bottom - part.top, inside.right = shown.right - part.left;
    void* const stream = open_region(codec, inside, opened);
    if (stream) one.top = shown.top, one.left = shown.left, one.bottom = shown.bottom, one.right = shown.right;
    return stream;
}

// Memory for a part of a file of this size.
unsigned char* part_memory(HostDecoder& by, int64_t size) {
    if (size + SPARE > by.part_size || by.part_size > KEEP_BYTES) {
        by.part_size = 0;
        by.part.reset(new unsigned char[size_t(size + SPARE)]);
        by.part_size = size + SPARE;
    }
    return by.part.get();
}

bool open_pixels(const Codec& codec, const Encoded& one, Opened& opened) {
    auto image = nvimgcodec::made<nvimgcodec::Image>(nvimgcodec::Kind::IMAGE);
    image.colours = nvimgcodec::SRGB;
    image.format = nvimgcodec::INTERLEAVED_RGB;
    image.orientation = nvimgcodec::made<nvimgcodec::Orientation>(nvimgcodec::Kind::ORIENTATION);
    image.plane_count = 1;
    auto& plane = image.planes[0] = nvimgcodec::made<nvimgcodec::Plane>(nvimgcodec::Kind::PLANE);
    plane.height = uint32_t(one.bottom - one.top), plane.width = uint32_t(one.right - one.left);
    plane.pitch = 3 * size_t(plane.width);
    plane.channels = 3;
    plane.type = nvimgcodec::UINT8;
    image.buffer = reinterpret_cast<void*>(one.pixels);
    image.where = nvimgcodec::IN_HOST_MEMORY;
    return codec.call.image(codec.instance, &opened.image, &image) == nvimgcodec::OK;
}

// Decodes one picture, alone: the lines that decoders print are its own, and a bad file cannot spoil another.
Done decode_one(HostDecoder& by, Encoded& one, Indexes* indexes) {
    const auto& call = by.codec->call;
    void* stream = nullptr;
    if (one.cut) stream = open_part(*by.codec, one, indexes, part_memory(by, one.size), by.opened);
    const Done from = stream ? FROM_CROP : FROM_FILE;
    if (!stream) stream = open_region(*by.codec, one, by.opened);
    if (!stream || !open_pixels(*by.codec, one, by.opened)) return NOT;
    const auto as_stored = nvimgcodec::made<nvimgcodec::DecodeParams>(nvimgcodec::Kind::DECODE_PARAMS);
    void* future = nullptr;
    uint32_t status = 0;
    size_t count = 1;
    const bool well = call.decode(by.decoder, &stream, &by.opened.image, 1, &as_stored, &future) == nvimgcodec::OK &&
                      call.wait(future) == nvimgcodec::OK && call.statuses(future, &status, &count) == nvimgcodec::OK;
    if (future) call.future_destroy(future);
    return well && status == nvimgcodec::DECODED ? from : NOT;
}

}  // namespace

extern "C" {

// The version of nvImageCodec, as 1000 times its major, 100 times its minor and its patch number; or -1.
EXPORT int64_t cuaug_codec_version(const nvimgcodec::Functions* functions) {
    auto properties = nvimgcodec::made<nvimgcodec::Properties>(nvimgcodec::Kind::PROPERTIES);
    return functions->properties(&properties) == nvimgcodec::OK ? properties.version : -1;
}

// nvImageCodec with the extensions to which `entries` [count] lead; null where it gives none.
EXPORT void* cuaug_codec_new(const nvimgcodec::Functions* functions, int32_t (*const* entries)(nvimgcodec::Extension*),
                             int64_t count) {
    std::unique_ptr<Codec> codec(new (std::nothrow) Codec{*functions});
    auto create = nvimgcodec::made<nvimgcodec::Instance>(nvimgcodec::Kind::INSTANCE);
    create.builtin_modules = 1;
    if (!codec || codec->call.instance(&codec->instance, &create) != nvimgcodec::OK) return nullptr;
    for (int64_t i = 0; i < count; ++i) {
        auto extension = nvimgcodec::made<nvimgcodec::Extension>(nvimgcodec::Kind::EXTENSION);
        void* loaded = nullptr;
        if (entries[i](&extension) != nvimgcodec::OK ||
            codec->call.extension(codec->instance, &loaded, &extension) != nvimgcodec::OK)
            return nullptr;
    }
    return codec.release();
}

// size [2]: height and width of an encoded picture, as stored. Whether nvImageCodec can tell.
EXPORT int32_t cuaug_codec_size(const void* codec, const unsigned char* data, int64_t bytes, int64_t* size) {
    const Codec& by = *static_cast<const Codec*>(codec);
    void* stream = nullptr;
    const bool well = open_stream(by, data, bytes, stream) && stream_size(by, stream, size[0], size[1]);
    if (stream) by.call.stream_destroy(stream);
    return well;
}

// A decoder for one thread, or null.
EXPORT void* cuaug_decoder_new(const void* codec, const char* options) {
    std::unique_ptr<HostDecoder> by(new (std::nothrow) HostDecoder{static_cast<const Codec*>(codec)});
    if (!by) return nullptr;
    auto backend = nvimgcodec::made<nvimgcodec::Backend>(nvimgcodec::Kind::BACKEND);
    backend.kind = nvimgcodec::CPU_ONLY_BACKEND;
    backend.params = nvimgcodec::made<nvimgcodec::BackendParams>(nvimgcodec::Kind::BACKEND_PARAMS);
    backend.params.load_hint = 1, backend.params.policy = nvimgcodec::IGNORE_LOAD_HINT;
    auto execution = nvimgcodec::made<nvimgcodec::Execution>(nvimgcodec::Kind::EXECUTION);
    execution.most_threads = 1;  // the caller's
    execution.device = nvimgcodec::CPU_ONLY_DEVICE;
    execution.backends = &backend, execution.backend_count = 1;
    const auto& call = by->codec->call;
    return call.decoder(by->codec->instance, &by->decoder, &execution, options) == nvimgcodec::OK ? by.release()
                                                                                                  : nullptr;
}

// In a forked child it frees nothing: a thread of the parent may have been decoding with it.
EXPORT void cuaug_decoder_delete(void* decoder) {
    if (static_cast<HostDecoder*>(decoder)->process != getpid()) return;
    const std::unique_ptr<HostDecoder> by(static_cast<HostDecoder*>(decoder));
    const auto& call = by->codec->call;
    if (by->opened.image) call.image_destroy(by->opened.image);
    if (by->opened.region) call.stream_destroy(by->opened.region);
    if (by->opened.stream) call.stream_destroy(by->opened.stream);
    call.decoder_destroy(by->decoder);
}

// wanted [n]: `Encoded`. indexes: of JPEGs, or null. done [n]: `Done`, whether its pixels are there, as RGB.
// text [n, text_size]: the lines that were printed to stderr about each picture; text_lengths [n]: their bytes.
EXPORT void cuaug_decode(void* decoder, void* wanted, int64_t n, void* indexes, uint8_t* done, char* text,
                         int64_t text_size, int64_t* text_lengths) {
    HostDecoder& by = *static_cast<HostDecoder*>(decoder);
    for (int64_t i = 0; i < n; ++i) {
        capture.begin();
        try {
            done[i] = decode_one(by, static_cast<Encoded*>(wanted)[i], static_cast<Indexes*>(indexes));
        } catch (const std::bad_alloc&) {
            done[i] = NOT;
        }
        text_lengths[i] = capture.end(text + i * text_size, text_size);
    }
}
}
