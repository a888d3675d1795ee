"""Each kernel of a plan: its picture, its code, and the resources it uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.formatting.kernel_format import KernelDescription, describe_plan
from mirage_py.report.facts.code_lines import node_lines
from mirage_py.report.page.highlight import highlighted
from mirage_py.report.pictures.ugraph_svg import Links, block_svg, kernel_graph_svg, node_id
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.targets import Target
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph

# Warps and blocks that an SM of every target has room for; what the driver keeps of shared memory
# in each block (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
_WARPS_PER_SM = 64
_BLOCKS_PER_SM = 32
_KEPT_SMEM_BYTES = 1024
_REGISTERS_STEP = 256  # registers of a warp are handed out in such steps


@dataclass(frozen=True, slots=True)
class Resources:
    """What a kernel takes; None where it was not recorded. ``occupancy`` is the share of an SM's
    warps that may be there at once, ``limit`` what does not let in more.
    """

    blocks: int
    threads: int
    registers: int | None
    spills: int | None
    smem_bytes: int | None
    blocks_per_sm: int | None
    occupancy: float | None
    limit: str


@dataclass(frozen=True, slots=True)
class ShownKernel:
    """A block graph with its code, which begins at the line of identity ``start``. ``links`` counts
    the nodes that lead to a line.
    """

    name: str
    description: KernelDescription
    language: str
    picture: Markup
    code: Markup
    start: str
    resources: Resources
    launch: str
    nodes: int
    links: int


@dataclass(frozen=True, slots=True)
class ShownUGraph:
    """The kernel graph and each of its kernels; ``summary`` says it in sentences."""

    summary: tuple[str, ...]
    picture: Markup
    kernels: tuple[ShownKernel, ...]
    libraries: tuple[str, ...]


def shown_ugraph(
    plan: Plan, target: Target | None, recorded: Sequence[Mapping[str, Any]]
) -> ShownUGraph:
    """The µGraph of a plan; ``recorded`` are the resources that an artifact's record has."""
    ugraph = plan.ugraph
    said = describe_plan(plan)
    emitted = {k.name: k for k in emit_kernels(plan)}
    sources = {name: kernel.source for name, kernel in emitted.items()}
    lines = node_lines(plan, sources)
    language = "python" if plan.backend == "triton" else "cuda"
    shown = []
    for block, words, options in zip(ugraph.kernels, said.kernels, plan.options, strict=True):
        if not isinstance(block, BlockGraph):
            continue
        own = {n: line for (kernel, n), line in lines.items() if kernel == block.name}
        links = Links(
            {}, {(block.name, n): f"#code-{block.name}-{line}" for n, line in own.items()}
        )
        back: dict[int, str] = {}
        for n, line in sorted(own.items(), reverse=True):
            back[line] = f"#{node_id(block.name, n)}"
        kernel = emitted[block.name]
        taken = next((r for r in recorded if r["kernel"] == block.name), {})
        threads = kernel.threads if isinstance(kernel, CudaKernel) else 32 * options.num_warps
        blocks = kernel.grid if isinstance(kernel, CudaKernel) else kernel.text.grid
        shown.append(
            ShownKernel(
                name=block.name,
                description=words,
                language=language,
                picture=block_svg(ugraph, block, links=links),
                code=highlighted(kernel.source, language, name=f"code-{block.name}", links=back),
                start=_first_line(block.name, kernel.source),
                resources=_resources(taken, blocks, threads, target),
                launch=str(options).strip("<>"),
                nodes=len(block.nodes),
                links=len(own),
            )
        )
    to_kernels = Links({k.name: f"#kernel-{k.name}" for k in shown}, {})
    libraries = tuple(k.title for k in said.kernels if not k.steps)
    return ShownUGraph(
        said.summary, kernel_graph_svg(ugraph, links=to_kernels), tuple(shown), libraries
    )


def _first_line(name: str, source: str) -> str:
    """The identity of the line where a kernel begins, after what its file says of itself."""
    lines = enumerate(source.splitlines(), 1)
    number = next((n for n, text in lines if "@triton.jit" in text or "__global__" in text), 1)
    return f"code-{name}-{number}"


def _resources(
    taken: Mapping[str, Any], blocks: int, threads: int, target: Target | None
) -> Resources:
    registers, smem = taken.get("registers"), taken.get("smem_bytes")
    warps = -(-threads // 32)
    limits: dict[str, int] = {}
    if target is not None and registers is not None and smem is not None:
        of_warp = -(-32 * registers // _REGISTERS_STEP) * _REGISTERS_STEP
        limits = {
            "registers": target.registers_per_sm // max(1, of_warp * warps),
            "shared memory": target.smem_per_sm_bytes // (smem + _KEPT_SMEM_BYTES),
            "warps": _WARPS_PER_SM // warps,
            "blocks": _BLOCKS_PER_SM,
        }
    limit = min(limits, key=lambda name: limits[name], default="")
    fit = limits.get(limit)
    return Resources(
        blocks=blocks,
        threads=threads,
        registers=registers,
        spills=taken.get("spills"),
        smem_bytes=smem,
        blocks_per_sm=fit,
        occupancy=None if fit is None else min(1.0, fit * warps / _WARPS_PER_SM),
        limit=limit,
    )
