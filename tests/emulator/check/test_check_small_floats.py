# SPDX-License-Identifier: MIT OR Apache-2.0
"""Wait states of gfx950's small floats: what support/small_float_waits.py asks for, clang 20 inserts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ..support.small_float_waits import conversion_cases, matrix_cases
from ..support.toolchain import CLANG20

_HEAD = """
#define KERNEL(name) extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 64))) \\
  void name(float* p, unsigned* q, V8* m)
typedef _Float16 H2 __attribute__((ext_vector_type(2)));
typedef __bf16 B2 __attribute__((ext_vector_type(2)));
typedef short S2 __attribute__((ext_vector_type(2)));
typedef int V8 __attribute__((ext_vector_type(8)));
typedef float F4 __attribute__((ext_vector_type(4)));
typedef float F16 __attribute__((ext_vector_type(16)));
#define U(x) __builtin_bit_cast(unsigned, x)
#define HALVES(x) __builtin_bit_cast(H2, x)
#define START int l = __builtin_amdgcn_workitem_id_x(); float x = p[l], z = p[l + 64]; \\
  unsigned r = q[l], d = q[l + 64];
"""
_SCALED = "__builtin_amdgcn_cvt_scalef32"
_CONVERSIONS = {
    **{f"fp4_{i}_read": f"{_SCALED}_pk_fp4_f32(d, x, x, z, {i})" for i in range(4)},
    **{
        f"fp4_bf16_{i}_read": f"{_SCALED}_pk_fp4_bf16(d, __builtin_bit_cast(B2, r), z, {i})" for i in range(4)
    },
    **{f"sr_fp4_{i}_read": f"{_SCALED}_sr_pk_fp4_f16(d, HALVES(r), r, z, {i})" for i in range(4)},
    **{f"sr_bf8_{i}_read": f"{_SCALED}_sr_bf8_f32(d, x, r, z, {i})" for i in range(4)},
    **{
        f"{name}_{half}": text.replace("HIGH", value)
        for half, value in (("low", "false"), ("high", "true"))
        for name, text in {
            "pk_fp8": f"U({_SCALED}_pk_fp8_f32(__builtin_bit_cast(S2, d), x, x, z, HIGH))",
            "pk_bf8_f16": f"U({_SCALED}_pk_bf8_f16(__builtin_bit_cast(S2, d), HALVES(r), z, HIGH))",
            "f16_fp8": f"U({_SCALED}_f16_fp8(HALVES(d), r, z, 0, HIGH))",
            "sr_f16": "U(__builtin_amdgcn_cvt_sr_f16_f32(HALVES(d), x, r, HIGH))",
            "sr_bf16": "U(__builtin_amdgcn_cvt_sr_bf16_f32(__builtin_bit_cast(B2, d), x, r, HIGH))",
        }.items()
    },
    "f32_fp8_byte": f"U({_SCALED}_f32_fp8(r, z, 3))",
}
_KINDS = {"f4_f4": "4, 4", "f6_f4": "2, 4", "f4_f8": "4, 0", "f8_f8": "0, 0"}
_SHAPES = {"16x16x128": "F4", "32x32x64": "F16"}


def _program() -> str:
    text = _HEAD
    for name, value in _CONVERSIONS.items():
        text += f"KERNEL({name}) {{ START q[l] = ({value}) ^ 0x55555; }}\n"
    for shape, vector in _SHAPES.items():
        for types, kinds in _KINDS.items():
            call = f"__builtin_amdgcn_mfma_scale_f32_{shape}_f8f6f4(m[l], m[l + 64], c, {kinds}, 0, r, 0, d)"
            text += f"KERNEL(m{shape}_{types}) {{ START {vector}* c_ = ({vector}*)p; {vector} c = c_[l]; "
            text += f"c_[l] = {call} + 1.0f; }}\n"
    return text


def _between(body: str, first: str, second: str) -> int:
    """Wait states between the first instruction of one kind and the next one of another."""
    lines = [line.split() for line in body.splitlines() if re.match(r"\t[sv]_|\tglobal_", line)]
    at = next(i for i, words in enumerate(lines) if re.match(first, words[0]))
    states = 0
    for words in lines[at + 1 :]:
        if re.match(second, words[0]):
            return states
        states += int(words[1]) + 1 if words[0] == "s_nop" else 1
    raise AssertionError(f"no {second} behind {first}")


@pytest.fixture(scope="module")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Compile each kernel with clang 20."""
    if not CLANG20.exists():
        pytest.skip("no clang 20: `make toolchain`, without a ROCm")
    folder = tmp_path_factory.mktemp("waits")
    source, out = folder / "k.hip", folder / "k.s"
    source.write_text(_program())
    options = ("-x", "hip", "--offload-arch=gfx950", "-O2", "-nogpuinc", "-nogpulib", "--cuda-device-only")
    subprocess.run(
        [CLANG20, *options, "--no-gpu-bundle-output", "-S", str(source), "-o", str(out)], check=True
    )
    parts = re.split(r"^(\w+):.*; @\1$", Path(out).read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", _CONVERSIONS)
def test_conversions(bodies: dict[str, str], name: str) -> None:
    """A result in a part of a register, and one that is late by itself."""
    producer, _, _, states, _ = conversion_cases()[name]
    mnemonic = re.sub("_f(16|32)$|_bf16$", "", producer.split()[0])
    assert _between(bodies[name], mnemonic, "v_xor_b32") == states


@pytest.mark.parametrize("shape", _SHAPES)
@pytest.mark.parametrize("types", _KINDS)
def test_matrices(bodies: dict[str, str], shape: str, types: str) -> None:
    """A result is read after the passes and four more."""
    states = matrix_cases()[f"mfma_{shape}_{types}_scaled_read"][3]
    assert _between(bodies[f"m{shape}_{types}"], "v_mfma", "v_accvgpr_read|v_pk_add|v_add") == states
