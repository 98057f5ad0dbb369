// SPDX-License-Identifier: MIT OR Apache-2.0
#include "launch/thread_pool.h"

#include <algorithm>
#include <exception>
#include <new>
#include <thread>

#include "base/environment.h"
#include "base/per_thread.h"

namespace fmha::emu {

unsigned wanted_threads() {
  constexpr uint64_t kMostThreads = 1024;
  const uint64_t cores = std::max(1u, std::thread::hardware_concurrency());
  return static_cast<unsigned>(environment_number("FMHA_EMU_THREADS", 1, kMostThreads, cores));
}

ThreadPool& ThreadPool::instance() {
  // Never destroyed: joining threads from a library's destructor hangs if the process dies in a launch.
  static ThreadPool* pool = new ThreadPool(wanted_threads());
  return *pool;
}

ThreadPool::ThreadPool(unsigned threads) {
  try {
    for (unsigned i = 1; i < threads; ++i) {
      std::thread([this] {
        if (host_has_memory()) loop();
      }).detach();
      has_threads_ = true;
    }
  } catch (const std::exception&) {
    return;  // the host has no room for one more
  }
}

void ThreadPool::work(Job& job) noexcept {
  try {
    for (;;) {
      const uint64_t i = job.next.fetch_add(1, std::memory_order_relaxed);
      if (i >= job.count) return;
      if (!job.body(job.context, i)) job.next.store(job.count, std::memory_order_relaxed);
    }
  } catch (...) {
    job.next.store(job.count, std::memory_order_relaxed);
    std::lock_guard lock(mutex_);
    if (!job.error) job.error = std::current_exception();
  }
}

void ThreadPool::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    has_job_.wait(lock, [this] { return !jobs_.empty(); });
    Job& job = *jobs_.front();
    // Concurrent launches take turns at the front, so that the pool helps all of them.
    jobs_.splice(jobs_.end(), jobs_, jobs_.begin());
    ++job.helpers;
    lock.unlock();
    work(job);
    lock.lock();
    jobs_.remove(&job);  // nothing is left to start
    if (--job.helpers == 0) job_done_.notify_all();
  }
}

bool ThreadPool::offer(Job& job) {
  std::lock_guard lock(mutex_);
  try {
    jobs_.push_back(&job);
  } catch (const std::bad_alloc&) {
    return false;
  }
  has_job_.notify_all();
  return true;
}

void ThreadPool::withdraw(Job& job) {
  std::unique_lock lock(mutex_);
  jobs_.remove(&job);
  job_done_.wait(lock, [&] { return job.helpers == 0; });
}

void ThreadPool::run(uint64_t count, bool (*body)(void*, uint64_t), void* context) {
  Job job;
  job.count = count;
  job.body = body;
  job.context = context;
  const bool offered = count > 1 && has_threads_ && offer(job);
  work(job);
  if (offered) withdraw(job);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace fmha::emu
