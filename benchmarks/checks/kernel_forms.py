"""Forms that a CUDA kernel may have: launch options that bring them about, and which a plan has.

A launch option counts where the text without it is another one, for emitters leave out what has no
use; what no option brings about is found in the text or in the block graph.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from mirage_py.codegen.cuda.analysis.row_reductions import BY_PRODUCER, SUMS
from mirage_py.codegen.cuda.analysis.warp_roles import PRODUCER, PRODUCER_WARPS
from mirage_py.codegen.cuda.epilogue.coalesced_stores import IN_ROWS
from mirage_py.codegen.cuda.epilogue.quad_shuffles import BY_LANES, STORES
from mirage_py.codegen.cuda.layout.wgmma_partitioning import PRODUCTS, WARPS
from mirage_py.codegen.cuda.mma.mma_pipelining import ACROSS, ON, OVERLAP
from mirage_py.codegen.cuda.mma.ping_pong import TURNS
from mirage_py.codegen.cuda.pipeline.persistent_kernel import BLOCKS
from mirage_py.codegen.cuda.schedule.concatenated_n import JOINS
from mirage_py.codegen.cuda.softmax.rescaling import LAZY, OPTIMISTIC, RESCALING
from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.codegen.tiling.block_order import LONGEST, ORDER
from mirage_py.codegen.tiling.descriptors import COPIES, DESCRIPTORS
from mirage_py.errors import ScheduleError
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph

_FETCHED = ((COPIES, DESCRIPTORS), (PRODUCER, PRODUCER_WARPS))
_OVERLAPPED = (*_FETCHED, (OVERLAP, ON))
_LATE = (*_FETCHED, (OVERLAP, ACROSS), (RESCALING, LAZY), (TURNS, ON), (STORES, BY_LANES))
# Stands for a number of blocks that leaves some of them more than one place.
_FEW = "few"
_MOST_BLOCKS = 3

# Launch options by a word for what they switch.
PATHS = {
    "engine": ((COPIES, DESCRIPTORS), (PRODUCER, "")),
    "producer": _FETCHED,
    "overlap": _OVERLAPPED,
    "plain copies": ((COPIES, ""), (PRODUCER, "")),
    "mma": ((PRODUCTS, WARPS),),
}
DETAILS = {
    "stay": (*_FETCHED, (BLOCKS, _FEW)),
    "stay overlap": (*_OVERLAPPED, (BLOCKS, _FEW), (ORDER, LONGEST)),
    "longest": ((ORDER, LONGEST), (BLOCKS, "")),
    "across": (*_FETCHED, (OVERLAP, ACROSS)),
    "turns": (*_OVERLAPPED, (TURNS, ON)),
    "lanes": ((STORES, BY_LANES),),
    "rows": ((STORES, IN_ROWS),),
    "lazy": ((RESCALING, LAZY),),
    "optimistic": ((RESCALING, OPTIMISTIC),),
    "optimistic overlap": (*_OVERLAPPED, (RESCALING, OPTIMISTIC)),
    "sums": (*_FETCHED, (SUMS, BY_PRODUCER)),
    "sums overlap": (*_OVERLAPPED, (SUMS, BY_PRODUCER), (RESCALING, OPTIMISTIC)),
    "all ahead": (*_LATE, (ORDER, LONGEST), (BLOCKS, _FEW)),
}

OPTIONS = {
    "copy engine": (COPIES, DESCRIPTORS),
    "producer": (PRODUCER, PRODUCER_WARPS),
    "overlap on": (OVERLAP, ON),
    "overlap across": (OVERLAP, ACROSS),
    "turns": (TURNS, ON),
    "order longest": (ORDER, LONGEST),
    "stores by lanes": (STORES, BY_LANES),
    "stores by rows": (STORES, IN_ROWS),
    "sums by the producer": (SUMS, BY_PRODUCER),
    "rescaling lazy": (RESCALING, LAZY),
    "rescaling optimistic": (RESCALING, OPTIMISTIC),
    "products by single warps": (PRODUCTS, WARPS),
}


def text_of(plan: Plan) -> str:
    """The text of all kernels. Raises ScheduleError."""
    return "".join(k.source for k in emit_kernels(plan))


def with_other_texts(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """A CUDA plan with launch options that make another text of it, each under a word for it; what
    the emitter refuses is left out.
    """
    if plan.backend != "cuda":
        return
    texts: list[str] = []
    for word, flags in {"": (), **PATHS, **DETAILS}.items():
        with contextlib.suppress(ScheduleError):
            other = _switched(plan, flags)
            texts.append(text_of(other))
            if word and texts[-1] not in texts[:-1]:
                yield word, other


def _switched(plan: Plan, flags: tuple[tuple[str, str], ...]) -> Plan:
    for flag, value in flags:
        plan = _with_few_blocks(plan) if value == _FEW else _with(plan, flag, value)
    return plan


def _with(plan: Plan, flag: str, value: str) -> Plan:
    return replace(plan, options=tuple(o.with_flag(flag, value) for o in plan.options))


def _with_few_blocks(plan: Plan) -> Plan:
    """Each kernel with fewer blocks than places, and a last round that not all have a place in."""
    plan = _with(plan, BLOCKS, "")
    places = {k.name: k.grid for k in emit_kernels(plan) if isinstance(k, CudaKernel)}
    numbers = [min(_MOST_BLOCKS, places.get(k.name, 0) - 1) for k in plan.ugraph.kernels]
    rows = zip(plan.options, numbers, strict=True)
    options = tuple(o.with_flag(BLOCKS, str(n) if n > 0 else "") for o, n in rows)
    return replace(plan, options=options)


# -- which forms a plan has ----------------------------------------------------------------------


def forms_of(plan: Plan) -> tuple[str, ...]:
    """The forms of a CUDA plan's kernels; none of a Triton plan. Raises ScheduleError."""
    if plan.backend != "cuda":
        return ()
    text = text_of(plan)
    found = [
        form
        for form, (flag, value) in OPTIONS.items()
        if any(o.flag(flag) == value for o in plan.options) and _differs(plan, flag, "", text)
    ]
    blocks = [k for k in plan.ugraph.kernels if isinstance(k, BlockGraph)]
    emitted = [k for k in emit_kernels(plan) if isinstance(k, CudaKernel)]
    pairs = list(zip(blocks, emitted, strict=True))
    found += [form for form, has in IN_KERNEL.items() if any(has(*pair) for pair in pairs)]
    early = [k.name for k in emitted if k.uses_pdl]
    if plan.ugraph.kernels[0].name in early:
        found.append("first kernel starts early")
    if set(early) - {plan.ugraph.kernels[0].name}:
        found.append("later kernel starts early")
    if any(_outputs(plan, b) > 1 for b in blocks):
        found.append("products side by side in a kernel")
    if _differs(plan, JOINS, "off", text):
        found.append("products side by side in an instruction")
    return tuple(found)


def _differs(plan: Plan, flag: str, value: str, text: str) -> bool:
    """Whether another text is emitted with the option at a value, and any at all."""
    with contextlib.suppress(ScheduleError):
        return text_of(_with(plan, flag, value)) != text
    return True


def _has(pattern: str) -> Callable[[BlockGraph, CudaKernel], bool]:
    expression = re.compile(pattern)
    return lambda _, kernel: expression.search(kernel.body) is not None


def _adds_on(block: BlockGraph, kernel: CudaKernel) -> bool:
    """Whether fewer products have registers of their own than have no accumulator."""
    readers = (node for node in block.nodes if node.op.startswith("accum"))
    accumulated = {a for node in readers for a in node.args}
    own = [n for n, node in enumerate(block.nodes) if node.op == "matmul" and n not in accumulated]
    return len(set(re.findall(r"\bfloat (dot\d+)\b", kernel.body))) < len(own)


IN_KERNEL: dict[str, Callable[[BlockGraph, CudaKernel], bool]] = {
    "cluster": lambda _, kernel: kernel.cluster > 1,
    "products by warp groups": _has(r"\bwgmma_m64"),
    "blocks that stay": _has(r"\+\+round"),
    "places dealt out by a table": _has(r"unsigned short places"),
    "stores by matrices": _has(r"\bstmatrix_x4"),
    "kept operands": _has(r"hand_over\(\w+_now"),
    "sums go on in another product's registers": _adds_on,
}


def _outputs(plan: Plan, block: BlockGraph) -> int:
    """How many of the program's outputs a kernel with several products writes."""
    if sum(node.op == "matmul" for node in block.nodes) < 2:
        return 0
    outputs = {output.tensor.name for output in plan.ugraph.program.outputs}
    return len({node.access.tensor for _, node in block.stores()} & outputs)
