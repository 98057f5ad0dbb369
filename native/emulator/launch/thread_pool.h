// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that stay alive between launches and share the workgroups of whatever runs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <list>
#include <mutex>

namespace fmha::emu {

unsigned wanted_threads();  // $FMHA_EMU_THREADS

class ThreadPool {
 public:
  // One thread less than $FMHA_EMU_THREADS (default: the cores), since the caller of run() works too; fewer
  // if the host gives no more.
  static ThreadPool& instance();

  // Calls body(context, i) for i in [0, count), each once, on any thread, and returns when all are done. Once
  // a call returns false no further ones start. Nor after one throws: what it threw leaves run() when no
  // thread works on the job any more. May be called from several threads at once.
  void run(uint64_t count, bool (*body)(void* context, uint64_t index), void* context);

 private:
  struct Job {
    std::atomic<uint64_t> next{0};
    uint64_t count;
    bool (*body)(void*, uint64_t);
    void* context;
    int helpers = 0;           // threads of the pool inside work(); under mutex_
    std::exception_ptr error;  // the first that a call threw; under mutex_
  };
  explicit ThreadPool(unsigned threads);
  void work(Job& job) noexcept;
  // Lets the pool's threads help with a job; false: the host has no memory for that.
  bool offer(Job& job);
  // When nothing of it is left to start: waits for those who help.
  void withdraw(Job& job);
  void loop();

  std::mutex mutex_;
  std::condition_variable has_job_, job_done_;
  std::list<Job*> jobs_;  // those with work left
  bool has_threads_ = false;
};

}  // namespace fmha::emu
