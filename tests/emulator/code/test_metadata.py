# SPDX-License-Identifier: MIT OR Apache-2.0
"""Code objects whose metadata note asks for what no card has, or is no metadata: refused when loaded."""

from __future__ import annotations

import ctypes as c
import struct
from typing import Any

import numpy as np
import pytest

from ..support import hip
from ..support.asm import Kernel, assemble

_ARGUMENT_BYTES = 304
# Copies the first eight bytes of its arguments to where they point.
_LINES = [
    "s_load_dwordx2 s[8:9], s[0:1], 0x0",
    "v_mov_b32 v1, 0",
    "s_waitcnt lgkmcnt(0)",
    "v_mov_b32 v2, s8",
    "v_mov_b32 v3, s9",
    "global_store_dwordx2 v1, v[2:3], s[8:9]",
    "s_endpgm",
]
_ENTRY: dict[str, Any] = {
    ".symbol": "k.kd",
    ".name": "k",
    ".kernarg_segment_size": _ARGUMENT_BYTES,
    ".group_segment_fixed_size": 0,
    ".private_segment_fixed_size": 0,
    ".max_flat_workgroup_size": 256,
    ".args": [{".offset": 0, ".size": _ARGUMENT_BYTES, ".value_kind": "by_value"}],
}


def _msgpack(x: Any) -> bytes:
    """MessagePack; bytes stand for themselves."""
    if isinstance(x, bool):
        return b"\xc3" if x else b"\xc2"
    if isinstance(x, int):
        return b"\xcf" + struct.pack(">Q", x) if x >= 0 else b"\xd3" + struct.pack(">q", x)
    if isinstance(x, float):
        return b"\xcb" + struct.pack(">d", x)
    if isinstance(x, str):
        return b"\xda" + struct.pack(">H", len(x)) + x.encode()
    if isinstance(x, list):
        return b"\xdd" + struct.pack(">I", len(x)) + b"".join(map(_msgpack, x))
    if isinstance(x, dict):
        pairs = b"".join(_msgpack(k) + _msgpack(v) for k, v in x.items())
        return b"\xdf" + struct.pack(">I", len(x)) + pairs
    assert isinstance(x, bytes)
    return x


@pytest.fixture(scope="module")
def image() -> bytes:
    """A code object of one kernel."""
    return assemble([Kernel("k", _LINES, args=((0, _ARGUMENT_BYTES, "by_value"),))])


def _with_note(image: bytes, metadata: Any) -> bytes:
    """Its metadata note replaced by one at the end of the file."""
    pt_note, nt_metadata = 4, 32
    out = bytearray(image) + bytes(-len(image) % 8)
    text = _msgpack(metadata)
    note = struct.pack("<III", 7, len(text), nt_metadata) + b"AMDGPU\0\0" + text
    (table,), (count,) = struct.unpack_from("<Q", out, 32), struct.unpack_from("<H", out, 56)
    for i in range(count):
        at = table + 56 * i
        if struct.unpack_from("<I", out, at)[0] == pt_note:
            struct.pack_into("<Q", out, at + 8, len(out))
            struct.pack_into("<QQ", out, at + 32, len(note), len(note))
    return bytes(out + note)


def _kernel(**fields: Any) -> dict[str, Any]:
    changed = {f".{name}": value for name, value in fields.items()}
    return {"amdhsa.kernels": [_ENTRY | changed]}


def _argument(offset: Any, size: Any, kind: Any = "by_value") -> dict[str, Any]:
    return _kernel(args=[*_ENTRY[".args"], {".offset": offset, ".size": size, ".value_kind": kind}])


_MOST = 1 << 20
_REFUSED: dict[str, tuple[Any, str]] = {
    "hidden argument near 2^32": (_argument((1 << 32) - 4, 8, "hidden_block_count_x"), f"at most {_MOST}"),
    "argument near 2^32": (_argument((1 << 32) - 16, 32), ".offset is 4294967280"),
    "argument beyond 2^32": (_argument((1 << 32) + 8, 8), ".offset is 4294967304"),
    "argument before 0": (_argument(-8, 8), ".offset is -8"),
    "argument of 2^31 bytes": (_argument(0, 1 << 31), ".size is 2147483648"),
    "argument at 1.5": (_argument(1.5, 8), ".offset is 1.5"),
    "argument at a text": (_argument("x", 8), '.offset is "x"'),
    "kind that is a number": (_argument(0, 8, 3), "json"),
    "4 GiB of arguments": (
        _kernel(kernarg_segment_size=(1 << 32) - 1),
        ".kernarg_segment_size is 4294967295",
    ),
    "4 GiB of private memory": (_kernel(private_segment_fixed_size=(1 << 32) - 1), "private memory a lane"),
    "100 MiB of private memory": (_kernel(private_segment_fixed_size=100 << 20), "private memory a lane"),
    "2^32 - 1 registers": (_kernel(vgpr_count=(1 << 32) - 1, agpr_count=(1 << 32) - 1), ".vgpr_count is"),
    "2^32 - 1 scalar registers": (_kernel(sgpr_count=(1 << 32) - 1), ".sgpr_count is"),
    "workgroups of 2^31": (_kernel(max_flat_workgroup_size=1 << 31), ".max_flat_workgroup_size is"),
    "a stack of a text": (_kernel(uses_dynamic_stack="x"), "json"),
    "a symbol that is a number": ({"amdhsa.kernels": [{".symbol": 5}]}, "json"),
    "kernels that are a number": ({"amdhsa.kernels": 7}, "json"),
    "a kernel that is a list": ({"amdhsa.kernels": [[1, 2]]}, "json"),
    "an argument that is a number": (_kernel(args=[5]), "json"),
    "half a map": (b"\xdf\xff\xff\xff\xff", "is not MessagePack"),
    "a string of 4 GiB": (b"\xdb\xff\xff\xff\xff", "is not MessagePack"),
    "arrays, 33 deep": (b"\x91" * 33 + b"\x01", "nested more than 32 deep"),
    "arrays, 10^6 deep": (b"\x91" * 1_000_000 + b"\x01", "nested more than 32 deep"),
    "maps, 10^6 deep": (b"\x81\xa1a" * 1_000_000 + b"\x01", "nested more than 32 deep"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_refused(image: bytes, name: str) -> None:
    """With the field, what it says, and what it may say."""
    metadata, why = _REFUSED[name]
    with pytest.raises(hip.HipError) as caught:
        hip.Module(_with_note(image, metadata))
    assert caught.value.code == 200  # hipErrorInvalidImage
    hip.lib().fmha_emu_last_error.restype = c.c_char_p
    assert why in hip.lib().fmha_emu_last_error().decode()


def _runs(image: bytes, metadata: Any) -> None:
    module = hip.Module(_with_note(image, metadata))
    out = hip.Buffer.of(np.zeros(2, np.uint32))
    module.launch("k", struct.pack("<Q", out.address) + bytes(_ARGUMENT_BYTES - 8))
    assert out.read(np.uint64)[0] == out.address
    out.free()
    module.unload()


@pytest.mark.parametrize(
    "metadata",
    [
        _kernel(),
        _argument(_MOST - 8, 8, "hidden_block_count_x"),  # outside of what it gets: not written
        {"amdhsa.kernels": [_ENTRY], "x": b"\x91" * 31 + b"\x01"},
    ],
    ids=["plain", "the last place", "32 deep"],
)
def test_taken(image: bytes, metadata: Any) -> None:
    """Metadata at the limit is allowed."""
    _runs(image, metadata)


def test_no_arguments_listed(image: bytes) -> None:
    """The caller gives the whole block of a kernel whose entry lists no arguments (hand-written ones)."""
    entry = {k: v for k, v in _ENTRY.items() if k != ".args"}
    _runs(image, {"amdhsa.kernels": [entry]})


def test_no_kernels_listed(image: bytes) -> None:
    """Then the descriptor says how many bytes they are."""
    _runs(image, {"amdhsa.kernels": []})
