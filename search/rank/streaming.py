"""Streaming plans: kernels that copy weights through shared memory in a loop, two blocks on each
SM, so that the next kernel of a chain fits beside them and has its first weights on their way.

By itself such a plan is about as fast as one that loads weights to registers in many blocks. In a
chain it is faster: all its blocks run at once, so the next kernel starts while it does, evenly over
the SMs (measured: docs/explanation/whole_models.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, prod

from mirage_py.search.rank.instance import Instance, PlanEstimate
from mirage_py.search.rank.kernel_choices import KernelChoice, KernelRanker
from mirage_py.targets import Target
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

_BLOCKS_PER_SM = 2
# Of an SM's shared memory: the blocks of the kernel in front have the other half.
_SHARE = 0.5
# Bytes of weights that a block reads in an iteration, iterations on their way, warps of a block.
_STEP_BYTES, _STAGES, _WARPS = 16384, 6, 4
_LEAST_STAGES = 3
_STEPS = (512, 256, 128)
_NAME = "streaming"


def is_streaming(plan: Plan, target: Target) -> bool:
    """Whether all blocks of its only kernel run at once, and weights come through shared memory."""
    (kernel, *others), (options, *_) = plan.ugraph.kernels, plan.options
    if others or not isinstance(kernel, BlockGraph) or plan.backend != "cuda":
        return False
    loops = [s for s in kernel.sections if s.loop is not None]
    blocks = _blocks(plan.ugraph, {a.dim: a.tile or 1 for a in kernel.grid})
    few = blocks <= _BLOCKS_PER_SM * target.sms
    return len(loops) == 1 and few and max(options.num_stages, default=1) >= _LEAST_STAGES


def streaming_instances(
    families: Sequence[UGraph], target: Target, ranker: KernelRanker
) -> list[Instance]:
    """A plan for each family that multiplies one row with weights in one loop, best first."""
    found = [i for f in families for i in _of_family(f, target, ranker)]
    return sorted(found, key=lambda i: i.estimate.time_us)


def _of_family(family: UGraph, target: Target, ranker: KernelRanker) -> Iterator[Instance]:
    (kernel, *others) = family.kernels
    if others or not isinstance(kernel, BlockGraph):
        return
    loops = [s.loop for s in kernel.sections if s.loop is not None]
    weights = [n for n in kernel.nodes if n.op == "load" and _is_weight(n, loops)]
    if len(loops) != 1 or not weights or any(n.op == "matmul" for n in kernel.nodes):
        return
    (loop,) = loops
    splits = ranker.splits(family)
    form = ranker.form(family, splits[0]) if splits else None
    if form is None or form.ugraph.program.dims != family.program.dims:
        return
    choices = ranker.ranked(form, 0)
    if not choices:
        return
    tiles = _tiles(family, kernel, target, choices)
    if tiles is None:
        return
    size = family.program.sizes[loop]
    # Of one position of the loop.
    looped = [n for n in kernel.nodes if n.op == "load" and loop in n.dims]
    in_weights, in_all = (sum(_bytes(family, n, tiles, loop) for n in g) for g in (weights, looped))
    step = next((s for s in _STEPS if size % s == 0 and in_weights * s <= _STEP_BYTES), 0)
    room = int(target.smem_per_sm_bytes * _SHARE / _BLOCKS_PER_SM)
    stages = min(_STAGES, room // (in_all * step)) if step else 0
    if stages < _LEAST_STAGES:
        return
    tiled = replace(
        kernel,
        grid=tuple(replace(a, tile=tiles[a.dim]) for a in kernel.grid),
        sections=tuple(s if s.loop is None else replace(s, tile=step) for s in kernel.sections),
    )
    options = replace(choices[0].options, num_warps=_WARPS, num_stages=(stages,), early_start=True)
    plan = Plan(replace(family, kernels=(tiled,)), (options,), "cuda")
    key = (_NAME, family.digest)
    estimate = PlanEstimate((choices[0].estimate,))
    yield Instance(family, plan, estimate, form.kind, form.name, key, key, key)


def _bytes(family: UGraph, load: Node, tiles: Mapping[str, int], loop: str) -> int:
    each = family.program.tensors[load.access.tensor].dtype.bytes
    return each * prod(tiles.get(d, 1) for d in load.dims if d != loop)


def _is_weight(node: Node, loops: Sequence[str]) -> bool:
    """Whether it is a load in a loop that is another one for each block."""
    return len(node.dims) > 1 and any(d in loops for d in node.dims)


def _tiles(
    family: UGraph, kernel: BlockGraph, target: Target, choices: Sequence[KernelChoice]
) -> Mapping[str, int] | None:
    """The tiles of a grid with as many blocks as the SMs take, or half of them."""
    sizes = family.program.sizes
    most = _BLOCKS_PER_SM * target.sms
    if len(kernel.grid) == 1:
        dim = kernel.grid[0].dim
        given = [{dim: 1 << n} for n in range(sizes[dim].bit_length())]
    else:
        kernels = [c.kernel for c in choices if isinstance(c.kernel, BlockGraph)]
        given = [{a.dim: a.tile or 1 for a in k.grid} for k in kernels]
    fitting = [t for t in given if target.sms // 2 < _blocks(family, t) <= most]
    return max(fitting, key=lambda t: _blocks(family, t), default=None)


def _blocks(family: UGraph, tiles: Mapping[str, int]) -> int:
    sizes = family.program.sizes
    return prod(ceil(sizes[d] / t) for d, t in tiles.items())
