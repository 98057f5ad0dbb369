# SPDX-License-Identifier: MIT OR Apache-2.0
"""Read native/archs.toml and write what C++ and CMake need of it.

``archs.py ARCHS --out DIR`` writes ``DIR/host/catalogue/archs.h`` for the library, ``DIR/emulator/archs.h``
for the software device and ``DIR/archs.cmake``, the list of targets. native/cmake/Archs.cmake runs it when
CMake configures; a file whose text stays is not touched. catalogue.py imports it to check rows, embed.py to
tell Python what it needs: fmha_build_info() has it, so that Python and the library it loads cannot differ,
whether they are in a wheel, in a checkout or installed apart.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from family import FP8, enumerator

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ARCHS_TOML = Path(__file__).resolve().parents[2] / "archs.toml"
CARD_FAMILIES = ("instinct", "radeon")
MATRIX_UNITS = ("mfma", "wmma", "none")
# Kernels whose pace an arch may state, in the order of FwdPaces.
FWD_PACES = (
    *("aiter", "pingpong64", "pingpong128", "short64", "short128", "shares64", "shares128"),
    *("fp8_64", "fp8_128"),
)
# Keys in the order of FwdStarts.
FWD_STARTS = ("few64", "few128", "many64", "many128")
# Constants, in the order in which the software device's profile lists them: name and meaning.
UNIT_CONSTANTS = {
    "lds_banks": "",
    "lds_bank_bytes": "",
    "lds_bytes_per_cu": "",
    "lds_granule_bytes": "a workgroup's LDS is a multiple of it",
    "cus_per_multiprocessor": "what HIP counts as one",
    "simds_per_cu": "",
    "vgprs_per_simd_lane": "VGPRs and AccVGPRs together",
    "vgpr_granule": "a wave's registers are a multiple of it",
    "most_waves_per_simd": "",
    "most_workgroups_per_cu": "of more than one wave each",
    "wall_clock_khz": "what s_memrealtime counts",
}
# The fields that the library knows, in its order.
HOST_CONSTANTS = (
    "cus_per_multiprocessor",
    "simds_per_cu",
    "vgprs_per_simd_lane",
    "vgpr_granule",
    "lds_bytes_per_cu",
)
CARD_CONSTANTS = {
    "compute_units": "",
    "clock_khz": "peak engine clock",
    "memory_bytes": "",
    "integrated": "1: it shares the processor's memory",
    "memory_clock_khz": "",
    "memory_bus_bits": "",
    "line_bytes": "of every cache",
    "xcds": "dies, each with an L2 of its own",
    "l2_bytes_per_xcd": "",
    "l2_ways": "",
    "mall_bytes": "the memory side's cache; 0: none",
    "mall_ways": "",
}
_SPDX = "SPDX-License-Identifier: MIT OR Apache-2.0"


@dataclass(frozen=True)
class Constant:
    """A number of the hardware, and its source."""

    value: int
    source: str


@dataclass(frozen=True)
class Card:
    """A product, by its constants."""

    name: str
    constants: dict[str, Constant]


@dataclass(frozen=True)
class Arch:
    """An arch as native/archs.toml describes it."""

    name: str
    family: str
    generation: str
    isa: str
    capability: tuple[int, int]
    gcn_arch: int
    features: tuple[str, ...]
    elf_machine: int
    wave_size: int
    dtypes: tuple[str, ...]
    matrix: str
    matrix_flushes: tuple[str, ...]
    least_clang: int = 19
    late_scalars: bool = False
    late_transcendentals: bool = False
    early_mad64: bool = False
    fwd_paces: dict[str, int] = field(default_factory=dict)
    fwd_starts: dict[str, int] = field(default_factory=dict)
    unit: dict[str, Constant] = field(default_factory=dict)
    cards: tuple[Card, ...] = ()
    like: str | None = None
    nearest: str | None = None


@dataclass(frozen=True)
class Archs:
    """All of native/archs.toml."""

    archs: tuple[Arch, ...]
    software_device: str

    def names(self) -> tuple[str, ...]:
        """Return the names of the archs, in the order of the enums."""
        return tuple(arch.name for arch in self.archs)


def _check_keys(table: dict[str, Any], expected: set[str], where: str) -> None:
    missing, unknown = expected - table.keys(), table.keys() - expected
    if missing:
        raise ValueError(f"{where}: missing {', '.join(sorted(missing))}")
    if unknown:
        raise ValueError(f"{where}: unknown key {', '.join(sorted(unknown))}")


def _constants(
    table: dict[str, Any], names: dict[str, str], sources: dict[str, str], where: str
) -> dict[str, Constant]:
    _check_keys(table, set(names), where)
    found = {}
    for name in names:
        content = table[name]
        if not isinstance(content, dict) or set(content) != {"value", "source"}:
            raise ValueError(f"{where}: {name} is {{value = NUMBER, source = TEXT}}, got {content!r}")
        try:
            source = content["source"].format_map(sources)
        except KeyError as error:
            raise ValueError(f"{where}: {name}: no source is named {error}") from None
        found[name] = Constant(int(content["value"]), source)
    return found


def _capability_of(name: str) -> tuple[int, int]:
    """The version in an arch's name without its stepping: gfx90a has 9.0, gfx1100 11.0."""
    match = re.fullmatch(r"gfx(\d+)(\d)[0-9a-f]", name)
    if not match:
        raise ValueError(f"{name}: an arch is gfx, its version and its stepping, as gfx90a is")
    return int(match[1]), int(match[2])


def _completed(table: dict[str, Any], content: dict[str, Any], where: str) -> dict[str, Any]:
    """A table with what that of the arch which it is like says in its place, but not that one's cards."""
    if "like" not in table:
        return {**table, "like": None, "nearest": None}
    other = content.get(table["like"], {})
    if not other or "like" in other:
        raise ValueError(f"{where}: like is {table['like']!r}, expected an arch that is like no other")
    nearest = content.get(table["nearest"], {}) if "nearest" in table else {"like": table["like"]}
    if nearest.get("like") != table["like"] or "nearest" in nearest:
        raise ValueError(f"{where}: nearest is {table['nearest']!r}, expected one like {table['like']} too")
    unit = {**other["unit"], **table.get("unit", {})}
    return {**other, "cards": [], "nearest": None, **table, "unit": unit}


def _read_arch(name: str, content: dict[str, Any], sources: dict[str, str], where: str) -> Arch:
    where = f"{where}: {name}"
    table: dict[str, Any] = {
        "fwd_paces": {},
        "fwd_starts": {},
        "least_clang": 19,
        "late_scalars": False,
        "late_transcendentals": False,
        "early_mad64": False,
    }
    table |= _completed(content[name], content, where)
    _check_keys(table, {*Arch.__dataclass_fields__} - {"name"}, where)
    paces = dict.fromkeys(FWD_PACES, 0) | table["fwd_paces"]
    _check_keys(paces, {*FWD_PACES}, f"{where}: fwd_paces")
    starts = dict.fromkeys(FWD_STARTS, 0) | table["fwd_starts"]
    _check_keys(starts, {*FWD_STARTS}, f"{where}: fwd_starts")
    if tuple(table["capability"]) != _capability_of(name):
        raise ValueError(
            f"{where}: capability is {table['capability']}, its name says {_capability_of(name)}"
        )
    if table["family"] not in CARD_FAMILIES:
        raise ValueError(f"{where}: family is {table['family']!r}, expected {' or '.join(CARD_FAMILIES)}")
    if table["matrix"] not in MATRIX_UNITS:
        raise ValueError(f"{where}: matrix is {table['matrix']!r}, expected one of {', '.join(MATRIX_UNITS)}")
    if strange := set(table["matrix_flushes"]) - set(table["dtypes"]):
        raise ValueError(f"{where}: matrix_flushes has {', '.join(sorted(strange))}, which dtypes lacks")
    if set(FP8) <= set(table["dtypes"]):
        raise ValueError(f"{where}: dtypes has {' and '.join(FP8)}, expected one of them at most")
    if not table["cards"]:
        raise ValueError(f"{where}: cards is empty, expected at least one")
    cards = tuple(
        Card(
            card["name"],
            _constants(
                {key: value for key, value in card.items() if key != "name"},
                CARD_CONSTANTS,
                sources,
                f"{where}: cards, {card['name']}",
            ),
        )
        for card in table["cards"]
    )
    lists = {key: tuple(table[key]) for key in ("capability", "features", "dtypes", "matrix_flushes")}
    unit = _constants(table["unit"], UNIT_CONSTANTS, sources, f"{where}: unit")
    own = {"name": name, "fwd_paces": paces, "fwd_starts": starts, "unit": unit, "cards": cards}
    return Arch(**{**table, **lists, **own})


def read_archs(path: Path = ARCHS_TOML) -> Archs:
    """All archs, in the order of the file.

    Raises
    ------
    ValueError
        If the file says something this program does not understand.
    """
    with open(path, "rb") as file:
        content = tomllib.load(file)
    sources, default = content.pop("sources"), content.pop("software_device")
    archs = tuple(_read_arch(name, content, sources, str(path)) for name in content)
    machines = [arch.elf_machine for arch in archs]
    for arch in archs:
        if machines.count(arch.elf_machine) > 1:
            raise ValueError(f"{path}: {arch.name}: another arch has the same elf_machine")
    if default not in content:
        raise ValueError(f"{path}: software_device is {default!r}, expected one of {', '.join(content)}")
    return Archs(archs, default)


def public(archs: Archs) -> dict[str, Any]:
    """Return what fmha_build_info() tells of each arch, for Python and other readers."""
    keys = ("wave_size", "dtypes", "matrix", "matrix_flushes")
    return {
        arch.name: {key: getattr(arch, key) for key in keys}
        | {"cus_per_multiprocessor": arch.unit["cus_per_multiprocessor"].value}
        for arch in archs.archs
    }


def _enum(name: str, values: tuple[str, ...], comment: str) -> str:
    listed = ", ".join(map(enumerator, values))
    return (
        f"// {comment}\n"
        f"enum class {name} : uint8_t {{ {listed} }};\n"
        f"inline constexpr int k{name}Count = {len(values)};\n"
    )


def _text(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _head(guard: str) -> list[str]:
    return [
        f"// {_SPDX}",
        "// Generated by native/tools/catalogue/archs.py from native/archs.toml.",
        "#pragma once",
        "",
        guard,
    ]


_ARCH_FUNCTIONS = """
constexpr const ArchInfo& arch_info(Arch arch) { return kArchs[static_cast<int>(arch)]; }
constexpr const char* arch_name(Arch arch) { return arch_info(arch).name; }
"""

_HOST_INFO = """
// What a key costs a wave of a forward kernel, in percent of Composable Kernel's tile of 128 rows by four
// waves. 0: what the size of its own tile lets expect (select/fwd.cc).
struct FwdPaces {
  int aiter, pingpong64, pingpong128, short64, short128, shares64, shares128, fp8_64, fp8_128;
};

// What a workgroup's beginning and end costs; many: if its waves take turns by barriers. 0: as elsewhere.
struct FwdStarts {
  int64_t few64, few128, many64, many128;
};

// What the library knows of an arch besides its kernels.
struct ArchInfo {
  Arch arch;
  const char* name;
  int capability_major;  // HIP's compute capability
  int capability_minor;
  int wave_size;     // lanes
  int cus_per_multiprocessor;  // compute units that HIP counts as one
  int simds_per_cu;            // SIMDs of a compute unit
  int vgprs_per_simd_lane;     // AccVGPRs included
  int vgpr_granule;            // a wave's registers are a multiple of it
  int lds_bytes_per_cu;
  const char* fp8;   // the name of its 8-bit float; "": it has none
  FwdPaces fwd_paces;
  FwdStarts fwd_starts;
};
"""


def host_header(archs: Archs) -> str:
    """The library's enum of archs and what it knows of each."""
    lines = [*_head("#include <cstdint>"), "", "namespace fmha {", ""]
    lines += [_enum("Arch", archs.names(), "Every arch that kernels can be built for."), _HOST_INFO.lstrip()]
    lines += ["// By Arch.", "inline constexpr ArchInfo kArchs[kArchCount] = {"]
    for arch in archs.archs:
        major, minor = arch.capability
        paces = ", ".join(str(arch.fwd_paces[name]) for name in FWD_PACES)
        units = ", ".join(str(arch.unit[name].value) for name in HOST_CONSTANTS)
        numbers = f"{major}, {minor}, {arch.wave_size}, {units}"
        fp8 = _text("".join(dtype for dtype in arch.dtypes if dtype in FP8))
        names = f"Arch::{enumerator(arch.name)}, {_text(arch.name)}"
        starts = ", ".join(str(arch.fwd_starts[name]) for name in FWD_STARTS)
        lines.append(f"    {{{names}, {numbers}, {fp8}, {{{paces}}}, {{{starts}}}}},")
    lines += ["};", _ARCH_FUNCTIONS, "}  // namespace fmha"]
    return "\n".join(lines) + "\n"


_EMULATOR_INFO = """
// What is true of an arch. Rules that the hardware's manual states go by `isa`, encodings by `generation`: a
// new arch that follows a known manual needs no rule of its own.
struct ArchInfo {
  Arch arch;
  const char* name;
  Generation generation;
  Isa isa;
  MatrixUnit matrix;
  const char* target;  // the name and the target's features: gcnArchName
  int capability_major;
  int capability_minor;
  int gcn_arch;
  uint32_t elf_machine;  // EF_AMDGPU_MACH of its code objects
  int wave_size;         // lanes
  bool late_transcendentals;  // VALU instructions do not wait for results of v_rcp and the like
  bool early_mad64;  // v_mad_u64_u32 and v_mad_i64_i32 read what they have written themselves
};
"""

_CARD = """
// A number of the hardware, and its source.
struct Constant {
  const char* name;
  uint64_t value;
  const char* source;
};

// A card, with what all cards of its arch share.
struct Card {
  Arch arch;
  const char* name;
"""


def _arch_entry(arch: Arch) -> str:
    fields = [
        f"Arch::{enumerator(arch.name)}",
        _text(arch.name),
        f"Generation::{enumerator(arch.generation)}",
        f"Isa::{enumerator(arch.isa)}",
        f"MatrixUnit::{enumerator(arch.matrix)}",
        _text(":".join((arch.name, *arch.features))),
        *map(str, arch.capability),
        str(arch.gcn_arch),
        f"{arch.elf_machine:#x}",
        str(arch.wave_size),
        str(arch.late_transcendentals).lower(),
        str(arch.early_mad64).lower(),
    ]
    return f"    {{{', '.join(fields)}}},"


def _card_entry(arch: Arch, card: Card) -> str:
    constants = {**card.constants, **arch.unit}
    lines = [f"    {{.arch = Arch::{enumerator(arch.name)},", f"     .name = {_text(card.name)},"]
    for name, constant in constants.items():
        lines.append(f"     .{name} = {{{_text(name)}, {constant.value}u, {_text(constant.source)}}},")
    lines[-1] = lines[-1].rstrip(",") + "},"
    return "\n".join(lines)


def _distinct(values: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def emulator_header(archs: Archs) -> str:
    """The software device's enums, what it knows of each arch, and its cards."""
    constants = {**CARD_CONSTANTS, **UNIT_CONSTANTS}
    lines = [*_head("#include <cstdint>"), "", "namespace fmha::emu {", ""]
    lines += [
        _enum("Arch", archs.names(), "Every arch the software device can play."),
        _enum("Generation", _distinct([a.generation for a in archs.archs]), "How instructions are encoded."),
        _enum("Isa", _distinct([a.isa for a in archs.archs]), "Whose manual says what the hardware does."),
        _enum("MatrixUnit", MATRIX_UNITS, "What its instructions are."),
        _EMULATOR_INFO,
        "// By Arch.",
        "inline constexpr ArchInfo kArchs[kArchCount] = {",
        *map(_arch_entry, archs.archs),
        "};",
        _ARCH_FUNCTIONS,
        "// What the software device plays unless FMHA_EMU_ARCH names another.",
        f"inline constexpr Arch kDefaultArch = Arch::{enumerator(archs.software_device)};",
        "",
        "// The largest wave of any arch.",
        f"inline constexpr int kMostLanes = {max(arch.wave_size for arch in archs.archs)};",
        _CARD.rstrip(),
    ]
    for name, comment in constants.items():
        lines.append(f"  Constant {name};" + (f"  // {comment}" if comment else ""))
    lines += [
        "};",
        "",
        "// Every constant of a card, to list them.",
        "inline constexpr Constant Card::* kConstants[] = {",
    ]
    lines += [f"    &Card::{name}," for name in constants]
    entries = [_card_entry(arch, card) for arch in archs.archs for card in arch.cards]
    first, firsts = 0, []
    for arch in archs.archs:
        firsts.append(str(first))
        first += len(arch.cards)
    lines += ["};", "", f"inline constexpr int kCardCount = {len(entries)};"]
    lines += ["inline constexpr Card kCards[kCardCount] = {", *entries, "};", ""]
    lines += [
        "// What is played for an arch unless FMHA_EMU_CARD names another card: its first.",
        "constexpr const Card& card_of(Arch arch) {",
        f"  constexpr int kFirst[kArchCount] = {{{', '.join(firsts)}}};",
        "  return kCards[kFirst[static_cast<int>(arch)]];",
        "}",
        "",
        "}  // namespace fmha::emu",
    ]
    return "\n".join(lines) + "\n"


def cmake_list(archs: Archs) -> str:
    """CMake's lists of targets: all, and those of each family."""
    lines = [f"# {_SPDX}", "# Generated from native/archs.toml."]
    lines.append(f"set(FMHA_ALL_GPU_TARGETS {' '.join(archs.names())})")
    families = {
        family: [arch.name for arch in archs.archs if arch.family == family] for family in CARD_FAMILIES
    }
    families["distinct"] = [arch.name for arch in archs.archs if not arch.like]
    lines.append(f"set(FMHA_GPU_FAMILIES {' '.join(families)})")
    lines += [f"set(FMHA_GPU_TARGETS_{' '.join([family, *names])})" for family, names in families.items()]
    for arch in archs.archs:
        resembling = [other for other in (arch.nearest, arch.like) if other]
        lines.append(f"set({' '.join([f'FMHA_LIKE_{arch.name}', *resembling])})")
        lines.append(f"set(FMHA_WAVE_SIZE_{arch.name} {arch.wave_size})")
        lines.append(f"set(FMHA_LEAST_CLANG_{arch.name} {arch.least_clang})")
        lines.append(f"set(FMHA_LATE_SCALARS_{arch.name} {'ON' if arch.late_scalars else 'OFF'})")
    return "\n".join(lines) + "\n"


def write_if_changed(path: Path, text: str) -> None:
    """Write a file unless it has this text: what is built from it stays up to date."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main() -> int:
    """Write the three files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("archs", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    try:
        archs = read_archs(args.archs)
    except (ValueError, KeyError, OSError) as error:
        print(f"archs.py: {error}", file=sys.stderr)
        return 1
    write_if_changed(args.out / "host" / "catalogue" / "archs.h", host_header(archs))
    write_if_changed(args.out / "emulator" / "archs.h", emulator_header(archs))
    write_if_changed(args.out / "archs.cmake", cmake_list(archs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
