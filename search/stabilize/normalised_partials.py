"""Normalised partial results of a softmax, which can be stored in half precision.

A kernel that sees one split of a sum of exponentials stores sums A = sum exp(z - m) v and L = sum
exp(z - m) beside its maximum m, for another kernel to combine. The size of A grows with the number
of terms, so it takes float32. Any m is legal, m + log L too: with that shift A is an average of the
v, no larger than they are, so their own type holds it and half the bytes go through memory.
FlashDecoding stores its partial results like this (one log-sum-exp for each row).

The scale is a shift of its own, ``shift(m + log L)``, and the values are multiplied by exp(m -
shift). The field test takes any value for it, so the form is verified like every other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.node import STORES, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, UGraph
from mirage_py.ugraph.rewrite.rebuild_block import NewNodes, rebuild_block

# The log of an empty sum, where all of a split is masked: its weight is 0 anyway.
_SMALLEST = 1e-37
# The power of exp(-m) in a plain sum of exponentials.
_ONCE = (1,)


def with_normalised_partials(ugraph: UGraph) -> UGraph | None:
    """The µGraph with normalised partial results of its softmax; None where it stores none.

    ``ugraph`` is stabilised. Tensors between kernels that are averages now have the outputs' type.
    """
    half = _half_type(ugraph.program)
    between = {t.name for t in ugraph.intermediates}
    if half is None:
        return None
    kernels: list[Kernel] = []
    averages: set[str] = set()
    for kernel in ugraph.kernels:
        partials = _partials(kernel, between) if isinstance(kernel, BlockGraph) else None
        if partials is not None and not _averages(ugraph, partials, half):
            partials = None
        if partials is None or not isinstance(kernel, BlockGraph):
            kernels.append(kernel)
            continue
        kernels.append(_normalised(kernel, partials))
        averages |= {
            n.access.tensor for _, n in kernel.stores() if n.args[0] in partials.sums_of_values
        }
    if not averages:
        return None
    tensors = tuple(
        replace(t, dtype=half) if t.name in averages else t for t in ugraph.intermediates
    )
    return replace(ugraph, kernels=tuple(kernels), intermediates=tensors)


@dataclass(frozen=True, slots=True)
class _Partials:
    """Positions in a block graph: its maximum, the sum of exponentials that is stored, and all
    stored sums that scale with it. One straight section stores them. The maximum may be a running
    one, with sums that are rescaled, or that of a complete split.
    """

    shift: int
    total: int
    sums: tuple[int, ...]
    dims: tuple[str, ...]
    nodes: tuple[Node, ...]

    @property
    def sums_of_values(self) -> tuple[int, ...]:
        """Those that have more axes than the maximum: the large ones."""
        return tuple(s for s in self.sums if len(self.nodes[s].dims) > len(self.dims))


def _half_type(program: Program) -> DType | None:
    """The one type of all outputs, if it is a half."""
    types = {o.tensor.dtype.name: o.tensor.dtype for o in program.outputs}
    (found, *others) = types.values()
    return found if not others and found.is_half else None


def _partials(block: BlockGraph, between: set[str]) -> _Partials | None:
    """What the kernel stores of a softmax, if that is all that it stores of it."""
    nodes = block.nodes
    stores = list(block.stores())
    shifts = [n.args[0] for _, n in stores if _is_shift(nodes[n.args[0]])]
    if len(shifts) != 1 or any(n.access.tensor not in between for _, n in stores):
        return None
    (shift,) = shifts
    sections = {block.section_of[number] for number, _ in stores}
    if len(sections) != 1 or block.sections[max(sections)].loop is not None:
        return None
    sums = [n.args[0] for _, n in stores if n.args[0] != shift]
    if any(n.op != "store" for _, n in stores) or not all(
        _scales_once(nodes, s, shift) for s in sums
    ):
        return None
    dims = nodes[shift].dims
    totals = [s for s in sums if set(nodes[s].dims) == set(dims) and _is_sum_of_exps(nodes, s)]
    if not totals:
        return None
    return _Partials(shift, totals[0], tuple(sums), dims, nodes)


def _averages(ugraph: UGraph, partials: _Partials, half: DType) -> bool:
    """Whether each of the large sums has the weights of the total and values of an input of the
    half type: only then its quotient is no larger than they are.
    """
    nodes = partials.nodes
    weights = _term(nodes, partials.total).args[0]
    return all(
        _is_weighted(ugraph, nodes, _term(nodes, s), weights, half) for s in partials.sums_of_values
    )


def _is_weighted(
    ugraph: UGraph, nodes: Sequence[Node], term: Node, weights: int, half: DType
) -> bool:
    """Whether a sum is one of products of the weights with an input of the half type."""
    if term.op == "sum":
        term = nodes[term.args[0]]
    if term.op not in ("mul", "matmul") or weights not in term.args:
        return False
    (value,) = (a for a in term.args if a != weights) if len(set(term.args)) == 2 else (weights,)
    inputs = {t.name: t.dtype for t in ugraph.program.inputs}
    load = nodes[value]
    return load.op == "load" and inputs.get(load.access.tensor) == half


def _is_shift(node: Node) -> bool:
    return node.op == "shift" or (node.op == "accum_max" and node.attr == "shift")


def _term(nodes: Sequence[Node], number: int) -> Node:
    """The sum over one tile: all of it, or what is added to the rescaled sum."""
    node = nodes[number]
    return nodes[node.args[0]] if node.op == "accum_rescaled" else node


def _scales_once(nodes: Sequence[Node], number: int, shift: int) -> bool:
    """Whether all terms of a sum have the factor exp(-shift), to the power of one."""
    node = nodes[number]
    if nodes[shift].op == "accum_max":
        return node.op == "accum_rescaled" and node.attr == _ONCE and node.args[1:] == (shift,)
    if node.op not in ("sum", "matmul"):
        return False
    products = [nodes[a] if nodes[a].op == "mul" else None for a in node.args]
    pairs = zip(node.args, products, strict=True)
    factors = [nodes[f] for a, product in pairs for f in (product.args if product else (a,))]
    exponents = [nodes[f.args[0]] for f in factors if f.op == "exp"]
    is_shifted = [e.op == "sub" and e.args[1] == shift for e in exponents] == [True]
    return is_shifted and all(f.op in ("exp", "load", "mask") for f in factors)


def _is_sum_of_exps(nodes: Sequence[Node], number: int) -> bool:
    """Whether a sum cannot be negative: of exponentials, masked ones perhaps."""
    term = _term(nodes, number)
    if term.op != "sum":
        return False
    term = nodes[term.args[0]]
    factors = [nodes[a] for a in term.args] if term.op == "mul" else [term]
    return all(f.op in ("exp", "mask") for f in factors)


def _normalised(block: BlockGraph, partials: _Partials) -> BlockGraph:
    """The kernel with its partial results scaled before they are stored."""
    scaled: dict[int, int] = {}

    def rule(new: NewNodes, number: int) -> int:
        if block.nodes[number].op not in STORES:
            return new.copy(number)
        if not scaled:
            scaled.update(_scaled(new, partials))
        return new.copy(number, scaled)

    return rebuild_block(block, rule)


def _scaled(new: NewNodes, partials: _Partials) -> dict[int, int]:
    """What is stored instead of the maximum and of each sum."""
    dims = partials.dims
    shift = new.place[partials.shift]
    smallest = new.add("const", (), _SMALLEST)
    total = new.add("maximum", (new.place[partials.total], smallest), None, dims)
    moved = new.add("add", (shift, new.add("log", (total,), None, dims)), None, dims)
    normal = new.add("shift", (moved,), None, dims)
    factor = new.add("exp", (new.add("sub", (shift, normal), None, dims),), None, dims)
    found = {partials.shift: normal}
    for number in partials.sums:
        dims_of_sum = partials.nodes[number].dims
        found[number] = new.add("mul", (new.place[number], factor), None, dims_of_sum)
    return found
