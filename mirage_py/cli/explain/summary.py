"""The summary of a result: what ``superoptimize`` prints on stdout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mirage_py.formatting.evidence_format import format_reach
from mirage_py.formatting.funnel import kinds_text
from mirage_py.formatting.kernel_format import count_text
from mirage_py.result import SOURCES, Evidence, Result, SearchSummary
from mirage_py.search.tilings.kinds import describe
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import operator
from mirage_py.ugraph.text.text_form import format_ugraph
from mirage_py.verify.numerical_check.check_strength import sets_text
from mirage_py.verify.numerical_check.float_case import SetFinding

_LABEL_WIDTH = 10


def summary(result: Result, files: Sequence[Path]) -> str:
    """The µGraph, then one fact a line; ``files`` are the sources of the kernels."""
    lines: list[str] = []
    if result.ugraph is not None:
        lines += [format_ugraph(result.ugraph).rstrip(), ""]
    for label, text in _facts(result, files):
        lines.append(f"{label:<{_LABEL_WIDTH}} {text}".rstrip())
    return "\n".join(lines)


def _facts(result: Result, files: Sequence[Path]) -> Iterator[tuple[str, str]]:
    if result.evidence is not None:
        yield from _verification(result.evidence, rounding_sites(result.program))
    yield "search", _search(result.search)
    yield "", _found(result.search)
    for reason, count in sorted(result.search.pruned.items(), key=lambda item: -item[1]):
        example = result.search.examples.get(reason, "")
        yield "", f"pruned {count:>7}  {reason}" + (f", as {example}" if example else "")
    if result.ugraph is not None:
        names = ", ".join(kernel.name for kernel in result.ugraph.kernels)
        yield "kernels", f"{describe(result.ugraph)} ({names})"
    yield result.backend, ", ".join(map(str, files)) or f"none: {result.served}"
    yield "baseline", str(result.baseline)
    floor = f"roofline bound {result.search.lower_bound_us:.2f} us, gap {result.search.gap:.0%}"
    yield "best", f"{result.best}; {floor}"
    yield "speedup", f"{result.speedup:.2f}x {SOURCES[result.best.source]} on {result.target}"
    if result.cached:
        yield "cache", "from the cache: nothing was searched now (--no-cache searches anew)"
    for note in result.notes:
        yield "note", note
    if result.artifact is not None:
        yield "artifact", str(result.artifact)


def rounding_sites(program: Program) -> int:
    """Places where a program rounds to a code: functions of which nothing is known but that both
    sides apply them to the same term.
    """
    return sum(operator(n.op).is_quantiser for n in program.nodes)


def _verification(evidence: Evidence, sites: int) -> Iterator[tuple[str, str]]:
    """What was checked; nothing is said that was not."""
    primes = ", ".join(map(str, evidence.primes))
    parts = [f"equal in {evidence.trials} trials modulo {primes}"]
    if evidence.samples:
        parts.append(f"in {evidence.samples} samples at full size")
    parts.append(_proof(evidence))
    if sites:
        parts.append(f"up to {count_text(sites, 'rounding site')}, none of them moved")
    yield "verified", "; ".join(parts)
    bound = "none" if evidence.error_bound is None else f"{evidence.error_bound:.2g}"
    yield "bound", f"{bound}: {evidence.bound_reason}"
    error = f"{evidence.max_rel_error:.2g}, allowed {evidence.float_bound:.2g}"
    yield "float", f"relative error {error} ({evidence.float_source})"
    if evidence.float_sets:
        yield "inputs", sets_text([SetFinding(**s) for s in evidence.float_sets])


def _proof(evidence: Evidence) -> str:
    if evidence.proof is not None:
        return f"proved {format_reach(evidence.proof)}"
    return "proved by the laws" if evidence.proved else "not proved by the laws"


def _search(search: SearchSummary) -> str:
    configurations = count_text(search.configurations, "configuration")
    ends = ", ".join(search.rings) or ("exhausted" if search.exhausted else "cut")
    return f"{search.seconds:.2f} s; {search.candidates} candidates in {configurations}; {ends}"


def _found(search: SearchSummary) -> str:
    families = count_text(sum(search.kinds.values()), "family", "families")
    found = f"found {families}{kinds_text(search.kinds)}"
    return f"{found}; {search.valid} verified; {search.ranked} plans ranked"
