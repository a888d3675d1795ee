"""A row without a GPU: how the decorator and torch.compile take a program, at its small sizes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.wild.agreement import copied, difference
from benchmarks.wild.program import WildProgram
from mirage_py.dynamo.compile.compiler import GraphCompiler
from mirage_py.dynamo.regions.region_program import REGION, RegionProgram
from mirage_py.dynamo.regions.regions import left_alone
from mirage_py.dynamo.serve.options import backend_options
from mirage_py.dynamo.serve.service import Kernel, Service
from mirage_py.frontend.searches import CallOptions
from mirage_py.frontend.superoptimized import SuperoptimizedFunction
from mirage_py.reasons import Code, Server, read_reason, reason
from mirage_py.runtime.eager.compiled import EAGER
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.ugraph.ir.plan import Plan as KernelPlan
from mirage_py.ugraph.ir.program import Program

Json = dict[str, Any]

_TARGET = "h200"


@dataclass
class DrySearch:
    """A search by the model, without a GPU; ``seconds`` is the CPU time of all of them."""

    budget_s: float
    seconds: float = 0.0
    searched: int = 0

    def __call__(self, program: Program) -> tuple[KernelPlan | None, Json]:
        """The plan that the model ranks first, None where the original program is; the report."""
        from mirage_py.pipeline import pipeline

        begin = _cpu_s()
        try:
            found = pipeline.optimize(
                program, target=_TARGET, backend="triton", effort="none", budget=self.budget_s
            )
        finally:
            self.seconds += _cpu_s() - begin
            self.searched += 1
        return found.plan, found.document()


class _Found:
    """A program in PyTorch, of which a ``plan`` was found: a CPU cannot launch its kernels."""

    def __init__(self, program: Program, plan: KernelPlan | None = None) -> None:
        self.plan = plan
        self._run = torch_function(program)

    def __call__(self, *inputs: torch.Tensor) -> Any:
        found = self._run(*inputs)
        every = found if isinstance(found, tuple) else (found,)
        # A program that only copies is no call at all; kernels write to memory of their own.
        written = tuple(r.clone(memory_format=torch.contiguous_format) for r in every)
        return written if len(written) > 1 else written[0]


def dry_row(program: WildProgram, budget_s: float) -> Json:
    """Both ways at the small sizes; regions are searched where the decorator has no kernel. With a
    budget of 0 nothing is searched, and what is taken runs as its program in PyTorch.
    """
    torch._dynamo.reset()  # noqa: SLF001  torch's own way to begin anew
    given = program.arguments(real=False)
    wanted_after = copied(given)
    with torch.no_grad():
        wanted = program.function(*wanted_after)
    eager = _Eager(given, wanted, wanted_after)
    decorator = _decorated(program, eager, budget_s)
    searches = budget_s > 0 and decorator["served_by"] != Server.OURS
    return {
        "program": program.name,
        "family": program.family,
        "decorator": decorator,
        "compile": _compiled(program, eager, budget_s if searches else None),
    }


@dataclass(frozen=True)
class _Eager:
    """What eager makes of the arguments: results, and the arguments afterwards."""

    given: Sequence[Any]
    wanted: Any
    wanted_after: Sequence[Any]

    def fault(self, function: Callable[..., Any]) -> str:
        """How a function of the same arguments differs; it is called twice."""
        for _ in range(2):
            arguments = copied(self.given)
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = function(*arguments)
            if words := difference(found, self.wanted):
                return f"results differ: {words}"
            if words := difference(arguments, list(self.wanted_after)):
                return f"a side effect is lost: {words}"
        return ""


def _decorated(program: WildProgram, eager: _Eager, budget_s: float) -> Json:
    search = DrySearch(budget_s)
    wholes: list[bool] = []

    def optimizer(found: Program, inputs: Any, fallback: Kernel) -> Any:
        from mirage_py.runtime.store.artifact import OriginalProgram

        del inputs
        wholes.append(found.name != REGION)
        if budget_s == 0:
            return _Found(found)
        plan, report = search(found)
        return _Found(found, plan) if plan else OriginalProgram({EAGER: fallback}, report)

    options = CallOptions(target=_TARGET, effort="none")
    served = SuperoptimizedFunction(program.function, options, optimizer)
    fault, entry = "", None
    try:
        fault = eager.fault(served)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            entry = served.entry(*copied(eager.given))
    # What a user would meet in the first call.
    except Exception as error:  # noqa: BLE001
        fault = f"{type(error).__name__}: {error}"[:400]
    row: Json = {"fault": fault, "search_cpu_s": round(search.seconds, 2)}
    if entry is None:
        return {**row, "taken": "crashed", "served_by": Server.EAGER, "code": "", "why": fault}
    why = entry.decided.why  # of what is served in parts: why it is not served whole
    taken = "whole" if any(wholes) else "refused"
    by = entry.served.by if budget_s or taken == "refused" else None
    return {
        **row,
        "taken": taken,
        "served_by": by,
        "served": str(entry.served)[:400],
        "code": why.name,
        "why": str(why)[:400],
    }


def _compiled(program: WildProgram, eager: _Eager, budget_s: float | None) -> Json:
    from torch._dynamo.backends.common import aot_autograd

    from mirage_py.dynamo.compile.decompositions import decompositions
    from mirage_py.dynamo.serve.graph_target import graph_target

    options = backend_options(None, {"rest": "eager", "on_cpu": "reference", "target": _TARGET})
    search = DrySearch(budget_s or 0.0)

    def serve(region: RegionProgram, own: Kernel) -> Service:
        del own
        if budget_s is None:
            return _reference(region.program, "not searched apart")
        plan, report = search(region.program)
        if plan is None:
            return Service(None, read_reason(report["served"]))
        return _reference(region.program, f"{len(plan.ugraph.kernels)} kernels")

    compiler = GraphCompiler(options, graph_target(_TARGET), serve)

    def backend(module: torch.fx.GraphModule, inputs: Any) -> Any:
        return aot_autograd(
            fw_compiler=lambda graph, example: compiler.compile("inference", graph, example),
            decompositions=decompositions(),
        )(module, inputs)

    try:
        fault = eager.fault(torch.compile(program.function, backend=backend, dynamic=False))
    # What a user would meet in the first call.
    except Exception as error:  # noqa: BLE001
        fault = f"{type(error).__name__}: {error}"[:400]
    counts = {"operators": 0, "in_regions": 0, "regions": 0, "served_regions": 0}
    left: list[Json] = []
    for plan in compiler.plans:
        inside = sum(len(region.nodes) for region in plan.cut.regions)
        alone = left_alone(plan.cut)
        counts["in_regions"] += inside
        counts["operators"] += inside + sum(count for _, count, _ in alone)
        counts["regions"] += len(plan.cut.regions)
        counts["served_regions"] += len(plan.served)
        left += [{"operator": name, "count": n, "code": why.name} for name, n, why in alone]
        left += [
            {"operator": "region", "count": n, "code": e.served.why.name, "why": str(e.served.why)}
            for _, n, e in plan.rows
            if e.served.kernel is None
        ]
    return {
        "fault": fault,
        **counts,
        "graphs": len(compiler.plans),
        "left": left,
        "search_cpu_s": round(search.seconds, 2),
    }


def _reference(program: Program, words: str) -> Service:
    return Service(_Found(program), reason(Code.KERNEL, words), Server.OURS)


def _cpu_s() -> float:
    return sum(os.times()[:4])
