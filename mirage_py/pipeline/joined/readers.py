"""Parts that read the result of a convolution, and whether they can compute it themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mirage_py.pipeline.joined.geometry import Axis
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.convolution import Convolution
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.node import REDUCING
from mirage_py.ugraph.ir.program import Output, Program, Tensor
from mirage_py.ugraph.ir.renaming import free_name
from mirage_py.ugraph.rewrite.dims import fresh_dim, with_dims
from mirage_py.ugraph.rewrite.merged_dims import with_merged_rows, with_merged_run

# Channels of the result that a block can hold if the reader reduces over them.
_MOST_REDUCED = 256


@dataclass(frozen=True, slots=True)
class Reader:
    """A part, the number of its only load of the result, and its phase dimension for each axis."""

    program: Program
    place: int
    phases: Mapping[int, str]


def prepared_reader(
    part: Program, name: str, spec: Convolution, along: Sequence[Axis]
) -> Reader | None:
    """The part with dimensions that fit the matmul; None if it cannot compute the result ``name``
    itself: it has to use each element once, and a block has to hold all that it reduces over.
    """
    phases = {n: fresh_dim(part, f"r{n}") for n, axis in enumerate(along) if axis.phases > 1}
    if phases:
        split = _with_phases(part, name, spec, along, phases)
        if split is None:
            return None
        reader = split
    else:
        reader = _with_one_place(part, name, spec)
    place = _only_load(reader, name, spec)
    return None if place is None else Reader(reader, place, phases)


def storing(result: Tensor, taken: set[str]) -> tuple[Program, str]:
    """A part that only stores a result, and the name of the tensor that it reads."""
    given = free_name(f"{result.name}_given", taken)
    builder = ProgramBuilder(f"{result.name}_stored")
    names = [f"a{n}" for n in range(len(result.shape))]
    builder.sizes.update(zip(names, result.shape, strict=True))
    builder.inputs[given] = Tensor(given, result.shape, result.dtype)
    index = tuple(map(ix.dim, names))
    builder.outputs.append(Output(result, builder.load(given, index), index))
    return builder.build(), given


def _with_one_place(reader: Program, name: str, spec: Convolution) -> Program:
    """The reader with the spatial axes merged into one dimension, if it allows that."""
    (load,) = [x for x in reader.nodes if x.op == "load" and x.access.tensor == name][:1]
    found = dict(zip(spec.axes[2], load.access.index, strict=True))
    # The result lacks an axis along which it has one place.
    along = [found[str(n)] for n in range(spec.rank) if str(n) in found]
    merged = reader
    if along and all(e.is_dim for e in along):
        merged = with_merged_run(reader, [e.name for e in along])
    if merged == reader:
        # Rows of one channel only: channels are the columns of the matmul.
        rows = with_merged_rows(reader)
        merged = rows if _only_load(rows, name, spec) is not None else reader
    return merged


def _with_phases(
    reader: Program,
    name: str,
    spec: Convolution,
    along: Sequence[Axis],
    phases: Mapping[int, str],
) -> Program | None:
    """The reader with phases as dimensions; None if one of its dimensions does not cover all
    results along an axis, each place with all its phases.
    """
    (load,) = [x for x in reader.nodes if x.op == "load" and x.access.tensor == name][:1]
    found = dict(zip(spec.axes[2], load.access.index, strict=True))
    exprs: dict[str, IndexExpr] = {}
    sizes: dict[str, int] = {}
    for n, phase in phases.items():
        axis, at = along[n], found.get(str(n))
        if at is None or not at.is_dim or reader.sizes[at.name] != axis.places * axis.phases:
            return None
        place = fresh_dim(reader, f"{at.name}_at")
        sizes |= {place: axis.places, phase: axis.phases}
        exprs[at.name] = ix.dim(place) * axis.phases + ix.dim(phase)
    for node in reader.nodes:
        is_counted = node.op == "size" and str(node.attr) in exprs
        if is_counted or (node.op in REDUCING and exprs.keys() & {*node.reduced}):
            return None
    return with_dims(reader, exprs, sizes)


def _only_load(reader: Program, name: str, spec: Convolution) -> int | None:
    loads = [n for n, x in enumerate(reader.nodes) if x.op == "load" and x.access.tensor == name]
    if len(loads) != 1 or any(x.op in ("matmul", "read") for x in reader.nodes):
        return None
    (place,) = loads
    node = reader.nodes[place]
    if node.access.is_look_up or len(node.access.dims()) < len(node.dims):
        return None
    channel = node.access.index[spec.axes[2].index("o")]
    others = [e for e in node.access.index if e is not channel]
    if any(d in e.dims() for e in others for d in channel.dims()):
        return None
    reduced = dict.fromkeys(d for x in reader.nodes if x.op in REDUCING for d in x.reduced)
    inside = [d for d in reduced if d in node.dims]
    if not inside:
        return place
    whole = reader.sizes.get(channel.name, 0) if channel.is_dim else 0
    return place if inside == [channel.name] and 0 < whole <= _MOST_REDUCED else None
