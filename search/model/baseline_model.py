"""Predicted time of the unfused program by the same roofline: one kernel for each operator.

It is used only where nothing can be measured; the result then says ``model``.
"""

from __future__ import annotations

from mirage_py.targets import Target
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import LEAF, operator

# The shortest eager kernels take about this many launches (2.2 to 2.7 us each on an H200).
_SMALLEST_KERNELS = 2.0


def eager_model_us(program: Program, target: Target) -> float:
    """Sum over operators of the time to read operands, compute and write the result.

    An output that is an input, or is read from one at other indices, is a copy.
    """
    made = sum(_node_us(program, n, target) for n in program.nodes if operator(n.op).kind != LEAF)
    written = (program.nodes[output.node] for output in program.outputs)
    return made + sum(_copy_us(program, n, target) for n in written if n.op == "load")


def _copy_us(program: Program, node: Node, target: Target) -> float:
    moved = 2 * _elements(program, node.dims) * max(t.dtype.bytes for t in program.inputs)
    return _launched_us(moved / target.dram_bytes_per_us, target)


def _node_us(program: Program, node: Node, target: Target) -> float:
    # Intermediates are stored in the type of the widest input, as eager frameworks do.
    size = max(t.dtype.bytes for t in program.inputs)
    moved = _elements(program, node.dims) * size
    moved += sum(_elements(program, program.nodes[a].dims) * size for a in node.args)
    flops = operator(node.op).flops * _elements(program, node.dims)
    rate = target.vector_flops_per_us
    if node.op == "matmul":
        flops *= _elements(program, node.reduced)
        rate = target.tensor_flops_per_us
    return _launched_us(max(moved / target.dram_bytes_per_us, flops / rate), target)


def _launched_us(work_us: float, target: Target) -> float:
    return max(work_us + target.launch_us, _SMALLEST_KERNELS * target.launch_us)


def _elements(program: Program, dims: tuple[str, ...]) -> int:
    total = 1
    for d in dims:
        total *= program.sizes[d]
    return total
