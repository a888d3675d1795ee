"""Pieces: a program cut at values that are stored, and its families from those of the pieces.

Each value that is stored is computed by a piece of its own, the outputs by the last one; a piece
reads what earlier ones stored as it reads inputs. Pieces are programs, so they are searched as any
other. Their families in sequence are a family of the whole.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice, product

from mirage_py.search.extract.lower import kernel_name
from mirage_py.search.space.layouts_in_memory import axes_as_read
from mirage_py.search.space.splits import split_dims
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.dtypes import F32, DType
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.program import Output, Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Kernel, LibraryCall, UGraph
from mirage_py.ugraph.rewrite.rebuild import copied
from mirage_py.ugraph.rewrite.rebuild_block import NewNodes, rebuild_block
from mirage_py.ugraph.rewrite.split_dim import outer_dim, split_attr, split_dim, splits_of

# Families of one cut that are the fastest by the sum over its pieces.
_MOST = 40

# The families of a program with their predicted times, best first.
Timed = Sequence[tuple[float, UGraph]]


def stored_tensors(
    program: Program, values: Sequence[int], kind: DType | None = None
) -> dict[int, Tensor]:
    """A tensor of this type for each value; where none is given they are operands of matmuls, which
    round them to the inputs' type.
    """
    stem = "mid"
    while any(name.startswith(stem) for name in program.tensors):
        stem += "_"
    return {
        value: Tensor(
            f"{stem}{number}",
            tuple(program.sizes[d] for d in axes_as_read(program, program.nodes[value].dims)),
            kind or half_type(program, value) or F32,
        )
        for number, value in enumerate(values)
    }


def half_type(program: Program, value: int) -> DType | None:
    """The one type of the floating-point inputs of a value, if it is a half: matmuls round their
    operands to it anyway.
    """
    read = [n for n in cone(program.nodes, [value]) if program.nodes[n].op == "load"]
    types = (program.tensors[program.nodes[n].access.tensor].dtype for n in read)
    found = tuple(dict.fromkeys(t for t in types if t.is_float))
    return found[0] if len(found) == 1 and found[0].is_half else None


def piece(
    program: Program,
    stored: Mapping[int, Tensor],
    *values: int,
    outputs: Sequence[Output] | None = None,
) -> Program:
    """The part of a program that computes some of the stored values, and these of its outputs: if
    nothing else is said all of them where no value is named, else none. It reads the other values.
    """
    if outputs is None:
        outputs = () if values else program.outputs
    builder = ProgramBuilder(program.name, program.fp32_precision)
    for d in program.dims:
        builder.dim(d.name, d.size)
    for t in program.inputs:
        builder.input(t.name, t.shape, t.dtype, t.strides)
    for t in stored.values():
        builder.input(t.name, t.shape, t.dtype)
    new: list[int] = []
    for number, node in enumerate(program.nodes):
        index = tuple(map(ix.dim, axes_as_read(program, node.dims)))
        if number in stored and number not in values:
            new.append(builder.load(stored[number].name, index))
        else:
            new.append(copied(builder, node, [new[a] for a in node.args]))
        if number in values:
            builder.outputs.append(Output(stored[number], new[number], index))
    builder.outputs.extend(Output(o.tensor, new[o.node], o.index) for o in outputs)
    needed = (builder.nodes[n] for n in cone(builder.nodes, [o.node for o in builder.outputs]))
    read = {t for n in needed if n.op == "load" for t in n.access.tensors}
    builder.inputs = {name: t for name, t in builder.inputs.items() if name in read}
    return builder.build()


def together(
    program: Program, families: Sequence[UGraph], stored: Sequence[Tensor]
) -> UGraph | None:
    """One family for each piece, in sequence; None where they split a dimension in two ways, or
    one loops over what another splits.
    """
    splits: dict[str, int] = {}
    for family in families:
        for dim in split_dims(family.program):
            number = splits_of(family.program, dim)
            if splits.setdefault(dim, number) != number:
                return None
    whole = program
    for dim, number in splits.items():
        whole = split_dim(whole, dim, number)
    return in_sequence(whole, families, stored, splits)


def in_sequence(
    whole: Program,
    families: Sequence[UGraph],
    stored: Sequence[Tensor],
    splits: Collection[str] = (),
) -> UGraph | None:
    """One family for each piece, in sequence, of the program ``whole``, in which the dimensions
    ``splits`` are split; None where one of those is looped over by what does not split it.
    """
    kernels: list[Kernel] = []
    between: list[Tensor] = []
    taken = dict.fromkeys((*whole.tensors, *whole.dim_names, *(t.name for t in stored)))
    for family in families:
        dims = [d for d in whole.dim_names if d in family.program.sizes]
        if tuple(dims) != family.program.dim_names:
            return None
        names = {t.name: _free(t.name, taken) for t in family.intermediates}
        between += [replace(t, name=names[t.name]) for t in family.intermediates]
        for kernel in family.kernels:
            found = _renamed(kernel, names)
            for dim in splits:
                if isinstance(found, BlockGraph) and dim not in split_dims(family.program):
                    if any(s.loop == dim for s in found.sections):
                        return None
                    found = split_block(found, whole, dim)
            kernels.append(found)
    last = families[-1].kernels
    own = [k.name for k in last]  # which may be of a sequence themselves
    made = (kernel_name(f"{whole.name}_made{n}") for n in count())
    free = (name for name in made if name not in own)
    names_of_kernels = [*islice(free, len(kernels) - len(last)), *own]
    if len(kernels) == 2:
        # As chains.py calls them, so that a pair that is found there is not found twice.
        names_of_kernels = [kernel_name(f"{whole.name}_{n}") for n in ("first", "last")]
    named = (replace(k, name=name) for k, name in zip(kernels, names_of_kernels, strict=True))
    return UGraph(whole, tuple(named), (*stored, *between))


def fastest(choices: Sequence[Timed]) -> list[tuple[UGraph, ...]]:
    """One family of each piece: the fastest sums, and every family beside the best of the other
    pieces, as the model errs between kinds.
    """
    sums = ((sum(us for us, _ in chosen), n, chosen) for n, chosen in enumerate(product(*choices)))
    found = [chosen for _, _, chosen in heapq.nsmallest(_MOST, sums)]
    if found:
        for place, others in enumerate(choices):
            found += [(*found[0][:place], other, *found[0][place + 1 :]) for other in others]
    return [tuple(family for _, family in chosen) for chosen in found]


def _free(name: str, taken: dict[str, None]) -> str:
    """The name, longer until no other tensor has it; from now on it is taken."""
    while name in taken:
        name += "_"
    taken[name] = None
    return name


def _renamed(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    """The kernel with other names of its family's tensors."""
    if all(old == new for old, new in names.items()):
        return kernel
    if isinstance(kernel, LibraryCall):
        args = tuple(names.get(a, a) for a in kernel.args)
        return replace(kernel, args=args, result=names.get(kernel.result, kernel.result))

    def renamed(node: Node) -> Node:
        access = node.attr
        if not isinstance(access, Access):
            return node
        return replace(node, attr=replace(access, tensor=names.get(access.tensor, access.tensor)))

    return replace(kernel, nodes=tuple(map(renamed, kernel.nodes)))


def split_block(block: BlockGraph, program: Program, dim: str) -> BlockGraph:
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
