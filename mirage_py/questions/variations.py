"""Variations of the winning plan: what the cost model and the back end say of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, isfinite

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.errors import MirageError
from mirage_py.questions.answer import Basis, Fact
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.search.model.kernel_load import KernelLoad
from mirage_py.search.model.launches import BackEnd, launch_options
from mirage_py.search.rank.plan_model import PlanModel
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.search.tilings.tilings import is_sensible
from mirage_py.targets import Target
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph


@dataclass(frozen=True)
class Variation:
    """A plan, and what its kernel ``number`` asks of the target; ``time_us`` of the whole plan is
    infinite where it does not fit.
    """

    plan: Plan
    number: int
    target: Target
    time_us: float
    load: KernelLoad
    bound: str

    @property
    def fits(self) -> bool:
        """Whether a block finds room."""
        return isfinite(self.time_us)

    @property
    def block(self) -> BlockGraph:
        """The kernel that was varied."""
        kernel = self.plan.ugraph.kernels[self.number]
        assert isinstance(kernel, BlockGraph)
        return kernel

    def needs(self) -> Fact:
        """What a block needs, beside what the target has."""
        need, target = self.load.footprint, self.target
        if need.registers_per_thread > target.max_registers_per_thread:
            text = (
                f"a thread needs about {need.registers_per_thread} registers, and can have "
                f"{target.max_registers_per_thread}"
            )
            return Fact(text, Basis.MODEL, "registers")
        text = (
            f"a block needs {need.smem_bytes} bytes of shared memory ({target.name} has "
            f"{target.smem_per_block_bytes}) and about {need.registers_per_thread} registers a "
            "thread"
        )
        return Fact(text, Basis.MODEL, "" if self.fits else "shared_memory")

    def occupancy(self) -> Fact:
        """How its blocks fill the GPU."""
        load = self.load
        each = "block" if load.per_sm == 1 else "blocks"
        waves = "wave" if load.waves == 1 else "waves"
        text = (
            f"{load.blocks} blocks on {self.target.sms} SMs: {load.waves} {waves} of "
            f"{load.per_sm} {each} an SM; it waits for {self.bound}"
        )
        return Fact(text, Basis.MODEL)

    def fault(self) -> Fact | None:
        """What the back end says, if it cannot express the plan."""
        try:
            emit_kernels(self.plan)
        except MirageError as error:
            why = f": {error.why}" if error.why else ""
            return Fact(f"{error.what}{why}", Basis.BACK_END, "no_schedule")
        except Exception as error:  # noqa: BLE001  a plan that no search gives may hit anything
            return Fact(f"{type(error).__name__}: {error}", Basis.BACK_END, "not_emitted")
        return None


def with_kernel(plan: Plan, number: int, block: BlockGraph, options: LaunchConfig) -> Plan:
    """The plan with one kernel in other tiles, or launched otherwise."""
    kernels, chosen = list(plan.ugraph.kernels), list(plan.options)
    kernels[number], chosen[number] = block, options
    return replace(plan, ugraph=replace(plan.ugraph, kernels=tuple(kernels)), options=tuple(chosen))


def variation(plan: Plan, number: int, target: Target) -> Variation:
    """What the cost model says of a plan. Raises MirageError where it cannot be tiled so."""
    model = PlanModel(plan, target)
    predicted = model.predicted()
    load = model.loads[number]
    assert isinstance(load, KernelLoad)
    return Variation(plan, number, target, predicted.time_us, load, predicted.kernels[number].bound)


def too_large(variation: Variation) -> Fact | None:
    """Where a tile is larger than the search tries."""
    if is_sensible(Tiling(variation.plan.ugraph.scope, variation.block)):
        return None
    text = "a tile would have more elements than any number of warps keeps in registers"
    return Fact(text, Basis.RULE, "max_tile_elements")


def other_launches(first: Variation) -> Iterator[Variation]:
    """The same tiles under every usual launch option that fits, fastest first."""
    backend: BackEnd = "cuda" if first.plan.backend == "cuda" else "triton"
    tiling = Tiling(first.plan.ugraph.scope, first.block)
    tiled = TiledKernel(tiling, backend=backend)
    found = []
    for options in launch_options(tiled, backend, first.target):
        plan = with_kernel(first.plan, first.number, first.block, options)
        found.append(variation(plan, first.number, first.target))
    yield from sorted((v for v in found if v.time_us < inf), key=lambda v: v.time_us)
