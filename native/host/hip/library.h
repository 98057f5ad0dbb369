// SPDX-License-Identifier: MIT OR Apache-2.0
// A file or a name becomes a HIP runtime, or a reason why it is none: a search goes on to the next.
#pragma once

#include <memory>
#include <string>

#include "hip/runtime.h"

namespace fmha {

// False, and `why`, for what the loader does not look for: it waits on a FIFO, and maps a file that was cut
// off, of which the first read past its end kills the process. Whatever else is wrong it says itself.
bool is_loadable(const char* path, std::string& why);

// Opens the library at this path, or of this name by the loader's search, and finds all functions. nullptr:
// `why` says it in the loader's words, if it has some. An opened library stays loaded. `flags` are dlopen's.
std::unique_ptr<HipApi> open_hip(const char* path, int flags, std::string& why);

// Tells whether the loader itself is what found nothing of this name: as opposed to a file that it refused.
bool is_not_found(const char* name, const std::string& why);

// Path of a loaded library as the loader knows it.
const char* path_of(void* library, const char* fallback);

}  // namespace fmha
