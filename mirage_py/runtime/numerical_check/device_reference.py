"""References of programs that the host cannot evaluate: the program itself in float64, on a device.

A norm over all of a batch behind a convolution, or a chain of products with large weights, needs
gigabytes for its first output element. torch computes all of its outputs in float64 on the device,
and of each a few million elements are kept. How far off a right kernel may be there is not computed
for each element, as on the host (mirage_py.verify.numerical_check.rounding_error), but measured: it
is how far off eager PyTorch is among the neighbours of the element. That all of an output is not
farther off than eager is asked for as ever.

Of sums over a batch eager's errors may be none by chance, which says nothing of another order: it
rounds their terms to halves, and a million equal numbers of eight bits have an exact mean. In
float32 that mean is off by some units of the last place, and a batch norm of a channel that is
almost constant divides the difference by sqrt(eps). So the program is also evaluated with its
longest sums off by what is expected of so many roundings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage_py.errors import UnsupportedError
from mirage_py.runtime.eager.eager_source import eager_source, torch_function
from mirage_py.runtime.env.matmul_setting import matmuls_as_in
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.interpret.frame import MAX_DIMS
from mirage_py.ugraph.ir.dtypes import F32, F64, DType
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.rewrite.logs import logs_apart
from mirage_py.ugraph.rewrite.rebuild import Rule, copied, rebuild
from mirage_py.verify.evaluate.first_stage import first_stage
from mirage_py.verify.evaluate.windows import LEAST_WINDOWS, MAX_ELEMENTS, least_cost, total_work
from mirage_py.verify.numerical_check.float_case import SPREAD
from mirage_py.verify.numerical_check.numerical_check import Reference
from mirage_py.verify.numerical_check.places import Places
from mirage_py.verify.shifts.safe_exp import add_safe_shifts

if TYPE_CHECKING:
    import torch

# Elements of an output that are kept: all of a small one, else both ends and neighbours in between.
# Of sets other than the random one, of which each has other places, so that all of them together
# compare more than that one does.
_MOST_KEPT, _MOST_OF_OTHERS = 1 << 22, 1 << 20
_ENDS = 1 << 16
# Neighbours, among which eager's error is measured.
_NEIGHBOURS = 128
# Fewer errors than this say little of how they are spread; so many groups are around one.
_FEW, _AROUND = 32, 33
# Estimates of rounding errors are about twice as large as these are spread (``float_case.SPREAD``):
# so is what a measured spread stands for, or of millions of right elements hundreds would be beyond
# four times their own spread.
_ESTIMATE = 2.0
# Terms of a sum whose order matters; and the share that such a sum is given of the error that is
# expected of it in float32: it counts ``float_case.SPREAD`` times.
_LONG = 1 << 16
_SHARE = 1 / SPREAD
# Of the work that the reference of the random set may take, what no set leaves out may: the first
# windows, or a first stage. The other sets have no more than that.
OTHERS_SHARE = 1 / 16


def needs_device(program: Program, max_work: float) -> bool:
    """Whether the least that the host would have to evaluate takes too much of ``max_work``, or
    arrays that are too large or have too many axes, and torch has the program.
    """
    safe = add_safe_shifts(logs_apart(program))
    stage = first_stage(safe)
    work, elements = least_cost(stage or safe)
    needed = LEAST_WINDOWS * work if stage is None else total_work(stage)
    few = needed <= OTHERS_SHARE * max_work and len(safe.sizes) <= MAX_DIMS
    if few and elements <= 2 * MAX_ELEMENTS:
        return False
    try:
        eager_source(in_float64(program))
    except UnsupportedError:
        return False
    return True


def kept_share(program: Program, *, is_random: bool) -> float:
    """Of the outputs' elements, how many are kept, of the random set or of another."""
    sizes = [o.tensor.elements for o in program.outputs]
    return sum(min(size, _most_kept(is_random=is_random)) for size in sizes) / max(1, sum(sizes))


def _most_kept(*, is_random: bool) -> int:
    return _MOST_KEPT if is_random else _MOST_OF_OTHERS


def in_float64(program: Program) -> Program:
    """The program with all numbers in float64, inputs, outputs and casts."""

    def wide(tensor: Tensor) -> Tensor:
        return replace(tensor, dtype=F64) if tensor.dtype.is_float else tensor

    nodes = tuple(
        replace(n, attr=F64) if isinstance(n.attr, DType) and n.attr.is_float else n
        for n in program.nodes
    )
    outputs = tuple(replace(o, tensor=wide(o.tensor)) for o in program.outputs)
    inputs = tuple(map(wide, program.inputs))
    return replace(program, inputs=inputs, nodes=nodes, outputs=outputs)


def with_inexact_sums(program: Program) -> Program | None:
    """The program with its long sums off by what another order makes of them; None where there is
    none.
    """
    rules: dict[int, Rule] = {}
    for number, node in enumerate(program.nodes):
        if node.op == "sum":
            terms = prod(program.sizes[d] for d in node.reduced)
            if terms >= _LONG:
                rules[number] = partial(_scaled, node, 1 + _SHARE * sqrt(terms) * F32.unit_roundoff)
    return rebuild(program, rules) if rules else None


def _in_another_order(
    program: Program, inputs: Sequence[torch.Tensor], places: Sequence[Places]
) -> list[NDArray[np.float64]] | None:
    """The outputs in float64 where long sums are off; None where there are none, or where torch
    cannot compute them: then a kernel is held to eager's errors alone.
    """
    import torch

    inexact = with_inexact_sums(program)
    if inexact is None:
        return None
    try:
        return _run(torch_function(in_float64(inexact)), inputs, places)
    except (UnsupportedError, torch.OutOfMemoryError):
        return None


def _scaled(node: Node, factor: float, builder: ProgramBuilder, args: Sequence[int]) -> int:
    return builder.apply("mul", copied(builder, node, args), builder.const(factor))


def device_reference(
    program: Program, inputs: Sequence[torch.Tensor], seed: int, *, is_random: bool = True
) -> Reference:
    """The outputs for inputs on a device, at places drawn with ``seed`` where they are large: fewer
    where they are not those of the random set.
    """
    tensors = [o.tensor for o in program.outputs]
    places = [_places(t, seed, _most_kept(is_random=is_random)) for t in tensors]
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    exact = _run(torch_function(in_float64(program)), wide, places)
    moved = _in_another_order(program, wide, places) or exact
    del wide
    with matmuls_as_in(program):
        rounded = _run(torch_function(program), inputs, places)
    known = Reference({}, {}, {}, is_measured=True)
    found = zip(tensors, places, exact, rounded, moved, strict=True)
    for tensor, where, right, eager, other in found:
        is_all = where.flat.size == tensor.elements
        shape = tensor.shape if is_all else (where.flat.size,)
        known.outputs[tensor.name] = right.reshape(shape)
        by_order = np.nan_to_num(np.abs(other - right), nan=0.0, posinf=0.0)
        known.errors[tensor.name] = np.fmax(_spread(eager - right), by_order).reshape(shape)
        if not is_all:
            known.places[tensor.name] = where
    return known


def _places(tensor: Tensor, seed: int, most: int) -> Places:
    """Groups of neighbours, in order: both ends, and one at random in each of as many equal
    stretches between them as there is room for.
    """
    size = tensor.elements
    if size <= most:
        return Places(tensor.shape, np.arange(size))
    groups, ends = -(-size // _NEIGHBOURS), _ENDS // _NEIGHBOURS
    count = most // _NEIGHBOURS - 2 * ends
    borders = ends + np.arange(count + 1) * (groups - 2 * ends) // count
    between = np.random.default_rng(seed).integers(borders[:-1], borders[1:])
    chosen = np.concatenate([np.arange(ends), between, np.arange(groups - ends, groups)])
    flat = (chosen[:, None] * _NEIGHBOURS + np.arange(_NEIGHBOURS)).reshape(-1)
    return Places(tensor.shape, flat[flat < size])


def _run(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor], places: Sequence[Places]
) -> list[NDArray[np.float64]]:
    import torch

    with torch.no_grad():
        found = function(*inputs)
        outputs = found if isinstance(found, tuple) else (found,)
        taken = []
        for output, where in zip(outputs, places, strict=True):
            flat = output.reshape(-1)
            if where.flat.size < flat.numel():
                flat = flat[torch.from_numpy(where.flat).to(flat.device)]
            taken.append(flat.double().cpu().numpy())
    return taken


def _spread(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """The estimated errors: by the root mean square of those of neighbours that are numbers, and
    not 0. Groups of neighbours follow each other, all complete but the last.

    Behind a ReLU most errors may be 0, which says nothing of the elements that are not. Few others
    in a group say little, so there it is that of the groups around it, if that is larger.
    """
    groups = np.zeros((-(-errors.size // _NEIGHBOURS), _NEIGHBOURS))
    groups.reshape(-1)[: errors.size] = errors
    says = np.isfinite(groups) & (groups != 0.0)
    with np.errstate(over="ignore"):
        squares = np.sum(groups**2, axis=1, where=says)
    counts = says.sum(axis=1)
    around = [np.convolve(x, np.ones(_AROUND), mode="full") for x in (squares, counts)]
    start = _AROUND // 2
    wide = [x[start : start + counts.size] for x in around]
    with np.errstate(over="ignore", invalid="ignore"):
        own, larger = (s / np.maximum(n, 1) for s, n in ((squares, counts), wide))
        spread = _ESTIMATE * np.sqrt(np.where(counts < _FEW, np.maximum(own, larger), own))
    return np.repeat(spread, _NEIGHBOURS)[: errors.size]
