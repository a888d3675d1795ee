"""Places in shared memory by OR-tools' CP-SAT: the check of our own search."""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.codegen.cuda.memory.memory_plan import Buffer, MemoryPlan


def solve_memory(buffers: Sequence[Buffer], seconds: float) -> MemoryPlan:
    """The smallest plan, proved if ``seconds`` of the solver's own count suffice.

    Rectangles, lives by bytes, without overlap. ``ortools`` must be installed.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    most = sum(b.size_bytes + b.alignment_bytes for b in buffers)
    total = model.new_int_var(0, most, "total")
    lives, places, offsets = [], [], []
    for b in buffers:
        offset = b.alignment_bytes * model.new_int_var(0, most // b.alignment_bytes, b.name)
        life = b.last - b.first + 1
        offsets.append(offset)
        lives.append(model.new_fixed_size_interval_var(b.first, life, ""))
        places.append(model.new_fixed_size_interval_var(offset, b.size_bytes, ""))
        model.add(offset + b.size_bytes <= total)
    model.add_no_overlap_2d(lives, places)
    model.minimize(total)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    # A count of operations, not of time: the same answer on a busy machine.
    solver.parameters.max_deterministic_time = seconds
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE), solver.status_name(status)
    found = {b.name: solver.value(o) for b, o in zip(buffers, offsets, strict=True)}
    return MemoryPlan(found, solver.value(total), status == cp_model.OPTIMAL)
