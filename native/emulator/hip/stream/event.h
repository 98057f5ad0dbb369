// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "hip/stream/queue.h"

namespace fmha::emu {

struct Event;
using EventRef = std::shared_ptr<Event>;

int record_event(HipEvent event, HipStream stream, const char* function);
// Null with the error recorded if it is not a live handle.
EventRef find_event(HipEvent handle, const char* function);

// Graphs call these with queue_mutex() held: what the event was recorded with last (or null), and a new mark,
// which is none of a queue: finish_mark says when it is done.
OpRef recorded(const Event& event);
OpRef begin_mark(Event& event, const StreamRef& stream);

}  // namespace fmha::emu
