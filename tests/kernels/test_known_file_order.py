"""A file that the index knows is checked after its data were read: it may be overwritten at any moment."""

from __future__ import annotations

import ctypes
import os
import subprocess

import numpy as np
import pytest

from cuaug._runtime.native import KERNEL_DIRECTORY
from tests.support.codec.jpeg_crops import jpeg

# Returns 1 if all data were there when the file was asked for, 0 if not, and a negative number if the test is wrong.
PROGRAM = r"""
#include <sys/mman.h>
#define EXPORT __attribute__((visibility("default")))
#include "jpeg/device_batch.h"

extern "C" EXPORT int order(const char* path, const unsigned char* data, int64_t size, int64_t height, int64_t width) {
    JpegIndex index(memfd_create("index", 0), 1 << 20, 1, true);
    const EncodedRegion request = {int64_t(data), size, height, width, 1, 0, 1, 0, 0, height, width};
    const int64_t capacity = DeviceBatch::bound(size, height, width);
    std::vector<uint64_t> memory(size_t(capacity) / 8 + 1);
    auto* const begin = reinterpret_cast<uint8_t*>(memory.data());
    const FileOrigin file = {{1, 2}, read_jpeg_header(data, size, 100, int64_t(1) << 40)};
    // The first batch makes the entry points, the second one learns that the index knows the file.
    for (const bool scans : {false, true})
        if (!DeviceBatch(begin, capacity, 1, {true, scans, false}).add(0, request, &index, &file)) return -1;
    KnownFile known;
    if (!index.recall(file.identity, known)) return -2;
    memset(begin, 0, size_t(capacity));
    const FilePart part = {open(path, O_RDONLY), 0};
    bool had_data = false;
    DeviceBatch batch(begin, capacity, 1, {true, true, false});
    const auto is_same = [&] {
        const auto last = std::search(begin, begin + capacity, data + size - 32, data + size - 2);
        had_data = last != begin + capacity;
        return true;
    };
    const bool is_added = batch.add_known(0, request, index, known, part, is_same);
    close(part.descriptor);
    return is_added ? had_data : -3;
}
"""


@pytest.mark.slow
def test_the_check_comes_after_the_data(tmp_path):
    data = jpeg(160, 260)
    (tmp_path / "image.jpg").write_bytes(data)
    library = tmp_path / "order.so"
    flags = ["-std=c++17", "-w", "-fPIC", "-shared", f"-I{KERNEL_DIRECTORY}", "-x", "c++"]
    command = [os.environ.get("CXX", "g++"), *flags, "-", "-o", library]
    subprocess.run(command, input=PROGRAM, text=True, check=True)
    order = ctypes.CDLL(str(library)).order
    held = np.frombuffer(data, dtype=np.uint8)
    arguments = ctypes.c_void_p(held.ctypes.data), ctypes.c_int64(len(held)), ctypes.c_int64(160), ctypes.c_int64(260)
    assert order(os.fsencode(tmp_path / "image.jpg"), *arguments) == 1
