"""Formatting of each kernel of a µGraph in sentences and formulas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from mirage_py.formatting.formulas import Statement, statements
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import INDUCTOR, BlockGraph, LibraryCall, Section, UGraph
from mirage_py.ugraph.operators import EFFECT, LEAF, operator

_KILO, _MEGA, _GIGA = 10**3, 10**6, 10**9


@dataclass(frozen=True, slots=True)
class Step:
    """A loop, or what comes before, between or after loops; ``lines`` are formulas."""

    title: str
    reads: tuple[str, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelDescription:
    """``title`` says how the work is shared out, ``remarks`` what is special about it."""

    name: str
    title: str
    steps: tuple[Step, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UGraphDescription:
    """``summary`` has a sentence on fusion and one for each tensor between the kernels."""

    summary: tuple[str, ...]
    kernels: tuple[KernelDescription, ...]


def describe_plan(plan: Plan) -> UGraphDescription:
    """Say what a plan does, launch options included."""
    return _words(plan.ugraph, plan.options)


def describe_ugraph(ugraph: UGraph) -> UGraphDescription:
    """Say what a µGraph does; of a family what is settled without tiles."""
    return _words(ugraph, [None] * len(ugraph.kernels))


def _words(ugraph: UGraph, options: Sequence[LaunchConfig | None]) -> UGraphDescription:
    kernels = tuple(
        _library(ugraph, kernel)
        if isinstance(kernel, LibraryCall)
        else _block(ugraph, kernel, launch)
        for kernel, launch in zip(ugraph.kernels, options, strict=True)
    )
    return UGraphDescription((_fusion(ugraph), *_between(ugraph)), kernels)


def size_text(number: int) -> str:
    """Bytes as a person says them."""
    for unit, name in ((_GIGA, "GB"), (_MEGA, "MB"), (_KILO, "kB")):
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number} bytes"


def count_text(number: int, one: str, many: str = "") -> str:
    """``1 kernel``, ``2 kernels``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


# -- the kernel graph ----------------------------------------------------------------------------


def _fusion(ugraph: UGraph) -> str:
    leaves = (LEAF, EFFECT)
    count = sum(operator(n.op).kind not in leaves for n in ugraph.program.nodes)
    kernels = count_text(len(ugraph.kernels), "kernel")
    whole = f"{kernels} for the {count_text(count, 'operator')} of the program"
    if ugraph.intermediates:
        return f"{whole}, with {count_text(len(ugraph.intermediates), 'tensor')} between them."
    return f"{whole}; nothing but inputs and outputs goes through memory."


def _between(ugraph: UGraph) -> Iterator[str]:
    for tensor in ugraph.intermediates:
        writers = [k.name for k in ugraph.kernels if tensor.name in k.written_tensors]
        readers = [k.name for k in ugraph.kernels if tensor.name in k.read_tensors]
        yield (
            f"{tensor} goes through memory ({size_text(tensor.bytes)}): "
            f"{' and '.join(writers)} writes it, {' and '.join(readers)} reads it."
        )


def _library(ugraph: UGraph, call: LibraryCall) -> KernelDescription:
    if call.body is not None:
        return _torch(call, call.body, ugraph.scope)
    title = f"a call of the vendor's library: {call.result} = {call.op}({', '.join(call.args)})"
    return KernelDescription(call.name, title, (), ())


def _torch(call: LibraryCall, body: BlockGraph, scope: Program) -> KernelDescription:
    how = "compiled by Inductor" if call.op == INDUCTOR else "one ATen operator after the other"
    results = _listed(call.written_tensors)
    title = f"PyTorch computes {results} from {_listed(call.args)}, {how}"
    step = _step(body, body.sections[0], "at once", statements(body, scope))
    return KernelDescription(call.name, title, (step,), ())


# -- one kernel ----------------------------------------------------------------------------------


def _block(ugraph: UGraph, block: BlockGraph, launch: LaunchConfig | None) -> KernelDescription:
    lines = statements(block, ugraph.scope)
    depths = iter(launch.num_stages if launch else ())
    steps = []
    for number, section in enumerate(block.sections):
        depth = next(depths, 1) if section.loop is not None else 1
        title = _title(ugraph.program, block, number)
        title += f", {depth} in flight" if depth > 1 else ""
        step = _step(block, section, title, lines)
        if step.reads or step.lines:
            steps.append(step)
    remarks = (*_shift_remarks(block, lines), *_store_remarks(block))
    title = _grid(ugraph.program, block)
    title += f"; {count_text(launch.num_warps, 'warp')}" if launch else ""
    return KernelDescription(block.name, title, tuple(steps), remarks)


def _grid(program: Program, block: BlockGraph) -> str:
    if not block.grid:
        return "one block"
    if any(axis.tile is None for axis in block.grid):
        return f"a grid over {_listed([axis.dim for axis in block.grid])}"
    counts = [-(-program.sizes[a.dim] // (a.tile or 1)) for a in block.grid]
    takes = _listed([f"{min(a.tile or 1, program.sizes[a.dim])} of {a.dim}" for a in block.grid])
    blocks = count_text(prod(counts), "block")
    if block.cluster_dims:
        size = prod(n for a, n in zip(block.grid, counts, strict=True) if a.cluster)
        blocks += f" in clusters of {size} along {_listed(block.cluster_dims)}"
    return f"{blocks}, each takes {takes}"


def _title(program: Program, block: BlockGraph, number: int) -> str:
    section = block.sections[number]
    if section.loop is not None:
        if section.tile is None:
            return f"loop over {section.loop}"
        turns = -(-program.sizes[section.loop] // section.tile)
        return f"loop over {section.loop}: {count_text(turns, 'iteration')} of {section.tile}"
    before = any(s.loop for s in block.sections[:number])
    after = any(s.loop for s in block.sections[number + 1 :])
    if before:
        return "between the loops" if after else "after the loop" + "s" * _has_loops(block)
    return "before the loop" + "s" * _has_loops(block) if after else "at once"


def _has_loops(block: BlockGraph) -> bool:
    """Whether there are several."""
    return sum(s.loop is not None for s in block.sections) > 1


def _step(block: BlockGraph, section: Section, title: str, lines: tuple[Statement, ...]) -> Step:
    nodes = [block.nodes[n] for n in section.nodes]
    reads = dict.fromkeys(str(n.access) for n in nodes if n.op == "load")
    own = tuple(line.text for line in lines if line.node in section.nodes)
    return Step(title, tuple(reads), own)


def _shift_remarks(block: BlockGraph, lines: tuple[Statement, ...]) -> Iterator[str]:
    """Maxima that only shift exponents, and the sums that are rescaled when one moves."""
    name_of = {line.node: line.name for line in lines}
    for position, node in enumerate(block.nodes):
        name = name_of.get(position)
        if node.op == "accum_max" and node.attr == "shift":
            moved = [
                name_of[p]
                for p, n in enumerate(block.nodes)
                if n.op == "accum_rescaled" and _degree(n, position)
            ]
            rescaled = f"; {_listed(moved)} {_is(moved)} rescaled when it grows" if moved else ""
            yield (
                f"{name} is a running maximum that only shifts exponents: it keeps them from "
                f"overflowing and cancels in the result{rescaled}."
            )
        elif node.op == "shift":
            shifted = name_of.get(node.args[0])
            if shifted is not None:
                yield (
                    f"{shifted} only shifts exponents: it keeps them from overflowing and "
                    "cancels in the result."
                )


def _degree(node: Node, maximum: int) -> int:
    """How often a rescaled sum has the factor of a running maximum."""
    pairs = zip(node.args[1:], node.degrees, strict=True)
    return sum(degree for position, degree in pairs if position == maximum)


def _store_remarks(block: BlockGraph) -> Iterator[str]:
    for _, node in block.stores():
        if node.op != "store_add":
            continue
        summed = block.summed_axes(node)
        yield (
            f"{node.access.tensor} starts at zero, and all blocks along {_listed(summed)} add to "
            "it atomically."
        )


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _listed(names: list[str] | tuple[str, ...]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
