"""The CUDA module of a plan: each kernel as a C++ file that compiles alone."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from mirage_py.codegen.cuda.analysis.loop_elision import elide_loops
from mirage_py.codegen.cuda.kernel.kernel import KernelEmitter
from mirage_py.codegen.cuda.memory.memory_plan import MemoryPlan
from mirage_py.codegen.cuda.plan.kernel_plan import KernelPlan, plan_kernel
from mirage_py.codegen.cuda.text.c_text import LINE, wrapped
from mirage_py.codegen.cuda.text.prelude import all_names, names_used, prelude_text
from mirage_py.codegen.cuda.windows.window_kernel import WindowKernel, window_kernel
from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.codegen.lowering.lowering import lowered
from mirage_py.codegen.lowering.precision import TypedBlock
from mirage_py.codegen.lowering.tile_factors import with_tile_factors
from mirage_py.codegen.text.names import Vocabulary, emitted_names, renamed_plan
from mirage_py.codegen.text.reserved_words import C_FORMS, C_FUNCTION_FORMS, C_FUNCTIONS, C
from mirage_py.codegen.tiling.dependent_launch import (
    ALONE,
    DEPENDENT_LAUNCH,
    LaunchOrder,
    launch_orders,
)
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.checks.run_time_sizes import run_time_dims
from mirage_py.ugraph.ir.launch_choices import Arch
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.text.printing import format_block

# Dynamic shared memory that a block may have, by the architecture that the text is for.
_SMEM_BYTES = {Arch.SM_80: 163 * 1024, Arch.SM_90A: 227 * 1024}
# Elements of one tile that a thread may have.
_MOST_ELEMENTS = 1024
# Kernels over windows have no plan of layouts and phases.
_Emitted = tuple[KernelPlan | None, CudaKernel]
_CAPABILITY = {Arch.SM_80: 80, Arch.SM_90A: 90}
# The first architecture with clusters, and the largest cluster that it can run.
_CLUSTER_ARCH = Arch.SM_90A
_MAX_CLUSTER_BLOCKS = 16
# Read from one lane, so that ptxas knows it for the same in all: what follows from it, descriptors
# of warp groups too, is computed once a warp, in uniform registers.
_UNIFORM_WARP = "__shfl_sync(0xffffffffu, (int)threadIdx.x >> 5, 0)"


def emit_cuda(plan: Plan) -> tuple[CudaKernel, ...]:
    """Every block graph of the plan, in launch order; library calls are left out."""
    names = emitted_names(plan.ugraph, _vocabulary())
    if names.keep_all:
        return tuple(kernel for _, kernel in _of_named(plan))
    old = {new: old for old, new in names.tensors.items()}
    tensors = plan.ugraph.tensors
    return tuple(
        replace(
            kernel,
            pointers=tuple(tensors[old[t.name]] for t in kernel.pointers),
            tensor_maps=tuple(replace(m, tensor=old[m.tensor]) for m in kernel.tensor_maps),
            options=options,
        )
        for (_, kernel), options in zip(
            _of_named(renamed_plan(plan, names)), _of_blocks(plan), strict=True
        )
    )


def kernel_plans(plan: Plan) -> tuple[KernelPlan, ...]:
    """What the text of every block graph follows, in launch order; names are those of the text.
    Kernels over windows have none.
    """
    named = renamed_plan(plan, emitted_names(plan.ugraph, _vocabulary()))
    return tuple(found for found, _ in _of_named(named) if found is not None)


@functools.cache
def _vocabulary() -> Vocabulary:
    return Vocabulary(C | frozenset(all_names()), C_FORMS, C_FUNCTIONS, C_FUNCTION_FORMS)


def _of_blocks(plan: Plan) -> tuple[LaunchConfig, ...]:
    rows = zip(plan.ugraph.kernels, plan.options, strict=True)
    return tuple(options for kernel, options in rows if isinstance(kernel, BlockGraph))


def _of_named(plan: Plan) -> tuple[_Emitted, ...]:
    """The same for a plan whose names the text can have."""
    ugraph = plan.ugraph
    if dims := run_time_dims(plan):
        raise ScheduleError(
            f"the size of {', '.join(dims)} is an argument",
            where=ugraph.program.name,
            why="kernels in CUDA have their sizes in the text",
            repair='use backend="triton", or keep the size fixed',
        )
    rows = zip(ugraph.kernels, plan.options, launch_orders(plan), strict=True)
    asked = [_Asked(k, o, order) for k, o, order in rows if isinstance(k, BlockGraph)]
    straight = [_with_loops_elided(ugraph.program, a) for a in asked]
    try:
        return _emitted(ugraph, asked, straight)
    except ScheduleError:
        # All tiles at once may be more than shared memory holds.
        if straight == asked:
            raise
        return _emitted(ugraph, asked, asked)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A kernel of a plan: what it does and how it is launched."""

    block: BlockGraph
    options: LaunchConfig
    order: LaunchOrder


def _emitted(
    ugraph: UGraph, asked: Sequence[_Asked], straight: Sequence[_Asked]
) -> tuple[_Emitted, ...]:
    """The kernels in their ``straight`` form, which is not in their comments."""
    blocks = [with_tile_factors(ugraph.program, a.block) for a in straight]
    found = lowered(ugraph, blocks)
    kernels: list[_Emitted] = []
    for whole, form, typed in zip(asked, straight, found.blocks, strict=True):
        windows = None
        if not found.in_base_two:
            order = _order_of(typed.block, form.options, form.order)
            windows = window_kernel(ugraph.program, typed, ugraph.tensors, form.options, order)
        if windows is not None:
            kernels.append((None, _over_windows(ugraph, whole.block, windows, whole.options)))
            continue
        emitter, memory = _fitting(ugraph, typed, form.options, found.in_base_two, form.order)
        kernel = _kernel(ugraph, whole.block, emitter, memory, whole.options)
        kernels.append((emitter.plan, kernel))
    return tuple(kernels)


def _with_loops_elided(program: Program, asked: _Asked) -> _Asked:
    """Without loops of one iteration, where TMA is not asked for: it serves loops."""
    options = asked.options
    if options.uses_tma:
        return asked
    block, options = elide_loops(program, asked.block, options)
    return replace(asked, block=block, options=options)


def _fitting(
    ugraph: UGraph,
    typed: TypedBlock,
    options: LaunchConfig,
    in_base_two: Collection[str],
    order: LaunchOrder,
) -> tuple[KernelEmitter, MemoryPlan]:
    """The kernel with as many of the stages that are asked for as shared memory has room for."""
    _refuse(typed.block, options)
    order = _order_of(typed.block, options, order)
    limit_bytes = _SMEM_BYTES[_arch(typed.block, options)]
    stages = options.num_stages
    while True:
        asked = replace(options, num_stages=stages)
        plan = plan_kernel(ugraph.program, typed, ugraph.tensors, asked, in_base_two, order)
        _refuse_cluster(plan)
        _refuse_wide(plan)
        deepest = max(plan.depths.values(), default=1)
        if plan.ring_bytes <= limit_bytes or deepest <= 1:
            emitter = KernelEmitter(plan)
            emitter.emit()
            try:
                return emitter, emitter.out.memory.plan(limit_bytes)
            except ScheduleError:
                # What threads exchange takes memory beside the stages, known once it is written.
                if deepest <= 1:
                    raise
        stages = tuple(min(s, deepest - 1) for s in stages)


def _order_of(block: BlockGraph, options: LaunchConfig, order: LaunchOrder) -> LaunchOrder:
    """Without dependent launch where the text is for GPUs that have none."""
    if _CAPABILITY[_arch(block, options)] < DEPENDENT_LAUNCH and not order.is_chained:
        return ALONE
    return order


def _refuse(block: BlockGraph, options: LaunchConfig) -> None:
    if options.num_warps & (options.num_warps - 1):
        raise ScheduleError(
            f"{options.num_warps} warps", where=block.name, repair="take a power of two"
        )


def _refuse_cluster(plan: KernelPlan) -> None:
    blocks, block, options = plan.cluster_blocks, plan.facts.block, plan.options
    if blocks == 1:
        return
    shared = ", ".join(block.cluster_dims)
    if blocks > _MAX_CLUSTER_BLOCKS:
        raise ScheduleError(
            f"a cluster of {blocks} blocks along {shared}",
            where=block.name,
            why=f"a cluster has at most {_MAX_CLUSTER_BLOCKS}",
            repair="take larger tiles, or fewer parts",
        )
    if _arch(block, options) != _CLUSTER_ARCH:
        raise ScheduleError(
            f"its blocks share {shared} in a cluster",
            where=block.name,
            why=f"{_arch(block, options)} has no clusters",
            repair=f"take the launch option arch {_CLUSTER_ARCH}",
        )


def _refuse_wide(plan: KernelPlan) -> None:
    """Every loop over registers is written out: beyond this compilers take minutes, and spill."""
    layouts = plan.layouts
    widest = max(
        (layout.register_count for layout in (*layouts.own.values(), *layouts.loops.values())),
        default=1,
    )
    if widest > _MOST_ELEMENTS:
        raise ScheduleError(
            f"{widest} elements of a tile in each thread",
            where=plan.facts.block.name,
            why=f"a thread has registers for {_MOST_ELEMENTS} at the very most",
            repair="take smaller tiles or more warps",
        )


def _arch(block: BlockGraph, options: LaunchConfig) -> Arch:
    return options.arch or (_CLUSTER_ARCH if block.cluster_dims else Arch.SM_80)


def _kernel(
    ugraph: UGraph,
    block: BlockGraph,
    emitter: KernelEmitter,
    memory: MemoryPlan,
    options: LaunchConfig,
) -> CudaKernel:
    written = {n.access.tensor for _, n in block.stores()}
    plan = emitter.plan
    pointers = tuple(ugraph.tensors[p] for p in plan.pointers)
    roles = plan.pipeline.roles
    head = emitter.out.head
    if memory.total_bytes:
        head = ["extern __shared__ __align__(1024) unsigned char shared_memory[];", *head]
        head += emitter.out.memory.declarations(memory)
    signature = _signature(
        block.name, roles.bounds, plan.cluster_blocks, emitter.parameters(written)
    )
    used = "\n".join([*head, *emitter.out.body()])
    warp = _UNIFORM_WARP if "wgmma_m64" in used else "threadIdx.x >> 5"
    thread = [
        f"const int {name} = {text};"
        for name, text in (("lane", "threadIdx.x & 31"), ("warp", warp))
        if re.search(rf"\b{name}\b", used)
    ]
    first = ["    " + part for line in [*thread, *head] for part in wrapped(line, LINE - 4)]
    lines = [*_header(ugraph, block, pointers, written), *signature, *first, *emitter.out.body()]
    body = "\n".join(lines) + "\n}\n"
    return CudaKernel(
        name=block.name,
        source="\n".join([*includes(pointers), prelude_text(names_used(body)), "", body]),
        body=body,
        pointers=pointers,
        tensor_maps=emitter.pipeline.maps,
        grid=plan.grid,
        cluster=plan.cluster_blocks,
        threads=roles.threads,
        smem_bytes=memory.total_bytes,
        capability=max(
            _CAPABILITY[_arch(block, options)], DEPENDENT_LAUNCH if plan.order.is_chained else 0
        ),
        options=options,
        uses_pdl=plan.order.uses_pdl,
    )


def _over_windows(
    ugraph: UGraph, block: BlockGraph, found: WindowKernel, options: LaunchConfig
) -> CudaKernel:
    written = set(found.block.written_tensors)
    pointers = tuple(ugraph.tensors[p] for p in found.pointers)
    threads = 32 * options.num_warps
    signature = _signature(block.name, str(threads), 1, found.parameters())
    lines = ["    " + part for line in found.lines() for part in wrapped(line, LINE - 4)]
    body = "\n".join([*_header(ugraph, block, pointers, written), *signature, *lines]) + "\n}\n"
    return CudaKernel(
        name=block.name,
        source="\n".join([*includes(pointers), prelude_text(names_used(body)), "", body]),
        body=body,
        pointers=pointers,
        tensor_maps=(),
        grid=found.grid,
        cluster=1,
        threads=threads,
        smem_bytes=0,
        capability=max(
            _CAPABILITY[_arch(block, options)], DEPENDENT_LAUNCH if found.order.is_chained else 0
        ),
        options=options,
        uses_pdl=found.order.uses_pdl,
    )


def _signature(name: str, bounds: str, cluster_blocks: int, parameters: Sequence[str]) -> list[str]:
    cluster = f" __cluster_dims__({cluster_blocks}, 1, 1)" if cluster_blocks > 1 else ""
    head = f'extern "C" __global__ void{cluster} __launch_bounds__({bounds}) {name}('
    lines = [head]
    for number, parameter in enumerate(parameters):
        end = ") {" if number == len(parameters) - 1 else ","
        lines.append(f"    {parameter}{end}")
    return lines


def _header(
    ugraph: UGraph, block: BlockGraph, pointers: Sequence[Tensor], written: set[str]
) -> list[str]:
    added = block.added_tensors
    lines = [f"// {block.name}: a kernel for {_comment(ugraph.program.name)}.", "//"]
    for tensor in pointers:
        strides = ", ".join(map(str, tensor.element_strides))
        role = "writes" if tensor.name in written else "reads "
        role = "adds to" if tensor.name in added else role
        shape = list(tensor.shape)
        lines.append(f"// {role} {tensor.name}{shape} {tensor.dtype}, strides ({strides})")
    lines += ["//", "// What each block does:", "//"]
    text = format_block(ugraph, block)
    for line in text[text.index("kernel ") :].splitlines():
        lines += wrapped(f"// {_comment(line)}", LINE)
    return lines


def _comment(text: str) -> str:
    """Text of others as one line of comment: nothing in it ends the line."""
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return shown.replace("\\", "\\\\")


def includes(pointers: Sequence[Tensor]) -> list[str]:
    """Headers of the element types."""
    kinds = dict.fromkeys(t.dtype.name for t in pointers)
    names = [name for kind, name in (("f16", "fp16"), ("bf16", "bf16")) if kind in kinds]
    return [f"#include <cuda_{name}.h>" for name in names] + ([""] if names else [])
