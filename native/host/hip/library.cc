// SPDX-License-Identifier: MIT OR Apache-2.0
#include "hip/library.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace fmha {
namespace {

class File {
 public:
  // Opening a FIFO would wait for a writer.
  explicit File(const char* path) : descriptor_(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {}
  ~File() {
    if (is_open()) close(descriptor_);
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

template <typename Function>
bool resolve(void* library, const char* name, Function& function, std::string& why) {
  void* symbol = dlsym(library, name);
  function = reinterpret_cast<Function>(symbol);
  if (symbol == nullptr) {
    why = std::string(path_of(library, "it")) + " has no " + name + ": not a HIP runtime, or too old";
  }
  return symbol != nullptr;
}

bool resolve_all(void* library, HipApi& api, std::string& why) {
  std::string ignored;
  (void)resolve(library, "hipGetDevicePropertiesR0600", api.hipGetDevicePropertiesR0600, ignored);
#define FMHA_RESOLVE(name) resolve(library, #name, api.name, why)
  return FMHA_RESOLVE(hipInit) && FMHA_RESOLVE(hipRuntimeGetVersion) && FMHA_RESOLVE(hipGetDevice) &&
         FMHA_RESOLVE(hipDeviceGetAttribute) && FMHA_RESOLVE(hipPointerGetAttribute) &&
         FMHA_RESOLVE(hipStreamIsCapturing) && FMHA_RESOLVE(hipModuleLoadData) &&
         FMHA_RESOLVE(hipModuleUnload) && FMHA_RESOLVE(hipModuleGetFunction) &&
         FMHA_RESOLVE(hipModuleLaunchKernel) && FMHA_RESOLVE(hipMemsetAsync) &&
         FMHA_RESOLVE(hipGetErrorName) && FMHA_RESOLVE(hipGetErrorString) && FMHA_RESOLVE(hipGetLastError);
#undef FMHA_RESOLVE
}

}  // namespace

const char* path_of(void* library, const char* fallback) {
  struct link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 || map == nullptr) return fallback;
  return map->l_name != nullptr && map->l_name[0] != '\0' ? map->l_name : fallback;
}

bool is_loadable(const char* path, std::string& why) {
  return std::strchr(path, '/') == nullptr ? is_first_loadable(path, why) : is_file_loadable(path, why);
}

std::unique_ptr<HipApi> open_hip(const char* path, int flags, std::string& why) {
  if ((flags & RTLD_NOLOAD) == 0 && !is_loadable(path, why)) return nullptr;
  auto api = std::make_unique<HipApi>();
  void* library = dlopen(path, flags);
  if (library == nullptr) {
    const char* reason = dlerror();
    why = reason != nullptr ? reason : "it is not loaded";
    return nullptr;
  }
  if (resolve_all(library, *api, why)) {
    api->path = path_of(library, path);
    return api;
  }
  dlclose(library);
  return nullptr;
}

bool is_not_found(const char* name, const std::string& why) {
  return why.rfind(std::string(name) + ": cannot open shared object file: No such file", 0) == 0;
}

}  // namespace fmha
