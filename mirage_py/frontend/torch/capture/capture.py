"""Runs a function through torch.export: what comes out is a functional ATen graph.

Export runs without data (strict=False), so everything that Python decides is decided once.
Operators that have a handler stay whole; torch's own decompositions apply to the others.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import operator
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from types import FunctionType
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.utils import _pytree as pytree

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.capture import source
from mirage_py.frontend.torch.capture.functional_graph import Decompositions, functional_graph
from mirage_py.frontend.torch.capture.held_tensors import HeldTensors, WritesToHeldError
from mirage_py.frontend.torch.capture.recurrences import (
    REPAIR,
    TOO_LONG,
    RecurrentLayers,
    TooManyStepsError,
    stays_whole,
)
from mirage_py.frontend.torch.capture.running_statistics import RunningStatistics
from mirage_py.frontend.torch.capture.scalar_positions import ScalarPositions
from mirage_py.frontend.torch.capture.written_regions import Steps, root_of
from mirage_py.reasons import Code

# Tracing changes state of the whole process (modes, meta data of nodes): one at a time.
_TRACING = threading.RLock()
# Among the notes of a node of a graph: strides that a result has in eager.
RESULT_STRIDES = "result_strides"

# They report errors that this module turns into one of its own.
_NOISY_LOGGERS = (
    "torch.export._trace",
    "torch.fx.experimental.symbolic_shapes",
    "torch._subclasses.fake_tensor",
)


@dataclass(frozen=True, slots=True)
class Capture:
    """An ATen graph and what its placeholders and results stand for.

    ``arguments`` are the placeholders of the given tensors, in their order; ``constants`` those of
    tensors that the function took from elsewhere. ``results`` holds one entry per leaf of what
    the function returned, a graph node or a plain Python value; ``structure`` puts the leaves back.
    A ``View`` is a result that is, or shares memory with, a tensor that was given. ``written`` are
    the placeholders of tensors that a call writes to, with what is in them afterwards; ``counted``
    are buffers that it adds a number to. Of the constants ``tables`` are made anew by each call,
    of numbers alone.
    """

    graph: torch.fx.Graph
    arguments: tuple[torch.fx.Node, ...]
    constants: Mapping[torch.fx.Node, torch.Tensor]
    results: tuple[Any, ...]
    structure: pytree.TreeSpec
    written: Mapping[torch.fx.Node, torch.fx.Node] = field(default_factory=dict)
    counted: tuple[tuple[torch.Tensor, int], ...] = ()
    tables: tuple[torch.fx.Node, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """A view of the tensor of a placeholder; without steps the very tensor."""

    tensor: torch.fx.Node
    steps: Steps


@dataclass(slots=True)
class _Returned:
    """What the traced call left behind besides tensors."""

    leaves: Sequence[Any] = ()
    structure: pytree.TreeSpec | None = None
    counted: tuple[tuple[torch.Tensor, int], ...] = ()
    # For each tensor among the leaves the given one that it is, or shares memory with.
    same: Sequence[int | None] = ()
    shares: Sequence[int | None] = ()
    # How it lies in eager: what an operator in place writes lies as before, which a functional
    # graph does not show.
    strides: Sequence[tuple[int, ...]] = ()


@dataclass(frozen=True, slots=True)
class _Exported:
    """An exported program, and its graph without writes. ``written`` are those of the program's
    placeholders that are written to, in the order of the graph's first results.
    """

    program: torch.export.ExportedProgram
    graph: torch.fx.Graph
    written: tuple[str, ...] = ()


class _FunctionFailed(Exception):  # noqa: N818  it says what happened
    """The function itself raised; the cause is what it raised."""


class _Flat(torch.nn.Module):
    """A function of tensors only, as torch.export wants it: a module that returns a tuple."""

    def __init__(
        self, call: Callable[..., Any], returned: _Returned, held: Sequence[torch.Tensor]
    ) -> None:
        super().__init__()
        self._call = call
        self._returned = returned
        self._held = held

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the function; tensors are returned, everything else is left behind."""
        count = len(tensors) - len(self._held)
        before = [(t.shape, t.stride()) for t in tensors]
        try:
            with (
                HeldTensors(self._held, tensors[count:]) as held,
                source.SourceRecorder(),
                ScalarPositions(),
                RecurrentLayers(),
                RunningStatistics() as statistics,
            ):
                result = self._call(*tensors[:count])
            if [(t.shape, t.stride()) for t in tensors] != before:
                raise NotImplementedError("it changes the shape or the strides of a tensor")
        # Any exception of the user's function, or of torch inside it.
        except Exception as error:
            raise _FunctionFailed from error
        leaves, self._returned.structure = pytree.tree_flatten(result, is_leaf=is_size)
        self._returned.leaves = [
            held.instead(x) if isinstance(x, torch.Tensor) else x for x in leaves
        ]
        self._returned.counted = tuple(statistics.counted.values())
        found = tuple(x for x in self._returned.leaves if isinstance(x, torch.Tensor))
        self._returned.same = [_first(tensors, is_, x) for x in found]
        self._returned.strides = [x.stride() for x in found]
        self._returned.shares = [_first(tensors, _shares_memory, x) for x in found]
        return found


def capture(
    call: Callable[..., Any],
    tensors: Sequence[torch.Tensor],
    *,
    held: Sequence[torch.Tensor],
    keep: Callable[[str], bool],
    where: str,
) -> Capture:
    """The graph of ``call(*tensors)``; operators whose name ``keep`` accepts stay whole. ``held``
    are tensors that the function can read from elsewhere.

    Raises UnsupportedError where the function cannot be run without data.
    """
    returned = _Returned()
    lifted: Sequence[torch.Tensor] = ()
    # Graphs are read and interpreted: torch writes Python for those alone that it calls.
    with _TRACING, _quietly(), _use_lazy_graph_module(True):
        try:
            try:
                exported = _exported(call, tensors, returned, lifted, keep)
            except WritesToHeldError:
                lifted = held
                try:
                    exported = _exported(call, tensors, returned, lifted, keep)
                except WritesToHeldError:
                    raise _writes_elsewhere(where) from None
        except UnsupportedError:
            raise
        except _FunctionFailed as failed:
            raise _not_traced(failed.__cause__ or failed, where) from failed.__cause__
        # Whatever torch finds wrong with the graph afterwards comes out here, as any exception.
        except Exception as error:
            raise _not_traced(error, where) from error
    return _unpacked(exported, returned, lifted, where)


def _exported(
    call: Callable[..., Any],
    tensors: Sequence[torch.Tensor],
    returned: _Returned,
    held: Sequence[torch.Tensor],
    keep: Callable[[str], bool],
) -> _Exported:
    given = _apart([*tensors, *(t.detach() for t in held)])
    program = torch.export.export(_Flat(call, returned, held), tuple(given), strict=False)
    # What stays whole is refused: its steps would be run again.
    targets = [str(node.target) for node in program.graph.nodes]
    if any(map(stays_whole(program.graph), targets)):
        return _Exported(program, program.graph)
    if not _has_regions(program.graph):
        if _is_plain(program.graph, keep):
            return _Exported(program, program.graph)
        graph, numbers = functional_graph(program.graph_module, _decompositions(keep))
        # Composite operators that write to what they made themselves (losses, an LSTM) are left.
        if _is_plain(graph, keep):
            names = [node.name for node in program.graph.find_nodes(op="placeholder")]
            return _Exported(program, graph, tuple(names[n] for n in numbers))
    # A copy: torch takes the table apart while it works.
    program = program.run_decompositions({**_decompositions(keep)})
    written = program.graph_signature.user_inputs_to_mutate.values()
    return _Exported(program, program.graph, tuple(written))


def is_size(value: object) -> bool:
    """Whether it is the shape of a tensor, a leaf of results: torch unflattens a tuple of it."""
    return isinstance(value, torch.Size)


def _apart(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors like these, none of which shares memory with another: each is an input."""
    seen: dict[int, None] = {}
    found = []
    for t in tensors:
        memory = t.untyped_storage().data_ptr() if t.layout is torch.strided else 0
        if memory and memory in seen:
            t = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
        seen[memory] = None
        found.append(t)
    return found


def _first(
    tensors: Sequence[torch.Tensor],
    is_it: Callable[[torch.Tensor, torch.Tensor], bool],
    wanted: torch.Tensor,
) -> int | None:
    return next((n for n, t in enumerate(tensors) if is_it(t, wanted)), None)


def _shares_memory(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(torch._C._is_alias_of(tensor, other))  # type: ignore[attr-defined]  # noqa: SLF001


def _is_plain(graph: torch.fx.Graph, keep: Callable[[str], bool]) -> bool:
    """Whether every node can be read as it is, which saves half of the time of tracing. Operators
    that write in place never can.
    """
    return all(
        node.op in ("placeholder", "output")
        or node.target is operator.getitem
        or (node.op == "call_function" and keep(str(node.target)))
        for node in graph.nodes
    )


def _has_regions(graph: torch.fx.Graph) -> bool:
    """Whether autocast, vmap or another mode is on, in all of the graph or a region of it: torch
    takes the regions apart, and puts casts in front of operators, when it decomposes.
    """
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        return True
    # Regions are an operator of a graph, or lie between two functions in Python.
    return any(isinstance(n.target, HigherOrderOperator | FunctionType) for n in graph.nodes)


_decompositions = functools.cache(Decompositions)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in _NOISY_LOGGERS]
    before = [logger.disabled for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.disabled = True
        try:
            yield
        finally:
            for logger, disabled in zip(loggers, before, strict=True):
                logger.disabled = disabled


def _without_empty(graph: torch.fx.Graph) -> None:
    """Joined tensors without those that have no elements, such as a cache before its first step."""
    for node in graph.nodes:
        if node.target is not torch.ops.aten.cat.default:
            continue
        parts = [n for n in node.args[0] if not _is_empty(n.meta["val"])]
        if parts and len(parts) < len(node.args[0]):
            node.args = (parts, *node.args[1:])
            graph.eliminate_dead_code()


def _is_empty(value: torch.Tensor) -> bool:
    return any(type(extent) is int and extent == 0 for extent in value.shape)


def _unpacked(
    exported: _Exported,
    returned: _Returned,
    held: Sequence[torch.Tensor],
    where: str,
) -> Capture:
    program, graph = exported.program, exported.graph
    _without_empty(graph)
    signature = program.graph_signature
    names = (node.name for node in program.graph.find_nodes(op="placeholder"))
    placeholders = dict(zip(names, graph.find_nodes(op="placeholder"), strict=True))
    given = [placeholders[name] for name in signature.user_inputs if isinstance(name, str)]
    results: Any = graph.output_node().args[0]
    # What is written comes first.
    written = dict(zip((placeholders[name] for name in exported.written), results, strict=False))
    for node, strides in zip(results[len(written) :], returned.strides, strict=True):
        if isinstance(node, torch.fx.Node):
            node.meta[RESULT_STRIDES] = strides
    nodes = zip(results[len(written) :], returned.same, returned.shares, strict=True)
    leaves = tuple(
        _result(*next(nodes), given, written, where) if isinstance(leaf, torch.Tensor) else leaf
        for leaf in returned.leaves
    )
    assert returned.structure is not None
    count = len(given) - len(held)
    constants = dict(zip(given[count:], held, strict=True))
    for lifted in (
        signature.inputs_to_parameters,
        signature.inputs_to_buffers,
        signature.inputs_to_lifted_tensor_constants,
    ):
        for name, target in lifted.items():
            found = program.state_dict.get(target, program.constants.get(target))
            assert isinstance(found, torch.Tensor)
            constants[placeholders[name]] = found
    return Capture(
        graph,
        tuple(given[:count]),
        constants,
        leaves,
        returned.structure,
        written,
        returned.counted,
    )


def _result(
    node: torch.fx.Node,
    same: int | None,
    shares: int | None,
    given: Sequence[torch.fx.Node],
    written: Mapping[torch.fx.Node, torch.fx.Node],
    where: str,
) -> torch.fx.Node | View:
    """A result: a node, or a view of a tensor that is written to."""
    if shares is None or given[shares] not in written:
        return node
    if same is not None:
        return View(given[same], ())
    root, steps = root_of(node)
    if root is written[given[shares]]:
        return View(given[shares], steps)
    raise UnsupportedError(
        "a result shares memory with a tensor that the function writes to",
        where=str(source.of_node(node) or where),
        why="it is known for views of the whole tensor only",
        repair="return the view outside the function, or return .clone() of it",
    )


def _writes_elsewhere(where: str) -> UnsupportedError:
    return UnsupportedError(
        "the function writes to a tensor that is no argument, nor found in what it holds",
        where=where,
        why="a write is repeated by each call, which has to find what it writes to",
        repair="pass the tensor as an argument, or hold it in a module, a closure or a global",
    )


def _not_traced(error: BaseException, where: str) -> UnsupportedError:
    line = source.of_error(error)
    kind = type(error).__name__
    text = str(error).strip().splitlines()
    first = text[0] if text else kind
    if isinstance(error, TooManyStepsError):
        return UnsupportedError(
            f"torch operator {error.operator} is not supported{_quoted(line)}",
            where=str(line or where),
            why=TOO_LONG,
            repair=REPAIR,
        )
    if "DataDependent" in kind or "data-dependent" in str(error):
        return UnsupportedError(
            f"what happens next depends on the values of a tensor{_quoted(line)}",
            where=str(line or where),
            why="one kernel has to serve all values that the tensors may have",
            repair="choose with torch.where, or decide outside and pass a Python value",
        )
    return UnsupportedError(
        f"the function cannot be traced: {first}{_quoted(line)}",
        where=str(line or where),
        why=f"torch.export raised {kind}: it runs the function on tensors without data",
        repair="avoid code that needs the data, or move it to torch code outside the function",
        code=Code.TORCH_RAISES,
    )


def _quoted(line: source.SourceLine | None) -> str:
    return f" in `{line.code}`" if line is not None and line.code else ""
