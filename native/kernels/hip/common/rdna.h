// SPDX-License-Identifier: MIT OR Apache-2.0
// FMHA_RDNA: the kernels are compiled for a Radeon, whose waves have 32 lanes.
#pragma once

#if defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
#define FMHA_RDNA 1
#endif
