// SPDX-License-Identifier: MIT OR Apache-2.0
// Streams as queues of operations, each with a thread of its own that runs them in order. An operation may
// also wait for operations of other streams: that is how events and the legacy null stream work.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "hip/state.h"

namespace fmha::emu {

struct Stream;
struct Capture;
struct GraphNode;
using StreamRef = std::shared_ptr<Stream>;

inline constexpr unsigned kNonBlocking = 1;                          // hipStreamNonBlocking, a flag
inline const HipStream kPerThread = reinterpret_cast<HipStream>(2);  // hipStreamPerThread, as a handle

// The load that an operation is for a host that waits for its turn: see wait_for_room().
struct Load {
  uint64_t bytes = 0;         // of memory that it gives back once it has run
  bool runs_program = false;  // it calls, or waits for, what the program does
};

struct Op {
  // Runs on the stream's thread. Empty: a mark. `alive` is false if the device has faulted since the
  // operation was queued: then what it was to do is not done.
  std::function<void(bool alive)> body;
  StreamRef stream;
  uint64_t faults = 0;     // of the device when this was queued
  uint64_t asked_at = 0;   // the count of cancellations then
  unsigned waits_for = 0;  // operations of other streams that are not done
  bool refused = false;    // queued while the device's fault was not acknowledged
  bool done = false;
  Load load;
  int dropped = 0;  // the fault that kept this, and what was queued before it, from running
  std::vector<std::shared_ptr<Op>> successors;
  std::chrono::steady_clock::time_point time;  // when it was done
};
using OpRef = std::shared_ptr<Op>;
using OpBody = std::function<void(bool alive)>;

// Everything below is guarded by queue_mutex() but what never changes.
struct Stream {
  int device = 0;
  bool is_null = false;  // the legacy default stream of its device
  bool is_blocking = true;
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;

  std::deque<OpRef> queue;    // the front one runs or waits to
  uint64_t queued_bytes = 0;  // of the queue's loads
  OpRef last;                 // submitted last, if it is not done
  std::condition_variable wake;
  bool has_worker = false, closing = false;
  int holds = 0;    // fmha_emu_stream_hold
  int dropped = 0;  // the fault that operations were dropped for, until a wait has told

  std::shared_ptr<Capture> capture;
  std::vector<GraphNode*> frontier;  // of the capture: what the next node comes after
};

std::mutex& queue_mutex();

// The stream of a handle, the null stream and its kin included; null with the error recorded.
StreamRef find_stream(HipStream handle, const char* function);
StreamRef add_stream(int device, unsigned flags, int priority);
// The stream goes on with what it was given; its handle is no longer one. False: there is no such handle.
bool remove_stream(HipStream handle);
StreamRef null_stream(int device);

// Queues an operation behind all others of the stream, and behind `after`. With queue_mutex() held.
OpRef submit(const StreamRef& stream, OpBody body, const std::vector<OpRef>& after = {}, Load load = {});

// Before an operation is queued, without queue_mutex(): a queue has an end, at which the host waits, as with
// ROCm. It does not where what it would wait for might wait for it: on a stream's thread, under capture, of a
// stream that is held, and while the operation in front waits for another stream or runs the program's code.
void wait_for_room(const StreamRef& stream);

// The operations that the host waits for. Called with queue_mutex() held.
std::vector<OpRef> pending_of(const Stream& stream);  // for the null stream, of all that it waits for
std::vector<OpRef> pending_of_device(int device);     // -1: of all devices

// A mark that is in no queue, and the moment when it is done: for events that graphs record. The first with
// queue_mutex() held. `dropped` as in Op.
OpRef loose_mark(const StreamRef& stream);
void finish_mark(const OpRef& mark, int dropped);
// Called on a stream's thread, by an operation queued before the one that runs.
void wait_on_stream_thread(const OpRef& op);

// Blocks until all are done, or cancelled (host_wait.h). Not from a host function of a stream, which would
// wait for itself; nor once the process ends.
int wait_for(const std::vector<OpRef>& ops, const char* function);
int wait_for_device(int device, const char* function);  // -1: all; does not return faults

// hipSuccess, or why work of the stream did not run: its device's fault, or one that another thread has
// acknowledged meanwhile.
int outcome_of(Stream& stream, const char* function);
// Nobody need be told any more of what was dropped on the device.
void forget_dropped(int device);

// On a stream's thread: the count of cancellations when the operation was queued; and that the launch which
// it made was cancelled.
uint64_t asked_at();
void note_cancelled();

// Records that an operation stopped device `index`, for device_fault().
void set_device_fault(int index, int error);

}  // namespace fmha::emu
