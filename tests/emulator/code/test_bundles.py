# SPDX-License-Identifier: MIT OR Apache-2.0
"""Offload bundles, compressed and plain: which entry runs, what a damaged one says, what reading costs."""

from __future__ import annotations

import ctypes as c
import mmap
import re
import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from inner import run_script

from ..support import bundles, hip, rows
from ..support.bundles import Compressed

VERSIONS = (1, 2, 3)
OTHER = {"gfx942": "gfx90a", "gfx90a": "gfx942"}
INVALID_IMAGE, NO_BINARY = 200, 209


@cache
def code(cpu: str) -> bytes:
    return bundles.seven(cpu)


@cache
def plain() -> bytes:
    """As clang makes one: nothing for the host, then another arch's, then this one's."""
    ours = rows.arch()
    other = OTHER[ours]
    entries = [("host-x86_64-unknown-linux--", b""), (other, code(other)), (ours, code(ours))]
    return bundles.plain([(bundles.name(e) if image else e, image) for e, image in entries])


def runs(image: bytes) -> None:
    """The kernel in it writes its 7."""
    module, buffer = hip.Module(image), hip.Buffer.of(np.zeros(1, np.uint32))
    module.launch("seven", struct.pack("<Q", buffer.address), block=(1, 1, 1))
    assert buffer.read()[0] == 7
    buffer.free()
    module.unload()


def load(image: bytes, path: Path | None = None) -> tuple[int, str]:
    """Status and message of loading it; from a file, whose length is known, if `path` is given."""
    handle, lib = c.c_void_p(), hip.lib()
    if path:
        path.write_bytes(image)
        status = lib.hipModuleLoad(c.byref(handle), str(path).encode())
    else:
        status = lib.hipModuleLoadData(c.byref(handle), image)
    if not status:
        hip.call("hipModuleUnload", handle)
        return 0, ""
    lib.fmha_emu_last_error.restype = c.c_char_p
    text = lib.fmha_emu_last_error().decode(errors="replace")
    lib.hipGetLastError()
    return status, text


def refused(image: bytes, expected: str, error: int = INVALID_IMAGE, path: Path | None = None) -> None:
    """Loading fails with this error and text."""
    status, text = load(image, path)
    assert status == error, f"{status}: {text}"
    assert re.search(expected, text), text


def test_clangs_own() -> None:
    """A bundle that clang compressed."""
    runs(bundles.CLANG)


@pytest.mark.parametrize("version", VERSIONS)
def test_versions(version: int, tmp_path: Path) -> None:
    """Each version of the header, from memory and from a file; a file may go on behind the bundle."""
    image = Compressed(plain(), version).encode()
    runs(image)
    path = tmp_path / "image"
    path.write_bytes(image + (bytes(4096) if version > 1 else b""))
    handle = c.c_void_p()
    hip.call("hipModuleLoad", c.byref(handle), str(path).encode())
    hip.call("hipModuleUnload", handle)


def test_plain() -> None:
    """The same bundle as it is when not compressed."""
    runs(plain())


@pytest.mark.parametrize("compressed", [False, True])
def test_order_of_entries(compressed: bool) -> None:
    """The table may name the entries in another order than that of their bytes."""
    ours, other = rows.arch(), OTHER[rows.arch()]
    good = bundles.plain([(ours, code(ours)), (other, code(other))])
    row = 24 + len(ours)
    swapped = good[:32] + good[32 + row : 32 + 2 * row] + good[32 : 32 + row] + good[32 + 2 * row :]
    runs(Compressed(swapped).encode() if compressed else swapped)


@pytest.mark.parametrize("compressed", [False, True])
def test_wrong_arch(compressed: bool) -> None:
    """The message names the entries that exist, and the arch that was looked for."""
    other = OTHER[rows.arch()]
    image = bundles.plain([("host-x86_64-unknown-linux--", b""), (bundles.name(other), code(other))])
    expected = f"nothing for {rows.arch()} in: host-x86_64-unknown-linux--, hipv4-amdgcn-amd-amdhsa--{other}$"
    refused(Compressed(image).encode() if compressed else image, expected, NO_BINARY)


def test_magic() -> None:
    """One letter off: it is no bundle at all."""
    refused(b"CCOC" + Compressed(plain()).encode()[4:], "neither a code object nor an offload bundle")


@pytest.mark.parametrize("version", [0, 4, 0xFFFF])
def test_unknown_version(version: int) -> None:
    image = bytearray(Compressed(plain()).encode())
    image[4:6] = version.to_bytes(2, "little")
    refused(bytes(image), f"its version is {version}, expected 1, 2 or 3")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("method", "said"), [(0, r"0 \(zlib\)"), (2, "2"), (0xFFFF, "65535")])
def test_method(version: int, method: int, said: str) -> None:
    image = Compressed(plain(), version, method=method).encode()
    refused(image, f"its method is {said}, expected 1 .zstd.: .*--no-offload-compress")


_BITS = {1: 32, 2: 32, 3: 64}  # of a size
_LIES = (0, 2**31, 2**32 - 1, 2**62, 2**64 - 1)


def lies(versions: Sequence[int]) -> list[tuple[int, str, int]]:
    """Version, base and number: sizes that are wrong, beside the right one and absurd."""
    near = [(v, "right", n) for v in versions for n in (-1, 1)]
    return near + [(v, "zero", n) for v in versions for n in _LIES if n < 2 ** _BITS[v]]


@pytest.mark.parametrize(("version", "base", "number"), lies((2, 3)))
def test_size_of_file(version: int, base: str, number: int, tmp_path: Path) -> None:
    """Too short: the data end early. Too long: the file has fewer bytes, or what follows the data is seen."""
    good = Compressed(plain(), version)
    right = len(good.encode())
    lie = number + (right if base == "right" else 0)
    image = replace(good, file_bytes=lie).encode()
    refused(image, rf"should have {lie} bytes by its header|data are cut off", path=tmp_path / "image")
    if lie > right:
        refused(image + bytes(8192), "follow its data|should have", path=tmp_path / "image")


@pytest.mark.parametrize(("version", "base", "number"), lies(VERSIONS))
def test_plain_size(version: int, base: str, number: int, tmp_path: Path) -> None:
    """Less: it stops there. More, up to absurd: nothing of that size is allocated."""
    size = len(plain())
    lie = number + (size if base == "right" else 0)
    image = Compressed(plain(), version, plain_bytes=lie).encode()
    less, more = f"more than the {lie} bytes|table is damaged", f"give {size} of the {lie} bytes"
    refused(image, less if lie < size else more, path=tmp_path / "image")


@pytest.mark.parametrize("version", VERSIONS)
def test_hash(version: int) -> None:
    """The hash is not read, as LLVM's tool does not."""
    runs(Compressed(plain(), version, hash=1).encode())


@pytest.mark.parametrize("version", VERSIONS)
def test_cut_off_anywhere(version: int, tmp_path: Path) -> None:
    """Every length of a file but the whole one is refused."""
    image = Compressed(plain(), version).encode()
    for length in range(len(image)):
        expected = "compressed offload bundle: " if length >= 4 else "code object: "
        refused(image[:length], expected, path=tmp_path / "image")


def test_any_byte_damaged(tmp_path: Path) -> None:
    """A byte of the data that changes is seen by zstd's checksum, or changes nothing."""
    image = Compressed(plain()).encode()
    harmless = 0
    for at in range(32, len(image)):
        damaged = image[:at] + bytes([image[at] ^ 0x10]) + image[at + 1 :]
        status, text = load(damaged, tmp_path / "image")
        if status:
            assert (status, "compressed offload bundle: " in text) == (INVALID_IMAGE, True), text
        else:
            runs(damaged)
            harmless += 1
    assert harmless <= len(image) // 50  # zstd has a few bits that mean nothing


def test_any_byte_damaged_without_a_checksum(tmp_path: Path) -> None:
    """Such a bundle is refused with a message, or loads: nothing else happens."""
    image = Compressed(plain(), data=bundles.zstd(plain(), "--no-check")).encode()
    for at in range(32, len(image)):
        status, text = load(image[:at] + bytes([image[at] ^ 0x10]) + image[at + 1 :], tmp_path / "image")
        assert not status or (status in (INVALID_IMAGE, NO_BINARY) and text), (status, text)


def damaged_table(at: int, form: str, value: int) -> bytes:
    """The plain bundle with one number of its table replaced."""
    image = bytearray(plain())
    struct.pack_into(form, image, at, value)
    return bytes(image)


_FIRST = 32 + 24 + len("host-x86_64-unknown-linux--")  # the row of the first entry that has bytes
_TABLES = {
    "magic": (0, "<B", 0, "damaged"),
    "many": (24, "<Q", 2**60, "damaged|more than 1 MiB|cut off"),
    "offset": (_FIRST, "<Q", 2**63, "damaged"),
    "bytes": (_FIRST + 8, "<Q", 2**63, "damaged"),
    "name": (_FIRST + 16, "<Q", 2**63, "damaged"),
    "overlap": (_FIRST + 8, "<Q", 8192, "overlap"),
}


@pytest.mark.parametrize("case", _TABLES)
@pytest.mark.parametrize("version", VERSIONS)
def test_table(case: str, version: int) -> None:
    """A table that lies, behind a header that is right."""
    at, form, value, expected = _TABLES[case]
    refused(Compressed(damaged_table(at, form, value), version).encode(), expected)


def test_endless_table() -> None:
    """A table is not searched for its end without end."""
    entry = struct.pack("<QQQ", 0, 0, 8) + b"12345678"
    image = struct.pack("<24sQ", b"__CLANG_OFFLOAD_BUNDLE__", 1 << 40) + entry * (1 << 16)
    refused(Compressed(image).encode(), "its table has more than 1 MiB")


def test_skippable_frame() -> None:
    """A frame of zstd's that holds nothing."""
    refused(Compressed(plain(), data=b"\x50\x2a\x4d\x18\x00\x00\x00\x00").encode(), "give 0 of the")


def test_too_large_a_window() -> None:
    """A frame that wants 2 GiB to be unpacked, as no level of clang's does."""
    data = struct.pack("<IBB", 0xFD2FB528, 0, (31 - 10) << 3)
    refused(Compressed(plain(), data=data + b"\1\0\0").encode(), "Frame requires too much memory")


@pytest.mark.parametrize("version", VERSIONS)
def test_reads_no_further(version: int) -> None:
    """hipModuleLoadData gives no size: a bundle that ends with its page is read to there, and not beyond."""
    image = Compressed(plain(), version).encode()
    pages = -(-len(image) // mmap.PAGESIZE)
    area = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    start = c.addressof(c.c_char.from_buffer(area))
    end = start + pages * mmap.PAGESIZE
    libc = c.CDLL(None, use_errno=True)
    assert libc.mprotect(c.c_void_p(end), c.c_size_t(mmap.PAGESIZE), 0) == 0  # PROT_NONE
    c.memmove(end - len(image), image, len(image))
    handle = c.c_void_p()
    hip.call("hipModuleLoadData", c.byref(handle), c.c_void_p(end - len(image)))
    hip.call("hipModuleUnload", handle)


_REGISTER = """
import ctypes as c, struct, sys
from pathlib import Path
from emulator.support import hip

class Binary(c.Structure):
    _fields_ = [("magic", c.c_uint), ("version", c.c_uint), ("image", c.c_void_p), ("unused", c.c_void_p)]

def peak():  # kB
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

image = Path(sys.argv[1]).read_bytes()
hip.call("hipInit", 0)
buffer = hip.Buffer(64)
lib, code = hip.lib(), c.create_string_buffer(image, len(image))
register = getattr(lib, "__hipRegisterFatBinary")
register.restype = c.c_void_p
before = peak()
binary = Binary(0x48495046, 1, c.addressof(code), None)
handle = c.c_void_p(register(c.byref(binary)))
stub = c.c_void_p(c.addressof(binary))
getattr(lib, "__hipRegisterFunction")(handle, stub, b"seven", b"seven", c.c_uint(0), *[None] * 5)
registered = peak()
class Dim3(c.Structure):
    _fields_ = [("x", c.c_uint), ("y", c.c_uint), ("z", c.c_uint)]
argument = c.c_void_p(buffer.address)
params = (c.c_void_p * 1)(c.addressof(argument))
status = lib.hipLaunchKernel(stub, Dim3(1, 1, 1), Dim3(1, 1, 1), params, c.c_size_t(0), None)
print(status, 0 if status else buffer.read()[0], registered - before, peak() - registered)
"""


def registered(image: bytes, path: Path) -> tuple[int, ...]:
    """Run a process; return the launch's status, the value it wrote, and the kB that each step took."""
    path.write_bytes(image)
    env = {"FMHA_EMU_QUIET": "1", "FMHA_EMU_THREADS": "1"}
    return tuple(map(int, run_script(_REGISTER, str(path), env=env).split()))


def test_registering_unpacks_nothing(tmp_path: Path) -> None:
    """A damaged bundle can be registered, as no part of it is read; its kernel's launch is what fails."""
    image = Compressed(plain(), data=b"\0" * 64).encode()
    assert registered(image, tmp_path / "image")[0] == INVALID_IMAGE


def test_only_what_is_wanted_is_kept(tmp_path: Path) -> None:
    """128 MiB for other archs take no memory: loading needs only zstd's window (2 MiB at this level)."""
    other, ours = OTHER[rows.arch()], rows.arch()
    ballast = code(other) + bytes(64 << 20)
    image = bundles.plain([(other, ballast), (ours, code(ours)), (other, ballast)])
    status, value, register_kb, launch_kb = registered(Compressed(image).encode(), tmp_path / "image")
    assert (status, value) == (0, 7)
    assert register_kb < 1 << 10
    assert launch_kb < 32 << 10
