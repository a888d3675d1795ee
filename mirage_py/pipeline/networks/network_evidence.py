"""Evidence that an optimised operator graph computes what the program does, part by part.

This does not rely on the substitutions. Each part that changed is two graphs of the
same values: as Programs they are compared over finite fields, at small sizes and at the real ones,
and both are run in float64 on random inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from mirage_py.errors import UnsupportedError
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
    """Compare every part; the first difference ends it."""
    tested, ran, error = 0, 0, 0.0
    skipped: dict[str, int] = {}
    for part in parts:
        if should_stop():
            skipped["out of time"] = skipped.get("out of time", 0) + 1
            continue
        try:
            fault = _field_fault(part, seed)
            tested += not fault
        except UnsupportedError as reason:
            skipped[str(reason).splitlines()[0]] = 1
            fault = ""
        if not fault:
            found = _float_error(part, seed)
            if found is None:
                skipped["too large to be run in float64"] = 1
                continue
            ran, error = ran + 1, max(error, found)
            fault = _float_fault(part, found)
        if fault:
            return NetworkEvidence(len(parts), tested, ran, error, fault=fault)
    return NetworkEvidence(len(parts), tested, ran, error, tuple(skipped))


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
