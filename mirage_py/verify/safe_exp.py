"""Puts maxima into programs, so that float64 can evaluate them: removal of free shifts, undone.

exp(x) / sum(exp(x)) overflows for x above 709. Where the scale of an exp cancels in every output,
exp(x - max(x)) is as good, and cannot overflow. The log of a sum of exps has the maximum added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirage_py.ugraph.builder import ProgramBuilder
from mirage_py.ugraph.dims import reads_of
from mirage_py.ugraph.dtypes import BOOL
from mirage_py.ugraph.program import Program
from mirage_py.ugraph.rewrite.degrees import LOWEST_SHIFT, Degrees, ExpGroup, shiftable_exps
from mirage_py.ugraph.rewrite.rebuild import Rule, copied, rebuild

_TRUTH = ("mask", "lt", "le", "gt", "ge", "eq", "ne")


def add_safe_shifts(program: Program) -> Program:
    """The program with every exp whose scale cancels shifted by the maximum of its argument.

    The maximum is taken over the dimensions that are reduced later, and only where the exp is not
    masked away: a masked value may be larger than all others. It is added again behind a log.
    """
    groups, degrees = shiftable_exps(program.nodes, [o.node for o in program.outputs])
    rules: dict[int, Rule] = {}
    # Group -> its maximum in the new program.
    maxima: dict[int, int] = {}
    for group in groups:
        masks = _common_masks(program, group.nodes)
        for exp in group.nodes:
            rules[exp] = _shifted(program, group, masks, maxima)
    for position, node in enumerate(program.nodes):
        if node.op == "log" and degrees and degrees[node.args[0]]:
            rules[position] = _restored(degrees[node.args[0]], maxima)
    return rebuild(program, rules) if rules else program


def _common_masks(program: Program, exps: Sequence[int]) -> tuple[int, ...]:
    """Factors of 0 or 1 that every use of the exps is multiplied by, in whatever order.

    Those that bring in other dimensions are left out: a shift may not vary along them.
    """
    readers = reads_of(program.nodes)
    outputs = [o.node for o in program.outputs]
    found: list[tuple[int, ...]] = []
    todo: list[tuple[int, tuple[int, ...]]] = [(exp, ()) for exp in exps]
    while todo:
        position, masks = todo.pop()
        beside = [(u, _mask_beside(program, u, position)) for u in readers[position]]
        more = [(user, (*masks, mask)) for user, mask in beside if mask is not None]
        if more and len(more) == len(beside) and position not in outputs:
            todo.extend(more)
        else:
            found.append(masks)
    dims = program.nodes[exps[0]].dims
    return tuple(
        mask
        for mask in dict.fromkeys(found[0])
        if all(mask in masks for masks in found)
        and all(d in dims for d in program.nodes[mask].dims)
    )


def _mask_beside(program: Program, user: int, operand: int) -> int | None:
    """The mask of a user that makes ``operand`` 0 where it does not hold, and does nothing else."""
    node = program.nodes[user]
    if node.args.count(operand) != 1:
        return None
    mask: int | None = None
    if node.op == "mul":
        (mask,) = (a for a in node.args if a != operand)
    elif node.op == "where" and node.args[1] == operand and _is_zero(program, node.args[2]):
        mask = node.args[0]
    return mask if mask is not None and _is_truth(program, mask) else None


def _is_zero(program: Program, position: int) -> bool:
    return program.nodes[position].op == "const" and program.nodes[position].attr == 0.0


def _is_truth(program: Program, position: int) -> bool:
    node = program.nodes[position]
    if node.op == "load":
        return program.tensors[node.access.tensor].dtype == BOOL
    return node.op in _TRUTH or (node.op == "mul" and all(_is_truth(program, a) for a in node.args))


def _shifted(
    program: Program, group: ExpGroup, masks: tuple[int, ...], maxima: dict[int, int]
) -> Rule:
    """exp(min(x - max(x), 0)) for exp(x), the maximum over ``reduced`` where no mask is 0.

    The minimum changes masked values only, which might overflow.
    """

    def rule(builder: ProgramBuilder, args: Sequence[int]) -> int:
        (x,) = args
        kept = x
        for mask in masks:
            condition = _copied_tree(builder, program, mask)
            kept = builder.apply("where", condition, kept, builder.const(LOWEST_SHIFT))
        maxima[group.key] = builder.max(kept, group.reduced)
        below = builder.apply("sub", x, maxima[group.key])
        return builder.apply("exp", builder.apply("minimum", below, builder.const(0.0)))

    return rule


def _restored(degrees: Degrees, maxima: Mapping[int, int]) -> Rule:
    """log(x) + k m for the log of a value that became x exp(-k m)."""

    def rule(builder: ProgramBuilder, args: Sequence[int]) -> int:
        result = builder.apply("log", args[0])
        for key, power in degrees.items():
            top = maxima[key]
            if power != 1:
                top = builder.apply("mul", top, builder.const(float(power)))
            result = builder.apply("add", result, top)
        return result

    return rule


def _copied_tree(builder: ProgramBuilder, program: Program, position: int) -> int:
    """The node and what it depends on; a mask may come later in the program than what it masks."""
    needed: dict[int, None] = {}
    todo = [position]
    while todo:
        current = todo.pop()
        if current not in needed:
            needed[current] = None
            todo.extend(program.nodes[current].args)
    new: dict[int, int] = {}
    for current in sorted(needed):
        node = program.nodes[current]
        new[current] = copied(builder, node, [new[a] for a in node.args])
    return new[position]
