"""Forms that a CUDA kernel may have: launch options that bring them about, and which a plan has.

A launch option counts where the text without it is another one, for emitters leave out what has no
use; what no option brings about is found in the text or in the block graph.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.errors import ScheduleError
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.ugraph.ir.launch_choices import (
    BlockOrder,
    MatmulInstruction,
    OverlapMode,
    RescalingMode,
    StoreMode,
)
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph

Changes = Mapping[str, object]

_FETCHED: Changes = {"descriptors": True, "producer_warps": True}
_OVERLAPPED: Changes = {**_FETCHED, "overlap": OverlapMode.ON}
_ACROSS: Changes = {**_FETCHED, "overlap": OverlapMode.ACROSS}
_LATE: Changes = {
    **_ACROSS,
    "rescaling": RescalingMode.LAZY,
    "ping_pong": True,
    "stores": StoreMode.LANES,
}
_LONGEST: Changes = {"block_order": BlockOrder.LONGEST}
_OPTIMISTIC: Changes = {"rescaling": RescalingMode.OPTIMISTIC}
# Stands for a number of blocks that leaves some of them more than one place.
_FEW = "few"
_STAY: Changes = {"persistent_blocks": _FEW}
_MOST_BLOCKS = 3

# Launch options by a word for what they switch.
PATHS: Mapping[str, Changes] = {
    "engine": {"descriptors": True, "producer_warps": False},
    "producer": _FETCHED,
    "overlap": _OVERLAPPED,
    "plain copies": {"descriptors": False, "producer_warps": False},
    "mma": {"matmul": MatmulInstruction.MMA},
}
DETAILS: Mapping[str, Changes] = {
    "stay": {**_FETCHED, **_STAY},
    "stay overlap": {**_OVERLAPPED, **_STAY, **_LONGEST},
    "longest": {**_LONGEST, "persistent_blocks": 0},
    "across": _ACROSS,
    "turns": {**_OVERLAPPED, "ping_pong": True},
    "lanes": {"stores": StoreMode.LANES},
    "rows": {"stores": StoreMode.ROWS},
    "lazy": {"rescaling": RescalingMode.LAZY},
    "optimistic": _OPTIMISTIC,
    "optimistic overlap": {**_OVERLAPPED, **_OPTIMISTIC},
    "sums": {**_FETCHED, "producer_sums": True},
    "sums overlap": {**_OVERLAPPED, "producer_sums": True, **_OPTIMISTIC},
    "all ahead": {**_LATE, **_LONGEST, **_STAY},
}

OPTIONS: Mapping[str, tuple[str, object]] = {
    "copy engine": ("descriptors", True),
    "producer": ("producer_warps", True),
    "overlap on": ("overlap", OverlapMode.ON),
    "overlap across": ("overlap", OverlapMode.ACROSS),
    "turns": ("ping_pong", True),
    "order longest": ("block_order", BlockOrder.LONGEST),
    "stores by lanes": ("stores", StoreMode.LANES),
    "stores by rows": ("stores", StoreMode.ROWS),
    "sums by the producer": ("producer_sums", True),
    "rescaling lazy": ("rescaling", RescalingMode.LAZY),
    "rescaling optimistic": ("rescaling", RescalingMode.OPTIMISTIC),
    "products by single warps": ("matmul", MatmulInstruction.MMA),
}
_DEFAULTS = LaunchConfig()


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
    for word, changes in {"": {}, **PATHS, **DETAILS}.items():
        with contextlib.suppress(ScheduleError):
            other = _switched(plan, changes)
            texts.append(text_of(other))
            if word and texts[-1] not in texts[:-1]:
                yield word, other


def _switched(plan: Plan, changes: Changes) -> Plan:
    if changes.get("persistent_blocks") == _FEW:
        return _with_few_blocks(_with(plan, {**changes, "persistent_blocks": 0}))
    return _with(plan, changes)


def _with(plan: Plan, changes: Changes) -> Plan:
    return replace(plan, options=tuple(replace(o, **changes) for o in plan.options))


def _with_few_blocks(plan: Plan) -> Plan:
    """Each kernel with fewer blocks than places, and a last round that not all have a place in."""
    places = {k.name: k.grid for k in emit_kernels(plan) if isinstance(k, CudaKernel)}
    numbers = [min(_MOST_BLOCKS, places.get(k.name, 0) - 1) for k in plan.ugraph.kernels]
    rows = zip(plan.options, numbers, strict=True)
    options = tuple(replace(o, persistent_blocks=max(n, 0)) for o, n in rows)
    return replace(plan, options=options)


# -- which forms a plan has ----------------------------------------------------------------------


def forms_of(plan: Plan) -> tuple[str, ...]:
    """The forms of a CUDA plan's kernels; none of a Triton plan. Raises ScheduleError."""
    if plan.backend != "cuda":
        return ()
    text = text_of(plan)
    found = [
        form
        for form, (name, value) in OPTIONS.items()
        if any(getattr(o, name) == value for o in plan.options)
        and _differs(plan, {name: getattr(_DEFAULTS, name)}, text)
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
    if _differs(plan, {"concatenated_n": False}, text):
        found.append("products side by side in an instruction")
    return tuple(found)


def _differs(plan: Plan, changes: Changes, text: str) -> bool:
    """Whether another text is emitted with changed options, and any at all."""
    with contextlib.suppress(ScheduleError):
        return text_of(_with(plan, changes)) != text
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
