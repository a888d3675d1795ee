"""Programs that mask with a constant, the plans found for them, and what eager PyTorch gives.

The constants are those that users write, and those that a running maximum starts from or the
stabiliser masks with: in a row that has nothing else the constant is the largest value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from families import safe_families

from mirage_py.frontend.torch.trace import trace
from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.extract.family import Family
from mirage_py.search.rank.instantiate import rank
from mirage_py.targets import H200
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

ROWS, KEYS, WIDTH = 4, 512, 16
CONSTANTS = {
    "-1e4": -1e4,
    "-1e9": -1e9,
    "-1e30": -1e30,
    "-1.001e30": -1.001e30,
    "-1e31": -1e31,
    "-3.4e38": -3.4e38,
    "f16.min": torch.finfo(torch.float16).min,
    "bf16.min": torch.finfo(torch.bfloat16).min,
    "f32.min": torch.finfo(torch.float32).min,
    "1e30": 1e30,
}
# Stands for the constant while a program is searched.
_PLACE = -12345.0
_LIMITS = SearchLimits(max_cluster_blocks=16)

Tensors = tuple[torch.Tensor, ...]


def _keep() -> torch.Tensor:
    """Which keys a row sees: all, none, the last few, and some at the ends."""
    keep = torch.ones(ROWS, KEYS, dtype=torch.bool)
    keep[1] = False
    keep[2, :300] = False
    keep[3, 3:509] = False
    return keep


def _allowed() -> torch.Tensor:
    """A second mask: rows 1 and 2 are left with keys that the first one hides."""
    allowed = torch.ones(ROWS, KEYS, dtype=torch.bool)
    allowed[1, 200:] = False
    allowed[2, 100:] = False
    return allowed


def _scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q.float() @ k.float().T * 0.25


@dataclass(frozen=True, slots=True)
class Case:
    """A function of inputs and of the constant."""

    function: Callable[..., torch.Tensor]
    inputs: Callable[[float], Tensors]

    def wanted(self, constant: float) -> torch.Tensor:
        """What eager gives, in float32, with the inputs rounded to their types."""
        return self.function(*self.inputs(constant), constant).double()


def softmax(x: torch.Tensor, keep: torch.Tensor, low: float) -> torch.Tensor:
    """The weights alone."""
    return torch.where(keep, x.float(), low).softmax(-1)


def log_sum_exp(x: torch.Tensor, keep: torch.Tensor, low: float) -> torch.Tensor:
    """The logarithm, to which the shift is added again."""
    return torch.where(keep, x.float(), low).logsumexp(-1)


def largest(x: torch.Tensor, keep: torch.Tensor, low: float) -> torch.Tensor:
    """A maximum that is seen."""
    return torch.where(keep, x.float(), low).amax(-1)


def chosen(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor, low: float
) -> torch.Tensor:
    """Attention with a mask that chooses."""
    return torch.where(keep, _scores(q, k), low).softmax(-1) @ v.float()


def added(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, _: float
) -> torch.Tensor:
    """Attention with a mask that is added."""
    return (_scores(q, k) + mask.float()).softmax(-1) @ v.float()


def added_twice(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor, low: float
) -> torch.Tensor:
    """Attention with a mask from a condition, added, and once more: twice the constant."""
    mask = torch.where(keep, 0.0, low)
    return (_scores(q, k) + mask + mask).softmax(-1) @ v.float()


def both(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    keep: torch.Tensor,
    allowed: torch.Tensor,
    low: float,
) -> torch.Tensor:
    """Attention under two masks: with the constant, and with minus infinity."""
    scores = torch.where(allowed, torch.where(keep, _scores(q, k), low), -torch.inf)
    return scores.softmax(-1) @ v.float()


def backward(
    q: torch.Tensor, k: torch.Tensor, g: torch.Tensor, keep: torch.Tensor, low: float
) -> torch.Tensor:
    """What a softmax hands on of a gradient."""
    weights = torch.where(keep, _scores(q, k), low).softmax(-1)
    return weights * (g.float() - (weights * g.float()).sum(-1, keepdim=True))


def _drawn(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(4)
    return [torch.randn(shape, generator=draw).half() for shape in shapes]


_X, _Q, _K, _V, _G = _drawn((ROWS, KEYS), (ROWS, WIDTH), (KEYS, WIDTH), (KEYS, WIDTH), (ROWS, KEYS))
CASES = {
    "softmax": Case(softmax, lambda _: (_X, _keep())),
    "log_sum_exp": Case(log_sum_exp, lambda _: (_X, _keep())),
    "largest": Case(largest, lambda _: (_X, _keep())),
    "chosen": Case(chosen, lambda _: (_Q, _K, _V, _keep())),
    "added_f32": Case(added, lambda c: (_Q, _K, _V, torch.where(_keep(), 0.0, c))),
    "added_bf16": Case(
        added, lambda c: (_Q, _K, _V, torch.where(_keep(), 0.0, c).to(torch.bfloat16))
    ),
    "added_twice": Case(added_twice, lambda _: (_Q, _K, _V, _keep())),
    "both": Case(both, lambda _: (_Q, _K, _V, _keep(), _allowed())),
    "backward": Case(backward, lambda _: (_Q, _K, _G, _keep())),
}


@cache
def _families(name: str) -> Sequence[Family]:
    case = CASES[name]
    given = case.inputs(_PLACE)

    def of_place(*tensors: torch.Tensor) -> torch.Tensor:
        return case.function(*tensors, _PLACE)

    names = [f"x{n}" for n in range(len(given))]
    arguments = ", ".join(names)
    scope = {"function": of_place}
    exec(f"def program({arguments}):\n    return function({arguments})", scope)
    program = normalise(trace(scope["program"], *given))
    return search(program, limits=_LIMITS).families


def plans(name: str, constant: float, backends: Sequence[str]) -> dict[str, Plan]:
    """The best plan of each kind, by back end and kind; inputs are named x0, x1, ..."""
    found = [replace(f, ugraph=_with(f.ugraph, constant)) for f in _families(name)]
    safe = safe_families(found).ugraphs
    best: dict[str, Plan] = {}
    for backend in backends:
        for instance in rank(safe, H200, 60, backend):
            best.setdefault(f"{backend} {instance.kind}", instance.plan)
    return best


def _with(graph: UGraph, constant: float) -> UGraph:
    def changed(nodes: Sequence[Node]) -> tuple[Node, ...]:
        return tuple(replace(n, attr=constant) if n.attr == _PLACE else n for n in nodes)

    kernels = tuple(
        replace(k, nodes=changed(k.nodes)) if isinstance(k, BlockGraph) else k
        for k in graph.kernels
    )
    program = replace(graph.program, nodes=changed(graph.program.nodes))
    return replace(graph, program=program, kernels=kernels)
