"""The pipeline, every stage in order:

    program -> normal form -> families -> safe -> verified -> instances -> kernels -> measured
               masks, shifts  search     stabilize verify    search       codegen    runtime

``optimize`` is this line as code. Every stage takes and returns plain values; a trace writes each
to a folder (``--trace-stages``, or MIRAGE_PY_DUMP).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from mirage_py.arguments import check_type, path_of
from mirage_py.collector import rarely_collecting
from mirage_py.display import shown_progress
from mirage_py.errors import MirageError, UnsupportedError
from mirage_py.pipeline.joined.joined_composites import joined_composites
from mirage_py.pipeline.partition.limits import (
    has_library_values,
    is_searched_whole,
    multiplies_twice,
)
from mirage_py.pipeline.partition.memory_formats import channels_last
from mirage_py.pipeline.partition.optimize_parts import (
    PartJob,
    compared_only,
    least_parts,
    optimize_parts,
)
from mirage_py.pipeline.partition.part_clock import LEAST_S
from mirage_py.pipeline.partition.partition import (
    Partition,
    copies_apart,
    large_copies,
    partition,
)
from mirage_py.pipeline.partition.values import with_values_once
from mirage_py.pipeline.pools.verify_pool import (
    IDLE_SHARE,
    Begun,
    begin_by_compilers,
    findings,
    only,
)
from mirage_py.pipeline.searching import Searching
from mirage_py.pipeline.selection.acceptable import about_rows, require_float32
from mirage_py.pipeline.selection.backends import (
    limits_for,
    rank_for,
    streaming_for,
    usable,
    with_doubts,
)
from mirage_py.pipeline.selection.record import Clock, circumstances
from mirage_py.pipeline.selection.request import Baselines, Progress
from mirage_py.pipeline.selection.request import Request as Request  # noqa: PLC0414  callers name it as pipeline's
from mirage_py.pipeline.selection.selection import Ranking, Verified, in_order_of_trial
from mirage_py.pipeline.selection.time_budget import PLANS, TimeBudget, counted_from, usual_s
from mirage_py.pipeline.trace import stages
from mirage_py.pipeline.trace.trace import Trace
from mirage_py.progress import Told
from mirage_py.result import Result
from mirage_py.runtime.compile.compile_pool import AheadCompiler, keep_compile_workers
from mirage_py.runtime.cpu.type_screen import TypeScreen
from mirage_py.runtime.env.matmul_setting import matmuls_as_in
from mirage_py.runtime.farm.dask_executor import executor_of
from mirage_py.runtime.numerical_check.check_pool import keep_check_workers
from mirage_py.runtime.process.executor import SEARCH, Executor
from mirage_py.runtime.process.thread_turns import short_turns
from mirage_py.search.enumerate.search import SearchLimits
from mirage_py.search.model.baseline_model import fused_model_us
from mirage_py.search.rank.instance import Instance
from mirage_py.search.rank.kernel_choices import KernelRanker
from mirage_py.search.rewrites.product_chains import chain_cuts
from mirage_py.search.space.short_rows import has_short_rows
from mirage_py.settings import Settings
from mirage_py.targets import Target
from mirage_py.targets import target as target_named
from mirage_py.ugraph.checks.row_invariance import (
    why_rows_meet_in,
    with_invariant_rows,
)
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.rewrite.concatenations import with_pieces
from mirage_py.ugraph.rewrite.dims import with_columns_last, with_shared_reads
from mirage_py.ugraph.rewrite.masks import lower_masks
from mirage_py.ugraph.rewrite.merged_dims import (
    with_merged_axes,
    with_merged_columns,
    with_merged_patches,
    with_merged_reductions,
    with_merged_rows,
)
from mirage_py.ugraph.rewrite.nan_guards import without_nan_guards
from mirage_py.verify.numerical_check.numerical_check import MAX_REFERENCE_WORK
from mirage_py.verify.shifts.shift_free import remove_free_shifts

_DEFAULT_TARGET = "h200"
_TRIALS = 4
_FEW_PARTS = 8
# Share of the compile workers that compile while plans are ranked: the others test families.
_AHEAD_SHARE = 0.5
# So many times slower than the baseline that no error of the model makes up for it.
_NO_MATCH = 1.5


def optimize(
    program: Program,
    *,
    target: str = "auto",
    backend: str = "auto",
    effort: str = "quick",
    budget: float | None = None,
    seed: int = 0,
    baselines: Baselines | None = None,
    limits: SearchLimits | None = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    journal: Path | None = None,
    fp32_precision: str | None = None,
    invariant: Sequence[str] = (),
) -> Result:
    """The fastest verified kernels for a program.

    With a GPU, the top candidates and the baselines are measured and the fastest wins. Without one,
    the cost model ranks candidates and the best is run on the CPU at a reduced size.

    ``backend``: candidates are written in it; ``auto`` means both, if CUDA kernels can be compiled.
    ``baselines``: torch functions of the program's inputs; by default the program itself in
    eager PyTorch. ``budget``: seconds, of which every stage gets a share; work not done by then is
    skipped, and the result is the best of the rest. Without a budget, measuring on a GPU has that
    of its effort (11 s or 280 s, for each part of a program that is cut); ``math.inf`` removes it.
    ``should_stop``: when it returns true (Ctrl-C), nothing more is begun, and the result is the
    best so far. ``journal``: a file from which an interrupted search resumes. ``fp32_precision``:
    ``ieee`` or ``tf32`` for float32 matmuls; by default the program's own, which for a traced
    function is torch's setting. ``invariant``: dimensions along which each row is bitwise
    independent of the number of rows; the plan takes any number of them.

    Raises UnsupportedError for a program with float64 tensors, and CompileError if a GPU is
    to measure CUDA kernels and nothing compiles them.
    """
    request = Request(
        target, backend, effort, budget, seed, limits, baselines,
        should_stop=should_stop, journal=journal, fp32_precision=fp32_precision,
        rows=(invariant,) if isinstance(invariant, str) else tuple(invariant),
    )  # fmt: skip
    if progress is not None:
        return run(program, replace(request, progress=progress))
    with shown_progress() as shown:
        return run(program, replace(request, progress=shown))


def run(program: Program, request: Request) -> Result:
    """As ``optimize``, for all that takes a request from elsewhere."""
    made_by = "mirage_py.parse(text) or mirage_py.trace(function, *inputs)"
    check_type("program", program, (Program,), made_by=made_by)
    require_float32(program)
    program = request.about(program)
    request = about_rows(program, request)
    target, on_gpu = resolve_target(request.target)
    if request.trace.folder is None:
        request = replace(request, trace=Trace(Settings.from_env().dump_dir))
    request.trace(lambda: stages.program_stage(program))
    clock = Clock(request.progress)
    request = replace(request, progress=clock)
    with request.trace.to_the_end():
        if not on_gpu or request.effort == "none":
            result = _run(program, target, request, measure=False)
        else:
            if request.backend == "cuda":
                _require_cuda()
            # They start beside the search.
            keep_check_workers()
            if not request.scheduler:
                keep_compile_workers()
            with matmuls_as_in(program), _compiling(program, request) as asked:
                result = _run(program, target, asked, measure=True)
        record = {**circumstances(request), **clock.document(), **result.record}
        result = replace(result, record=record)
        if result.plan is not None and request.rows:
            result = replace(result, plan=with_invariant_rows(result.plan, request.rows))
        plan = result.plan
        if plan is not None:
            request.trace(lambda: stages.kernels_stage(plan))
        request.trace(lambda: stages.result_stage(result))
    return result


@contextlib.contextmanager
def _compiling(program: Program, request: Request) -> Iterator[Request]:
    """The request with its baselines, which compile beside the kernels: the search is over by then,
    or that of the first part.
    """
    from mirage_py.runtime.tune.baselines import compiling

    against = compiling(program, request.baselines, request.effort)
    try:
        with short_turns():
            yield replace(request, baselines=against)
    finally:
        against.end()


def _run(program: Program, target: Target, request: Request, *, measure: bool) -> Result:
    started = time.monotonic()
    if measure and not request.rows and _is_too_short(request, least_parts(program)):
        # To cut it takes minutes, too.
        _begin_to_compile(request.baselines)
        return compared_only(program, PartJob(target, measure, request))

    def ranked(what: Program, target: Target, how: Request) -> Ranking:
        found = rank_plans(what, target, how, _ahead(target, how) if measure else None)
        if measure:
            _begin_to_compile(request.baselines)
        return found

    whole = partition_of(program, seed=request.seed, measure=measure, apart=not request.rows)
    if whole is not None and request.rows:
        raise UnsupportedError(
            "the program is too large to keep its rows apart",
            where=program.name,
            why="it is cut into parts, and library calls between them depend on their number",
            repair="optimise its pieces one by one",
        )
    is_usual = request.budget is None and measure
    if is_usual:
        # The parts of a program and the whole of them share it.
        parts = 0 if whole is None else len(whole.parts)
        request = replace(request, budget=usual_s(request.effort, parts))
    if whole is not None:
        request = replace(request, begun=None)
        request.trace(lambda: stages.parts_stage(whole.program, whole.parts, whole.reason))
        return optimize_parts(
            program, whole, ranked, PartJob(target, measure, request, joined_composites)
        )
    if is_usual:
        started = counted_from(request.begun, request.effort, started)
    request = replace(request, begun=started)
    time_budget = TimeBudget(request.budget, started, is_usual)
    ranking = ranked(program, target, request)
    later = _cut_after_all(ranking, measure=measure)
    if later is not None:
        request.trace(lambda: stages.parts_stage(later.program, later.parts, later.reason))
        left = replace(request, budget=time_budget.left(), begun=None)
        return optimize_parts(
            program, later, ranked, PartJob(target, measure, left, joined_composites)
        )
    if measure and not request.should_stop():
        return ranking.measured(time_budget.measured_by())
    return ranking.modelled(time_budget.end)


def _ahead(target: Target, request: Request) -> AheadCompiler:
    """What compiles the likely plans before it is known which of them are tried."""
    is_elsewhere = bool(request.scheduler or request.rows)
    return AheadCompiler(target.capability, share=0.0 if is_elsewhere else 1.0)


def _begin_to_compile(against: Baselines | None) -> None:
    from mirage_py.runtime.tune.baselines import WarmUp

    if isinstance(against, WarmUp):
        against.begin()


def _is_too_short(request: Request, parts: int) -> bool:
    """Whether there are many parts, none of which would get far enough that anything is found."""
    budget = usual_s(request.effort, parts) if request.budget is None else request.budget
    return parts > _FEW_PARTS and budget < LEAST_S * parts


def _cut_after_all(ranking: Ranking, *, measure: bool = False) -> Partition | None:
    """How a program is cut that was searched whole, where the best of it is no match for its
    operators fused one by one: its kernels compute products again. None where it stays whole.

    A chain that is searched in pieces is cut as soon as its operators are faster one by one: there
    the model is precise, and the kernels of parts are chosen by measurement, each by itself.
    """
    request = ranking.request
    if request.rows or request.should_stop():
        return None
    best = ranking.instances[0].estimate.time_us if ranking.instances else math.inf
    fused_us = fused_model_us(ranking.normal, ranking.target, own_matmuls=True)
    is_match = best <= _NO_MATCH * fused_us
    if best <= fused_us or (is_match and not chain_cuts(ranking.normal)):
        return None
    in_halves = measure and _is_held_to_eager(ranking.program)
    found = partition(ranking.normal, in_halves=in_halves)
    # What stands after one matmul, as a norm over its results, is cut off from it.
    matmuls = sum(node.op == "matmul" for node in ranking.normal.nodes)
    if not is_match and (len(found.parts) < 2 or matmuls == 1):
        apart = partition(ranking.normal, products_apart=True, in_halves=in_halves)
        found = apart if len(apart.parts) > 1 else found
    return found if len(found.parts) > 1 else None


def _require_cuda() -> None:
    """Without a compiler every candidate would fail: that is said before the search."""
    from mirage_py.runtime.compile.cuda_compiler import cuda_compiler

    cuda_compiler()


@rarely_collecting()
def rank_plans(
    program: Program, target: Target, request: Request, compiler: AheadCompiler | None = None
) -> Ranking:
    """Every stage that needs neither compiler nor GPU: up to plans of verified families.

    ``budget`` is that of the whole optimisation, which begins now. Where plans are measured next, a
    ``compiler`` begins with the likely ones while others are ranked, and families verified.
    """
    with executor_of(SEARCH, Settings.from_env().workers, request.scheduler) as executor:
        return _rank_plans(program, target, request, executor, compiler)


def _rank_plans(
    program: Program,
    target: Target,
    request: Request,
    executor: Executor,
    compiler: AheadCompiler | None,
) -> Ranking:
    begun = time.monotonic() if request.begun is None else request.begun
    time_budget = TimeBudget(request.budget, begun)
    chosen, notes = usable(request.backend)
    limits = limits_for(chosen, request.limits or SearchLimits(), target)
    normal = normalise(program, seed=request.seed)
    if has_short_rows(normal):
        limits = replace(limits, max_kernels=1)
    traced = partial(request.trace, part=request.part)
    traced(lambda: stages.normal_stage(program, normal))

    told = Told(request.progress, time_budget.end)
    told("searching")
    ranker = KernelRanker(target, "triton" if chosen == "triton" else "cuda")
    searching = Searching(normal, request, limits, time_budget, executor, ranker)
    found, stable, others = searching.families(traced)
    families = list({u.digest: u for u in (*stable, *others)}.values())
    families = [u for u in families if not why_rows_meet_in(u, request.rows)]
    told.found(found.counters.candidates)
    told(f"ranking the instances of {len(families)} families")
    types, ahead = TypeScreen(), Begun()
    begin = partial(begin_by_compilers, normal, trials=_TRIALS, seed=request.seed)
    terms = searching.terms(types)
    if compiler is not None:
        # A test is of a family, whatever its tiles: it runs elsewhere while these are ranked.
        terms = replace(
            terms,
            listed=lambda likely: ahead.update(begin(likely, begun=ahead, share=IDLE_SHARE)),
            begun=lambda found: compiler.begin(
                [i.plan for i in in_order_of_trial(found, target, request)], _AHEAD_SHARE
            ),
        )
    ranked = rank_for(chosen, families, target, PLANS[request.effort], terms)
    if request.streaming and chosen != "triton":
        ranked = [*streaming_for(families, target, ranker, terms), *ranked]
    verified_by = time_budget.verified_by()

    def tried_next(plans: Sequence[Instance]) -> list[Instance]:
        nonlocal ahead
        assert compiler is not None
        ordered = in_order_of_trial(plans, target, request)
        tested = [i.family for i in ordered]
        ahead = begin(tested, begun=only(ahead, tested))
        compiler.begin([i.plan for i in ordered])
        return ordered

    if compiler is not None:
        # What nobody asked yet is asked beside: the order changes little.
        tried_next(with_doubts(ranked, types, -math.inf))
    ranked = with_doubts(ranked, types, verified_by)
    safe = searching.screen.found()
    traced(lambda: stages.safe_stage(safe, others))
    traced(lambda: stages.plans_stage(ranked))

    told.found(best_us=ranked[0].estimate.time_us if ranked else None)
    told("verifying")
    # There may be no time for the last ones.
    tried = tried_next(ranked) if compiler is not None else ()
    tested = [i.family for i in tried or ranked]
    if compiler is not None:
        if ahead:  # this process waits for them
            _begin_to_compile(request.baselines)
        verified_by = time_budget.verified_by()
    judged: list[UGraph] = []
    verified = verify_families(
        normal,
        tested,
        request,
        executor=executor,
        deadline=verified_by,
        begun=ahead,
        judged=judged.append,
        meanwhile=compiler.go_on if compiler is not None else lambda: False,
    )
    notes = (*notes, *_not_judged(tested, judged))
    traced(lambda: stages.verified_stage(ranked, verified))
    return Ranking(
        program, normal, target, found, verified, safe.faults, ranked, request, limits, notes, tried
    )


def _not_judged(tested: Sequence[UGraph], judged: Sequence[UGraph]) -> Iterator[str]:
    """That there was no time for the field test of some families, whose plans are not tried."""
    every = dict.fromkeys(f.digest for f in tested)
    left = len(every) - len({f.digest for f in judged})
    if left:
        yield f"{left} of {len(every)} families were not verified in time: their plans are left out"


def partition_of(
    program: Program, *, seed: int = 0, measure: bool = False, apart: bool = True
) -> Partition | None:
    """How a program is cut that is too large to be searched whole, or that returns large inputs or
    matmuls it also reads under other names, unless these need not stand ``apart``; None where it is
    searched whole, also because it cannot be cut. With ``measure`` there is a GPU for the numerical
    check.
    """
    by_library = has_library_values(program)
    is_twice = apart and multiplies_twice(program)
    if is_searched_whole(program) and not by_library and not is_twice:
        return (
            copies_apart(normalise(program, seed=seed)) if apart and large_copies(program) else None
        )
    normal = normalise(program, seed=seed)
    found = None
    if by_library or not is_searched_whole(normal) or (apart and multiplies_twice(normal)):
        in_halves = measure and _is_held_to_eager(program)
        found = channels_last(partition(normal, in_halves=in_halves))
    return found if found is not None and (len(found.parts) > 1 or by_library) else None


def _is_held_to_eager(program: Program) -> bool:
    """Whether PyTorch's own errors are what the numerical check allows."""
    from mirage_py.runtime.numerical_check.device_reference import needs_device

    try:
        return needs_device(program, MAX_REFERENCE_WORK)
    except MirageError:
        return False  # the check says what it is


def normalise(program: Program, *, seed: int = 0) -> Program:
    """The form that is searched: masks as factors, maxima that cancel removed, softmaxes over
    concatenations in pieces, what matmuls read twice read once, what has two names computed once,
    dimensions that are one axis of all tensors as one, as are short rows of images and columns of
    heads, patches of images as rows, and columns of results last.
    """
    free = remove_free_shifts(lower_masks(without_nan_guards(program)), seed=seed)[0]
    once = with_values_once(with_shared_reads(with_pieces(free)))
    merged = with_values_once(with_merged_columns(with_merged_rows(with_merged_axes(once))))
    return with_columns_last(with_merged_patches(with_merged_reductions(merged)))


def verify_families(
    program: Program,
    families: Sequence[UGraph],
    request: Request,
    *,
    executor: Executor | None = None,
    deadline: float | None = None,
    begun: Begun | None = None,
    judged: Callable[[UGraph], object] = lambda _: None,
    meanwhile: Callable[[], bool] = lambda: False,
) -> dict[str, Verified]:
    """Those of the stabilised families that the field test finds equal, by digest; of some it has
    ``begun``, which are waited for as in ``findings``. ``judged`` is given each that it says
    something of.

    After ``deadline`` (of time.monotonic), or when ``should_stop`` says so, no family beyond the
    first that passed is tested. A family that a field cannot judge is left out; raises
    UnsupportedError where that is all of them.
    """
    kept: dict[str, Verified] = {}
    refused: list[UnsupportedError] = []
    distinct = list({f.digest: f for f in families}.values())
    for family, found in findings(
        program,
        distinct,
        trials=_TRIALS,
        seed=request.seed,
        executor=executor,
        deadline=deadline,
        stop=request.should_stop,
        begun=begun,
        meanwhile=meanwhile,
    ):
        judged(family)
        if isinstance(found, UnsupportedError):
            refused.append(found)
        elif found.equal:
            kept[family.digest] = Verified(family, found)
    if refused and len(refused) == len(distinct):
        raise refused[0]
    return kept


def resolve_target(name: str) -> tuple[Target, bool]:
    """The target, and whether the GPU in this machine is it."""
    from mirage_py.runtime.env.environment import detect_target

    here = detect_target()
    if name == "auto":
        return (here, True) if here else (target_named(_DEFAULT_TARGET), False)
    chosen = target_named(name)
    return chosen, here is not None and here.name == chosen.name


def save(result: Result, folder: Path | str) -> Result:
    """Write the artifact folder; the result that knows where it is."""
    from mirage_py.runtime.store.saved import save_artifact

    check_type("result", result, (Result,))
    folder = path_of("folder", folder)
    result = replace(result, artifact=folder)
    save_artifact(folder, program=result.program, plan=result.plan, report=result.document())
    return result
