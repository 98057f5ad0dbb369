# SPDX-License-Identifier: MIT OR Apache-2.0
"""The emulator's tests share these: assembler, cases, programs, and lists of operations."""
