"""From a region's graph and its inputs' sizes to a program, by the front end's own handlers."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from mirage_py.dynamo.regions.common_dims import with_common_dims
from mirage_py.dynamo.regions.nodes import (
    base_name,
    is_write,
    placing,
    tensors_of,
    written_value,
)
from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.capture.capture import Capture
from mirage_py.frontend.torch.lower.inputs import check_input, declare_inputs, drop_unread
from mirage_py.frontend.torch.lower.lowering import BYTE_FLOATS, Lowering
from mirage_py.frontend.torch.outputs import declare_outputs
from mirage_py.frontend.torch.walk import lower
from mirage_py.pipeline.partition.limits import is_searched_whole, operator_count
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.look_ups import position_of
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.renaming import tidy_dims
from mirage_py.ugraph.rewrite.column_parts import with_column_parts
from mirage_py.ugraph.rewrite.placements import PLACE, Placement, goes_up_by_one

REGION = "region"
_NUMBER = "number"


class RefusedNodeError(UnsupportedError):
    """A node that can be in no program: ``number`` is its place in the graph of the region."""

    def __init__(self, error: UnsupportedError, number: int) -> None:
        super().__init__(
            error.what, where=error.where, why=error.why, repair=error.repair, code=error.code
        )
        self.number = number


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """A tensor without its data."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorLayout:
        """The layout of a tensor whose sizes are numbers."""
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)


@dataclass(frozen=True, slots=True)
class RegionResult:
    """One result of a region: output ``number`` of its program, and how torch lays it out.

    The program writes row-major tensors: ``order`` are the axes of the result by descending
    stride, which is what the program writes; the result is a view of that with ``strides``. Where
    no order of axes gives them, the result ``is_copy``. ``dtype`` is torch's, which a program has
    no float64 of.
    """

    number: int
    order: tuple[int, ...]
    strides: tuple[int, ...]
    is_copy: bool = False
    dtype: torch.dtype | None = None

    def arranged(self, written: torch.Tensor) -> torch.Tensor:
        """The result, laid out as torch expects it, from what the program wrote."""
        inverse = _inverse(self.order)
        result = written if inverse is None else written.permute(inverse)
        if result.stride() == self.strides:
            return result
        if not self.is_copy:  # they differ along axes of extent 1, where strides say nothing
            return result.as_strided(result.shape, self.strides)
        copy = torch.empty_strided(
            result.shape, self.strides, dtype=result.dtype, device=result.device
        )
        return copy.copy_(result)

    def written(self, result: torch.Tensor) -> torch.Tensor:
        """What the program would write for a result."""
        return result.permute(self.order)


@dataclass(frozen=True, slots=True)
class RegionWrite:
    """A result that goes to a place in the region's input number ``input``; the position is made of
    elements of the inputs number ``read``.
    """

    placement: Placement
    input: int
    read: tuple[int, ...]

    def put(self, value: torch.Tensor, inputs: Sequence[Any]) -> None:
        """Write a value that a kernel has made elsewhere."""
        inputs[self.input].index_copy_(self.placement.axis, self._position(inputs), value)

    def _position(self, inputs: Sequence[Any]) -> torch.Tensor:
        from mirage_py.runtime.launch.placed_runner import positions

        named = zip(self.placement.read, self.read, strict=True)
        read = {t.name: inputs[n] for t, n in named}
        return positions(self.placement, read, inputs[self.input].device)


@dataclass(frozen=True, slots=True)
class RegionProgram:
    """A program; its inputs are the region's inputs number ``inputs``, its outputs ``results``.
    ``constants`` are names of inputs that no kernel around the region writes, ``dims`` dimensions
    whose size may be another at each call. The program makes what ``writes`` put in their places;
    these are the last of ``results`` that the region's graph returns as whole tensors.
    """

    program: Program
    inputs: tuple[int, ...]
    results: tuple[RegionResult, ...]
    constants: tuple[str, ...] = ()
    writes: tuple[RegionWrite, ...] = ()
    dims: tuple[str, ...] = ()


def region_program(module: GraphModule, inputs: Sequence[TensorLayout | int]) -> RegionProgram:
    """The program of a region for inputs of these layouts and sizes.

    Tensors of float64 are taken for float32: no kernel takes them, but a reference computed from
    the program may. Raises RefusedNodeError where a node cannot be in a program, and
    UnsupportedError or InputError where all of it cannot.
    """
    graph = _concrete(module.graph, inputs)
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    (output,) = (n for n in graph.nodes if n.op == "output")
    (original,) = (n for n in module.graph.nodes if n.op == "output")
    results: list[RegionResult] = []
    nodes: list[Node] = []
    places: dict[int, Node] = {}
    for output_number, result in enumerate(output.args[0]):
        node = result
        if is_write(node):
            places[output_number] = node
            node = written_value(node)
        # A kernel writes a part of a tensor with the axes of the tensor.
        rows = node.meta["val"].contiguous() if output_number in places else node.meta["val"]
        laid_out = _result(output_number, rows)
        results.append(replace(laid_out, dtype=_dtype_of(original.args[0][output_number])))
        order = results[-1].order
        with graph.inserting_before(output):
            permuted = graph.call_function(torch.ops.aten.permute.default, (node, order))
            permuted.meta["val"] = node.meta["val"].permute(order)
            # What is written in place may be a tensor from outside, as values are.
            if output_number in places:
                permuted = graph.call_function(torch.ops.aten.clone.default, (permuted,))
                permuted.meta["val"] = node.meta["val"].permute(order)
        nodes.append(permuted)
    output.args = (tuple(nodes),)
    lowering = Lowering(ProgramBuilder(REGION), REGION)
    arrays: dict[Node, Any] = {}
    wanted = {n: (n.name, n.meta["val"]) for n in placeholders}
    for name, tensor in wanted.values():
        check_input(tensor, name, REGION)
    names = declare_inputs(lowering, wanted, arrays)
    placings = {number: found for number, n in places.items() if (found := placing(n))}
    positions = [p.positions for p in placings.values() if isinstance(p.positions, Node)]
    needed = [*nodes, *positions]
    try:
        lower(lowering, graph, arrays, needed)
    except UnsupportedError as error:
        number = lowering.node_in_hand.meta.get(_NUMBER)
        raise error if number is None else RefusedNodeError(error, number) from error
    lowering.builder.fp32_precision = lowering.fp32_precision
    structure = pytree.tree_structure(tuple(nodes))
    capture = Capture(graph, tuple(placeholders), {}, tuple(nodes), structure)
    declare_outputs(lowering, capture, arrays, as_in_memory=False)
    number_of = {name: int(str(n.target)[2:]) for n, name in names.items()}
    writes = tuple(
        _write(lowering.builder, node, place, arrays, number_of) for place, node in places.items()
    )
    drop_unread(lowering.builder, REGION)
    built = lowering.builder.build()
    parted = with_column_parts(built)
    program = tidy_dims(with_common_dims(parted))
    if parted is not built and not is_searched_whole(program):
        raise UnsupportedError(
            f"a product read in parts, with {operator_count(program)} operators",
            where=REGION,
            why="its parts are one kernel only where the program is searched whole",
            repair="leave what reads the parts outside the region",
        )
    inputs_of = tuple(number_of[t.name] for t in program.inputs)
    return RegionProgram(program, inputs_of, tuple(results), writes=writes)


def _write(
    builder: ProgramBuilder,
    node: Node,
    output: int,
    arrays: Mapping[Node, Any],
    number_of: Mapping[str, int],
) -> RegionWrite:
    """The place that a node writes output number ``output`` to, before inputs are left out."""
    tensor, found = node.all_input_nodes[0], placing(node)
    assert found is not None
    count = found.value.meta["val"].shape[found.axis]
    held = tensor.meta["val"]
    position = ix.dim(PLACE)
    if isinstance(found.positions, int):
        position = position + found.positions
    else:
        array = arrays[found.positions]
        try:
            position = position_of(builder, array.node)
        except UnsupportedError as error:
            raise RefusedNodeError(error, node.meta[_NUMBER]) from error
        position = position.substitute({d: ix.dim(PLACE) for d in position.dims()})
        if count == 1:
            position = position.substitute({PLACE: ix.const(0)})
        elif not goes_up_by_one(position):
            why = "positions that do not follow one another"
            raise RefusedNodeError(UnsupportedError(why, where=REGION), node.meta[_NUMBER])
        if found.from_back:  # as positions of look-ups
            position = position % held.shape[found.axis]
    name = builder.outputs[output].tensor.name
    kind = builder.outputs[output].tensor.dtype
    strides = None if held.is_contiguous() else tuple(held.stride())
    whole = Tensor(name, tuple(held.shape), kind, strides)
    read = tuple(builder.inputs[t] for t in position.tensors())
    placement = Placement(output, whole, found.axis, position, read, count)
    numbers = tuple(number_of[t.name] for t in read)
    return RegionWrite(placement, int(str(tensor.target)[2:]), numbers)


def _concrete(graph: Graph, inputs: Sequence[TensorLayout | int]) -> Graph:
    """The graph with numbers in the place of sizes; every node knows its tensor."""
    new = Graph()
    made: dict[Node, Any] = {}
    values: dict[Node, Any] = {}
    given = iter(inputs)
    with FakeTensorMode(), torch.no_grad():
        for number, node in enumerate(graph.nodes):
            if node.op == "placeholder":
                layout = next(given)
                if isinstance(layout, int):
                    made[node] = values[node] = layout
                    continue
                copy = new.placeholder(str(node.target))
                values[node] = torch.empty_strided(
                    layout.shape, layout.strides, dtype=_kept(layout.dtype), device=layout.device
                )
            elif node.op == "output":
                new.output(torch.fx.map_arg(node.args[0], made.__getitem__))
                continue
            else:
                args, kwargs = _single((node.args, node.kwargs))
                values[node] = _computed(node, args, kwargs, values)
                if _only_rounds(node):
                    kwargs = {}
                copy = new.call_function(
                    torch.ops.aten.alias.default if _only_rounds(node) else node.target,
                    torch.fx.map_arg(args, made.__getitem__),
                    torch.fx.map_arg(kwargs, made.__getitem__),
                )
                copy.meta = {k: v for k, v in node.meta.items() if k == "stack_trace"}
            copy.meta |= {"val": values[node], _NUMBER: number}
            made[node] = copy
    return new


def _computed(node: Node, args: Any, kwargs: Any, values: dict[Node, Any]) -> Any:
    target: Any = node.target
    return target(
        *torch.fx.map_arg(args, values.__getitem__), **torch.fx.map_arg(kwargs, values.__getitem__)
    )


def _only_rounds(node: Node) -> bool:
    """Whether it turns floats into others. Inside of a region they are float32, as inside of a
    kernel of Inductor; a result is rounded when it is written. What is quantised is rounded there.
    """
    kinds = [t.dtype for n in (node, *node.all_input_nodes) for t in tensors_of(n)]
    if base_name(node) != "_to_copy" or kinds[0] in BYTE_FLOATS:
        return False
    return all(k.is_floating_point for k in kinds)


def _single(arguments: Any) -> Any:
    """Arguments in which float64 is float32."""
    return torch.fx.node.map_aggregate(
        arguments, lambda a: torch.float32 if a is torch.float64 else a
    )


def _dtype_of(node: Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def _kept(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype is torch.float64 else dtype


@functools.cache
def _inverse(order: tuple[int, ...]) -> tuple[int, ...] | None:
    """The places of axes in an order of them; None where they stand as they are."""
    found = tuple(sorted(range(len(order)), key=order.__getitem__))
    return None if found == tuple(range(len(order))) else found


def _result(number: int, value: torch.Tensor) -> RegionResult:
    axes, strides = range(value.dim()), value.stride()
    order = tuple(axes)
    if not value.is_contiguous():
        # Axes of extent 1 stay where they stand.
        moving = [a for a in axes if value.shape[a] > 1]
        by_stride = iter(sorted(moving, key=strides.__getitem__, reverse=True))
        order = tuple(a if value.shape[a] == 1 else next(by_stride) for a in axes)
    return RegionResult(number, order, strides, not value.permute(order).is_contiguous())
