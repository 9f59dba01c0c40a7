// What becomes of threads that the interpreter ends while it ends itself.
#pragma once
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <thread>

namespace {

std::terminate_handler terminate_before = nullptr;
std::thread::id last_thread;

[[noreturn]] void stay_or_terminate() {
    while (std::this_thread::get_id() != last_thread && std::current_exception() == nullptr) pause();
    terminate_before();
    std::abort();
}

}  // namespace

extern "C" {

// To be called by the thread that ends the interpreter. Python before 3.14 ends others that return to it then by
// pthread_exit, for which C++ terminates the whole process where one returns to it from a destructor, as those of
// PyTorch and nvImageCodec do. From now on such a thread stays in that destructor until the process is gone.
EXPORT void cuaug_keep_ended_threads() {
    last_thread = std::this_thread::get_id();
    terminate_before = std::set_terminate(stay_or_terminate);
}
}
