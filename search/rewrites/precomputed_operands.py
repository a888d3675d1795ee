"""Precomputed operands: an operand of a matmul gets a kernel of its own, before all others.

An operand that takes a reduction (a normalised key) is computed by every block that multiplies by
it, unless an earlier kernel stores it. With two kernels in a family, one is then that kernel and
the other has all the rest, which can no longer be split. So the program is cut at such a value: the
kernel for it is searched, the rest is searched as a program with one more input, and every family
of the rest follows a kernel for the value, stored in the type in which matmuls read it. The rest of
attention with normalised keys is attention, so all families of attention are found for it.

Norms are not special here: it is a rewrite whose result is verified like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from mirage_py.search.space.abstraction import reduced_dims
from mirage_py.search.space.layouts_in_memory import axes_as_read
from mirage_py.search.space.splits import split_dims
from mirage_py.search.tilings.kinds import CLUSTER, ONE_KERNEL, SPLIT, kind_of
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.program import Output, Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, UGraph
from mirage_py.ugraph.rewrite.inner_scales import with_inner_scales
from mirage_py.ugraph.rewrite.rebuild import copied
from mirage_py.ugraph.rewrite.rebuild_block import NewNodes, rebuild_block
from mirage_py.ugraph.rewrite.split_dim import outer_dim, split_attr, split_dim, splits_of

# Families of the rest to combine with kernels for the operands, of each of these kinds: a rest with
# values between its kernels is found without a cut.
_RESTS = 30
_KINDS = (ONE_KERNEL, SPLIT, CLUSTER)
# A value is computed row by row where a block can hold a row, else in loops.
_MAX_ROW_ELEMENTS = 8192
# Of the largest operand, how large others have to be.
_LARGE = 0.25

Search = Callable[[Program], Sequence[UGraph]]


def with_precomputed_operands(
    program: Program, search: Search, independent: Search = lambda _: ()
) -> list[UGraph]:
    """Families in which kernels of their own precompute operands of matmuls; none where there is
    no such operand. ``search`` finds the safe families of a program, cheapest first, and
    ``independent`` those in which outputs have kernels of their own.
    """
    dtype, cut = _half_type(program), program
    chosen = _cut(program)
    if not chosen:
        # A scale of several matmuls is worth computing once; a scale after one is found anyway.
        cut = with_inner_scales(program)
        chosen = tuple(v for v in _cut(cut) if _matmul_users(cut, v) > 1)
    if dtype is None or not chosen:
        return []
    tensors = {v: _tensor(cut, v, n, dtype) for n, v in enumerate(chosen)}
    stored = [_producer(cut, v, t, search) for v, t in tensors.items()]
    first = [m for m in stored if m is not None]
    if len(first) < len(stored):
        return []
    left = _rest(cut, tensors)
    rests = [*_kept(search(left)), *independent(left)]
    split = (_together(program, rest, first, tuple(tensors.values())) for rest in rests)
    return list({u.digest: u for u in split if u is not None}.values())


def _cut(program: Program) -> tuple[int, ...]:
    """The values to precompute: the largest operands. A small one costs its blocks less than
    another kernel (queries beside keys, on an H200: 1.2 us).
    """
    sizes = {v: prod(program.sizes[d] for d in program.nodes[v].dims) for v in _operands(program)}
    return tuple(v for v, size in sizes.items() if size >= _LARGE * max(sizes.values()))


def _operands(program: Program) -> tuple[int, ...]:
    """Operands of a matmul that take a reduction but no matmul and no exponential, and that lack a
    dimension of the other operand: blocks along it would compute them again.
    """
    nodes = program.nodes
    found: dict[int, None] = {}
    for node in nodes:
        if node.op != "matmul":
            continue
        for mine, other in (node.args, node.args[::-1]):
            needed = [nodes[n] for n in cone(program.nodes, [mine])]
            reduces = any(n.op in ("sum", "max") for n in needed)
            plain = all(n.op not in ("exp", "matmul") for n in needed)
            repeated = any(d not in nodes[mine].dims for d in nodes[other].dims)
            if reduces and plain and repeated and nodes[mine].op not in ("sum", "max"):
                found[mine] = None
    return tuple(sorted(found))


def _matmul_users(program: Program, value: int) -> int:
    """How many matmuls read a value."""
    return sum(n.op == "matmul" and value in n.args for n in program.nodes)


def _half_type(program: Program) -> DType | None:
    """The one type of all inputs, if it is a half: matmuls round their operands to it anyway."""
    types = {t.dtype.name: t.dtype for t in program.inputs}
    (found, *others) = types.values()
    return found if not others and found.is_half else None


def _tensor(program: Program, value: int, number: int, dtype: DType) -> Tensor:
    stem = "mid"
    while any(name.startswith(stem) for name in program.tensors):
        stem += "_"
    shape = tuple(program.sizes[d] for d in axes_as_read(program, program.nodes[value].dims))
    return Tensor(f"{stem}{number}", shape, dtype)


def _begun(program: Program) -> ProgramBuilder:
    builder = ProgramBuilder(program.name)
    for d in program.dims:
        builder.dim(d.name, d.size)
    for t in program.inputs:
        builder.input(t.name, t.shape, t.dtype, t.strides)
    return builder


def _built(builder: ProgramBuilder) -> Program:
    """Without inputs that nothing reads."""
    needed = (builder.nodes[n] for n in cone(builder.nodes, [o.node for o in builder.outputs]))
    read = {t for n in needed if n.op == "load" for t in n.access.tensors}
    builder.inputs = {name: t for name, t in builder.inputs.items() if name in read}
    return builder.build()


def _rest(program: Program, made: dict[int, Tensor]) -> Program:
    """The program with values read from tensors."""
    builder = _begun(program)
    for t in made.values():
        builder.input(t.name, t.shape, t.dtype)
    new: list[int] = []
    for number, node in enumerate(program.nodes):
        tensor = made.get(number)
        args = [new[a] for a in node.args]
        if tensor is not None:
            new.append(
                builder.load(tensor.name, tuple(map(ix.dim, axes_as_read(program, node.dims))))
            )
        else:
            new.append(copied(builder, node, args))
    builder.outputs.extend(Output(o.tensor, new[o.node], o.index) for o in program.outputs)
    return _built(builder)


def _producer(program: Program, value: int, tensor: Tensor, search: Search) -> BlockGraph | None:
    """The cheapest kernel that stores a value, without loops where a block can hold a row."""
    builder = _begun(program)
    new: list[int] = []
    for node in program.nodes[: value + 1]:
        new.append(copied(builder, node, [new[a] for a in node.args]))
    index = tuple(map(ix.dim, axes_as_read(program, program.nodes[value].dims)))
    builder.outputs.append(Output(tensor, new[value], index))
    made = _built(builder)
    found = [u.kernels[0] for u in search(made) if kind_of(u) == ONE_KERNEL]
    blocks = [k for k in found if isinstance(k, BlockGraph)]
    row = prod(made.sizes[d] for d in reduced_dims(made))
    straight = [b for b in blocks if not b.has_loops]
    looped = [b for b in blocks if b not in straight]
    chosen = (*straight, *looped) if row <= _MAX_ROW_ELEMENTS else (*looped, *straight)
    return next(iter(chosen), None)


def _kept(families: Sequence[UGraph]) -> list[UGraph]:
    """The cheapest of each kind."""
    counts: dict[str, int] = {}
    kept = []
    for family in families:
        kind = kind_of(family)
        counts[kind] = counts.get(kind, 0) + 1
        if kind in _KINDS and counts[kind] <= _RESTS:
            kept.append(family)
    return kept


def _together(
    program: Program, rest: UGraph, first: Sequence[BlockGraph], made: Sequence[Tensor]
) -> UGraph | None:
    """The kernels for the operands, then those of the rest; None where one of the former loops over
    a dimension that the rest splits.
    """
    split = program
    kernels = list(first)
    for dim in split_dims(rest.program):
        splits = splits_of(rest.program, dim)
        split = split_dim(split, dim, splits)
        if any(s.loop == dim for k in kernels for s in k.sections):
            return None
        kernels = [_split(k, split, dim) for k in kernels]
    if split.dim_names != rest.program.dim_names:
        return None
    every = (*kernels, *rest.kernels)
    names = [f"{program.name}_made{n}" for n in range(len(kernels))]
    names += [k.name for k in rest.kernels]
    if len(every) == 2:
        # As chains.py calls them, so that a pair that is found there is not found twice.
        names = [f"{program.name}_first", f"{program.name}_last"]
    named = (replace(k, name=name) for k, name in zip(every, names, strict=True))
    return UGraph(split, tuple(named), (*made, *rest.intermediates))


def _split(block: BlockGraph, program: Program, dim: str) -> BlockGraph:
    """A kernel without loops over a dimension in a program that has it in two halves."""
    outer = outer_dim(dim)
    exprs = {dim: ix.dim(outer) * program.sizes[dim] + ix.dim(dim)}

    def rule(new: NewNodes, number: int) -> int:
        node = block.nodes[number]
        if node.op == "size" and node.attr == dim:
            return new.add("mul", (new.add("size", (), outer), new.add("size", (), dim)))
        dims = program.order((*node.dims, outer) if dim in node.dims else node.dims)
        args = [new.place[a] for a in node.args]
        return new.add(node.op, args, split_attr(node, dim, exprs), dims)

    grid: list[GridAxis] = []
    for axis in block.grid:
        if axis.dim == dim:
            grid.append(GridAxis(outer))
        grid.append(axis)
    return replace(rebuild_block(block, rule), grid=tuple(grid))
