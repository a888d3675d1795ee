"""The pruning funnel of a search: from candidates to the plan that won, stage by stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirage_py.formatting.kernel_format import count_text
from mirage_py.reasons import Code

# What each rule of the search means.
RULES = {
    Code.GRID: (
        "Blocks share out this dimension, so no block can end a reduction over it: a second kernel "
        "or an atomic addition does."
    ),
    Code.IMAGE: (
        "Storing it would save its reader nothing that the tensor it is made of does not save."
    ),
    Code.PURE: ("Its reader can compute it from the inputs at the price of reading them."),
    Code.MATERIALISATION: (
        "The product is larger than its operands and than anything in the program: it is summed "
        "as it is made, as a matmul, and never held."
    ),
    Code.MAX_OPERATORS: (
        "A kernel is not made larger than the bound that was set; without one there is none."
    ),
    Code.MAX_LOOPS: (
        "Each of these loops waits for the result of the one before it, and reads its operands "
        "again."
    ),
    Code.REDUCED_TILE: (
        "Accumulating whole tiles and reducing them after the loop is the same sum with a larger "
        "accumulator."
    ),
    Code.TWO_LOOPS: (
        "Loops of a kernel follow one another, so tiles of two different loops never meet."
    ),
    Code.WHOLE_AND_TILE: (
        "In a loop there is one tile of the dimension at a time, so nothing there can use all of "
        "it: a maximum over a row is known only after the loop over the row."
    ),
    Code.NO_TILE: (
        "The tensor does not depend on the dimension, or is reduced over its tile already."
    ),
    Code.ZERO_DIVISION: ("It divides by something that is zero whatever the inputs are."),
}

RING_WORDS = {
    "factored": "sums and products are factored, never multiplied out",
    "expanded": "products are multiplied out as well",
}


@dataclass(frozen=True, slots=True)
class Row:
    """``count`` things at a stage; ``share`` of the candidates where a rule turned them away."""

    count: int
    what: str
    share: float | None = None
    meaning: str = ""
    example: str = ""


def code_of(search: Mapping[str, Any], sentence: str) -> Code:
    """The code of a rule or reason of a report's part ``search``; OTHER where it has none."""
    name = search.get("codes", {}).get(sentence, "other")
    return Code.__members__.get(name.upper(), Code.OTHER)


def funnel(search: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]]) -> tuple[Row, ...]:
    """The rows of a report's parts ``search`` and ``candidates``, from wide to narrow."""
    return (*_closures(search), *_families(search), *_measured(candidates))


def _closures(search: Mapping[str, Any]) -> Iterator[Row]:
    total = int(search["candidates"])
    configurations = count_text(int(search.get("configurations", 0)), "configuration")
    yield Row(total, f"candidates in {configurations} (what is looped, on the grid or whole)")
    examples = search.get("examples", {})
    pruned = sorted(search["pruned"].items(), key=lambda item: (-item[1], item[0]))
    for rule, count in pruned:
        share = count / total if total else 0.0
        meaning = RULES.get(code_of(search, rule), "")
        yield Row(count, f"pruned by {rule}", share, meaning, examples.get(rule, ""))
    yield Row(int(search.get("evaluations", 0)), "evaluated on random inputs over a finite field")
    yield Row(int(search.get("merged", 0)), "merged: another way to make a tensor that was known")
    yield Row(int(search.get("tensors", 0)), "tensors kept, each with every way to make it")
    yield Row(int(search.get("hits", 0)), "configurations that reach every output")


def _families(search: Mapping[str, Any]) -> Iterator[Row]:
    kinds = search.get("families", {})
    total = sum(kinds.values())
    yield Row(total, ("family" if total == 1 else "families") + kinds_text(kinds))
    unsafe = int(search.get("unsafe", 0))
    if unsafe:
        yield Row(
            unsafe, "of them dropped: they overflow or lose digits where the program does not"
        )
    yield Row(int(search.get("tested", 0)), "of them among the plans that fit the target best")
    yield Row(int(search["valid"]), "of these equal to the program in the field test")
    yield Row(int(search.get("ranked", 0)), "plans ranked by the cost model")


def kinds_text(kinds: Mapping[str, int]) -> str:
    """How many there are of each kind, in brackets; empty where there are none."""
    listed = ", ".join(f"{kind}: {count}" for kind, count in kinds.items())
    return f" ({listed})" if listed else ""


def _measured(candidates: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    measured = [c for c in candidates if c["source"] == "measured"]
    dropped = sum(not c["passed"] for c in candidates)
    if measured:
        timed = sum(c["passed"] and c["time_us"] is not None for c in measured)
        yield Row(len(measured), "compiled and checked against float64")
        yield Row(timed, "timed beside the baselines")
    if dropped:
        yield Row(dropped, "dropped")


def rings(search: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each ring of laws that was searched, with what it is and how it ended."""
    for text in search.get("rings", []):
        ring, _, end = str(text).partition(": ")
        words = RING_WORDS.get(ring, "")
        yield ring, f"{end} ({words})" if words else end
