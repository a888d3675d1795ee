"""What an optimisation returns: plain values, and the JSON document of the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any

from mirage_py.display import Displayed
from mirage_py.errors import InputError
from mirage_py.reasons import Code, Reason, Served, Server, reason
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.tiles_text import tiles_of

# What a time is called by where it is from.
SOURCES = {"model": "predicted", "measured": "measured"}


@dataclass(frozen=True, slots=True)
class Timing:
    """A time in microseconds; ``source`` is ``measured`` (on this GPU) or ``model``."""

    name: str
    time_us: float
    source: str

    def __str__(self) -> str:
        return f"{self.time_us:.2f} us {SOURCES[self.source]} ({self.name})"


@dataclass(frozen=True, slots=True, repr=False)
class Evidence:
    """What was checked of the returned plan; docs/explanation/verification.md has each part."""

    trials: int
    primes: tuple[int, ...]
    error_bound: float | None
    bound_reason: Reason
    proved: bool
    max_rel_error: float
    float_bound: float
    float_source: str
    samples: int = 0
    # The JSON form of the derivation; of several parts each is proved by itself.
    proof: Mapping[str, Any] | None = None
    # The JSON form of what stood for its functions (verify.meanings); None for several parts.
    functions: Mapping[str, Any] | None = None
    # The JSON form of what the numerical check has seen on each set of inputs (verify.float_case).
    float_sets: tuple[Mapping[str, Any], ...] = ()
    # The JSON form of what the checker of emitted code says of each kernel (code_check).
    code: Sequence[Mapping[str, Any]] = ()

    def __repr__(self) -> str:
        bound = "none" if self.error_bound is None else f"{self.error_bound:.2g}"
        error = f"{self.max_rel_error:.2g} of {self.float_bound:.2g} allowed"
        parts = [
            f"equal in {self.trials} trials" + f" and {self.samples} samples" * bool(self.samples),
            f"error bound {bound}",
            "proved" if self.proved else "not proved",
            f"float error {error} ({self.float_source}, {len(self.float_sets)} sets of inputs)",
        ]
        return f"<Evidence: {'; '.join(parts)}>"


@dataclass(frozen=True, slots=True, repr=False)
class SearchSummary:
    """The search in numbers: how ``candidates`` became the plans that were ranked.

    ``pruned``      candidates turned away by each rule, ``examples`` the first of each
    ``evaluations`` values that were computed; ``merged`` candidates that equalled a known tensor
    ``hits``        of the ``configurations``, those that reach every output
    ``kinds``       families found, by their kind; ``unsafe`` of them may overflow or are less
                    accurate than the program, and are dropped,
                    ``tested`` of the others are among the plans that fit the target best, and
                    ``valid`` of those passed the field test
    ``ranked``      plans of verified families that the cost model compared
    ``rings``       the rings searched, each with whether it was gone through or what cut it
    ``reasons``     why there is less than could be; ``limits`` the bounds that were in force
    ``codes``       of each reason and of each rule the code, for who reads them (``reasons.Code``)
    ``gap``         best time over the roofline bound, minus 1; ``limited_by`` what the cost model
                    says that the best waits for
    """

    seconds: float
    candidates: int
    valid: int
    exhausted: bool
    pruned: Mapping[str, int]
    gap: float
    lower_bound_us: float
    examples: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    rings: tuple[str, ...] = ()
    evaluations: int = 0
    merged: int = 0
    tensors: int = 0
    configurations: int = 0
    hits: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    unsafe: int = 0
    tested: int = 0
    ranked: int = 0
    limited_by: str = ""
    codes: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        counts = {
            "candidates": self.candidates,
            "families": sum(self.kinds.values()),
            "families verified": self.valid,
            "plans ranked": self.ranked,
        }
        parts = [f"{self.seconds:.2f} s", *(f"{n} {what}" for what, n in counts.items())]
        return f"<SearchSummary: {', '.join([*parts, *self.rings])}>"

    def document(self) -> dict[str, Any]:
        """The part ``search`` of the JSON document."""
        return {
            "seconds": round(self.seconds, 3),
            "candidates": self.candidates,
            "valid": self.valid,
            "exhausted": self.exhausted,
            "pruned": dict(self.pruned),
            "gap": round(self.gap, 3),
            "lower_bound_us": round(self.lower_bound_us, 3),
            "examples": dict(self.examples),
            "evaluations": self.evaluations,
            "merged": self.merged,
            "tensors": self.tensors,
            "configurations": self.configurations,
            "hits": self.hits,
            "families": dict(self.kinds),
            "unsafe": self.unsafe,
            "tested": self.tested,
            "ranked": self.ranked,
            "rings": list(self.rings),
            "reasons": list(self.reasons),
            "limits": dict(self.limits),
            "limited_by": self.limited_by,
            "codes": dict(self.codes),
        }


@dataclass(frozen=True, slots=True, repr=False)
class Candidate:
    """One plan that was ranked or measured, or dropped for ``reason``.

    ``kind`` has its kernels and parts in words, as in ``split s x8: 2 kernels``; ``tiles``
    and ``backend`` are those of a plan that is known by its document only.
    """

    plan: Plan | None
    timing: Timing
    passed: bool = True
    reason: Reason | None = None
    kind: str = ""
    tiles: str = ""
    backend: str = ""

    def __repr__(self) -> str:
        tiles = tiles_of(self.plan) if self.plan else self.tiles
        dropped = "" if self.passed else f"; dropped: {self.reason or 'no reason was given'}"
        return f"<Candidate {self.timing}: {self.kind}: {tiles}{dropped}>"

    def document(self) -> dict[str, Any]:
        """An entry of ``candidates`` in the JSON document."""
        # A time that was never taken is no number of JSON.
        time_us = self.timing.time_us if isfinite(self.timing.time_us) else None
        return {
            "name": self.timing.name,
            "kind": self.kind,
            "backend": self.plan.backend if self.plan else self.backend,
            "tiles": tiles_of(self.plan) if self.plan else self.tiles,
            "time_us": None if time_us is None else round(time_us, 3),
            "source": self.timing.source,
            "passed": self.passed,
            "reason": str(self.reason or ""),
            **(self.reason.document() if self.reason else {}),
        }


@dataclass(frozen=True, repr=False)
class Result(Displayed):
    """The best plan found and everything known about it.

    ``plan`` is None if no generated kernel beats the baselines: then the original program is
    the answer, ``best`` is its timing, ``why_not`` says why, and ``original`` which
    baseline serves. ``interrupted``: Ctrl-C ended the search, and this is the best so far.
    ``cached``: the result was in the cache, and nothing was searched or timed now. ``link`` is the
    plan for a chain of kernels, if one was asked for.
    """

    program: Program
    target: str
    backend: str
    baseline: Timing
    best: Timing
    plan: Plan | None
    evidence: Evidence | None
    search: SearchSummary
    families: tuple[UGraph, ...]
    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...] = ()
    artifact: Path | None = None
    interrupted: bool = False
    cached: bool = False
    why_not: Reason = field(default=Reason(Code.ORIGINAL_FASTER))
    original: str = "eager"
    link: Plan | None = None
    # When, where and how it was made, as JSON (pipeline.selection.record).
    record: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        how = f"{self.speedup:.2f}x {SOURCES[self.best.source]}"
        lines = [
            f"<Result '{self.program.name}' on {self.target}: {self.best}",
            f"  {how} beside {self.baseline}; served by {self.served.by}",
            f"  {tiles_of(self.plan)}" if self.plan else f"  {self.why_not}",
            f"  {self.evidence!r}" if self.evidence else "",
            f"  saved in {self.artifact}" if self.artifact else "",
        ]
        return "\n".join(line for line in lines if line) + ">"

    @property
    def served(self) -> Served:
        """What serves the program, and why: kernels of the plan, torch.compile or eager PyTorch."""
        from mirage_py.runtime.eager.compiled import server_of
        from mirage_py.runtime.eager.torch_steps import served_by

        if self.plan is None:
            return Served(server_of(self.original), self.why_not)
        best = reason(Code.BEST, self.best, self.baseline)
        return served_by(self.plan, str(best)) or Served(Server.OURS, best)

    @property
    def _precision(self) -> dict[str, str]:
        """What matmuls of float32 are held to, where there are any."""
        program = self.program
        return {"fp32_precision": program.fp32_precision} if program.has_fp32_matmul else {}

    @property
    def speedup(self) -> float:
        """Baseline time over best time."""
        return self.baseline.time_us / self.best.time_us if self.best.time_us else 1.0

    @property
    def ugraph(self) -> UGraph | None:
        """The winning µGraph, if a generated kernel won."""
        return self.plan.ugraph if self.plan else None

    def kernel(self) -> Callable[..., Any]:
        """The result as a function of torch tensors, in the order of ``program.inputs``."""
        from mirage_py.runtime.store.artifact import Artifact

        return Artifact(self.program, self.plan, self.document()).runner()

    def save(self, folder: Path | str) -> Result:
        """Write an artifact folder for ``mirage_py.load``; return the result with its folder set.

        Raises FormatError if the folder holds something else.
        """
        from mirage_py.runtime.store.saved import save_artifact

        saved = replace(self, artifact=Path(folder))
        save_artifact(folder, program=self.program, plan=self.plan, report=saved.document())
        return saved

    def report(self, path: Path | str) -> Path:
        """Write a report as one self-contained HTML file; return its path."""
        from mirage_py.report.write import write_report
        from mirage_py.runtime.store.artifact import Artifact

        return write_report(Artifact(self.program, self.plan, self.document()), path)

    def plan_text(self) -> str:
        """The plan as one line of text, for ``mirage_py.kernel_from`` or
        ``superoptimize(plan=...)``, which need no search then.

        Raises InputError if the original program is the answer.
        """
        from mirage_py.runtime.store.plan_text import plan_text

        if self.plan is None:
            raise InputError(
                f"'{self.program.name}' has no plan",
                why=f"{self.best.name} is the fastest",
                repair="call the original program",
            )
        return plan_text(self.program, self.plan)

    def explain(self) -> str:
        """The winner, the evidence for it, and how to reproduce it."""
        from mirage_py.runtime.store.plan_text import explanation

        return "\n".join(
            [
                str(self.program.name),
                f"served by: {self.served}",
                *explanation(self.program, self.plan, self.document()),
            ]
        )

    def _served_document(self) -> dict[str, Any]:
        served = self.served
        which = {"baseline": self.original} if served.by is Server.TORCH_COMPILE else {}
        return {**served.document(), **which}

    def document(self) -> dict[str, Any]:
        """The JSON document (schema 1)."""
        evidence = self.evidence
        return {
            "schema": 1,
            "program": {
                "name": self.program.name,
                "digest": self.program.digest,
                "dims": dict(self.program.sizes),
                "inputs": [str(t) for t in self.program.inputs],
                "outputs": [str(o.tensor) for o in self.program.outputs],
                **self._precision,
            },
            "target": self.target,
            "backend": self.backend,
            "served": self._served_document(),
            "baseline": {
                "name": self.baseline.name,
                "time_us": round(self.baseline.time_us, 3),
                "source": self.baseline.source,
            },
            "best": {
                "ugraph": str(self.artifact / "ugraph.ug.json")
                if self.artifact and self.plan
                else None,
                "name": self.best.name,
                "kernels": len(self.plan.ugraph.kernels) if self.plan else 0,
                "by_torch": list(self.plan.torch_steps) if self.plan else [],
                "time_us": round(self.best.time_us, 3),
                "speedup": round(self.speedup, 3),
                "source": self.best.source,
            },
            "verification": {
                "trials": evidence.trials if evidence else 0,
                "primes": list(evidence.primes) if evidence else [],
                "error_bound": evidence.error_bound if evidence else None,
                "bound_reason": str(evidence.bound_reason)
                if evidence
                else "the original program is the result",
                "bound": evidence.bound_reason.document() if evidence else None,
                "proved": evidence.proved if evidence else True,
                "proof": evidence.proof if evidence else None,
                "max_rel_error": evidence.max_rel_error if evidence else 0.0,
                "float_bound": evidence.float_bound if evidence else 0.0,
                "float_source": evidence.float_source if evidence else "none",
                "float_sets": list(evidence.float_sets) if evidence else [],
                "samples": evidence.samples if evidence else 0,
                "functions": evidence.functions if evidence else None,
                "code": list(evidence.code) if evidence else [],
            },
            "search": self.search.document(),
            "candidates": [c.document() for c in self.candidates],
            **({"record": dict(self.record)} if self.record else {}),
            "interrupted": self.interrupted,
            "cached": self.cached,
            "notes": list(self.notes),
            "artifact": str(self.artifact) if self.artifact else None,
        }
