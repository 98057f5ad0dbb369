# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every family of kernels, with its origins. A new one is registered here."""

from __future__ import annotations

from family import Family
from family_bwd import Backward
from family_bwd_parts import BackwardParts
from family_decode import Decode
from family_fwd import Forward
from family_kv_append import KvAppend
from family_merge import Merge
from origin_aiter_bwd import AiterBwd
from origin_aiter_fwd import AiterFwd
from origin_ck_bwd import CkBwd
from origin_ck_fwd import CkFwd
from origin_hip_bwd import HipBwd
from origin_hip_bwd_parts import HipBwdParts
from origin_hip_decode import HipDecode
from origin_hip_fwd import HipFwd
from origin_hip_kv_append import HipKvAppend
from origin_hip_merge import HipMerge
from origin_wmma import WmmaBwd, WmmaFwd

_ALL: tuple[Family, ...] = (
    Forward({"ck": CkFwd(), "aiter": AiterFwd(), "hip": HipFwd(), "wmma": WmmaFwd()}),
    Backward({"ck": CkBwd(), "aiter": AiterBwd(), "hip": HipBwd(), "wmma": WmmaBwd()}),
    BackwardParts({"hip": HipBwdParts()}),
    Decode({"hip": HipDecode()}),
    KvAppend({"hip": HipKvAppend()}),
    Merge({"hip": HipMerge()}),
)
FAMILIES: dict[str, Family] = {family.name: family for family in _ALL}
