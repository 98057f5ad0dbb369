# SPDX-License-Identifier: MIT OR Apache-2.0
"""As ``flash_attn.layers``: of its modules, `rotary`."""
