"""A CUDA plan with one decision of the emitter switched off, and what its kernels are then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.errors import MirageError
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.compile.compiled_facts import CompiledFacts
from mirage_py.ugraph.ir.launch_choices import MatmulInstruction, OverlapMode
from mirage_py.ugraph.ir.plan import Plan

Json = dict[str, Any]

FULL = "full"
Changes = Mapping[str, object]
_FOUR: tuple[Changes, ...] = (
    {"thread_graphs": False},
    {"chosen_layouts": False},
    {"barrier_schedule": False},
    {"memory_reuse": False},
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a variant is called and which launch options make it; ``of`` is the option without which
    a plan has no such variant.
    """

    name: str
    changes: Changes
    of: str = ""


_ENGINE: Changes = {"descriptors": True}
_PRODUCER: Changes = {**_ENGINE, "producer_warps": True}
# In the order of the table: what is switched off, then what a plan may not have and could. Those
# that change nothing in its text are left out of its row.
DECISIONS = (
    Decision("thread graphs off", _FOUR[0]),
    Decision("layouts naive", _FOUR[1]),
    Decision("schedule off", _FOUR[2]),
    Decision("memory plan off", _FOUR[3]),
    Decision("these four off", {k: v for changes in _FOUR for k, v in changes.items()}),
    Decision("products by single warps", {"matmul": MatmulInstruction.MMA}),
    Decision("no overlap", {"overlap": None}, "overlap"),
    Decision("no producer warps", {"producer_warps": False, "descriptors": True}, "producer_warps"),
    Decision("copies by threads", {"producer_warps": False, "descriptors": False}),
    Decision("no early start", {"early_start": False}),
    Decision("with the copy engine", _ENGINE),
    Decision("with producer warps", _PRODUCER),
    Decision("with overlap", {**_PRODUCER, "overlap": OverlapMode.ON}),
)


@dataclass(frozen=True, slots=True)
class Variant:
    """A plan under the name of what is off in it; ``fault`` says why it has no kernels."""

    name: str
    plan: Plan
    kernels: tuple[CudaKernel, ...] = ()
    fault: str = ""


def variants(plan: Plan) -> list[Variant]:
    """The plan itself, then each variant whose text is another one, or cannot be emitted.

    Raises ScheduleError where the plan itself cannot be.
    """
    full = Variant(FULL, plan, _kernels(plan))
    others = [
        _without(d, plan)
        for d in DECISIONS
        if not d.of or any(getattr(o, d.of) for o in plan.options)
    ]
    same = _texts(full.kernels)
    return [full, *(v for v in others if v.fault or _texts(v.kernels) != same)]


def structure(variant: Variant, facts: Sequence[CompiledFacts]) -> list[Json]:
    """Each kernel in numbers: ``barriers`` are those written in its text, whose loops may run them
    many times; ``stages`` how deep its deepest pipeline is. Registers and spills where the
    compiler's ``facts`` are known.
    """
    known = {f.name: f for f in facts}
    compiled = [known.get(k.name) for k in variant.kernels]
    return [
        {
            "name": kernel.name,
            "registers": made.registers if made is not None else None,
            "spills": made.spills if made is not None else None,
            "smem_bytes": made.smem_bytes if made is not None else kernel.smem_bytes,
            "barriers": kernel.body.count("__syncthreads();"),
            "threads": kernel.threads,
            "cluster": kernel.cluster,
            "stages": depth,
        }
        for kernel, made, depth in zip(variant.kernels, compiled, _depths(variant), strict=True)
    ]


def _without(decision: Decision, plan: Plan) -> Variant:
    options = tuple(replace(o, **decision.changes) for o in plan.options)
    changed = replace(plan, options=options)
    try:
        return Variant(decision.name, changed, _kernels(changed))
    except MirageError as error:
        return Variant(decision.name, changed, fault=first_line(str(error)))


def _kernels(plan: Plan) -> tuple[CudaKernel, ...]:
    return tuple(k for k in emit_kernels(plan) if isinstance(k, CudaKernel))


def _texts(kernels: Sequence[CudaKernel]) -> tuple[str, ...]:
    return tuple(k.source for k in kernels)


def _depths(variant: Variant) -> list[int]:
    """The stages that each kernel has: the emitter takes fewer than are asked for where shared
    memory has no room, and then writes what it writes for fewer.
    """
    texts = _texts(variant.kernels)
    asked = [max(k.options.num_stages, default=1) for k in variant.kernels]
    depths = list(asked)
    for most in range(max(asked, default=1) - 1, 0, -1):
        options = tuple(
            replace(o, num_stages=tuple(min(s, most) for s in o.num_stages))
            for o in variant.plan.options
        )
        same = [
            new.source == old
            for new, old in zip(
                _kernels(replace(variant.plan, options=options)), texts, strict=True
            )
        ]
        if not any(same):
            break
        depths = [min(d, most) if s else d for d, s in zip(depths, same, strict=True)]
    return depths


def first_line(text: str) -> str:
    """Of a reason, what fits into a table."""
    return next(iter(text.strip().splitlines()), "")[:200]
