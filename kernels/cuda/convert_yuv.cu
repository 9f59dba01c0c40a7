// Computes: RGB pixels of the parts of video frames that clips need. `augment` and `resample` read them then. Loaders
//           of images neither compile nor load it.
// Threads:  grid (frames, up to 65,535 rows): a block converts rows of one frame, a thread every blockDim.x-th pixel
//           of a row.
// Reference: core/yuv.h.
// Tests:    tests/kernels/test_convert_yuv.py.
namespace cuaug {

#include "core/yuv.h"

KERNEL convert_yuv(const YuvImage* images) {    // [F]
    const YuvImage image = images[blockIdx.x];  // a copy: a store to the target might change *images
    for (int row = blockIdx.y; row < image.rows; row += gridDim.y) {
        const uint64 line = image.target + uint64(row * image.target_row);
        for (int column = threadIdx.x; column < image.columns; column += blockDim.x) {
            uint8* const pixel = reinterpret_cast<uint8*>(line + uint64(column * image.target_column));
            if (image.sample_bytes == 1)
                yuv_pixel<uint8>(image, image.top + row, image.left + column, pixel);
            else
                yuv_pixel<uint16>(image, image.top + row, image.left + column, pixel);
        }
    }
}

}  // namespace cuaug
