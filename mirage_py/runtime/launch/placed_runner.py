"""A runner that writes outputs in place, taken only where it does what the plan's own runner does.

The plan has been verified and measured with outputs of its own. A placed plan stores them at other
addresses (ugraph/rewrite/placements.py): both are run once on the same random inputs, and have to
agree bit by bit, with nothing else of the tensors changed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mirage_py.errors import CompileError, InputError, ScheduleError
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.launch.repeated_launch import empty
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.rewrite.placements import PLACE, Placement, placed

if TYPE_CHECKING:
    import torch

log = logging.getLogger("mirage_py.runtime")
_SCALE = 0.25


def placed_runner(runner: PlanRunner, placements: Sequence[Placement]) -> PlanRunner | None:
    """The same plan with outputs in place; None where there are none, or no kernel writes them so;
    the log says why.
    """
    if not placements:
        return None
    try:
        found = PlanRunner(placed(runner.plan, placements))
        where = _difference(runner, found, placements)
    except (ScheduleError, CompileError, InputError) as error:
        log.warning("outputs are not written in place: %s", error)
        return None
    if where:
        log.warning("outputs are not written in place: %s", where)
        return None
    return found


def positions(p: Placement, read: Mapping[str, torch.Tensor], device: torch.device) -> torch.Tensor:
    """The positions that tensors of these contents say, as ``index_copy`` takes them."""
    import torch

    env: dict[str, Any] = {f"{name}[]": tensor for name, tensor in read.items()}
    env[PLACE] = torch.arange(p.count, device=device)
    return torch.as_tensor(p.position.evaluate(env), device=device).reshape(p.count)


def _difference(runner: PlanRunner, in_place: PlanRunner, placements: Sequence[Placement]) -> str:
    """Where the two do not agree; empty if they do."""
    import torch

    device = torch.device("cuda", torch.cuda.current_device())
    random = torch.Generator(device).manual_seed(0)
    inputs = {t.name: _random(t, random) for t in in_place.plan.ugraph.program.inputs}
    for p in placements:
        if not _put_inside(p, inputs, device):
            return f"{p.position} is no place of {p.tensor}"
    own = runner.run_poisoned(*(inputs[t.name] for t in runner.plan.ugraph.program.inputs))
    targets = {p.output: _random(in_place.outputs[p.output], random) for p in placements}
    before = {n: t.clone() for n, t in targets.items()}
    found = in_place.run_in_place(tuple(inputs.values()), targets)
    for p in placements:
        before[p.output].index_copy_(p.axis, positions(p, inputs, device), own[p.output])
    for number, result in enumerate(found):
        expected = before.get(number, own[number])
        if not torch.equal(_bits(result), _bits(expected)):
            return f"output {number} differs from that of the plan"
    return ""


def _put_inside(p: Placement, inputs: dict[str, Any], device: torch.device) -> bool:
    """Let the positions be inside of the tensor, where that is possible."""
    for place in ((p.tensor.shape[p.axis] - p.count) // 2, 0):
        for t in p.read:
            inputs[t.name].fill_(place)
        found = positions(p, inputs, device)
        if 0 <= int(found.min()) and int(found.max()) < p.tensor.shape[p.axis]:
            return True
    return False


def _random(tensor: Tensor, generator: torch.Generator) -> torch.Tensor:
    import torch

    fresh = empty(tensor, generator.device)
    if not fresh.dtype.is_floating_point:
        return fresh.zero_()
    drawn = torch.randn(fresh.shape, generator=generator, device=fresh.device)
    return fresh.copy_(drawn * _SCALE)


def _bits(x: torch.Tensor) -> torch.Tensor:
    import torch

    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return x.contiguous().view(whole[x.element_size()])
