"""Maxima for exponentials, so that float64 can evaluate a program: the inverse of ``shift_free``.

exp(x) / sum(exp(x)) overflows for x above 709. Where the scale of an exp cancels in every output,
exp(x - max(x)) gives the same result and cannot overflow. The log of a sum of exps has the maximum
added. Exps that are added to each other have one maximum, that of all their exponents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.degrees import LOWEST_SHIFT, Degrees, ExpGroup, shiftable_exps
from mirage_py.ugraph.rewrite.mask_factors import MaskFactors
from mirage_py.ugraph.rewrite.rebuild import Rule, copied, rebuild
from mirage_py.ugraph.rewrite.value_numbers import ValueNumbers


def add_safe_shifts(program: Program, lowest: float | None = -F32.max_finite) -> Program:
    """The program with every exp whose scale cancels shifted by the maximum of its argument.

    No maximum is below ``lowest``: exponentials of minus infinities alone are 0 then, as they are.

    The maximum is taken over the dimensions that are reduced later, and only where the exp is not
    masked away: a masked value may be larger than all others. It is added again behind a log.
    """
    roots = [o.node for o in program.outputs]
    groups, degrees = shiftable_exps(program.nodes, roots)
    rules: dict[int, Rule] = {}
    # Group -> its maximum in the new program.
    maxima: dict[int, int] = {}
    numbers = ValueNumbers().of(program.nodes)
    factors = MaskFactors(program.nodes, program.tensors, numbers, roots)
    for group in groups:
        masks = [_common_masks(program, factors, copies) for copies in group.members]
        for exp in group.nodes:
            rules[exp] = _shifted(program, exp, group, masks, maxima, lowest)
    for position, node in enumerate(program.nodes):
        if node.op == "log" and degrees and degrees[node.args[0]]:
            rules[position] = _restored(degrees[node.args[0]], maxima)
    return rebuild(program, rules) if rules else program


def _common_masks(program: Program, factors: MaskFactors, copies: Sequence[int]) -> tuple[int, ...]:
    """Factors of 0 or 1 that every use of the copies of an exp is multiplied by, in whatever order.

    Those that bring in other dimensions are left out: a shift may not vary along them.
    """
    found = [factors.around(exp) for exp in copies]
    dims = program.nodes[copies[0]].dims
    return tuple(
        mask
        for number, mask in found[0].items()
        if all(number in masks for masks in found)
        and all(d in dims for d in program.nodes[mask].dims)
    )


def _shifted(
    program: Program,
    exp: int,
    group: ExpGroup,
    masks: Sequence[tuple[int, ...]],
    maxima: dict[int, int],
    lowest: float | None,
) -> Rule:
    """exp(min(x - max(x), 0)) for exp(x), the maximum over ``reduced`` where no mask is 0.

    The minimum changes masked values only, which might overflow.
    """

    def top_of(builder: ProgramBuilder, x: int, masks: tuple[int, ...]) -> int:
        for mask in masks:
            condition = _copied_tree(builder, program, mask)
            x = builder.apply("where", condition, x, builder.const(LOWEST_SHIFT))
        return builder.max(x, group.reduced)

    def rule(builder: ProgramBuilder, args: Sequence[int]) -> int:
        (x,) = args
        if group.key not in maxima:
            tops: list[int] = []
            for copies, m in zip(group.members, masks, strict=True):
                # The exponents of other members may come later in the program.
                other = program.nodes[copies[0]].args[0]
                own = x if exp in copies else _copied_tree(builder, program, other)
                tops.append(top_of(builder, own, m))
            if lowest is not None:
                tops.append(builder.const(lowest))
            maxima[group.key] = reduce(partial(builder.apply, "maximum"), tops)
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
    new: dict[int, int] = {}
    for current in cone(program.nodes, [position]):
        node = program.nodes[current]
        new[current] = copied(builder, node, [new[a] for a in node.args])
    return new[position]
