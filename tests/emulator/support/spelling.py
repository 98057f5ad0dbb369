# SPDX-License-Identifier: MIT OR Apache-2.0
"""How RDNA writes what the tests have in gfx9's words: names, masks of one register, counters.

The tests of instructions were written for gfx9. From gfx11 on many rows have other names, a mask is one
SGPR in waves of 32, v_cmpx names no destination, and loads, stores, LDS and scalar loads have counters of
their own.
"""

from __future__ import annotations

import os
import re

from . import rows

ARCHS = {"gfx1030": 10, "gfx1100": 11, "gfx1150": 11, "gfx1201": 12}
GENERATION = ARCHS.get(rows.arch(), 9)
RDNA = GENERATION > 9
# Lanes of a wave of RDNA, 32 or, if $FMHA_TEST_LANES says so, 64; and of this process's arch.
RDNA_LANES = 64 if os.environ.get("FMHA_TEST_LANES") == "64" else 32
LANES = RDNA_LANES if RDNA else 64
NARROW = LANES == 32

_SPACES = ("global", "flat", "buffer", "scratch")
_DWORDS = {f"dword{f'x{n}' if n > 1 else ''}": f"b{32 * n}" for n in (1, 2, 3, 4, 8, 16)}
_LOADS = _DWORDS | {
    "ubyte": "u8",
    "sbyte": "i8",
    "ushort": "u16",
    "sshort": "i16",
    "ubyte_d16": "d16_u8",
    "sbyte_d16": "d16_i8",
    "short_d16": "d16_b16",
    "ubyte_d16_hi": "d16_hi_u8",
    "sbyte_d16_hi": "d16_hi_i8",
    "short_d16_hi": "d16_hi_b16",
}
_STORES = _DWORDS | {"byte": "b8", "short": "b16", "byte_d16_hi": "d16_hi_b8", "short_d16_hi": "d16_hi_b16"}
_LETTERS = dict.fromkeys(("add", "sub", "inc", "dec", "umin", "umax"), "u")
_LETTERS |= dict.fromkeys(("swap", "cmpswap", "and", "or", "xor"), "b") | {"smin": "i", "smax": "i"}
_ATOMICS = {
    n + tail: f"{n[-3:] if n[1:] in ('min', 'max') else n}_{letter}{bits}"
    for n, letter in _LETTERS.items()
    for tail, bits in (("", 32), ("_x2", 64))
}
_MEMORY = (
    {f"{s}_load_{old}": f"{s}_load_{new}" for s in (*_SPACES, "s", "s_buffer") for old, new in _LOADS.items()}
    | {f"{s}_store_{old}": f"{s}_store_{new}" for s in _SPACES for old, new in _STORES.items()}
    | {f"{s}_atomic_{old}": f"{s}_atomic_{new}" for s in _SPACES for old, new in _ATOMICS.items()}
)
_TYPES = ("u32", "i32", "u16", "i16")
_INTEGERS = {f"v_{n}_{t}": f"v_{n}_nc_{t}" for n in ("add", "sub", "subrev") for t in _TYPES}
_OF_GFX10 = _INTEGERS | {
    "v_addc_co_u32": "v_add_co_ci_u32",
    "v_subb_co_u32": "v_sub_co_ci_u32",
    "v_subbrev_co_u32": "v_subrev_co_ci_u32",
}
# Names that the tests spell as later generations do.
_ONLY_GFX10 = _OF_GFX10 | {
    **{f"{s}_atomic_{n}_f32": f"{s}_atomic_f{n}" for s in _SPACES for n in ("min", "max", "cmpswap")},
    **{f"{s}_atomic_{n}_f64": f"{s}_atomic_f{n}_x2" for s in _SPACES for n in ("min", "max", "cmpswap")},
    **{f"{s}_atomic_csub_u32": f"{s}_atomic_csub" for s in _SPACES},
    **{f"{s}_atomic_sub_clamp_u32": f"{s}_atomic_csub" for s in _SPACES},
    **{
        f"s_{a}_not{i}_{b}exec_b{bits}": f"s_{a}n{i + 1}_{b}exec_b{bits}"
        for a in ("and", "or")
        for i in (0, 1)
        for b in ("save", "wr")
        for bits in (32, 64)
    },
    **{f"global_{n}_addtid_b32": f"global_{n}_dword_addtid" for n in ("load", "store")},
    "s_set_inst_prefetch_distance": "s_inst_prefetch",
    "v_fmac_dx9_zero_f32": "v_fmac_legacy_f32",
    "v_fma_dx9_zero_f32": "v_fma_legacy_f32",
}
_OF_BOTH = (
    _MEMORY
    | _OF_GFX10
    | {
        "v_ffbh_u32": "v_clz_i32_u32",
        "v_ffbl_b32": "v_ctz_i32_b32",
        "v_ffbh_i32": "v_cls_i32",
        "v_cvt_rpi_i32_f32": "v_cvt_nearest_i32_f32",
        "v_cvt_flr_i32_f32": "v_cvt_floor_i32_f32",
        "v_cvt_pkrtz_f16_f32": "v_cvt_pk_rtz_f16_f32",
        "v_mul_legacy_f32": "v_mul_dx9_zero_f32",
        "v_dot2c_f32_f16": "v_dot2acc_f32_f16",
        "s_andn2_b32": "s_and_not1_b32",
        "s_andn2_b64": "s_and_not1_b64",
        "s_orn2_b32": "s_or_not1_b32",
        "s_orn2_b64": "s_or_not1_b64",
        "s_ff1_i32_b32": "s_ctz_i32_b32",
        "s_ff1_i32_b64": "s_ctz_i32_b64",
        "s_flbit_i32_b32": "s_clz_i32_u32",
        "s_flbit_i32_b64": "s_clz_i32_u64",
        "s_flbit_i32": "s_cls_i32",
        "s_flbit_i32_i64": "s_cls_i32_i64",
    }
)
_OF_BOTH |= {
    f"{b}_{n}_format_d16{half}_{c}": f"{b}_{n}_d16{half}_format_{c}"
    for b in ("buffer", "tbuffer")
    for n in ("load", "store")
    for half in ("", "_hi")
    for c in ("x", "xy", "xyz", "xyzw")
}
_OF_BOTH |= {f"v_cvt_pknorm_{t}": f"v_cvt_pk_norm_{t}" for t in ("i16_f16", "i16_f32", "u16_f16", "u16_f32")}
_OF_BOTH |= {f"v_{c}_tru_{t}": f"v_{c}_t_{t}" for c in ("cmp", "cmpx") for t in ("f16", "f32", "f64")}
_OF_GFX12 = (
    {f"v_{n}_{t}": f"v_{n}_num_{t}" for n in ("min", "max") for t in ("f16", "f32", "f64")}
    | {f"v_{n}_{t}": f"v_{n}_num_{t}" for n in ("min3", "max3", "med3") for t in ("f16", "f32")}
    | {f"v_pk_{n}_f16": f"v_pk_{n}_num_f16" for n in ("min", "max")}
    | {f"ds_{n}_{t}": f"ds_{n}_num_{t}" for n in ("min", "max") for t in ("f32", "f64", "rtn_f32", "rtn_f64")}
    | {f"{s}_atomic_{n}_f32": f"{s}_atomic_{n}_num_f32" for s in _SPACES for n in ("min", "max")}
    | {
        "s_add_u32": "s_add_co_u32",
        "s_sub_u32": "s_sub_co_u32",
        "s_add_i32": "s_add_co_i32",
        "s_sub_i32": "s_sub_co_i32",
        "s_addc_u32": "s_add_co_ci_u32",
        "s_subb_u32": "s_sub_co_ci_u32",
        "s_addk_i32": "s_addk_co_i32",
        "v_mad_u64_u32": "v_mad_co_u64_u32",
        "v_mad_i64_i32": "v_mad_co_i64_i32",
    }
)
_NAMES = {9: {}, 10: _ONLY_GFX10, 11: _OF_BOTH, 12: _OF_BOTH | _OF_GFX12}[GENERATION]
# LDS: patterns and what they become.
_LDS = (
    (r"^ds_(read|write)2st64_", r"ds_\1_2addr_stride64_"),
    (r"^ds_(read|write)2_", r"ds_\1_2addr_"),
    (r"^ds_wrxchg2st64_", "ds_storexchg_2addr_stride64_"),
    (r"^ds_wrxchg2_", "ds_storexchg_2addr_"),
    (r"^ds_wrxchg_", "ds_storexchg_"),
    (r"^ds_cmpst_", "ds_cmpstore_"),
    (r"^ds_read_", "ds_load_"),
    (r"^ds_write_", "ds_store_"),
)
# Whose operands are masks, or may be.
MASKED = re.compile(r"v_(cmpx?|cndmask|(add|sub|subrev|addc|subb|subbrev)_co|div_scale|mad_(co_)?[ui]64)_")
_WAITS = {"vmcnt": ("loadcnt", "storecnt"), "lgkmcnt": ("dscnt", "kmcnt"), "expcnt": ("expcnt",)}


def bare(mnemonic: str) -> str:
    """Mnemonic without _e32, _e64, _sdwa, _dpp, _e64_dpp: the name of its row."""
    return re.sub(r"_(e32|e64|sdwa|e64_dpp|dpp)$", "", mnemonic)


def renamed(mnemonic: str) -> str:
    """The name here of a row that gfx9 calls so."""
    if GENERATION > 10 and mnemonic.startswith("ds_"):
        for old, new in _LDS:
            mnemonic = re.sub(old, new, mnemonic)
    return _NAMES.get(mnemonic, mnemonic)


def exists(mnemonic: str) -> bool:
    """Return whether this arch has a row of this name on gfx9."""
    return renamed(mnemonic) in rows.names()


def spell(line: str) -> list[str]:
    """The lines here for a line of gfx9."""
    if not RDNA:
        return [line]
    mnemonic, _, rest = line.strip().partition(" ")
    if mnemonic == "s_waitcnt":
        return _wait(rest)
    if NARROW and mnemonic == "s_mov_b64" and "exec" in rest:  # which has a register
        rest = re.sub(r"\bexec\b", "exec_lo", re.sub(r"\bs\[(\d+):\d+\]", r"s\1", rest))
        return [f"s_mov_b32 {rest}"]
    found = re.fullmatch(r"(.*?)(_(?:e32|e64|dpp))?", mnemonic)
    assert found
    if MASKED.match(mnemonic):
        if NARROW:
            rest = re.sub(r"\bvcc\b", "vcc_lo", rest)
            rest = re.sub(r"\bs\[(\d+):\d+\]", r"s\1", rest)
        if mnemonic.startswith("v_cmpx_"):
            rest = rest.partition(",")[2].strip()
    if GENERATION == 12 and mnemonic.startswith(("buffer_", "tbuffer_")):
        rest = re.sub(r"(s\[\d+:\d+\]), 0(?= |$)", r"\1, null", rest)  # no constants there
    return [f"{renamed(found[1])}{found[2] or ''} {rest}".strip()]


def _wait(counters: str) -> list[str]:
    if GENERATION < 12:
        stores = ["s_waitcnt_vscnt null, 0x0"] if "vmcnt" in counters else []
        return [f"s_waitcnt {counters}", *stores]
    found = re.findall(r"(\w+)\((\d+)\)", counters)
    return [f"s_wait_{counter} 0x{int(n):x}" for kind, n in found for counter in _WAITS[kind]]
