# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lines of assembly, as LLVM and as the software device write them."""
