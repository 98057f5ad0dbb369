# SPDX-License-Identifier: MIT OR Apache-2.0
"""The cards that the software device can play and the clock has numbers of."""

from __future__ import annotations

from pyfa_rocm.device import devices

__all__ = ["CARDS", "played"]

# A word of each card's name, by the name that `bench --model` takes.
CARDS = {"mi300x": "MI300X", "mi355x": "MI355X", "rx7900xtx": "RX 7900 XTX", "rx9070xt": "RX 9070 XT"}


def played() -> str:
    """Return the card of CARDS that the software device plays; "" if it is none of them."""
    name = devices()[0].name
    return next((card for card, words in CARDS.items() if words in name), "")
