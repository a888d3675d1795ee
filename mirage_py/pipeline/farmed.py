"""An optimisation on a farm's GPU, for a machine that has none, or another one.

The program goes there as JSON; plan and report come back as JSON and into the cache here, under the
key of the question that was asked. The worker searches and compiles through the same farm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mirage_py.cache.cached_results import Question, cached_artifact, is_late, keep
from mirage_py.cache.stored_result import stored_result
from mirage_py.errors import CompileError, FormatError, InputError
from mirage_py.pipeline.cached_pipeline import question_of
from mirage_py.pipeline.pipeline import Request, run
from mirage_py.result import Result
from mirage_py.runtime.farm.dask_executor import DaskExecutor, gpus_of
from mirage_py.runtime.process.executor import MEASURE
from mirage_py.runtime.store.artifact import Artifact
from mirage_py.runtime.store.cache import ResultCache
from mirage_py.search.enumerate.jobs import Setting
from mirage_py.search.enumerate.outcome_json import setting_from_json, setting_to_json
from mirage_py.search.enumerate.search import SearchLimits
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.json_form import dump_text, load_text

# What of a request travels; the baselines are the program's own.
_FIELDS = ("backend", "effort", "budget", "seed", "fp32_precision", "scheduler", "rows")
NOTE = "measured on the farm, beside the program itself: a function of yours is not sent there"


def measured_there(program: Program, request: Request) -> Question | None:
    """The question that a farm's GPU answers; None where this machine's own GPU does, or nothing is
    to be measured, or the farm has no GPU of the target.

    Raises InputError where it has several models and the target is ``auto``.
    """
    here = question_of(program, request)
    if not request.scheduler or here.measured or request.effort == "none":
        return None
    models = gpus_of(request.scheduler)
    if request.target == "auto" and len(models) > 1:
        raise InputError(
            f"the farm has GPUs of several models: {', '.join(models)}",
            why="a result is measured on one",
            repair="say which: --target NAME",
        )
    target = next(iter(models), "") if request.target == "auto" else request.target
    return replace(here, target=target, measured=True) if target in models else None


def optimise_there(question: Question, request: Request, *, cache: bool = True) -> Result:
    """The answer of a GPU of the farm, which goes into the cache here too.

    Raises CompileError where the worker gives no answer.
    """
    request.progress(f"waiting for a GPU of the farm ({question.target})")
    task = {
        "service": "mirage_py.pipeline.farmed:optimise",
        "setting": setting_to_json(
            Setting(question.program, request.seed, request.limits or SearchLimits())
        ),
        **{name: getattr(request, name) for name in _FIELDS},
    }
    with DaskExecutor(request.scheduler, MEASURE, gpu=question.target) as executor:
        (reply,) = executor.map([task])
    if not reply.done:
        raise CompileError("the farm did not optimise it", why=reply.reason)
    plan = load_text(reply.value["plan"], "plan") if reply.value["plan"] else None
    if plan is not None and not isinstance(plan, Plan):
        raise FormatError("the farm's answer is no plan")
    report = {**reply.value["report"], "notes": [*reply.value["report"]["notes"], NOTE]}
    held = Artifact(question.program, plan, report)
    found = stored_result(question.program, held)
    if found is None:
        raise FormatError("the farm's answer is no report")
    if cache and not is_late(report):
        ResultCache().put(
            question.target, question.key, program=held.program, plan=plan, report=report
        )
    return replace(found, cached=False)


def optimise(task: Mapping[str, Any]) -> dict[str, Any]:
    """The inside of a worker: plan and report, from its own cache where it was asked before."""
    setting = setting_from_json(task["setting"])
    fields = {name: task[name] for name in _FIELDS}
    fields["rows"] = tuple(fields["rows"])
    request = Request(limits=setting.limits, **fields)
    question = question_of(setting.program, request)
    held = cached_artifact(question)
    if held is not None:
        plan, report = held.plan, held.report
    else:
        result = run(setting.program, request)
        plan, report = result.plan, result.document()
        keep(question, result)
    return {"plan": dump_text(plan) if plan is not None else "", "report": report}
