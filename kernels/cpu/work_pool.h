// Computes: which work a thread of a loader does next: an item of native work, or a task of Python's. The threads are
//           Python's (cuaug/pipeline/thread_pool.py). They wait and work here without the GIL, and return to Python
//           once per task and once per finished piece of native work, however many items it has.
// Threads:  any; `Pool` locks. Work of a lower priority number comes first, then work that was added earlier. Work may
//           have a time before which it does not begin; no thread is needed to watch that time.
// Reference: none.
// Tests:    tests/loader/test_native_work.py, also under ThreadSanitizer.
#pragma once
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>

#include "cpu/pixel_memory.h"
#include "jpeg/decode.h"

namespace {

// What a thread does; a watching thread reads it at any time. Python's `Activity` has the same fields.
struct Activity {
    std::atomic<int64_t> batch{-1}, sample{0}, stage{-1}, since{0};  // since: CLOCK_MONOTONIC, in nanoseconds
};

// A thread, as its native work sees it.
struct Worker {
    int64_t number = 0;
    Activity activity;
    void* decoders[2] = {nullptr, nullptr};  // without and with fancy upsampling
    PixelMemory pixels;

    ~Worker();  // batch_work.h
};

using DoItem = void (*)(void* table, int64_t i, Worker& worker);
using DoEnd = void (*)(void* table);

struct Work {
    int64_t priority, order;
    int64_t token;  // what `next` returns when the work is done
    DoItem item;    // null for a task of Python's, which is done by returning its token
    DoEnd end;      // after the last item, or null
    void* table;
    int64_t count, begun = 0;
    std::atomic<int64_t> open;  // items that have not ended

    bool operator<(const Work& other) const {
        return std::tie(priority, order) < std::tie(other.priority, other.order);
    }
};

struct Earlier {
    bool operator()(const Work* a, const Work* b) const { return *a < *b; }
};

constexpr int64_t STOPPED = -1;

inline int64_t nanoseconds(clockid_t clock) {
    timespec time;
    clock_gettime(clock, &time);
    return int64_t(time.tv_sec) * 1000000000 + time.tv_nsec;
}

class Pool {
  public:
    ~Pool() { stop(); }

    // not_before: a time of CLOCK_MONOTONIC, in nanoseconds.
    void add(int64_t priority, int64_t token, DoItem item, DoEnd end, void* table, int64_t count, int64_t not_before) {
        std::unique_ptr<Work> work(new Work{priority, 0, token, item, end, table, count, 0, {count}});
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (stopping_) return;
            work->order = added_++;
            if (not_before > nanoseconds(CLOCK_MONOTONIC))
                delayed_.emplace(not_before, work.get());
            else
                waiting_.insert(work.get());
            work.release();
        }
        if (count > 1 || not_before > 0)  // each idle thread then waits no longer than until that time
            idle_.notify_all();
        else
            idle_.notify_one();
    }

    // Works until a task of Python's is due, or the last item of some work has ended; returns its token, or STOPPED.
    // Two threads must not have one number.
    int64_t next(int64_t number) {
        std::unique_lock<std::mutex> lock(mutex_);
        for (int64_t i = int64_t(workers_.size()); i <= number; ++i) workers_.emplace_back().number = i;
        Worker& worker = workers_[size_t(number)];
        for (;;) {
            for (begin_delayed(nanoseconds(CLOCK_MONOTONIC)); !stopping_ && waiting_.empty();
                 begin_delayed(nanoseconds(CLOCK_MONOTONIC)))
                wait();
            if (stopping_) return STOPPED;
            Work* const work = *waiting_.begin();
            const int64_t i = work->begun++;
            if (work->begun >= work->count) waiting_.erase(waiting_.begin());
            if (work->item) {
                lock.unlock();
                work->item(work->table, i, worker);
                const bool is_last = finish(work, 1);
                if (is_last && work->end) work->end(work->table);
                worker.activity.batch.store(-1, std::memory_order_relaxed);
                if (is_last) return finished_token(work);
                lock.lock();
            } else {
                return finished_token(work);
            }
        }
    }

    // Delayed work begins now.
    void hurry() {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (delayed_.empty()) return;
        begin_delayed(INT64_MAX);
        idle_.notify_all();
    }

    // Drops work that has not begun; `next` returns STOPPED from now on, at the latest after the current item.
    void stop() {
        const std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
        begin_delayed(INT64_MAX);
        for (Work* const work : waiting_)
            if (finish(work, work->count - work->begun)) delete work;
        waiting_.clear();
        idle_.notify_all();
    }

    // What thread `number` does; null for a thread that has not come yet.
    const Activity* activity(int64_t number) {
        const std::lock_guard<std::mutex> lock(mutex_);
        return number < int64_t(workers_.size()) ? &workers_[size_t(number)].activity : nullptr;
    }

    const pid_t process = getpid();

  private:
    void begin_delayed(int64_t now) {
        while (!delayed_.empty() && delayed_.begin()->first <= now) {
            waiting_.insert(delayed_.begin()->second);
            delayed_.erase(delayed_.begin());
        }
    }

    // Waits until something is added, or the first delayed work is due.
    void wait() {
        // Not idle_.wait: GCC 12 gave it a new symbol version, which older systems lack.
        if (delayed_.empty()) {
            pthread_cond_wait(idle_.native_handle(), mutex_.native_handle());
            return;
        }
        const int64_t left = delayed_.begin()->first - nanoseconds(CLOCK_MONOTONIC);
        const int64_t until = nanoseconds(CLOCK_REALTIME) + left;  // a C++ condition waits by this clock
        const timespec time = {time_t(until / 1000000000), long(until % 1000000000)};
        pthread_cond_timedwait(idle_.native_handle(), mutex_.native_handle(), &time);
    }

    static bool finish(Work* work, int64_t items) {
        return work->open.fetch_sub(items, std::memory_order_acq_rel) == items;
    }

    static int64_t finished_token(Work* work) {
        const int64_t token = work->token;
        delete work;
        return token;
    }

    std::mutex mutex_;
    std::condition_variable idle_;
    std::set<Work*, Earlier> waiting_;       // with items that have not begun
    std::multimap<int64_t, Work*> delayed_;  // by the time before which they do not begin
    int64_t added_ = 0;
    bool stopping_ = false;
    std::deque<Worker> workers_;  // their addresses stay
};

}  // namespace
