"""A kernel that is a program itself, as one of torch's operators is: the field test, and a proof.

What is compared is what torch.export sees of the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mirage_py.axioms.proof.prove import prove
from mirage_py.checking.sides import Function, Side
from mirage_py.errors import MirageError
from mirage_py.frontend.spec.parse import parse
from mirage_py.frontend.torch.guards.calls import Signature
from mirage_py.frontend.torch.trace import trace_call
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.renaming import rename_dims
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.verify.field_test.programs import Comparison, compare_programs


@dataclass(frozen=True)
class Algebra:
    """``comparison`` is None where the kernel is no program, and ``why`` says why; ``proof`` is a
    certificate that both are equal for all sizes, if one was found.
    """

    comparison: Comparison | None
    proof: Mapping[str, Any] | None = None
    why: str = ""


def compare_algebra(side: Side, kernel: Function | Program | str, *, seed: int) -> Algebra:
    """Compare the two as programs, where the kernel is one."""
    try:
        other = program_of(side, kernel)
        found = compare_programs(side.program, other, seed=seed)
    except MirageError as error:
        return Algebra(None, why=error.what)
    # torch.export runs somebody else's code, on tensors without data.
    except Exception as error:  # noqa: BLE001
        first = (str(error).strip().splitlines() or [""])[0]
        return Algebra(None, why=f"torch.export raised {type(error).__name__}: {first:.120}")
    if not found.equal:
        return Algebra(found)
    ugraph = as_ugraph(side.program, other)
    proof = None if ugraph is None else prove(side.program, ugraph)
    return Algebra(found, None if proof is None else proof.document())


def program_of(side: Side, kernel: Function | Program | str) -> Program:
    """A kernel as a program with the inputs of the other side. Raises MirageError."""
    if isinstance(kernel, str):
        kernel = parse(kernel)
    if isinstance(kernel, Program):
        return kernel
    if side.traced is None or side.signature is None or side.arguments is None:
        raise MirageError("the function is not known, only its program")
    traced = trace_call(Signature(kernel, side.signature.parameters), side.arguments)
    if traced.captured or side.held:
        raise MirageError("tensors are read that are no arguments")
    if traced.writes or side.traced.writes:
        raise MirageError("tensors are written to")
    if traced.results != side.traced.results:
        raise MirageError("what it returns is in another order, or partly no result of operators")
    return traced.program


def as_ugraph(program: Program, other: Program) -> UGraph | None:
    """Another program as one kernel without grid and loops, in the dimensions of ``program``; None
    where these are not the same.
    """
    names = _dims(program, other)
    if names is None:
        return None
    right = rename_dims(other, names)
    named = [
        replace(theirs, tensor=ours.tensor)
        for ours, theirs in zip(program.outputs, right.outputs, strict=True)
    ]
    kernel = BlockGraph.whole("other", right.nodes, named, program.dim_names)
    return UGraph(program, (kernel,))


def _dims(program: Program, other: Program) -> dict[str, str] | None:
    """The names in ``program`` of the other's dimensions: those that index the same axes."""
    ours, names = _axes(program), dict[str, str]()
    for axis, name in _axes(other).items():
        if names.setdefault(name, ours.get(axis, "")) != ours.get(axis):
            return None
    fits = sorted(names) == sorted(other.dim_names) and len(set(names.values())) == len(names)
    return names if fits and all(names.values()) else None


def _axes(program: Program) -> dict[tuple[str, int], str]:
    """Of each axis of a tensor that is indexed by a dimension alone, the first that is."""
    found: dict[tuple[str, int], str] = {}
    accesses = [n.access for n in program.nodes if n.op == "load"]
    indices = [(a.tensor, a.index) for a in accesses]
    indices += [(f"output {n}", o.index) for n, o in enumerate(program.outputs)]
    for tensor, index in indices:
        for axis, expr in enumerate(index):
            if expr.is_dim:
                found.setdefault((tensor, axis), *expr.dims())
    return found
