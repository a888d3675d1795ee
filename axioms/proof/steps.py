"""Derivations as data: the laws that turn one term into another, step by step, and their JSON form.

The form has one table of terms, operands before the terms that use them:

    {"terms": [["leaf", "X[b, d]"], ["sum", "d", 0], ["mul", "", 1, 1], ...],
     "outputs": [{"output": "Y", "first": 12, "last": 31, "steps": [
        {"law": "sums.multiply", "forward": true, "at": [0, 1],
         "with": {"i": "d", "x": 3, "y": 4}, "before": 12, "after": 15}, ...]}],
     "dims": {"d": ["d_part", "d"]}, "calls": {"T": ["X[b, d]", "W[d, e]"]},
     "needs": ["|d| is a multiple of |d_part|"], "version": 3}

``at`` is the way from the root to what is rewritten: 0 for the first operand, 1 for the second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mirage_py.axioms.terms.term import REDUCTIONS, Term, subterms
from mirage_py.errors import FormatError, MirageError

# The form's version; the checker has its own.
VERSION = 3
# The law from the size of a dimension to the sum of its tiles'.
EXTENTS = "tiles.size"
# Characters of what is wrong with a document that a message shows: the text is from outside.
_SHOWN = 200
# Characters of a name: a load's is its whole text, with all index expressions.
_LONGEST_NAME = 100_000


@dataclass(frozen=True, slots=True)
class Step:
    """One law at one place. ``terms`` and ``axes`` say what its variables stand for."""

    law: str
    forward: bool
    at: tuple[int, ...]
    terms: Mapping[str, Term]
    axes: Mapping[str, str]
    before: Term
    after: Term


@dataclass(frozen=True, slots=True)
class Derivation:
    """From the program's term of an output to the µGraph's."""

    output: str
    first: Term
    last: Term
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Proof:
    """A derivation for each output. ``dims`` says what the µGraph has in place of dimensions of the
    program, ``calls`` how the operands of library calls are read, and ``needs`` what sizes and
    tiles have to be like, besides at least 1.
    """

    derivations: tuple[Derivation, ...]
    dims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    calls: Mapping[str, Sequence[str]] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    @property
    def laws(self) -> tuple[str, ...]:
        """The laws that it rests on, each once."""
        names = (s.law for d in self.derivations for s in d.steps)
        return tuple(sorted(dict.fromkeys(names)))

    @property
    def length(self) -> int:
        """How many steps there are."""
        return sum(len(d.steps) for d in self.derivations)

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        roots = [t for d in self.derivations for t in (d.first, d.last)]
        for d in self.derivations:
            for s in d.steps:
                roots += [s.before, s.after, *s.terms.values()]
        number = {term: n for n, term in enumerate(subterms(*roots))}
        return {
            "terms": [[t.op, t.attr, *(number[a] for a in t.args)] for t in number],
            "outputs": [
                {
                    "output": d.output,
                    "first": number[d.first],
                    "last": number[d.last],
                    "steps": [
                        {
                            "law": s.law,
                            "forward": s.forward,
                            "at": list(s.at),
                            "with": {**s.axes, **{v: number[t] for v, t in s.terms.items()}},
                            "before": number[s.before],
                            "after": number[s.after],
                        }
                        for s in d.steps
                    ],
                }
                for d in self.derivations
            ],
            "dims": {d: list(new) for d, new in self.dims.items()},
            "calls": {result: list(texts) for result, texts in self.calls.items()},
            "needs": list(self.needs),
            "version": VERSION,
        }


def term_at(term: Term, at: tuple[int, ...]) -> Term:
    """The subterm at a place. Raises IndexError where there is none."""
    for argument in at:
        term = term.args[argument]
    return term


def with_term_at(term: Term, at: tuple[int, ...], new: Term) -> Term:
    """The term with another subterm at a place."""
    above = []
    for argument in at:
        above.append((term, argument))
        term = term.args[argument]
    for parent, argument in reversed(above):
        args = (*parent.args[:argument], new, *parent.args[argument + 1 :])
        new = Term(parent.op, parent.attr, args)
    return new


def with_axes(term: Term, names: Mapping[str, str]) -> Term:
    """The same with other names of axes."""
    new: dict[Term, Term] = {}
    for t in subterms(term):
        attr = names.get(t.attr, t.attr) if t.op in (*REDUCTIONS, "size") else t.attr
        new[t] = Term(t.op, attr, tuple(new[a] for a in t.args))
    return new[term]


def derivation_with_axes(derivation: Derivation, names: Mapping[str, str]) -> Derivation:
    """The same with other names of axes."""
    steps = tuple(
        replace(
            s,
            terms={v: with_axes(t, names) for v, t in s.terms.items()},
            axes={v: names.get(axis, axis) for v, axis in s.axes.items()},
            before=with_axes(s.before, names),
            after=with_axes(s.after, names),
        )
        for s in derivation.steps
    )
    first, last = with_axes(derivation.first, names), with_axes(derivation.last, names)
    return Derivation(derivation.output, first, last, steps)


def read_proof(document: Any) -> Proof:
    """The proof of a JSON form. Raises FormatError for what has another form, or version."""
    try:
        if type(document["version"]) is not int or document["version"] != VERSION:
            raise ValueError(f"its version is not {VERSION}")
        table: list[Term] = []
        for op, attr, *args in document["terms"]:
            table.append(Term(_text(op), _text(attr), tuple(table[_place(a, table)] for a in args)))
        outputs = [_derivation(output, table) for output in document["outputs"]]
        dims, calls = _texts(document.get("dims", {})), _texts(document.get("calls", {}))
        needs = tuple(map(_text, document.get("needs", ())))
    # Numbers in decimal text have errors of their own, of arithmetic.
    except (
        *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
        MirageError,
    ) as error:
        raise FormatError(
            "is no derivation",
            where="report.json, verification.proof",
            why=ascii(f"{type(error).__name__}: {error}")[1:-1][:_SHOWN],
            repair="make the artifact again with `mirage-py superoptimize ... -o DIR`",
        ) from None
    return Proof(tuple(outputs), dims, calls, needs)


def _derivation(output: Mapping[str, Any], table: list[Term]) -> Derivation:
    steps = []
    for entry in output["steps"]:
        bound = entry["with"].items()
        step = Step(
            _text(entry["law"]),
            entry["forward"] is True,
            tuple(_count(a) for a in entry["at"]),
            {v: table[_place(t, table)] for v, t in bound if not isinstance(t, str)},
            {v: axis for v, axis in bound if isinstance(axis, str)},
            table[_place(entry["before"], table)],
            table[_place(entry["after"], table)],
        )
        for whole in (step.before, step.after):
            term_at(whole, step.at)
        steps.append(step)
    first, last = (table[_place(output[end], table)] for end in ("first", "last"))
    return Derivation(_text(output["output"]), first, last, tuple(steps))


def _texts(found: Mapping[Any, Any]) -> Mapping[str, Sequence[str]]:
    return {_text(name): tuple(map(_text, texts)) for name, texts in found.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} is no text")
    # What is read is also printed.
    if not value.isprintable() or len(value) > _LONGEST_NAME:
        raise ValueError(f"a name of {len(value)} characters, or one that cannot be printed")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise TypeError(f"a {type(value).__name__} that is no place")
    return value


def _place(value: Any, table: list[Term]) -> int:
    if _count(value) >= len(table):
        raise IndexError(f"term {value} is not in the table yet")
    return int(value)
