# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every family of kernels, with its origins. A new one is registered here."""

from __future__ import annotations

from family import Family
from family_fwd import Forward
from origin_ck_fwd import CkFwd

FAMILIES: dict[str, Family] = {family.name: family for family in (Forward({"ck": CkFwd()}),)}
