// SPDX-License-Identifier: MIT OR Apache-2.0
#include "hip/stream/queue.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <list>
#include <map>
#include <thread>

#include "base/cancel.h"
#include "base/per_thread.h"
#include "hip/handles.h"
#include "hip/stream/host_wait.h"

namespace fmha::emu {
namespace {

// Never destroyed: streams may still run while the process ends.
struct Queues {
  std::mutex mutex;
  std::condition_variable done;
  int waiting = 0;                   // in wait_on_stream_thread
  std::list<const HostWait*> hosts;  // in wait_for
  std::list<StreamRef> streams;      // those with a thread
  std::map<int, StreamRef> nulls;    // by device
  std::atomic<uint64_t> next_id{3};  // 0 to 2 are the default streams' handles
};
Queues& queues() {
  static auto* q = new Queues;
  return *q;
}
Handles<Stream>& stream_handles() {
  static auto* h = new Handles<Stream>;
  return *h;
}

FMHA_THREAD_NUMBER bool is_stream_thread = false;
FMHA_THREAD_NUMBER bool was_cancelled = false;
FMHA_THREAD_NUMBER uint64_t asked_at_of_op = 0;
std::atomic<bool> process_ends{false};

// Operations that a stream takes. ROCm's queues have as many packets.
constexpr size_t kMostQueued = 16384;
constexpr uint64_t kMostQueuedBytes = uint64_t{1} << 30;

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

// Tells whether the host may queue one more without a wait.
bool has_room(const Stream& s) {
  if (s.queue.size() < kMostQueued && s.queued_bytes < kMostQueuedBytes) return true;
  const Op& front = *s.queue.front();
  return process_ends || s.capture || s.holds || front.waits_for || front.load.runs_program;
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
  for (const HostWait* host : queues().hosts) host->wake();
}

void drop(Op& op, int error) {
  std::lock_guard lock(queues().mutex);
  op.dropped = error;
  if (op.body) op.stream->dropped = error;
}

void run_body(Op& op, int device_index) {
  const bool alive = !op.refused && op.faults == device(device_index).faults;
  if (!alive) drop(op, device(device_index).last_fault);
  was_cancelled = false;
  asked_at_of_op = op.asked_at;
  try {
    if (op.body) op.body(alive);
    if (was_cancelled) drop(op, hipErrorLaunchTimeOut);
  } catch (const std::bad_alloc&) {
    set_device_fault(device_index, hipErrorOutOfMemory);
  } catch (const std::exception&) {
    set_device_fault(device_index, hipErrorUnknown);
  }
  op.body = nullptr;  // here and not under the lock: it may hold the last reference to a module
}

enum class Start : int { kUnknown, kServes, kNoMemory };

void serve(StreamRef stream, std::shared_ptr<std::atomic<Start>> start) {
  const bool serves = host_has_memory();
  *start = serves ? Start::kServes : Start::kNoMemory;
  start->notify_one();
  if (!serves) return;
  start = nullptr;
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
    stream->queued_bytes -= op->load.bytes;
    finish(op);
  }
  queues().streams.remove(stream);
  stream->has_worker = false;  // if the handle was used while it was destroyed: another one starts
}

void start_worker(const StreamRef& stream) {
  if (stream->has_worker) return;
  queues().streams.push_back(stream);
  const SignalsBlocked guard;
  const auto start = std::make_shared<std::atomic<Start>>(Start::kUnknown);
  try {
    std::thread thread(serve, stream, start);
    start->wait(Start::kUnknown);
    if (*start == Start::kServes) {
      thread.detach();
    } else {
      thread.join();
      throw std::bad_alloc();
    }
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

// Launches end, and what was queued behind them does not run. With the mutex held.
void cancel_all() {
  ++cancellations;
  for (int i = 0; i < device_count(); ++i) {
    device(i).last_fault = hipErrorLaunchTimeOut;
    ++device(i).faults;
  }
}

// Puts a waiting host on the list of those to wake. Made and destroyed with the mutex held.
class HostInLine {
 public:
  explicit HostInLine(const HostWait& host) : at_(queues().hosts.insert(queues().hosts.end(), &host)) {}
  ~HostInLine() { queues().hosts.erase(at_); }
  HostInLine(const HostInLine&) = delete;
  HostInLine& operator=(const HostInLine&) = delete;

 private:
  std::list<const HostWait*>::iterator at_;
};

// Sleeps until streams have done what `is_so` asks for, which is asked with the mutex held, or were
// cancelled.
template <class F>
void sleep_until(F&& is_so) {
  HostWait host;  // outlives the lock, so that no handler of the program runs under it
  std::unique_lock lock(queues().mutex);
  const HostInLine in_line(host);
  bool cancelled = false;
  while (!is_so()) {
    lock.unlock();
    host.sleep();
    lock.lock();
    if (cancelled || !host.wants_to_cancel()) continue;
    cancel_all();
    cancelled = true;
  }
}

// A process that ends does not wait for its launches. They are told to end, and get a moment, since they may
// be using memory that the program is about to lose.
void end_of_process() {
  process_ends = true;
  {
    std::lock_guard lock(queues().mutex);
    cancel_all();
  }
  for (int i = 0; i < 100 && !launch_gate().try_lock(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

// Runs end_of_process() at exit, before what the program registered before its first operation. A child of
// fork() has no stream threads, and nothing to end.
void note_process() {
  static const pid_t owner = getpid();
  static const int registered = std::atexit([] {
    if (getpid() == owner) end_of_process();
  });
  (void)registered;
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
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number == 0 || (number == 1 && takes_legacy_handle())) return null_stream(current_device());
  if (number == 2) return per_thread<ThreadStreams>().on(current_device());
  if (StreamRef s = stream_handles().find(handle)) return s;
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
  stream_handles().add(stream);
  return stream;
}

bool remove_stream(HipStream handle) {
  const StreamRef stream = stream_handles().remove(handle);
  if (!stream) return false;
  std::lock_guard lock(queues().mutex);
  close(*stream);
  return true;
}

OpRef submit(const StreamRef& stream, OpBody body, const std::vector<OpRef>& after, Load load) {
  note_process();
  start_worker(stream);
  auto op = std::make_shared<Op>();
  op->body = std::move(body);
  op->stream = stream;
  op->load = load;
  Device& d = device(stream->device);
  op->refused = d.fault != hipSuccess;
  op->faults = d.faults;
  op->asked_at = process_ends ? kCancelledAtOnce : cancellations.load();
  for (const OpRef& on : after) add_dependency(op, on);
  add_legacy_dependencies(op);
  stream->queue.push_back(op);
  stream->queued_bytes += load.bytes;
  stream->last = op;
  if (stream->queue.size() == 1) stream->wake.notify_one();
  return op;
}

void wait_for_room(const StreamRef& stream) {
  if (is_stream_thread) return;
  {
    std::lock_guard lock(queues().mutex);
    if (has_room(*stream)) return;
  }
  sleep_until([&] { return has_room(*stream); });
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
  const auto is_done = [](const OpRef& op) { return op->done; };
  {
    std::lock_guard lock(queues().mutex);
    if (std::ranges::all_of(ops, is_done)) return hipSuccess;
  }
  if (process_ends) return fail(hipErrorDeinitialized, "%s: the process ends", function);
  sleep_until([&] { return std::ranges::all_of(ops, is_done); });
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

uint64_t asked_at() { return asked_at_of_op; }
void note_cancelled() { was_cancelled = true; }

void set_device_fault(int index, int error) {
  Device& d = device(index);
  std::lock_guard lock(queues().mutex);
  d.fault = d.last_fault = error;
  ++d.faults;
  note_final_fault(error);
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
