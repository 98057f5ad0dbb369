# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random C++ programs to which any compiler gives one meaning: a kernel and the host must agree on each bit.

A program is a kernel of `PHASES` phases with barriers between them. A phase is a function of a thread's state
(variables of every type, a private array), of the workgroup's array in LDS and of arguments, which are the
same for all threads. Nothing in it is undefined: integers wrap, shifts are by less than the width, nothing is
divided by 0, a float is made an integer only where that holds it, and of a NaN only its being one counts.
"""

from __future__ import annotations

import itertools
import random

THREADS = 64  # of a workgroup
GROUPS = 2
UNIFORM = 4  # arguments
WORDS = 24  # of a thread's result
PHASES = 3

_INTEGERS = ("u32", "i32", "u64", "i64", "u16", "i16", "u8", "i8")
_FLOATS = ("f32", "f64", "f16")
_TYPES = _INTEGERS + _FLOATS
_BITS = {t: int(t[1:]) for t in _TYPES}
_VARIABLES = {
    "u32": 3,
    "i32": 2,
    "u64": 2,
    "i64": 2,
    "u16": 1,
    "i16": 1,
    "u8": 1,
    "i8": 1,
    "f32": 3,
    "f64": 2,
    "f16": 2,
}
_PRIVATE = 8  # words of a thread's array

PRELUDE = """
#ifdef __HIP__
#define DEVICE __attribute__((device))
#define KERNEL __attribute__((global, amdgpu_flat_work_group_size(1, 64)))
#define FENCE __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup")
#define SYNC (FENCE, __builtin_amdgcn_s_barrier(), FENCE)
#else
#define DEVICE
#endif
typedef unsigned u32; typedef int i32; typedef unsigned long u64; typedef long i64;
typedef unsigned short u16; typedef short i16; typedef unsigned char u8; typedef signed char i8;
typedef float f32; typedef double f64; typedef _Float16 f16;
DEVICE inline u32 bits(f32 x) { u32 r; __builtin_memcpy(&r, &x, 4); return x != x ? 0x7fc00000u : r; }
DEVICE inline u64 bits(f64 x) { u64 r; __builtin_memcpy(&r, &x, 8); return x != x ? 0x7ff8ul << 48 : r; }
DEVICE inline u16 bits(f16 x) { u16 r; __builtin_memcpy(&r, &x, 2); return x != x ? (u16)0x7e00 : r; }
DEVICE inline u32 bits(u32 x) { return x; }
DEVICE inline u32 bits(i32 x) { return (u32)x; }
DEVICE inline u64 bits(u64 x) { return x; }
DEVICE inline u64 bits(i64 x) { return (u64)x; }
DEVICE inline u32 bits(u16 x) { return x; }
DEVICE inline u32 bits(i16 x) { return (u32)x; }
DEVICE inline u32 bits(u8 x) { return x; }
DEVICE inline u32 bits(i8 x) { return (u32)x; }
DEVICE inline i32 whole(f64 x) { return x > -2147483648.0 && x < 2147483647.0 ? (i32)x : 7; }
DEVICE inline i32 whole(f32 x) { return x > -2147483648.0f && x < 2147483520.0f ? (i32)x : 7; }
DEVICE inline i32 whole(f16 x) { return x > (f16)-60000.0f && x < (f16)60000.0f ? (i32)x : 7; }
DEVICE inline u32 reversed(u32 x) {
  u32 r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1u) << (31 - i);
  return r;
}
"""


class _Writer:
    """Writes one phase. Names in scope are variables of the state `s` and of the arguments `a`."""

    def __init__(self, rng: random.Random, functions: list[str]) -> None:
        self.rng, self.functions = rng, functions
        self.loops = 0

    def variable(self, kind: str) -> str:
        return f"s.{kind}_{self.rng.randrange(_VARIABLES[kind])}"

    def constant(self, kind: str) -> str:
        r = self.rng
        if kind in _FLOATS:
            value = r.choice((0.5, 1.0, -2.0, 4.0, 0.1, -3.75, 100.0, 1e-3, 0.15915494))
            return f"({kind})({value}f)" if kind != "f64" else f"({value!r})"
        number = r.choice((0, 1, 2, 7, 64, r.randrange(256), r.randrange(1 << 16), r.randrange(1 << 32)))
        return f"({kind}){number}ul"

    def uniform(self, kind: str) -> str:
        number = self.rng.randrange(UNIFORM)
        if kind in _FLOATS:
            return f"({kind})((f32)(i32)(a.v[{number}] & 0xffff) * 0.125f)"
        return f"({kind})a.v[{number}]"

    def value(self, kind: str, depth: int) -> str:
        """An expression of a type."""
        r = self.rng
        if depth <= 0 or r.random() < 0.15:
            pick = r.random()
            if pick < 0.6:
                return self.variable(kind)
            return self.uniform(kind) if pick < 0.75 else self.constant(kind)
        if r.random() < 0.1:
            chosen = [self.value(kind, depth - 1) for _ in range(2)]
            return f"({self.condition(depth - 1)} ? {chosen[0]} : {chosen[1]})"
        return self.float_value(kind, depth) if kind in _FLOATS else self.integer_value(kind, depth)

    def float_value(self, kind: str, depth: int) -> str:
        x, y, z = (self.value(kind, depth - 1) for _ in range(3))
        wide = {"f16": "f32", "f32": "f32", "f64": "f64"}[
            kind
        ]  # what halves are computed in, and rounded from
        choices = [f"({kind})(({wide}){x} {op} ({wide}){y})" for op in "+-*+-*/"]
        choices += [f"({kind})-{x}", f"({x} < {y} ? {x} : {y})"]
        suffix = "" if kind == "f64" else "f"
        choices += [f"({kind})__builtin_{f}{suffix}({x})" for f in ("floor", "ceil", "trunc", "rint", "fabs")]
        if kind != "f16":
            choices += [
                f"__builtin_fma{suffix}({x}, {y}, {z})",
                f"__builtin_sqrt{suffix}(__builtin_fabs{suffix}({x}))",
            ]
            choices += [f"__builtin_copysign{suffix}({x}, {y})"]
        for other in _TYPES:
            if other != kind and _FLOATS.count(other) + (other in ("i32", "u32", "i64", "u64", "u8", "i16")):
                choices.append(f"({kind}){self.value(other, depth - 2)}")
        if kind == "f16":  # from doubles it would be rounded twice by some
            choices = [c for c in choices if "(f16)s.f64" not in c]
        return self.rng.choice(choices)

    def integer_value(self, kind: str, depth: int) -> str:
        r, width = self.rng, _BITS[kind]
        x, y, z = (self.value(kind, depth - 1) for _ in range(3))
        arithmetic = [f"({kind})({x} {op} {y})" for op in "+-*&|^"]
        shift = f"(int)((u32){self.value('u32', depth - 2)} & {width - 1}u)"
        shifts = [
            f"({kind})({x} << {shift})",
            f"({kind})({x} >> {shift})",
            f"({kind})({x} >> {r.randrange(width)})",
        ]
        # LLVM 19 narrows unsigned division by the sign bits of its operands, wrongly if one is sign-extended.
        dividend = f"({kind})({x} >> 1)" if kind[0] == "u" else x
        divided = [f"({kind})({dividend} {op} ({kind})(({y} & 0x7f) | 1))" for op in "/%"]
        extreme = [f"({x} {op} {y} ? {x} : {y})" for op in "<>"]
        more = [
            f"({kind})({x} * {y} + {z})",
            f"({kind})(({x} << 3) + {y})",
            f"({kind})(({x} & {y}) | {z})",
            f"({kind})~{x}",
        ]
        more += [
            f"({kind}){self.value(r.choice(_INTEGERS), depth - 1)}",
            f"({kind})whole({self.value(r.choice(_FLOATS), depth - 1)})",
        ]
        more += [
            f"({kind})bits({self.value(r.choice(_FLOATS), depth - 1)})",
            f"({kind})p[{self.index(depth)}]",
        ]
        w = self.value("u32", depth - 1)
        more += [
            f"({kind})__builtin_popcount({w})",
            f"({kind})__builtin_clz({w} | 1u)",
            f"({kind})__builtin_ctz({w} | 256u)",
        ]
        more += [
            f"({kind})__builtin_bswap32({w})",
            f"({kind})reversed({w})",
            f"({kind})(((u64){w} * (u64){x}) >> 32)",
        ]
        more += [f"({kind})(({w} << {r.randrange(1, 32)}) | ({w} >> {r.randrange(1, 32)}))"]
        more += [
            f"({kind})((i32)(i8){w} * (i32)(i8)({w} >> 8) + (i32)(u8)({w} >> 16))",
            f"({kind})__builtin_popcountl((u64){x})",
        ]
        if width == 64:
            more += [
                f"({kind})((i64)(i32){w} * (i64){self.value('i32', depth - 1)})",
                f"({kind})__builtin_clzl((u64){x} | 1)",
            ]
        if self.functions:
            name = r.choice(self.functions)
            more += [f"({kind}){name}({w}, {self.value('f32', depth - 2)}, {self.value('i64', depth - 2)})"]
        return r.choice(r.choice((arithmetic, shifts, divided, extreme, more, more)))

    def index(self, depth: int) -> str:
        return f"({self.value('u32', min(depth - 2, 1))} & {_PRIVATE - 1}u)"

    def condition(self, depth: int) -> str:
        kind = self.rng.choice(_TYPES)
        x, y = (self.value(kind, depth - 1) for _ in range(2))
        text = f"{x} {self.rng.choice(('<', '>', '==', '!=', '<=', '>='))} {y}"
        if self.rng.random() < 0.2:
            other = self.condition(depth - 1) if depth > 0 else "a.v[0] & 1"
            text = f"({text}) {self.rng.choice(('&&', '||'))} ({other})"
        return text

    def statements(self, count: int, depth: int) -> list[str]:
        return [line for _ in range(count) for line in self.statement(depth)]

    def statement(self, depth: int) -> list[str]:
        r = self.rng
        kind = r.choice(_TYPES)
        simple = [f"{self.variable(kind)} = {self.value(kind, 3)};"]
        pick = r.random()
        if depth <= 0 or pick < 0.55:
            return simple
        if pick < 0.67:
            return [f"p[{self.index(3)}] = {self.value('u32', 3)};"]
        inner = self.statements(r.randrange(1, 4), depth - 1)
        if pick < 0.8:
            other = self.statements(1, depth - 1) if r.random() < 0.5 else []
            tail = ["} else {", *other] if other else []
            return [f"if ({self.condition(2)}) {{", *inner, *tail, "}"]
        if pick < 0.93:
            self.loops += 1
            i = f"i{self.loops}"
            often = r.choice(
                (
                    f"{r.randrange(1, 5)}",
                    f"(i32)(a.v[{r.randrange(UNIFORM)}] & 3u)",
                    f"(i32)({self.value('u32', 1)} & 7u)",
                )
            )
            leave = (
                [f"if ({self.condition(1)}) {r.choice(('break', 'continue'))};"] if r.random() < 0.4 else []
            )
            return [
                f"for (i32 {i} = 0, end = {often}; {i} < end; ++{i}) {{",
                f"s.u32_0 += (u32){i};",
                *leave,
                *inner,
                "}",
            ]
        cases = [[f"case {n}u:", *self.statement(0), "break;"] for n in range(3)]
        return [
            f"switch ({self.value('u32', 2)} & 3u) {{",
            *itertools.chain(*cases),
            "default:",
            *simple,
            "}",
        ]


def _function(rng: random.Random, name: str) -> str:
    """Never inlined: a call, by the calling convention."""
    constants = [rng.randrange(1, 1 << 16) for _ in range(3)]
    op = rng.choice("+-^*")
    return (
        f"__attribute__((noinline)) DEVICE u64 {name}(u32 x, f32 y, i64 z) {{\n"
        f"  u32 t[4] = {{x, x * {constants[0]}u, bits(y), (u32)z}};\n"
        f"  t[x & 3u] {op}= {constants[1]}u;\n"
        f"  if (y > 1.5f) t[(x >> 2) & 3u] ^= {constants[2]}u;\n"
        "  return ((u64)t[z & 3] << 32 | t[(x >> 4) & 3u]) + (u64)z;\n}\n"
    )


def write(seed: int) -> str:
    """The program of a seed: a kernel for a device, or if it is no HIP, a function for the host."""
    rng = random.Random(seed)
    functions = [f"f{n}" for n in range(rng.randrange(3))]
    fields = [f"{kind} {kind}_{n};" for kind, count in _VARIABLES.items() for n in range(count)]
    parts = [PRELUDE, "struct State { " + " ".join(fields) + f" u32 array[{_PRIVATE}]; }};"]
    parts.append(f"struct Args {{ u32 v[{UNIFORM}]; }};")
    parts += [_function(rng, name) for name in functions]
    for phase in range(PHASES):
        body = _Writer(rng, functions).statements(rng.randrange(4, 9), 2)
        exchange = rng.choice(
            (
                f"w[(t * {rng.choice((1, 3, 5, 31))}u + {phase}u) & {THREADS - 1}u]",
                f"w[t ^ {rng.randrange(1, 32)}u]",
            )
        )
        read = f"s.u32_1 ^= {exchange};" if phase else ""
        lines = [f"u32* p = s.array; {read}", *body]
        parts.append(
            f"DEVICE void phase{phase}(State& s, const u32* w, const Args& a, u32 t) {{\n"
            + "\n".join(lines)
            + "\n}"
        )
    parts += [_start(), _finish(), _main()]
    return "\n".join(parts)


def _start() -> str:
    """A thread's state at first: two words of its own, spread over the variables."""
    lines = ["u64 x = ((u64)in[2 * t + 1] << 32 | in[2 * t]) | 1;"]
    for kind, count in _VARIABLES.items():
        for n in range(count):
            lines.append("x = x * 6364136223846793005ul + 1442695040888963407ul;")
            value = (
                f"({kind})(x >> {64 - _BITS[kind]})"
                if kind in _INTEGERS
                else f"({kind})((f32)(i32)(x >> 44) * 0.0009765625f - 300.0f)"
            )
            lines.append(f"s.{kind}_{n} = {value};")
    lines.append(f"for (int i = 0; i < {_PRIVATE}; ++i) s.array[i] = (u32)(x >> i);")
    return "DEVICE void start(State& s, const u32* in, u32 t) {\n" + "\n".join(lines) + "\n}"


def _finish() -> str:
    """The state as words: each variable's bits, and a sum over the array."""
    names = [f"{kind}_{n}" for kind, count in _VARIABLES.items() for n in range(count)]
    assert len(names) + 1 <= WORDS
    lines = [
        f"{{ u64 x = bits(s.{name}); out[{n}] = (u32)x ^ (u32)(x >> 32) * 31u; }}"
        for n, name in enumerate(names)
    ]
    lines.append(
        f"u32 sum = 0; for (int i = 0; i < {_PRIVATE}; ++i) sum = sum * 33u + s.array[i]; "
        f"out[{len(names)}] = sum;"
    )
    return "DEVICE void finish(const State& s, u32* out) {\n" + "\n".join(lines) + "\n}"


def _main() -> str:
    phases = range(PHASES)
    device = "\n".join(
        f"  phase{n}(s, shared, a, t); SYNC; shared[t] = s.u32_2 + s.array[{n}]; SYNC;" for n in phases
    )
    host = "\n".join(
        f"    for (u32 t = 0; t < {THREADS}; ++t) phase{n}(s[t], w, a, t);\n"
        f"    for (u32 t = 0; t < {THREADS}; ++t) w[t] = s[t].u32_2 + s[t].array[{n}];"
        for n in phases
    )
    return f"""
#ifdef __HIP__
extern "C" KERNEL void program(const u32* in, u32* out, Args a) {{
  __attribute__((shared)) static u32 shared[{THREADS}];
  const u32 t = __builtin_amdgcn_workitem_id_x(), g = __builtin_amdgcn_workgroup_id_x();
  State s;
  start(s, in + 2 * {THREADS} * g, t);
{device}
  finish(s, out + {WORDS} * ({THREADS} * g + t));
}}
#else
extern "C" void program(const u32* in, u32* out, const Args& a) {{
  for (u32 g = 0; g < {GROUPS}; ++g) {{
    static State s[{THREADS}];
    u32 w[{THREADS}] = {{}};
    for (u32 t = 0; t < {THREADS}; ++t) start(s[t], in + 2 * {THREADS} * g, t);
{host}
    for (u32 t = 0; t < {THREADS}; ++t) finish(s[t], out + {WORDS} * ({THREADS} * g + t));
  }}
}}
#endif
"""
