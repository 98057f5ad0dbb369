# SPDX-License-Identifier: MIT OR Apache-2.0
"""What these tests share: assembler, cases, programs, and lists of operations."""
