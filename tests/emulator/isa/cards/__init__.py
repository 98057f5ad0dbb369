# SPDX-License-Identifier: MIT OR Apache-2.0
"""Values that are expected of a card."""
