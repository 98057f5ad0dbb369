# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of the software device: every instruction against NumPy, the decoder against LLVM, the HIP API."""
