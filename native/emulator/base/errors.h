// SPDX-License-Identifier: MIT OR Apache-2.0
// HIP's error numbers, for the rooms below hip/, which has the whole list (hip/types.h).
#pragma once

namespace fmha::emu {

inline constexpr int kOutOfMemory = 2;           // hipErrorOutOfMemory
inline constexpr int kInvalidImage = 200;        // hipErrorInvalidImage
inline constexpr int kNoBinaryForGpu = 209;      // hipErrorNoBinaryForGpu
inline constexpr int kIllegalAddress = 700;      // hipErrorIllegalAddress
inline constexpr int kLaunchTimeOut = 702;       // hipErrorLaunchTimeOut
inline constexpr int kIllegalInstruction = 715;  // hipErrorIllegalInstruction
inline constexpr int kLaunchFailure = 719;       // hipErrorLaunchFailure

}  // namespace fmha::emu
