// Computes: the end of threads that Python ends while it exits.
// Threads:  called on the thread that ends the interpreter.
// Reference: Python's Py_FinalizeEx; C++ std::set_terminate.
// Tests:    tests/runtime.
#pragma once
#include <cxxabi.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <thread>

namespace {

std::terminate_handler terminate_before = nullptr;
std::thread::id last_thread;

[[noreturn]] void stay_or_terminate() {
    while (std::this_thread::get_id() != last_thread && abi::__cxa_current_exception_type() == nullptr) pause();
    terminate_before();
    std::abort();
}

}  // namespace

extern "C" {

// Call this on the thread that ends the interpreter. Before 3.14, Python ends other threads with pthread_exit when they
// take the GIL. C++ terminates the whole process if that unwinds a destructor, as in PyTorch and nvImageCodec. From now
// on such a thread pauses in the destructor until the process ends.
EXPORT void cuaug_keep_ended_threads() {
    last_thread = std::this_thread::get_id();
    terminate_before = std::set_terminate(stay_or_terminate);
}
}
