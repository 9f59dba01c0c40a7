// Computes: a loop over a stack of images on threads that last as long as the call.
// Threads:  the caller's, and up to threads - 1 more.
// Reference: none.
// Tests:    tests/properties/test_store.py, tests/kernels/test_sanitizers.py.
#pragma once
#include <atomic>
#include <cstdint>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace {

// Calls work(0) ... work(count - 1) on at most `threads` threads. Returns 0, or the result of the last call that
// failed.
template <class Work>
int parallel_for(int64_t count, int threads, Work work) {
    std::atomic<int64_t> next{0};
    std::atomic<int> failed{0};
    const auto run_tasks = [&] {
        for (int64_t i; (i = next++) < count;)
            if (const int status = work(i)) failed = status;
    };
    std::vector<std::thread> others;
    try {
        while (int64_t(others.size()) + 1 < threads && int64_t(others.size()) + 1 < count)
            others.emplace_back(run_tasks);
    } catch (const std::system_error&) {  // the running threads do all of it
    } catch (const std::bad_alloc&) {
    }
    run_tasks();
    for (auto& other : others) other.join();
    return failed;
}

}  // namespace
