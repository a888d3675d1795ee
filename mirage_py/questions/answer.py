"""An answer: what is the case, on which facts it rests, and what would have to change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Basis(StrEnum):
    """Where a fact is from."""

    REPORT = "the report"
    RULE = "a rule"
    MODEL = "the cost model, asked now"
    BACK_END = "the back end, asked now"
    SEARCH = "a search, run now"


@dataclass(frozen=True, slots=True)
class Fact:
    """A sentence with a figure or a rule, and where it is from; ``code`` is that of a reason, a
    rule or a limit, where there is one.
    """

    text: str
    basis: Basis
    code: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """``question`` as it was understood; ``verdict`` is the answer in a sentence."""

    question: str
    verdict: str
    facts: tuple[Fact, ...] = ()
    changes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """As JSON."""
        facts = [{"text": f.text, "basis": f.basis, "code": f.code} for f in self.facts]
        return {
            "question": self.question,
            "verdict": self.verdict,
            "facts": facts,
            "changes": list(self.changes),
        }
