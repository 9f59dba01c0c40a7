// Computes: declarations of nvImageCodec's C interface, as far as decoding on the CPU needs them.
// Threads:  none.
// Reference: nvimgcodec.h of nvImageCodec 0.9; structures, fields and constants have its names, without the prefix.
// Tests:    tests/codec/test_layouts.py compares every size, offset and signature with that header.
#pragma once
#include <cstddef>
#include <cstdint>

namespace nvimgcodec {

// The first fields of every structure; struct_type is its TYPE.
struct Head {
    int32_t struct_type;
    size_t struct_size;
    const void* struct_next;
};

struct Properties {
    static constexpr int32_t TYPE = 1;
    Head head;
    uint32_t version, cudart_version;
};

struct InstanceCreateInfo {
    static constexpr int32_t TYPE = 2;
    Head head;
    int32_t load_builtin_modules, load_extension_modules;
    const char* extension_modules_path;
    int32_t create_debug_messenger;
    const void* debug_messenger_desc;
    uint32_t message_severity, message_category;
};

struct ExtensionDesc {
    static constexpr int32_t TYPE = 27;
    Head head;
    void* instance;
    const char* id;
    uint32_t version, ext_api_version;
    void *create, *destroy;
};

struct BackendParams {
    static constexpr int32_t TYPE = 29;
    Head head;
    float load_hint;
    int32_t load_hint_policy;
};

struct Backend {
    static constexpr int32_t TYPE = 17;
    Head head;
    int32_t kind;
    BackendParams params;
};

struct ExecutionParams {
    static constexpr int32_t TYPE = 30;
    Head head;
    const void *device_allocator, *pinned_allocator;
    int32_t max_num_cpu_threads;
    const void* executor;
    int32_t device_id, pre_init, skip_pre_sync, num_backends;
    const Backend* backends;
};

struct DecodeParams {
    static constexpr int32_t TYPE = 5;
    Head head;
    int32_t apply_exif_orientation;
};

struct Orientation {
    static constexpr int32_t TYPE = 7;
    Head head;
    int32_t rotated, flip_x, flip_y;
};

struct Region {
    static constexpr int32_t TYPE = 8;
    Head head;
    int32_t ndim, start[5], end[5], out_of_bounds_policy;
    struct {
        uint32_t value;
        int32_t type;
    } out_of_bounds_samples[5];
};

struct CodeStreamView {
    static constexpr int32_t TYPE = 9;
    Head head;
    size_t image_idx;
    Region region;
    size_t bitstream_offset;
};

struct ImagePlaneInfo {
    static constexpr int32_t TYPE = 12;
    Head head;
    uint32_t width, height;
    size_t row_stride;
    uint32_t num_channels;
    int32_t sample_type;
    uint8_t precision;
};

struct ImageInfo {
    static constexpr int32_t TYPE = 11;
    Head head;
    char codec_name[256];
    int32_t color_spec, chroma_subsampling, sample_format;
    Orientation orientation;
    uint32_t num_planes;
    ImagePlaneInfo plane_info[32];
    void* buffer;
    int32_t buffer_kind;
    void* cuda_stream;
};

constexpr int32_t STATUS_SUCCESS = 0, PROCESSING_STATUS_SUCCESS = 1;
constexpr int32_t BACKEND_KIND_CPU_ONLY = 1, LOAD_HINT_POLICY_IGNORE = 1, DEVICE_CPU_ONLY = -99999;
constexpr int32_t COLORSPEC_SRGB = 1, SAMPLEFORMAT_I_RGB = 8, SAMPLE_DATA_TYPE_UINT8 = 0x0802;
constexpr int32_t IMAGE_BUFFER_KIND_STRIDED_HOST = 2;

// In the order of FUNCTIONS in cuaug/codec/_nvimgcodec_c.py. Each returns STATUS_SUCCESS or an error. Instances,
// extensions, code streams, images, decoders and futures are opaque pointers; a create function reuses a given object.
struct Functions {
    int32_t (*get_properties)(Properties*);
    int32_t (*instance_create)(void** instance, const InstanceCreateInfo*);
    int32_t (*extension_create)(void* instance, void** extension, const ExtensionDesc*);
    int32_t (*decoder_create)(void* instance, void** decoder, const ExecutionParams*, const char* options);
    int32_t (*decoder_destroy)(void* decoder);
    int32_t (*code_stream_create)(void* instance, void** stream, const unsigned char* data, size_t size,
                                  const CodeStreamView*);
    int32_t (*get_sub_code_stream)(void* stream, void** region, const CodeStreamView*);
    int32_t (*code_stream_destroy)(void* stream);
    int32_t (*get_image_info)(void* stream, ImageInfo*);
    int32_t (*image_create)(void* instance, void** image, const ImageInfo*);
    int32_t (*image_destroy)(void* image);
    int32_t (*decode)(void* decoder, void* const* streams, void* const* images, int32_t count, const DecodeParams*,
                      void** future);
    int32_t (*future_wait)(void* future);
    int32_t (*future_get_status)(void* future, uint32_t* statuses, size_t* count);
    int32_t (*future_destroy)(void* future);
};

template <class Structure>
Structure make() {
    Structure structure = {};
    structure.head = {Structure::TYPE, sizeof(Structure), nullptr};
    return structure;
}

}  // namespace nvimgcodec
