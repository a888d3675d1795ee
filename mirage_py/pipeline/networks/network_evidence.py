"""Evidence that an optimised operator graph computes what the program does, part by part.

This does not rely on the substitutions. Each part that changed is two graphs of the
same values: as Programs they are compared over finite fields, at small sizes and at the real ones,
and both are run in float64 on random inputs. Parts that differ in names alone, as the steps of a
recurrence do, are one comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from mirage_py.errors import UnsupportedError
from mirage_py.networks.ir.canonical import canonical
from mirage_py.networks.ir.evaluation import over_torch
from mirage_py.networks.ir.graph import INPUTS, Graph, Value
from mirage_py.networks.ir.lowering import program_of
from mirage_py.search.networks.parts import ChangedPart
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.field_test.programs import compare_programs

# Of the largest element, how far two sums in float64 may be apart; with a rounding in between.
_TOLERANCE, _ROUNDED = 1e-9, 2.0**-6
# Elements of a part beyond which it is not run.
_MAX_ELEMENTS = 1 << 26
_TRIALS = 2


@dataclass(frozen=True, slots=True)
class NetworkEvidence:
    """Of ``parts`` that changed, ``tested`` agree over finite fields and ``ran`` in float64, with
    the largest difference ``float_error``; ``skipped`` says why others were not compared, ``fault``
    where two differ.
    """

    parts: int
    tested: int
    ran: int
    float_error: float
    skipped: tuple[str, ...] = ()
    fault: str = ""

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.fault

    def __str__(self) -> str:
        if self.fault:
            return f"different: {self.fault}"
        text = (
            f"{self.parts} changed parts: {self.tested} equal over finite fields, {self.ran} run "
            f"in float64 (largest difference {self.float_error:.1e})"
        )
        return f"{text}; not compared: {'; '.join(self.skipped)}" if self.skipped else text


def check_parts(
    parts: Sequence[ChangedPart], *, seed: int = 0, should_stop: Callable[[], bool] = lambda: False
) -> NetworkEvidence:
    """Compare every part, equal ones once; the first difference ends it."""
    tested, ran, error = 0, 0, 0.0
    skipped: dict[str, None] = {}
    known: dict[tuple[str, str], _Compared] = {}
    for part in parts:
        before, after = canonical((part.before, part.after))
        key = before.digest, after.digest
        if key not in known:
            if should_stop():
                skipped["out of time"] = None
                continue
            known[key] = _compared(ChangedPart(before, after), seed)
        found = known[key]
        tested, ran = tested + found.is_tested, ran + (found.float_error is not None)
        error = max(error, found.float_error or 0.0)
        skipped |= dict.fromkeys(found.skipped)
        if found.fault:
            return NetworkEvidence(len(parts), tested, ran, error, fault=found.fault)
    return NetworkEvidence(len(parts), tested, ran, error, tuple(skipped))


@dataclass(frozen=True, slots=True)
class _Compared:
    """What was found of a part; ``float_error`` is None where it was not run."""

    is_tested: bool
    float_error: float | None
    skipped: tuple[str, ...]
    fault: str


def _compared(part: ChangedPart, seed: int) -> _Compared:
    skipped: list[str] = []
    is_tested, fault = False, ""
    try:
        fault = _fault_in_pieces(part, seed)
        is_tested = not fault
    except UnsupportedError as reason:
        skipped.append(str(reason).splitlines()[0])
    if fault:
        return _Compared(is_tested, None, (), fault)
    error = _float_error(part, seed)
    if error is None:
        skipped.append("too large to be run in float64")
    else:
        fault = _float_fault(part, error)
    return _Compared(is_tested, error, tuple(skipped), fault)


def _fault_in_pieces(part: ChangedPart, seed: int) -> str:
    """The fault of a part, or of fewer of its outputs at a time where all are too much for one
    program.
    """
    try:
        return _field_fault(part, seed)
    except UnsupportedError:
        half = len(part.before.outputs) // 2
        if not half:
            raise
    for chosen in (slice(half), slice(half, None)):
        before, after = (g.with_outputs(g.outputs[chosen]) for g in (part.before, part.after))
        fault = _fault_in_pieces(ChangedPart(*canonical((before, after))), seed)
        if fault:
            return fault
    return ""


def _field_fault(part: ChangedPart, seed: int) -> str:
    before, after = _programs(part)
    found = compare_programs(before, after, trials=_TRIALS, samples=2, seed=seed, over_reals=False)
    return "" if found.equal else found.reason or f"over a finite field: {found.difference}"


def _programs(part: ChangedPart) -> tuple[Program, Program]:
    """Both sides; what one of them alone reads, both return, so that they have the same inputs."""
    sides = program_of(part.before, "before"), program_of(part.after, "after")
    names = [{t.name for t in side.inputs} for side in sides]
    alone = [
        Value(INPUTS, place)
        for place, entry in enumerate(part.before.inputs)
        if (entry.name in names[0]) != (entry.name in names[1])
    ]
    if not alone:
        return sides
    before, after = (g.with_outputs((*g.outputs, *alone)) for g in (part.before, part.after))
    return program_of(before, "before"), program_of(after, "after")


def _float_error(part: ChangedPart, seed: int) -> float | None:
    """The largest difference, of the largest element; None where a part is too large."""
    types = [t for graph in (part.before, part.after) for results in graph.types for t in results]
    if sum(t.elements for t in types) > _MAX_ELEMENTS:
        return None
    draw = torch.Generator().manual_seed(seed)
    inputs = [_input(part.before, n, draw) for n in range(len(part.before.inputs))]
    with torch.no_grad():
        pairs = zip(over_torch(part.before, inputs), over_torch(part.after, inputs), strict=True)
        return max((_distance(one, other) for one, other in pairs), default=0.0)


def _input(graph: Graph, place: int, draw: torch.Generator) -> torch.Tensor:
    """Weights are positive, for variances are among them."""
    entry = graph.inputs[place]
    if entry.name in graph.constants:
        return torch.rand(entry.type.shape, generator=draw, dtype=torch.float64) + 0.5
    return torch.randn(entry.type.shape, generator=draw, dtype=torch.float64)


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    scale = float(one.abs().max()) or 1.0
    return float((one.double() - other.double()).abs().max()) / scale


def _float_fault(part: ChangedPart, error: float) -> str:
    rounds = any(n.operator == "cast" for g in (part.before, part.after) for n in g.nodes)
    if error <= (_ROUNDED if rounds else _TOLERANCE):
        return ""
    return f"in float64 an output is off by {error:.1e} of its largest element"
