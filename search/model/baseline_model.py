"""Predicted time of what one has without a search, by the model that plans are ranked by:
operators fused as compilers for PyTorch do it, matmuls by the library.

A matmul is a kernel of its own, operands and result in memory. Between them elementwise operators
and reductions are one kernel as long as they go through the same space and reduce the same
dimensions; what follows from inputs alone is computed again where it is read. It is used only where
nothing can be measured; the result then says ``model``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mirage_py.search.model.matmul_rates import library_rate, split_rate
from mirage_py.search.model.model_constants import constants_of
from mirage_py.targets import Target
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import CONTRACT, LEAF, REDUCE, operator
from mirage_py.ugraph.rewrite.convolutions import convolution_at

NAME = "fused operators, library matmuls"
_PADDED = {"load", "mask", "const", "size", "index", "where", "mul"}


def fused_model_us(program: Program, target: Target, *, own_matmuls: bool = False) -> float:
    """Sum over kernels of the time to read, compute and write.

    An output that is an input, or is read from one at other indices, is a copy. With
    ``own_matmuls`` matmuls of exact float32 are kernels of ours, on tensor cores, instead of the
    library's.
    """
    fusion = _Fusion(program, own_matmuls)
    copies = [output.node for output in program.outputs if fusion.kinds[output.node] == LEAF]
    moved = [2 * _elements(program, program.nodes[n].dims) * fusion.bytes for n in copies]
    copied = sum(fused_us(b, 0.0, target) for b in moved)
    return copied + sum(fusion.time_us(k, target) for k in fusion.kernels)


@dataclass(slots=True)
class _Kernel:
    """Values that one kernel computes. ``space`` has the dimensions that it goes through,
    ``reduced`` those that it reduces; ``is_matmul`` for a call of the library. ``reads`` has what
    the values are computed of, once all kernels are known.
    """

    space: frozenset[str]
    reduced: frozenset[str] = frozenset()
    is_matmul: bool = False
    values: dict[int, None] = field(default_factory=dict)
    reads: dict[int, None] = field(default_factory=dict)

    def takes(self, space: frozenset[str], reduced: frozenset[str]) -> bool:
        """Whether an operator can be one of its own."""
        if self.is_matmul:
            return False
        if self.reduced:
            return space <= self.space and reduced in (frozenset(), self.reduced)
        return self.space <= space or (not reduced and space <= self.space)


class _Fusion:
    """The kernels of a program, in an order in which they can run."""

    def __init__(self, program: Program, own_matmuls: bool) -> None:
        self.program = program
        self.own_matmuls = own_matmuls
        self.kinds = [operator(node.op).kind for node in program.nodes]
        # Intermediates are stored in the type of the widest input, as eager frameworks do, but that
        # integers make no results wider: labels and positions have 64 bits.
        types = [t.dtype for t in program.inputs if t.dtype.is_float]
        self.dtype = max(types, key=lambda t: t.bytes, default=F32)
        self.bytes = self.dtype.bytes
        self.kernels: list[_Kernel] = []
        # The kernel that makes each value; what is in none follows from inputs alone.
        self._of: dict[int, int] = {}
        for number in range(len(program.nodes)):
            self._place(number)
        for output in program.outputs:
            if self.kinds[output.node] != LEAF and output.node not in self._of:
                self._join(output.node)
        for kernel in self.kernels:
            kernel.reads = self._cone(*kernel.values)
        self._readers = Counter(n for kernel in self.kernels for n in kernel.reads)
        self._outputs = {output.node for output in program.outputs}

    def time_us(self, kernel: _Kernel, target: Target) -> float:
        """The prediction for a kernel."""
        made, foreign, again = self._operands(kernel)
        moved = sum(self._stored(n) for n in (*made, *foreign))
        flops = sum(self._flops(n) for n in (*kernel.values, *again))
        if kernel.is_matmul:
            dtype = self.dtype if self.dtype.is_half else F32
            known = constants_of(target)
            rounds = self._rounds(kernel)
            rate = library_rate(target, dtype, known, rounds=rounds)
            is_exact = dtype == F32 and not rounds
            if self.own_matmuls and is_exact and not self._is_convolution(kernel):
                rate = max(rate, split_rate(target))
            return matmul_us(moved * self.bytes, flops / rate, target)
        return fused_us(moved * self.bytes, flops, target)

    def _rounds(self, kernel: _Kernel) -> bool:
        """Whether a library's sum of products may round float32 to TF32."""
        held_to = self.program.fp32_precision
        if held_to.rounds_matmuls == held_to.rounds_convolutions:
            return held_to.rounds_matmuls
        is_convolution = self._is_convolution(kernel)
        return held_to.rounds_convolutions if is_convolution else held_to.rounds_matmuls

    def _is_convolution(self, kernel: _Kernel) -> bool:
        (number,) = kernel.values
        return convolution_at(self.program, number) is not None

    def _place(self, number: int) -> None:
        node, kind = self.program.nodes[number], self.kinds[number]
        if kind == CONTRACT:
            for arg in node.args:
                if arg not in self._of and not self._is_padded(arg):
                    self._join(arg)
            self._start(_Kernel(self._space(number), is_matmul=True), number)
        elif kind == REDUCE or any(arg in self._of for arg in node.args):
            self._join(number)

    def _is_padded(self, number: int) -> bool:
        """Whether a value is an input, with a padding perhaps, which a convolution adds itself."""
        ops = [self.program.nodes[n].op for n in (number, *self._cone(number))]
        is_read = len(ops) == 1 or "mask" in ops
        return is_read and ops.count("load") <= 1 and not set(ops) - _PADDED

    def _join(self, number: int) -> None:
        """Put a value into the last kernel that it reads from, or, where it reads inputs alone,
        into one that reads some of them too; else into one of its own.
        """
        node, space = self.program.nodes[number], self._space(number)
        reduced = frozenset(node.reduced) if self.kinds[number] == REDUCE else frozenset()
        read = self._cone(number)
        after = max((self._of[n] for n in read if n in self._of), default=None)
        among = range(len(self.kernels)) if after is None else [after]
        for place in among:
            kernel = self.kernels[place]
            shares = after is not None or not self._cone(*kernel.values).keys().isdisjoint(read)
            if shares and kernel.takes(space, reduced):
                kernel.values[number] = None
                kernel.space |= space
                kernel.reduced |= reduced
                self._of[number] = place
                return
        self._start(_Kernel(space, reduced), number)

    def _start(self, kernel: _Kernel, number: int) -> None:
        kernel.values[number] = None
        self._of[number] = len(self.kernels)
        self.kernels.append(kernel)

    def _cone(self, *numbers: int) -> dict[int, None]:
        """What values are computed of: values of kernels, loads, and what is stored nowhere."""
        found: dict[int, None] = {}
        todo = [arg for n in numbers for arg in self.program.nodes[n].args]
        while todo:
            number = todo.pop()
            if number not in found:
                found[number] = None
                todo += self.program.nodes[number].args if number not in self._of else ()
        return found

    def _operands(self, kernel: _Kernel) -> tuple[list[int], list[int], list[int]]:
        """Values that it writes, that it reads, and that it computes again."""
        own, readers = kernel.reads, self._readers
        read = [n for n in own if n not in kernel.values]
        made = [n for n in kernel.values if n in self._outputs or readers[n] > (n in own)]
        foreign = [n for n in read if n in self._of or self.program.nodes[n].op == "load"]
        return made, foreign, [n for n in read if n not in foreign]

    def _space(self, number: int) -> frozenset[str]:
        node = self.program.nodes[number]
        reduces = self.kinds[number] in (REDUCE, CONTRACT)
        return frozenset((*node.dims, *(node.reduced if reduces else ())))

    def _stored(self, number: int) -> int:
        """Elements of a value in memory; windows overlap there."""
        node = self.program.nodes[number]
        count = _elements(self.program, node.dims)
        if node.op != "load":
            return count
        return min(count, self.program.tensors[node.access.tensor].elements)

    def _flops(self, number: int) -> float:
        node = self.program.nodes[number]
        return operator(node.op).flops * _elements(self.program, tuple(self._space(number)))


def fused_us(moved: float, flops: float, target: Target) -> float:
    """As ``cost_model.estimate`` for a kernel whose blocks never wait for one another."""
    known = constants_of(target)
    memory_us = moved / (target.dram_bytes_per_us * known.dram)
    memory_us += known.ramp * target.memory_latency_us
    work_us = max(memory_us, flops / target.vector_flops_per_us) + target.launch_us
    return max(work_us, moved / target.dram_bytes_per_us)


def matmul_us(moved: float, compute_us: float, target: Target) -> float:
    """As ``library_model`` has it."""
    known = constants_of(target)
    memory_us = moved / target.dram_bytes_per_us / known.library_memory
    return max(memory_us, compute_us) + target.launch_us + known.library_us


def _elements(program: Program, dims: tuple[str, ...]) -> int:
    total = 1
    for d in dims:
        total *= program.sizes[d]
    return total
