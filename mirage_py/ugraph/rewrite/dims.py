"""Changes of dimensions of a program: two that are one loop, or one that is counted in two.

Inputs and outputs keep their names and shapes, so a µGraph of the new program implements the old
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.data_flow import reads_of
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import REDUCING, Access, Node
from mirage_py.ugraph.ir.program import Output, Program
from mirage_py.ugraph.rewrite.rebuild import copied


def with_dims(
    program: Program, exprs: Mapping[str, IndexExpr], sizes: Mapping[str, int]
) -> Program:
    """Each dimension d of ``exprs`` is ``exprs[d]``; ``sizes`` has those that are new or change."""
    builder = ProgramBuilder(program.name, program.fp32_precision)
    for d in program.dims:
        for name in (*exprs[d.name].dims(), d.name) if d.name in exprs else (d.name,):
            size = sizes.get(name, d.size if name == d.name and d.name not in exprs else 0)
            if size and name not in builder.sizes:
                builder.dim(name, size)
    for tensor in program.inputs:
        builder.input(tensor.name, tensor.shape, tensor.dtype, tensor.strides)
    new: list[int] = []
    for node in program.nodes:
        args = [new[a] for a in node.args]
        if node.op == "read":
            new.append(_read(builder, node, program.nodes[node.args[0]].dims, args[0], exprs))
        else:
            new.append(_substituted(builder, node, args, exprs))
    builder.outputs.extend(
        Output(o.tensor, new[o.node], tuple(e.substitute(exprs) for e in o.index))
        for o in program.outputs
    )
    return builder.build()


def with_columns_last(program: Program) -> Program:
    """The last axis of the first output is the last of its dimensions in the order of the program,
    where there are matmuls.

    Tiles have their sides in that order, and a matmul whose results are in memory along its rows
    would have them the wrong way round: an exponential that it multiplies by would be its second
    operand, which tensor cores take from shared memory only.
    """
    index = program.outputs[0].index
    names = [d for e in index for d in e.dims()]
    multiplies = any(n.op == "matmul" for n in program.nodes)
    if not multiplies or not names or not index[-1].is_dim or names.count(names[-1]) > 1:
        return program
    *others, last = names
    place = {d: n for n, d in enumerate(program.dim_names)}
    behind = max((place[d] for d in others), default=0)
    if place[last] >= behind:
        return program
    order = sorted(program.dims, key=lambda d: behind + 0.5 if d.name == last else place[d.name])
    return with_dims(replace(program, dims=tuple(order)), {}, {})


def reduced_dims(program: Program) -> list[str]:
    """The dimensions that some node reduces, in the order of the nodes."""
    nodes = [n for n in program.nodes if n.op in REDUCING]
    return list(dict.fromkeys(d for n in nodes for d in n.reduced))


def own_columns(program: Program) -> list[tuple[str, ...]]:
    """Of each output that has such dimensions, those that no other output has: not reduced
    anywhere, and with data of their own to be multiplied with.
    """
    reduced = dict.fromkeys(reduced_dims(program))
    found = []
    for output in program.outputs:
        others = [program.nodes[o.node].dims for o in program.outputs if o is not output]
        own = tuple(
            d
            for d in program.nodes[output.node].dims
            if d not in reduced and not any(d in dims for dims in others)
            if _is_multiplied(program, d, reduced)
        )
        found += [own] if own else []
    return found


def meet(program: Program, a: str, b: str) -> bool:
    """Whether some value depends on both dimensions: as one they would be its diagonal."""
    for node in program.nodes:
        seen = {*node.dims, *(d for x in node.args for d in program.nodes[x].dims)}
        if a in seen and b in seen:
            return True
    return False


def with_shared_reads(program: Program) -> Program:
    """Two reads of a tensor that differ in the name of a dimension are one: latent attention reads
    the same rows as keys by one name of their columns and as values by another, and a norm what it
    sums over and what it scales.
    """
    while True:
        for one, other in _alike(program):
            if not meet(program, one, other):
                program = with_dims(program, {other: ix.dim(one)}, {})
                break
        else:
            return program


def _alike(program: Program) -> Iterator[tuple[str, str]]:
    """Dimensions in which two loads differ that are otherwise equal.

    Of operands of matmuls one is reduced, by matmuls alone, and the other kept. Else one is reduced
    by sums and maxima alone, as that of a norm, and the other is kept, or reduced so, too; or it is
    summed over by a matmul, where no matmul knows the first: columns of a matmul's result that are
    those of its operand by another name are split over a grid.
    """
    users = reads_of(program.nodes)
    contracted = {d for n in program.nodes if n.op == "matmul" for d in n.reduced}
    reduced = {d for d in reduced_dims(program) if d not in contracted}
    # Dimensions that end in a sum or maximum, before any matmul.
    kept = {d for o in program.outputs for d in program.nodes[o.node].dims}
    kept |= {d for n in program.nodes if n.op == "matmul" for d in n.dims}
    bound = reduced - kept
    loads: list[tuple[Access, set[str] | None]] = []
    for node, readers in zip(program.nodes, users, strict=True):
        matmuls = [program.nodes[r] for r in readers if program.nodes[r].op == "matmul"]
        if node.op == "load":
            of_matmuls = {d for m in matmuls for d in m.reduced}
            loads.append((node.access, of_matmuls if len(matmuls) == len(readers) else None))
    for (one, of_one), (other, of_other) in combinations(loads, 2):
        if one.tensor != other.tensor:
            continue
        pairs = [(a, b) for a, b in zip(one.index, other.index, strict=True) if a != b]
        if len(pairs) != 1 or not all(e.is_dim for e in pairs[0]):
            continue
        first, second = (e.name for e in pairs[0])
        if program.sizes[first] != program.sizes[second]:
            continue
        if of_one is not None and of_other is not None:
            if (first in of_one) != (second in of_other):
                yield first, second
        elif contracted & {first, second}:
            if (first in contracted and second in bound) or (
                first in bound and second in contracted
            ):
                yield first, second
        elif first in reduced or second in reduced:
            yield first, second


def fresh_dim(program: Program, name: str) -> str:
    """The name, with a number behind it where a dimension or tensor is called so."""
    taken = [*program.sizes, *program.tensors]
    return next(n for n in (name, *(f"{name}_{k}" for k in range(len(taken)))) if n not in taken)


def _read(
    builder: ProgramBuilder,
    node: Node,
    dims: Sequence[str],
    operand: int,
    exprs: Mapping[str, IndexExpr],
) -> int:
    """A value that had ``dims`` at the same indices, in the order of the dimensions it has now."""
    now = [exprs.get(d, ix.dim(d)) for d in dims]
    if not all(e.is_dim for e in now):
        raise UnsupportedError(
            "a stored value is read whose dimensions are split", where=builder.name
        )
    index = [e.substitute(exprs) for e in node.access.index]
    at = dict(zip((e.name for e in now), index, strict=True))
    return builder.read(operand, [at[d] for d in builder.nodes[operand].dims])


def _substituted(
    builder: ProgramBuilder, node: Node, args: Sequence[int], exprs: Mapping[str, IndexExpr]
) -> int:
    attr = node.attr
    if node.op == "load":
        return builder.load(node.access.tensor, [e.substitute(exprs) for e in node.access.index])
    if isinstance(attr, IndexExpr):
        return builder.index(attr.substitute(exprs))
    if isinstance(attr, Predicate):
        return builder.mask(attr.substitute(exprs))
    if node.op == "size":
        # The sums that were merged are over dimensions of one size.
        return builder.size(exprs[str(attr)].dims()[0] if str(attr) in exprs else str(attr))
    if node.op not in REDUCING:
        return copied(builder, node, args)
    over = [exprs[d].dims()[0] if d in exprs else d for d in node.reduced]
    if node.op == "matmul":
        return builder.matmul(args[0], args[1], over)
    return (builder.sum if node.op == "sum" else builder.max)(args[0], over)


def _is_multiplied(program: Program, dim: str, reduced: Mapping[str, None]) -> bool:
    loads = [n for n in program.nodes if n.op == "load" and dim in n.dims]
    return any(d in reduced for n in loads for d in n.dims)
