# SPDX-License-Identifier: MIT OR Apache-2.0
"""What this package stands on: the C library, the HIP runtime, and memory that tensors are in."""
