"""A derivation step by step, each with its law and the law's side condition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mirage_py.axioms.proof.proof_laws import laws_of_proofs
from mirage_py.axioms.proof.steps import Derivation, Step, read_proof, term_at
from mirage_py.axioms.terms.law import Law
from mirage_py.errors import FormatError
from mirage_py.formatting.derivation_format import term_text

_DEPTH = 6
_REORDERING = ("commutes", "commute", "associates", "associate")
# Steps that are shown of one output; a longer derivation says how many it leaves out.
_MOST = 400


@dataclass(frozen=True, slots=True)
class ShownStep:
    """``law`` as an equation, ``condition`` what has to hold for it, empty for none; ``minor``
    where it only puts operands in another order.
    """

    number: int
    name: str
    law: str
    condition: str
    before: str
    after: str
    minor: bool


@dataclass(frozen=True, slots=True)
class ShownDerivation:
    """The steps of one output from the program's term to the µGraph's."""

    output: str
    first: str
    last: str
    steps: tuple[ShownStep, ...]
    more: int


def derivations(document: Mapping[str, Any] | None) -> tuple[ShownDerivation, ...]:
    """Of the stored form; empty where there is none that can be read."""
    if document is None:
        return ()
    try:
        proof = read_proof(document)
    except FormatError:
        return ()
    laws = {law.name: law for law in laws_of_proofs()}
    return tuple(_shown(d, laws) for d in proof.derivations)


def _shown(derivation: Derivation, laws: Mapping[str, Law]) -> ShownDerivation:
    steps = [_step(n, s, laws.get(s.law)) for n, s in enumerate(derivation.steps[:_MOST], 1)]
    first, last = (term_text(t, 2 * _DEPTH) for t in (derivation.first, derivation.last))
    more = len(derivation.steps) - len(steps)
    return ShownDerivation(derivation.output, first, last, tuple(steps), more)


def _step(number: int, step: Step, law: Law | None) -> ShownStep:
    before, after = (term_text(term_at(t, step.at), _DEPTH) for t in (step.before, step.after))
    name = step.law if step.forward else f"{step.law}, read backwards"
    minor = step.law.endswith(_REORDERING)
    if law is None:
        # Laws of tiles hold by how a dimension was cut, which the certificate's needs state.
        rule, condition = "", "the dimension is cut into these tiles"
    else:
        rule = f"{term_text(law.left, _DEPTH)} = {term_text(law.right, _DEPTH)}"
        free = [f"{c.var} does not depend on {c.axis}" for c in law.when]
        condition = "; ".join([*free, *(f"{name} is a size, at least 1" for name in law.sizes)])
    return ShownStep(number, name, rule, condition, before, after, minor)
