# SPDX-License-Identifier: MIT OR Apache-2.0
"""As ``flash_attn.ops``: of its packages, `triton`."""
