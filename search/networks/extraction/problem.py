"""An extraction problem: classes of equal values, the ways to compute each, and what they cost.

Costs are those of kernels and not of operators. A library operator is a kernel of its own, with its
operands and results in memory. A fused operator (elementwise, a reduction, a concatenation) costs
nothing where its reader computes it in its own kernel; where its value is stored it costs a launch
and the bytes written, and each stored value that it reads costs the bytes read. A view is stored
where what it looks at is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """How an operator runs."""

    FREE = "free"  # inputs, and what is computed once of constants
    LIBRARY = "library"
    FUSED = "fused"
    VIEW = "view"


@dataclass(frozen=True, slots=True)
class Option:
    """One way to compute the value of a class, of the values of other classes.

    ``time_us`` is that of a library operator, its reads and writes included. ``packed`` says that
    such an operator reads contiguous memory only, and ``is_strided`` that a view is not contiguous.
    """

    children: tuple[int, ...]
    kind: Kind
    time_us: float = 0.0
    packed: bool = False
    is_strided: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """``options`` of each class; ``moved_us`` is the time to read or write its value once.

    ``start`` is the choice that the program came with, by class.
    """

    options: Mapping[int, tuple[Option, ...]]
    moved_us: Mapping[int, float]
    launch_us: float
    outputs: tuple[int, ...]
    start: Mapping[int, int] = field(default_factory=dict)


def operator_us(option: Option) -> float:
    """What an operator costs whatever it does: between equals the fewer, with fewer operands, and
    what is computed once rather than at each call.
    """
    return 1e-4 if option.kind is Kind.FREE else 1e-3 * (1 + len(option.children))


Selection = dict[int, int]  # the number of the chosen option, for each class that is computed


def reachable(problem: Problem, choice: Mapping[int, int]) -> Selection | None:
    """The part of a choice that the outputs need, operands first; None where it has a circle."""
    state: dict[int, bool] = {}
    order: Selection = {}
    for root in problem.outputs:
        todo = [root]
        while todo:
            class_ = todo[-1]
            if state.get(class_):
                todo.pop()
                continue
            if class_ not in choice:
                return None
            children = problem.options[class_][choice[class_]].children
            if class_ in state:
                todo.pop()
                state[class_] = True
                order[class_] = choice[class_]
                continue
            state[class_] = False
            waiting = [c for c in children if not state.get(c)]
            if any(c in state for c in waiting):
                return None
            todo += waiting
    return order


def chosen(problem: Problem, selection: Selection) -> Iterator[tuple[int, Option]]:
    """Classes of a selection with their options."""
    for class_, number in selection.items():
        yield class_, problem.options[class_][number]
