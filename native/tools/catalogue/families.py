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
from family_quantize import Quantize
from origins.aiter_bwd import AiterBwd
from origins.aiter_fwd import AiterFwd
from origins.ck_bwd import CkBwd
from origins.ck_fwd import CkFwd
from origins.hip_bwd import HipBwd
from origins.hip_bwd_parts import HipBwdParts
from origins.hip_decode import HipDecode
from origins.hip_fwd import HipFwd
from origins.hip_kv_append import HipKvAppend
from origins.hip_merge import HipMerge
from origins.hip_quantize import HipQuantize
from origins.wmma import WmmaBwd, WmmaFwd

_ALL: tuple[Family, ...] = (
    Forward({"ck": CkFwd(), "aiter": AiterFwd(), "hip": HipFwd(), "wmma": WmmaFwd()}),
    Backward({"ck": CkBwd(), "aiter": AiterBwd(), "hip": HipBwd(), "wmma": WmmaBwd()}),
    BackwardParts({"hip": HipBwdParts()}),
    Decode({"hip": HipDecode()}),
    KvAppend({"hip": HipKvAppend()}),
    Merge({"hip": HipMerge()}),
    Quantize({"hip": HipQuantize()}),
)
FAMILIES: dict[str, Family] = {family.name: family for family in _ALL}
