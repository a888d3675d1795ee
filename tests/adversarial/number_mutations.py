"""Mutations of the numbers of a normalisation, a scale or an exponential.

Importing this registers them with ``mutations``.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, log, sqrt

from adversarial.mutations import mutation
from adversarial.surgery import bypassed, changed, inserted, of, replaced_by

from mirage_py.ugraph.ir.node import STORES, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph

# Smaller constants are epsilons.
_EPSILON = 1e-3
# A difference that float16 does not show.
_LITTLE = 2.0**-20


@mutation
def takes_the_sum_for_the_mean(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The division by the number of terms is missing."""
    for n, node in of(block, "div"):
        if block.nodes[node.args[1]].op == "size":
            yield bypassed(block, n, node.args[0])


@mutation
def divides_by_the_size_twice(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The mean of a mean."""
    for n, node in of(block, "div"):
        if block.nodes[node.args[1]].op == "size":
            yield replaced_by(block, n, lambda at, node=node: Node("div", (at, node.args[1])))


@mutation
def divides_by_a_tile(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The mean over a tile, for the mean over a dimension."""
    tiles = {s.loop: s.tile for s in block.sections if s.loop} | block.grid_tiles
    for n, node in of(block, "size"):
        yield changed(block, n, op="const", attr=float(tiles.get(str(node.attr)) or 2))


@mutation
def is_one_off_in_a_size(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """n - 1 or n + 1 for n, as in a sample variance, or in a number of splits."""
    for n, node in of(block, "size"):
        for step in (-1, 1):
            yield changed(block, n, op="const", attr=float(program.sizes[str(node.attr)] + step))


@mutation
def drops_an_epsilon(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Nothing is added to the mean of squares."""
    for n, value, _ in _epsilons(block):
        yield bypassed(block, n, value)


@mutation
def adds_an_epsilon_twice(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The epsilon goes in both before and after."""
    for n, _, epsilon in _epsilons(block):
        yield replaced_by(block, n, lambda at, epsilon=epsilon: Node("add", (at, epsilon)))


@mutation
def puts_an_epsilon_outside_the_root(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """sqrt(x) + eps for sqrt(x + eps)."""
    for n, value, epsilon in _epsilons(block):
        for user, node in of(block, "sqrt", "rsqrt"):
            if n in node.args:
                inside = changed(block, user, args=(value,))
                yield replaced_by(inside, user, lambda at, eps=epsilon: Node("add", (at, eps)))


@mutation
def puts_an_epsilon_before_the_mean(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """(sum + eps) / n for sum / n + eps."""
    for n, value, epsilon in _epsilons(block):
        mean = block.nodes[value]
        if mean.op == "div":
            wrong = changed(block, n, op="add", args=(mean.args[0], epsilon))
            yield replaced_by(wrong, n, lambda at, mean=mean: Node("div", (at, mean.args[1])))


@mutation
def puts_an_epsilon_on_the_result(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """What is stored, plus 1e-6."""
    for n, node in of(block, *STORES):
        yield _computed(block, n, node.args[0], "add", 1e-6)


@mutation
def forgets_a_square(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The mean of values for the mean of squares."""
    for n, node in of(block, "square"):
        yield bypassed(block, n, node.args[0])


@mutation
def squares_twice(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The fourth power."""
    for n, _ in of(block, "square"):
        yield replaced_by(block, n, lambda at: Node("square", (at,)))


@mutation
def takes_another_base(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """exp2 without its factor log2(e), or the factor without exp2."""
    for n, node in of(block, "exp"):
        for factor in (log(2.0), 1.0 / log(2.0)):
            yield _computed(block, n, node.args[0], "mul", factor)


@mutation
def takes_another_scale(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A scale that is not rooted, rooted twice, or divides for multiplying."""
    for n, node in of(block, "const"):
        value = node.attr
        if isinstance(value, float) and isfinite(value) and 0.0 < value < 1e29 and value != 1.0:
            for wrong in (value * value, sqrt(value), 1.0 / value):
                yield changed(block, n, attr=wrong)


@mutation
def scales_a_result(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """What is stored, times a number near 1, or with the other sign."""
    for n, node in of(block, *STORES):
        for factor in (1.0 + _LITTLE, -1.0):
            yield _computed(block, n, node.args[0], "mul", factor)


@mutation
def applies_a_factor_twice(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Rescaled, weighted or masked once more."""
    for n, node in of(block, "mul"):
        for argument in node.args:
            yield replaced_by(block, n, lambda at, argument=argument: Node("mul", (at, argument)))


@mutation
def divides_twice(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Normalised once more."""
    for n, node in of(block, "div"):
        yield replaced_by(block, n, lambda at, node=node: Node("div", (at, node.args[1])))


@mutation
def divides_before_a_sum(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """1 / x for x where a sum reads it: the mean of reciprocals for the reciprocal of a mean."""
    for n, node in of(block, "sum", "accum_sum"):
        one = Node("const", (), 1.0)
        turned = inserted(block, n, [one, Node("div", (n, node.args[0]))])
        wrong = changed(turned, n + 2, args=(n + 1, *turned.nodes[n + 2].args[1:]))
        yield replaced_by(wrong, n + 2, lambda at, n=n: Node("div", (n, at)))


@mutation
def takes_the_minimum_for_the_maximum(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """-max(-x) for max(x)."""
    for n, node in of(block, "max"):
        inside = inserted(block, n, [Node("neg", (node.args[0],))])
        wrong = changed(inside, n + 1, args=(n,))
        yield replaced_by(wrong, n + 1, lambda at: Node("neg", (at,)))


@mutation
def masks_inside_an_exponential(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """exp(mask * x), which is 1 where it should be 0."""
    for n, node in of(block, "mul"):
        ops = [block.nodes[a].op for a in node.args]
        if sorted(ops) == ["exp", "mask"]:
            exp = block.nodes[node.args[ops.index("exp")]]
            inside = changed(block, n, args=(node.args[ops.index("mask")], exp.args[0]))
            yield replaced_by(inside, n, lambda at: Node("exp", (at,)))


@mutation
def swaps_branches(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """where(c, y, x) for where(c, x, y)."""
    for n, node in of(block, "where"):
        condition, one, other = node.args
        yield changed(block, n, args=(condition, other, one))


def _epsilons(block: BlockGraph) -> Iterator[tuple[int, int, int]]:
    """Additions of a small constant: the node, what it adds to, the constant's node."""
    for n, node in of(block, "add"):
        for value, epsilon in (node.args, node.args[::-1]):
            constant = block.nodes[epsilon]
            if constant.op == "const" and 0.0 < float(str(constant.attr)) < _EPSILON:
                yield n, value, epsilon


def _computed(block: BlockGraph, user: int, value: int, op: str, constant: float) -> BlockGraph:
    """The block in which one node reads ``value op constant`` for ``value``."""
    wider = inserted(block, user, [Node("const", (), constant), Node(op, (value, user))])
    args = tuple(user + 1 if a == value else a for a in wider.nodes[user + 2].args)
    return changed(wider, user + 2, args=args)
