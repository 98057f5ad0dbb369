# SPDX-License-Identifier: MIT OR Apache-2.0
"""As ``flash_attn.losses``: `cross_entropy`."""
