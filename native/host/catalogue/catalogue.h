// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernels embedded in this library, one row each. The table itself is generated into the build tree from
// native/kernels/catalogue and from what the compiler said of each code object; so are the enums of what rows
// say (catalogue/enums.h) and of archs (catalogue/archs.h), each with its count and the names of its values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "catalogue/archs.h"
#include "catalogue/bwd.h"
#include "catalogue/decode.h"
#include "catalogue/enums.h"
#include "catalogue/fwd.h"
#include "catalogue/kv_append.h"
#include "catalogue/merge.h"
#include "catalogue/quantize.h"

namespace fmha {

// One ELF, with the kernels of one translation unit.
struct CodeObject {
  const unsigned char* packed;  // a zstd frame
  size_t packed_bytes;
  size_t bytes;        // unpacked
  const char* sha256;  // of the ELF
  // The frame holds what differs from this one's ELF, if it is not null; it may have a base itself.
  const CodeObject* base;
};

struct Kernel {
  const char* name;    // unique within an arch
  const char* symbol;  // of the entry in its code object: the name, unless the object came as it is
  Arch arch;
  Family family;
  Origin origin;  // whose limits and packing of arguments it has
  DType dtype;    // of q, k and v; of bwd_parts of what it reads (dot) or writes (sum)
  int16_t block_size;
  int16_t vgpr_count;
  int16_t sgpr_count;
  int32_t lds_bytes;
  int32_t scratch_bytes;
  const CodeObject* code;
  union {                   // by family; only the family's own code reads its member
    FwdRow fwd;             // Family::kFwd
    BwdRow bwd;             // Family::kBwd
    BwdPartsRow bwd_parts;  // Family::kBwdParts
    DecodeRow decode;       // Family::kDecode
    KvAppendRow kv_append;  // Family::kKvAppend
    MergeRow merge;         // Family::kMerge
    QuantizeRow quantize;   // Family::kQuantize
  };
};

extern const Kernel kKernels[];
extern const size_t kKernelCount;

// A kernel that the catalogue has and this build has not; in the order of the sets.
struct AbsentKernel {
  char set[8];             // the smallest that has it
  const char* build_with;  // what a build would have to be given: "FMHA_KERNEL_SET=full"
  Kernel kernel;           // as far as its needs go: no name, no code
};
extern const AbsentKernel kAbsentKernels[];
extern const size_t kAbsentKernelCount;

extern const CodeObject kCodeObjects[];
extern const size_t kCodeObjectCount;
extern const char* const kBuildInfoJson;  // what fmha_build_info returns

}  // namespace fmha
