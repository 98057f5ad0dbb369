// SPDX-License-Identifier: MIT OR Apache-2.0
// A file or a name becomes a HIP runtime, or a reason why it is none: a search goes on to the next.
#pragma once

#include <memory>
#include <string>

#include "hip/runtime.h"

namespace fmha {

// Opens the library at this path, or of this name by the loader's search, and finds all functions. nullptr:
// `why` says it in the loader's words, if it has some. An opened library stays loaded.
std::unique_ptr<HipApi> open_hip(const char* path, std::string& why);

// Like open_hip, but only what this process has loaded already.
std::unique_ptr<HipApi> open_loaded_hip(const char* path, std::string& why);

}  // namespace fmha
