# SPDX-License-Identifier: MIT OR Apache-2.0
"""Stands in for ``flash_attn.losses``; it has `cross_entropy`."""
