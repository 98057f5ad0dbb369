# SPDX-License-Identifier: MIT OR Apache-2.0
"""Make a conda channel of stand-ins, by py-rattler-build: ``channel.py FOLDER PYTHON``.

Each package has the name of one that the recipe asks for, and hands out what this machine has: its compiler,
its CMake, and from ``PYTHON``'s environment the Python packages. So a machine that does not reach conda-forge
builds the recipe all the same. The compilers set what conda-forge's set when they are activated.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HOST = "x86_64-conda-linux-gnu"
# conda-forge's compilers export this in a build: among it, where CMake may look for headers and libraries.
ACTIVATE = {
    "gcc_linux-64": f"""
export CC=$BUILD_PREFIX/bin/{HOST}-cc
export CFLAGS="-march=nocona -mtune=haswell -ftree-vectorize -fPIC -fstack-protector-strong -fno-plt -O2 \
-ffunction-sections -pipe -isystem $PREFIX/include -fdebug-prefix-map=$SRC_DIR=/usr/local/src/conda"
export CPPFLAGS="-DNDEBUG -D_FORTIFY_SOURCE=2 -O2 -isystem $PREFIX/include"
export LDFLAGS="-Wl,-O2 -Wl,--sort-common -Wl,--as-needed -Wl,-z,relro -Wl,-z,now -Wl,--disable-new-dtags \
-Wl,--gc-sections -Wl,--allow-shlib-undefined -Wl,-rpath,$PREFIX/lib \
-Wl,-rpath-link,$PREFIX/lib -L$PREFIX/lib"
export CMAKE_PREFIX_PATH="$PREFIX:$BUILD_PREFIX/{HOST}/sysroot/usr"
export CMAKE_ARGS="-DCMAKE_BUILD_TYPE=Release -DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=NEVER \
-DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY \
-DCMAKE_FIND_ROOT_PATH=$PREFIX;$BUILD_PREFIX/{HOST}/sysroot -DCMAKE_INSTALL_PREFIX=$PREFIX \
-DCMAKE_INSTALL_LIBDIR=lib"
""",
    "gxx_linux-64": f"""
export CXX=$BUILD_PREFIX/bin/{HOST}-c++
export CXXFLAGS="-fvisibility-inlines-hidden -fmessage-length=0 $CFLAGS"
""",
}
# Programs of each package: the name there, and the one here.
PROGRAMS = {
    "gcc_linux-64": {f"{HOST}-cc": "gcc"},
    "gxx_linux-64": {f"{HOST}-c++": "g++"},
    "cmake": {"cmake": "cmake"},
    "ninja": {"ninja": "ninja"},
    "zstd": {"zstd": "zstd"},
}
# Python packages, and what they import that conda-forge has in packages of their own.
DISTRIBUTIONS = {
    "pip": ("pip",),
    "scikit-build-core": (
        *("scikit-build-core", "packaging", "pathspec", "exceptiongroup", "tomli", "typing-extensions"),
    ),
    "cffi": ("cffi", "pycparser"),
    "ml_dtypes": ("ml-dtypes",),
    "numpy": ("numpy",),
    "tqdm": ("tqdm",),
}  # fmt: skip
VERSION = "99.0"
# Its headers and libraries are this machine's; what is built against it asks for this glibc.
SYSROOT, GLIBC = "sysroot_linux-64", "2.28"
# An interpreter tells its version and program, and the files of its packages at their tops.
TELL = """
import importlib.metadata, json, sys, sysconfig
name = lambda found: found.metadata["Name"].lower().replace("_", "-")
tops = lambda found: sorted({file.parts[0] for file in found.files or ()})
print(json.dumps({
    "version": ".".join(map(str, sys.version_info[:3])), "base": sys._base_executable,
    "site": sysconfig.get_path("purelib"),
    "tops": {name(found): tops(found) for found in importlib.metadata.distributions()},
}))
"""


def write_scripts(folder: Path, programs: dict[str, str]) -> None:
    """Write programs that run those of this machine. A compiler looks for files beside itself: it stays."""
    for name, here in programs.items():
        path = folder / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {shutil.which(here)} "$@"\n')
        path.chmod(0o755)


def link(at: Path, to: Path) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(to)


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def packages(into: Path, python: dict[str, Any]) -> dict[str, tuple[str, list[str]]]:
    """Write the files of each package, and return its version and what it needs."""
    short = ".".join(python["version"].split(".")[:2])
    site = Path("lib") / f"python{short}" / "site-packages"
    needs: dict[str, tuple[str, list[str]]] = {}
    for name, programs in PROGRAMS.items():
        write_scripts(into / name, programs)
        needs[name] = (VERSION, [])
        if name in ACTIVATE:
            script = into / name / "etc" / "conda" / "activate.d" / f"activate-{name}.sh"
            script.parent.mkdir(parents=True)
            script.write_text(ACTIVATE[name])
    needs["gxx_linux-64"] = (VERSION, ["gcc_linux-64"])
    (into / SYSROOT).mkdir()
    needs[SYSROOT] = (GLIBC, [])
    # An environment of venv: this machine's interpreter, with the packages of its own prefix only.
    folder = into / "python"
    for program in ("python", "python3", f"python{short}"):
        link(folder / "bin" / program, Path(python["base"]))
    (folder / "pyvenv.cfg").write_text(f"home = {Path(python['base']).parent}\n")
    (folder / site).mkdir(parents=True)
    (folder / site / "README").write_text("Packages come here.\n")
    needs["python"] = (python["version"], [])
    for name, distributions in DISTRIBUTIONS.items():
        for top in [top for each in distributions for top in python["tops"].get(each, ())]:
            if top not in ("..", "__pycache__"):
                link(into / name / site / top, Path(python["site"]) / top)
        needs[name] = (VERSION, ["python"])
    library = Path(output("gcc", "-print-file-name=libzstd.a").strip())
    link(into / "zstd-static" / "lib" / "libzstd.a", library.resolve())
    for header in ("zstd.h", "zstd_errors.h", "zdict.h"):
        link(into / "zstd" / "include" / header, Path("/usr/include") / header)
    needs["zstd-static"] = (VERSION, ["zstd"])
    return needs


def main() -> int:
    import rattler_build as rb

    channel, python = Path(sys.argv[1]).resolve(), json.loads(output(sys.argv[2], "-c", TELL))
    files = channel / "files"
    for name, (version, needs) in packages(files, python).items():
        recipe = {
            "package": {"name": name, "version": version},
            "build": {
                "number": 0,
                "script": f"cp -a '{files / name}/.' $PREFIX/",
                "dynamic_linking": {"binary_relocation": False},
                "prefix_detection": {"ignore": True},
            },
            "requirements": {
                "run": needs,
                **({"run_exports": {"strong": [f"__glibc >={GLIBC},<3.0.a0"]}} if name == SYSROOT else {}),
            },
        }
        rb.Stage0Recipe.from_dict(recipe).run_build(output_dir=channel, channels=[channel.as_uri()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
