# SPDX-License-Identifier: MIT OR Apache-2.0
"""Values that a card left in registers."""
