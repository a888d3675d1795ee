"""Output tensors of a pool, and the check that a derivation equals the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from mirage_py.axioms.terms.term import COMPARISONS
from mirage_py.search.closure.derivation import Derivation
from mirage_py.search.closure.pool import Pool
from mirage_py.search.space.spaces import Space
from mirage_py.search.space.values import Values, evaluate
from mirage_py.ugraph.field import DivisionByZero, Field
from mirage_py.ugraph.ir.node import REDUCING, Access, Attr, Node
from mirage_py.ugraph.ir.program import Program

# Draws before a division by zero is taken to be the program's own.
DRAWS = 16
# Comparisons that say something of equal numbers; two tensors have one such number in common.
_WITH_TIES = ("lt", "le", "gt", "ge")
_SHARED = 7919.0
_CHOICES = ("maximum", "minimum", "relu", "abs")


def draw(program: Program, space: Space, field: Field, seed: int) -> tuple[Values, tuple[int, ...]]:
    """Random inputs on which the program has a value, and the values of its outputs.

    A program that divides by zero in each of them, as where(relu(x) > 0, y / relu(x), 0) does, has
    a random element for 1 / 0, and a value if that does not change it.
    Raises DivisionByZero if none of a number of draws gives one.
    """
    ordered = [n.attr for n in program.nodes if n.op == "const" and isinstance(n.attr, float)]
    compares = any(n.op in ("maximum", "minimum", "lt", "le", "gt", "ge") for n in program.nodes)
    ties = (*ordered, _SHARED) if any(n.op in _WITH_TIES for n in program.nodes) else ()
    # max(x, 2) followed by min(.., 5) is constant in a draw whose order has 5 before 2. Of many
    # constants no draw has the real order: then any will do.
    orders = (True, False) if compares else (False,)
    # Draws in which a comparison says the same of all elements, or a maximum is one of its operands
    # everywhere, come last: half of the attempts are made before, with 1 / 0 and with level rows as
    # well.
    rows = dict.fromkeys(d for n in program.nodes if n.op == "max" for d in n.reduced)
    chooses = rows and any(n.op in _CHOICES for n in program.nodes)
    ways = [(True, ()), *([(True, tuple(rows))] if chooses else []), (False, ())]
    for is_ordered, (varied, level), fills in product(orders, ways, ("", "1 / 0")):
        for attempt in range(DRAWS // 2) if varied else range(DRAWS // 2, DRAWS):
            # Each trial may divide by zero, by relu(x) say every second one: in the end few are
            # tried.
            trials = max(1, space.trials >> max(0, attempt - DRAWS // 2))
            made = partial(
                Values,
                replace(space, trials=trials),
                field,
                seed * DRAWS + attempt,
                ties,
                level=level,
            )
            values = made(fills)
            if is_ordered and not values.orders_truly(ordered):
                continue
            try:
                nodes = evaluate(program, values)
            except DivisionByZero:
                continue
            if varied and not _varied(program, values, nodes):
                continue
            targets = tuple(nodes[output.node] for output in program.outputs)
            if not fills or _is_the_same(program, values, targets, made(f"{fills} again")):
                return values, targets
    raise DivisionByZero(f"{program.name} divides by zero in each of {DRAWS} draws")


def _is_the_same(program: Program, values: Values, targets: Sequence[int], others: Values) -> bool:
    """Whether the outputs have the same values in a draw in which only 1 / 0 is another element."""
    nodes = evaluate(program, others)
    return all(
        values.arrays[t].fingerprint() == others.arrays[nodes[o.node]].fingerprint()
        for t, o in zip(targets, program.outputs, strict=True)
    )


def _varied(program: Program, values: Values, nodes: Sequence[int]) -> bool:
    """Whether no comparison says the same of all elements, and no choice always falls on the same
    operand: it would be taken for a constant, or for the operand.
    """
    used = [(n, node) for n, node in enumerate(program.nodes) if node.dims]
    compared = (n for n, node in used if node.op in COMPARISONS)
    chosen = ((n, node) for n, node in used if node.op in _CHOICES)
    return all(values.says_both(nodes[n]) for n in compared) and all(
        nodes[n] != nodes[a] for n, node in chosen for a in node.args
    )


def hits(program: Program, pool: Pool, targets: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every choice of pool tensors, one per output, with the outputs' values.

    A looped tensor is stored tile by tile, so the output must have the dimension of the loop.
    """
    choices: list[list[int]] = []
    for output, target in zip(program.outputs, targets, strict=True):
        dims = [d for expr in output.index for d in expr.dims()]
        found = list(pool.with_value(target))
        choices.append([n for n in found if pool[n].looped in (None, *dims)])
    return product(*choices)


def holds(
    derivation: Derivation,
    values: Values,
    targets: Sequence[int],
    given: Mapping[str, int] | None = None,
) -> bool:
    """Whether the derivation gives the outputs' values on inputs that it was not found with.

    ``given`` has the values of what earlier kernels store.
    """
    try:
        done = replay(derivation, values, given)
    except DivisionByZero:
        return False
    return all(done[o] == t for o, t in zip(derivation.outputs, targets, strict=True))


def replay(
    derivation: Derivation, values: Values, given: Mapping[str, int] | None = None
) -> tuple[int, ...]:
    """The value of each step."""
    stored = given or {}
    done: list[int] = []
    for step in derivation.steps:
        args = tuple(done[a] for a in step.args)
        if isinstance(step.attr, Access) and step.attr.tensor in stored:
            done.append(stored[step.attr.tensor])
        elif not step.args:
            done.append(values.leaf(_leaf(step.op, step.attr, step.dims)))
        elif step.is_accumulator:
            axes = [values.space.axes[d][0] for d in _dims(step.attr)]
            done.append(values.reduce(step.op.removeprefix("accum_"), args[0], axes))
        elif step.op in REDUCING:
            # In its own loop a dimension is reduced over its tile, elsewhere over all of it.
            axes = [
                axis
                for d in _dims(step.attr)
                for axis in values.space.axes[d][1 if d == step.looped else 0 :]
            ]
            if step.op == "matmul":
                done.append(values.contract(args, axes))
            else:
                done.append(values.reduce(step.op, args[0], axes))
        else:
            done.append(values.apply(step.op, args))
    return tuple(done)


def _leaf(op: str, attr: Attr, dims: tuple[str, ...]) -> Node:
    return Node(op, (), attr, dims)


def _dims(attr: Attr) -> tuple[str, ...]:
    assert isinstance(attr, tuple)
    return tuple(map(str, attr))
