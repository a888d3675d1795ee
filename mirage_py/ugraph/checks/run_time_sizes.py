"""Run-time sizes: dimensions whose size is an argument of a kernel.

The launch option ``sizes`` of a plan's kernels names dimensions, as in ``s,t``. Equations, tiles
and loops of a µGraph do not mention sizes; where its text does (ends of loops, masks of tails,
strides, the number of blocks), a kernel with this option takes an argument. So one kernel computes
the program at every size that its tiles allow. The sizes that the plan itself has are those that
it was tuned for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from mirage_py.errors import InputError
from mirage_py.ugraph.interpret.library import library_shape
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Dim, Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall, UGraph


@dataclass(frozen=True, slots=True)
class RunTimeSizes:
    """``dims`` are known at launch only; ``strides`` are the axes of each tensor whose distance in
    memory depends on them. Both are empty for a plan of fixed sizes.
    """

    dims: tuple[str, ...] = ()
    strides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.dims)


FIXED = RunTimeSizes()


def run_time_dims(plan: Plan) -> tuple[str, ...]:
    """The dimensions whose size the plan's kernels take as an argument, in the program's order."""
    named = {d for options in plan.options for d in options.run_time_sizes}
    return tuple(d for d in plan.ugraph.program.dim_names if d in named)


def run_time_sizes(plan: Plan) -> RunTimeSizes:
    """What of a plan depends on sizes that are known at launch."""
    dims = run_time_dims(plan)
    if not dims:
        return FIXED
    ugraph = plan.ugraph
    inner = _axes_along(ugraph, dims)
    strides = {t.name: _outside(t, inner.get(t.name, ())) for t in ugraph.tensors.values()}
    return RunTimeSizes(dims, {name: axes for name, axes in strides.items() if axes})


def with_run_time_sizes(plan: Plan, dims: Iterable[str]) -> Plan:
    """The plan whose kernels take the sizes of ``dims`` as arguments.

    Raises InputError where one of them is written into the plan: see ``why_fixed``.
    """
    names = plan.ugraph.program.order(tuple(dims))
    for dim in names:
        reason = why_fixed(plan, dim)
        if reason:
            raise InputError(
                f"the size of '{dim}' cannot be an argument",
                where=plan.ugraph.program.name,
                why=reason,
                repair="choose another plan, or keep the size fixed",
            )
    options = tuple(replace(o, run_time_sizes=names) for o in plan.options)
    return replace(plan, options=options)


def why_fixed(plan: Plan, dim: str) -> str:
    """Why a plan holds for one size of ``dim`` alone; empty where it holds for others too."""
    if plan.backend != "triton":
        return f"kernels of the back end {plan.backend} have their sizes written in"
    ugraph = plan.ugraph
    written = {o.tensor.name for o in ugraph.program.outputs}
    written |= {t.name for t in ugraph.intermediates}
    for tensor, index in _indices(ugraph):
        for expr in index:
            if dim not in expr.dims() or expr.is_dim:
                continue
            if tensor in written and _is_leading_digit(expr, dim):
                continue
            return f"{tensor} is addressed by {expr}"
    for node in _nodes(ugraph):
        if isinstance(node.attr, IndexExpr | Predicate):
            divided = [e for e in _exprs(node.attr) if _divides(e) and dim in e.dims()]
            if divided:
                return f"a position is divided: {divided[0]}"
    if source_of(ugraph.program, dim) is None:
        return "no input has an axis that is this dimension and nothing else"
    return ""


def source_of(program: Program, dim: str) -> tuple[str, int] | None:
    """The input and its axis that say how large a dimension is."""
    for node in program.nodes:
        if node.op != "load":
            continue
        shape = program.tensors[node.access.tensor].shape
        for axis, expr in enumerate(node.access.index):
            if expr.is_dim and expr.name == dim and shape[axis] == program.sizes[dim]:
                return node.access.tensor, axis
    return None


def at_sizes(plan: Plan, sizes: Mapping[str, int]) -> Plan:
    """The same plan, tiles and all, for other sizes of its run-time dimensions, which stay so."""
    ugraph = ugraph_at_sizes(plan.ugraph, sizes)
    return replace(plan, ugraph=ugraph)


def ugraph_at_sizes(ugraph: UGraph, sizes: Mapping[str, int]) -> UGraph:
    """The µGraph with other sizes of some dimensions: nodes stay, tensors change."""
    tensors = _resized(ugraph, sizes)
    return replace(
        ugraph,
        program=_program(ugraph.program, sizes, tensors),
        intermediates=tuple(tensors[t.name] for t in ugraph.intermediates),
    )


def program_at_sizes(program: Program, sizes: Mapping[str, int]) -> Program:
    """The program with other sizes of some dimensions: nodes stay, tensors change.

    Right where no index or condition has one of the sizes written in, which a program that was
    built at those sizes tells by being equal.
    """
    return ugraph_at_sizes(UGraph(program, ()), sizes).program


# -- inside ----------------------------------------------------------------------------------------


def _program(program: Program, sizes: Mapping[str, int], tensors: Mapping[str, Tensor]) -> Program:
    return replace(
        program,
        dims=tuple(Dim(d.name, sizes.get(d.name, d.size)) for d in program.dims),
        inputs=tuple(tensors[t.name] for t in program.inputs),
        outputs=tuple(replace(o, tensor=tensors[o.tensor.name]) for o in program.outputs),
    )


def _resized(ugraph: UGraph, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """Every tensor at the new sizes: an axis that a changed dimension runs along follows it."""
    old = ugraph.program.sizes
    new = {**old, **sizes}
    changed = [d for d in old if new[d] != old[d]]
    along = _axes_along(ugraph, changed)
    reach: dict[tuple[str, int], int] = {}
    for tensor, index in _indices(ugraph):
        for axis, expr in enumerate(index):
            if axis in along.get(tensor, ()):
                key = (tensor, axis)
                reach[key] = max(reach.get(key, 0), expr.bounds(new)[1] + 1)
    tensors = dict(ugraph.tensors)
    for name, axes in along.items():
        held = tensors[name]
        shape = tuple(
            reach[name, axis] if axis in axes else extent for axis, extent in enumerate(held.shape)
        )
        tensors[name] = replace(held, shape=shape, strides=_strides(held, shape, axes))
    for kernel in ugraph.kernels:
        if isinstance(kernel, LibraryCall) and any(name in along for name in kernel.args):
            result = tensors[kernel.result]
            shapes = [tensors[name].shape for name in kernel.args]
            tensors[kernel.result] = replace(result, shape=library_shape(kernel, shapes))
    return tensors


def _strides(
    tensor: Tensor, shape: tuple[int, ...], changed: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides of a tensor whose ``changed`` axes have other extents, in the same order of axes."""
    if tensor.strides is None:
        return None
    strides = list(tensor.strides)
    for inner in changed:
        for axis in _outside(tensor, (inner,)):
            strides[axis] = strides[axis] // tensor.shape[inner] * shape[inner]
    return tuple(strides)


def _outside(tensor: Tensor, inner: Iterable[int]) -> tuple[int, ...]:
    """The axes whose step is over one of the axes ``inner``."""
    steps = tensor.element_strides
    axes = []
    for axis, step in enumerate(steps):
        if step == 0 or tensor.shape[axis] == 1:
            continue
        if any(i != axis and 0 < steps[i] and (steps[i], -i) < (step, -axis) for i in inner):
            axes.append(axis)
    return tuple(axes)


def _axes_along(ugraph: UGraph, dims: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The axes of each tensor whose positions one of the dimensions is in."""
    wanted = set(dims)
    found: dict[str, dict[int, None]] = {}
    for tensor, index in _indices(ugraph):
        for axis, expr in enumerate(index):
            if wanted & set(expr.dims()):
                found.setdefault(tensor, {})[axis] = None
    return {tensor: tuple(sorted(axes)) for tensor, axes in found.items()}


def _indices(ugraph: UGraph) -> Iterator[tuple[str, tuple[IndexExpr, ...]]]:
    """Every access to a tensor, of the program and of its kernels."""
    for node in _nodes(ugraph):
        if isinstance(node.attr, Access):
            yield node.attr.tensor, node.attr.index
    for output in ugraph.program.outputs:
        yield output.tensor.name, output.index


def _nodes(ugraph: UGraph) -> Iterator[Node]:
    yield from ugraph.program.nodes
    for kernel in ugraph.kernels:
        if isinstance(kernel, BlockGraph):
            yield from kernel.nodes


def _exprs(attr: IndexExpr | Predicate) -> Iterator[IndexExpr]:
    if isinstance(attr, IndexExpr):
        yield attr
        return
    yield from attr.exprs
    for part in attr.args:
        yield from _exprs(part)


def _divides(expr: IndexExpr) -> bool:
    return expr.op in ("floordiv", "mod") or any(map(_divides, expr.args))


def _is_leading_digit(expr: IndexExpr, dim: str) -> bool:
    """Whether ``expr`` is dim * factor + digits below it, as s * 64 + d is for s and not for d."""
    factors = _factors(expr)
    if factors is None or dim not in factors:
        return False
    return all(factor < factors[dim] for other, factor in factors.items() if other != dim)


def _factors(expr: IndexExpr) -> dict[str, int] | None:
    """The factor of each dimension in a sum of multiples; None for anything else."""
    if expr.op == "dim":
        return {expr.name: 1}
    if expr.op == "mul":
        inner = _factors(expr.args[0])
        return None if inner is None else {d: f * expr.value for d, f in inner.items()}
    if expr.op != "add":
        return None
    left, right = map(_factors, expr.args)
    if left is None or right is None or set(left) & set(right):
        return None
    return {**left, **right}
