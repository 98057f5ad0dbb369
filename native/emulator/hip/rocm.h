// SPDX-License-Identifier: MIT OR Apache-2.0
// The differences between releases of ROCm, and which one the device plays: $FMHA_EMU_ROCM.
//
// Unset, the device is as ROCm 7 is, but that hipGetLastError acknowledges a fault, so that a test bench
// outlives one. All releases do this alike: a copy that waits, or hipDeviceSynchronize, ends every capture of
// the process, and memory that a graph allocates is device 0's, whichever it is on.
#pragma once

namespace fmha::emu {

enum class Rocm { kUnset, k60, k62, k7 };
Rocm rocm();

// The last error is that of the last call, even if that was none; since 7 a success leaves it.
bool last_error_is_of_last_call();
// Takes hipStreamLegacy, the handle 1. Before 7 it is no stream.
bool takes_legacy_handle();
// After a fault every call of the process returns it, for good. Before 7 the runtime ended the process;
// $FMHA_EMU_ON_FAULT=abort does.
bool fault_is_final();
// hipModuleGetFunction ends the process if the module's device is not the current one.
bool function_needs_current_device();
// hipRuntimeGetVersion. With nothing set, of the release whose name the program has asked the loader for.
int runtime_version();

// The begin and the end of each entry point, see guarded(): the fault that it must return, and its result.
int call_begins();
int call_ends(int code);
// A launch has stopped: from now on call_begins() returns that, if a fault is final.
void note_final_fault(int error);
void forget_final_fault();

}  // namespace fmha::emu
