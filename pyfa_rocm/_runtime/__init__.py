# SPDX-License-Identifier: MIT OR Apache-2.0
"""The foundations of this package: the C library, the HIP runtime, and memory that tensors are in."""
