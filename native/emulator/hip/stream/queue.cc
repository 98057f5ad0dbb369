// SPDX-License-Identifier: MIT OR Apache-2.0
#include "hip/stream/queue.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <list>
#include <map>
#include <thread>

#include "hip/handles.h"

namespace fmha::emu {
namespace {

// Never destroyed: streams may still run while the process ends.
struct Queues {
  std::mutex mutex;
  std::condition_variable done;
  int waiting = 0;                   // hosts in wait_for
  std::list<StreamRef> streams;      // those with a thread
  std::map<int, StreamRef> nulls;    // by device
  std::atomic<uint64_t> next_id{3};  // 0 to 2 are the default streams' handles
};
Queues& queues() {
  static auto* q = new Queues;
  return *q;
}
Handles<Stream>& handles() {
  static auto* h = new Handles<Stream>;
  return *h;
}

thread_local bool is_stream_thread = false;

constexpr unsigned kNonBlocking = 1;

// Signals go to the program's own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }

 private:
  sigset_t saved_;
};

bool ready(const Stream& s) {
  if (s.queue.empty()) return s.closing;
  return !s.holds && s.queue.front()->waits_for == 0;
}

void finish(const OpRef& op) {
  op->done = true;
  op->time = std::chrono::steady_clock::now();
  for (const OpRef& next : op->successors) {
    if (--next->waits_for == 0) next->stream->wake.notify_one();
  }
  op->successors.clear();
  if (op->stream->last == op) op->stream->last = nullptr;
  op->stream = nullptr;
  if (queues().waiting) queues().done.notify_all();
}

void run_body(Op& op, int device_index) {
  const bool alive = !op.refused && op.faults == device(device_index).faults;
  if (!alive) {
    std::lock_guard lock(queues().mutex);
    op.dropped = device(device_index).last_fault;
    if (op.body) op.stream->dropped = op.dropped;
  }
  try {
    if (op.body) op.body(alive);
  } catch (const std::bad_alloc&) {
    set_device_fault(device_index, hipErrorOutOfMemory);
  } catch (const std::exception&) {
    set_device_fault(device_index, hipErrorUnknown);
  }
  op.body = nullptr;  // here and not under the lock: it may hold the last reference to a module
}

void serve(StreamRef stream) {
  is_stream_thread = true;
  std::unique_lock lock(queues().mutex);
  for (;;) {
    stream->wake.wait(lock, [&] { return ready(*stream); });
    if (stream->queue.empty()) break;
    const OpRef op = stream->queue.front();
    lock.unlock();
    run_body(*op, stream->device);
    lock.lock();
    stream->queue.pop_front();
    finish(op);
  }
  queues().streams.remove(stream);
  stream->has_worker = false;  // if the handle was used while it was destroyed: another one starts
}

void start_worker(const StreamRef& stream) {
  if (stream->has_worker) return;
  queues().streams.push_back(stream);
  const SignalsBlocked guard;
  try {
    std::thread(serve, stream).detach();
  } catch (...) {
    queues().streams.pop_back();
    throw;
  }
  stream->has_worker = true;
}

void add_dependency(const OpRef& op, const OpRef& on) {
  if (!on || on->done || on->stream == op->stream) return;
  on->successors.push_back(op);
  ++op->waits_for;
}

// Both directions of the legacy rule: the null stream waits for what the blocking streams of its device were
// given so far, and they for what it was.
void add_legacy_dependencies(const OpRef& op) {
  const Stream& own = *op->stream;
  if (!own.is_null && !own.is_blocking) return;
  for (const StreamRef& s : queues().streams) {
    if (s->device == own.device && (own.is_null ? s->is_blocking : s->is_null)) add_dependency(op, s->last);
  }
}

void close(Stream& stream) {
  stream.closing = true;
  stream.wake.notify_one();
}

// hipStreamPerThread: a blocking stream a thread and device.
class ThreadStreams {
 public:
  ~ThreadStreams() {
    if (process_use == Use::kInParent) return;  // the mutex may be a thread's that is not in this process
    std::lock_guard lock(queues().mutex);
    for (const auto& [index, stream] : streams_) close(*stream);
  }
  const StreamRef& on(int device_index) {
    StreamRef& s = streams_[device_index];
    if (!s) {
      s = std::make_shared<Stream>();
      s->device = device_index;
      s->id = 2;
    }
    return s;
  }

 private:
  std::map<int, StreamRef> streams_;
};

}  // namespace

std::mutex& queue_mutex() { return queues().mutex; }

StreamRef null_stream(int device_index) {
  std::lock_guard lock(queues().mutex);
  StreamRef& s = queues().nulls[device_index];
  if (!s) {
    s = std::make_shared<Stream>();
    s->device = device_index;
    s->is_null = true;
  }
  return s;
}

StreamRef find_stream(HipStream handle, const char* function) {
  thread_local ThreadStreams own;
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number <= 1) return null_stream(current_device());
  if (number == 2) return own.on(current_device());
  if (StreamRef s = handles().find(handle)) return s;
  fail(hipErrorContextIsDestroyed, "%s: %p is not a stream of this runtime", function,
       static_cast<void*>(handle));
  return nullptr;
}

StreamRef add_stream(int device_index, unsigned flags, int priority) {
  auto stream = std::make_shared<Stream>();
  stream->device = device_index;
  stream->flags = flags;
  stream->is_blocking = !(flags & kNonBlocking);
  stream->priority = priority;
  stream->id = queues().next_id++;
  handles().add(stream);
  return stream;
}

bool remove_stream(HipStream handle) {
  const StreamRef stream = handles().remove(handle);
  if (!stream) return false;
  std::lock_guard lock(queues().mutex);
  close(*stream);
  return true;
}

OpRef submit(const StreamRef& stream, OpBody body, const std::vector<OpRef>& after) {
  start_worker(stream);
  auto op = std::make_shared<Op>();
  op->body = std::move(body);
  op->stream = stream;
  Device& d = device(stream->device);
  op->refused = d.fault != hipSuccess;
  op->faults = d.faults;
  for (const OpRef& on : after) add_dependency(op, on);
  add_legacy_dependencies(op);
  stream->queue.push_back(op);
  stream->last = op;
  if (stream->queue.size() == 1) stream->wake.notify_one();
  return op;
}

OpRef loose_mark(const StreamRef& stream) {
  auto op = std::make_shared<Op>();
  op->stream = stream;
  op->faults = device(stream->device).faults;
  return op;
}

void finish_mark(const OpRef& mark, int dropped) {
  std::lock_guard lock(queues().mutex);
  if (mark->done) return;
  mark->dropped = dropped;
  finish(mark);
}

void wait_on_stream_thread(const OpRef& op) {
  std::unique_lock lock(queues().mutex);
  ++queues().waiting;
  queues().done.wait(lock, [&] { return op->done; });
  --queues().waiting;
}

std::vector<OpRef> pending_of(const Stream& stream) {
  std::vector<OpRef> ops;
  if (stream.last) ops.push_back(stream.last);
  if (!stream.is_null) return ops;
  for (const StreamRef& s : queues().streams) {
    if (s->device == stream.device && s->is_blocking && s->last) ops.push_back(s->last);
  }
  return ops;
}

std::vector<OpRef> pending_of_device(int device_index) {
  std::vector<OpRef> ops;
  for (const StreamRef& s : queues().streams) {
    if ((device_index < 0 || s->device == device_index) && s->last) ops.push_back(s->last);
  }
  return ops;
}

int wait_for(const std::vector<OpRef>& ops, const char* function) {
  if (is_stream_thread) {
    return fail(hipErrorNotSupported,
                "%s: called from a stream's host function, which must not wait for work", function);
  }
  std::unique_lock lock(queues().mutex);
  ++queues().waiting;
  queues().done.wait(lock,
                     [&] { return std::ranges::all_of(ops, [](const OpRef& op) { return op->done; }); });
  --queues().waiting;
  return hipSuccess;
}

int wait_for_device(int device_index, const char* function) {
  std::vector<OpRef> ops;
  {
    std::lock_guard lock(queues().mutex);
    ops = pending_of_device(device_index);
  }
  return wait_for(ops, function);
}

bool on_stream_thread() { return is_stream_thread; }

void set_device_fault(int index, int error) {
  Device& d = device(index);
  std::lock_guard lock(queues().mutex);
  d.fault = d.last_fault = error;
  ++d.faults;
}

int outcome_of(Stream& stream, const char* function) {
  int dropped = hipSuccess;
  {
    std::lock_guard lock(queues().mutex);
    std::swap(dropped, stream.dropped);
  }
  if (const int e = device_fault(stream.device)) return e;
  if (!dropped) return hipSuccess;
  return fail(dropped, "%s: work of this stream was dropped, since a launch before it had stopped: %s",
              function, error_name(dropped));
}

void forget_dropped(int device_index) {
  std::lock_guard lock(queues().mutex);
  for (const StreamRef& s : queues().streams) {
    if (s->device == device_index) s->dropped = hipSuccess;
  }
}

}  // namespace fmha::emu
