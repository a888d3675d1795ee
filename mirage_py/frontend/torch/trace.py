"""From a torch function and example inputs to a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from mirage_py.arguments import check_callable
from mirage_py.errors import InputError, UnsupportedError
from mirage_py.frontend.torch.capture import source
from mirage_py.frontend.torch.capture.capture import Capture, capture
from mirage_py.frontend.torch.guards.calls import Signature
from mirage_py.frontend.torch.guards.origins import Origin, find_origin
from mirage_py.frontend.torch.guards.plain_values import is_plain
from mirage_py.frontend.torch.guards.state import State
from mirage_py.frontend.torch.handlers import HANDLERS
from mirage_py.frontend.torch.lower.inputs import check_input, declare_inputs, drop_unread, literal
from mirage_py.frontend.torch.lower.lowering import Lowering
from mirage_py.frontend.torch.lower.naming import identifier
from mirage_py.frontend.torch.lower.refusals import is_refused
from mirage_py.frontend.torch.lower.result_layouts import ResultLayout
from mirage_py.frontend.torch.outputs import declare_outputs
from mirage_py.frontend.torch.walk import lower
from mirage_py.settings import torch_fp32_precision
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.dtypes import Fp32Precision
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.renaming import tidy_dims


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A program, and how a call of the function maps to it.

    Input i of the program is leaf ``arguments[i]`` of the call's arguments, or, from
    ``len(arguments)`` on, a tensor that ``captured`` finds. ``results`` and ``structure`` put the
    program's outputs back into what the function returns: an int is the number of an output, a
    one-element tuple holds any other value. ``state`` is what else the function can read.
    ``layouts`` are those of the outputs, if they are written as they lie in torch's memory.
    ``moved`` are buffers that a call overwrites, each with the number of an output, and ``counted``
    those that it adds a number to: the running statistics of batch norms.
    """

    program: Program
    arguments: tuple[int, ...]
    captured: tuple[Origin, ...]
    results: tuple[int | tuple[Any], ...]
    structure: pytree.TreeSpec
    state: State
    layouts: tuple[ResultLayout, ...] = ()
    moved: tuple[tuple[Origin, int], ...] = ()
    counted: tuple[tuple[Origin, int], ...] = ()

    @property
    def is_rearranged(self) -> bool:
        """Whether a result is another view of what the program writes."""
        return not all(layout.is_row_major for layout in self.layouts)

    @property
    def writes(self) -> bool:
        """Whether a call writes to buffers."""
        return bool(self.moved or self.counted)

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

    def pack(self, outputs: Sequence[torch.Tensor]) -> Any:
        """What the function returns, made of the program's outputs."""
        if self.is_rearranged:
            pairs = zip(self.layouts, outputs, strict=True)
            outputs = [layout.arranged(written) for layout, written in pairs]
        for origin, number in self.moved:
            origin.fetch().copy_(outputs[number])
        for origin, times in self.counted:
            origin.fetch().add_(times)
        if self.results == (0,) and self.structure.is_leaf():
            return outputs[0]
        leaves = [outputs[r] if isinstance(r, int) else r[0] for r in self.results]
        return pytree.tree_unflatten(leaves, self.structure)

    def outputs_of(self, call: Callable[[], Any]) -> tuple[torch.Tensor, ...]:
        """The program's outputs, out of a call of the function; buffers are as before it."""
        if not self.writes:
            return self._unpacked(call(), {})
        buffers = [origin.fetch() for origin, _ in (*self.moved, *self.counted)]
        before = [buffer.clone() for buffer in buffers]
        returned = call()
        written = zip(self.moved, buffers, strict=False)
        outputs = self._unpacked(returned, {n: buffer.clone() for (_, n), buffer in written})
        for buffer, old in zip(buffers, before, strict=True):
            buffer.copy_(old)
        return outputs

    def _unpacked(
        self, returned: Any, written: Mapping[int, torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        leaves = pytree.tree_leaves(returned)
        first: dict[Any, torch.Tensor] = dict(zip(self.results, leaves, strict=True))
        first.update(written)
        outputs = tuple(first[n] for n in range(len(self.program.outputs)))
        if not self.layouts:
            return outputs
        return tuple(x.written(y) for x, y in zip(self.layouts, outputs, strict=True))


def trace(fn: Callable[..., Any], *example_inputs: Any, name: str | None = None) -> Program:
    """The program that ``fn`` computes on inputs of these shapes and types.

    Tensors in ``example_inputs`` become inputs named after the parameters; other values are taken
    as they are. Tensors that the function takes from elsewhere become further inputs. The result is
    ``out``, several are ``out0``, ``out1`` ... in the order of what ``fn`` returns.

    Raises UnsupportedError, with the line of the function, where something cannot be in a program.
    """
    check_callable("fn", fn)
    signature = Signature.of(fn)
    try:
        arguments = signature.bind(example_inputs, {})
    except TypeError as error:
        raise InputError(
            f"the example inputs do not fit the function: {error}",
            where=source.of_function(fn),
            repair="give one example for each argument, in order",
        ) from error
    return trace_call(signature, arguments, name=name).program


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
    with_paths, structure = pytree.tree_flatten_with_path(dict(arguments))
    leaves = [leaf for _, leaf in with_paths]
    places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    names = ["_".join(str(key).strip("[].'") for key in path) for path, _ in with_paths]
    for n in places:
        check_input(leaves[n], names[n], where)

    # A tensor may also come with an argument that holds it, such as a module.
    objects = [(names[n], leaf) for n, leaf in enumerate(leaves) if n not in places]
    state = State.of([("", fn), *objects], copies=True)
    changed: list[str | None] = []

    def call(*tensors: torch.Tensor) -> Any:
        values = list(leaves)
        for n, tensor in zip(places, tensors, strict=True):
            values[n] = tensor
        given = pytree.tree_unflatten(values, structure)
        # Lists and dicts are the trace's own here: what is put into them the caller would miss.
        before = State.of(list(given.items()))
        result = signature.call(given)
        changed.append(before.changed())
        return result

    try:
        captured = capture(
            call,
            # One object per argument: torch would take a tensor that is passed twice for one input.
            [leaves[n].detach() for n in places],
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
    precision = Fp32Precision(torch_fp32_precision())
    builder = ProgramBuilder(identifier(name or _name_of(fn), "program"), precision)
    lowering = Lowering(builder, where)
    arrays: dict[torch.fx.Node, Any] = {}
    wanted = {
        node: (names[n], leaves[n]) for node, n in zip(captured.arguments, places, strict=True)
    }
    has_literals = False
    origins: dict[str, Origin] = {}
    for node, held in captured.constants.items():
        origin = find_origin([("", fn), *objects], held)
        if origin is None:
            arrays[node] = literal(lowering, node, held)
            has_literals = True
        elif node.users:
            check_input(origin.fetch(), origin.name, where)
            wanted[node] = (origin.name, origin.fetch())
            origins[node.name] = origin
    inputs = declare_inputs(lowering, wanted, arrays)
    lower(lowering, captured.graph, arrays)
    results, layouts, moved = declare_outputs(lowering, captured, arrays, as_in_memory=as_in_memory)
    places_of = [("", fn), *objects]
    drop_unread(builder, where)
    by_name = {inputs[node]: node for node in wanted}
    read = [by_name[tensor] for tensor in builder.inputs]
    return TracedCall(
        tidy_dims(builder.build()),
        tuple(places[captured.arguments.index(n)] for n in read if n.name not in origins),
        tuple(origins[n.name] for n in read if n.name in origins),
        results,
        captured.structure,
        state.guard(with_numbers=has_literals, written=[b for b, _ in captured.counted]),
        layouts,
        tuple(
            (_origin_of(buffer, places_of, where), number)
            for (buffer, _), number in zip(captured.moved, moved, strict=True)
        ),
        tuple((_origin_of(b, places_of, where), times) for b, times in captured.counted),
    )


def _tuple_of(count: int) -> pytree.TreeSpec:
    return pytree.tree_structure((0,) * count)


def _origin_of(buffer: torch.Tensor, places: Sequence[tuple[str, Any]], where: str) -> Origin:
    """The way to a buffer that calls write; UnsupportedError where there is none."""
    origin = find_origin(places, buffer)
    if origin is None:
        raise changes_state("a tensor that cannot be found again", where)
    return origin


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
        if isinstance(leaf, torch.fx.Node) or is_plain(leaf) or id(leaf) in known:
            continue
        raise UnsupportedError(
            f"a result is of type {type(leaf).__name__}",
            where=where,
            why="what a call computes and returns are tensors, in tuples, lists and dicts",
            repair="return the tensors, and make the object of them outside",
        )
