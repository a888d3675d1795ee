"""One side of a check: a function or a program, from the program's inputs to its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from mirage_py.arguments import check_callable
from mirage_py.errors import InputError, UnsupportedError
from mirage_py.frontend.spec.parse import parse
from mirage_py.frontend.torch.guards.calls import Signature
from mirage_py.frontend.torch.reference import reference_of
from mirage_py.frontend.torch.trace import TracedCall, trace_arguments, trace_call
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.ugraph.ir.program import Program

Function = Callable[..., Any]


@dataclass(frozen=True)
class Side:
    """What a kernel stands for: its program, the function itself, and how a kernel is called.

    ``function`` and what ``adapted`` makes of a kernel take the program's inputs and give its
    outputs; ``function`` is None where torch has no form of the program. ``held`` are inputs that
    the function has from elsewhere: the kernel has its own way to them.
    """

    program: Program
    function: Function | None
    adapted: Callable[[Function], Function]
    device: torch.device
    held: Mapping[str, torch.Tensor]
    traced: TracedCall | None = None
    arguments: Mapping[str, Any] | None = None
    signature: Signature | None = None


def side_of(reference: Function | Program | str, inputs: Sequence[Any]) -> Side:
    """Read what a kernel is compared with. Raises MirageError where it is no program."""
    if isinstance(reference, str):
        reference = parse(reference)
    if isinstance(reference, Program):
        return _of_program(reference, inputs)
    check_callable("reference", reference)
    signature, arguments = trace_arguments(reference, inputs)
    traced = trace_call(signature, arguments)
    leaves, structure = pytree.tree_flatten(dict(arguments))

    def adapted(kernel: Function) -> Function:
        called = Signature(kernel, signature.parameters)

        def call(leaves: Sequence[Any]) -> Any:
            found = called.call(pytree.tree_unflatten(list(leaves), structure))
            wanted = traced.structure
            if not traced.writes and pytree.tree_structure(found) != wanted:
                raise InputError(
                    f"it returns {_kind(found)}, and the function {_kind_of(wanted)}",
                    repair="return what the function returns",
                )
            return found

        return reference_of(traced, leaves, call)

    captured = held_tensors(traced)
    devices = [x.device for x in leaves if isinstance(x, torch.Tensor)]
    return Side(
        traced.program,
        adapted(reference),
        adapted,
        devices[0] if devices else next(iter(captured.values())).device,
        captured,
        traced,
        arguments,
        signature,
    )


def held_tensors(traced: TracedCall) -> dict[str, torch.Tensor]:
    """The tensors that a function has from elsewhere, by the names of the program's inputs."""
    names = [t.name for t in traced.program.inputs[len(traced.arguments) :]]
    return {n: o.fetch().detach() for n, o in zip(names, traced.captured, strict=True)}


def _of_program(program: Program, inputs: Sequence[Any]) -> Side:
    if inputs:
        raise InputError(
            "a program needs no example inputs",
            why="it says itself what its inputs are",
            repair="leave them out, or pass the function in its place",
        )
    try:
        function: Function | None = torch_function(program)
    except UnsupportedError:
        function = None
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Side(program, function, lambda kernel: kernel, device, {})


def _kind(value: Any) -> str:
    return _kind_of(pytree.tree_structure(value))


def _kind_of(structure: pytree.TreeSpec) -> str:
    if structure.is_leaf():
        return "one value"
    return f"a {structure.type.__name__} of {structure.num_leaves}"
