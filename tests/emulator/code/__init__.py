# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of the decoder, of the disassembler, and of whole kernels."""
