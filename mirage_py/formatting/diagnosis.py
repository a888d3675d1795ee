"""Reasons why a search found less than there could be, with remedies.

Every reason that a search gives, and every rule that may have turned away what was needed, has a
row in a table: its code, what it means, and what to try.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from mirage_py.formatting.funnel import code_of
from mirage_py.formatting.kernel_format import count_text, size_text
from mirage_py.reasons import Code
from mirage_py.targets import Target
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

_KERNELS = 2  # that a search can chain
_BYTES_PER_VALUE = 4  # between operators of a block everything is float32


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """``what`` happened, ``why``, and the ``repair`` to try; ``count`` of times it was met."""

    what: str
    why: str
    repair: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Cause:
    """A row of the table, for a reason or a rule of this ``code``.

    In ``why`` and ``repair`` ``{name}`` is a bound of the search and ``{twice_name}`` twice that. A
    repair that asks for a second kernel is left out where two were allowed, and so is a cause
    without another.
    """

    code: Code
    what: str
    why: str
    repair: str
    repair_by_kernels: str = ""


# Reasons that a SearchResult gives.
REASONS = (
    Cause(
        Code.POOL_OUTGREW,
        "a pool of tensors was cut off before it was complete",
        "a configuration has more than max_tensors = {max_tensors} tensors that may be of use",
        "--limit max_tensors={twice_max_tensors}",
    ),
    Cause(
        Code.INTERMEDIATES_CUT,
        "not every value was tried that one kernel could store for another",
        "there are more than max_intermediates = {max_intermediates}: those that the program "
        "itself computes come first, then the cheapest",
        "--limit max_intermediates={twice_max_intermediates}",
    ),
    Cause(
        Code.BOUND_ON_NODES,
        "the laws were cut off before they had nothing to add",
        "the program's expressions in all their forms are more than max_nodes = {max_nodes}",
        "--limit max_nodes={twice_max_nodes}",
    ),
    Cause(
        Code.BOUND_ON_ROUNDS,
        "the laws were cut off before they had nothing to add",
        "rounds = {rounds} applications of all laws were not enough",
        "--limit rounds={twice_rounds}",
    ),
    Cause(
        Code.EXTRACTION_CUT,
        "not every way through a pool was compared",
        "the cheapest ones come first, so what is missing is most often a near-copy",
        "nothing while the result is good enough; else write the program in two parts",
    ),
    Cause(
        Code.OUT_OF_TIME,
        "the search was stopped by its budget or by Ctrl-C",
        "what is shown is the best so far",
        "a larger --budget, or none",
    ),
    Cause(
        Code.REFUTED,
        "two tensors agreed on the random inputs and are not equal",
        "a second field showed the coincidence, and the derivation was dropped",
        "another draw: --seed 1",
    ),
    Cause(
        Code.DIVIDES_BY_ZERO,
        "the program divides by zero",
        "in every draw of random inputs a divisor is zero, so it is zero whatever the inputs are",
        "look for x / (y - y) and the like",
    ),
    Cause(
        Code.NO_FIELD_VALUE,
        "a constant has no value in a finite field",
        "the search evaluates over finite fields, which have neither infinities nor NaN",
        "write a mask as a 0/1 factor behind the exponential",
    ),
    Cause(
        Code.NO_FIELD_OPERATOR,
        "an operator has no meaning over a finite field",
        "the search compares values over finite fields and cannot evaluate it there",
        "write it with operators that docs/reference/spec.md lists, or leave it out of the program",
    ),
    Cause(
        Code.BLOCK_OPERATOR,
        "an operator belongs to block graphs",
        "a program says what is computed, not how a block does it",
        "use leaves, elementwise operators, sums, maxima and contractions",
    ),
    Cause(
        Code.TOO_MANY_AXES,
        "the program has too many reduced dimensions",
        "which loops a class depends on is kept in the bits of one number",
        "write the program in two parts",
    ),
)

# Rules that may be why no configuration reaches the outputs, or why none that does fits.
RULES = (
    Cause(
        Code.MAX_LOOPS,
        "more loops in a row would be needed",
        "the program reads a row again for each result that depends on the whole row, and more "
        "than max_loops = {max_loops} times in a row is not looked at",
        "--limit max_loops={next_max_loops}",
    ),
    Cause(
        Code.MAX_OPERATORS,
        "kernels of more operators would be needed",
        "no more than max_operators = {max_operators} were allowed in one kernel",
        "--limit max_operators={twice_max_operators}",
    ),
    Cause(
        Code.WHOLE_AND_TILE,
        "something over a whole dimension is read inside the loop over that dimension",
        "a maximum or sum over a row is known only after the loop over the row, unless it only "
        "shifts exponents",
        "--limit max_loops={next_max_loops}",
        "--limit max_kernels=2",
    ),
    Cause(
        Code.TWO_LOOPS,
        "tensors of loops over two dimensions would have to meet",
        "the loops of a kernel follow one another and are never nested",
        "write the program in two parts",
        "--limit max_kernels=2",
    ),
    Cause(
        Code.GRID,
        "a reduction would have to go over dimensions that blocks share out",
        "a block sees its own part only",
        "",
        "--limit max_kernels=2",
    ),
    Cause(
        Code.ZERO_DIVISION,
        "a divisor is zero in every draw",
        "the search cannot evaluate what depends on it",
        "look for x / (y - y) and the like",
    ),
)


def diagnose(search: Mapping[str, Any], lost: Diagnosis | None = None) -> tuple[Diagnosis, ...]:
    """What kept the search of a report's part ``search`` from finding more, most telling first.

    ``lost`` says, where families were found, why none of them is a result.
    """
    limits: Mapping[str, int] = search["limits"]
    if not limits:  # of parts that a library computes, or of parts in an older report
        return (lost,) if lost else ()
    found: list[Diagnosis] = []
    if lost:
        found += [lost, *_of_rules(search, limits), *_of_reasons(search, limits)]
    else:
        found += _of_reasons(search, limits)
        found += _of_rules(search, limits) if not search.get("hits") else ()
    if not found and not search.get("hits"):
        found.append(
            Diagnosis(
                "no configuration reaches all outputs",
                "the laws do not lead from what a block can hold to the program's outputs",
                "write the program in two parts, and report it: this is a gap in the search",
            )
        )
    return tuple(found)


def unsafe_families(count: int, fault: str = "") -> Diagnosis:
    """Every family found overflows or loses digits where the program does not."""
    found = count_text(count, "family was", "families were")
    return Diagnosis(
        f"{found} found, and each may overflow or lose digits",
        "rounding in float32 does to it what it does not do to the program"
        + (f": {fault}" if fault else ""),
        "report it, with the program: the order of operations that is safe was not found",
    )


def unverified_families(count: int) -> Diagnosis:
    """Families fit, and the field test found a difference in each."""
    return Diagnosis(
        f"{count_text(count, 'family was', 'families were')} tested, and none computes the program",
        "the search and the field test contradict each other",
        "report it, with the program: this is a bug in mirage_py",
    )


def unfit_families(families: list[UGraph], target: Target) -> Diagnosis:
    """Why none of these families has a tiling on a target: what their blocks must hold at once."""
    needs = [_largest_tile(family) for family in families]
    elements, dims = min(needs, key=lambda need: need[0])
    sizes = families[0].program.sizes
    listed = " x ".join(f"{d} = {sizes[d]}" for d in dims if d in sizes) or "one value"
    found = count_text(len(families), "family was", "families were")
    return Diagnosis(
        f"{found} found, none fits {target.name}",
        f"the smallest blocks hold {listed} whole: {size_text(elements * _BYTES_PER_VALUE)}, where "
        f"a block of {target.name} has {size_text(target.smem_per_block_bytes)} of shared memory "
        f"and {size_text(target.registers_per_sm * _BYTES_PER_VALUE)} of registers",
        "make that dimension smaller, or write the program in two parts",
    )


def _largest_tile(ugraph: UGraph) -> tuple[int, tuple[str, ...]]:
    """Elements and dimensions of the largest value that a block holds with grid and loop tiles of
    one point.
    """
    sizes = ugraph.program.sizes
    largest: tuple[int, tuple[str, ...]] = (0, ())
    for block in ugraph.kernels:
        if not isinstance(block, BlockGraph):
            continue
        for section in block.sections:
            shared = (*block.grid_tiles, section.loop)
            for node in (block.nodes[n] for n in section.nodes):
                whole = tuple(d for d in node.dims if d not in shared)
                elements = prod(sizes[d] for d in whole)
                if elements > largest[0]:
                    largest = elements, whole
    return largest


def _of_reasons(search: Mapping[str, Any], limits: Mapping[str, int]) -> Iterator[Diagnosis]:
    reasons = [str(reason) for reason in search.get("reasons", [])]
    for cause in REASONS:
        own = [reason for reason in reasons if code_of(search, reason) is cause.code]
        if own:
            yield _filled(cause, limits, len(own), own[0])
    explained = (Code.NO_CONFIGURATION, *(cause.code for cause in REASONS))
    for reason in reasons:
        if code_of(search, reason) not in explained:
            yield Diagnosis(reason.splitlines()[0], "\n".join(reason.splitlines()[1:]), "")


def _of_rules(search: Mapping[str, Any], limits: Mapping[str, int]) -> Iterator[Diagnosis]:
    examples = search.get("examples", {})
    for cause in RULES:
        for rule, count in search["pruned"].items():
            if code_of(search, rule) is cause.code and _repair(cause, limits):
                example = examples.get(rule, "")
                yield _filled(cause, limits, count, f"for instance {example}" if example else "")


def _filled(cause: Cause, limits: Mapping[str, int], count: int, example: str) -> Diagnosis:
    why = _with_limits(cause.why, limits)
    if example:
        why = f"{why} ({example.splitlines()[0]})"
    return Diagnosis(cause.what, why, _with_limits(_repair(cause, limits), limits), count)


def _repair(cause: Cause, limits: Mapping[str, int]) -> str:
    """What to try; empty where it has been tried."""
    kernels = cause.repair_by_kernels if limits["max_kernels"] < _KERNELS else ""
    return " or ".join(filter(None, (kernels, cause.repair)))


def _with_limits(text: str, limits: Mapping[str, int]) -> str:
    twice = {f"twice_{name}": 2 * number for name, number in limits.items()}
    next_ = {f"next_{name}": number + 1 for name, number in limits.items()}
    return text.format(**limits, **twice, **next_)
