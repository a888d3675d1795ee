"""Loop arrangements: which loop of a kernel computes what.

A derivation gives the earliest loop of each sum; an arrangement decides. "fused" takes the earliest
one. "split" keeps the loops of contractions free of other work: an accumulator whose terms need no
contraction gets a loop of its own before them. A sum of squares beside a dot costs more than
reading its operand twice, because its conversions stall the pipeline of the dot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mirage_py.search.closure.derivation import Derivation, Step
from mirage_py.search.extract.work import WorkModel
from mirage_py.ugraph.ir.node import REDUCING

_Place = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Steps by section, each in an order in which it can run.

    ``loops``      the dimension of each loop
    ``bodies``     the steps of each loop; a looped step is computed in every loop that needs it
    ``straights``  the steps before, between and after the loops: one more than there are loops
    ``stored_in``  for each output the loop whose body stores it, or None: it is stored at the end
    """

    name: str
    loops: tuple[str, ...]
    bodies: tuple[tuple[int, ...], ...]
    straights: tuple[tuple[int, ...], ...]
    stored_in: tuple[int | None, ...]


def arrangements(derivation: Derivation) -> Iterator[Arrangement]:
    """The fused arrangement, then the split one if it is another."""
    places = _earliest(derivation)
    yield _arrange(derivation, "fused", places)
    split = _split(derivation, places)
    if split != places:
        yield _arrange(derivation, "split", split)


def arrangement_us(derivation: Derivation, arrangement: Arrangement, work: WorkModel) -> float:
    """The cost of all steps, each as often as it is computed, and of the loops."""

    def step_us(position: int, loop: str | None) -> float:
        step = derivation.steps[position]
        return work.step_us(step.op, step.attr, derivation.works_over[position], loop)

    total = work.loop_us() * len(arrangement.loops)
    for loop, body in zip(arrangement.loops, arrangement.bodies, strict=True):
        total += sum(step_us(s, loop) for s in body)
    return total + sum(step_us(s, None) for straight in arrangement.straights for s in straight)


def shared_out(derivation: Derivation) -> tuple[str, ...]:
    """The dimensions that a kernel neither reduces nor loops over: its blocks share them out."""
    dims = dict.fromkeys(d for step in derivation.steps for d in step.dims)
    taken = [d for step in derivation.steps for d in _reduced(step)]
    return tuple(d for d in dims if d not in taken)


def loops_in_vain(derivation: Derivation) -> bool:
    """Whether it loops over a dimension that it reduces nowhere: blocks can share that out."""
    looped = dict.fromkeys(step.looped for step in derivation.steps if step.looped)
    reduced = [d for step in derivation.steps for d in _reduced(step)]
    return any(d not in reduced for d in looped)


def _reduced(step: Step) -> tuple[str, ...]:
    if step.op in REDUCING or step.is_accumulator:
        assert isinstance(step.attr, tuple)
        return tuple(map(str, step.attr))
    return ()


def _sinks(derivation: Derivation) -> tuple[int, ...]:
    """What leaves a loop: accumulators, and outputs that are stored tile by tile."""
    steps = derivation.steps
    accumulators = [n for n, s in enumerate(steps) if s.is_accumulator]
    outputs = [o for o in derivation.outputs if steps[o].looped is not None]
    return tuple(dict.fromkeys((*accumulators, *outputs)))


def _cone(derivation: Derivation, sink: int) -> tuple[int, ...]:
    """The sink and the looped steps it is computed from, in order."""
    members = {sink}
    for position in range(sink, -1, -1):
        if position in members:
            members.update(a for a in derivation.steps[position].args if derivation.steps[a].looped)
    return tuple(sorted(members))


def _earliest(derivation: Derivation) -> dict[int, _Place]:
    """For each sink its loop as (stage, 0, dimension); loops run in this order."""
    places = {}
    for sink in _sinks(derivation):
        loop = derivation.steps[sink].runs_in
        assert loop is not None
        places[sink] = (derivation.stages[sink], 0, loop)
    return places


def _split(derivation: Derivation, places: dict[int, _Place]) -> dict[int, _Place]:
    """The same places with contractions moved after everything that needs none, where a loop has
    both.
    """
    contracts = {
        sink: any(derivation.steps[s].op == "matmul" for s in _cone(derivation, sink))
        for sink in places
    }
    light = {place for sink, place in places.items() if not contracts[sink]}
    return {
        sink: (stage, 1, loop)
        if contracts[sink] and (stage, part, loop) in light
        else (stage, part, loop)
        for sink, (stage, part, loop) in places.items()
    }


def _arrange(derivation: Derivation, name: str, places: dict[int, _Place]) -> Arrangement:
    order = sorted(dict.fromkeys(places.values()))
    loop_of = {sink: order.index(place) for sink, place in places.items()}
    bodies: list[dict[int, None]] = [{} for _ in order]
    for sink, loop in loop_of.items():
        bodies[loop].update(dict.fromkeys(_cone(derivation, sink)))
    sections = _straight_sections(derivation, loop_of, bodies)
    straights = [
        tuple(n for n in range(len(derivation.steps)) if sections.get(n) == k)
        for k in range(len(order) + 1)
    ]
    steps = derivation.steps
    return Arrangement(
        name,
        tuple(loop for _, _, loop in order),
        tuple(tuple(sorted(body)) for body in bodies),
        tuple(straights),
        tuple(loop_of[o] if steps[o].looped else None for o in derivation.outputs),
    )


def _straight_sections(
    derivation: Derivation, loop_of: dict[int, int], bodies: list[dict[int, None]]
) -> dict[int, int]:
    """For each step outside of loops the number of loops before it.

    What needs no loop waits until it is needed, so that it does not hold registers over a loop;
    what an accumulator gives is used at once.
    """
    steps = derivation.steps
    after: dict[int, int] = {}
    for number, step in enumerate(steps):
        if step.is_accumulator:
            after[number] = loop_of[number] + 1
        elif step.looped is None:
            after[number] = max((after[a] for a in step.args), default=0)
    section: dict[int, int] = {}
    latest = {o: len(bodies) for o in derivation.outputs}
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        if step.is_accumulator:
            continue
        if step.looped is None:
            section[number] = needed = after[number] or latest[number]
        else:
            needed = min(k for k, body in enumerate(bodies) if number in body)
        for a in step.args:
            latest[a] = min(needed, latest.get(a, needed))
    return section
