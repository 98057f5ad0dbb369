# SPDX-License-Identifier: MIT OR Apache-2.0
"""The machine: library, device and driver, and the card's clock and power under load."""

from __future__ import annotations

import hashlib
import json
import platform
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyfa_rocm import __version__
from pyfa_rocm._runtime import hip, library, paths
from pyfa_rocm.device import current_device, describe, runtime

__all__ = ["Sensors", "identity", "under_load"]

_SYS = Path("/sys")
# The driver's names of each sensor, of which the first that there is counts, and its unit in ours.
_SENSORS = {
    "clock_hz": (("freq1_input",), 1.0),
    "memory_clock_hz": (("freq2_input",), 1.0),
    "power_watts": (("power1_average", "power1_input"), 1e-6),
    "temperature_celsius": (("temp2_input", "temp1_input"), 1e-3),
}
_PAUSE_SECONDS = 0.02


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _driver(sys: Path = _SYS) -> str:
    """Return the version of the kernel's driver; that of Linux if the driver is part of it."""
    version = sys / "module" / "amdgpu" / "version"
    if version.is_file():
        return f"amdgpu {version.read_text().strip()}"
    return f"linux {platform.release()}"


def identity() -> dict[str, Any]:
    """Return what results belong to: library, device, driver."""
    in_use, device = runtime(), describe(current_device())
    return {
        "library_sha256": _sha256(paths.library_path()),
        "library_version": library.version(),
        "package_version": __version__,
        "kernel_set": json.loads(library.build_info_json())["kernel_set"],
        "device": device.name,
        "arch": device.arch,
        "compute_units": device.compute_units,
        "memory_bytes": device.memory_bytes,
        "emulated": in_use.emulated,
        "hip_runtime_version": int(hip.call("hipRuntimeGetVersion")),
        "driver": f"sha256 {_sha256(Path(in_use.path))}" if in_use.emulated else _driver(),
    }


class Sensors:
    """The sensors that the driver has for a device."""

    def __init__(self, folder: Path) -> None:
        self._files: dict[str, tuple[Path, float]] = {}
        for name, (files, unit) in _SENSORS.items():
            found = [path for file in files for path in sorted(folder.glob(f"hwmon/hwmon*/{file}"))]
            if found:
                self._files[name] = (found[0], unit)

    @classmethod
    def of_current_device(cls) -> Sensors:
        """Return those of the current device, by its place on the bus."""
        properties = hip.call("hipGetDeviceProperties", current_device())
        numbers = (int(getattr(properties, name)) for name in ("pciDomainID", "pciBusID", "pciDeviceID"))
        domain, bus, device = numbers
        return cls(_SYS / "bus" / "pci" / "devices" / f"{domain:04x}:{bus:02x}:{device:02x}.0")

    def read(self) -> dict[str, float]:
        """Return what can be read now."""
        values = {}
        for name, (path, unit) in self._files.items():
            try:
                values[name] = int(path.read_text()) * unit
            except (OSError, ValueError):  # a sensor that sleeps
                continue
        return values


def under_load(sensors: Sensors, work: Callable[[], None], seconds: float) -> dict[str, dict[str, float]]:
    """Run work again and again, and read the sensors meanwhile.

    The first third of the readings is left out: clocks and power settle.

    Returns
    -------
    dict
        For each sensor "low", "median", "high" and "readings".
    """
    readings: list[dict[str, float]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            readings.append(sensors.read())
            done.wait(_PAUSE_SECONDS)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            work()
    finally:
        done.set()
        reader.join()
    settled = readings[len(readings) // 3 :]
    found = {}
    for name in _SENSORS:
        values = [reading[name] for reading in settled if name in reading]
        if values:
            found[name] = {
                "low": min(values),
                "median": statistics.median(values),
                "high": max(values),
                "readings": len(values),
            }
    return found
