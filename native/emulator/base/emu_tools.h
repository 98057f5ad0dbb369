// SPDX-License-Identifier: MIT OR Apache-2.0
// The functions that the library exports beside HIP, for tests: they look into the decoder, and tell the
// checks what to expect.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Both write at most `out_bytes` bytes, the last a NUL, and return the bytes needed (with the NUL), so that a
// call with out = NULL, out_bytes = 0 asks for the size.

// One line an instruction: "pc: mnemonic operands", pc in hex without 0x, text as llvm-objdump prints it
// (branch targets as the raw signed number of dwords). Unknown words print as "pc: .long 0x…".
// arch: its number in native/archs.toml, from 0; wave_size: lanes of a wave, 32 or 64. Returns 0 if there is
// no such arch, or it has no such waves.
__attribute__((visibility("default"))) int fmha_emu_disassemble(int arch, int wave_size, const void* text,
                                                                size_t bytes, uint64_t base, char* out,
                                                                size_t out_bytes);

// The instruction table, a line a row, tab-separated, with a header line: mnemonic, format, opcode on
// each arch (-1: none), destination type, three source types, flags by name joined with '|'. A row that archs
// name or encode differently has a line for each.
__attribute__((visibility("default"))) int fmha_emu_rows(char* out, size_t out_bytes);

// The next functions give the checks of global memory something to check; a launch with those checks off
// ignores it (FMHA_EMU_CHECKS, check/config.h). All return a hipError_t: 0, or hipErrorInvalidValue for a
// range that does not lie in one allocation of this runtime (text: fmha_emu_last_error). Any thread may call
// any of them.

// From now on nobody has written these `bytes` at `p`: a kernel that loads one of them is stopped, until a
// kernel's store or atomic, a hipMemcpy or hipMemset has written it. Device-to-device copies carry the mark
// along; copies to the host ignore it. Other bytes of the allocation stay what they were: before the first
// call all count as written. FMHA_EMU_TRACK_INITIALIZED=1 does this for all memory as it is allocated.
__attribute__((visibility("default"))) int fmha_emu_track_initialized(const void* p, size_t bytes);
// The contrary: these bytes count as written.
__attribute__((visibility("default"))) int fmha_emu_mark_initialized(const void* p, size_t bytes);
// Sets *out to the offset of the first byte that nobody has written, to `bytes` if there is none.
__attribute__((visibility("default"))) int fmha_emu_first_uninitialized(const void* p, size_t bytes,
                                                                        size_t* out);

// Launches that this thread makes from now on may not write these bytes, whichever stream they run on; one
// that tries is stopped. The ranges add up until fmha_emu_end_read_only, which drops all of this thread's.
// Launches read the list when they are made, so it may be dropped while they run. Copies ignore it.
__attribute__((visibility("default"))) int fmha_emu_declare_read_only(const void* p, size_t bytes);
__attribute__((visibility("default"))) int fmha_emu_end_read_only(void);

// The profile of launches is off by default, and then costs nothing. While it is on, the workgroups of a
// launch run one after the other, and each launch leaves a record when it ends. It is the whole process's,
// and any thread may call these functions.

// The version of the records: a reader that knows version 1 may find more keys in a later one, none missing.
#define FMHA_EMU_PROFILE_VERSION 1
// Switches on (dropping earlier records) or off (keeping them); holds for launches that start afterwards.
__attribute__((visibility("default"))) int fmha_emu_profile_enable(int on);
// The records since it was switched on, a JSON array, the launch that ended first in front. In a record,
// "counted" is exact; "modelled" is what the counts come to under the constants that
// fmha_emu_profile_constants lists with their sources. Flops count 2 a multiply-add; bytes are those of the
// active lanes in range; lines have 128 bytes.
__attribute__((visibility("default"))) int fmha_emu_profile(char* out, size_t out_bytes);
__attribute__((visibility("default"))) int fmha_emu_profile_constants(char* out, size_t out_bytes);

// The clock: how long a profiled launch takes on an MI300X, by a model of a compute unit and of the card.
// Each record of a launch that starts while it is on has one more key, "time". NULL: off, as at the start.
// While it is on, the memory and the time that a launch takes are those of the sampled workgroups, if only
// these run; what the other ones would have written is then missing.
typedef struct fmha_emu_timing_request {
  uint32_t points;        // sampled workgroups on each axis of the grid, 1 or more; 3 are enough for most
  uint32_t only_sampled;  // 1: only these run
  uint32_t events;        // of the middle workgroup's compute unit, at most this many; 0: none
} fmha_emu_timing_request;
__attribute__((visibility("default"))) int fmha_emu_timing(const fmha_emu_timing_request* request);
// Its constants, a JSON object: name to {"fast", "slow", "unit", "source"}.
__attribute__((visibility("default"))) int fmha_emu_timing_constants(char* out, size_t out_bytes);
// Replaces one, for calibration and tests; name NULL: all are as they were again.
__attribute__((visibility("default"))) int fmha_emu_set_timing_constant(const char* name, double fast,
                                                                        double slow);

// The events of launches, one by one, for tests and tools: what observers inside the library hear of
// (events.h). A traced launch runs its workgroups one after the other. Calls come from the thread that runs
// the launch, so `function` must not call HIP.
enum {
  FMHA_EMU_EVENT_BEFORE = 1 << 0,   // an instruction runs next; pc
  FMHA_EMU_EVENT_AFTER = 1 << 1,    // it has run
  FMHA_EMU_EVENT_GLOBAL = 1 << 2,   // a lane accesses global memory; lane -1: a scalar instruction does
  FMHA_EMU_EVENT_SCALAR = 1 << 3,   // the address of a scalar access, before its low bits are dropped
  FMHA_EMU_EVENT_SCRATCH = 1 << 4,  // a lane accesses its private memory
  FMHA_EMU_EVENT_LDS = 1 << 5,      // a lane accesses LDS
  FMHA_EMU_EVENT_BARRIER = 1 << 6,  // all waves have arrived; address: a bit for each that has ended
  FMHA_EMU_EVENTS = (1 << 7) - 1
};
typedef struct fmha_emu_event {
  uint32_t kind;
  uint32_t wave;       // within the workgroup
  uint64_t workgroup;  // its number in the grid
  uint64_t pc, address;
  uint32_t bytes;
  int32_t lane;
} fmha_emu_event;
typedef void (*fmha_emu_event_function)(void* user, const fmha_emu_event* event);
// Launches that start from now on, in the whole process, tell `function` of events whose kinds are set in
// `kinds`; NULL: they tell nobody. Launches that run go on as they started.
__attribute__((visibility("default"))) int fmha_emu_trace(fmha_emu_event_function function, void* user,
                                                          uint32_t kinds);

// The profile's cache model on its own, over accesses that the caller makes up; a JSON object with the
// "caches" of a record. A negative result is a hipError_t.
enum { FMHA_EMU_READ = 0, FMHA_EMU_WRITE = 1, FMHA_EMU_ATOMIC = 2, FMHA_EMU_END_OF_KERNEL = 3 };
typedef struct fmha_emu_access {
  uint64_t address, bytes;  // any range
  uint32_t workgroup;       // its number modulo 8 is the XCD
  uint32_t kind;
} fmha_emu_access;
__attribute__((visibility("default"))) int fmha_emu_cache_model(const fmha_emu_access* accesses, size_t count,
                                                                char* out, size_t out_bytes);
// Its model of LDS: the cycles that the `lanes` take over `bytes` each at addresses[lane], and
// how many they would take without bank conflicts. access: FMHA_EMU_READ, _WRITE or _ATOMIC.
__attribute__((visibility("default"))) int fmha_emu_lds_cycles(const uint32_t* addresses, uint64_t lanes,
                                                               uint32_t bytes, int access, uint32_t* groups,
                                                               uint32_t* cycles);

#ifdef __cplusplus
}
#endif
