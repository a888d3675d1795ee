"""Writes the µGraphs that are mutated, from real searches: ``python -m adversarial.make_graphs``.

Of each program and each kind of family the cheapest one that is safe, and of one and two kernels
also the one with most operators. Tiles are small and leave tails. Names of programs choose those
that are searched again; ``--new`` those that have no µGraph yet.
"""

from __future__ import annotations

import argparse
import sys
import time

from adversarial.graphs import FOLDER
from adversarial.judge import SAME, verdict
from adversarial.programs import given, programs

from mirage_py.search.enumerate.search import search
from mirage_py.search.extract.family import ATOMIC, LIBRARY, ONE_KERNEL, SPLIT, TWO_KERNELS, Family
from mirage_py.search.stabilize.stabilize import stabilized
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.text.printing import format_ugraph
from mirage_py.verify.sizes.small_sizes import instantiate_small

# Programs with a long dimension are there for what shares it out.
_KINDS_WHOLE = (ONE_KERNEL, TWO_KERNELS, LIBRARY)
_KINDS_LONG = (SPLIT, ATOMIC)
_ALSO_LONGEST = (ONE_KERNEL, TWO_KERNELS, SPLIT)
# The searches of the largest programs find all kinds early.
_SEARCH_S = 60.0
_TRIED = 30


def main() -> None:
    """Replace the µGraphs of the programs that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, prog="adversarial.make_graphs")
    parser.add_argument("names", nargs="*", metavar="PROGRAM")
    parser.add_argument("--new", action="store_true")
    asked = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, program in programs().items():
        old = sorted(FOLDER.glob(f"{name}.*.ug"))
        if (asked.names and name not in asked.names) or (asked.new and old):
            continue
        for path in old:
            path.unlink()
        started = time.monotonic()
        kinds = _KINDS_LONG if name.endswith("_long") else _KINDS_WHOLE
        chosen = _chosen(program, given()[name], kinds)
        for title, graph in chosen.items():
            path = FOLDER / f"{name}.{title}.ug"
            path.write_text(format_ugraph(graph), encoding="utf-8")
        seconds = time.monotonic() - started
        sys.stdout.write(f"{name}: {', '.join(chosen) or 'nothing'}, {seconds:.1f} s\n")
        sys.stdout.flush()


def _chosen(program: Program, whole: Program, kinds: tuple[str, ...]) -> dict[str, UGraph]:
    found = search(program, seed=0, deadline=time.monotonic() + _SEARCH_S)
    chosen: dict[str, UGraph] = {}
    for kind in kinds:
        families = [f for f in found.families if f.kind == kind]
        cheapest = _first_right(families, whole)
        if cheapest is None:
            continue
        title = kind.replace(" ", "_")
        chosen[title] = cheapest
        if kind in _ALSO_LONGEST:
            longest = _first_right(sorted(families, key=_nodes, reverse=True), whole)
            if longest is not None and longest != cheapest:
                chosen[f"{title}_long"] = longest
    return chosen


def _nodes(family: Family) -> int:
    return sum(len(k.nodes) for k in family.ugraph.kernels if isinstance(k, BlockGraph))


def _first_right(families: list[Family], program: Program) -> UGraph | None:
    """The first that is stable and that float64 does not tell from the program."""
    for family in families[:_TRIED]:
        stable = stabilized(family.ugraph)
        if not stable.faults:
            small = instantiate_small(stable.ugraph)
            if verdict(program, small) == SAME:
                return small
    return None


if __name__ == "__main__":
    main()
