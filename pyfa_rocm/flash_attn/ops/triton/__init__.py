# SPDX-License-Identifier: MIT OR Apache-2.0
"""Stands in for ``flash_attn.ops.triton``; it has `rotary` and `cross_entropy`, in plain torch."""
