// SPDX-License-Identifier: MIT OR Apache-2.0
// platform.h on Linux.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "platform/platform.h"

namespace fmha::platform {
namespace {

class File {
 public:
  // Opening a FIFO would wait for a writer.
  explicit File(const char* path) : descriptor_(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {}
  ~File() {
    if (is_open()) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  bool status(struct stat& out) const { return fstat(descriptor_, &out) == 0; }
  bool read(void* out, size_t bytes, uint64_t offset) const {
    return pread(descriptor_, out, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
  }

 private:
  const int descriptor_;
};

// The last byte that the loader will map of this file; 0: it will refuse the file, and say why.
uint64_t mapped_end(const File& file) {
  ElfW(Ehdr) header;
  if (!file.read(&header, sizeof header, 0) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_phentsize != sizeof(ElfW(Phdr))) {
    return 0;
  }
  uint64_t end = 0;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    if (!file.read(&segment, sizeof segment, header.e_phoff + i * sizeof segment)) return 0;
    if (segment.p_type == PT_LOAD) end = std::max<uint64_t>(end, segment.p_offset + segment.p_filesz);
  }
  return end;
}

// The loader waits on a FIFO, and maps a file that was cut off, of which the first read past its end kills
// the process.
bool is_file_loadable(const char* path, std::string& why) {
  const File file(path);
  struct stat status{};
  if (!file.is_open() || !file.status(status)) return true;
  if (!S_ISREG(status.st_mode)) {
    why = std::string(path) + " is not a file" + (S_ISFIFO(status.st_mode) ? " but a FIFO" : "");
    return false;
  }
  const uint64_t end = mapped_end(file);
  if (end <= static_cast<uint64_t>(status.st_size)) return true;
  why = std::string(path) + " is cut off: it has " + std::to_string(status.st_size) + " bytes of " +
        std::to_string(end) + " or more";
  return false;
}

// The first file of this name in the loader's folders, $LD_LIBRARY_PATH and its own.
bool is_first_loadable(const char* name, std::string& why) {
  void* program = dlopen(nullptr, RTLD_LAZY);
  Dl_serinfo head;
  std::vector<char> list;
  if (program != nullptr && dlinfo(program, RTLD_DI_SERINFOSIZE, &head) == 0) {
    list.resize(head.dls_size);
    auto* folders = reinterpret_cast<Dl_serinfo*>(list.data());
    if (dlinfo(program, RTLD_DI_SERINFOSIZE, folders) == 0 &&
        dlinfo(program, RTLD_DI_SERINFO, folders) == 0) {
      for (unsigned i = 0; i < folders->dls_cnt; ++i) {
        const std::string path = std::string(folders->dls_serpath[i].dls_name) + "/" + name;
        if (access(path.c_str(), F_OK) == 0) return is_file_loadable(path.c_str(), why);
      }
    }
  }
  return true;
}

// For libamdhip64 it finds libamdhip64.so, libamdhip64.so.6, and a wheel's libamdhip64-1a2b3c4d.so.6. Every
// object in the process is listed once, however often and by whatever name it was opened.
std::vector<std::string> mapped_libraries(const char* stem) {
  struct Search {
    const char* stem;
    std::vector<std::string> paths;
    bool out_of_memory = false;
  } search{stem, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& result = *static_cast<Search*>(data);
        if (info->dlpi_name == nullptr) return 0;
        const char* slash = std::strrchr(info->dlpi_name, '/');
        const char* name = slash != nullptr ? slash + 1 : info->dlpi_name;
        if (std::strncmp(name, result.stem, std::strlen(result.stem)) != 0 ||
            std::strstr(name, ".so") == nullptr)
          return 0;
        try {  // nothing may be thrown through the loader
          result.paths.emplace_back(info->dlpi_name);
        } catch (...) {
          result.out_of_memory = true;
        }
        return 0;
      },
      &search);
  if (search.out_of_memory) throw std::bad_alloc();
  return std::move(search.paths);
}

void add_installed(const std::string& folder, std::vector<std::string>& found) {
  for (const std::string& name : runtime_names()) {
    std::string path = folder;
    path += "/";
    path += name;
    if (access(path.c_str(), F_OK) == 0) found.push_back(std::move(path));
  }
}

}  // namespace

std::string environment(const char* name) {
  const char* value = secure_getenv(name);
  return value != nullptr ? value : "";
}

bool is_same_file(const char* a, const char* b) {
  struct stat sa{}, sb{};
  if (stat(a, &sa) != 0 || stat(b, &sb) != 0) return std::strcmp(a, b) == 0;
  return sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

void at_fork_in_child(void (*note)()) { (void)pthread_atfork(nullptr, nullptr, note); }

bool is_loadable(const char* path, std::string& why) {
  return std::strchr(path, '/') == nullptr ? is_first_loadable(path, why) : is_file_loadable(path, why);
}

Library open(const char* path, std::string& why) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* reason = dlerror();
  why = reason != nullptr ? reason : "the loader does not say why";
  return nullptr;
}

Library open_loaded(const char* path) { return dlopen(path, RTLD_NOW | RTLD_NOLOAD); }

void close(Library library) { dlclose(library); }

void* find_function(Library library, const char* name) { return dlsym(library, name); }

std::string path_of(Library library, const char* fallback) {
  struct link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 || map == nullptr) return fallback;
  return map->l_name != nullptr && map->l_name[0] != '\0' ? map->l_name : fallback;
}

bool is_not_found(const char* name, const std::string& why) {
  return why.rfind(std::string(name) + ": cannot open shared object file: No such file", 0) == 0;
}

const std::vector<std::string>& runtime_names() {
  static const auto* names =
      new std::vector<std::string>{"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"};
  return *names;
}

std::vector<std::string> loaded_runtimes() { return mapped_libraries("libamdhip64"); }

std::string runtime_of_torch() {
  for (const std::string& path : mapped_libraries("libtorch_hip")) {
    void* torch = open_loaded(path.c_str());
    if (torch == nullptr) continue;
    Dl_info info{};
    void* symbol = dlsym(torch, "hipGetDevice");  // in the order of its dependencies
    const bool found = symbol != nullptr && dladdr(symbol, &info) != 0 && info.dli_fname != nullptr;
    dlclose(torch);
    if (found) return info.dli_fname;
  }
  return "";
}

std::vector<std::string> installed_runtimes() {
  std::vector<std::string> found;
  if (const std::string rocm = environment("ROCM_PATH"); !rocm.empty()) add_installed(rocm + "/lib", found);
  add_installed("/opt/rocm/lib", found);
  return found;
}

std::string where_none_was() {
  const std::string rocm = environment("ROCM_PATH");
  return "libamdhip64.so.7, .so.6 and .so were found neither by the loader nor in ROCM_PATH (" +
         (rocm.empty() ? "not set" : rocm) + ") nor in /opt/rocm/lib";
}

}  // namespace fmha::platform
