"""Shifts of exponentials in base 2.

The hardware's exponential is 2^x, so exp(z - m) is emitted as exp2(z * log2(e) - M) with the shift
kept as M = m * log2(e): one fused multiply-add an element. Any shift is legal (stabilize.py),
and since M itself is what is stored, subtracted and rescaled by, its rounding cancels.

The multiply-add does not round z * log2(e), and M is rounded by up to half its last place: what
both sums are scaled by, until that is more than exponents can hold. So a shift m of 2^28 and more
is kept as 2 m, which is exact, and its exponentials are exp2(2 z - M): between neighbours of such a
size they are 0 or 1, whatever the base. As 2 m is farther from 0 than any m * log2(e) below, shifts
are ordered as their logits are, and what is rescaled from one kind to the other becomes 0.

Logits of masks may be as low as float32 goes (torch.finfo(dtype).min for what is masked), and a row
that has nothing else is a softmax of equal values: eager gives their mean. In base 2 they would be
minus infinity. So shifts of what may be that low are kept as they are, and start as low. As they
are stay those that a constant of some millions may be, such as -1e9: all that base 2 would leave of
it is its rounding.

A shift that goes to another kernel is stored as M where every kernel can take it so. That is a
property of the whole µGraph (``stored_in_base_two``), which all its kernels are emitted with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from math import e, inf, log2

from mirage_py.codegen.lowering.precision import TypedBlock
from mirage_py.ugraph.ir.dtypes import F32, DType
from mirage_py.ugraph.ir.node import ACCESSES, Node
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.rewrite.degrees import LOWEST_SHIFT

ValueOf = Callable[[int], str]

# From here on a shift is doubled instead; in base 2 that leaves a gap, and this lies in it.
_LARGE = 2.0**28
_LARGE_IN_BASE_TWO = 1.75 * _LARGE
# exp2(z * log2(e) - M) of the largest z is 2^0.04 there, not 1; of 1e9 it is no half any more.
_COARSE = 2.0**20
# What hands on how large its operands are.
_PASSING = ("add", "sub", "mul", "div", "neg", "maximum", "minimum", "where", "cast", "max",
            "accum_max", "shift", "abs", "relu")  # fmt: skip


class BaseTwoShifts:
    """Which shifts of a block graph are kept in base 2, and which subtractions vanish into exp2.

    ``dtypes`` are the types of the nodes, ``tensors`` the tensors that hold shifts in base 2;
    ``suffix`` ends every literal. ``computed`` are tensors that stand for what the kernel itself
    computes with functions.
    """

    def __init__(
        self,
        block: BlockGraph,
        dtypes: Sequence[DType],
        tensors: Collection[str] = (),
        suffix: str = "",
        computed: Collection[str] = (),
    ) -> None:
        self._computed = computed
        self._nodes = block.nodes
        self._dtypes = dtypes
        self._suffix = suffix
        self._tensors = tensors
        self._users: list[list[int]] = [[] for _ in block.nodes]
        for number, node in enumerate(block.nodes):
            for argument in node.args:
                self._users[argument].append(number)
        # Values that are in base 2 already: what such tensors hold, and maxima of that.
        self.given = self._given()
        self.shifts: list[int] = []
        # exp -> (argument before the subtraction, shift)
        self.exponents: dict[int, tuple[int, int]] = {}
        self.subtractions: list[int] = []
        # Products with a constant that only such a subtraction reads: (operand, constant).
        self.factors: dict[int, tuple[int, float]] = {}
        for number, node in enumerate(block.nodes):
            if is_shift(node) or (node.op == "load" and number in self.given):
                self._take(number)

    def start(self, number: int) -> float:
        """A running maximum before its first value: nothing that it sees is lower."""
        if number in self.shifts:
            return 2.0 * LOWEST_SHIFT
        return -F32.max_finite

    def floor(self, number: int) -> float | None:
        """Below what a shift of straight code must not be, as a running maximum is never: where all
        it covers is minus infinity, exponentials of differences are 0 then, not NaN. None where it
        follows from shifts.
        """
        return None if self._nodes[number].args[0] in self.given else self.start(number)

    def scaled(self, number: int, text: str) -> str:
        """A value, ``text``, in base 2, for a shift."""
        if number in self.given or number in self.shifts:
            return text
        return f"{text} * {self._by_size(text, _LARGE, log2(e), 2.0)}"

    def exponent(self, exponential: int, value: ValueOf) -> str:
        """The argument of a shifted exponential, in base 2."""
        source, shift = self.exponents[exponential]
        by = value(shift)
        if source in self.given or source in self.shifts:
            return f"{value(source)} - {by}"
        operand, factor = self.factors.get(source, (source, 1.0))
        base = self._by_size(by, _LARGE_IN_BASE_TWO, factor * log2(e), factor * 2.0)
        return f"{value(operand)} * {base} - {by}"

    def natural(self, number: int, text: str) -> str:
        """A value, ``text``, for who reads it as a number: not in base 2."""
        if number not in self.shifts:
            return text
        return f"{text} * {self._by_size(text, _LARGE_IN_BASE_TWO, 1.0 / log2(e), 0.5)}"

    def _by_size(self, text: str, limit: float, ordinary: float, large: float) -> str:
        """One of two numbers, as a value is below the limit or not."""
        if self._suffix:
            return f"(fabsf({text}) < {limit!r}f ? {ordinary!r}f : {large!r}f)"
        return f"tl.where(tl.abs({text}) < {limit!r}, {ordinary!r}, {large!r})"

    def agrees(self, tensor: str) -> bool:
        """Whether this kernel can store and read the shifts that ``tensor`` holds in base 2."""
        return all(
            self._reads(number) if node.op == "load" else self._writes(node)
            for number, node in enumerate(self._nodes)
            if node.op in ACCESSES and node.access.tensor == tensor
        )

    def _given(self) -> set[int]:
        given: set[int] = set()
        for number, node in enumerate(self._nodes):
            is_load = node.op == "load" and node.access.tensor in self._tensors
            if is_load or (node.op == "max" and node.args[0] in given):
                given.add(number)
        return given

    def _take(self, number: int) -> None:
        """Keep a shift in base 2 if all that it does is to be subtracted under exponentials, to
        rescale sums, to be stored in base 2, to be added to a logarithm, and to be turned into
        another shift.
        """
        if any(_COARSE < abs(value) < inf for value in self._extremes(number)):
            return
        differences = [u for u in self._users[number] if self._subtracts(u, number)]
        exps = [u for d in differences for u in self._users[d]]
        if any(self._nodes[u].op != "exp" for u in exps):
            return
        if is_shift(self._nodes[number]):
            rest = (u for u in self._users[number] if u not in differences)
            if not all(self._rescales_or_stores(u) or self._is_read(u, number) for u in rest):
                return
            self.shifts.append(number)
        self.subtractions.extend(differences)
        for d in differences:
            source = self._nodes[d].args[0]
            if (factor := self._factor(source)) is not None:
                self.factors[source] = factor
            for exponential in self._users[d]:
                self.exponents[exponential] = (source, number)

    def _extremes(self, number: int) -> Iterator[float]:
        """What a value may be because it is read so, or a constant is; what matrix products and
        functions compute is not that large.
        """
        todo, seen = [(number, 1.0)], {number}
        while todo:
            current, factor = todo.pop()
            node = self._nodes[current]
            if current in self.given:
                continue
            if node.op == "load" and node.access.tensor not in self._computed:
                yield self._dtypes[current].max_finite
            if node.op == "const" and isinstance(node.attr, float):
                yield node.attr * factor
            if node.op in _PASSING:
                times = self._late_factor(node)
                fresh = [a for a in node.args if a not in seen]
                seen.update(fresh)
                todo.extend((a, factor * times) for a in fresh)

    def _late_factor(self, node: Node) -> float:
        """What an operand is multiplied by, if that is a constant."""
        factor = self._nodes[node.args[1]].attr if node.op == "mul" else None
        return factor if isinstance(factor, float) else 1.0

    def _factor(self, number: int) -> tuple[int, float] | None:
        """The operand and the constant of a product that nothing but one subtraction reads."""
        node = self._nodes[number]
        if node.op != "mul" or len(self._users[number]) > 1:
            return None
        constant = self._nodes[node.args[1]]
        if constant.op != "const" or not isinstance(constant.attr, float):
            return None
        return node.args[0], constant.attr

    def _subtracts(self, user: int, shift: int) -> bool:
        return self._nodes[user].op == "sub" and self._nodes[user].args[1] == shift

    def _rescales_or_stores(self, user: int) -> bool:
        node = self._nodes[user]
        stores = node.op == "store" and node.access.tensor in self._tensors
        return stores or node.op == "accum_rescaled"

    def _is_read(self, user: int, number: int) -> bool:
        """Whether a shift is added to a logarithm, or turned into another shift."""
        node = self._nodes[user]
        if node.op == "sub":
            exps = [self._nodes[u].op for u in self._users[user]]
            other = self._nodes[node.args[1]]
            return node.args[0] == number and is_shift(other) and set(exps) == {"exp"}
        return node.op == "add"

    def _reads(self, load: int) -> bool:
        for user in self._users[load]:
            is_exponent = user in self.subtractions
            makes_shift = self._nodes[user].op == "max" and all(
                u in self.shifts for u in self._users[user]
            )
            if not (is_exponent or makes_shift):
                return False
        return True

    def _writes(self, store: Node) -> bool:
        return store.op == "store" and store.args[0] in self.shifts


def is_shift(node: Node) -> bool:
    """Whether any value would do in its place."""
    return node.op == "shift" or (node.op == "accum_max" and node.attr == "shift")


def stored_in_base_two(typed: Sequence[TypedBlock], between: Iterable[str]) -> frozenset[str]:
    """The tensors of ``between``, which only these blocks read and write, that hold shifts in base
    2: nothing else is stored to them, and each of these kernels can take them so.
    """
    chosen = set(shift_tensors([t.block for t in typed], between))
    while chosen:
        found = [BaseTwoShifts(t.block, t.dtypes, chosen) for t in typed]
        refused = {t for t in chosen if not all(shifts.agrees(t) for shifts in found)}
        if not refused:
            break
        chosen -= refused
    return frozenset(chosen)


def shift_tensors(blocks: Sequence[BlockGraph], between: Iterable[str]) -> tuple[str, ...]:
    """Those of the tensors to which nothing but shifts is stored."""
    return tuple(t for t in between if _holds_shifts(blocks, t))


def _holds_shifts(blocks: Sequence[BlockGraph], tensor: str) -> bool:
    stores = [(b, n) for b in blocks for _, n in b.stores() if n.access.tensor == tensor]
    return bool(stores) and all(is_shift(b.nodes[n.args[0]]) for b, n in stores)
