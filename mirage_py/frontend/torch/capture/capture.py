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
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.capture import source
from mirage_py.frontend.torch.capture.running_statistics import RunningStatistics

# Tracing changes state of the whole process (modes, meta data of nodes): one at a time.
_TRACING = threading.RLock()

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
    ``moved`` are the buffers that a call writes, and with what; ``counted`` those it adds to.
    """

    graph: torch.fx.Graph
    arguments: tuple[torch.fx.Node, ...]
    constants: Mapping[torch.fx.Node, torch.Tensor]
    results: tuple[Any, ...]
    structure: pytree.TreeSpec
    moved: tuple[tuple[torch.Tensor, torch.fx.Node], ...] = ()
    counted: tuple[tuple[torch.Tensor, int], ...] = ()


@dataclass(slots=True)
class _Returned:
    """What the traced call left behind besides tensors."""

    leaves: Sequence[Any] = ()
    structure: pytree.TreeSpec | None = None
    statistics: RunningStatistics | None = None


class _FunctionFailed(Exception):  # noqa: N818  it says what happened
    """The function itself raised; the cause is what it raised."""


class _Flat(torch.nn.Module):
    """A function of tensors only, as torch.export wants it: a module that returns a tuple."""

    def __init__(self, call: Callable[..., Any], returned: _Returned) -> None:
        super().__init__()
        self._call = call
        self._returned = returned

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the function; tensors are returned, everything else is left behind."""
        try:
            with source.SourceRecorder(), RunningStatistics() as statistics:
                result = self._call(*tensors)
        # Any exception of the user's function, or of torch inside it.
        except Exception as error:
            raise _FunctionFailed from error
        self._returned.leaves, self._returned.structure = pytree.tree_flatten(result)
        self._returned.statistics = statistics
        moved = [value for _, value in statistics.moved.values()]
        given = (leaf for leaf in self._returned.leaves if isinstance(leaf, torch.Tensor))
        return (*given, *moved)


def capture(
    call: Callable[..., Any],
    tensors: Sequence[torch.Tensor],
    *,
    keep: Callable[[str], bool],
    where: str,
) -> Capture:
    """The graph of ``call(*tensors)``; operators whose name ``keep`` accepts stay whole.

    Raises UnsupportedError where the function cannot be run without data, or writes to its inputs.
    """
    returned = _Returned()
    with _TRACING, _quietly():
        try:
            program = torch.export.export(_Flat(call, returned), tuple(tensors), strict=False)
            if not _is_plain(program.graph, keep):
                # A copy: torch takes the table apart while it works.
                program = program.run_decompositions(dict(_decompositions(keep)))
        except _FunctionFailed as failed:
            raise _not_traced(failed.__cause__ or failed, where) from failed.__cause__
        # Whatever torch finds wrong with the graph afterwards comes out here, as any exception.
        except Exception as error:
            raise _not_traced(error, where) from error
    return _unpacked(program, returned, where)


def _is_plain(graph: torch.fx.Graph, keep: Callable[[str], bool]) -> bool:
    """Whether every node can be read as it is, which saves most of the time of tracing.

    Operators that write in place never can. Under autocast the casts come with the decompositions.
    """
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        return False
    return all(
        node.op in ("placeholder", "output")
        or node.target is operator.getitem
        or (node.op == "call_function" and keep(str(node.target)))
        for node in graph.nodes
    )


@functools.cache
def _decompositions(
    keep: Callable[[str], bool],
) -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    table: Mapping[torch._ops.OperatorBase, Any] = torch.export.default_decompositions()
    return {op: rule for op, rule in table.items() if not keep(str(op))}


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


def _unpacked(program: torch.export.ExportedProgram, returned: _Returned, where: str) -> Capture:
    signature = program.graph_signature
    placeholders = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    changed = (*signature.user_inputs_to_mutate.values(), *signature.buffers_to_mutate.values())
    if changed:
        raise UnsupportedError(
            "the function writes to one of its inputs",
            where=_first_write(program.graph) or where,
            why="a program computes new tensors and changes none",
            repair="use the operator without the trailing underscore, and return the new tensor",
        )
    (results,) = (n.args[0] for n in program.graph.nodes if n.op == "output")
    nodes = iter(results)
    leaves = tuple(
        next(nodes) if isinstance(leaf, torch.Tensor) else leaf for leaf in returned.leaves
    )
    statistics = returned.statistics
    assert returned.structure is not None
    assert statistics is not None
    constants = {}
    for names in (
        signature.inputs_to_parameters,
        signature.inputs_to_buffers,
        signature.inputs_to_lifted_tensor_constants,
    ):
        for name, target in names.items():
            held = program.state_dict.get(target, program.constants.get(target))
            assert isinstance(held, torch.Tensor)
            constants[placeholders[name]] = held
    return Capture(
        program.graph,
        tuple(placeholders[name] for name in signature.user_inputs if isinstance(name, str)),
        constants,
        leaves,
        returned.structure,
        tuple((buffer, next(nodes)) for buffer, _ in statistics.moved.values()),
        tuple(statistics.counted.values()),
    )


def _not_traced(error: BaseException, where: str) -> UnsupportedError:
    line = source.of_error(error)
    kind = type(error).__name__
    text = str(error).strip().splitlines()
    first = text[0] if text else kind
    if "DataDependent" in kind or "data-dependent" in str(error):
        return UnsupportedError(
            f"what happens next depends on the values of a tensor{_quoted(line)}",
            where=str(line or where),
            why="a kernel is made for every value that the tensors may have",
            repair="choose with torch.where, or decide outside and pass a Python value",
        )
    return UnsupportedError(
        f"the function cannot be traced: {first}{_quoted(line)}",
        where=str(line or where),
        why=f"torch.export raised {kind}; it runs the function on tensors without data",
        repair="call the function on the same inputs: if that works, leave out what needs the data",
    )


def _quoted(line: source.SourceLine | None) -> str:
    return f" in `{line.code}`" if line is not None and line.code else ""


def _first_write(graph: torch.fx.Graph) -> str:
    """The line of the operator whose result replaces an input."""
    (results,) = (n.args[0] for n in graph.nodes if n.op == "output")
    line = source.of_node(results[0]) if isinstance(results[0], torch.fx.Node) else None
    return str(line) if line is not None else ""
