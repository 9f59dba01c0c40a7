// Computes: what stays of a JPEG whose entropy-coded data and segments lie in device memory, and which of its segments
//           a region needs. A batch of such images takes no data from the CPU.
// Threads:  the caller's alone.
// Reference: jpeg/device_jpeg.h.
// Tests:    tests/dry_run/test_device_cache.py.
#pragma once
#include "jpeg/device_jpeg.h"

namespace {

struct ResidentJpeg {
    JpegImage image;  // but for the rectangle, region and target. First: addresses of data and segments, set by Python
    HuffmanDefinitions definitions;
    Frame frame;
};

int64_t segment_columns(const ResidentJpeg& jpeg) { return ceil_div(jpeg.frame.mcu_columns, jpeg.image.max_mcus); }

// Number of segments, with the one that ends the last.
int64_t segment_count(const ResidentJpeg& jpeg) {
    const Frame& frame = jpeg.frame;
    if (!jpeg.image.ends_at_markers) return frame.mcu_rows * segment_columns(jpeg) + 1;
    return ceil_div(frame.mcu_rows * frame.mcu_columns, frame.restart_interval) + 1;
}

// Sets which segments of the resident ones are decoded, from `first_segment` on.
void choose_segments(const ResidentJpeg& resident, const Rectangle& mcus, DeviceJpeg& jpeg) {
    const Frame& frame = resident.frame;
    JpegImage& image = jpeg.image;
    if (image.ends_at_markers) {
        set_rectangle(frame, mcus.top, mcus.left, mcus.bottom, mcus.right, image);
        jpeg.first_segment = (mcus.top * frame.mcu_columns + mcus.left) / frame.restart_interval;
        const int64_t last = ((mcus.bottom - 1) * frame.mcu_columns + mcus.right - 1) / frame.restart_interval;
        jpeg.lanes = last + 1 - jpeg.first_segment;
        image.across = image.stride = int(jpeg.lanes);
        return;
    }
    const auto [begin, end] = set_segments(frame, mcus, image.max_mcus, image);
    image.across = int(end - begin), image.stride = int(segment_columns(resident));
    jpeg.first_segment = mcus.top * image.stride + begin;
    jpeg.lanes = (mcus.bottom - mcus.top) * (end - begin);
}

}  // namespace
