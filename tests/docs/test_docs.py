# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every code block of README.md, docs/ and the examples' pages runs, or says how else it is checked."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import installed
import numpy as np
import pytest
from archs import read_archs
from cases import judge
from catalogue import SETS, read_catalogue, select_rows
from pages.doc_blocks import (
    MARKS,
    ROOT,
    RUN_BY_LANGUAGE,
    Block,
    blocks,
    pages,
    parse,
    require_output,
    said_to_print,
    same_output,
)
from pages.doc_run import Page
from reference import attention

import pyfa_rocm
from pyfa_rocm import DeviceArray, runtime, synchronize
from pyfa_rocm._runtime import paths

RUN_HERE = ("output", "file", *RUN_BY_LANGUAGE)
# A link, without the part behind `#`; images and links to the web are left alone.
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")


@pytest.fixture(scope="session")
def _prefixes() -> list[Path]:
    return []


@pytest.fixture
def page_state(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, _prefixes: list[Path]) -> Page:
    def prefix() -> Path:
        if not _prefixes:
            _prefixes.append(installed.install(tmp_path_factory.mktemp("prefix")))
        return _prefixes[0]

    return Page(tmp_path, prefix)


def of_kind(*kinds: str) -> list[Block]:
    return [block for page in pages() for block in blocks(page) if block.kind in kinds]


def by_place(block: Block) -> str:
    return block.place


@pytest.mark.parametrize("page", pages())
def test_every_block_is_accounted_for(page: str) -> None:
    for block in blocks(page):
        assert block.kind, (
            f"{block.place}: a block of {block.language or 'no language'}, "
            f"marked {block.mark!r} {block.value!r}: "
            f"expected {', '.join(RUN_BY_LANGUAGE)} without a mark, or one of {', '.join(MARKS)}"
        )


def test_every_mark_is_used() -> None:
    assert {block.kind for page in pages() for block in blocks(page)} - {*RUN_BY_LANGUAGE} == {*MARKS}


@pytest.mark.parametrize("page", [page for page in pages() if any(b.kind in RUN_HERE for b in blocks(page))])
def test_page(page: str, page_state: Page) -> None:
    """All that runs in this group, in order. An output belongs to the block before it."""
    before = ""
    for block in blocks(page):
        if block.kind in RUN_HERE and not (block.kind == "output" and before not in RUN_HERE):
            page_state.run(block)
        before = before if block.kind == "output" else block.kind


@pytest.mark.parametrize("block", of_kind("part-of"), ids=by_place)
def test_part_of(block: Block) -> None:
    whole = (ROOT / block.value).read_text(encoding="utf-8")
    assert block.text in whole, f"{block.place} is not part of {block.value}, word for word"


@pytest.mark.parametrize("page", sorted({block.page for block in of_kind("run: sources")}))
def test_counts(page: str) -> None:
    """A page's numbers about the sources are those that its commands count."""
    for block, shown in pairwise(blocks(page)):
        if block.kind == "run: sources":
            assert shown.kind == "output", f"{block.place}: expected its output right after it"
            command = ["bash", "-euo", "pipefail", "-c", block.text]
            done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
            assert done.returncode == 0, f"{block.place}: status {done.returncode}: {done.stderr}"
            require_output(shown, shown.text, done.stdout)


@pytest.mark.parametrize("block", of_kind("drawing"), ids=by_place)
def test_drawing(block: Block) -> None:
    drawn = re.findall(r"[\w.]+/[\w./]*", block.text)
    assert len(drawn) > 5
    missing = [path for path in drawn if not any((ROOT / base / path).exists() for base in (block.value, ""))]
    assert missing == [], f"{block.place}: no such path"


def commands(block: Block) -> list[str]:
    """Lines of a shell block, without comments."""
    return [line for text in block.text.splitlines() if (line := re.sub(r"(^|\s+)#.*", "", text).strip())]


def targets(block: Block) -> list[str]:
    found = [re.fullmatch(r"make ([\w-]+)((?: [A-Z_]+=\S+)*)", line) for line in commands(block)]
    assert all(found), f"{block.place}: expected lines `make TARGET [NAME=VALUE ...]`"
    return [match[1] for match in found if match]


@pytest.mark.parametrize("block", of_kind("run: make"), ids=by_place)
def test_make_targets(block: Block) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")}
    for target in targets(block):
        done = subprocess.run(
            ["make", "-n", target], cwd=ROOT, env=environment, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{block.place}: make -n {target}: {done.stderr}"


@pytest.mark.parametrize("block", of_kind("run: attend"), ids=by_place)
def test_attend(block: Block, tmp_path: Path) -> None:
    """The C function, compiled as it stands, and called through ctypes on the process's own runtime."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "no C compiler"
    (tmp_path / "attend.c").write_text(block.text)
    library = paths.library_path()
    command = [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command += [f"-I{ROOT / 'native' / 'include'}", "attend.c", f"-L{library.parent}", "-lfmha_rocm"]
    subprocess.run([*command, f"-Wl,-rpath,{library.parent}", "-o", "attend.so"], cwd=tmp_path, check=True)
    runtime()
    attend = ctypes.CDLL(str(tmp_path / "attend.so")).attend
    attend.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64, ctypes.c_void_p]

    seqlen = 200
    rng = np.random.default_rng(5)
    q, k, v = (
        rng.standard_normal((1, seqlen, heads, 128), np.float32).astype(np.float16) for heads in (8, 2, 2)
    )
    arrays = [DeviceArray.from_numpy(x) for x in (q, k, v, np.zeros_like(q))]
    assert attend(*(x.data for x in arrays), seqlen, None) == 0
    synchronize()
    judge(attention(q, k, v, causal=True), arrays[3].to_numpy(), None)


@pytest.mark.parametrize("block", of_kind("run: examples"), ids=by_place)
def test_example_is_tested(block: Block) -> None:
    """The page of an example, and one that tests/docs/test_examples.py names."""
    folder, name = Path(block.page).parts[:2]
    assert folder == "examples"
    assert f'"{name}"' in (ROOT / "tests" / "docs" / "test_examples.py").read_text(encoding="utf-8"), (
        block.place
    )


def test_a_failure_before_the_last_command_is_noticed(page_state: Page) -> None:
    (block,) = parse("README.md", "```sh\nfalse && true\necho end\n```\n")
    with pytest.raises(AssertionError, match=r"README.md:1: status 1"):
        page_state.run(block)


def anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub gives a page's headings."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    heads = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", pages())
def test_links(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, anchor in _LINK.findall(text):
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), f"{page}: a link to {target}, which does not exist"
        assert not anchor or anchor in anchors(path), f"{page}: {target} has no heading #{anchor}"


@pytest.mark.parametrize("page", pages())
def test_paths_exist(page: str) -> None:
    """Files and folders that a page names by their path in the repository."""
    named = r"`((?:native|pyfa_rocm|tests|docs|benchmarks|examples)/[\w./-]+)`"
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [path for path in re.findall(named, text) if not (ROOT / path).exists()] == []


# Pages for those who change the project or update it
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md")


def linked(page: str) -> set[str]:
    """Return what a page links to, relative to the root."""
    links = _LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    paths = {((ROOT / page).parent / target).resolve() for target, _ in links if target}
    return {path.relative_to(ROOT.resolve()).as_posix() for path in paths}


def test_every_page_is_linked() -> None:
    """docs/index.md lists all pages; the README leads there, and each reader to a first page."""
    first = {page for page in pages() if page.startswith("docs/start/")}
    assert len(first) == 5
    assert first | {"docs/index.md"} <= linked("README.md")
    assert {*pages(), *PROJECT} - {"docs/index.md"} - linked("docs/index.md") == set()


@pytest.mark.parametrize("page", sorted({*pages(), *PROJECT} - {"README.md"}))
def test_every_page_says_whom_it_is_for(page: str) -> None:
    title, empty, first, *_ = (ROOT / page).read_text(encoding="utf-8").splitlines()
    assert title.startswith("# ")
    assert empty == ""
    assert re.match(r"This page is for \w+", first), f"{page}: expected whom it is for, got {first!r}"


@pytest.mark.parametrize("page", pages())
def test_a_page_is_plain_markdown(page: str) -> None:
    """GitHub would show a directive of the site's generator, or its front matter, as text."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert re.findall(r"^`{3,}\{.*|^:{3,}.*|^\([\w-]+\)=$|\{\w+\}`[^`]+`", text, re.M) == []
    assert not text.startswith("---")


def used_words(pattern: str, *folders: str) -> set[str]:
    """Return the words that a pattern finds in the sources below some folders."""
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    return {
        word
        for path in [*sources, ROOT / "CMakeLists.txt"]
        if path.suffix in (".py", ".cc", ".h", ".cmake", ".txt")
        for word in re.findall(pattern, path.read_text(encoding="utf-8"), re.M)
    }


@pytest.mark.parametrize(
    ("page", "pattern", "folders", "least"),
    [
        ("docs/python.md", r'"(PYFA_ROCM_[A-Z_]+)"', ("pyfa_rocm",), 3),
        ("docs/python.md", r'environment\("([A-Z_]+)"\)', ("native/host",), 2),
        ("docs/install.md", r"^ *option\((\w+)", ("native/cmake",), 4),
        ("docs/install.md", r"^set\((\w+) .* CACHE ", ("native/cmake",), 6),
    ],
)
def test_every_variable_is_documented(page: str, pattern: str, folders: tuple[str, ...], least: int) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    names = used_words(pattern, *folders)
    assert len(names) >= least
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    ("kernel_set", "archs"), [*((name, "") for name in SETS), *((name, "all") for name in SETS[1:])]
)
def test_sizes_of_kernel_sets(kernel_set: str, archs: str) -> None:
    """The page's numbers of kernels are the catalogue's, for archs with kernels of their own and for all."""
    known = read_archs().archs
    chosen = [arch.name for arch in known if archs or not arch.like]
    rows = select_rows(read_catalogue(ROOT / "native/kernels/catalogue"), kernel_set, chosen)
    what = f" for all {len(known)} archs, as" if archs else ":"
    line = rf"^\| `{kernel_set}`{what} [^|]* \| (\d+) \|"
    (said,) = re.findall(line, (ROOT / "docs/install.md").read_text(), re.M)
    assert int(said) == len(rows)


def test_every_public_name_is_documented() -> None:
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert [name for name in pyfa_rocm.__all__ if not re.search(rf"(?<!\w){name}(?!\w)", text)] == []


def test_the_framework_itself() -> None:
    text = "<!-- run: adapters -->\n```python\nprint(1)  # 2\n```\n```text\nx\n```\n\n```python\n1\n```\n"
    marked, shown, plain = parse("page", text)
    assert (marked.kind, shown.kind, plain.kind) == ("run: adapters", "", "python")
    assert (marked.line, shown.line, plain.line) == (2, 5, 9)
    assert said_to_print(marked.text) == "2\n"
    assert same_output("a ... d\n", "a b c  d")
    assert not same_output("2\n", "1\n")


def test_wrong_output_is_noticed(page_state: Page) -> None:
    wrong, right, shown = parse(
        "README.md",
        "```python\nprint(1)  # 2\n```\n```sh\necho three\n```\n<!-- output -->\n```text\n3\n```\n",
    )
    with pytest.raises(AssertionError, match=r"README.md:1 says it prints"):
        page_state.run(wrong)
    page_state.run(right)
    with pytest.raises(AssertionError, match=r"README.md:8 says it prints"):
        page_state.run(shown)
