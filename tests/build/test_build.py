# SPDX-License-Identifier: MIT OR Apache-2.0
"""The build's programs (catalogue, kernel report), and what this build wrote with them."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import embed
import pytest
from catalogue import ARCHS, SETS, read_catalogue, select_rows
from report import complaint

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = ROOT / "native" / "tools" / "catalogue"
BUILD = ROOT / "build" / "release"
TILES = """
origin = "ck"
[tiles]
d64 = {pipeline = "qr_async", block = [128, 64, 32, 64, 32, 64], waves = 4, mfma = [32, 32, 16]}
d96 = {pipeline = "qr", block = [128, 64, 32, 128, 32, 96], waves = 4, mfma = [32, 32, 16], blocks_per_cu = 1}
d64_few = {pipeline = "qr", block = [16, 32, 32, 64, 32, 64], waves = 1, mfma = [16, 16, 32], tag = "m16"}
"""
PLAIN = """
[[kernels]]
set = "default"
arch = ["gfx90a", "gfx942"]
dtype = "bf16"
tile = ["d64", "d96"]
mask = false
pad = [false, true]
"""
BLOCK = TILES + PLAIN


def write_catalogue(tmp_path: Path, fwd: str) -> str:
    """A folder with this catalogue of forward kernels."""
    (tmp_path / "catalogue").mkdir(exist_ok=True)
    (tmp_path / "catalogue" / "fwd.toml").write_text(fwd)
    return str(tmp_path / "catalogue")


def list_kernels(
    tmp_path: Path,
    catalogue: str,
    kernel_set: str = "full",
    targets: str = "gfx942",
    pattern: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run catalogue.py over the test's own catalogue."""
    command = [sys.executable, str(CATALOGUE / "catalogue.py"), write_catalogue(tmp_path, catalogue)]
    command += ["--set", kernel_set, "--targets", targets, "--filter", pattern]
    command += ["--out", str(tmp_path / "out"), "--enums", str(tmp_path / "enums.h")]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def rows(tmp_path: Path) -> list[dict[str, Any]]:
    """The rows catalogue.py wrote, of all units."""
    return [row for path in (tmp_path / "out").rglob("*.rows.json") for row in json.loads(path.read_text())]


def names(tmp_path: Path) -> set[str]:
    """Their names, as <arch>/<name>."""
    return {f"{row['arch']}/{row['name']}" for row in rows(tmp_path)}


def test_block_stands_for_every_combination(tmp_path: Path) -> None:
    assert list_kernels(tmp_path, BLOCK, "default", "gfx942").returncode == 0
    heads = ("fmha_fwd_bf16_d64", "fmha_fwd_bf16_d96v128")
    assert names(tmp_path) == {f"gfx942/{head}{pad}" for head in heads for pad in ("", "_pad")}


def test_a_file_is_a_family(tmp_path: Path) -> None:
    """A row's family is its file, its origin is the file's or its tile's."""
    assert list_kernels(tmp_path, BLOCK).returncode == 0
    assert {(row["family"], row["origin"]) for row in rows(tmp_path)} == {("fwd", "ck")}
    (tmp_path / "catalogue" / "dance.toml").write_text(BLOCK)
    result = list_kernels(tmp_path, BLOCK)
    assert result.returncode == 1
    assert "dance: no family of kernels; known: fwd" in result.stderr
    command = [
        sys.executable,
        str(CATALOGUE / "catalogue.py"),
        str(tmp_path / "catalogue" / "fwd.toml"),
    ]
    command += ["--set", "ci", "--targets", "gfx942", "--out", str(tmp_path / "out")]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "fwd.toml: expected a folder with a file a family" in result.stderr


@pytest.mark.parametrize(
    ("family", "types", "said"),
    [
        ("kv_append", 'o_dtype = "fp8"', "fmha_kv_append_bf16_fp8: gfx950 has no fp8 (native/archs.toml)"),
        ("kv_append", 'o_dtype = "fp32"', "expected fp16 or bf16, stored as they are or as fp8"),
        ("decode", 'cache_dtype = "fp8"', "fmha_decode_bf16_fp8_d64: gfx950 has no fp8 (native/archs.toml)"),
        ("decode", 'cache_dtype = "fp8fn"', ""),
    ],
)
def test_a_cache_is_of_the_archs_own_8_bits(tmp_path: Path, family: str, types: str, said: str) -> None:
    tile = "hdim_q = 64, hdim_v = 64" if family == "decode" else ""
    row = f'set = "ci", arch = "gfx950", dtype = "bf16", tile = "x", {types}'
    catalogue = tmp_path / "catalogue"
    catalogue.mkdir()
    (catalogue / f"{family}.toml").write_text(
        f'origin = "hip"\ntiles.x = {{{tile}}}\nkernels = [{{{row}}}]\n'
    )
    result = list_kernels(tmp_path, BLOCK, targets="gfx950")
    assert (result.returncode, said in result.stderr) == (int(bool(said)), True)


def test_keys_by_dma_are_of_gfx942(tmp_path: Path) -> None:
    tiles = 'origin = "hip"\ntiles.x = {hdim = 128, tag = "dma", k_dma = true}\n'
    for arch, status, said in (("gfx942", 0, ""), ("gfx950", 1, "k_dma is of gfx942")):
        row = f'set = "ci", arch = "{arch}", dtype = "bf16", tile = "x", mask = false, pad = true'
        result = list_kernels(tmp_path, f"{tiles}kernels = [{{{row}}}]\n", targets=arch)
        assert (result.returncode, said in result.stderr) == (status, True)


def test_enums_have_counts_and_names(tmp_path: Path) -> None:
    """The library's enums come from the lists that rows are checked against."""
    assert list_kernels(tmp_path, BLOCK).returncode == 0
    text = (tmp_path / "enums.h").read_text()
    assert "enum class DType : uint8_t { kFp16, kBf16, kFp32, kFp8, kFp8fn };\n" in text
    assert "inline constexpr size_t kDTypeCount = 5;\n" in text
    assert 'kBiasNames[] = {"none", "elementwise", "alibi"};\n' in text
    for name in ("Family", "Origin", "DType", "Bias"):
        assert f"k{name}Count" in text


def test_names_say_every_feature(tmp_path: Path) -> None:
    few = PLAIN.replace('["d64", "d96"]', '"d64_few"').replace("mask = false", "mask = true")
    few = few.replace("[false, true]", "true") + 'group = true\nbias = "alibi"\ndropout = true\n'
    eight = (
        PLAIN.replace('"bf16"', '"fp8"').replace("[false, true]", "true").replace('["d64", "d96"]', '"d64"')
    )
    eight = eight.replace('["gfx90a", "gfx942"]', '"gfx942"') + 'o_dtype = "fp16"\n'
    assert list_kernels(tmp_path, TILES + few + eight).returncode == 0
    assert names(tmp_path) == {
        "gfx942/fmha_fwd_bf16_d64_group_mask_pad_alibi_dropout_m16",
        "gfx942/fmha_fwd_fp8_fp16_d64_pad",
    }
    (row,) = [row for row in rows(tmp_path) if row["dtype"] == "fp8"]
    wanted = {"o_dtype": "fp16", "hdim_step": 8, "group": False, "bias": "none", "pipeline": "qr_async"}
    assert wanted.items() <= row.items()


def test_a_unit_makes_its_kernels(tmp_path: Path) -> None:
    """Each row is one line of its translation unit, with what it and its tile say; small units are one."""
    assert list_kernels(tmp_path, BLOCK).returncode == 0
    (unit,) = (tmp_path / "out" / "gfx942").glob("*.hip")
    assert unit.stem == "fwd_bf16_d64_bf16_d96v128"
    lines = [line for line in unit.read_text().splitlines() if line.startswith("FMHA_FWD_KERNEL(")]
    named = [line.split(",")[0].removeprefix("FMHA_FWD_KERNEL(fmha_fwd_") for line in lines]
    assert named == ["bf16_d64", "bf16_d64_pad", "bf16_d96v128", "bf16_d96v128_pad"]
    lines = lines[2:]
    assert ".pipeline = fmha::PipelineKind::kQr, .block = {128, 64, 32, 128, 32, 96}, .waves = 4" in lines[0]
    said = ".blocks_per_cu = 1, .k_ahead = false, .hdim_step = 8, .group = false, .mask = false, .pad = false"
    assert said in lines[0]


def test_units_stay_small_and_full_keeps_those_of_default(tmp_path: Path) -> None:
    """Kernels of a dtype and head dims share units, Composable Kernel's few ones with those of others.

    A larger set leaves the smaller set's units unchanged.
    """
    units: dict[str, dict[str, set[str]]] = {}
    for kernel_set in ("default", "full"):
        out, catalogue = tmp_path / kernel_set, ROOT / "native/kernels/catalogue"
        command = [sys.executable, str(CATALOGUE / "catalogue.py"), str(catalogue), "--set", kernel_set]
        subprocess.run([*command, "--targets", "gfx90a,gfx942", "--out", str(out)], check=True)
        units[kernel_set] = {}
        for path in out.rglob("*.rows.json"):
            members = json.loads(path.read_text())
            assert 1 <= len(members) <= 12
            alike: tuple[str, ...] = ("arch", "family", "dtype", "hdim_q", "hdim_v")
            if members[0]["family"] in ("bwd_parts", "kv_append", "merge", "quantize"):  # which are small
                alike = ("arch", "family")
            kinds = Counter(tuple(row[key] for key in alike) for row in members)
            assert len(kinds) == 1 or (members[0]["origin"] == "ck" and max(kinds.values()) <= 6)
            if members[0]["object"]:  # not compiled
                continue
            units[kernel_set][str(path.relative_to(out))] = {row["name"] for row in members}
        # Backward kernels take four times as long to compile: a unit is one dtype and head dim of them.
        forward = [members for unit, members in units[kernel_set].items() if "/fwd_" in unit]
        assert len(forward) < sum(map(len, forward)) / 7
    assert units["default"].items() <= units["full"].items()


@pytest.mark.parametrize(("kernel_set", "count"), [("ci", 0), ("default", 8), ("full", 8)])
def test_sets_nest(tmp_path: Path, kernel_set: str, count: int) -> None:
    assert list_kernels(tmp_path, BLOCK, kernel_set, "gfx90a,gfx942").returncode == 0
    assert len(rows(tmp_path)) == count


def test_what_a_build_leaves_out_is_a_table_of_the_library(tmp_path: Path) -> None:
    """Each names the smallest set that has it and what to change about the build; one of those alike."""
    any_length = PLAIN.replace("[false, true]", "true")
    catalogue = TILES + any_length + any_length.replace('"default"', '"full"').replace("bf16", "fp16")

    def absent(kernel_set: str, targets: str, pattern: str = "") -> list[tuple[str, str]]:
        table = tmp_path / "absent.cc"
        command = [
            sys.executable,
            str(CATALOGUE / "catalogue.py"),
            write_catalogue(tmp_path, catalogue),
        ]
        command += ["--set", kernel_set, "--targets", targets, "--filter", pattern]
        subprocess.run([*command, "--out", str(tmp_path / "out"), "--absent", str(table)], check=True)
        text = table.read_text()
        found = re.findall(r'\.set = "(\w+)", \.build_with = "([^"]+)"', text)
        assert f"kAbsentKernelCount = {len(found)};" in text
        return found

    smaller, larger = ("default", "FMHA_KERNEL_SET=default"), ("full", "FMHA_KERNEL_SET=full")
    both = "gfx90a,gfx942"
    assert absent("ci", both) == [smaller] * 4 + [larger] * 4
    assert absent("default", both) == [larger] * 4
    assert absent("full", both) == []
    assert (
        absent("full", both, "d64")
        == [("default", "FMHA_KERNEL_FILTER=")] * 2 + [("full", "FMHA_KERNEL_FILTER=")] * 2
    )
    assert (
        absent("full", "gfx90a")
        == [("default", "FMHA_GPU_TARGETS=all")] * 2 + [("full", "FMHA_GPU_TARGETS=all")] * 2
    )
    assert ("full", "FMHA_KERNEL_SET=full FMHA_GPU_TARGETS=all") in absent("default", "gfx942")


def test_a_kernel_is_in_the_smallest_set_that_names_it(tmp_path: Path) -> None:
    smaller = PLAIN.replace('"default"', '"ci"').replace("[false, true]", "true")
    for catalogue in (BLOCK + smaller, TILES + smaller + PLAIN):
        assert list_kernels(tmp_path, catalogue, "ci").returncode == 0
        assert names(tmp_path) == {"gfx942/fmha_fwd_bf16_d64_pad", "gfx942/fmha_fwd_bf16_d96v128_pad"}


def test_shipped_sets() -> None:
    """Each set holds the one before it, and every arch has kernels in each."""
    shipped = read_catalogue(ROOT / "native" / "kernels" / "catalogue")
    for arch in ARCHS:
        sets = [{row.name for row in select_rows(shipped, name, [arch])} for name in SETS]
        assert sets[0]
        assert sets[0] <= sets[1] <= sets[2]


def test_allow_spills_goes_by_name(tmp_path: Path) -> None:
    assert list_kernels(tmp_path, BLOCK + '[allow_spills]\n".*_d64" = "faster"').returncode == 0
    assert {row["name"]: row["allow_spills"] for row in rows(tmp_path) if row["hdim_q"] == 64} == {
        "fmha_fwd_bf16_d64": "faster",
        "fmha_fwd_bf16_d64_pad": None,
    }


def test_filter(tmp_path: Path) -> None:
    assert list_kernels(tmp_path, BLOCK, pattern="d64.*pad|d96v128$").returncode == 0
    assert names(tmp_path) == {"gfx942/fmha_fwd_bf16_d64_pad", "gfx942/fmha_fwd_bf16_d96v128"}
    by_arch = tmp_path / "by_arch"
    by_arch.mkdir()
    assert list_kernels(by_arch, BLOCK, pattern="gfx942/.*_d96v128$").returncode == 0
    assert names(by_arch) == {"gfx942/fmha_fwd_bf16_d96v128"}
    result = list_kernels(tmp_path, BLOCK, pattern="d64(")
    assert result.returncode == 1
    assert "FMHA_KERNEL_FILTER: 'd64(' is no regular expression" in result.stderr


@pytest.mark.parametrize(
    ("catalogue", "targets", "said"),
    [
        (BLOCK + PLAIN, "gfx942", "entry 2 makes fmha_fwd_bf16_d64 for gfx90a a second time"),
        (BLOCK.replace("bf16", "int4"), "gfx942", "dtype is 'int4', expected one of fp16, bf16, fp32, fp8"),
        (BLOCK.replace('set = "default"', ""), "gfx942", "missing set"),
        (BLOCK + "tile_m = 128", "gfx942", "unknown key tile_m"),
        (BLOCK + 'bias = "rotary"', "gfx942", "bias is 'rotary', expected one of none, elementwise, alibi"),
        (
            BLOCK.replace('["d64", "d96"]', '"d65"'),
            "gfx942",
            "tile is 'd65', expected one of d64, d96, d64_few",
        ),
        (BLOCK + "group = true", "gfx942", "group mode needs pad = true"),
        (
            BLOCK + 'softcap = true\nbias = "alibi"',
            "gfx942",
            "CK has no softcap together with a bias, got 'alibi'",
        ),
        (BLOCK + 'o_dtype = "fp32"', "gfx942", "o_dtype is dtype or, for fp8, another type, got 'fp32'"),
        (BLOCK.replace('"bf16"', '"fp8"'), "gfx942", "o_dtype is dtype or, for fp8, another type, got 'fp8'"),
        (
            BLOCK.replace('"bf16"', '"fp8"') + 'o_dtype = "bf16"',
            "gfx942",
            "fmha_fwd_fp8_bf16_d64: gfx90a has no fp8 (native/archs.toml)",
        ),
        (BLOCK.replace('"ck"', '"triton"'), "gfx942", "tiles.d64: origin is 'triton', expected one of ck"),
        (BLOCK.replace('origin = "ck"', ""), "gfx942", "tiles.d64: origin is None, expected one of ck"),
        (BLOCK.replace("cu = 1", 'cu = 1, origin = "triton"'), "gfx942", "tiles.d96: origin is 'triton'"),
        (BLOCK + "[tile]\n", "gfx942", "fwd.toml: unknown key tile"),
        (
            BLOCK.replace("cu = 1", "cu = 1, hdim_step = -8"),
            "gfx942",
            "hdim_step is 0 or what head dims are multiples of, got -8",
        ),
        (BLOCK.replace("32, 96]", "32]"), "gfx942", "tiles.d96: block is a list of 6 numbers"),
        (BLOCK.replace("cu = 1", "cu = 1, k_ahead = {gfx9 = [true]}"), "gfx942", "k_ahead is 'gfx9'"),
        (BLOCK.replace("cu = 1", "cu = 1, k_ahead = {gfx942 = [2]}"), "gfx942", "k_ahead.gfx942 is 2"),
        (
            BLOCK.replace("cu = 1", "cu = 1, k_ahead = {gfx942 = [true]}"),
            "gfx942",
            "with k_ahead: pipeline is 'qr'",
        ),
        (BLOCK.replace('"qr"', '"qs"'), "gfx942", "pipeline is 'qs', expected one of qr_async, qr"),
        (BLOCK + '[allow_spills]\n"x.*" = "no"', "gfx942", "allow_spills: no kernel is named 'x.*'"),
        (BLOCK, "gfx906", "FMHA_GPU_TARGETS: got gfx906, expected some of gfx90a, gfx942, gfx950"),
    ],
)
def test_catalogue_says_what_is_wrong(tmp_path: Path, catalogue: str, targets: str, said: str) -> None:
    result = list_kernels(tmp_path, catalogue, targets=targets)
    assert result.returncode == 1
    assert said in result.stderr


def support_table(tmp_path: Path, catalogue: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run support_table.py over the test's own catalogue and tmp_path/README.md."""
    command = [sys.executable, str(CATALOGUE / "support_table.py"), *arguments]
    command += [write_catalogue(tmp_path, catalogue), str(tmp_path / "README.md")]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_support_table(tmp_path: Path) -> None:
    """Lines that differ in one column are merged; a narrower kernel has its own line."""
    readme = tmp_path / "README.md"
    # Marks of the table, as the repository's README has them.
    marks = [
        line for line in (ROOT / "README.md").read_text().splitlines(True) if "<!-- support-table" in line
    ]
    readme.write_text("above\n" + marks[0] + "old\n" + marks[1] + "below\n")
    masked = PLAIN.replace("mask = false", "mask = true").replace("[false, true]", "true")
    masked = masked.replace('"default"', '"full"').replace(', "gfx942"', "") + "group = [false, true]\n"
    drop = masked.replace('["d64", "d96"]', '"d64_few"') + "dropout = true\n"
    catalogue = BLOCK + masked + drop
    assert support_table(tmp_path, catalogue, "--check").returncode == 1
    assert support_table(tmp_path, catalogue).returncode == 0
    assert support_table(tmp_path, catalogue, "--check").returncode == 0
    text = readme.read_text()
    assert text.startswith("above\n")
    assert text.endswith("below\n")
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"
    ]
    assert cells[0][:6] == ["", "arch", "dtype", "head dim", "plain", "ALiBi"]
    assert [[*line[:5], line[8]] for line in cells[2:]] == [
        ["forward", "gfx90a", "bf16", "64", "full", "full"],
        ["forward", "gfx90a", "bf16", "96 (v: 128)", "full", ""],
        ["forward", "gfx942", "bf16", "64, 96 (v: 128)", "default (no mask) / -", ""],
    ]


def test_support_table_needs_its_marks(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("no marks\n")
    result = support_table(tmp_path, BLOCK)
    assert result.returncode == 1
    assert "expected one line '<!-- support-table" in result.stderr
    assert (tmp_path / "README.md").read_text() == "no marks\n"


def test_same_catalogue_rewrites_nothing(tmp_path: Path) -> None:
    list_kernels(tmp_path, BLOCK)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.*")}
    list_kernels(tmp_path, BLOCK)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.*")} == before


@pytest.mark.parametrize("resource", ["vgpr_spills", "sgpr_spills"])
def test_spills_need_a_reason(resource: str) -> None:
    """A row may allow spills to other registers; nothing may go to memory."""
    uses: dict[str, Any] = {"vgpr_spills": 0, "sgpr_spills": 0, "scratch_bytes": 0}
    row = {"arch": "gfx942", "name": "kernel", "allow_spills": None, **uses}
    assert complaint(row) is None
    assert f"kernel: {resource} 4; expected none" in complaint(row | {resource: 4})
    allowed = row | {resource: 4, "allow_spills": "measured faster"}
    assert complaint(allowed) is None
    assert complaint(allowed | {"scratch_bytes": 8}).endswith("scratch_bytes 8; expected none")


@pytest.mark.parametrize("werror", [False, True])
def test_spills_fail_the_build_if_warnings_do(tmp_path: Path, report: dict[str, Any], werror: bool) -> None:
    """A unit of this build that may spill, with its reason taken away."""
    spilling = [kernel for kernel in report["kernels"] if kernel["allow_spills"] and kernel["sgpr_spills"]]
    if not spilling:
        pytest.skip("no kernel of this build spills")
    unit = BUILD / "kernels" / spilling[0]["arch"] / spilling[0]["unit"]
    rows = json.loads(unit.with_suffix(".rows.json").read_text())
    (tmp_path / "rows.json").write_text(json.dumps([{**row, "allow_spills": None} for row in rows]))
    command = [sys.executable, str(CATALOGUE / "report.py"), str(unit.with_suffix(".co"))]
    command += [
        "--rows",
        str(tmp_path / "rows.json"),
        "--objdump",
        objdump(),
        "--out",
        str(tmp_path / "o.json"),
    ]
    result = subprocess.run(command + ["--werror"] * werror, check=False, capture_output=True, text=True)
    assert f"{spilling[0]['name']}: sgpr_spills {spilling[0]['sgpr_spills']}; expected none" in result.stderr
    assert result.returncode == int(werror)
    assert (tmp_path / "o.json").exists() != werror


def test_build_says_what_its_kernels_come_to() -> None:
    cost = {"cpu_seconds": 90.0, "wall_seconds": 100.0, "peak_mbytes": 1500}
    sizes = {"bytes": 2_000_000, "packed_bytes": 500_000}
    codes = [
        {"arch": "gfx90a", "kernels": [{}, {}], "compile": cost, **sizes},
        {"arch": "gfx942", "kernels": [{}], "compile": cost | {"cpu_seconds": 30.0}, **sizes},
    ]
    said = embed.summary(codes)
    assert said.startswith("3 kernels (gfx90a 2, gfx942 1) in 2 code objects, 4.00 MB, 1.00 MB packed; ")
    assert "compiled in 120 CPU seconds (" in said
    assert said.endswith(" cores), 90 the slowest unit, 1500 MB at most")


def objdump() -> str:
    """The disassembler this build uses."""
    lines = (BUILD / "CMakeCache.txt").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("FMHA_OBJDUMP:"))


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """The report of this build."""
    content: dict[str, Any] = json.loads((BUILD / "kernels.json").read_text())
    assert content["kernels"]
    return content


def test_build_report_describes_the_code_objects(report: dict[str, Any]) -> None:
    """The packed code object is the compiled one, and the report describes it."""
    bases = dict(line.split() for line in (BUILD / "kernels/bases.txt").read_text().splitlines() if line)
    for code in report["code_objects"]:
        path = BUILD / "kernels" / code["arch"] / f"{code['name']}.co"
        packed = path.with_suffix(".co.zst")
        assert packed.stat().st_size == code["packed_bytes"]
        base = bases.get(f"{code['arch']}/{code['name']}")
        after = [f"--patch-from={BUILD}/kernels/{base}.co"] if base else []
        unpacked = subprocess.run(["zstd", "-dcq", *after, packed], check=True, capture_output=True).stdout
        assert unpacked == path.read_bytes()
        assert len(unpacked) == code["bytes"]
        assert hashlib.sha256(unpacked).hexdigest() == code["sha256"]
    for kernel in report["kernels"]:
        assert report["code_objects"][kernel["code_object"]]["sha256"] == kernel["sha256"]


def test_build_report_describes_the_kernels(report: dict[str, Any]) -> None:
    for kernel in report["kernels"]:
        assert kernel["kernarg_bytes"] >= 64
        assert kernel["block_size"] % 64 == 0
        assert not kernel["scratch_bytes"]
        if kernel["family"] in ("bwd_parts", "kv_append", "merge", "quantize"):  # which only add and convert
            continue
        if kernel["arch"].startswith("gfx103"):  # without a matrix unit, a WMMA is 64 dot products or more
            assert kernel["main_loop"]["mfma"] == 0
            assert kernel["main_loop"]["valu"] > 64
            continue
        assert kernel["main_loop"]["mfma"] > 0
        if kernel["family"] != "fwd":
            continue
        if kernel["object"]:  # whose loop does several steps
            continue
        # A step multiplies tile_m x tile_n with both head dims: so many multiply-adds a wave's MFMA. A wave
        # of ours has 32 rows, and waves that share keys have a step each.
        waves = kernel["block_size"] // (32 if kernel["pipeline"] == "wmma" else 64)
        waves = kernel["tile_m"] // 32 if kernel["pipeline"] == "pingpong" else waves
        products = kernel["tile_m"] * kernel["tile_n"] * (kernel["hdim_q"] + kernel["tile_nv"]) // waves
        per_mfma = products / kernel["main_loop"]["mfma"]
        assert per_mfma in {*(32 * 32 * k for k in (8, 16, 64)), 16 * 16 * 16, 16 * 16 * 4}, kernel["name"]
