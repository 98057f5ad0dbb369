// SPDX-License-Identifier: MIT OR Apache-2.0
// platform.h on Windows, whose own functions take and give UTF-16.
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#define PSAPI_VERSION 2  // of Kernel32: no other DLL is needed
#include <windows.h>
// windows.h comes first: psapi.h does not include it.
#include <psapi.h>

#include <cstring>
#include <utility>

#include "platform/platform.h"

namespace fmha::platform {
namespace {

// "" if the text is not UTF-8: no file has that name.
std::wstring wide(const char* text) {
  const int size = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, nullptr, 0);
  if (size <= 0) return L"";
  std::wstring out(static_cast<size_t>(size), L'\0');
  MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, out.data(), size);
  out.pop_back();  // the zero at its end
  return out;
}

std::string utf8(const std::wstring& text) {
  const int length = static_cast<int>(text.size());
  const int size = WideCharToMultiByte(CP_UTF8, 0, text.data(), length, nullptr, 0, nullptr, nullptr);
  std::string out(static_cast<size_t>(size), '\0');
  WideCharToMultiByte(CP_UTF8, 0, text.data(), length, out.data(), size, nullptr, nullptr);
  return out;
}

// Windows' words for an error, in English if it has them, and its number.
std::string words_of(DWORD error) {
  wchar_t text[512];
  DWORD size = 0;
  for (const DWORD language : {DWORD{MAKELANGID(LANG_ENGLISH, SUBLANG_ENGLISH_US)}, DWORD{0}}) {
    if (size == 0) {
      size = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, nullptr, error,
                            language, text, 512, nullptr);
    }
  }
  while (size > 0 && (text[size - 1] <= L' ' || text[size - 1] == L'.')) --size;
  return utf8(std::wstring(text, size)) + " (error " + std::to_string(error) + ")";
}

std::wstring path_of_module(HMODULE module) {
  std::wstring path(MAX_PATH, L'\0');
  for (;;) {
    const DWORD size = GetModuleFileNameW(module, path.data(), static_cast<DWORD>(path.size()));
    if (size < path.size()) {
      path.resize(size);
      return path;
    }
    path.resize(2 * path.size());
  }
}

std::wstring full_path(const std::wstring& path) {
  std::wstring full(MAX_PATH, L'\0');
  for (;;) {
    const DWORD size = GetFullPathNameW(path.c_str(), static_cast<DWORD>(full.size()), full.data(), nullptr);
    if (size < full.size()) {
      full.resize(size);
      return full;
    }
    full.resize(size);
  }
}

bool is_there(const std::wstring& path) {
  return GetFileAttributesW(path.c_str()) != INVALID_FILE_ATTRIBUTES;
}

// Tells whether a text begins with `stem`, whose letters are small, in either case: so Windows compares
// names.
template <typename Char>
bool begins_with(const Char* text, const char* stem) {
  for (; *stem != '\0'; ++text, ++stem) {
    const Char small = *text >= 'A' && *text <= 'Z' ? static_cast<Char>(*text + ('a' - 'A')) : *text;
    if (small != static_cast<Char>(*stem)) return false;
  }
  return true;
}

std::vector<HMODULE> loaded_modules() {
  std::vector<HMODULE> modules(256);
  for (;;) {
    const auto bytes = static_cast<DWORD>(modules.size() * sizeof(HMODULE));
    DWORD needed = 0;
    if (EnumProcessModules(GetCurrentProcess(), modules.data(), bytes, &needed) == 0) return {};
    modules.resize(needed / sizeof(HMODULE));
    if (needed <= bytes) return modules;
  }
}

// For amdhip64 it finds amdhip64_7.dll, amdhip64_6.dll and amdhip64.dll.
std::vector<HMODULE> loaded_with_name(const char* stem) {
  std::vector<HMODULE> found;
  for (HMODULE module : loaded_modules()) {
    const std::wstring path = path_of_module(module);
    const size_t slash = path.find_last_of(L"\\/");
    if (begins_with(path.c_str() + (slash == std::wstring::npos ? 0 : slash + 1), stem))
      found.push_back(module);
  }
  return found;
}

// The module from which `user` takes what it imports of a DLL whose name begins so: the loader has written
// its addresses into the table. nullptr: there is none.
HMODULE source_of_imports(HMODULE user, const char* stem) {
  const auto* base = reinterpret_cast<const char*>(user);
  const auto* dos = reinterpret_cast<const IMAGE_DOS_HEADER*>(base);
  const auto* head = reinterpret_cast<const IMAGE_NT_HEADERS*>(base + dos->e_lfanew);
  const IMAGE_DATA_DIRECTORY& table = head->OptionalHeader.DataDirectory[IMAGE_DIRECTORY_ENTRY_IMPORT];
  if (table.Size == 0) return nullptr;
  const auto* entry = reinterpret_cast<const IMAGE_IMPORT_DESCRIPTOR*>(base + table.VirtualAddress);
  for (; entry->Name != 0; ++entry) {
    if (!begins_with(base + entry->Name, stem)) continue;
    const auto* address = *reinterpret_cast<const wchar_t* const*>(base + entry->FirstThunk);
    constexpr DWORD kBorrowed =
        GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    HMODULE source = nullptr;
    if (GetModuleHandleExW(kBorrowed, address, &source) != 0) return source;
  }
  return nullptr;
}

// A file and its volume: two paths of it have the same.
bool identity(const char* path, BY_HANDLE_FILE_INFORMATION& out) {
  constexpr DWORD kShared = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
  const HANDLE file = CreateFileW(wide(path).c_str(), 0, kShared, nullptr, OPEN_EXISTING,
                                  FILE_FLAG_BACKUP_SEMANTICS, nullptr);
  if (file == INVALID_HANDLE_VALUE) return false;
  const bool known = GetFileInformationByHandle(file, &out) != 0;
  CloseHandle(file);
  return known;
}

std::string not_found(const char* name) { return std::string(name) + ": there is no such DLL"; }

// The variables that name the folder of an installed HIP: that of AMD's installer, and ROCm's own.
constexpr const char* kFolders[] = {"HIP_PATH", "ROCM_PATH"};

}  // namespace

std::string environment(const char* name) {
  const std::wstring variable = wide(name);
  std::wstring value(MAX_PATH, L'\0');
  for (;;) {
    const DWORD size =
        GetEnvironmentVariableW(variable.c_str(), value.data(), static_cast<DWORD>(value.size()));
    if (size < value.size()) {
      value.resize(size);
      return utf8(value);
    }
    value.resize(size);
  }
}

bool is_same_file(const char* a, const char* b) {
  BY_HANDLE_FILE_INFORMATION ia{}, ib{};
  if (!identity(a, ia) || !identity(b, ib)) return std::strcmp(a, b) == 0;
  return ia.dwVolumeSerialNumber == ib.dwVolumeSerialNumber && ia.nFileIndexHigh == ib.nFileIndexHigh &&
         ia.nFileIndexLow == ib.nFileIndexLow;
}

void at_fork_in_child(void (* /*note*/)()) {}

// Windows' loader refuses a file that was cut off.
bool is_loadable(const char* /*path*/, std::string& /*why*/) { return true; }

// A name is looked for in the program's folder, the system's, and those of AddDllDirectory (Python's
// os.add_dll_directory), and not in the current one. A path's DLL finds what it needs beside itself.
Library open(const char* path, std::string& why) {
  std::wstring name = wide(path);
  DWORD folders = LOAD_LIBRARY_SEARCH_DEFAULT_DIRS;
  if (name.find_first_of(L"\\/") != std::wstring::npos) {
    name = full_path(name);
    folders |= LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR;
  }
  if (HMODULE library = LoadLibraryExW(name.c_str(), nullptr, folders)) return library;
  const DWORD error = GetLastError();
  why = std::string(path) + ": " + words_of(error);
  if (error != ERROR_MOD_NOT_FOUND) return nullptr;
  // The same error says that the DLL is not there, and that one which it needs is not.
  HMODULE file = LoadLibraryExW(name.c_str(), nullptr, folders | LOAD_LIBRARY_AS_DATAFILE);
  if (file == nullptr) {
    why = not_found(path);
  } else {
    FreeLibrary(file);
    why = std::string(path) + ": a DLL that it needs was not found";
  }
  return nullptr;
}

Library open_loaded(const char* path) {
  HMODULE library = nullptr;
  return GetModuleHandleExW(0, wide(path).c_str(), &library) != 0 ? library : nullptr;
}

void close(Library library) { FreeLibrary(static_cast<HMODULE>(library)); }

void* find_function(Library library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

std::string path_of(Library library, const char* fallback) {
  const std::string path = utf8(path_of_module(static_cast<HMODULE>(library)));
  return path.empty() ? fallback : path;
}

bool is_not_found(const char* name, const std::string& why) { return why == not_found(name); }

const std::vector<std::string>& runtime_names() {
  static const auto* names = new std::vector<std::string>{"amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"};
  return *names;
}

std::vector<std::string> loaded_runtimes() {
  std::vector<std::string> paths;
  for (HMODULE module : loaded_with_name("amdhip64")) paths.push_back(utf8(path_of_module(module)));
  return paths;
}

std::string runtime_of_torch() {
  for (HMODULE torch : loaded_with_name("torch_hip")) {
    if (HMODULE runtime = source_of_imports(torch, "amdhip64")) return utf8(path_of_module(runtime));
  }
  return "";
}

std::vector<std::string> installed_runtimes() {
  std::vector<std::string> found;
  for (const char* variable : kFolders) {
    const std::string folder = environment(variable);
    if (folder.empty()) continue;
    for (const std::string& name : runtime_names()) {
      std::string path = folder + (folder.back() == '\\' ? "bin\\" : "\\bin\\") + name;
      if (is_there(wide(path.c_str()))) found.push_back(std::move(path));
    }
  }
  return found;
}

std::string where_none_was() {
  std::string folders;
  for (const char* variable : kFolders) {
    const std::string folder = environment(variable);
    folders += std::string(" nor in ") + variable + "\\bin (" + (folder.empty() ? "not set" : folder) + ")";
  }
  return "amdhip64_7.dll, amdhip64_6.dll and amdhip64.dll were found neither by the loader" + folders;
}

}  // namespace fmha::platform
