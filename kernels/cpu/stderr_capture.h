// Computes: a capture of the lines that image libraries print to C's stderr: the C interface of
//           cuaug/codec/messages.py. libjpeg, libpng and libtiff, inside nvImageCodec and Pillow, print warnings
//           without the file name, and their callers set no handler. In the GNU C library `stderr` is a variable. When
//           our library is loaded, we set it to a stream whose write function stores the text while the calling thread
//           captures, and passes it on otherwise. File descriptor 2 is unchanged, so Python's sys.stderr, faulthandler,
//           std::cerr and child processes are unaffected.
// Threads:  each thread captures its own lines.
// Reference: glibc's fopencookie.
// Tests:    tests/codec.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

// The captured text of one thread. No destructor: threads may print until their very end.
struct Capture {
    bool on;
    int64_t length;
    char text[4096];  // further text is dropped

    void begin() { on = true, length = 0; }

    // Copies up to `size` bytes to `to`; returns how many.
    int64_t end(char* to, int64_t size) {
        on = false;
        if (length < size) size = length;
        if (size) memcpy(to, text, size_t(size));
        return size;
    }
};

thread_local Capture capture;

#ifdef __GLIBC__

FILE* original_stderr = nullptr;

ssize_t write_stderr(void*, const char* text, size_t size) {
    if (!capture.on) return ssize_t(fwrite(text, 1, size, original_stderr));
    const size_t room = sizeof capture.text - size_t(capture.length), kept = size < room ? size : room;
    memcpy(capture.text + capture.length, text, kept);
    capture.length += int64_t(kept);
    return ssize_t(size);
}

__attribute__((constructor)) void replace_stderr() {
    FILE* const stream = fopencookie(nullptr, "w", {nullptr, write_stderr, nullptr, nullptr});
    if (!stream) return;
    setvbuf(stream, nullptr, _IONBF, 0);  // unbuffered: otherwise nothing is written before the buffer is full
    stream->_fileno = fileno(stderr);     // fileno(stderr), which Python's fatal errors call, still works
    original_stderr = stderr, stderr = stream;
}

#endif

}  // namespace

extern "C" {

// The calling thread captures until cuaug_capture_end, which returns the number of bytes in `text`.
EXPORT void cuaug_capture_begin() { capture.begin(); }

EXPORT int64_t cuaug_capture_end(char* text, int64_t size) { return capture.end(text, size); }
}
