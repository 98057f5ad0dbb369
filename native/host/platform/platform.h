// SPDX-License-Identifier: MIT OR Apache-2.0
// All that the host side asks of the system: its loader, its files, its environment, and where it keeps a HIP
// runtime. posix.cc and windows.cc have the same functions, and a build takes one of them. Text is UTF-8 on
// Windows, where the system itself has wide characters; on Linux it is the bytes that the system has.
#pragma once

#include <string>
#include <vector>

namespace fmha::platform {

// Value of an environment variable; "" if it is unset or empty, or if it comes from a user whose rights the
// process exceeds (setuid): it names what is loaded.
std::string environment(const char* name);

// Two paths of one file. Where one of them is no file they are the same if they read the same.
bool is_same_file(const char* a, const char* b);

// Calls this in each forked child, before anything else runs there. Windows has no fork.
void at_fork_in_child(void (*note)());

// An open library, as the loader knows it.
using Library = void*;

// False, and `why`, for what the loader must not see: a file that would stop or kill the process. Whatever
// else is wrong with a file the loader says itself.
bool is_loadable(const char* path, std::string& why);

// Opens the library at this path, or of this name by the loader's search. nullptr: `why` says it in the
// loader's words.
Library open(const char* path, std::string& why);

// Like open, but only what this process has loaded; nullptr otherwise.
Library open_loaded(const char* path);

void close(Library library);

// nullptr if the library has no such function.
void* find_function(Library library, const char* name);

// Path of an open library as the loader knows it.
std::string path_of(Library library, const char* fallback);

// Tells whether the loader itself is what found nothing of this name: as opposed to a file that it refused.
bool is_not_found(const char* name, const std::string& why);

// The names by which the loader knows a HIP runtime, the newest first.
const std::vector<std::string>& runtime_names();

// Paths of the HIP runtimes that this process has loaded. Two entries are two copies.
std::vector<std::string> loaded_runtimes();

// Path of the HIP runtime that this process's PyTorch is linked to; "" without one.
std::string runtime_of_torch();

// Paths of the HIP runtimes in the folders where one is installed.
std::vector<std::string> installed_runtimes();

// Returns, for a message, the names and folders where there was none.
std::string where_none_was();

}  // namespace fmha::platform
