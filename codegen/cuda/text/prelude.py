"""The device functions that emitted kernels call: the pieces of ``prelude/``, and the wgmma
wrappers, which are generated for each shape.

Instructions are those of the PTX ISA (NVIDIA, version 8): ``cp.async``, ``ldmatrix``, ``mma``, and
on sm_90 ``mbarrier``, ``cp.async.bulk``, ``wgmma`` and clusters. nvcc and NVRTC take the text
without any header.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "prelude"

# In the order of the text: a file may use what those above it define.
FILES = (
    "addresses", "async_copies", "matrices", "tensor_cores", "halves", "scalars", "threads",
    "mbarriers", "copy_engine", "streaming", "warpgroups", "clusters", "grids",
)  # fmt: skip

_NAME = re.compile(r"__forceinline__[^(]*?(\w+)\(|struct alignas\(64\) (\w+)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_WGMMA = re.compile(r"wgmma_m64n(\d+)k(?:8|16|32)_(f16|bf16|tf32|f8e4m3)_(s|r)s_([kt])([kt])\b")
# Inner positions of one instruction, and the type's name in PTX.
_DEPTHS = {"tf32": 8, "f16": 16, "bf16": 16, "f8e4m3": 32}
_PTX_TYPES = {"f8e4m3": "e4m3"}


@dataclass(frozen=True, slots=True)
class WgmmaShape:
    """One form of ``wgmma.mma_async.m64nNk16``, k8 of TF32 or k32 of float8, with sums in float.

    A and B are f16, bf16, tf32 or f8e4m3; A comes from shared memory or from registers. An operand
    is transposed where its contiguous axis is not K, which only one of halves is.
    """

    n: int
    dtype: str
    a_in_registers: bool
    a_is_transposed: bool
    b_is_transposed: bool

    def __post_init__(self) -> None:
        if self.n % 8 or not 8 <= self.n <= 256 or self.dtype not in _DEPTHS:
            raise ValueError(f"no wgmma of n {self.n} and {self.dtype}")
        if self.a_in_registers and self.a_is_transposed:
            raise ValueError("a wgmma operand in registers is not transposed")
        if self.depth != 16 and (self.a_is_transposed or self.b_is_transposed):
            raise ValueError(f"a wgmma operand of {self.dtype} is not transposed")

    @property
    def depth(self) -> int:
        """Inner positions of one instruction."""
        return _DEPTHS[self.dtype]

    @property
    def name(self) -> str:
        """Of the device function."""
        source = "r" if self.a_in_registers else "s"
        axes = "".join("t" if t else "k" for t in (self.a_is_transposed, self.b_is_transposed))
        return f"wgmma_m64n{self.n}k{self.depth}_{self.dtype}_{source}s_{axes}"


@dataclass(frozen=True, slots=True)
class _Piece:
    """Functions of one name with their text; ``words`` are all it mentions."""

    name: str
    text: str
    words: frozenset[str]


def prelude_text(names: Sequence[str]) -> str:
    """The text of the named device functions and of those they need, each once, in order.

    Names of ``wgmma_function`` are known too. Raises KeyError for others.
    """
    known = _pieces()
    shapes = {n: _shape(n) for n in dict.fromkeys(names) if n not in known}
    wanted = {n for n in names if n in known}
    for piece in reversed(known.values()):
        if piece.name in wanted:
            wanted |= {word for word in piece.words if word in known}
    texts = [piece.text for name, piece in known.items() if name in wanted]
    return "\n\n".join(texts + [_wgmma_text(s) for s in shapes.values()])


def names_used(text: str) -> tuple[str, ...]:
    """The device functions that a kernel's text mentions, as ``prelude_text`` takes them."""
    words = dict.fromkeys(_WORD.findall(text))
    return tuple(w for w in words if w in _pieces() or _WGMMA.fullmatch(w))


def all_names() -> tuple[str, ...]:
    """The device functions of the files in ``prelude/``."""
    return tuple(_pieces())


def wgmma_function(
    n: int, dtype: str, a_in_registers: bool, a_is_transposed: bool, b_is_transposed: bool
) -> tuple[str, str]:
    """Name and text of ``d = a b + (adds ? d : 0)`` of a warp group: 64x16 by 16xn, of TF32 64x8 by
    8xn, of float8 64x32 by 32xn.

    ``void name(float (&d)[n / 2], A, unsigned long long b, bool adds)``, where A is a descriptor
    (``unsigned long long a``) or ``unsigned a0, a1, a2, a3``.
    """
    shape = WgmmaShape(n, dtype, a_in_registers, a_is_transposed, b_is_transposed)
    return shape.name, _wgmma_text(shape)


def wgmma_shapes(text: str) -> tuple[WgmmaShape, ...]:
    """The warpgroup matmuls that a kernel's text calls."""
    return tuple(_shape(name) for name in dict.fromkeys(m[0] for m in _WGMMA.finditer(text)))


def _shape(name: str) -> WgmmaShape:
    match = _WGMMA.fullmatch(name)
    if match is None:
        raise KeyError(f"no device function '{name}'")
    n, dtype, source, a, b = match.groups()
    return WgmmaShape(int(n), dtype, source == "r", a == "t", b == "t")


def _wgmma_text(shape: WgmmaShape) -> str:
    sums = shape.n // 2
    a_count = 4 if shape.a_in_registers else 1
    b_place, adds_place = sums + a_count, sums + a_count + 1
    if shape.a_in_registers:
        parameter = "unsigned a0, unsigned a1, unsigned a2, unsigned a3"
        a_text = "{" + ", ".join(f"%{sums + i}" for i in range(4)) + "}"
        a_inputs = ", ".join(f'"r"(a{i})' for i in range(4))
        flags = f", {int(shape.b_is_transposed)}"
    else:
        parameter, a_text, a_inputs = "unsigned long long a", f"%{sums}", '"l"(a)'
        flags = f", {int(shape.a_is_transposed)}, {int(shape.b_is_transposed)}"
    rows = [range(i, min(i + 8, sums)) for i in range(0, sums, 8)]
    d_text = ',"\n        " '.join(", ".join(f"%{i}" for i in row) for row in rows)
    d_inputs = ",\n          ".join(", ".join(f'"+f"(d[{i}])' for i in row) for row in rows)
    if shape.depth != 16:
        flags = ""  # which only halves have
    k, name = shape.depth, _PTX_TYPES.get(shape.dtype, shape.dtype)
    kind = f"m64n{shape.n}k{k}.f32.{name}.{name}"
    return f"""\
// d = a b + (adds ? d : 0) of a warp group: 64x{k} by {k}x{shape.n}, sums in float.
__device__ __forceinline__ void {shape.name}(
    float (&d)[{sums}], {parameter}, unsigned long long b, bool adds) {{
    asm volatile(
        "{{\\n.reg .pred adds;\\nsetp.ne.b32 adds, %{adds_place}, 0;\\n"
        "wgmma.mma_async.sync.aligned.{kind} "
        "{{{d_text}}}, "
        "{a_text}, %{b_place}, adds, 1, 1{flags};\\n}}"
        : {d_inputs}
        : {a_inputs}, "l"(b), "r"(static_cast<int>(adds)));
}}"""


@functools.cache
def _pieces() -> dict[str, _Piece]:
    pieces: dict[str, _Piece] = {}
    for file in FILES:
        text = (FOLDER / f"{file}.cuh").read_text(encoding="utf-8")
        for part in text.strip().split("\n\n"):
            match = _NAME.search(part)
            assert match is not None, part
            name = match[1] or match[2]
            whole = f"{pieces[name].text}\n\n{part}" if name in pieces else part
            words = frozenset(_WORD.findall(re.sub(r"//.*", "", whole))) - {name}
            pieces[name] = _Piece(name, whole, words)
    return pieces
