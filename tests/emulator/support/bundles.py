# SPDX-License-Identifier: MIT OR Apache-2.0
"""Offload bundles: one that clang compressed, and others put together here, field by field."""

from __future__ import annotations

import base64
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .asm import Kernel, assemble

# A bundle from clang 19, version 2, for gfx90a and gfx942. The build does not need its tool for that,
# clang-offload-bundler. From `extern "C" __attribute__((global)) void seven(int* out) { *out = 7; }`:
#   clang++-19 -x hip --cuda-device-only --offload-compress --offload-arch=gfx942 \
#     --offload-arch=gfx90a -nogpulib -nogpuinc -O2 -c seven.hip
CLANG = base64.b64decode(
    """
Q0NPQgIAAQCoBAAA4C8AAFMs6Tbl3XM/KLUv/WDgLjUkAKZupEjwlJsxuPuJrHs1qBngQKUOeDgqPFPaZ37vJ8aBf31DI5vgLbJb
kN5EZCtJdX7E2MwQwk24EWC+ePnMoz8dAiFe8IUbWm9vkgKWAIsAlQD7s1hblpRh4v/AAQOKJuZYj/8lWBAX7VX06VBFHw8ZTE9P
6PXwwWayaVpKiigU2q59hCHR/os+4AW+HcBdvv2hCgJIG3YiB20Yls2kLpBQOZFOJby4Oq9UonuFOa+CtHRqhXdBASKlkmvE9yth
m4xZeCydJswJLq6SuPPqCn5y0JwXUqiaDxYmKmZDamZmw8RQE5OSmTOgzt3Fo7xRWRLGl1XgzZYvvu+Ge4bJljtWpK2rQ5kD25bd
OhakWOpcA2JHXJbONlOkXzddFJQ3RjVG2Lsf9TS18Vmt63ZTxBb07J7hmLUncWjbdaNqxqj4sqYdP9qSOyM74m67uy7LFx9V5c9z
YTka7rm31bVSKeOEiu1pKnUu4jFzU4celTsnH6IiqRQJ06uyKBKMtix8Uyy0MP8kMXII116hAwG0k5xfRwkhYc51pHiRwMkyFDjP
cl6iZwD+pzjPN5SbVmjLSovpRVVdTvWlY5n1jtwM72rOn8UPbEdKC1aRExCejwz/9f8EmMlRRCAUUgnIQIatwPlubVs4ROtpKsbY
su5si9pInhlZS+7wYHFU3JO7IMU3dW67R0kDmwE/cZ5f5TRKsfiA4/+QOzAi4EISApO5BA8wNFiIQ08PhZAJy39NlCKKwADC6wXS
juCj7A2y/PNz5CICyGigiakBgZpa3Kstr6LiwczJ762S9/CtlYYz689qedFlRXkq0pq1vBa/2nQlR+zJgzcb31R5K2Ys/1HmwDSq
mFS24qw0IJE8TD/uLdIkX0wkVIEBqGFJJDIiIpKUJMWsAZEFSiHFENXsEuBSOBV2hhmiiBERiUQkTiSjICkoTTrcGYDtXvtaA1EL
MwCf5jQA5YDjAPzDDcCKcYxXeghZ95i1kNgYPDMc/xIoY0UcCQf4VTuFinl4oGFgp0Vap2TaE97rMnS5LE3HFyafHx3xBCxzqgL4
BLIdD4MjA5PPXIb3v5aBgd5H0F8H9QbFU3FIEqDbsuqAvbpNvOMg3gClRGPilK/ZveCQSwaZunzjXUIM9r3GjIP74xynWRkTfhfI
XzS6szygtdwfyiL2bvU7DfNfQiYmMBMQA+4Wi1JfA1t83BBxNyo2a5NG/UJmrWxbVm6OjbLBQ3UsFkwP2AUVyzvkcWiwK4RuJ4W0
DBiLufDwb7Ct858BD9oFiqtFbngY+EnXyjPYFPdj4qmXl9srQxUa8wEaAzPzF/Ala1kVsOmFwf0srAi7+fYiEM/qYQiAJI1+zhPV
+Oze8bmeYGEJPxN/i3f3pzUlT+MFMoGoB7ximFdlON8Vv6oO9U/cqKr1ov1MnUaKpQMOZSzA7i3jigeRGwV2r5rznYnqbzYaXJ2J
u8NkBheHuepKVpBWTB820+t0i8WCsr3EB1Q0Xu1VPiGZHt1LksEmRZbzH02SP1COAIEIREIL2Cs0KhHEVp60TUgk/g==
"""
)
HEADERS = {1: "<4sHHIQ", 2: "<4sHHIIQ", 3: "<4sHHQQQ"}
ZSTD = 1
_PAGE = 4096


def seven(cpu: str = "") -> bytes:
    """A code object whose kernel `seven` writes 7 to where its argument points."""
    lines = [
        "s_load_dwordx2 s[8:9], s[0:1], 0x0",
        "v_mov_b32 v1, 0",
        "v_mov_b32 v2, 7",
        "s_waitcnt lgkmcnt(0)",
        "global_store_dword v1, v2, s[8:9]",
        "s_endpgm",
    ]
    return assemble([Kernel("seven", lines, args=((0, 8, "global_buffer"),))], cpu)


def name(cpu: str) -> str:
    """An entry's name, as clang makes it."""
    return f"hipv4-amdgcn-amd-amdhsa--{cpu}"


def plain(entries: Sequence[tuple[str, bytes]]) -> bytes:
    """A bundle of these entries, each on a page of its own, as clang lays them out."""
    table_bytes = 32 + sum(24 + len(entry) for entry, _ in entries)
    at = -(-table_bytes // _PAGE) * _PAGE
    table, data = [struct.pack("<24sQ", b"__CLANG_OFFLOAD_BUNDLE__", len(entries))], bytearray()
    for entry, image in entries:
        start = at + len(data)
        table.append(struct.pack("<QQQ", start, len(image), len(entry)) + entry.encode())
        data += image + bytes(-len(image) % _PAGE)
    return b"".join(table).ljust(at, b"\0") + bytes(data)


def zstd(data: bytes, *options: str) -> bytes:
    """A frame of zstd's."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data")
        path.write_bytes(data)
        return subprocess.run(["zstd", "-qc", *options, str(path)], capture_output=True, check=True).stdout


@dataclass
class Compressed:
    """A compressed bundle; a field that is None is what it should be."""

    plain: bytes
    version: int = 3
    method: int = ZSTD
    file_bytes: int | None = None
    plain_bytes: int | None = None
    hash: int = 0  # which nothing reads
    data: bytes | None = None
    options: Sequence[str] = ()

    def encode(self) -> bytes:
        """Header and data."""
        layout = struct.Struct(HEADERS.get(self.version, HEADERS[3]))
        data = zstd(self.plain, *self.options) if self.data is None else self.data
        file_bytes = layout.size + len(data) if self.file_bytes is None else self.file_bytes
        plain_bytes = len(self.plain) if self.plain_bytes is None else self.plain_bytes
        sizes = (plain_bytes,) if self.version == 1 else (file_bytes, plain_bytes)
        return layout.pack(b"CCOB", self.version, self.method, *sizes, self.hash) + data
