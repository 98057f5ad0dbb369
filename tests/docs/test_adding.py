# SPDX-License-Identifier: MIT OR Apache-2.0
"""docs/adding-a-kernel.md, followed to the letter in a copy of the tree.

All changes come before the first build, so that the software device is compiled once: the page's throw-away
kernel, arch and option are in it together. The instruction of the page is a real one (``again``): it is taken
out first, and comes back in its place. To save time the copy has no tests in C, and the build tools of this
checkout. All else is as for a reader.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import installed
import pytest
from pages import doc_edit
from pages.doc_blocks import ROOT, Block, blocks, parse, require_output

PAGE = "docs/adding-a-kernel.md"
# A device compiler that knows the page's arch: it compiles for another, and names the page's in the result.
_COMPILER = """#!{python}
import subprocess, sys
words = ["--offload-arch=gfx942" if word == "--offload-arch=gfx990" else word for word in sys.argv[1:]]
status = subprocess.run([{compiler!r}, *words]).returncode
if status == 0 and words != sys.argv[1:]:
    with open(words[words.index("-o") + 1], "r+b") as file:
        file.seek(0x30)  # e_flags, whose low byte is the machine
        file.write(b"\\xff")
sys.exit(status)
"""
# It reads a copy that names the other again.
_OBJDUMP = """#!{python}
import subprocess, sys, tempfile
with open(sys.argv[-1], "rb") as file:
    content = bytearray(file.read())
with tempfile.NamedTemporaryFile() as copy:
    if content[0x30] == 0xff:
        content[0x30] = 0x4c
    copy.write(content)
    copy.flush()
    sys.exit(subprocess.run([{objdump!r}, *sys.argv[1:-1], copy.name]).returncode)
"""


def _left_out(folder: str, names: list[str]) -> set[str]:
    built = {"build", ".git"} if Path(folder) == ROOT else set()
    return {name for name in names if name in built | {"target", "__pycache__"} or name.endswith("_cache")}


class Tree:
    """A copy of the repository, in which `make build` and the tests work."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        self.programs = folder / "bin"
        shutil.copytree(ROOT, self.root, ignore=_left_out)
        (self.root / "build").mkdir()
        for name in ("toolchain", "venv"):
            (self.root / "build" / name).symlink_to((ROOT / "build" / name).resolve())
        # It has nothing to prepare: its results are linked above. The environment belongs to this checkout.
        (self.root / "native" / "tools" / "toolchain.sh").write_text("#!/bin/sh\n")
        self.programs.mkdir()
        self._program("python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')

    def _program(self, name: str, text: str) -> Path:
        path = self.programs / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def environment(self) -> dict[str, str]:
        """A reader's environment: nothing of this process's build, or of its choice of device."""
        own = ("MAKEFLAGS", "MFLAGS", "PYTHONPATH", "LD_LIBRARY_PATH")
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in own and not name.startswith(("FMHA_", "PYFA_", "PYTEST_"))
        }
        more = {"PATH": f"{self.programs}:{kept['PATH']}", "PYFA_ROCM_DEVICE": "emulator"}
        return kept | more | {"CCACHE_BASEDIR": str(self.root)}

    def run(self, *command: str | Path) -> str:
        """Output of a command that has to succeed."""
        done = subprocess.run(
            command, cwd=self.root, env=self.environment(), check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, (
            f"{command}: {done.returncode}\n{done.stdout[-5000:]}{done.stderr[-5000:]}"
        )
        return done.stdout

    def configure(self) -> None:
        """Choose what to leave out of the builds, and the compiler; `make build` keeps that."""
        compiler, objdump = (installed.cache(f"FMHA_{name}") for name in ("DEVICE_COMPILER", "OBJDUMP"))
        compile_program = self._program("clang++", _COMPILER.format(python=sys.executable, compiler=compiler))
        objdump_program = self._program(
            "llvm-objdump", _OBJDUMP.format(python=sys.executable, objdump=objdump)
        )
        self.run(
            "cmake", "--preset", "release", f"-DFMHA_DEVICE_COMPILER={compile_program}",
            f"-DFMHA_OBJDUMP={objdump_program}", "-DFMHA_JAX=OFF",
            "-DBUILD_TESTING=OFF", "-DFMHA_KERNEL_SET=ci", "-DFMHA_GPU_TARGETS=gfx942",
            "-DFMHA_KERNEL_FILTER=bf16_d64_mask_pad_one",
        )  # fmt: skip

    def has_instruction(self, name: str) -> bool:
        """Return whether the software device has a row of this name."""
        rows = self.run(self.root / "build" / "release" / "emulator" / "emu_disasm", "rows")
        return any(line.startswith(f"{name}\t") for line in rows.splitlines())

    def shell(self, block: Block) -> str:
        """Output of a block of commands; those that record the ABI need a program that few machines have."""
        text = block.text
        if not shutil.which("abidw") and "CI" not in os.environ:
            text = "".join(f"{line}\n" for line in text.splitlines() if "abi.py" not in line)
        return self.run("bash", "-euo", "pipefail", "-c", text)


def follow(tree: Tree, page: list[Block]) -> None:
    """Make a page's changes and run its commands."""
    again = [block for block in page if block.kind == "again"]
    for block in again:
        doc_edit.apply(block, tree.root, undo=True)
    for block in page:
        if block.kind == "edit":
            doc_edit.apply(block, tree.root)
    tree.configure()
    printed = ""
    for block in page:
        if block.kind == "file":
            (tree.root / block.value).write_text(block.text)
        elif block.kind == "run: tree":
            printed = tree.shell(block)
        elif block.kind == "output":
            require_output(block, block.text, printed)
        elif block is again[0]:
            assert not tree.has_instruction("v_xnor_b32")
        if block.kind == "again":
            doc_edit.apply(block, tree.root)
    assert tree.has_instruction("v_xnor_b32")


def test_the_page_is_followed(tmp_path: Path) -> None:
    if not all((ROOT / "build" / name).exists() for name in ("toolchain", "venv")):
        pytest.skip("`make build` was not run here: there are no tools to build a copy with")
    follow(Tree(tmp_path), blocks(PAGE))


def edit(text: str) -> Block:
    (block,) = parse("page", f"<!-- edit: file -->\n```diff\n{text}```\n")
    return block


def test_changes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one\n\ntwo\nthree\n")
    change = edit(" one\n \n+more\n...\n-two\n+2\n")
    doc_edit.apply(change, tmp_path)
    assert path.read_text() == "one\n\nmore\n2\nthree\n"
    doc_edit.apply(change, tmp_path, undo=True)
    assert path.read_text() == "one\n\ntwo\nthree\n"


@pytest.mark.parametrize("text", [" four\n+4\n", " on\n", "+new\n", "?\n", " one\n...\n-five\n"])
def test_a_change_that_does_not_fit_is_noticed(text: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("one\ntwo\n")
    with pytest.raises(AssertionError, match="page:2"):
        doc_edit.apply(edit(text), tmp_path)
