"""A second interpreter, in float64, that shares no code with the one the verifier runs.

It takes programs and µGraphs as data and computes as plainly as possible: values are NumPy arrays
whose axes have names, memory is NaN until it is written, blocks run one by one in an order that the
caller may choose. What is wrong about a graph is not noticed here; it shows in the result.
Storing or casting to integers truncates; rounding of floats is left to the numerical check.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.ir.dtypes import BOOL, DType
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import REDUCING, Access, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall, UGraph

Array = NDArray[np.float64]
Memory = dict[str, Array]
# Dimension -> the positions under evaluation.
Place = Mapping[str, range]


class CrashError(Exception):
    """What a device would fault on, or what has no meaning at all."""


@dataclass(frozen=True, eq=False)
class Value:
    """An array with a name for each axis."""

    dims: tuple[str, ...]
    array: Array


@dataclass(frozen=True)
class World:
    """What nodes see: memory, the sizes of dimensions, which nodes have truth values, and whether a
    cast to fewer digits rounds.
    """

    memory: Mapping[str, Array]
    sizes: Mapping[str, int]
    truths: frozenset[int] = frozenset()
    rounds: bool = False


def run_program(program: Program, inputs: Mapping[str, Array], *, rounds: bool = False) -> Memory:
    """The outputs by name. With ``rounds`` casts to fewer digits lose digits."""
    everything = {d: range(size) for d, size in program.sizes.items()}
    masks = frozenset(n for n, node in enumerate(program.nodes) if node.op == "mask")
    world = World(inputs, program.sizes, masks, rounds)
    values: list[Value] = []
    for position in range(len(program.nodes)):
        args = [values[a] for a in program.nodes[position].args]
        values.append(_node(program.nodes, position, args, world, everything))
    memory: Memory = {}
    for output in program.outputs:
        memory[output.tensor.name] = np.full(output.tensor.shape, np.nan)
        _write(memory, output.tensor.name, output.index, values[output.node], everything, "store")
    return memory


def run_ugraph(
    ugraph: UGraph,
    inputs: Mapping[str, Array],
    *,
    backwards: bool = False,
    shift: float | None = None,
    rounds: bool = False,
) -> Memory:
    """The outputs by name.

    ``backwards`` runs the blocks of each grid from last to first. ``shift`` stands for whatever
    only shifts exponents, which makes no difference in real numbers. With ``rounds`` casts to fewer
    digits lose digits.
    """
    outputs = [o.tensor for o in ugraph.program.outputs]
    memory: Memory = {n: np.array(x, dtype=np.float64) for n, x in inputs.items()}
    types = {t.name: t.dtype for t in (*outputs, *ugraph.intermediates)}
    memory |= {t.name: np.full(t.shape, np.nan) for t in (*outputs, *ugraph.intermediates)}
    for kernel in ugraph.kernels:
        if isinstance(kernel, LibraryCall):
            memory[kernel.result][...] = _library(kernel, memory)
        else:
            for name in kernel.added_tensors:
                memory[name][...] = 0.0
            world = World(memory, ugraph.program.sizes, _truths(kernel, ugraph), rounds)
            _Grid(kernel, world, memory, shift).run(backwards)
        for name, kind in types.items():
            memory[name][...] = _rounded(memory[name], kind, rounds)
    return {t.name: memory[t.name] for t in outputs}


class _Grid:
    def __init__(
        self, block: BlockGraph, world: World, memory: Memory, shift: float | None
    ) -> None:
        self.block, self.world, self.memory, self.shift = block, world, memory, shift
        self.sizes = world.sizes
        self.values: dict[int, Value] = {}

    def run(self, backwards: bool) -> None:
        split = self.block.split_axes
        axes = [_tiles(self.sizes[a.dim], a.tile) for a in split]
        blocks = list(product(*axes))
        for spans in reversed(blocks) if backwards else blocks:
            place = {d: range(size) for d, size in self.sizes.items()}
            place |= {a.dim: s for a, s in zip(split, spans, strict=True)}
            self.values = {}
            for section in self.block.sections:
                if section.loop is None:
                    self._section(section.nodes, place, {})
                    continue
                before: dict[int, Value] = {}
                for span in _tiles(self.sizes[section.loop], section.tile):
                    self._section(section.nodes, {**place, section.loop: span}, before)
                    before = {n: self.values[n] for n in section.nodes if n in self.values}

    def _section(self, nodes: Sequence[int], place: Place, before: Mapping[int, Value]) -> None:
        for n in nodes:
            node = self.block.nodes[n]
            if any(a not in self.values for a in node.args):
                raise CrashError(f"%{n} reads what is not there")
            args = [self.values[a] for a in node.args]
            if node.op in ("store", "store_add"):
                self._store(node, args[0], place)
            elif node.op.startswith("accum_"):
                self.values[n] = self._accumulated(n, node, args, before)
            else:
                self.values[n] = _node(self.block.nodes, n, args, self.world, place)
            if self.shift is not None and "shift" in (node.op, node.attr):
                whole = self.values[n]
                self.values[n] = Value(whole.dims, np.full_like(whole.array, self.shift))

    def _accumulated(
        self, n: int, node: Node, args: Sequence[Value], before: Mapping[int, Value]
    ) -> Value:
        if n not in before:
            return args[0]
        old = before[n]
        if node.op == "accum_max":
            return _elementwise(np.maximum, [old, args[0]])
        if node.op == "accum_rescaled":
            for shift, now, degree in zip(node.args[1:], args[1:], node.degrees, strict=True):
                was = before[shift]
                factor = _elementwise(lambda a, b, k=degree: np.exp((a - b) * k), [was, now])
                old = _elementwise(np.multiply, [old, factor])
        return _elementwise(np.add, [old, args[0]])

    def _store(self, node: Node, value: Value, place: Place) -> None:
        access = node.access
        named = [d for e in access.index for d in e.dims()]
        for axis in self.block.split_axes:
            # The first block writes where all along an axis have the same.
            if axis.dim not in value.dims and axis.dim not in named and place[axis.dim].start:
                return
        if node.op == "store_add":
            lost = tuple(i for i, d in enumerate(value.dims) if d not in named)
            kept = tuple(d for d in value.dims if d in named)
            value = Value(kept, value.array.sum(axis=lost))
        _write(self.memory, access.tensor, access.index, value, place, node.op)


def _tiles(size: int, tile: int | None) -> list[range]:
    if tile is None or tile < 1:
        raise CrashError("an open tile")
    return [range(start, min(start + tile, size)) for start in range(0, size, tile)]


def _rounded(x: Array, kind: DType, rounds: bool) -> Array:
    if kind == BOOL:
        return np.where(np.isnan(x), x, (x != 0).astype(np.float64))
    if not kind.is_float:
        return np.trunc(x)
    digits = _DIGITS.get(kind.name)
    if not rounds or digits is None:
        return x
    with np.errstate(all="ignore"):
        mantissa, exponent = np.frexp(x)
        return np.ldexp(np.round(np.ldexp(mantissa, digits)), exponent - digits)


# Binary digits of a number, without an end of the range.
_DIGITS = {"f16": 11, "bf16": 8, "f8e4m3": 4, "f8e5m2": 3}


def _truths(block: BlockGraph, ugraph: UGraph) -> frozenset[int]:
    """Nodes with truth values: kernels emit a product with one as a selection."""
    found: dict[int, None] = {}
    for n, node in enumerate(block.nodes):
        stored = node.op == "load" and ugraph.tensors[node.access.tensor].dtype == BOOL
        if stored or node.op in _CONDITIONS or (node.op == "cast" and node.attr == BOOL):
            found[n] = None
    return frozenset(found)


_CONDITIONS = ("mask", "lt", "le", "gt", "ge", "eq", "ne")


def _node(
    nodes: Sequence[Node],
    position: int,
    args: Sequence[Value],
    world: World,
    place: Place,
) -> Value:
    node = nodes[position]
    if node.op == "load":
        return _read(world.memory, node.access, place)
    if node.op == "const":
        return Value((), np.float64(node.attr))  # type: ignore[arg-type]
    if node.op == "size":
        return Value((), np.float64(world.sizes[str(node.attr)]))  # type: ignore[arg-type]
    if node.op in ("index", "mask"):
        assert isinstance(node.attr, IndexExpr | Predicate)
        dims = _dims_of(node.attr)
        grid = _grid(dims, place)
        found = _number(node.attr, grid) if isinstance(node.attr, IndexExpr) else _truth(
            node.attr, grid
        )  # fmt: skip
        shape = tuple(len(place[d]) for d in dims)
        return Value(dims, np.broadcast_to(np.asarray(found, dtype=np.float64), shape))
    if node.op in REDUCING:
        whole = args[0] if node.op != "matmul" else _elementwise(np.multiply, args)
        axes = tuple(whole.dims.index(d) for d in node.reduced)
        reduce = np.max if node.op == "max" else np.sum
        kept = tuple(d for d in whole.dims if d not in node.reduced)
        with np.errstate(all="ignore"):
            return Value(kept, np.asarray(reduce(whole.array, axis=axes)))
    if node.op == "cast":
        assert isinstance(node.attr, DType)
        return Value(args[0].dims, _rounded(args[0].array, node.attr, world.rounds))
    if node.op == "mul":
        for mask, other in ((0, 1), (1, 0)):
            # A mask removes what it hides, whatever that is.
            if node.args[mask] in world.truths:
                pair = [args[mask], args[other]]
                return _elementwise(lambda m, x: np.where(m != 0, x, 0.0), pair)
    return _elementwise(FUNCTIONS[node.op], args)


def _elementwise(function: Callable[..., Array], args: Sequence[Value]) -> Value:
    dims = tuple(dict.fromkeys(d for a in args for d in a.dims))
    aligned = []
    for a in args:
        order = [a.dims.index(d) for d in dims if d in a.dims]
        shape = [a.array.shape[a.dims.index(d)] if d in a.dims else 1 for d in dims]
        aligned.append(np.transpose(a.array, order).reshape(shape))
    try:
        with np.errstate(all="ignore"):
            return Value(dims, np.asarray(function(*aligned), dtype=np.float64))
    except ValueError as error:
        raise CrashError(str(error)) from None


def _grid(dims: Sequence[str], place: Place) -> dict[str, NDArray[np.int64]]:
    """The positions of each dimension, ready to broadcast in this order."""
    found = {}
    for number, d in enumerate(dims):
        shape = [1] * len(dims)
        shape[number] = len(place[d])
        found[d] = np.arange(place[d].start, place[d].stop, dtype=np.int64).reshape(shape)
    return found


def _dims_of(attr: IndexExpr | Predicate | Sequence[IndexExpr]) -> tuple[str, ...]:
    if isinstance(attr, IndexExpr):
        if attr.op == "dim":
            return (attr.name,)
        return tuple(dict.fromkeys(d for a in attr.args for d in _dims_of(a)))
    parts = [*attr.exprs, *attr.args] if isinstance(attr, Predicate) else list(attr)
    return tuple(dict.fromkeys(d for part in parts for d in _dims_of(part)))


def positions(expr: IndexExpr, dims: Sequence[str], place: Place) -> NDArray[np.int64]:
    """The values of an index expression, with an axis for each of ``dims``."""
    return _number(expr, _grid(dims, place))


def truth(predicate: Predicate, dims: Sequence[str], place: Place) -> NDArray[np.bool_]:
    """Where a condition holds, with an axis for each of ``dims``."""
    return _truth(predicate, _grid(dims, place))


def _number(expr: IndexExpr, grid: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    if expr.op == "dim":
        return grid[expr.name]
    if expr.op == "const":
        return np.asarray(expr.value)
    first = _number(expr.args[0], grid)
    if expr.op == "add":
        return first + _number(expr.args[1], grid)
    if expr.op == "mul":
        return first * expr.value
    return first // expr.value if expr.op == "floordiv" else first % expr.value


def _truth(predicate: Predicate, grid: Mapping[str, NDArray[np.int64]]) -> NDArray[np.bool_]:
    if predicate.op == "not":
        return ~_truth(predicate.args[0], grid)
    if predicate.op in ("and", "or"):
        left, right = (_truth(a, grid) for a in predicate.args)
        return left & right if predicate.op == "and" else left | right
    difference = np.asarray(_number(predicate.exprs[0], grid) - _number(predicate.exprs[1], grid))
    return {
        "lt": difference < 0, "le": difference <= 0, "gt": difference > 0,
        "ge": difference >= 0, "eq": difference == 0, "ne": difference != 0,
    }[predicate.op]  # fmt: skip


def _elements(
    index: Sequence[IndexExpr], shape: Sequence[int], place: Place
) -> tuple[tuple[str, ...], tuple[NDArray[np.int64], ...]]:
    dims = _dims_of(index)
    grid = _grid(dims, place)
    extents = tuple(len(place[d]) for d in dims)
    where = tuple(np.broadcast_to(_number(e, grid), extents) for e in index)
    if len(where) != len(shape):
        raise CrashError("another number of axes")
    for axis, extent in zip(where, shape, strict=True):
        if axis.size and (axis.min() < 0 or axis.max() >= extent):
            raise CrashError("outside the tensor")
    return dims, where


def _read(memory: Mapping[str, Array], access: Access, place: Place) -> Value:
    if access.tensor not in memory:
        raise CrashError(f"no tensor {access.tensor}")
    dims, where = _elements(access.index, memory[access.tensor].shape, place)
    return Value(dims, np.asarray(memory[access.tensor][where]))


def _write(
    memory: Memory, name: str, index: Sequence[IndexExpr], value: Value, place: Place, op: str
) -> None:
    if name not in memory:
        raise CrashError(f"no tensor {name}")
    dims, where = _elements(index, memory[name].shape, place)
    if any(d not in dims for d in value.dims):
        raise CrashError("more than one value for a place")
    shape = tuple(len(place[d]) for d in dims)
    whole = _elementwise(np.add, [Value(dims, np.zeros(shape)), value]).array
    if op == "store_add":
        np.add.at(memory[name], where, whole)
    else:
        memory[name][where] = whole


def _library(call: LibraryCall, memory: Memory) -> Array:
    try:
        args = [memory[name] for name in call.args]
        with np.errstate(all="ignore"):
            found = np.matmul(*args) if call.op == "matmul" else FUNCTIONS[call.op](*args)
        return np.broadcast_to(found, memory[call.result].shape)
    except (KeyError, TypeError, ValueError) as error:
        raise CrashError(str(error)) from None


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _e4m3(x: Array) -> Array:
    """The nearest of all finite numbers; of two the one with the even last bit."""
    codes = np.arange(127)
    size = np.where(codes < 8, codes / 512.0, (8 + codes % 8) * 2.0 ** (codes // 8 - 10))
    above = np.clip(np.searchsorted(size, np.abs(x)), 1, 126)
    low, high = np.abs(x) - size[above - 1], size[above] - np.abs(x)
    up = (high < low) | ((high == low) & (above % 2 == 0))
    return np.where(np.isnan(x), x, np.copysign(size[np.where(up, above, above - 1)], x))


_erf = np.vectorize(math.erf, otypes=[np.float64])

FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "neg": np.negative, "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p,
    "log2": np.log2,
    "sqrt": np.sqrt, "square": np.square,
    "reciprocal_no_nan": lambda x: np.where(x == 0, 0.0, np.divide(1.0, x)),
    "rsqrt": lambda x: 1.0 / np.sqrt(x), "abs": np.abs, "relu": lambda x: np.maximum(x, 0.0),
    "sigmoid": _sigmoid, "silu": lambda x: x / (1.0 + np.exp(-x)), "tanh": np.tanh,
    "erf": _erf, "gelu": lambda x: x * (1.0 + _erf(x * math.sqrt(0.5))) / 2.0,
    "gelu_tanh": lambda x: x * _sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)),
    "softplus": lambda x: np.log(1.0 + np.exp(x)),
    "mish": lambda x: x * np.tanh(np.log(1.0 + np.exp(x))),
    "hardswish": lambda x: np.select([x <= -3, x >= 3], [0.0 * x, x], (x * x + 3 * x) / 6),
    "sin": np.sin, "cos": np.cos, "atan": np.arctan, "log10": np.log10, "exp2": np.exp2,
    "floor": np.floor, "ceil": lambda x: -np.floor(-x), "trunc": np.fix, "round": np.round,
    "isnan": lambda x: np.not_equal(x, x), "isinf": lambda x: np.equal(np.abs(x), np.inf),
    "fmod": np.fmod, "e4m3": _e4m3,
    "bit_and": lambda x, y: 1.0 * np.bitwise_and(x.astype(np.int64), y.astype(np.int64)),
    "bit_or": lambda x, y: 1.0 * np.bitwise_or(x.astype(np.int64), y.astype(np.int64)),
    "bit_xor": lambda x, y: 1.0 * np.bitwise_xor(x.astype(np.int64), y.astype(np.int64)),
    "shift_right": lambda x, y: np.floor(np.trunc(x) / 2.0 ** np.trunc(np.maximum(y, 0))),
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
    "maximum": np.maximum, "minimum": np.minimum, "shift": lambda x: x,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal, "where": lambda c, x, y: np.where(c != 0, x, y),
}  # fmt: skip
