"""Mutations: functions from a block graph to wrong ones.

A mutation changes one thing that a search, a lowering or a person may get wrong, and leaves the
graph well enough formed that it can run. Dimensions are worked out again after the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isfinite

from adversarial.surgery import bypassed, changed, of, same_dims, with_index

from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dims import node_dims
from mirage_py.ugraph.ir.index import Predicate
from mirage_py.ugraph.ir.node import STORES, Access, Node
from mirage_py.ugraph.ir.predicates import negation
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, UGraph
from mirage_py.ugraph.operators import EFFECT, STATE, operator

Mutation = Callable[[Program, BlockGraph], Iterator[BlockGraph]]
GraphMutation = Callable[[UGraph], Iterator[UGraph]]

MUTATIONS: dict[str, Mutation] = {}
GRAPH_MUTATIONS: dict[str, GraphMutation] = {}


def mutants(graph: UGraph) -> Iterator[tuple[str, UGraph]]:
    """Every mutation of every kernel and of the graph, by name."""
    for name, wrongs in GRAPH_MUTATIONS.items():
        for place, wrong in enumerate(wrongs(graph)):
            yield f"{name} {place}", wrong
    for number, kernel in enumerate(graph.kernels):
        if not isinstance(kernel, BlockGraph):
            continue
        for name, mutation in MUTATIONS.items():
            for place, altered in enumerate(mutation(graph.program, kernel)):
                redone = with_dims(graph.program, altered)
                if redone is not None and redone != kernel:
                    kernels: list[Kernel] = list(graph.kernels)
                    kernels[number] = redone
                    yield f"{name} {place} in {kernel.name}", replace(graph, kernels=tuple(kernels))


def with_dims(program: Program, block: BlockGraph) -> BlockGraph | None:
    """The block with its dimensions worked out again; None if a store cannot hold its value, or a
    value is read before it is there.
    """
    nodes: list[Node] = []
    for node in block.nodes:
        if any(a >= len(nodes) for a in node.args):
            return None
        operands = [nodes[a].dims for a in node.args]
        try:
            dims = node_dims(node, operands, program.dim_names)
        except UnsupportedError:
            return None
        summed = block.grid_tiles if node.op == "store_add" else ()
        if operator(node.op).kind == EFFECT and not set(operands[0]) <= {*dims, *summed}:
            return None
        nodes.append(replace(node, dims=dims))
    return replace(block, nodes=tuple(nodes), threads=())


def mutation(function: Mutation) -> Mutation:
    MUTATIONS[function.__name__] = function
    return function


def graph_mutation(function: GraphMutation) -> GraphMutation:
    """For mistakes that are not one kernel's, or that leave a store without a place: they come to
    the validator as they are.
    """
    GRAPH_MUTATIONS[function.__name__] = function
    return function


# -- reductions -----------------------------------------------------------------------------------


@mutation
def reduces_another_dimension(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A sum, maximum or product over a wrong axis."""
    for n, node in of(block, "sum", "max", "matmul"):
        available = dict.fromkeys(d for a in node.args for d in block.nodes[a].dims)
        for d in available:
            if d not in node.reduced:
                yield changed(block, n, attr=(d, *node.reduced[1:]))


@mutation
def reduces_one_dimension_more(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A sum or product over one axis too many."""
    for n, node in of(block, "sum", "matmul"):
        for d in node.dims:
            yield changed(block, n, attr=(*node.reduced, d))


@mutation
def takes_the_maximum_for_the_sum(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """max for sum."""
    for n, _ in of(block, "sum"):
        yield changed(block, n, op="max")


@mutation
def takes_the_sum_for_the_maximum(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """sum for max, where the maximum does more than shift exponents."""
    for n, _ in of(block, "max"):
        users = [other for other in block.nodes if n in other.args]
        # A sum may shift exponents too: it overflows, which the numerical check finds.
        if not all(u.op == "shift" or u.attr == "shift" for u in users):
            yield changed(block, n, op="sum")


@mutation
def sums_before_a_function(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """sum(f(x)) becomes f(sum(x))."""
    for n, node in of(block, "sum"):
        inner = block.nodes[node.args[0]]
        if len(inner.args) == 1 and inner.attr is None and operator(inner.op).kind != STATE:
            moved = changed(block, node.args[0], op="sum", attr=node.attr)
            yield changed(moved, n, op=inner.op, attr=None)


# -- accumulators ---------------------------------------------------------------------------------


@mutation
def drops_an_accumulator(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """What the last iteration has, for the total."""
    for n, node in of(block, "accum_sum", "accum_max", "accum_rescaled"):
        users = [u for u, other in enumerate(block.nodes) if n in other.args]
        wrong = block
        for user in users:
            args = tuple(node.args[0] if a == n else a for a in block.nodes[user].args)
            wrong = changed(wrong, user, args=args)
        yield wrong


@mutation
def forgets_to_rescale(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A running sum that keeps the scale of an older maximum."""
    for n, node in of(block, "accum_rescaled"):
        yield changed(block, n, op="accum_sum", args=node.args[:1], attr=None)


@mutation
def rescales_by_the_wrong_power(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A running sum rescaled twice, backwards, or not at all."""
    for n, node in of(block, "accum_rescaled"):
        for power in (2, -1, 0):
            yield changed(block, n, attr=(power, *node.degrees[1:]))


@mutation
def accumulates_a_maximum(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A running maximum for a running sum."""
    for n, _ in of(block, "accum_sum"):
        yield changed(block, n, op="accum_max")


@mutation
def accumulates_a_sum(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A running sum for a running maximum."""
    for n, _ in of(block, "accum_max"):
        yield changed(block, n, op="accum_sum", attr=None)


@mutation
def accumulates_something_else(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Another value of the same shape is accumulated."""
    for n, node in of(block, "accum_sum", "accum_rescaled"):
        for other in same_dims(block, node.args[0], n):
            yield changed(block, n, args=(other, *node.args[1:]))


@mutation
def shifts_by_something_else(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A shift that is not the one that the other exponentials use."""
    for n, node in of(block, "sub"):
        if block.nodes[node.args[1]].op in ("accum_max", "shift"):
            yield changed(block, n, args=(node.args[0], node.args[0]))
            yield changed(block, n, op="add")


@mutation
def loops_over_another_dimension(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The loop goes over a dimension that its body does not reduce."""
    for number, section in enumerate(block.sections):
        for d in program.dim_names if section.loop else ():
            if d != section.loop:
                sections = list(block.sections)
                sections[number] = replace(section, loop=d, tile=None)
                yield replace(block, sections=tuple(sections))


@mutation
def runs_a_loop_once(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The loop reads its first element only, as with a wrong bound."""
    for section in block.sections:
        if section.loop:
            first = {section.loop: ix.const(0)}
            wrong = block
            for n in section.nodes:
                attr = block.nodes[n].attr
                if isinstance(attr, Access) and block.nodes[n].op == "load":
                    index = tuple(e.substitute(first) for e in attr.index)
                    wrong = changed(wrong, n, attr=Access(attr.tensor, index))
            yield wrong


# -- elementwise ----------------------------------------------------------------------------------


@mutation
def swaps_operands(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """y / x for x / y, y - x for x - y."""
    for n, node in of(block, "div", "sub"):
        yield changed(block, n, args=node.args[::-1])


_CONFUSED = {
    "add": ("sub", "mul"),
    "sub": ("add",),
    "mul": ("add", "div"),
    "div": ("mul",),
    "exp": ("silu", "square", "neg"),
    "silu": ("sigmoid", "tanh", "relu"),
    "sigmoid": ("silu",),
    "sqrt": ("rsqrt", "square"),
    "rsqrt": ("sqrt",),
    "square": ("abs", "neg", "sqrt"),
    "maximum": ("minimum", "add"),
    "gelu": ("silu", "gelu_tanh"),
}


@mutation
def takes_another_operator(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """An operator that is easily confused with the right one."""
    for n, node in enumerate(block.nodes):
        for op in _CONFUSED.get(node.op, ()):
            yield changed(block, n, op=op)


@mutation
def leaves_an_operator_out(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """One of its operands, for an operator's result."""
    for n, node in enumerate(block.nodes):
        if operator(node.op).kind in (STATE, EFFECT) or not node.args or node.op == "cast":
            continue
        # Missing squares, epsilons and divisions by a size are kinds of their own.
        others = [block.nodes[a].op for a in node.args[1:]]
        if node.op != "square" and others not in (["const"], ["size"]):
            for kept in node.args:
                yield bypassed(block, n, kept)


@mutation
def applies_an_operator_twice(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Both operands are the same value."""
    for n, node in of(block, "mul", "add", "div", "sub"):
        yield changed(block, n, args=(node.args[1], node.args[1]))
        yield changed(block, n, args=(node.args[0], node.args[0]))


@mutation
def reads_another_value(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """An operand is another value of the same shape."""
    for n, node in enumerate(block.nodes):
        if operator(node.op).kind in (STATE, EFFECT):
            continue
        for place, argument in enumerate(node.args):
            for other in same_dims(block, argument, n)[:2]:
                args = (*node.args[:place], other, *node.args[place + 1 :])
                yield changed(block, n, args=args)


@mutation
def has_a_wrong_constant(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Doubled, negated, zero, one more, off by a millionth."""
    for n, node in of(block, "const"):
        value = node.attr
        if isinstance(value, float) and isfinite(value) and abs(value) < 1e29:
            for wrong in (value * 2, -value, 0.0, value + 1, value * (1 + 1e-6)):
                yield changed(block, n, attr=wrong)


@mutation
def divides_by_another_size(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The extent of another dimension, or 1."""
    for n, node in of(block, "size"):
        for d in program.dim_names:
            if d != node.attr:
                yield changed(block, n, attr=d)
        yield changed(block, n, op="const", attr=1.0)


# -- masks and indices ----------------------------------------------------------------------------


@mutation
def is_one_off_in_a_mask(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The border of a mask one or two places beside."""
    for n, node in of(block, "mask"):
        if isinstance(node.attr, Predicate) and node.attr.exprs:
            left, right = node.attr.exprs
            for step in (1, -1, 2):
                yield changed(block, n, attr=Predicate(node.attr.op, (left, right + step)))


@mutation
def compares_otherwise(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """< for <=, == for <=, sides swapped."""
    for n, node in of(block, "mask"):
        if isinstance(node.attr, Predicate) and node.attr.exprs:
            for op in ("lt", "ge", "gt", "eq"):
                yield changed(block, n, attr=Predicate(op, node.attr.exprs))
            yield changed(block, n, attr=Predicate(node.attr.op, node.attr.exprs[::-1]))


@mutation
def negates_a_mask(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """What is masked out for what is not."""
    for n, node in of(block, "mask"):
        if isinstance(node.attr, Predicate):
            yield changed(block, n, attr=negation(node.attr))


@mutation
def forgets_a_mask(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """1 for a mask."""
    for n, _ in of(block, "mask"):
        yield changed(block, n, op="const", attr=1.0)


@mutation
def masks_one_use_only(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The masked value in one place, the value itself in another."""
    for n, node in of(block, "mul"):
        masks = [a for a in node.args if block.nodes[a].op == "mask"]
        users = [u for u, other in enumerate(block.nodes) if n in other.args]
        if len(masks) == 1 and len(users) > 1:
            (value,) = (a for a in node.args if a != masks[0])
            for user in users:
                args = tuple(value if a == n else a for a in block.nodes[user].args)
                yield changed(block, user, args=args)


@mutation
def shifts_an_index(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Reads the next element along an axis, the first after the last."""
    for n, node in of(block, "load"):
        for axis, expr in enumerate(node.access.index):
            extent = expr.bounds(program.sizes)[1] + 1
            if extent > 1:
                yield changed(block, n, attr=with_index(node.access, axis, (expr + 1) % extent))


@mutation
def reads_one_element_for_all(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """An index that does not move along one axis."""
    for n, node in of(block, "load"):
        for axis in range(len(node.access.index)):
            yield changed(block, n, attr=with_index(node.access, axis, ix.const(0)))


@mutation
def reads_another_dimension(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Reads along a dimension that is no longer than the right one."""
    for n, node in of(block, "load"):
        for axis, expr in enumerate(node.access.index):
            for d in program.dim_names if expr.is_dim else ():
                if d != expr.name and program.sizes[d] <= program.sizes[expr.name]:
                    yield changed(block, n, attr=with_index(node.access, axis, ix.dim(d)))


@mutation
def reads_another_tensor(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A load from another tensor of the same shape."""
    loads = list(of(block, "load"))
    for n, node in loads:
        for _, other in loads:
            if other.access.tensor != node.access.tensor and other.dims == node.dims:
                yield changed(block, n, attr=other.access)


@mutation
def stores_another_value(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A store of another value of the same shape."""
    for n, node in of(block, *STORES):
        for other in same_dims(block, node.args[0], n):
            yield changed(block, n, args=(other,))


@mutation
def swaps_two_stores(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Two stores of one kernel with each other's values: permuted outputs."""
    stores = list(of(block, *STORES))
    for number, (n, node) in enumerate(stores):
        for m, other in stores[number + 1 :]:
            if node.dims == other.dims:
                wrong = changed(block, n, args=other.args)
                yield changed(wrong, m, args=node.args)


@mutation
def skips_a_store(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The last section stops before its store."""
    for n, _ in of(block, *STORES):
        sections = [replace(s, nodes=tuple(m for m in s.nodes if m != n)) for s in block.sections]
        yield replace(block, sections=tuple(sections))
