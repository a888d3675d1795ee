"""A program at other sizes, with the same meaning of its indices.

Equality that comes from algebra holds at every size, and small ones are cheap to test at. A
dimension may take any size unless an index divides it (h // 4, e % n), where it may have fewer
values of each digit, or a result is laid out by it in a way that is not a plain mixed radix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from mirage_py.errors import InputError, ValidationError
from mirage_py.ugraph.interpret.library import library_shape
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Access, Attr, Node
from mirage_py.ugraph.ir.program import Dim, Output, Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, LibraryCall, UGraph
from mirage_py.verify.sizes.affine import affine, is_mixed_radix, rescaled_radix
from mirage_py.verify.sizes.conditions import Conditions
from mirage_py.verify.sizes.digits import Ends, digit_ends, in_digits, small_ends
from mirage_py.verify.sizes.places import Place, moved_places


def shrink(
    program: Program,
    extents: Mapping[str, int],
    *,
    conditions: Conditions | None = None,
    places: Mapping[Place, int] | None = None,
) -> Program:
    """The program with the given sizes; dimensions without one keep theirs.

    Shapes follow from the bounds of the indices, and so do dimensions of values that are read at
    other indices (see ``covering``); strides are row-major. Offsets in conditions keep their place
    relative to the sizes; ``conditions`` says how, where others have to agree on it. Constant
    positions stay where they are but for those that ``places`` moves. Raises InputError for a
    dimension that cannot change.
    """
    return _Shrinker(program, (), extents, conditions, places).program()


def shrink_ugraph(
    ugraph: UGraph,
    extents: Mapping[str, int],
    tiles: Mapping[str, int] | None = None,
    *,
    conditions: Conditions | None = None,
    places: Mapping[Place, int] | None = None,
) -> UGraph:
    """The µGraph and its program with the given sizes.

    ``tiles`` gives the tile of every grid axis and loop over a dimension; the others become open,
    as in a family (see mirage_py.verify.sizes.small_sizes.instantiate_small).
    """
    kernels = ugraph.in_blocks.kernels
    shrinker = _Shrinker(ugraph.program, kernels, extents, conditions, places)
    return shrinker.ugraph(ugraph, tiles or {})


def fixed_dims(
    program: Program, kernels: Iterable[Kernel] = (), *, but_digits: bool = False
) -> tuple[str, ...]:
    """Dimensions that cannot change their size, in the program's order; ``but_digits`` without
    those that can have the one of ``digit_sizes``.
    """
    if kernels:
        return _fixed_dims(program, tuple(kernels), but_digits)
    return _fixed_in_program(program, but_digits)


@lru_cache(maxsize=64)
def _fixed_in_program(program: Program, but_digits: bool) -> tuple[str, ...]:
    return _fixed_dims(program, (), but_digits)


def _fixed_dims(program: Program, kernels: Sequence[Kernel], but_digits: bool) -> tuple[str, ...]:
    written = {o.tensor.name for o in program.outputs}
    blocks = [k for k in kernels if isinstance(k, BlockGraph)]
    written |= {n.access.tensor for b in blocks for _, n in b.stores()}
    fixed: dict[str, None] = {}
    for o in program.outputs:
        fixed.update(dict.fromkeys(_fixed_in_layout(o.index, program.sizes)))
    for node in _all_nodes(program, blocks):
        attr = node.attr
        if isinstance(attr, Access) and attr.tensor in written:
            fixed.update(dict.fromkeys(_fixed_in_layout(attr.index, program.sizes)))
        else:
            fixed.update(dict.fromkeys(_divided(attr)))
    if but_digits:
        counted = digit_ends(program, (n for b in blocks for n in b.nodes))
        fixed = {d: None for d in fixed if d not in counted}
    return program.order(tuple(fixed))


def digit_sizes(program: Program) -> dict[str, int]:
    """The one small size of each dimension that is divided into digits."""
    return {d: ends[-1] for d, ends in small_ends(digit_ends(program)).items()}


def _changed_digits(program: Program, new: Mapping[str, int]) -> dict[str, tuple[Ends, Ends]]:
    """Where the digits of dimensions with such a size end, before and now."""
    known = digit_ends(program)
    small = small_ends(known)
    return {
        d: (ends, small[d])
        for d, ends in known.items()
        if new[d] != program.sizes[d] and new[d] == small[d][-1]
    }


def covering(program: Program, extents: Mapping[str, int]) -> dict[str, int]:
    """The sizes of all dimensions, those of values that are read at other indices made as large as
    these reach: 3 windows of 2, side by side, need 6 points. Raises InputError where they reach
    beyond a size that cannot change.
    """
    new = {d: extents.get(d, size) for d, size in program.sizes.items()}
    reads = [n for n in reversed(program.nodes) if n.op == "read"]
    if not reads:
        return new
    tables = _small_tables(program, ())
    digits = _changed_digits(program, new)
    nodes = program.nodes
    axes = [a for n in reads for a in zip(nodes[n.args[0]].dims, n.access.index, strict=True)]
    # What is read may itself be read from a larger value: what was read last is settled first.
    grown = ""
    fixed = fixed_dims(program)
    for _ in range(len(new) + 1):
        grown = ""
        for d, expr in axes:
            low, high = _moved(expr, program.sizes, new, tables, digits).bounds(new)
            if low < 0:
                moved = next(e for e in expr.dims() if new[e] != program.sizes[e])
                raise _cannot_change(program, moved, new[moved])
            if high >= new[d] and d in fixed:
                raise _cannot_change(program, d, high + 1)
            if high >= new[d]:
                new[d], grown = high + 1, d
        if not grown:
            return new
    raise _cannot_change(program, grown, new[grown])


def _cannot_change(program: Program, dim: str, extent: int) -> InputError:
    return InputError(
        f"dimension '{dim}' cannot have {extent} instead of {program.sizes[dim]} points",
        where=program.name,
        why="an index divides it, a result is laid out by it, or indices reach beyond it",
        repair="leave it out of the extents",
    )


def _fixed_in_layout(index: tuple[IndexExpr, ...], sizes: Mapping[str, int]) -> Iterator[str]:
    """Dimensions of the axes that are no mixed radix, for tensors that the program writes."""
    for expr in index:
        if not is_mixed_radix(expr, sizes):
            yield from expr.dims()


def _divided(attr: Attr) -> Iterator[str]:
    """Dimensions under a division. Sums keep their meaning at any size."""
    exprs: tuple[IndexExpr, ...] = ()
    if isinstance(attr, Access):
        exprs = attr.index
    elif isinstance(attr, IndexExpr):
        exprs = (attr,)
    elif isinstance(attr, Predicate):
        exprs = attr.exprs
        for part in attr.args:
            yield from _divided(part)
    for expr in exprs:
        yield from _under_division(_of_known_positions(expr))


def _under_division(expr: IndexExpr) -> Iterator[str]:
    if expr.op in ("add", "mul"):
        for part in expr.args:
            yield from _under_division(part)
    elif not expr.is_dim:
        yield from expr.dims()


def _of_known_positions(expr: IndexExpr) -> IndexExpr:
    """With one position in the place of those that are data: they are inside of any extent."""
    return ix.const(0) if is_known_position(expr) else expr


def is_known_position(expr: IndexExpr) -> bool:
    """Whether it is a position that is data, and inside of any extent."""
    return expr.op == "mod" and bool(expr.tensors())


def small_places(
    program: Program,
    kernels: Iterable[Kernel],
    extents: Mapping[str, int],
    *,
    others: Iterable[Program] = (),
) -> Mapping[Place, int]:
    """Where the constant positions of a program go at other sizes, together with those of kernels
    of it and of other programs with its dimensions.
    """
    kernels = tuple(kernels)
    new, tables = covering(program, extents), _small_tables(program, kernels)
    digits = _changed_digits(program, new)
    return moved_places(
        [*_all_nodes(program, kernels), *(n for other in others for n in other.nodes)],
        lambda e: e.bounds(program.sizes),
        lambda e: _moved(e, program.sizes, new, tables, digits).bounds(new),
    )


def predicates_of(program: Program, kernels: Iterable[Kernel] = ()) -> list[Predicate]:
    """The conditions of all masks."""
    return [n.attr for n in _all_nodes(program, kernels) if isinstance(n.attr, Predicate)]


def _all_nodes(program: Program, kernels: Iterable[Kernel]) -> list[Node]:
    blocks = [k for k in kernels if isinstance(k, BlockGraph)]
    return [*program.nodes, *(n for b in blocks for n in b.nodes)]


class _Shrinker:
    """Rewrites indices for other sizes; a tensor's shape covers every access to it."""

    def __init__(
        self,
        program: Program,
        kernels: Iterable[Kernel],
        extents: Mapping[str, int],
        conditions: Conditions | None,
        places: Mapping[Place, int] | None,
    ) -> None:
        self._program = program
        self._kernels = tuple(kernels)
        self._old = program.sizes
        self._new = covering(program, extents)
        self._digits = _changed_digits(program, self._new)
        self._check()
        self._conditions = conditions or Conditions(
            predicates_of(program, self._kernels), self._old, self._new
        )
        self._tables = _small_tables(program, self._kernels)
        self._places = places or {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for node in _all_nodes(program, self._kernels):
            if isinstance(node.attr, Access):
                self._cover(node.attr.tensor, self._at(node.attr).index)
        for o in program.outputs:
            self._cover(o.tensor.name, self._index(o.index))

    def _check(self) -> None:
        fixed = fixed_dims(self._program, self._kernels)
        changed = [d for d in fixed if self._new[d] != self._old[d]]
        if not changed:
            return
        but_digits = fixed_dims(self._program, self._kernels, but_digits=True)
        for d in changed:
            if d in but_digits or d not in self._digits:
                raise _cannot_change(self._program, d, self._new[d])

    def program(self) -> Program:
        program = self._program
        return replace(
            program,
            dims=tuple(Dim(d, size) for d, size in self._new.items()),
            inputs=tuple(self._tensor(t) for t in program.inputs),
            nodes=tuple(self._node(n) for n in program.nodes),
            outputs=tuple(
                Output(self._tensor(o.tensor), o.node, self._index(o.index))
                for o in program.outputs
            ),
        )

    def ugraph(self, ugraph: UGraph, tiles: Mapping[str, int]) -> UGraph:
        kernels: list[Kernel] = []
        for kernel in ugraph.kernels:
            if isinstance(kernel, LibraryCall) and kernel.body is not None:
                kernels.append(replace(kernel, body=self._block(kernel.body, {})))
            elif isinstance(kernel, LibraryCall):
                shapes = [self._shape(name) for name in kernel.args]
                self._shapes[kernel.result] = library_shape(kernel, shapes)
                kernels.append(kernel)
            else:
                kernels.append(self._block(kernel, tiles))
        return UGraph(
            self.program(), tuple(kernels), tuple(self._tensor(t) for t in ugraph.intermediates)
        )

    def _block(self, block: BlockGraph, tiles: Mapping[str, int]) -> BlockGraph:
        return replace(
            block,
            grid=tuple(replace(a, tile=tiles.get(a.dim)) for a in block.grid),
            nodes=tuple(self._node(n) for n in block.nodes),
            sections=tuple(
                replace(s, tile=tiles.get(s.loop) if s.loop else None) for s in block.sections
            ),
        )

    def _cover(self, tensor: str, index: tuple[IndexExpr, ...]) -> None:
        for element in dict.fromkeys(part for e in index for part in e.elements()):
            self._cover(element.name, element.args)
        reached = tuple(e.bounds(self._new)[1] + 1 for e in index)
        known = self._shapes.get(tensor, reached)
        self._shapes[tensor] = tuple(map(max, known, reached))

    def _tensor(self, tensor: Tensor) -> Tensor:
        return Tensor(tensor.name, self._shape(tensor.name), tensor.dtype)

    def _shape(self, name: str) -> tuple[int, ...]:
        if name not in self._shapes:
            raise ValidationError(
                f"tensor '{name}' is read before it is written, or never written",
                where=self._program.name,
                repair="order the kernels so that writers come first",
            )
        return self._shapes[name]

    def _node(self, node: Node) -> Node:
        attr = node.attr
        if isinstance(attr, Access):
            return replace(node, attr=self._at(attr))
        if isinstance(attr, Predicate):
            return replace(node, attr=self._conditions.moved(attr))
        return node

    def _at(self, access: Access) -> Access:
        index = list(self._index(access.index))
        for axis, expr in enumerate(access.index):
            if expr.op == "const":
                place = self._places.get((access.tensor, axis, expr.value), expr.value)
                index[axis] = ix.const(place)
        return Access(access.tensor, tuple(index))

    def _index(self, index: tuple[IndexExpr, ...]) -> tuple[IndexExpr, ...]:
        tables, digits = self._tables, self._digits
        return tuple(_moved(e, self._old, self._new, tables, digits) for e in index)


def _moved(
    expr: IndexExpr,
    old: Mapping[str, int],
    new: Mapping[str, int],
    tables: Mapping[int, int],
    digits: Mapping[str, tuple[Ends, Ends]],
) -> IndexExpr:
    """The index at other sizes."""
    if any(d in digits for d in expr.dims()) and affine(expr) is None:
        return in_digits(expr, digits)
    if not expr.is_dim and is_mixed_radix(expr, old):
        return rescaled_radix(expr, old, new)
    return _in_tables(expr, tables)


def _small_tables(program: Program, kernels: Iterable[Kernel]) -> dict[int, int]:
    """Small extents, all different, for those that looked-up positions are taken modulo."""
    loads = [n.access for n in _all_nodes(program, kernels) if n.op == "load"]
    found = {v for a in loads if a.is_look_up for e in a.index for v in _moduli(e)}
    return {old: min(old, 11 + 2 * n) for n, old in enumerate(sorted(found))}


def _moduli(expr: IndexExpr) -> Iterator[int]:
    if expr.op == "mod" and expr.tensors():
        yield expr.value
    for part in expr.args:
        yield from _moduli(part)


def _in_tables(expr: IndexExpr, tables: Mapping[int, int]) -> IndexExpr:
    if not expr.tensors():
        return expr
    args = tuple(_in_tables(a, tables) for a in expr.args)
    value = tables.get(expr.value, expr.value) if expr.op == "mod" else expr.value
    return replace(expr, args=args, value=value)
