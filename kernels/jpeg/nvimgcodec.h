// nvImageCodec's C interface, version 0.9, as far as decoding on the CPU needs it. tests/codec/test_layouts.py compares
// it with the header that comes with the library.
#pragma once
#include <cstddef>
#include <cstdint>

namespace nvimgcodec {

enum class Kind : int32_t {  // which structure it is
    PROPERTIES = 1,
    INSTANCE = 2,
    DECODE_PARAMS = 5,
    ORIENTATION = 7,
    REGION = 8,
    VIEW = 9,
    IMAGE = 11,
    PLANE = 12,
    BACKEND = 17,
    EXTENSION = 27,
    BACKEND_PARAMS = 29,
    EXECUTION = 30,
};

// What each structure begins with.
struct Head {
    Kind kind;
    size_t bytes;
    const void* next;
};

struct Properties {
    Head head;
    uint32_t version, cudart_version;
};

struct Instance {
    Head head;
    int32_t builtin_modules, extension_modules;
    const char* extension_path;
    int32_t messenger;
    const void* messages;
    uint32_t severity, category;
};

struct Extension {
    Head head;
    void* instance;
    const char* id;
    uint32_t version, interface_version;
    void *create, *destroy;
};

struct BackendParams {
    Head head;
    float load_hint;
    int32_t policy;
};

struct Backend {
    Head head;
    int32_t kind;
    BackendParams params;
};

struct Execution {
    Head head;
    const void *device_allocator, *pinned_allocator;
    int32_t most_threads;
    const void* executor;
    int32_t device, init_at_once, skip_sync, backend_count;
    const Backend* backends;
};

struct DecodeParams {
    Head head;
    int32_t apply_orientation;
};

struct Orientation {
    Head head;
    int32_t rotated, flip_x, flip_y;
};

struct Region {
    Head head;
    int32_t dimensions, begin[5], end[5], outside;
    struct {
        uint32_t value;
        int32_t type;
    } fill[5];
};

// A region of a code stream.
struct View {
    Head head;
    size_t image;
    Region region;
    size_t offset;
};

struct Plane {
    Head head;
    uint32_t width, height;
    size_t pitch;
    uint32_t channels;
    int32_t type;
    uint8_t precision;
};

struct Image {
    Head head;
    char codec[256];
    int32_t colours, subsampling, format;
    Orientation orientation;
    uint32_t plane_count;
    Plane planes[32];
    void* buffer;
    int32_t where;
    void* stream;
};

constexpr int32_t OK = 0, DECODED = 1;
constexpr int32_t CPU_ONLY_BACKEND = 1, IGNORE_LOAD_HINT = 1, CPU_ONLY_DEVICE = -99999;
constexpr int32_t SRGB = 1, INTERLEAVED_RGB = 8, UINT8 = 0x0802, IN_HOST_MEMORY = 2;

// Its functions, in the order of FUNCTIONS in cuaug/codec/_nvimgcodec_c.py. Each gives OK, or why not; instances,
// extensions, code streams, images, decoders and futures are pointers. One that is made where there is one is used
// anew.
struct Functions {
    int32_t (*properties)(Properties*);
    int32_t (*instance)(void** instance, const Instance*);
    int32_t (*extension)(void* instance, void** extension, const Extension*);
    int32_t (*decoder)(void* instance, void** decoder, const Execution*, const char* options);
    int32_t (*decoder_destroy)(void* decoder);
    int32_t (*code_stream)(void* instance, void** stream, const unsigned char* data, size_t size, const View*);
    int32_t (*sub_stream)(void* stream, void** region, const View*);
    int32_t (*stream_destroy)(void* stream);
    int32_t (*stream_info)(void* stream, Image*);
    int32_t (*image)(void* instance, void** image, const Image*);
    int32_t (*image_destroy)(void* image);
    int32_t (*decode)(void* decoder, void* const* streams, void* const* images, int32_t count, const DecodeParams*,
                      void** future);
    int32_t (*wait)(void* future);
    int32_t (*statuses)(void* future, uint32_t* statuses, size_t* count);
    int32_t (*future_destroy)(void* future);
};

template <class Structure>
Structure made(Kind kind) {
    Structure structure = {};
    structure.head = {kind, sizeof(Structure), nullptr};
    return structure;
}

}  // namespace nvimgcodec
