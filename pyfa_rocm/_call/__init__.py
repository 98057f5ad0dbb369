# SPDX-License-Identifier: MIT OR Apache-2.0
"""One call of the C library: its arguments checked, its struct filled, its plan kept."""
