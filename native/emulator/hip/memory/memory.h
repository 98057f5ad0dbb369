// SPDX-License-Identifier: MIT OR Apache-2.0
// Device memory, as memory.cc and pool.cc share it.
#pragma once

#include "core/memory.h"
#include "hip/state.h"

namespace fmha::emu {

// hipMemAllocationTypePinned, hipMemLocationTypeDevice, hipMemAccessFlagsProt...
inline constexpr int kPinned = 1, kOnDevice = 1, kNoAccess = 0, kReadWrite = 3;

// `at`: the address, from reserve_addresses(); 0: any.
int allocate(void** out, size_t bytes, MemoryKind kind, int device, const char* function, uint64_t at = 0);
// Gives memory back as soon as no operation that is running may be using it.
void release(const Allocation& a);

// The pools' answer about an address: not theirs, theirs, or theirs and to be freed by a stream.
enum class Pooled { kNot, kLive, kFreeing };
Pooled forget_pooled(uint64_t address);  // memory that hipFree takes, and that is not kFreeing
HipMemPool pool_of(uint64_t address);    // null if it is of none

// Addresses that the program manages itself (hipMemAddressReserve).
bool is_virtual_memory(uint64_t address);

}  // namespace fmha::emu
