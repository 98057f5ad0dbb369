# SPDX-License-Identifier: MIT OR Apache-2.0
"""Wait states of gfx950's instructions for small floats: pairs for test_check_hazards.

The counts are those that LLVM 22's llc inserts between the two; check/test_check_small_floats.py holds what
clang 20 inserts against them. Matrix instructions take 4 passes for 16x16x128 and 8 for 32x32x64, twice as
many where A or B has 8 bits (CDNA4 ISA guide, 7.1.5), and scales are sources like A and B.
"""

from __future__ import annotations

Pair = tuple[str, str, int, int, str]
_TYPES = {"f4_f4": ("", 4, 4), "f6_f4": ("", 6, 4), "f4_f8": ("", 4, 8), "f8_f8": ("", 8, 8)}
_CODES = {4: 4, 6: 2, 8: 0}


def matrix(shape: str, types: str, d: int, c: int, a: int = 32, scale: int | None = 28) -> str:
    """With D, C and A from these registers on, and scales, if it has any, in `scale` and behind it."""
    _, wide_a, wide_b = _TYPES[types]
    wide = 4 if shape == "16x16x128" else 16
    tail = "".join(f" {n}:{_CODES[w]}" for n, w in (("cbsz", wide_a), ("blgp", wide_b)) if _CODES[w])
    scales = "" if scale is None else f", v{scale}, v{scale + 1}"
    name = f"v_mfma_{'' if scale is None else 'scale_'}f32_{shape}_f8f6f4"
    operands = f"v[{d}:{d + wide - 1}], v[{a}:{a + wide_a - 1}], v[40:{39 + wide_b}], v[{c}:{c + wide - 1}]"
    return f"{name} {operands}{scales}{tail}"


def matrix_cases() -> dict[str, Pair]:
    """Results read, overwritten, multiplied, added to and taken as scales, and C overwritten."""
    cases: dict[str, Pair] = {}
    consumer = "v_mfma_scale_f32_16x16x128_f8f6f4 v[80:83], v[{a}], v[40:47], v[{c}], v{s}, v29 cbsz:4"
    for shape in ("16x16x128", "32x32x64"):
        for types in _TYPES:
            passes = (4 if shape[:2] == "16" else 8) * (2 if "8" in types else 1)
            for scale in (28, None):
                first = matrix(shape, types, 48, 64, scale=scale)
                read = "an MFMA writes v[48:"
                name = f"mfma_{shape}_{types}{'_scaled' if scale else ''}"
                cases |= {
                    f"{name}_read": (first, "v_mov_b32 v3, v48", 0, passes + 4, read),
                    f"{name}_store": (first, "global_store_dword v1, v48, s[8:9]", 0, passes + 4, read),
                    f"{name}_overwrite": (first, "v_mov_b32 v49, 0", 0, passes + 4, read),
                    f"{name}_c": (first, "v_mov_b32 v65, 0", 0, passes - 1, "an MFMA reads v[64:"),
                    f"{name}_to_a": (first, consumer.format(a="48:51", c="88:91", s=28), 0, passes + 4, read),
                    f"{name}_to_scale": (
                        first,
                        consumer.format(a="32:35", c="88:91", s=49),
                        0,
                        passes + 4,
                        read,
                    ),
                    f"{name}_to_c": (first, consumer.format(a="32:35", c="50:53", s=28), 0, passes + 2, read),
                    f"{name}_same_c": (matrix(shape, types, 48, 48, scale=scale),) * 2 + (0, 0, ""),
                }
    last = consumer.format(a="32:35", c="88:91", s=28)
    wrote = "VALU instruction writes v"
    cases |= {
        "valu_scale_a": ("v_mov_b32 v28, v1", last, 0, 2, wrote),
        "valu_scale_b": ("v_mov_b32 v29, v1", last, 0, 2, wrote),
        "exec_scaled": ("v_cmpx_eq_u32 vcc, v1, v1", last, 0, 4, "writes exec, then an MFMA"),
    }
    return cases


def conversion_cases() -> dict[str, Pair]:
    """Return conversions that write part of a register; stochastic FP4 is late even in the lowest byte."""
    cases: dict[str, Pair] = {}
    byte = {0: "", 1: " op_sel:[0,0,1,0]", 2: " op_sel:[0,0,0,1]", 3: " op_sel:[0,0,1,1]"}
    for number, select in byte.items():
        for name, text in {
            "fp4": "v_cvt_scalef32_pk_fp4_f32 v2, v1, v1, v1",
            "fp4_bf16": "v_cvt_scalef32_pk_fp4_bf16 v2, v1, v1",
            "sr_fp4": "v_cvt_scalef32_sr_pk_fp4_f16 v2, v1, v1, v1",
            "sr_bf8": "v_cvt_scalef32_sr_bf8_f32 v2, v1, v1, v1",
        }.items():
            states = 1 if number or name == "sr_fp4" else 0
            for use, consumer in {"read": "v_mov_b32 v3, v2", "over": "v_mov_b32 v2, 0"}.items():
                cases[f"{name}_{number}_{use}"] = (
                    text + select,
                    consumer,
                    0,
                    states,
                    "part of v2 is written",
                )
    for name, text in {
        "pk_fp8": "v_cvt_scalef32_pk_fp8_f32 v2, v1, v1, v1 op_sel:[0,0,0,1]",
        "pk_bf8_f16": "v_cvt_scalef32_pk_bf8_f16 v2, v1, v1 op_sel:[0,0,1]",
        "f16_fp8": "v_cvt_scalef32_f16_fp8 v2, v1, v1 op_sel:[0,0,1]",
        "sr_f16": "v_cvt_sr_f16_f32 v2, v1, v1 op_sel:[0,0,1]",
        "sr_bf16": "v_cvt_sr_bf16_f32 v2, v1, v1 op_sel:[0,0,1]",
    }.items():
        cases[f"{name}_high"] = (text, "v_mov_b32 v3, v2", 0, 1, "part of v2 is written")
        low = text.partition(" op_sel")[0]
        cases[f"{name}_low"] = (low, "v_mov_b32 v3, v2", 0, 0, "")
    dot = "v_dot2c_f32_bf16 v2, v1, v1"
    cases |= {
        "dot2c_bf16": (dot, "v_mov_b32 v3, v2", 0, 3, "v_dot writes v2"),
        "dot2c_bf16_same": (dot, dot, 0, 0, ""),
        "f32_fp8_byte": ("v_cvt_scalef32_f32_fp8 v2, v1, v1 op_sel:[1,1,0]", "v_mov_b32 v3, v2", 0, 0, ""),
    }
    return cases
