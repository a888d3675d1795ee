"""From a torch function and example inputs to a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from mirage_py.arguments import check_callable
from mirage_py.errors import InputError, UnsupportedError
from mirage_py.frontend.torch.capture import source
from mirage_py.frontend.torch.capture.capture import Capture, View, capture, is_size
from mirage_py.frontend.torch.capture.made_tables import with_tables
from mirage_py.frontend.torch.capture.traced_graph import TracedGraph
from mirage_py.frontend.torch.found_writes import FoundWrites
from mirage_py.frontend.torch.guards.calls import Signature, runs_later
from mirage_py.frontend.torch.guards.origins import Origin, find_origin
from mirage_py.frontend.torch.guards.plain_values import is_plain
from mirage_py.frontend.torch.guards.state import State
from mirage_py.frontend.torch.handlers import HANDLERS
from mirage_py.frontend.torch.held_integers import note_literal
from mirage_py.frontend.torch.lower.inputs import (
    check_input,
    declare_inputs,
    drop_unread,
    is_table,
    literal,
)
from mirage_py.frontend.torch.lower.lowering import Lowering
from mirage_py.frontend.torch.lower.naming import identifier
from mirage_py.frontend.torch.lower.refusals import is_refused
from mirage_py.frontend.torch.lower.result_layouts import ResultLayout
from mirage_py.frontend.torch.outputs import declare_outputs
from mirage_py.frontend.torch.own_errors import own_error
from mirage_py.frontend.torch.walk import lower
from mirage_py.frontend.torch.writes import (
    Leaves,
    Place,
    TensorView,
    Write,
    overlap,
    put_back,
    tensor_at,
)
from mirage_py.reasons import Code
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.renaming import tidy_dims

# The name of tensors that each call makes of numbers alone.
TABLE = "table"


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A program, and how a call of the function maps to it.

    Input i of the program is leaf ``arguments[i]`` of the call's arguments, or, from
    ``len(arguments)`` on, a tensor that ``captured`` finds. ``results`` and ``structure`` put the
    program's outputs back into what the function returns: an int is the number of an output, a
    TensorView a tensor that the call writes to, a one-element tuple holds any other value.
    ``state`` is what else the function can read, and ``graph`` what was traced.
    ``layouts`` are those of the outputs, if they are written as they lie in torch's memory.
    ``written`` is what a call writes, and ``counted`` are buffers that it adds a number to.
    """

    program: Program
    arguments: tuple[int, ...]
    captured: tuple[Origin, ...]
    results: tuple[int | TensorView | tuple[Any, ...], ...]
    structure: pytree.TreeSpec
    state: State
    graph: TracedGraph = field(compare=False)
    layouts: tuple[ResultLayout, ...] = ()
    written: tuple[Write, ...] = ()
    counted: tuple[tuple[Origin, int], ...] = ()

    @property
    def is_rearranged(self) -> bool:
        """Whether a result is another view of what the program writes."""
        return not all(layout.is_row_major for layout in self.layouts)

    @property
    def writes(self) -> bool:
        """Whether a call writes to tensors that were there before it."""
        return bool(self.written or self.counted)

    @property
    def words(self) -> str:
        """What a call does after the kernels, which is timed with them."""
        counted = [f"{origin.name} counts" for origin, _ in self.counted]
        return "; ".join([*map(str, self.written), *counted])

    @property
    def places(self) -> tuple[Place, ...]:
        """Where the tensors are that a call writes to."""
        places = [w.target.place for w in self.written] + [origin for origin, _ in self.counted]
        return tuple(dict.fromkeys(places))

    @property
    def elsewhere(self) -> tuple[Origin, ...]:
        """Where the tensors are that are no arguments, read or written."""
        written = [p for p in self.places if isinstance(p, Origin)]
        return tuple(dict.fromkeys((*self.captured, *written)))

    def overlaps(self, leaves: Leaves) -> bool:
        """Whether a tensor that this call would write to shares memory with another of its tensors:
        the function itself reads there what it has written.
        """
        values = leaves.values() if isinstance(leaves, Mapping) else leaves
        tensors = [x for x in values if isinstance(x, torch.Tensor)]
        tensors += [origin.fetch() for origin in self.elsewhere]
        return overlap([tensor_at(place, leaves) for place in self.places], tensors)

    def writes_like(self, other: TracedCall) -> bool:
        """Whether both put outputs of one number into the same views of the same tensors."""
        if any(not isinstance(w.value, int) or w.indices for w in (*self.written, *other.written)):
            return False
        return [(w.target, w.value) for w in self.written] == [
            (w.target, w.value) for w in other.written
        ] and self.results == other.results

    def reads_like(self, other: TracedCall) -> bool:
        """Whether the tables of both, made by each call, hold the same numbers."""
        mine, others = ([o.fetch() for o in t.captured if o.name == TABLE] for t in (self, other))
        return len(mine) == len(others) and all(map(torch.equal, mine, others))

    def is_plain(self, count: int) -> bool:
        """Whether a call's ``count`` arguments are the program's inputs, and what the function
        returns its outputs.
        """
        if self.arguments != tuple(range(count)) or self.captured or self.writes:
            return False
        places = tuple(range(len(self.program.outputs)))
        alone = self.structure.is_leaf() or self.structure == _tuple_of(len(places))
        return alone and self.results == places and not self.is_rearranged

    def is_current(self) -> bool:
        """Whether all that the trace took as it was is still so."""
        return self.state.is_same()

    def inputs(self, leaves: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """The program's inputs for a call with these leaves of its arguments."""
        given = [leaves[n] for n in self.arguments]
        if self.captured:
            given += [origin.fetch() for origin in self.captured]
        return tuple(given)

    def by_graph(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The program's outputs as PyTorch computes them by the graph, of its inputs: also of those
        that the function takes from elsewhere.
        """
        found = self.graph(*inputs)
        if not self.layouts:
            return found
        return tuple(x.written(y) for x, y in zip(self.layouts, found, strict=True))

    def pack(self, outputs: Sequence[torch.Tensor], leaves: Leaves = ()) -> Any:
        """What the function returns, made of the program's outputs; what it writes is written."""
        if self.is_rearranged:
            pairs = zip(self.layouts, outputs, strict=True)
            outputs = [layout.arranged(written) for layout, written in pairs]
        # All is read before any of it is written.
        for write in [write.ready(outputs, leaves) for write in self.written]:
            write()
        for origin, times in self.counted:
            origin.fetch().add_(times)
        if self.results == (0,) and self.structure.is_leaf():
            return outputs[0]
        found = [_result(r, outputs, leaves) for r in self.results]
        return pytree.tree_unflatten(found, self.structure)

    def outputs_of(self, call: Callable[[], Any], leaves: Leaves = ()) -> tuple[torch.Tensor, ...]:
        """The program's outputs, out of a call of the function with these leaves of its arguments;
        what it writes to is as before it.
        """
        if not self.writes:
            return self._unpacked(call(), leaves)
        with put_back(self.places, leaves):
            return self._unpacked(call(), leaves)

    def _unpacked(self, returned: Any, leaves: Leaves) -> tuple[torch.Tensor, ...]:
        leaves_found = pytree.tree_leaves(returned, is_leaf=is_size)
        pairs = zip(self.results, leaves_found, strict=True)
        first = {result: leaf for result, leaf in pairs if isinstance(result, int)}
        for write in self.written:
            if isinstance(write.value, int) and write.value not in first:
                first[write.value] = write.written(leaves)
        outputs = tuple(first[n] for n in range(len(self.program.outputs)))
        if not self.layouts:
            return outputs
        return tuple(x.written(y) for x, y in zip(self.layouts, outputs, strict=True))


def _result(
    result: int | TensorView | tuple[Any, ...], outputs: Sequence[torch.Tensor], leaves: Leaves
) -> Any:
    if isinstance(result, TensorView):
        return result.of(leaves)
    return outputs[result] if isinstance(result, int) else result[0]


def trace(fn: Callable[..., Any], *example_inputs: Any, name: str | None = None) -> Program:
    """The program that ``fn`` computes on inputs of these shapes and types.

    Tensors in ``example_inputs`` become inputs named after the parameters; other values are
    constants. Tensors that the function holds become further inputs. The result is called
    ``out``; several are ``out0``, ``out1`` ... in the order in which ``fn`` returns them.

    Raises UnsupportedError, with the line of the function, for code that cannot be in a program,
    and InputError if the function itself fails on such inputs.
    """
    check_callable("fn", fn)
    signature, arguments = trace_arguments(fn, example_inputs)
    return trace_given(signature, arguments, name=name).program


def trace_given(
    signature: Signature, arguments: Mapping[str, Any], *, name: str | None = None
) -> TracedCall:
    """``trace_call`` for somebody who wants a program and nothing else. Raises InputError where the
    function itself fails on these arguments, which is no fault of tracing.
    """
    try:
        return trace_call(signature, arguments, name=name)
    except UnsupportedError as error:
        own = own_error(signature, arguments) if error.code is Code.TORCH_RAISES else None
        if own is None:
            raise
        raise own from error


def trace_arguments(
    fn: Callable[..., Any], example_inputs: Sequence[Any]
) -> tuple[Signature, dict[str, Any]]:
    """How a function takes its arguments, and the examples by name. Raises InputError where they
    do not fit.
    """
    signature = Signature.of(fn)
    try:
        return signature, signature.bind(tuple(example_inputs), {})
    except TypeError as error:
        raise InputError(
            f"the example inputs do not fit the function: {error}",
            where=source.of_function(fn),
            repair="give one example for each argument, in order",
        ) from error


def trace_call(
    signature: Signature,
    arguments: Mapping[str, Any],
    *,
    name: str | None = None,
    as_in_memory: bool = False,
) -> TracedCall:
    """Trace a function on arguments bound by name, and keep how calls map to the program.

    ``as_in_memory``: the program writes results in the order in which torch's have their axes in
    memory, so that what a call gives has torch's strides.
    """
    fn = signature.fn
    where = source.of_function(fn)
    if runs_later(fn):
        raise UnsupportedError(
            "the function computes nothing when it is called",
            where=where,
            why="what it returns is a coroutine or a generator",
            repair="decorate the function of tensors that it calls",
        )
    given = _Given.of(fn, arguments, where)
    captured = _captured(signature, given, where)
    name = identifier(name or _name_of(fn), "program")
    refused: UnsupportedError | None = None
    while True:
        lowering = Lowering(ProgramBuilder(name), where)
        try:
            return _call_of(captured, given, lowering, as_in_memory=as_in_memory)
        except UnsupportedError as error:
            at, refused = lowering.node, refused or error
            tabled = None if at is None else with_tables(captured, at, lowering.literals)
        if tabled is None:
            raise refused
        captured = tabled


def _call_of(
    captured: Capture, given: _Given, lowering: Lowering, *, as_in_memory: bool
) -> TracedCall:
    """The program of a graph, and how calls map to it."""
    where, builder = lowering.where, lowering.builder
    leaves, places, state = given.leaves, given.places, given.state
    origins, arrays = _held(lowering, captured, given)
    has_literals = bool(arrays) or any(is_table(n, captured.constants[n]) for n in origins)
    wanted = {
        n: (given.names[k], leaves[k]) for n, k in zip(captured.arguments, places, strict=True)
    }
    wanted |= {node: (origin.name, origin.fetch()) for node, origin in origins.items()}
    inputs = declare_inputs(lowering, wanted, arrays)
    at: dict[torch.fx.Node, Place] = dict(zip(captured.arguments, places, strict=True))
    at.update(origins)
    writes = FoundWrites(captured, at, inputs)
    returned = [r for r in captured.results if isinstance(r, torch.fx.Node)]
    lower(lowering, captured.graph, arrays, [*returned, *writes.computed])
    builder.fp32_precision = lowering.fp32_precision
    numbers, layouts = declare_outputs(
        lowering, captured, arrays, as_in_memory=as_in_memory, written=writes.computed
    )
    own = [b for b, _ in captured.counted]
    own += [held for node, held in captured.constants.items() if node in captured.written]
    results = tuple(_result_of(r, numbers, writes) for r in captured.results)
    drop_unread(builder, where)
    by_name = {inputs[node]: node for node in wanted}
    read = [by_name[tensor] for tensor in builder.inputs]
    program = tidy_dims(builder.build())
    lowering.node = writes.loose_position(program, {n: inputs[n] for n in read if n not in origins})
    if lowering.node is not None:
        raise lowering.refuse(
            "a position that is written to is read as a number, too",
            why="kernels are checked on inputs that are drawn, and not every number is a position",
            repair="pass it twice, as a position and as a number",
        )
    return TracedCall(
        program,
        tuple(places[captured.arguments.index(n)] for n in read if n not in origins),
        tuple(origins[n] for n in read if n in origins),
        results,
        captured.structure,
        state.guard(with_numbers=has_literals, written=own),
        TracedGraph(captured.graph, read, list(numbers), captured.constants),
        layouts,
        writes.writes(numbers),
        tuple((_origin_of(b, given.holders, where), times) for b, times in captured.counted),
    )


@dataclass(frozen=True, slots=True)
class _Given:
    """The arguments of a call as ``leaves`` with their ``names``; those at ``places`` are tensors.

    A tensor may also come with what holds it, such as a module: the function itself, or one of the
    other arguments. ``state`` is that of all ``holders``.
    """

    leaves: list[Any]
    structure: pytree.TreeSpec
    places: list[int]
    names: list[str]
    holders: list[tuple[str, Any]]
    state: State

    @classmethod
    def of(cls, fn: Callable[..., Any], arguments: Mapping[str, Any], where: str) -> _Given:
        """Raises UnsupportedError where there is no tensor, or one that no kernel takes."""
        with_paths, structure = pytree.tree_flatten_with_path(dict(arguments))
        leaves = [leaf for _, leaf in with_paths]
        places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        names = ["_".join(str(key).strip("[].'") for key in path) for path, _ in with_paths]
        for n in places:
            check_input(leaves[n], names[n], where)
        objects = [(names[n], leaf) for n, leaf in enumerate(leaves) if n not in places]
        holders = [("", fn), *objects]
        state = State.of(holders, copies=True)
        if not places and not state.tensors:
            raise _no_tensor(dict(objects), where)
        return cls(leaves, structure, places, names, holders, state)


def _captured(signature: Signature, given: _Given, where: str) -> Capture:
    """The graph of a call. Raises UnsupportedError where the call changes what outlives it."""
    changed: list[str | None] = []

    def call(*tensors: torch.Tensor) -> Any:
        values = list(given.leaves)
        for n, tensor in zip(given.places, tensors, strict=True):
            values[n] = tensor
        arguments = pytree.tree_unflatten(values, given.structure)
        # Lists and dicts are the trace's own here: what is put into them the caller would miss.
        # What is written to tensors the graph says.
        before = replace(State.of(list(arguments.items())), tensors=())
        result = signature.call(arguments)
        changed.append(before.changed())
        return result

    state = given.state
    try:
        captured = capture(
            call,
            # One object per argument: torch would take a tensor that is passed twice for one input.
            [given.leaves[n].detach() for n in given.places],
            held=[tensor for _, tensor, _, _ in state.tensors],
            keep=_stays_whole,
            where=where,
        )
    finally:
        changed.insert(0, state.changed())
        state.restore()
    what = next((name for name in changed if name is not None), None)
    if what is not None:
        raise changes_state(what, where)
    check_results(captured, state, where)
    return captured


def _held(
    lowering: Lowering, captured: Capture, given: _Given
) -> tuple[dict[torch.fx.Node, Origin], dict[torch.fx.Node, Any]]:
    """Where the tensors come from that the graph holds; and the numbers of those that the function
    wrote down.
    """
    where = lowering.where
    origins: dict[torch.fx.Node, Origin] = {}
    arrays: dict[torch.fx.Node, Any] = {}
    for node, held in captured.constants.items():
        if not node.users and node not in captured.written:
            continue
        origin = find_origin(given.holders, held)
        if origin is None and (node in captured.tables or is_table(node, held)):
            origin = _table(held, given.leaves[given.places[0]].device)
        if origin is not None:
            origins[node] = origin
            check_input(origin.fetch(), origin.name, where)
        elif node in captured.written:
            raise changes_state("a tensor that cannot be found again", where)
        else:
            arrays[node] = literal(lowering, node, held)
            lowering.literals[node] = held
            note_literal(lowering, node, held)
    return origins, arrays


def _no_tensor(given: Mapping[str, Any], where: str) -> UnsupportedError:
    kinds = ", ".join(f"{name} is a {type(value).__name__}" for name, value in given.items())
    return UnsupportedError(
        "the function is given no tensor",
        where=where,
        why=f"a kernel computes from tensors, and {kinds or 'it takes no arguments'}",
        repair="pass tensors, as torch.randn(16, 256) or torch.from_numpy(array)",
    )


def _result_of(
    result: Any, numbers: Mapping[torch.fx.Node, int], writes: FoundWrites
) -> int | TensorView | tuple[Any, ...]:
    if isinstance(result, View):
        return writes.view(result)
    return numbers[result] if isinstance(result, torch.fx.Node) else (result,)


def _tuple_of(count: int) -> pytree.TreeSpec:
    return pytree.tree_structure((0,) * count)


def _origin_of(buffer: torch.Tensor, places: Sequence[tuple[str, Any]], where: str) -> Origin:
    """The way to a buffer that calls write; UnsupportedError where there is none."""
    origin = find_origin(places, buffer)
    if origin is None:
        raise changes_state("a tensor that cannot be found again", where)
    return origin


def _table(held: torch.Tensor, device: torch.device) -> Origin:
    """Many numbers that a function has written down, on the device of its arguments. Each call
    makes the same ones: what they are made of is watched.
    """
    return Origin(TABLE, partial(_itself, held.to(device)))


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _stays_whole(operator: str) -> bool:
    return operator in HANDLERS or is_refused(operator)


def _name_of(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))


def changes_state(what: str, where: str) -> UnsupportedError:
    """The error of a function that leaves something behind; ``what`` it changes."""
    return UnsupportedError(
        f"the function changes {what}",
        where=where,
        why="a kernel computes results and changes nothing; it was put back as it was",
        repair="return the new value, and keep it outside",
    )


def check_results(captured: Capture, state: State, where: str) -> None:
    """UnsupportedError where a result is an object: each call would return one and the same, and
    the tensors in it would be without data.
    """
    known = [id(value) for holder in state.holders for value in holder.content]
    for leaf in captured.results:
        if isinstance(leaf, torch.fx.Node | View) or is_plain(leaf) or id(leaf) in known:
            continue
        raise UnsupportedError(
            f"a result is of type {type(leaf).__name__}",
            where=where,
            why="what a call computes and returns are tensors, in tuples, lists and dicts",
            repair="return the tensors, and make the object of them outside",
        )
