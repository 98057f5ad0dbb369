# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every family of kernels, with its origins. A new one is registered here."""

from __future__ import annotations

from family import Family
from family_bwd import Backward
from family_bwd_parts import BackwardParts
from family_fwd import Forward
from origin_ck_bwd import CkBwd
from origin_ck_fwd import CkFwd
from origin_hip_bwd import HipBwd
from origin_hip_bwd_parts import HipBwdParts

_ALL: tuple[Family, ...] = (
    Forward({"ck": CkFwd()}),
    Backward({"ck": CkBwd(), "hip": HipBwd()}),
    BackwardParts({"hip": HipBwdParts()}),
)
FAMILIES: dict[str, Family] = {family.name: family for family in _ALL}
