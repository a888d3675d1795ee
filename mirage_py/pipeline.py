"""The way of the data, every stage in order:

    program -> normal form -> families -> safe -> verified -> instances -> kernels -> measured
               masks, shifts  search     stabilize verify    search       codegen    runtime

``optimize`` is this line as code. Every stage takes and returns plain values; with a dump folder
set (MIRAGE_PY_DUMP) each is written to a numbered text file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage_py.errors import InputError, ScheduleError
from mirage_py.result import Candidate, Evidence, Result, SearchSummary, Timing
from mirage_py.search.baseline_model import eager_model_us
from mirage_py.search.cost_model import lower_bound_us
from mirage_py.search.instantiate import Instance, diverse, instances
from mirage_py.search.stabilize import stabilize
from mirage_py.settings import Settings
from mirage_py.targets import Target
from mirage_py.targets import target as target_named
from mirage_py.ugraph.plan import Plan
from mirage_py.ugraph.program import Program
from mirage_py.ugraph.rewrite.masks import lower_masks
from mirage_py.ugraph.text import format_program, format_ugraph
from mirage_py.ugraph.ugraph import UGraph
from mirage_py.verify.field_test import FieldEvidence, field_test, sampled_test
from mirage_py.verify.shift_free import remove_free_shifts

if TYPE_CHECKING:
    from mirage_py.search.search import SearchResult

Progress = Callable[[str], None]
Baselines = Mapping[str, Callable[..., Any]]

_DEFAULT_TARGET = "h200"
# Plans measured (or ranked) for each effort.
_PLANS = {"none": 8, "quick": 160, "full": 640}
# Instances kept of each family before families compete.
_PER_FAMILY = 4
_TRIALS = 4
_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class Options:
    """How to optimise; the command line's options by the same names. ``budget`` is in seconds."""

    target: str = "auto"
    backend: str = "auto"
    effort: str = "quick"
    budget: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.effort not in _PLANS:
            raise InputError(f"unknown effort '{self.effort}'", repair="use none, quick or full")
        if self.backend not in ("auto", "triton", "cuda"):
            raise InputError(
                f"unknown back end '{self.backend}'", repair="use auto, triton or cuda"
            )
        if self.backend == "cuda":
            raise InputError("the CUDA back end is not there yet", repair="use --backend triton")


@dataclass(frozen=True, slots=True)
class Verified:
    """A stabilised family that passed the field test."""

    family: UGraph
    evidence: FieldEvidence
    proved: bool


def optimize(
    program: Program,
    *,
    target: str = "auto",
    backend: str = "auto",
    effort: str = "quick",
    budget: float | None = None,
    seed: int = 0,
    baselines: Baselines | None = None,
    progress: Progress = lambda _: None,
) -> Result:
    """The fastest verified kernels for a program.

    With a GPU the top candidates and the baselines are measured and the fastest wins; without one
    the cost model ranks and the best is run in Triton's interpreter at a reduced size.
    ``baselines`` are torch functions of the program's inputs; by default the program itself in
    eager PyTorch.
    """
    options = Options(target, backend, effort, budget, seed)
    dump = Dump(Settings.from_env().dump_dir)
    chosen, on_gpu = _resolve_target(options.target)

    normal = normalise(program, seed=seed)
    dump("program", format_program(normal))

    progress("searching")
    from mirage_py.search.search import search

    found = search(normal, seed=seed)
    dump("families", "\n".join(format_ugraph(f.ugraph) for f in found.families))

    progress(f"verifying {len(found.families)} families")
    verified = verify_families(normal, [f.ugraph for f in found.families], seed=seed)
    dump("verified", "\n".join(format_ugraph(v.family) for v in verified))

    ranked = rank(verified, chosen, _PLANS[options.effort])
    dump("plans", "\n".join(f"# {i.estimate}\n{format_ugraph(i.plan.ugraph)}" for _, i in ranked))

    job = _Job(program, normal, chosen, options, found, verified, ranked, progress)
    if on_gpu and options.effort != "none":
        return job.measured(baselines)
    return job.modelled()


def normalise(program: Program, *, seed: int = 0) -> Program:
    """The form that is searched: masks as factors, maxima that cancel removed."""
    return remove_free_shifts(lower_masks(program), seed=seed)[0]


def verify_families(program: Program, families: Sequence[UGraph], *, seed: int) -> list[Verified]:
    """Stabilise each family and keep those that the field test finds equal to the program."""
    kept = []
    for family in families:
        safe = stabilize(family)
        evidence = field_test(program, safe, trials=_TRIALS, seed=seed)
        if evidence.equal:
            kept.append(Verified(safe, evidence, proved=False))
    return kept


def rank(
    verified: Sequence[Verified], target: Target, limit: int
) -> list[tuple[Verified, Instance]]:
    """The best instances of all families, best first; a family that fits nowhere is left out."""
    found: list[tuple[Verified, Instance]] = []
    for item in verified:
        try:
            found.extend((item, i) for i in instances(item.family, target, _PER_FAMILY * limit))
        except ScheduleError:
            continue
    found.sort(key=lambda pair: pair[1].estimate.time_us)
    owner = {id(instance): item for item, instance in found}
    return [(owner[id(i)], i) for i in diverse([i for _, i in found], limit)]


def _resolve_target(name: str) -> tuple[Target, bool]:
    """The target, and whether the GPU in this machine is it."""
    from mirage_py.runtime.environment import detect_target

    here = detect_target()
    if name == "auto":
        return (here, True) if here else (target_named(_DEFAULT_TARGET), False)
    chosen = target_named(name)
    return chosen, here is not None and here.name == chosen.name


class _Job:
    """One optimisation after ranking: measures or models, and writes the result."""

    def __init__(
        self,
        program: Program,
        normal: Program,
        target: Target,
        options: Options,
        found: SearchResult,
        verified: Sequence[Verified],
        ranked: Sequence[tuple[Verified, Instance]],
        progress: Progress,
    ) -> None:
        self.program = program
        self.normal = normal
        self.target = target
        self.options = options
        self.found = found
        self.verified = verified
        self.ranked = ranked
        self.progress = progress
        self.floor_us = lower_bound_us(program, target)

    def modelled(self) -> Result:
        """Rank by the cost model; the best plan must agree with float64 in Triton's interpreter."""
        from mirage_py.runtime.interpreted import check_interpreted

        baseline = Timing(
            "eager, one kernel per operator", eager_model_us(self.normal, self.target), "model"
        )
        dropped: list[Candidate] = []
        for item, instance in self.ranked:
            timing = Timing(
                instance.plan.ugraph.kernels[0].name, instance.estimate.time_us, "model"
            )
            self.progress(f"running {timing.name} in Triton's interpreter")
            judged = check_interpreted(self.program, instance.plan, seed=self.options.seed)
            if not judged.passed:
                dropped.append(Candidate(instance.plan, timing, False, judged.reason))
                continue
            evidence = self._evidence(
                item, instance.plan, judged.max_rel_error, judged.bound, "interpreter, reduced size"
            )
            note = "no GPU was used: times are predictions of the cost model"
            return self._result(baseline, timing, instance.plan, evidence, dropped, note)
        return self._result(baseline, baseline, None, None, dropped, self._nothing())

    def measured(self, baselines: Baselines | None) -> Result:
        """Compile, check and time the candidates beside the baselines; the fastest wins."""
        from mirage_py.runtime.eager import torch_function
        from mirage_py.runtime.tuner import tune

        against = dict(baselines) if baselines else {"eager": torch_function(self.program)}
        self.progress(f"measuring {len(self.ranked)} candidates on {self.target.name}")
        report = tune(
            self.program,
            [i.plan for _, i in self.ranked],
            against,
            target=self.target,
            seed=self.options.seed,
            budget_s=self.options.budget,
        )
        by_plan = {i.plan: item for item, i in self.ranked}
        baseline = Timing(report.baseline.name, report.baseline.time_us, "measured")
        best = Timing(report.best.name, report.best.time_us, "measured")
        candidates = [
            Candidate(m.plan, Timing(m.name, m.time_us, "measured"), m.passed, m.reason)
            for m in report.measured
        ]
        plan = report.best.plan
        evidence = None
        if plan is not None:
            evidence = self._evidence(
                by_plan[plan],
                plan,
                report.best.max_rel_error,
                report.best.bound,
                f"{self.target.name}, full size",
            )
        note = "" if plan is not None else self._nothing()
        return self._result(baseline, best, plan, evidence, candidates, note)

    def _evidence(
        self, item: Verified, plan: Plan, error: float, bound: float, source: str
    ) -> Evidence:
        sampled = sampled_test(self.normal, plan.ugraph, samples=_SAMPLES, seed=self.options.seed)
        return Evidence(
            trials=item.evidence.trials,
            primes=item.evidence.primes,
            error_bound=item.evidence.error_bound,
            bound_reason=item.evidence.bound_reason,
            proved=item.proved,
            max_rel_error=error,
            float_bound=bound,
            float_source=source,
            samples=sampled.samples,
        )

    def _nothing(self) -> str:
        if not self.found.families:
            return "no fused µGraph was found: " + "; ".join(self.found.reasons)
        if not self.verified:
            return "no family passed verification"
        if not self.ranked:
            return f"no family fits {self.target.name}"
        return "the original program is faster than every candidate"

    def _result(
        self,
        baseline: Timing,
        best: Timing,
        plan: Plan | None,
        evidence: Evidence | None,
        candidates: Sequence[Candidate],
        note: str,
    ) -> Result:
        summary = SearchSummary(
            seconds=self.found.seconds,
            candidates=self.found.counters.candidates,
            valid=len(self.verified),
            exhausted=self.found.exhausted,
            pruned=self.found.counters.pruned,
            gap=best.time_us / self.floor_us - 1.0,
            lower_bound_us=self.floor_us,
            examples=self.found.counters.examples,
        )
        return Result(
            program=self.program,
            target=self.target.name,
            backend="triton",
            baseline=baseline,
            best=best,
            plan=plan,
            evidence=evidence,
            search=summary,
            families=tuple(v.family for v in self.verified),
            candidates=tuple(candidates),
            notes=(note,) if note else (),
        )


def save(result: Result, folder: Path) -> Result:
    """Write the artifact folder; the result that knows where it is."""
    from mirage_py.runtime.artifact import save_artifact

    result = replace(result, artifact=folder)
    save_artifact(folder, program=result.program, plan=result.plan, report=result.document())
    return result


class Dump:
    """Writes each stage to ``NN_name.txt`` in a folder, or nothing where there is none."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.count = 0

    def __call__(self, stage: str, text: str) -> None:
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{self.count:02d}_{stage}.txt").write_text(text)
        self.count += 1
