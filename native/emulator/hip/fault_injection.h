// SPDX-License-Identifier: MIT OR Apache-2.0
// Failures on order, to test what programs do about them. Numbers count from 1 over the process; the
// variables are read at each call:
// - FMHA_EMU_FAIL_ALLOC=n: the nth allocation (hipMalloc and its kin, host memory too) finds no memory;
// - FMHA_EMU_FAIL_LAUNCH=n: the nth launch is refused with hipErrorLaunchOutOfResources; nothing runs;
// - FMHA_EMU_DEVICE_LOST=n: the nth launch loses its device: hipErrorLaunchFailure, from it and
//   from everything that needs the device afterwards, until hipDeviceReset.
#pragma once

namespace fmha::emu {

// hipSuccess, or the failure ordered, recorded for hipGetLastError.
void check_injection_variables();  // ends the process if one is no number
int inject_allocation_failure(int device, const char* function);
int inject_launch_failure(int device, const char* kernel);
// hipSuccess, or hipErrorLaunchFailure if the device is lost.
int lost_device_error(int device);
void find_lost_device(int device);  // hipDeviceReset

}  // namespace fmha::emu
