"""Convolutions of a program: sums of products over windows that a library computes as one call.

A convolution is no operator of a program: it is a sum of products over index expressions. Whether a
sum is one is decided by evaluation: each index is computed at every place and position of its
windows, and compared with what stride, padding and dilation give.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import prod

import numpy as np

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.convolution import Convolution
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import LibraryCall

_MAX_RANK = 3


@dataclass(frozen=True, slots=True)
class Product:
    """A sum of products of two values under masks: ``left`` is read in windows, ``inner`` are the
    nodes between it and the sum. ``spec`` is the convolution that it is, where it is one: what it
    reads has the ``axes_in_memory``.
    """

    left: int
    right: int
    masks: tuple[Predicate, ...]
    inner: tuple[int, ...]
    spec: Convolution | None = None


@dataclass(frozen=True, slots=True)
class _Steps:
    """How windows lie along an axis, in one of the two kinds."""

    stride: int
    padding: int
    dilation: int


def convolution_at(program: Program, position: int) -> Product | None:
    """The convolution that a node of a program is, the indices of its operands being those of
    tensors in memory; None where it is none.
    """
    result = tuple(map(ix.dim, program.nodes[position].dims))
    for found in _products(program, position):
        right = program.nodes[found.right]
        index = right.access.index if right.op in ("load", "read") else map(ix.dim, right.dims)
        spec = _convolution(program, position, found, tuple(index), result)
        if spec is not None:
            return replace(found, spec=spec)
    return None


def library_convolution(program: Program) -> LibraryCall | None:
    """The call that computes a program which is one convolution; None for any other program."""
    if len(program.outputs) != 1:
        return None
    (output,) = program.outputs
    for found in _products(program, output.node):
        left, right = (program.nodes[n] for n in (found.left, found.right))
        if left.op == right.op == "load":
            index = right.access.index
            spec = _convolution(program, output.node, found, index, output.index)
            if spec is not None:
                name, args = "convolution", (left.access.tensor, right.access.tensor)
                return LibraryCall(name, name, args, output.tensor.name, spec)
    return None


def axes_in_memory(index: Sequence[IndexExpr], shape: Sequence[int]) -> list[tuple[int, ...]]:
    """The dimensions of a value of this shape, by their numbers, that are one axis of it in memory,
    major to minor, as it is read at the digits of one position: channels of a norm's groups.
    """
    axes: list[tuple[tuple[int, ...], IndexExpr]] = [((n,), e) for n, e in enumerate(index)]
    while True:
        for one, other in permutations(axes, 2):
            (outer, at), (inner, behind) = one, other
            if {*at.dims()} & {*behind.dims()}:
                size = prod(shape[n] for n in inner)
                apart = at * size + behind
                whole = ix.recomposed(apart)
                if whole != apart:
                    axes[axes.index(one)] = (*outer, *inner), whole
                    axes.remove(other)
                    break
        else:
            return [axis for axis, _ in axes]


def flat_position(index: Sequence[IndexExpr], shape: Sequence[int]) -> IndexExpr:
    """The position along one axis of an element at this index of these dimensions."""
    place, step = ix.const(0), prod(shape)
    for expr, size in zip(index, shape, strict=True):
        step //= size
        place += expr * step
    return ix.recomposed(place)


def _products(program: Program, position: int) -> Iterator[Product]:
    """The sum at a node as one over windows of a tensor, either factor being that tensor."""
    nodes = program.nodes
    node = nodes[position]
    if node.op == "matmul":
        todo = list(node.args)
    elif node.op == "sum" and nodes[node.args[0]].op == "mul":
        todo = [node.args[0]]
    else:
        return
    inner: list[int] = []
    factors: list[int] = []
    masks: list[Predicate] = []
    while todo:
        at = todo.pop()
        factor = nodes[at]
        beside = [n for n in (*factors, *todo) if not isinstance(nodes[n].attr, Predicate)]
        is_masked = any(isinstance(nodes[a].attr, Predicate) for a in factor.args)
        # A product that is one of two factors is computed before.
        if factor.op == "mul" and (is_masked or not beside):
            inner.append(at)
            todo += factor.args
        elif factor.op == "where" and nodes[factor.args[2]].attr == 0.0:
            # As front ends write it; the normal form has a product.
            inner.append(at)
            todo += factor.args[:2]
        elif isinstance(factor.attr, Predicate):
            inner.append(at)
            masks += _conjuncts(factor.attr)
        else:
            factors.append(at)
    if len(factors) == 2 and not any(_looks_up(nodes[f]) for f in factors):
        for left, right in (factors, factors[::-1]):
            if _is_windowed(nodes[left]):
                yield Product(left, right, tuple(masks), (*inner, left))


def _convolution(
    program: Program,
    position: int,
    found: Product,
    right: Sequence[IndexExpr],
    result: Sequence[IndexExpr],
) -> Convolution | None:
    """The convolution at a node, its right operand and result being read at these indices."""
    image, shape = program.nodes[found.left], _shape_of(program, found.left)
    left: Sequence[IndexExpr] = image.access.index
    if image.op == "read":
        axes = axes_in_memory(left, shape)
        left = [flat_position([left[n] for n in a], [shape[n] for n in a]) for a in axes]
        shape = [prod(shape[n] for n in a) for a in axes]
    roles = _roles(program.nodes[position], left, right)
    if roles is None:
        return None
    parts, sliding = dict(roles.parts), roles.sliding
    rest = list(found.masks)
    kinds: list[dict[bool, _Steps]] = []
    counts: list[int] = []
    for number, (n, place, inside_of) in enumerate(sliding):
        own = [d for d in (place, inside_of) if d is not None]
        parts |= dict.fromkeys(own, str(number))
        mine = [m for m in rest if all(d in own for d in m.dims())]
        rest = [m for m in rest if m not in mine]
        kinds.append(_steps(program.sizes, left[n], place, inside_of, mine, shape[n]))
        counts.append(program.sizes[place] if place else 1)
    slid = {n: str(number) for number, (n, _, _) in enumerate(sliding)}
    spellings = [slid.get(n) or _spelled(e, parts, program.sizes) for n, e in enumerate(left)]
    spellings += [_spelled(e, parts, program.sizes) for e in (*right, *result)]
    kind = next((k for k in (False, True) if all(k in known for known in kinds)), None)
    if rest or kind is None or any(s is None for s in spellings):
        return None
    steps = [known[kind] for known in kinds]
    extents = [program.sizes[inside] if inside else 1 for _, _, inside in sliding]
    if not _is_more_than_views(kind, steps, extents, counts):
        return None
    letters = [s or "" for s in spellings]
    first, second = len(left), len(left) + len(right)
    extents_of = {part: program.sizes[d] for d, part in parts.items()}
    whole = [(n, size) for n, size in enumerate(shape) if n not in slid]
    whole += [(first + n, size) for n, size in enumerate(_shape_of(program, found.right))]
    # Of a slice of the channels the library would take all.
    if any(prod(extents_of[p] for p in letters[n]) != size for n, size in whole):
        return None
    return Convolution(
        (tuple(letters[:first]), tuple(letters[first:second]), tuple(letters[second:])),
        extents_of.get("g", 1),
        tuple(counts),
        tuple(s.stride for s in steps),
        tuple(s.padding for s in steps),
        tuple(s.dilation for s in steps),
        kind,
    )


@dataclass(frozen=True, slots=True)
class _Roles:
    """Dimensions with their ``parts``: a group, an output or input channel, an image. Along
    ``sliding`` axes of the image, each with its dimensions of places and of the window, a window
    slides.
    """

    parts: Mapping[str, str]
    sliding: Sequence[tuple[int, str | None, str | None]]


def _roles(node: Node, left: Sequence[IndexExpr], right: Sequence[IndexExpr]) -> _Roles | None:
    """What the dimensions of a sum of products are in a convolution; None where they are none."""
    in_left = dict.fromkeys(d for e in left for d in e.dims())
    in_right = dict.fromkeys(d for e in right for d in e.dims())
    kept = {d: None for d in in_left if d in node.dims and d not in in_right}
    both = {d: None for d in in_left if d in node.dims and d in in_right}
    summed = {d: None for d in node.reduced if d in in_left and d in in_right}
    only_right = [d for d in in_right if d in node.dims and d not in in_left]
    if len(both) > 1 or len(only_right) > 1 or len(summed) < len(node.reduced):
        return None
    parts: dict[str, str] = dict.fromkeys(both, "g") | dict.fromkeys(only_right, "o")
    sliding: list[tuple[int, str | None, str | None]] = []
    channels: dict[str, int] = {}
    for n, expr in enumerate(left):
        mine = ["g" if d in both else "c" for d in expr.dims()]
        if _is_channel(expr, both, summed) and not any(part in channels for part in mine):
            channels |= dict.fromkeys(mine, n)
    for n, expr in enumerate(left):
        dims = expr.dims()
        places = [d for d in dims if d in kept]
        inside = [d for d in dims if d in summed]
        if n in channels.values():
            parts |= dict.fromkeys(inside, "c")
        elif not dims:
            continue
        elif expr.is_dim and places and "n" not in parts.values() and not sliding:
            parts[places[0]] = "n"
        elif len(places) <= 1 and len(inside) <= 1 and len(dims) == len(places) + len(inside):
            sliding.append((n, next(iter(places), None), next(iter(inside), None)))
        else:
            return None
    return _Roles(parts, sliding) if 1 <= len(sliding) <= _MAX_RANK else None


def _shape_of(program: Program, operand: int) -> Sequence[int]:
    """The shape of the tensor, or of the value, that an operand reads."""
    node = program.nodes[operand]
    if node.op == "load":
        return program.tensors[node.access.tensor].shape
    value = program.nodes[node.args[0]] if node.op == "read" else node
    return [program.sizes[d] for d in value.dims]


def _is_more_than_views(
    transposed: bool, steps: Sequence[_Steps], extents: Sequence[int], counts: Sequence[int]
) -> bool:
    """Whether it is no product, the search's, over a reshape, where each element is read once, or
    over a slice of packed weights, which is windows of one element side by side.
    """
    if transposed:
        return any(s.stride > 1 or e > 1 for s, e in zip(steps, extents, strict=True))
    return any(map(_overlap, steps, extents, counts))


def _overlap(steps: _Steps, extent: int, count: int) -> bool:
    """Whether neighbouring windows share elements, or some are in the padding."""
    reach = (extent - 1) * steps.dilation + 1
    return count > 1 and extent > 1 and (reach > steps.stride or steps.padding > 0)


def _looks_up(node: Node) -> bool:
    return node.op in ("load", "read") and node.access.is_look_up


def _is_windowed(node: Node) -> bool:
    """Whether it reads a tensor at other indices than dimensions."""
    if node.op not in ("load", "read"):
        return False
    return any(not e.is_dim and e.op != "const" for e in node.access.index)


def _conjuncts(mask: Predicate) -> Iterator[Predicate]:
    if mask.op == "and":
        for part in mask.args:
            yield from _conjuncts(part)
    else:
        yield mask


def _is_channel(expr: IndexExpr, both: Mapping[str, None], summed: Mapping[str, None]) -> bool:
    """Whether it is c, g, or both: then c counts within g."""
    dims = expr.dims()
    if expr.is_dim:
        return dims[0] in both or dims[0] in summed
    return len(dims) == 2 and dims[0] in both and dims[1] in summed


def _spelled(expr: IndexExpr, parts: Mapping[str, str], sizes: Mapping[str, int]) -> str | None:
    """The parts of an axis, major to minor; None where it is no mixed radix of them."""
    dims = expr.dims()
    flat = ix.const(0)
    for d in dims:
        flat = flat * sizes[d] + ix.dim(d)
    same = ix.simplify(expr, sizes) == ix.simplify(flat, sizes) or _equal(expr, flat, sizes)
    if not same or any(d not in parts for d in dims):
        return None
    return "".join(parts[d] for d in dims)


def _equal(left: IndexExpr, right: IndexExpr, sizes: Mapping[str, int]) -> bool:
    dims = left.dims()
    grid = np.meshgrid(*(np.arange(sizes[d]) for d in dims), indexing="ij")
    env = dict(zip(dims, grid, strict=True))
    return bool(np.array_equal(left.evaluate(env), right.evaluate(env))) if dims else False


def _steps(
    sizes: Mapping[str, int],
    expr: IndexExpr,
    place: str | None,
    inside: str | None,
    masks: Sequence[Predicate],
    size: int,
) -> dict[bool, _Steps]:
    """Stride, padding and dilation of an axis as a convolution (False), a transposed one (True),
    as far as it is one.
    """
    count, extent = (sizes[d] if d else 1 for d in (place, inside))
    at, k = np.meshgrid(np.arange(count), np.arange(extent), indexing="ij")
    env = {d: v for d, v in ((place, at), (inside, k)) if d is not None}
    element = np.broadcast_to(expr.evaluate(env), at.shape)
    truth = np.ones(at.shape, dtype=bool)
    for mask in masks:
        truth = truth & mask.evaluate(env)
    found: dict[bool, _Steps] = {}
    known = np.argwhere(truth)
    if not len(known):
        return found
    p, q = (int(v) for v in known[0])
    for transposed in (False, True):
        for stride, dilation in _guesses(element, truth, transposed=transposed):
            if transposed:
                padding = int(element[p, q]) * stride + q * dilation - p
                reached = at + padding - k * dilation
                want, valid = reached // stride, reached % stride == 0
            else:
                padding = p * stride + q * dilation - int(element[p, q])
                want, valid = at * stride + k * dilation - padding, np.ones_like(truth)
            valid = valid & (want >= 0) & (want < size)
            if padding < 0:
                continue
            if np.array_equal(valid, truth) and np.array_equal(want[truth], element[truth]):
                found[transposed] = _Steps(stride, padding, dilation)
                break
    return found


def _guesses(
    element: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    truth: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    *,
    transposed: bool,
) -> Iterator[tuple[int, int]]:
    """Strides and dilations that some neighbours among the elements have."""
    places, positions = truth.shape
    strides: dict[int, None] = {}
    dilations: dict[int, None] = {}
    for q in range(positions):
        row = np.flatnonzero(truth[:, q])
        if len(row) > 1:
            gap, step = int(row[1] - row[0]), int(element[row[1], q] - element[row[0], q])
            strides[gap if transposed else step // max(gap, 1)] = None
    for p in range(places):
        row = np.flatnonzero(truth[p])
        if len(row) > 1:
            gap, step = int(row[1] - row[0]), int(element[p, row[1]] - element[p, row[0]])
            for s in strides or {1: None}:
                dilations[(-step * s if transposed else step) // max(gap, 1)] = None
    if transposed and not dilations:
        dilations = dict.fromkeys(range(1, 5))
    for stride in strides or {1: None}:
        for dilation in dilations or {1: None}:
            if stride >= 1 and dilation >= 1:
                yield stride, dilation
