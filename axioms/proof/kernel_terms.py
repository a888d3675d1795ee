"""The terms that a µGraph stores, kernel by kernel, each reading what earlier ones stored.

Blocks need no rule, because along a grid axis every value is pointwise. A reduction in the body of
a loop is one over the tile, and an accumulator one over the iterations. What blocks add to a tensor
is summed over the grid axes that its indices lack. Maxima that only shift exponents are free
numbers (``shifts``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from mirage_py.axioms.proof.goal import (
    Axes,
    Claim,
    Goal,
    ProgramTerms,
    dims_made_of,
    same_value,
    scalar,
    with_whole_axes,
)
from mirage_py.axioms.proof.shifts import (
    Shift,
    Value,
    elementwise,
    is_of_tiles,
    reduction,
    refuse,
    replaced,
    shift_itself,
)
from mirage_py.axioms.proof.tile_axes import loop_with_tiles
from mirage_py.axioms.terms.term import Term
from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.checks.coverage import COUNTED_ELEMENTS, is_mixed_radix
from mirage_py.ugraph.checks.validate import validate_program, validate_ugraph
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.lossy_casts import observed_casts
from mirage_py.ugraph.ir.node import REDUCING, Access, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall, UGraph
from mirage_py.ugraph.operators import ELEMENTWISE, operator


@dataclass(frozen=True, slots=True)
class Stored:
    """What a tensor holds: ``value`` at ``index``, which runs over all of it."""

    index: tuple[IndexExpr, ...]
    value: Value


def goal_of(program: Program, ugraph: UGraph) -> Goal:
    """What has to be shown for the µGraph to compute the program.

    Raises ValidationError for an ill-formed µGraph, UnsupportedError for one that cannot be
    written as terms, or whose tensors and dimensions are not the program's.
    """
    validate_ugraph(ugraph)
    own = ugraph.program
    outputs = [o.tensor for o in program.outputs]
    if own.inputs != program.inputs or [o.tensor for o in own.outputs] != outputs:
        raise UnsupportedError(f"the µGraph is of another program than {program.name}")
    lossy = observed_casts(program)
    if lossy:
        raise UnsupportedError(
            f"the program computes what a cast to {' or '.join(lossy)} loses",
            why="in a proof a cast between floating-point types is the value itself",
        )
    axes, made_of = Axes(ugraph), dims_made_of(program, ugraph)
    validate_program(program)
    asked = ProgramTerms(program, axes, made_of)
    memory = _Memory(ugraph, axes)
    claims = tuple(
        Claim(tensor.name, asked.output(number), memory.output(tensor.name, asked.index(number)))
        for number, tensor in enumerate(outputs)
    )
    goal = Goal(claims, axes.all(), dict(axes.leaves), memory.calls)
    goal = with_whole_axes(goal, axes.looped)
    for d in goal.cut:
        loop_with_tiles(ugraph, d)
    return goal


class _Memory:
    """What device memory holds after all kernels."""

    def __init__(self, ugraph: UGraph, axes: Axes) -> None:
        self.ugraph = ugraph
        self.axes = axes
        self._inputs = tuple(t.name for t in ugraph.program.inputs)
        self._stored: dict[str, Stored] = {}
        self.calls: dict[str, tuple[str, ...]] = {}
        for kernel in ugraph.kernels:
            if isinstance(kernel, BlockGraph):
                _Block(kernel, self).run()
            else:
                self._call(kernel)

    def output(self, name: str, index: tuple[IndexExpr, ...]) -> Term:
        """The term of an output, which has to lie where the program has it."""
        held = self._stored[name]
        if held.index != index:
            raise refuse(f"output {name}, stored with other indices than the program's,")
        if held.value.how != "plain":
            raise refuse(f"output {name}, in which a shift is left,")
        return held.value.kept

    def read(self, access: Access) -> Value:
        """What a load reads."""
        if access.tensor in self._inputs:
            return Value(self.axes.leaf("load", access))
        held = self._held(access.tensor)
        if held.index != access.index:
            raise refuse(f"{access}, stored with other indices,")
        return held.value

    def _held(self, name: str) -> Stored:
        if not self.ugraph.tensors[name].dtype.is_float:
            raise refuse(f"{name}, which holds no floating-point numbers,")
        return self._stored[name]

    def write(self, access: Access, value: Value) -> None:
        """One store."""
        tensor, sizes = self.ugraph.tensors[access.tensor], self.ugraph.program.sizes
        if access.tensor in self._stored:
            raise refuse(f"{access.tensor}, stored in several pieces,")
        # Of such a tensor the validator compares the number of writes alone.
        if tensor.elements > COUNTED_ELEMENTS and not is_mixed_radix(access.index, sizes):
            raise refuse(f"{access}, where stores may meet,")
        if tensor.strides is not None and tensor in self.ugraph.intermediates:
            raise refuse(f"{access.tensor}, whose elements may share places,")
        if any(is_of_tiles(shift) for shift, _ in value.by):
            raise refuse(f"{access.tensor}, with another shift for each tile of a loop,")
        self._stored[access.tensor] = Stored(access.index, value)

    def add(self, access: Access, value: Value) -> None:
        """One atomic addition; the tensor is zero before the first."""
        before = self._stored.pop(access.tensor, None)
        if before is not None:
            if before.index != access.index:
                raise refuse(f"{access.tensor}, added to with several indices,")
            value = elementwise("add", (before.value, value))
        self.write(access, value)

    # -- library calls ----------------------------------------------------------------------------

    def _call(self, call: LibraryCall) -> None:
        """Operands are whole tensors: an intermediate as it is stored, an input as some load of
        the program names its axes.
        """
        ways = [self._readings(name) for name in call.args]
        for operands in product(*ways):
            found = (
                self._product(*operands) if call.op == "matmul" else self._pointwise(call, operands)
            )
            if found is not None:
                pairs = zip(call.args, operands, strict=True)
                self.calls[call.result] = tuple(str(Access(name, o.index)) for name, o in pairs)
                self.write(Access(call.result, found.index), found.value)
                return
        raise refuse(f"library call {call.name}, whose axes no load names,")

    def _readings(self, name: str) -> list[Stored]:
        if name not in self._inputs:
            return [self._held(name)]
        program = self.ugraph.program
        loads = [n.access for n in program.nodes if n.op == "load" and n.access.tensor == name]
        return [
            Stored(access.index, self.read(access))
            for access in dict.fromkeys(loads)
            if tuple(program.sizes.get(e.name, 0) for e in access.index)
            == program.tensors[name].shape
        ]

    def _product(self, left: Stored, right: Stored) -> Stored | None:
        """A[.., m, k] B[.., k, n], where the batch axes agree as far as both have them."""
        a, b = _names(left), _names(right)
        if a is None or b is None or a[-1] != b[-2] or b[-1] in a or a[-2] in b:
            return None
        batch = max(a[:-2], b[:-2], key=len)
        if any(own and batch[-len(own) :] != own for own in (a[:-2], b[:-2])):
            return None
        over = self.axes.of((a[-1],))
        total = reduction("sum", over, elementwise("mul", (left.value, right.value)))
        return Stored(tuple(ix.dim(d) for d in (*batch, a[-2], b[-1])), total)

    def _pointwise(self, call: LibraryCall, operands: Sequence[Stored]) -> Stored | None:
        first = operands[0].index
        if any(o.index != first for o in operands):
            return None
        name = operator(call.op).abstract_name
        return Stored(first, elementwise(name, [o.value for o in operands]))


def _names(stored: Stored) -> tuple[str, ...] | None:
    """The dimensions that are the axes, if each is one and they are two or more."""
    names = tuple(e.name for e in stored.index if e.is_dim)
    whole = len(dict.fromkeys(names)) == len(stored.index) >= 2
    return names if whole else None


class _Block:
    """One block graph. ``values`` are those of its nodes, or why one has none: it may be dead."""

    def __init__(self, block: BlockGraph, memory: _Memory) -> None:
        self.block = block
        self.memory = memory
        self.axes = memory.axes
        self.values: list[Value | UnsupportedError] = []
        # Running maxima, by position: what they are in an iteration of their loop.
        self.running: dict[int, Shift] = {}

    def run(self) -> None:
        for number, node in enumerate(self.block.nodes):
            try:
                self.values.append(self._value(number, node))
            except UnsupportedError as error:
                if node.op in ("store", "store_add"):
                    raise
                self.values.append(error)

    def _value(self, number: int, node: Node) -> Value:
        loop = self._loop(number)
        attr = node.attr
        if node.op in ("shift", "accum_max") and (node.op == "shift" or attr == "shift"):
            return self._shift(number, node, loop)
        if node.op == "accum_rescaled":
            return self._rescaled(number, node, loop)
        args = [self._operand(a, number) for a in node.args]
        if isinstance(attr, Access):
            return self._access(node, attr, args)
        if isinstance(attr, IndexExpr | Predicate):
            return Value(self.axes.leaf(node.op, attr))
        known = scalar(node)
        if known is not None:
            return Value(known)
        if node.op == "cast" and same_value(node):
            return args[0]
        if node.op in ("accum_sum", "accum_max"):
            op = "sum" if node.op == "accum_sum" else "max"
            return reduction(op, (f"{loop}.l",), args[0])
        if node.op in REDUCING:
            of = elementwise("mul", args) if node.op == "matmul" else args[0]
            over = self.axes.of(node.reduced, loop)
            return reduction("max" if node.op == "max" else "sum", over, of)
        if operator(node.op).kind == ELEMENTWISE and node.op != "cast":
            return elementwise(operator(node.op).abstract_name, args)
        raise refuse(f"'{node.op}' to {attr}")

    def _access(self, node: Node, access: Access, args: Sequence[Value]) -> Value:
        if node.op == "load":
            return self.memory.read(access)
        value = args[0]
        if node.op == "store":
            self.memory.write(access, value)
            return value
        over = self.axes.of(self.block.summed_axes(node))
        self.memory.add(access, reduction("sum", over, value) if over else value)
        return value

    def _loop(self, number: int) -> str | None:
        return self.block.sections[self.block.section_of[number]].loop

    def _operand(self, argument: int, user: int) -> Value:
        """An operand as its user sees it: in its own loop an accumulator is not yet final."""
        where = self.block.section_of
        if where[argument] == where[user]:
            if argument in self.running:
                return shift_itself(self.running[argument])
            if self.block.nodes[argument].op.startswith("accum_"):
                raise refuse(f"%{argument}, read before its loop is over,")
        found = self.values[argument]
        if isinstance(found, UnsupportedError):
            raise found
        return found

    def _shift(self, number: int, node: Node, loop: str | None) -> Value:
        """Free numbers; those made in a loop differ from iteration to iteration."""
        name = f"{self.block.name} %{number}"
        axes = self.axes.of(node.dims)
        moving = Shift(f"{name} in its loop", tuple(dict.fromkeys((*axes, f"{loop}.l"))))
        if node.op == "shift":
            return shift_itself(Shift(name, axes) if loop is None else moving)
        self.running[number] = moving
        return shift_itself(Shift(name, axes))

    def _rescaled(self, number: int, node: Node, loop: str | None) -> Value:
        """sum_l(x_l exp(-k m_l) exp(k (m_l - m))) = sum_l(x_l) exp(-k m), m the last of the m_l."""
        total = self._operand(node.args[0], number)
        for shift, degree in zip(node.args[1:], node.degrees, strict=True):
            moving = self.running.get(shift)
            if moving is None:
                raise refuse(f"%{number}, rescaled by a maximum that is no shift,")
            if dict(total.by).get(moving, Fraction(0)) != degree or total.how != "scaled":
                raise refuse(f"%{number}, rescaled by another power than its terms are scaled by,")
            ((final, _),) = self._final(shift).by
            total = replaced(total, moving, final)
        return reduction("sum", (f"{loop}.l",), total)

    def _final(self, shift: int) -> Value:
        found = self.values[shift]
        assert isinstance(found, Value)
        return found
