# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compiles programs in MLIR with IREE for the device's arch, and runs them by IREE's HIP driver."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

# The folder of the unpacked wheels.
FOLDER = Path(__file__).resolve().parents[3] / "build/clients/iree"
ARCH = os.environ.get("FMHA_EMU_ARCH", "gfx942")
# How the driver hands kernels to HIP.
MODES = {"streams": "--hip_use_streams=true", "graphs": "--hip_use_streams=false"}

sys.path.append(str(FOLDER))
compiler: Any = importlib.import_module("iree.compiler.api")
runtime: Any = importlib.import_module("iree.runtime")
for _program in ("iree-compile", "iree-lld"):  # unpacked by Python, which makes no file a program
    (FOLDER / "iree/compiler/_mlir_libs" / _program).chmod(0o755)


def compiled(source: str) -> bytes:
    """The bytecode of a program, with its kernels inside."""
    session = compiler.Session()
    session.set_flags(
        "--iree-hal-target-device=hip", f"--iree-rocm-target={ARCH}", "--iree-input-demote-f64-to-f32=false"
    )
    invocation = session.invocation()
    invocation.enable_console_diagnostics()
    assert invocation.parse_source(compiler.Source.wrap_buffer(session, source.encode() + b"\0"))
    assert invocation.execute()
    output = compiler.Output.open_membuffer()
    invocation.output_vm_bytecode(output)
    return bytes(output.map_memory())


def loaded(code: bytes, mode: str) -> Any:
    """An object with the program's functions, which take and return arrays, on a device of its own."""
    runtime.flags.parse_flags(MODES[mode])
    device = runtime.get_device("hip", cache=False)
    config = runtime.Config(device=device)
    return runtime.load_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, code), config)
