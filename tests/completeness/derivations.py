"""Every derivation that a pool holds, up to a number of operators, as graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from completeness.graphs import Graph, Step
from completeness.kinds import Kind

from mirage_py.search.closure.pool import Alternative, Pool


def derivations(pool: Pool, roots: Sequence[int], most: int, kernel: int = 0) -> Iterator[Graph]:
    """All choices of an alternative for each tensor that is needed, without cycles."""

    def complete(choice: dict[int, Alternative], owed: list[int], left: int):
        owed = [n for n in dict.fromkeys(owed) if n not in choice]
        # Each tensor that is owed and no leaf takes an operator.
        if sum(not any(not w.args for w in pool[n].alternatives) for n in owed) > left:
            return
        if not owed:
            yield choice
            return
        number, *rest = owed
        for way in pool[number].alternatives:
            spent = bool(way.args)
            if spent <= left and not any(_reaches(choice, a, number) for a in way.args):
                yield from complete({**choice, number: way}, [*rest, *way.args], left - spent)

    for choice in complete({}, list(roots), most):
        yield _graph(pool, choice, roots, kernel)


def _reaches(choice: dict[int, Alternative], start: int, goal: int) -> bool:
    todo, seen = [start], {}
    while todo:
        number = todo.pop()
        if number == goal:
            return True
        if number not in seen and number in choice:
            seen[number] = None
            todo.extend(choice[number].args)
    return False


def _graph(pool: Pool, choice: dict[int, Alternative], roots: Sequence[int], kernel: int) -> Graph:
    position: dict[int, int] = {}
    steps: list[Step] = []

    def place(number: int) -> int:
        if number not in position:
            way = choice[number]
            args = tuple(place(a) for a in way.args)
            tensor = pool[number]
            position[number] = len(steps)
            steps.append(Step(way.op, args, way.attr, Kind(tensor.looped, tensor.dims, kernel)))
        return position[number]

    outputs = tuple(place(r) for r in roots)
    return Graph(tuple(steps), outputs)
