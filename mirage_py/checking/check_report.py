"""The report of a check of a kernel: what it found and what it did not look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mirage_py.checking.numbers import Numbers
from mirage_py.checking.two_programs import Algebra
from mirage_py.errors import VerificationError
from mirage_py.formatting.evidence_format import format_reach
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.numerical_check.check_strength import sets_text
from mirage_py.verify.numerical_check.float_case import SetFinding

# Input sets whose faults are shown.
_FAULTS = 3


@dataclass(frozen=True, repr=False)
class CheckReport:
    """A kernel against the function that it stands for, by ``program``.

    ``numbers`` is None where the kernel is a program that was not run. It has ``passed`` where
    nothing that was looked at speaks against it: numbers close to float64 on every set of inputs,
    and, where both are programs, equality over finite fields.
    """

    kernel: str
    program: Program
    device: str
    numbers: Numbers | None
    algebra: Algebra

    @property
    def passed(self) -> bool:
        """Whether nothing was found that is wrong."""
        differ = self.algebra.comparison is not None and not self.algebra.comparison.equal
        return not differ and (self.numbers is None or self.numbers.evidence.passed)

    @property
    def proved(self) -> bool:
        """Whether the laws prove that both are equal for all sizes."""
        return self.algebra.proof is not None

    @property
    def sets(self) -> tuple[SetFinding, ...]:
        """What each set of inputs has shown."""
        return self.numbers.evidence.sets if self.numbers else ()

    def require(self) -> CheckReport:
        """This report, or VerificationError where something is wrong."""
        if not self.passed:
            raise VerificationError(
                f"{self.kernel} does not compute {self.program.name}", why=" ".join(self._faults())
            )
        return self

    def document(self) -> dict[str, Any]:
        """As JSON."""
        numbers, found = self.numbers, self.algebra.comparison
        return {
            "schema": 1,
            "kernel": self.kernel,
            "program": self.program.name,
            "passed": self.passed,
            "proved": self.proved,
            "faults": list(self._faults()),
            "device": self.device,
            "sets": [
                {"name": s.name, "elements": s.elements, "compared": s.telling, "excess": s.excess}
                for s in self.sets
            ],
            "same_bits_twice": numbers.steady if numbers else None,
            "fields": None if found is None else {"equal": found.equal, "reason": found.reason},
            "not_checked": list(self.not_checked),
        }

    @property
    def not_checked(self) -> tuple[str, ...]:
        """What this check says nothing of."""
        return tuple(self._not_checked())

    def __repr__(self) -> str:
        verdict = "passed" if self.passed else "FAILED"
        lines = [f"{self.kernel} as {self.program.name}: {verdict}", *self._lines()]
        return "\n".join([*lines, f"  not checked  {'; '.join(self.not_checked)}"])

    # -- inside ----------------------------------------------------------------------------------

    def _lines(self) -> Iterator[str]:
        if self.numbers is not None:
            evidence = self.numbers.evidence
            yield f"  numbers      {sets_text(evidence.sets)}; on {self.device}"
            if not self.numbers.steady:
                yield "               two calls on the same inputs gave different bits"
        found = self.algebra.comparison
        if found is not None and found.equal:
            pieces = f" and {found.pieces} pieces" if found.pieces > 1 else ""
            at = f"{found.samples} samples{pieces} at full size"
            yield f"  fields       equal in {found.trials} trials, and in {at}"
            words = f"equal {_reach(self.algebra.proof)}" if self.algebra.proof else "none found"
            yield f"  proof        {words}"
        for fault in self._faults():
            yield f"  wrong        {fault}"

    def _faults(self) -> Iterator[str]:
        found = self.algebra.comparison
        if found is not None and not found.equal:
            at = found.difference
            where = f"{at.output}{list(at.element)} at {at.sizes}" if at else ""
            yield f"over finite fields: {found.reason or f'the two differ in {where}'}"
        faults = self.numbers.faults if self.numbers else {}
        for fault in list(faults.values())[:_FAULTS]:
            yield str(fault)
        if len(faults) > _FAULTS:
            yield f"and on {len(faults) - _FAULTS} more sets of inputs"
        if self.numbers and not faults and not self.numbers.evidence.passed:
            yield str(self.numbers.evidence.reason)

    def _not_checked(self) -> Iterator[str]:
        if self.algebra.comparison is None:
            yield f"equality over finite fields: {self.algebra.why}"
        else:
            yield from self.algebra.comparison.skipped
        if self.numbers is None:
            yield "numbers: there is a program and no kernel"
            return
        if self.numbers.share < 1.0:
            yield f"all but {self.numbers.share:.1%} of the outputs of some sets (thorough)"
        if not self.proved:
            yield "other sizes"
        yield "writes outside of the results, races that two calls do not show"


def _reach(proof: Mapping[str, Any]) -> str:
    return format_reach({"needs": proof.get("needs", [])})
