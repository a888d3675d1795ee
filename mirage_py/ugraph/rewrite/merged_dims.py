"""Dimensions that always go together as one: rows of images, pixels of patches, heads' columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from math import prod

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import REDUCING, Access, Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.rewrite.dims import fresh_dim, meet, with_dims

# Power-of-two tiles cover such rows, and whole lines of the cache; of 56 elements they leave tails.
WHOLE_TILES = 64
# Columns of the widest tiles of matmuls.
_COLUMNS = 256
# Elements of a tensor: below the first it is the launch that takes time. From the second on rows
# that tiles cover are one, too: 2 KB of a block lie side by side (``search/model/access_cost.py``).
_LARGE, _HUGE = 1 << 18, 1 << 26


def with_merged_rows(program: Program) -> Program:
    """``x[n, c, h, w]`` of 56 by 56 pixels is read as ``x[n, c, p // 56, p % 56]``, one run of
    memory, wherever rows are short or odd, or the tensor is huge, and h and w are but positions.

    Neither is reduced, masked, counted or part of another index; every tensor that has one has both
    side by side, one run of memory, and some tensor as its last axes: another may have its channels
    behind them.
    """
    while True:
        pair = next((p for p in _last_axes(program) if _go_together(program, *p)), None)
        if pair is None:
            return program
        outer, inner = pair
        extent = program.sizes[inner]
        both = fresh_dim(program, f"{outer}_{inner}")
        place = ix.dim(both)
        exprs = {outer: ix.floordiv(place, extent), inner: ix.mod(place, extent)}
        program = with_dims(program, exprs, {both: program.sizes[outer] * extent})


def _last_axes(program: Program) -> list[tuple[str, str]]:
    """The pairs of dimensions that are a tensor's last two axes, in the order of the program's: of
    hundreds of dimensions few.
    """
    accesses = [n.access.index for n in program.nodes if n.op == "load"]
    accesses += [o.index for o in program.outputs]
    pairs = {
        (i[-2].name, i[-1].name) for i in accesses if len(i) > 1 and i[-2].is_dim and i[-1].is_dim
    }
    place = {d: n for n, d in enumerate(program.sizes)}
    return sorted((p for p in pairs if p[0] != p[1]), key=lambda p: (place[p[0]], place[p[1]]))


def _go_together(program: Program, outer: str, inner: str) -> bool:
    sizes = [program.sizes[d] for d in (outer, inner)]
    if min(sizes) == 1:
        return False
    least = _HUGE if sizes[1] % WHOLE_TILES == 0 else _LARGE
    pair = {outer, inner}
    accesses = [(o.tensor, o.index) for o in program.outputs]
    for node in program.nodes:
        if node.op == "load":
            accesses.append((program.tensors[node.access.tensor], node.access.index))
        elif not _is_pointwise(node, pair) or pair & _in_memory(program, node):
            return False
    mine = [(t, index) for t, index in accesses if pair & {d for e in index for d in e.dims()}]
    large = any(tensor.elements >= least for tensor, _ in mine)
    return large and all(_is_run(program, t, i, (outer, inner)) for t, i in mine)


def _is_pointwise(node: Node, pair: set[str]) -> bool:
    """Whether a value has both dimensions or none, and neither is more to it than its place. Tiles
    of matmuls are another matter: TMA takes axes as they are.
    """
    if node.op == "size":
        return str(node.attr) not in pair
    if node.op in REDUCING and pair & set(node.reduced):
        return False
    seen = pair & set(node.dims)
    named = isinstance(node.attr, IndexExpr | Predicate) or node.op in ("read", "matmul")
    return not seen or (seen == pair and not named)


def _in_memory(program: Program, node: Node) -> set[str]:
    """The dimensions of what a ``read`` takes at other indices: it has an index for each."""
    return {*program.nodes[node.args[0]].dims} if node.op == "read" else set()


def with_merged_columns(program: Program) -> Program:
    """Columns of matmuls that are counted as heads and places in them, ``w[h * 64 + d, k]``, are
    one dimension where tiles would leave tails of a head, or may have more columns than one, and
    nothing tells the two apart. What is read has them as one axis, which TMA takes; what is written
    may have them as two.
    """
    for pair in _counted_on(program):
        size = program.sizes[pair[1]]
        if size % WHOLE_TILES or size < _COLUMNS:
            alike = _with_alike(_with_alike(program, pair[1]), pair[0])
            found = next((p for p in (alike, program) if _are_columns(p, pair)), None)
            if found is not None:
                return with_merged_columns(_merged(found, pair))
    return program


def with_merged_axes(program: Program) -> Program:
    """Two dimensions that are one axis of each tensor that has them, ``x[b, h * 20 + i]``, and go
    together wherever they are, are one: channels that a norm before had in groups.
    """
    for pair in whole_axes(program):
        if _go_as_one(program, pair, in_matmuls=True):
            return with_merged_axes(_merged(_counted(program, pair), pair))
    return program


def whole_axes(program: Program) -> list[tuple[str, str]]:
    """The pairs of dimensions that are one axis of each tensor that has one of them."""
    accesses = [n.access.index for n in program.nodes if n.op == "load"]
    accesses += [o.index for o in program.outputs]
    pairs = counted_pairs(program)
    return [p for p in pairs if all(_is_one_axis(program, index, p) for index in accesses)]


def counted_pairs(program: Program) -> list[tuple[str, str]]:
    """The pairs of dimensions that an index counts as one, ``outer * extent + inner``."""
    accesses = [n.access.index for n in program.nodes if n.op == "load"]
    accesses += [o.index for o in program.outputs]
    exprs = dict.fromkeys(e for index in accesses for e in index if len(e.dims()) == 2)
    pairs = dict.fromkeys((p, e) for e in exprs for p in permutations(e.dims(), 2))
    return list(dict.fromkeys(p for p, e in pairs if _counts_on(program, e, p)))


def _counted_on(program: Program) -> list[tuple[str, str]]:
    """The pairs in indices ``outer * extent + inner`` of loads that a matmul has both of."""
    matmuls = [{*n.dims} for n in program.nodes if n.op == "matmul"]
    indices = [e for n in program.nodes if n.op == "load" for e in n.access.index]
    pairs = dict.fromkeys(p for e in indices for p in permutations(e.dims(), 2))
    return [
        pair
        for pair in pairs
        if any({*pair} <= dims for dims in matmuls)
        and any(_counts_on(program, e, pair) for e in indices)
    ]


def _with_alike(program: Program, dim: str) -> Program:
    """Other dimensions of the same size under its name, where no value has two of them: places in
    heads of queries and of values.
    """
    alike = [dim]
    for other, size in program.sizes.items():
        if size == program.sizes[dim] and not any(meet(program, other, d) for d in alike):
            alike.append(other)
    return with_dims(program, {d: ix.dim(dim) for d in alike[1:]}, {}) if alike[1:] else program


def _are_columns(program: Program, pair: tuple[str, str]) -> bool:
    reduced = {d for n in program.nodes if n.op in REDUCING for d in n.reduced}
    counted = {str(n.attr) for n in program.nodes if n.op == "size"}
    loads = [n.access.index for n in program.nodes if n.op == "load"]
    return (
        not {*pair} & (reduced | counted)
        and not _is_read_otherwise(program, pair)
        and _go_as_one(program, pair, in_matmuls=True)
        and all(_is_one_axis(program, index, pair) for index in loads)
        and all(
            _is_one_axis(program, o.index, pair) or _are_axes(o.index, pair)
            for o in program.outputs
        )
    )


def _is_read_otherwise(program: Program, pair: tuple[str, str]) -> bool:
    """Whether the same columns are read by other names, too, as where keys are returned beside
    attention: what is made of them is one value, of which each part of the program is to know.
    """
    alike = {d: ix.dim(f"#{size}") for d, size in program.sizes.items()}
    read: dict[tuple[str, tuple[IndexExpr, ...]], bool] = {}
    for node in program.nodes:
        if node.op == "load":
            access = node.access
            form = access.tensor, tuple(e.substitute(alike) for e in access.index)
            has_pair = {*pair} <= {*node.dims}
            if read.setdefault(form, has_pair) != has_pair:
                return True
    return False


def _are_axes(index: Sequence[IndexExpr], pair: tuple[str, str]) -> bool:
    """Whether axes that have one of both dimensions have nothing else."""
    return all({*e.dims()} <= {*pair} or {*pair}.isdisjoint(e.dims()) for e in index)


def _is_one_axis(program: Program, index: Sequence[IndexExpr], run: Sequence[str]) -> bool:
    """Whether one index has all these dimensions, as ``outer * extent + inner`` and perhaps a
    constant; or none has one.
    """
    axes = [e for e in index if {*run} & {*e.dims()}]
    return not axes or (len(axes) == 1 and _counts_on(program, axes[0], run))


def _counts_on(program: Program, expr: IndexExpr, run: Sequence[str]) -> bool:
    """Whether it is ``outer * extent + inner``, perhaps with a constant, and with what is counted
    beyond all of these.
    """
    if expr.op == "add" and expr.args[1].op == "const":
        expr = expr.args[0]
    sizes = [program.sizes[d] for d in run]
    terms = dict(_terms(expr) or {})
    is_run = all(terms.pop(d, 0) == prod(sizes[n + 1 :]) for n, d in enumerate(run))
    return is_run and all(step % prod(sizes) == 0 for step in terms.values())


def with_merged_reductions(program: Program) -> Program:
    """Dimensions that are neighbours in memory and always reduced together are one: a norm over
    ``x[b, c, h, w]`` has one dimension to split and to loop over, and not three.

    Only where every value has all of them or none, and no mask or other index has one, nor a matmul
    of a tensor as it is: TMA takes its axes. How many there are of each is then a number of the
    program.
    """
    for node in program.nodes:
        if node.op in REDUCING and node.op != "matmul" and len(node.reduced) > 1:
            run = next((r for r in _runs(program, node.reduced) if _is_one(program, r)), None)
            if run is not None:
                return with_merged_reductions(_merged(_counted(program, run), run))
    return program


def with_merged_run(program: Program, dims: Sequence[str]) -> Program:
    """These dimensions as one, the last of them the fastest; the program itself where they are not
    one run of memory in each tensor that has them, or something tells them apart.
    """
    together = len(dims) > 1 and _is_one(program, dims)
    return _merged(_counted(program, dims), dims) if together else program


def _runs(program: Program, reduced: Sequence[str]) -> list[tuple[str, ...]]:
    """Neighbouring axes of a tensor among the reduced dimensions, the most of them first."""
    found: dict[tuple[str, ...], None] = {}
    for node in program.nodes:
        if node.op == "load":
            names = [e.name if e.is_dim else "" for e in node.access.index]
            for start in range(len(names)):
                for end in range(start + 2, len(names) + 1):
                    if all(d in reduced for d in names[start:end]):
                        found[tuple(names[start:end])] = None
    return sorted(found, key=lambda run: -len(run))


def _is_one(program: Program, run: Sequence[str]) -> bool:
    inside = {*run}
    if len(inside) < len(run) or min(program.sizes[d] for d in run) == 1:
        return False
    if not _go_as_one(program, run, in_matmuls=True) or _is_multiplied(program, inside):
        return False
    loads = [n.access for n in program.nodes if n.op == "load"]
    accesses = [(o.tensor, o.index) for o in program.outputs]
    accesses += [(program.tensors[a.tensor], a.index) for a in loads]
    mine = [(t, index) for t, index in accesses if inside & {d for e in index for d in e.dims()}]
    return all(
        _is_run(program, t, index, run) or _is_one_axis(program, index, run) for t, index in mine
    )


def _is_multiplied(program: Program, dims: set[str]) -> bool:
    """Whether a matmul has one of the dimensions and reads it from memory as it is."""
    operands = (program.nodes[a] for n in program.nodes if n.op == "matmul" for a in n.args)
    return any(x.op == "load" and dims & {*x.dims} for x in operands)


def _go_as_one(program: Program, run: Sequence[str], *, in_matmuls: bool = False) -> bool:
    """Whether every value has all of these dimensions or none and reduces all or none, none is more
    to it than its place, and no matmul has one, unless they may be ``in_matmuls``.
    """
    inside = {*run}
    for node in program.nodes:
        if node.op == "load":
            continue
        named = isinstance(node.attr, IndexExpr | Predicate) or node.op == "read"
        named |= node.op == "matmul" and not in_matmuls
        reduced = inside & {*node.reduced} if node.op in REDUCING else set()
        seen = inside & {*node.dims}
        if inside & _in_memory(program, node):
            return False
        if seen not in (set(), inside) or reduced not in (set(), inside):
            return False
        if named and (seen or reduced):
            return False
    return True


def _is_run(
    program: Program, tensor: Tensor, index: Sequence[IndexExpr], run: Sequence[str]
) -> bool:
    """Whether these dimensions are whole axes side by side, one run of memory, and in no other."""
    names = [e.name if e.is_dim else "" for e in index]
    if run[0] not in names:
        return False
    start = names.index(run[0])
    axes = range(start, start + len(run))
    others = [e for n, e in enumerate(index) if n not in axes]
    if names[start : start + len(run)] != [*run] or any(d in run for e in others for d in e.dims()):
        return False
    strides = tensor.element_strides
    return all(
        tensor.shape[n] == program.sizes[names[n]]
        and (n == axes[-1] or strides[n] == tensor.shape[n + 1] * strides[n + 1])
        for n in axes
    )


def _counted(program: Program, run: Sequence[str]) -> Program:
    """How many there are of each of the dimensions as a number."""
    return replace(
        program,
        nodes=tuple(
            replace(node, op="const", attr=float(program.sizes[str(node.attr)]))
            if node.op == "size" and str(node.attr) in run
            else node
            for node in program.nodes
        ),
    )


def with_merged_patches(program: Program) -> Program:
    """A matmul that sums over the pixels of patches, ``x[b, c, s * 16 + i, t * 16 + j]`` with
    ``w[c, i, j, n]``, sums over one dimension, and its patches are one too: tiles of matmuls have
    two sides, and a loop goes along one dimension.

    Only where every value has all of these dimensions or none, as no mask does; and no two patches
    overlap, as the windows of most convolutions do.
    """
    for node in program.nodes:
        if node.op != "matmul" or len(node.reduced) < 2:
            continue
        reads = [program.nodes[a] for a in node.args if program.nodes[a].op == "load"]
        summed = _together(program, node.reduced)
        patches = next((r for r in reads if _is_patch(program, r.access, summed)), None)
        if len(summed) < 2 or patches is None or len(reads) < 2:
            continue
        beside = {d for e in patches.access.index if {*e.dims()} & {*summed} for d in e.dims()}
        rows = _together(program, [d for d in patches.dims if d in node.dims and d in beside])
        for dims in (summed, rows) if len(rows) > 1 else (summed,):
            program = _merged(program, _by_stride(program, patches.access, dims))
        return with_merged_patches(program)
    return program


def _together(program: Program, dims: Sequence[str]) -> tuple[str, ...]:
    """Those of the dimensions that are like the first in which values have, and which reduce them;
    none where they are counted.
    """

    def seen(d: str) -> list[object]:
        return [(d in n.dims, n.op in REDUCING and d in n.reduced) for n in program.nodes]

    alike = tuple(d for d in dims if seen(d) == seen(dims[0]))
    for node in program.nodes:
        counts = node.op in ("size", "read") or isinstance(node.attr, IndexExpr | Predicate)
        named = node.attr.dims() if isinstance(node.attr, IndexExpr | Predicate) else node.dims
        named = (*named, *_in_memory(program, node))
        if counts and any(d in alike for d in (*named, str(node.attr))):
            return ()
    return alike


def _is_patch(program: Program, access: Access, summed: Sequence[str]) -> bool:
    """Whether an access reads the dimensions beside others along an axis, none of them twice."""
    if access.is_look_up or any(_terms(e) is None for e in access.index):
        return False
    beside = False
    for expr in access.index:
        reach = 1
        terms = _terms(expr) or {}
        for d, factor in sorted(terms.items(), key=lambda term: term[1]):
            if factor < reach:
                return False
            reach = factor * program.sizes[d]
        beside |= any(d in summed for d in terms) and any(d not in summed for d in terms)
    return beside


def _terms(expr: IndexExpr) -> Mapping[str, int] | None:
    """The factor of each dimension of a sum of multiples without an offset; None for others."""
    if expr.is_dim:
        return {expr.name: 1}
    if expr.op == "mul" and expr.args[0].is_dim and expr.value > 0:
        return {expr.args[0].name: expr.value}
    if expr.op == "add":
        left, right = map(_terms, expr.args)
        if left is not None and right is not None and not left.keys() & right.keys():
            return {**left, **right}
    return {} if expr.op == "const" and expr.value == 0 else None


def _by_stride(program: Program, access: Access, dims: Sequence[str]) -> list[str]:
    """The dimensions in the order of memory, the one whose elements are nearest last."""
    strides = program.tensors[access.tensor].element_strides
    step = {
        d: factor * stride
        for e, stride in zip(access.index, strides, strict=True)
        for d, factor in (_terms(e) or {}).items()
    }
    return sorted(dims, key=lambda d: -step[d])


def _merged(program: Program, dims: Sequence[str]) -> Program:
    """The dimensions counted as one, of which the last runs fastest."""
    both = fresh_dim(program, "_".join(dims))
    place, sizes = ix.dim(both), [program.sizes[d] for d in dims]
    exprs = {}
    for n, d in enumerate(dims):
        behind = ix.floordiv(place, prod(sizes[n + 1 :]))
        exprs[d] = ix.mod(behind, sizes[n]) if n else behind
    program = with_dims(program, exprs, {both: prod(sizes)})
    outputs = (replace(o, index=tuple(map(ix.recomposed, o.index))) for o in program.outputs)
    nodes = (
        replace(n, attr=Access(n.access.tensor, tuple(map(ix.recomposed, n.access.index))))
        if n.op == "load"
        else n
        for n in program.nodes
    )
    return replace(program, outputs=tuple(outputs), nodes=tuple(nodes))
