# SPDX-License-Identifier: MIT OR Apache-2.0
"""How long attention takes on a card, by the software device's clock: what it times, and how."""
