"""The roofline of a program: the least bytes and operations, and which of the two bounds a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.search.model.contraction_work import contraction_flops
from mirage_py.search.model.cost_model import lower_bound_us
from mirage_py.search.model.matmul_rates import program_rate
from mirage_py.targets import Target
from mirage_py.ugraph.ir.program import Program


@dataclass(frozen=True, slots=True)
class Roofline:
    """``moved_bytes`` are every input and output once, ``flops`` those of the contractions.

    ``floor_us`` is the time that no plan can beat on the target; ``bound_by`` says what sets it:
    ``memory``, ``compute`` or ``launch``.
    """

    moved_bytes: int
    flops: float
    floor_us: float
    bound_by: str


def roofline(program: Program, target: Target) -> Roofline:
    """The bound of a program on a target."""
    moved = sum(t.bytes for t in program.tensors.values())
    flops = contraction_flops(program)
    times = {
        "memory": moved / target.dram_bytes_per_us,
        "compute": flops / program_rate(program, target),
        "launch": target.launch_us,
    }
    bound_by = max(times, key=lambda name: times[name])
    return Roofline(moved, flops, lower_bound_us(program, target), bound_by)
