# SPDX-License-Identifier: MIT OR Apache-2.0
"""The profile of attention against closed forms: operations of whole tiles, bytes nobody can save."""

from __future__ import annotations

import math

import numpy as np
import pytest
from built import this_arch

from pyfa_rocm import (
    DeviceArray,
    InvalidArgumentError,
    KernelInfo,
    emulator,
    fmha_fwd,
    fmha_fwd_kernel,
)
from pyfa_rocm.cli import traffic
from pyfa_rocm.emulator import LaunchProfile
from pyfa_rocm.oracle.params import forward_params
from pyfa_rocm.oracle.problem import Problem

LINE = 128
# Kernel arguments (264 bytes) are read too: three lines.
ARGUMENT_LINES = 3

pytestmark = pytest.mark.skipif(
    "config.getoption('--device') == 'gpu'", reason="only the software device counts"
)


def lines(problem: Problem, seqlen: int, nhead: int) -> int:
    """Lines of a dense tensor: rows of 128 or 256 bytes."""
    return problem.batch * seqlen * nhead * problem.hdim * 2 // LINE


def key_tiles(problem: Problem, kernel: KernelInfo) -> int:
    """Key tiles of all query tiles of a head."""
    total, seqlen_k = 0, problem.k_shape[1]
    for first in range(0, problem.seqlen, kernel.tile_m):
        end = seqlen_k
        if problem.causal:  # the last row of the tile sees this many keys
            last = min(first + kernel.tile_m, problem.seqlen) - 1
            end = min(end, max(0, last + 1 + seqlen_k - problem.seqlen))
        total += math.ceil(end / kernel.tile_n)
    return total


SHAPES = [
    Problem(1, 1, 1, 128, 128, False, "float16"),
    Problem(1, 2, 2, 256, 128, False),
    Problem(2, 4, 2, 384, 64, False, "float16", seqlen_k=256),
    Problem(1, 2, 1, 200, 128, False, seqlen_k=333),
    Problem(1, 4, 4, 1, 64, False, seqlen_k=600),
    Problem(3, 2, 2, 130, 64, False, "float16", seqlen_k=70),
    Problem(1, 2, 2, 512, 128, True),
    Problem(1, 2, 2, 512, 64, True, "float16"),
    Problem(2, 2, 1, 256, 128, True, seqlen_k=640),
]
WHOLE = [shape for shape in SHAPES if shape.seqlen % 128 == shape.seqlen_k % 128 == 0]
# Shapes for which the set ci loads K by DMA; on gfx950 all kernels do.
BY_DMA = [
    (shape, "pingpong_dma")
    for shape in WHOLE
    if (this_arch(), shape.hdim, shape.dtype) == ("gfx942", 128, "bfloat16")
]


def _run(shape: Problem, pipeline: str = "qr", tag: str = "") -> tuple[LaunchProfile, KernelInfo]:
    """Run a shape by the first candidate with such a pipeline (qr: CK's) whose name ends with the tag."""
    q, k, v = map(DeviceArray.from_numpy, shape.inputs())
    out = DeviceArray.empty(shape.o_shape, shape.dtype)
    lse = DeviceArray.empty((shape.batch, shape.nhead_q, shape.seqlen), "float32")
    params = forward_params(shape, q=q, k=k, v=v, out=out, lse=lse)
    while True:
        params.kernel += 1
        info = fmha_fwd_kernel(params)
        if info.pipeline.startswith(pipeline) and info.name.endswith(tag):
            break
    with emulator.profile() as profile:
        fmha_fwd(params)
    (launch,) = profile.launches
    return launch, info


@pytest.mark.parametrize("pipeline", ["qr", "pingpong"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention(shape: Problem, pipeline: str) -> None:
    launch, kernel = _run(shape, pipeline, "pingpong" if pipeline == "pingpong" else "")
    counted, caches = launch.counted, launch.modelled.caches
    assert launch.kernel == kernel.name
    assert launch.grid == tuple(kernel.grid)
    heads = shape.batch * shape.nhead_q
    # Q K^T and P V, a multiply-add each, over whole tiles.
    tiles = heads * key_tiles(shape, kernel)
    assert counted.flops == 2 * 2 * kernel.tile_m * kernel.tile_n * shape.hdim * tiles
    type_ = "bf16" if shape.dtype == "bfloat16" else "f16"
    assert counted.mfma_by_type[type_].flops == counted.flops
    assert counted.instructions["mfma"] == sum(matrix.count for matrix in counted.mfma.values())
    assert counted.instructions["total"] == sum(counted.instructions.values()) // 2
    assert counted.workgroups == heads * math.ceil(shape.seqlen / kernel.tile_m)
    assert counted.waves == counted.workgroups * kernel.block_size // 64
    # Every line that must be read or written, and no further line is touched.
    reads = lines(shape, shape.seqlen, shape.nhead_q) + 2 * lines(shape, shape.k_shape[1], shape.nhead_k)
    writes = lines(shape, shape.seqlen, shape.nhead_q) + math.ceil(heads * shape.seqlen * 4 / LINE)
    assert reads + 1 <= counted.memory.lines_read <= reads + ARGUMENT_LINES
    assert counted.memory.lines_written == writes
    # A wave's 64 lanes stand along its 32 or 16 rows: a row's LSE is held, and by CK stored, 2 or 4 times.
    copies = 1 if pipeline == "pingpong" else 64 // (kernel.tile_m // (kernel.block_size // 64))
    assert counted.memory.store_bytes == heads * shape.seqlen * (2 * shape.hdim + copies * 4)
    assert counted.memory.load_bytes >= reads * LINE
    # All of it fits into the caches: HBM sees each line once.
    assert caches.hbm_read_bytes == counted.memory.lines_read * LINE
    if shape.seqlen % 32 == 0:  # no line of LSE is shared by two workgroups
        assert caches.hbm_write_bytes == writes * LINE
    assert caches.hbm_write_bytes >= writes * LINE
    assert caches.hbm_read_bytes <= caches.l2_fill_bytes <= 8 * caches.hbm_read_bytes
    assert caches.mall_misses * LINE == caches.hbm_read_bytes
    assert counted.scratch == emulator.Scratch(0, 0)


@pytest.mark.parametrize("shape", WHOLE, ids=str)
def test_bytes_requested(shape: Problem) -> None:
    """Q once, K and V once a query tile, as far as its mask goes; nothing else, where tiles are whole."""
    launch, kernel = _run(shape)
    heads, row_bytes = shape.batch * shape.nhead_q, 2 * shape.hdim
    keys = heads * key_tiles(shape, kernel) * kernel.tile_n
    assert launch.counted.memory.load_bytes == row_bytes * (heads * shape.seqlen + 2 * keys)
    # K and V go through LDS: written once, read by each of the four waves.
    assert launch.counted.lds.write_bytes == 2 * row_bytes * keys
    assert launch.counted.lds.read_bytes == 4 * launch.counted.lds.write_bytes


@pytest.mark.parametrize(("shape", "tag"), [*((shape, "pingpong") for shape in WHOLE), *BY_DMA], ids=str)
def test_bytes_requested_by_pingpong(shape: Problem, tag: str) -> None:
    """Loads are as CK's; each wave reads each tile of K and V once, without bank conflicts."""
    launch, kernel = _run(shape, "pingpong", tag)
    heads, row_bytes = shape.batch * shape.nhead_q, 2 * shape.hdim
    tile_bytes = kernel.tile_n * row_bytes
    # The bytes of Q and O, there and back
    rows_bytes = 2 * launch.counted.workgroups * kernel.tile_m * row_bytes * (this_arch() == "gfx950")
    tiles = heads * key_tiles(shape, kernel)
    loads = row_bytes * heads * shape.seqlen + 2 * tiles * tile_bytes
    assert launch.counted.memory.load_bytes == loads
    assert launch.counted.lds.read_bytes == 8 * 2 * tiles * tile_bytes + rows_bytes
    # Stores run ahead, by a tile of K and one of V on average of both groups.
    ahead = 2 * (tiles + launch.counted.workgroups) * tile_bytes
    assert launch.counted.lds.write_bytes == ahead + rows_bytes
    assert launch.modelled.lds_conflict_cycles == 0


def test_occupancy() -> None:
    launch, kernel = _run(SHAPES[0])
    occupancy = launch.modelled.occupancy
    assert 0 <= occupancy.vgprs - kernel.vgpr_count < 8
    assert occupancy.waves_per_workgroup == 4
    assert occupancy.workgroups_per_cu == min(512 // occupancy.vgprs, 65536 // occupancy.lds_bytes)


def test_repeatable() -> None:
    assert _run(SHAPES[3])[0].json == _run(SHAPES[3])[0].json


def test_more_than_the_l2_holds() -> None:
    """K and V of 16 MiB: each query tile that comes later fetches them again, but not from HBM."""
    chunk = 1 << 16
    tiles = range(0, 32, 8)  # all on the first XCD
    caches = emulator.cache_model(
        (chunk * i, chunk, tile, emulator.Access.READ) for tile in tiles for i in range((16 << 20) // chunk)
    )
    assert caches.l2_fill_bytes == 4 * (16 << 20)
    assert caches.hbm_read_bytes == 16 << 20


def test_launches_in_order_and_only_inside() -> None:
    _run(SHAPES[0])
    with emulator.profile() as profile:
        pass
    assert profile.launches == []
    with pytest.raises(ZeroDivisionError), emulator.profile():
        1 / 0  # noqa: B018
    with (
        emulator.profile(),
        pytest.raises(InvalidArgumentError, match="inside another"),
        emulator.profile(),
    ):
        pass
    launch, kernel = _run(SHAPES[0])
    assert launch.counted.workgroups == math.prod(kernel.grid)


@pytest.mark.parametrize(
    ("batch", "seqlen", "nhead_q", "nhead_k"), [(1, 256, 2, 2), (2, 384, 4, 2), (1, 200, 1, 1)]
)
def test_traffic_of_standard_attention(batch: int, seqlen: int, nhead_q: int, nhead_k: int) -> None:
    problem = Problem(batch, nhead_q, nhead_k, seqlen, 128, causal=True)
    caches = emulator.cache_model(traffic.standard_accesses(problem))
    matrix = batch * nhead_q * seqlen * seqlen * 2
    query, key = (batch * heads * seqlen * 128 * 2 for heads in (nhead_q, nhead_k))
    # S, P and O are written; S and P are small enough to be read from the memory-side cache.
    assert caches.hbm_read_bytes == query + 2 * key
    if seqlen % 128 == 0:
        assert caches.hbm_write_bytes == 2 * matrix + query
    assert caches.hbm_write_bytes >= 2 * matrix + query
    # S and P go both ways past the L2s.
    assert caches.l2_fill_bytes >= 2 * matrix + query + 2 * key


@pytest.mark.parametrize(("batch", "seqlen", "nhead_q", "nhead_k"), [(1, 256, 2, 2), (2, 384, 4, 2)])
def test_traffic_of_standard_backward(batch: int, seqlen: int, nhead_q: int, nhead_k: int) -> None:
    problem = Problem(batch, nhead_q, nhead_k, seqlen, 128, causal=True)
    caches = emulator.cache_model(traffic.standard_backward_accesses(problem))
    matrix = batch * nhead_q * seqlen * seqlen * 2
    query, key = (batch * heads * seqlen * 128 * 2 for heads in (nhead_q, nhead_k))
    # q, dO, k, v and P are read from memory; dP and dS are small enough for the memory-side cache.
    assert caches.hbm_read_bytes == 2 * query + 2 * key + matrix
    assert caches.hbm_write_bytes == 2 * matrix + query + 2 * key
    # P and dS are read twice past the L2s, dP once.
    assert caches.l2_fill_bytes >= 5 * matrix + 2 * query + 2 * key


def test_traffic_of_our_backward() -> None:
    problem = Problem(1, 2, 2, 512, 64, True, "float16")
    measured = traffic.measure_backward(problem)
    assert measured is not None
    ours, standard = measured["ours"], measured["standard"]
    dense = 512 * 2 * 64 * 2
    # At the very least q, k, v, O and dO are read, and three gradients written.
    assert ours["hbm_read_bytes"] > 5 * dense
    assert ours["hbm_write_bytes"] > 3 * dense
    assert ours["hbm_bytes"] < standard["hbm_bytes"]
    assert any("_bwd_fp16" in name for name in ours["launches"])
    assert ours["instructions"] > ours["flops"] / 65536  # an instruction has no more than 32 x 32 x 16 x 4


def test_traffic_of_ours_is_less() -> None:
    problem = Problem(1, 2, 2, 512, 128, causal=True)
    measured = traffic.measure(problem)
    assert measured is not None
    ours, standard = measured["ours"], measured["standard"]
    dense = 512 * 2 * 128 * 2
    assert ours["hbm_write_bytes"] == dense + 512 * 2 * 4
    assert 3 * dense < ours["hbm_read_bytes"] <= 3 * dense + ARGUMENT_LINES * LINE
    assert standard["hbm_bytes"] > ours["hbm_bytes"]
    assert standard["past_l2_bytes"] > ours["past_l2_bytes"]
    assert ours["source"].startswith("counted")


def test_constants() -> None:
    constants = emulator.constants()
    assert constants["l2_bytes_per_xcd"]["value"] == 4 << 20
    assert all(entry["source"] for entry in constants.values())


def test_cache_model_refuses_other_arrays() -> None:
    with pytest.raises(InvalidArgumentError, match="accesses"):
        emulator.cache_model(np.zeros((2, 2), np.dtype([("address", "u8")])))


@pytest.mark.parametrize("causal", [False, True])
def test_tiles_by_turns(causal: bool) -> None:
    """Head dim 512: each of four waves reads each tile of K and V once, without bank conflicts."""
    shape = Problem(1, 2, 1, 256, 512, causal, "bfloat16")
    launch, kernel = _run(shape, "pingpong")
    row_bytes, tiles = 2 * shape.hdim, shape.nhead_q * key_tiles(shape, kernel)
    tile_bytes = kernel.tile_n * row_bytes
    rows_bytes = shape.nhead_q * shape.seqlen * row_bytes
    assert launch.counted.memory.load_bytes == rows_bytes + 2 * tiles * tile_bytes
    through_lds = 2 * rows_bytes * (this_arch() == "gfx950")  # Q and O
    assert launch.counted.lds.read_bytes == 4 * 2 * tiles * tile_bytes + through_lds
    # One more tile of K is stored, which has no rows.
    written = (2 * tiles + launch.counted.workgroups) * tile_bytes
    assert launch.counted.lds.write_bytes == written + through_lds
    assert launch.modelled.lds_conflict_cycles == 0


def _conflicts(hdim: int, keys: int) -> int:
    """Return the cycles that LDS spends on conflicts while it stores so many values in tiles of 32."""
    stores_eight = (this_arch(), hdim) == ("gfx942", 128)  # dims a lane
    return keys * 2 * hdim // LINE if stores_eight else 0


@pytest.mark.parametrize("hdim", [64, 128])
def test_short_tiles(hdim: int) -> None:
    """Tiles of 64 rows: a wave multiplies no block that its rows do not see.

    They have no bank conflicts, but where a lane stores eight dims of V.
    """
    shape = Problem(1, 2, 2, 256, hdim, True, window_size=(63, 0))
    launch, kernel = _run(shape, "pingpong", "pingpong_m64")
    # 64 rows see two blocks more than their own two, but the first ones.
    tiles = shape.nhead_q * (4 * shape.seqlen // 64 - 2)
    assert launch.modelled.lds_conflict_cycles == _conflicts(hdim, tiles * kernel.tile_n)
    # 32 rows see a block of 32 keys in part, the one before it whole, and one before that in part.
    blocks = shape.nhead_q * sum(min(wave, 2) + 1 for wave in range(shape.seqlen // 32))
    assert launch.counted.flops == 2 * 2 * 32 * kernel.tile_n * hdim * blocks


@pytest.mark.skipif(this_arch() != "gfx942", reason="only gfx942 has them")
@pytest.mark.parametrize("hdim", [64, 128])
def test_waves_share_keys(hdim: int) -> None:
    """Each row of Q, and each key for each 64 rows, is loaded by one of the workgroup's eight waves."""
    shape = Problem(1, 2, 1, 512, hdim, False, "bfloat16")
    launch, _ = _run(shape, "pingpong", "pingpong_shares")
    rows = shape.nhead_q * shape.seqlen
    keys = rows // 64 * shape.seqlen
    assert launch.counted.memory.load_bytes == 2 * shape.hdim * (rows + 2 * keys)
    assert launch.counted.flops == 2 * 2 * rows * shape.seqlen * shape.hdim
    assert launch.modelled.lds_conflict_cycles == _conflicts(shape.hdim, keys)
