"""Composites of the parts' plans that are worth a race, with PyTorch for what kernels lack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mirage_py.pipeline.partition.compose import compose
from mirage_py.pipeline.partition.part_choice import Chosen, Picked
from mirage_py.pipeline.partition.partition import Partition
from mirage_py.runtime.base.emission import BACKENDS
from mirage_py.targets import Target
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import LibraryCall

# A part is PyTorch's where that takes so much less than the part's own kernels.
_FASTER = 0.97
# Composites that are tried with other types between their parts, too; what halves have to save.
_TWICE, _WORTH = 2, 0.02


@dataclass(frozen=True, slots=True)
class Composite:
    """A plan of the whole program, the parts that it is made of, and their plans."""

    plan: Plan
    whole: Partition
    chosen: Sequence[Chosen]
    time_us: float


def composites_of(whole: Partition, chosen: Sequence[Chosen], *, measure: bool) -> tuple[Plan, ...]:
    """The parts in sequence, for each back end that has a plan of each part, or else for each; the
    parts without one are PyTorch's, by Inductor and by its operators where these are several. With
    ``measure`` once more, with PyTorch for the parts that it was faster at, and, where there are
    untried plans, for those: one that does not run takes the whole with it.

    The fastest by the times of their parts come first. None is without a kernel that was searched.
    """
    complete = [b for b in BACKENDS if all(b in c.picked for c in chosen)]
    found: dict[Plan, float] = {}
    for backend in complete or BACKENDS:
        ways = [_filled(chosen, backend, compiled=measure)]
        if measure:
            ways.append(_filled(chosen, backend, compiled=False))
            ways.append(_filled(chosen, backend, compiled=True, faster=_FASTER))
            if any(c.untried for c in chosen):
                tried = [replace(c, picked={}) if c.untried else c for c in chosen]
                ways.append(_filled(tried, backend, compiled=True, faster=_FASTER))
        for picked in ways:
            if picked is not None:
                plan = compose(whole, [p.plan for p in picked])
                found.setdefault(plan, sum(p.time_us for p in picked))
    return tuple(sorted(found, key=found.__getitem__))


def _filled(
    chosen: Sequence[Chosen], backend: str, *, compiled: bool, faster: float = 0.0
) -> list[Picked] | None:
    """A plan for each part; None where some part has none, or no kernel is ours."""
    found: list[Picked] = []
    ours = 0
    for part in chosen:
        own = part.picked.get(backend)
        by_torch = part.of_torch(backend, compiled=compiled and own is None)
        slow = part.is_ours and by_torch is not None and own is not None
        if slow and by_torch and own and by_torch.time_us < faster * own.time_us:
            own = None
        best = own or by_torch
        if best is None:
            return None
        ours += part.is_ours and own is not None
        found.append(best)
    return found if ours else None


def picked_in(whole: Partition, chosen: Sequence[Chosen], plan: Plan) -> list[Picked | None]:
    """The plan of each part in a composite; None where that is PyTorch's."""
    torch = {
        name
        for kernel in plan.ugraph.kernels
        if isinstance(kernel, LibraryCall) and kernel.body is not None
        for name in kernel.written_tensors
    }
    return [
        None if part.outputs[0].tensor.name in torch else c.picked[plan.backend]
        for part, c in zip(whole.parts, chosen, strict=True)
    ]


def predicted_us(whole: Partition, chosen: Sequence[Chosen], plan: Plan) -> float:
    """The sum of the times of a composite's parts."""
    total = 0.0
    for picked, part in zip(picked_in(whole, chosen, plan), chosen, strict=True):
        found = picked or part.by_torch
        assert found is not None
        total += found.time_us
    return total


def with_other_types(found: Sequence[Composite], target: Target) -> list[Composite]:
    """The composites in their order, and beside the first of them, the faster one first, the same
    with other types of large tensors between parts: with the inputs' half type where that saves
    time, or with float32 where the partition is in halves.

    PyTorch rounds what its calls return. Here a cut may be elsewhere, and half a unit in the last
    place before an exponential is far more than that: the numerical check decides.
    """
    every: list[Composite] = []
    for number, composite in enumerate(found):
        other = _with_other_types(composite, target) if number < _TWICE else None
        both = [composite] if other is None else [composite, other]
        every += sorted(both, key=lambda c: c.time_us)
    return every


def _with_other_types(composite: Composite, target: Target) -> Composite | None:
    """None where inputs have no one half type, or nothing that is worth it is in float32."""
    whole, ugraph = composite.whole, composite.plan.ugraph
    halves = {t.dtype for t in whole.program.inputs if t.dtype.is_float}
    if len(halves) != 1 or not all(t.is_half for t in halves):
        return None
    (half,) = halves
    now, then = (half, F32) if whole.in_halves else (F32, half)
    # Statistics stay as they are: their errors are common to a row. A library has one type.
    large = max((t.elements for t in whole.cuts), default=0)
    cuts = {t.name for t in whole.cuts if t.dtype == now and 2 * t.elements >= large}
    for kernel in ugraph.kernels:
        if isinstance(kernel, LibraryCall) and kernel.body is None:
            cuts -= {*kernel.read_tensors, *kernel.written_tensors}
    held = {t.name: t for t in ugraph.intermediates if t.name in cuts}
    moved = sum(
        held[name].elements * (then.bytes - now.bytes)
        for kernel in ugraph.kernels
        for name in (*kernel.read_tensors, *kernel.written_tensors)
        if name in held
    )
    time_us = composite.time_us + moved / target.dram_bytes_per_us
    if not held or (not whole.in_halves and time_us > (1.0 - _WORTH) * composite.time_us):
        return None
    tensors = (replace(t, dtype=then) if t.name in held else t for t in ugraph.intermediates)
    plan = replace(composite.plan, ugraph=replace(ugraph, intermediates=tuple(tensors)))
    return replace(composite, plan=plan, time_us=time_us)
