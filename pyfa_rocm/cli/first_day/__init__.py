# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command `first-day`: everything that a card can say about this library, in one file."""
