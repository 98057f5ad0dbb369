# SPDX-License-Identifier: MIT OR Apache-2.0
"""As ``flash_attn.ops.triton``: of its modules, `rotary` and `cross_entropy`, in plain torch."""
