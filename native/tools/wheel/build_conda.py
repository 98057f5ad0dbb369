# SPDX-License-Identifier: MIT OR Apache-2.0
"""Build the conda package of recipe.yaml, and run its test: ``build_conda.py FOLDER CHANNEL``.

FOLDER gets the package, in ``linux-64``. CHANNEL is a name, such as conda-forge, or an address. The
environment has FMHA_VERSION and FMHA_TOOLCHAIN_DIR, and a PATH with the clang that compiles kernels.
SKBUILD_CMAKE_DEFINE may have further options of the build, as ``FMHA_KERNEL_SET=ci;FMHA_GPU_TARGETS=gfx942``;
without them it has every kernel of the set ``default``. It needs py-rattler-build.
"""

from __future__ import annotations

import sys
from pathlib import Path

import rattler_build as rb
from rattler_build.progress import SimpleProgressCallback

RECIPE = Path(__file__).with_name("recipe.yaml")
# The oldest glibc that conda-forge compiles for.
VARIANTS = {"c_stdlib": ["sysroot"], "c_stdlib_version": ["2.28"]}


def main() -> int:
    """Return 2 for wrong arguments."""
    if len(sys.argv) != 3:
        print(f"build_conda.py: got {sys.argv[1:]}, expected a folder and a channel", file=sys.stderr)
        return 2
    folder, channel = sys.argv[1:]
    built = rb.Stage0Recipe.from_file(RECIPE).run_build(
        variant_config=rb.VariantConfig(VARIANTS),
        tool_config=rb.ToolConfiguration(test_strategy="native"),
        output_dir=folder,
        channels=[channel],
        progress_callback=SimpleProgressCallback(),
        no_build_id=True,  # paths are those of the last build: a compiler's cache finds what it compiled
        env_isolation=rb.EnvironmentIsolation.NONE,  # the compiler of the kernels is none of conda's
    )
    for package in (path for result in built for path in result.packages):
        print(f"build_conda.py: {package} ({Path(package).stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
