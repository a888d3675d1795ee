"""A SASS check that two ``wgmma`` do not share registers for their left operands while both are
needed.

ptxas 12.8 and 13.0 do so where an operand that is read once, before a loop, has as many
registers as one that the loop computes, and a branch lies in the loop between the two products:
from the second iteration on the first product multiplies what was made for the second one. A
``keep`` of the registers, a copy of the second operand and ``-O1`` change nothing about it, and
there is no warning.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mirage_py.runtime.sass.sass import Code, Instruction, parsed

_PRODUCT = "HGMMA"
_SIZE = re.compile(rf"{_PRODUCT}\.64x(\d+)x")
_REGISTER = re.compile(r"R(\d+)(?:\.\w+)*$")
_PREDICATE = re.compile(r"!?U?P(?:\d+|T|R)$")
# Their first register, after predicates, is read and not written.
_WRITE_NOTHING = ("BAR", "BMOV", "FCHK", "NANOSLEEP", "R2P", "RET", "WARPSYNC", "BRX")
# Brings back what was spilled: not another value.
_RELOADS = ("LDL",)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Looking back from a product: the instructions that may have made its left operand, and other
    products that read the same registers since.
    """

    makers: frozenset[int]
    others: frozenset[int]


def shared_in(sass: str) -> tuple[str, ...]:
    """Products whose left operand may be what was made for another one, in the text that nvdisasm
    prints of one kernel: control comes from a product that reads the same registers, and these had
    been written for it alone. None where the code calls or jumps to computed addresses.
    """
    code = parsed(sass)
    left = {n: r for n, x in enumerate(code.instructions) if (r := _left(x)) is not None}
    if code.is_opaque or len(left) < 2:
        return ()
    before = _sources(code)
    writers = _writers(code, set(left.values()))
    seen = {n: _look_back(n, r, code, before, writers[r], left) for n, r in left.items()}
    return tuple(
        code.instructions[n].text
        for n, own in seen.items()
        if any(n != o and seen[o].makers < own.makers for o in own.others)
    )


def _left(instruction: Instruction) -> int | None:
    """The first of the four registers of a left operand; None where there is none."""
    if instruction.base != _PRODUCT:
        return None
    found = _REGISTER.match(instruction.operands[1])
    return None if found is None else int(found[1])


def _sources(code: Code) -> Mapping[int, Sequence[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for place, followers in enumerate(code.followers):
        for follower in followers:
            found[follower].append(place)
    return found


def _writers(code: Code, registers: Iterable[int]) -> Mapping[int, frozenset[int]]:
    found: dict[int, set[int]] = {r: set() for r in registers}
    for place, instruction in enumerate(code.instructions):
        for register in _written(instruction):
            if register in found:
                found[register].add(place)
    return {register: frozenset(places) for register, places in found.items()}


def _written(instruction: Instruction) -> range:
    """The registers of the thread that an instruction writes."""
    if instruction.base in _WRITE_NOTHING:
        return range(0)
    plain = next((p for p in instruction.operands[:2] if not _PREDICATE.match(p)), "")
    found = _REGISTER.match(plain)
    if found is None:
        return range(0)
    return range(int(found[1]), int(found[1]) + _width(instruction))


def _width(instruction: Instruction) -> int:
    base, parts = instruction.base, instruction.opcode.split(".")
    size = _SIZE.match(instruction.opcode)
    if size is not None:
        return int(size[1]) // (2 if "F32" in parts else 4)
    if base == "LDSM":
        return int(parts[-1]) if parts[-1].isdigit() else 1
    if base == "CS2R":
        return 1 if "32" in parts else 2
    if base.startswith("LD") and "128" in parts:
        return 4
    return 2 if "WIDE" in parts or (base.startswith("LD") and "64" in parts) else 1


def _look_back(
    place: int,
    register: int,
    code: Code,
    before: Mapping[int, Sequence[int]],
    writers: frozenset[int],
    left: Mapping[int, int],
) -> _Seen:
    makers: set[int] = set()
    others: set[int] = set()
    seen: set[int] = set()
    todo = list(before.get(place, ()))
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        if left.get(at) == register:
            others.add(at)
        if at in writers:
            if code.instructions[at].base not in _RELOADS:
                makers.add(at)
            if not code.instructions[at].guard:
                continue
        todo.extend(before.get(at, ()))
    return _Seen(frozenset(makers), frozenset(others))
