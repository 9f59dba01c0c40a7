// Work on a stack of images, shared among threads that last as long as the call.
#pragma once
#include <atomic>
#include <cstdint>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace {

// work(0) ... work(count - 1), on at most `threads` threads, the caller's among them. All have ended when it returns:
// 0, or what the last call that failed returned.
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
    } catch (const std::system_error&) {  // the system gives no more threads; those there are do all of it
    } catch (const std::bad_alloc&) {
    }
    run_tasks();
    for (auto& other : others) other.join();
    return failed;
}

}  // namespace
