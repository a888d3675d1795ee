"""Answers about kinds of kernels and back ends: splits, clusters, libraries, so many kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mirage_py.formatting.diagnosis import diagnose
from mirage_py.formatting.funnel import RULES, code_of
from mirage_py.questions.answer import Answer, Basis, Fact
from mirage_py.questions.question import OfBackEnd, OfKind
from mirage_py.questions.searched import CUT, searched
from mirage_py.questions.subject import Subject, Tried
from mirage_py.questions.tried_plans import Matches, answer_sort
from mirage_py.reasons import Code
from mirage_py.search.space.abstraction import reduced_dims
from mirage_py.search.space.variants import MIN_SPLIT_EXTENT, nominal_splits

# The rules that turn away kernels of a kind.
_INTERMEDIATES = (Code.PURE, Code.IMAGE, Code.MATERIALISATION)
_FUSION = (Code.GRID, Code.WHOLE_AND_TILE, Code.TWO_LOOPS, Code.MAX_LOOPS, Code.MAX_OPERATORS)


def answer_kind(subject: Subject, asked: OfKind) -> Answer:
    """Why the result is not of a kind."""
    return _answer(f"why not {_name(asked)}", subject, lambda t: _is_of(t, asked), asked)


def answer_back_end(subject: Subject, asked: OfBackEnd) -> Answer:
    """Why the result is not for the other back end."""
    question = f"why not {asked.backend}"
    notes = [n for n in subject.report.get("notes", ()) if "CUDA" in n and "candidates" in n]
    found = answer_sort(question, subject, lambda t: t.backend == asked.backend)
    if found is not None:
        return found
    facts = tuple(Fact(note, Basis.REPORT) for note in notes)
    if facts:
        verdict = f"No plan for {asked.backend} was made."
        return Answer(question, verdict, facts, ("install what compiles it, or --backend cuda",))
    return _answer(question, subject, lambda t: t.backend == asked.backend, None)


def _answer(question: str, subject: Subject, matches: Matches, asked: OfKind | None) -> Answer:
    stored = answer_sort(question, subject, matches)
    if stored is not None:
        return stored
    search = subject.report["search"]
    found = tuple(_families(search, asked))
    if asked is not None and not any(f.code == "found" for f in found):
        rules = (*found, *_impossible(subject, asked), *_pruned(search, asked), *_cut(subject))
        verdict = "The search found no family of that kind."
        return Answer(question, verdict, rules, _repairs(search))
    return searched(question, subject, matches, found)


def _name(asked: OfKind) -> str:
    if asked.kernels:
        return "one kernel" if asked.kernels == 1 else f"{asked.kernels} kernels"
    dim = f" {asked.dim}" if asked.dim else ""
    return f"{asked.word}{dim}" + (f" x{asked.splits}" if asked.splits else "")


def _is_of(tried: Tried, asked: OfKind) -> bool:
    words, _, kernels = f": {tried.kind}".rpartition(": ")
    if asked.kernels:
        return kernels == _name(asked)
    if asked.word != "split":
        return re.search(rf"\b{asked.word}\b", words) is not None
    splits = re.findall(r"split (\S+) x(\d+)", words)
    return any(asked.dim in ("", dim) and asked.splits in (0, int(count)) for dim, count in splits)


def _families(search: Mapping[str, Any], asked: OfKind | None) -> Iterator[Fact]:
    """How many families of the kind the search found."""
    if asked is None:
        return
    kinds = search.get("families", {})
    names = _family_names(asked)
    count = sum(kinds.get(name, 0) for name in names)
    listed = ", ".join(f"{name}: {n}" for name, n in kinds.items()) or "none"
    what = "may be of" if asked.kernels > 1 else "are of"
    text = f"{count} of {sum(kinds.values())} families {what} that kind ({listed})"
    yield Fact(text, Basis.REPORT, "found" if count else "")


def _family_names(asked: OfKind) -> Sequence[str]:
    if asked.kernels == 1:
        return ("one kernel", "cluster")
    if asked.kernels == 2:
        return ("two kernels", "split")
    if asked.kernels:
        return ("library", "split", "two kernels")
    return ("split", "cluster", "atomic") if asked.word == "split" else (asked.word,)


def _impossible(subject: Subject, asked: OfKind) -> Iterator[Fact]:
    """What of the program, target or bounds rules the kind out."""
    program, limits = subject.program, subject.report["search"].get("limits", {})
    if asked.word in ("split", "cluster", "atomic"):
        yield from _unsplit(subject, asked.dim)
    if asked.word == "cluster" and subject.target.max_cluster_blocks < 2:
        yield Fact(f"{subject.target.name} has no clusters", Basis.RULE, "capability")
    elif asked.word == "cluster" and limits.get("max_cluster_blocks", 0) < 2:
        text = "clusters are searched for CUDA kernels alone, and the search was for Triton"
        yield Fact(text, Basis.RULE, "max_cluster_blocks")
    if asked.word == "atomic":
        text = (
            "blocks add to an output where it is the sum of the splits' partial results and "
            "nothing is left to do with the sum: no family was of that form"
        )
        yield Fact(text, Basis.RULE, "atomic")
    if asked.word == "library" and not any(n.op == "matmul" for n in program.nodes):
        yield Fact("the program has no matmul that a library could compute", Basis.RULE, "library")
    most = limits.get("max_kernels", 2)
    if asked.kernels > most and asked.word != "library":
        text = f"no more than max_kernels = {most} were searched, library calls aside"
        yield Fact(text, Basis.RULE, "max_kernels")


def _unsplit(subject: Subject, dim: str) -> Iterator[Fact]:
    """Why a reduced dimension cannot be split."""
    program = subject.program
    reduced = reduced_dims(program)
    if dim and dim not in reduced:
        text = f"{dim} is not reduced: only sums and maxima are shared out in splits"
        yield Fact(text, Basis.RULE, "not_reduced")
    elif not reduced:
        yield Fact("the program reduces no dimension", Basis.RULE, "not_reduced")
    for name in reduced:
        size = program.sizes[name]
        if dim not in ("", name) or nominal_splits(size):
            continue
        if size < MIN_SPLIT_EXTENT:
            text = f"{name} = {size} is shorter than {MIN_SPLIT_EXTENT}: not worth a second kernel"
        else:
            text = f"{name} = {size} has no divisor from 2 to 8: splits are equal"
        yield Fact(text, Basis.RULE, "nominal_splits")


def _pruned(search: Mapping[str, Any], asked: OfKind) -> Iterator[Fact]:
    """The rules that turned away what the kind needs, with the first example of each."""
    codes = _FUSION if asked.kernels == 1 else _INTERMEDIATES
    if asked.word not in ("", "library"):
        return
    for rule, count in search["pruned"].items():
        code = code_of(search, rule)
        if code in codes:
            example = search.get("examples", {}).get(rule, "")
            first = f", first {example}" if example else ""
            text = f"{count} turned away by {rule}{first}. {RULES.get(code, '')}".rstrip()
            yield Fact(text, Basis.REPORT, code.name.lower())


def _cut(subject: Subject) -> Iterator[Fact]:
    """Where the search did not go through all of its space, or went through parts of the program;
    what is missing may be there.
    """
    search = subject.report["search"]
    for note in subject.report.get("notes", ()):
        if note.startswith(CUT):
            yield Fact(note, Basis.REPORT, "parts")
    ends = [ring for ring in search.get("rings", ()) if "exhausted" not in ring]
    if ends:
        text = f"the search did not go through all of its space ({', '.join(ends)})"
        yield Fact(text, Basis.REPORT, "cut")
    for reason in search.get("reasons", ()):
        yield Fact(reason.partition("\n")[0], Basis.REPORT, code_of(search, reason).name.lower())


def _repairs(search: Mapping[str, Any]) -> tuple[str, ...]:
    """What to try, where the search was cut or a rule with a bound turned something away."""
    return tuple(dict.fromkeys(d.repair for d in diagnose(search) if d.repair))
