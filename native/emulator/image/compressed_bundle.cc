// SPDX-License-Identifier: MIT OR Apache-2.0
#include "image/compressed_bundle.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>

#include "image/bundle_table.h"

namespace fmha::emu {
namespace {

constexpr size_t kMagicBytes = sizeof kCompressedMagic - 1;
constexpr size_t kCommonBytes = kMagicBytes + 4;  // up to and with the method: in all versions
constexpr uint16_t kZlib = 0, kZstd = 1;
// The most that clang's levels ask for (level 22, and any level with long-distance matching): 128 MiB, which
// a decoder allocates. A frame that asks for more is refused.
constexpr int kWindowLog = 27;
// zstd stores what it cannot compress, in blocks with a header of 3 bytes. (Asking ZSTD_compressBound would
// bring all of the compressor into this library.)
constexpr size_t kMostOverhead = size_t{64} << 10;

// Where a version has its numbers.
struct Layout {
  size_t size_bytes;  // of the sizes: 4 or 8
  bool has_file_bytes;
  size_t plain_at() const { return kCommonBytes + (has_file_bytes ? size_bytes : 0); }
  size_t header_bytes() const { return plain_at() + size_bytes + sizeof(uint64_t); }  // the hash comes last
};
constexpr Layout kLayouts[] = {{4, false}, {4, true}, {8, true}};

uint64_t number_at(const uint8_t* p, size_t at, size_t bytes) {
  uint64_t v = 0;
  std::memcpy(&v, p + at, bytes);
  return v;
}

// Null if there is no such version.
const Layout* layout_of(const uint8_t* image) {
  const uint64_t version = number_at(image, kMagicBytes, 2);
  return version >= 1 && version <= std::size(kLayouts) ? &kLayouts[version - 1] : nullptr;
}

struct Header {
  uint64_t plain_bytes;
  std::span<const uint8_t> data;
};

// Empty if it is right; else what is wrong with it.
std::string read_header(std::span<const uint8_t> bundle, Header* out) {
  const std::string has = std::to_string(bundle.size());
  if (bundle.size() < kCommonBytes) return has + " bytes hold no header";
  const uint8_t* p = bundle.data();
  const Layout* layout = layout_of(p);
  if (!layout)
    return "its version is " + std::to_string(number_at(p, kMagicBytes, 2)) + ", expected 1, 2 or 3";
  const uint64_t method = number_at(p, kMagicBytes + 2, 2);
  if (method != kZstd) {
    return "its method is " + std::to_string(method) + (method == kZlib ? " (zlib)" : "") +
           ", expected 1 (zstd): build it with a clang that has zstd, or with --no-offload-compress";
  }
  const size_t header = layout->header_bytes();
  if (bundle.size() < header) return has + " bytes hold no header, which has " + std::to_string(header);
  uint64_t bytes = bundle.size();
  if (layout->has_file_bytes) {
    bytes = number_at(p, kCommonBytes, layout->size_bytes);
    if (bytes < header || bytes > bundle.size()) {
      return "it should have " + std::to_string(bytes) + " bytes by its header, and has " + has;
    }
  }
  out->plain_bytes = number_at(p, layout->plain_at(), layout->size_bytes);
  out->data = bundle.first(bytes).subspan(header);
  return {};
}

// The plain bytes as they come: counted, and offered to the picker.
class Sink {
 public:
  Sink(const Header& header, const Wanted& wanted) : header_(header), picker_(wanted, header.plain_bytes) {}
  // Both: empty, or what is wrong.
  std::string take(std::span<const uint8_t> bytes) {
    if (bytes.size() > header_.plain_bytes - count_) return "its data give more than " + expected();
    count_ += bytes.size();
    return bytes.empty() || picker_.take(bytes) ? std::string() : picker_.error();
  }
  std::string finish(BundlePick* out) {
    if (count_ != header_.plain_bytes) return "its data give " + std::to_string(count_) + " of " + expected();
    if (!picker_.has_table()) return "its table is cut off";
    out->ids = picker_.ids();
    out->unpacked = picker_.release_entry();
    out->image = out->unpacked;
    return {};
  }

 private:
  std::string expected() const {
    return "the " + std::to_string(header_.plain_bytes) + " bytes its header says";
  }

  const Header& header_;
  EntryPicker picker_;
  uint64_t count_ = 0;
};

struct FreeContext {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};
using Context = std::unique_ptr<ZSTD_DCtx, FreeContext>;

Context make_context() {
  Context context(ZSTD_createDCtx());
  if (!context) throw std::bad_alloc();
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kWindowLog);
  return context;
}

// Empty, or what is wrong.
std::string unpack(std::span<const uint8_t> data, Sink* sink) {
  const Context context = make_context();
  std::vector<uint8_t> chunk(ZSTD_DStreamOutSize());
  ZSTD_inBuffer in{data.data(), data.size(), 0};
  for (size_t more = 1; more != 0;) {
    ZSTD_outBuffer out{chunk.data(), chunk.size(), 0};
    const size_t before = in.pos;
    more = ZSTD_decompressStream(context.get(), &out, &in);
    if (ZSTD_isError(more)) {
      return "its data are damaged at byte " + std::to_string(before) +
             " or later: " + ZSTD_getErrorName(more);
    }
    if (std::string wrong = sink->take({chunk.data(), out.pos}); !wrong.empty()) return wrong;
    if (more != 0 && in.pos == in.size && out.pos < out.size) return "its data are cut off";
  }
  if (in.pos < in.size) return std::to_string(in.size - in.pos) + " bytes follow its data";
  return {};
}

}  // namespace

size_t compressed_bundle_bytes(const uint8_t* image) {
  const Layout* layout = layout_of(image);
  if (!layout) return kCommonBytes;
  const size_t header = layout->header_bytes();
  if (layout->has_file_bytes) {
    return std::max<size_t>(header, number_at(image, kCommonBytes, layout->size_bytes));
  }
  if (number_at(image, kMagicBytes + 2, 2) != kZstd) return header;
  const uint64_t plain = number_at(image, layout->plain_at(), layout->size_bytes);
  const size_t data = ZSTD_findFrameCompressedSize(image + header, 2 * plain + kMostOverhead);
  return header + (ZSTD_isError(data) ? 0 : data);
}

bool pick_from_compressed(std::span<const uint8_t> bundle, const Wanted& wanted, BundlePick* out,
                          std::string* error) {
  Header header;
  std::string wrong = read_header(bundle, &header);
  if (wrong.empty()) {
    Sink sink(header, wanted);
    wrong = unpack(header.data, &sink);
    if (wrong.empty()) wrong = sink.finish(out);
  }
  if (wrong.empty()) return true;
  *error = "compressed offload bundle: " + wrong;
  return false;
}

}  // namespace fmha::emu
