"""A SASS check for reads of registers that nothing has written.

ptxas 12.8 builds the descriptors of ``wgmma`` from such registers where two products share a
shared-memory address: the launch fails, or the result is another one each time. Neither PTX nor an
interpreter shows it, and a kernel that is compiled for another machine is never launched here. What
was never put into a uniform register may also be taken from R1, which holds the stack pointer: such
a kernel passed the numerical check in the worker and ended the user's process with an illegal
memory access.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mirage_py.runtime.sass.sass import Code, Instruction, parsed

_UNIFORM = re.compile(r"\bUR(\d+)\b")
_PREDICATE = re.compile(r"!?U?P(?:\d+|T|R)$")
# As a value: in brackets it is the address of something on the stack.
_STACK_POINTER = re.compile(r"(?<![\w\[])R1\b")
_CONSTANT = "c[0x0]["


def unwritten_in(sass: str) -> tuple[str, ...]:
    """Instructions that read a uniform register which no path from the kernel's start has written,
    or the stack pointer as if it were a number, in the text that nvdisasm prints of one kernel.
    None where the code calls or jumps to computed addresses.
    """
    code = parsed(sass)
    if code.is_opaque:
        return ()
    return (*_unwritten_uniform(code), *_stack_pointer_read(code))


def _unwritten_uniform(code: Code) -> tuple[str, ...]:
    facts = [_registers(x) for x in code.instructions]
    written = _may_be_written(code, [writes for _, writes in facts])
    return tuple(
        x.text
        for x, (reads, _), before in zip(code.instructions, facts, written, strict=True)
        if before is not None and reads & ~before
    )


def _stack_pointer_read(code: Code) -> tuple[str, ...]:
    """Who takes R1 for a value. Without a stack frame nobody has a use for it; with one its address
    is computed, but in no uniform register.
    """
    rows = [x for x in code.instructions if any(map(_STACK_POINTER.search, x.operands))]
    # ``LDC R1, c[0x0][0x28]`` on sm_90; where R1 begins with something else it is like any other.
    if not rows or not _writes_it(rows[0]) or not rows[0].operands[-1].startswith(_CONSTANT):
        return ()
    has_frame = any(map(_writes_it, rows[1:]))
    readers = (x for x in rows[1:] if not _writes_it(x))
    return tuple(x.text for x in readers if x.base == "R2UR" or not has_frame)


def _writes_it(instruction: Instruction) -> bool:
    return instruction.operands[0] == "R1"


def _registers(instruction: Instruction) -> tuple[int, int]:
    """The uniform registers that an instruction reads and writes, as bits."""
    opcode, parts = instruction.opcode, instruction.operands
    operands = ", ".join(parts)
    numbers = [int(n) for n in _UNIFORM.findall(operands)]
    if "gdesc[" in operands:
        numbers = [n + k for n in numbers for k in _descriptor(parts)]
    writes = 0
    plain = next((p for p in parts if not _PREDICATE.match(p)), "")
    only = _UNIFORM.fullmatch(plain)
    if only is not None and "SETP" not in opcode and instruction.base != "BRA":
        # What comes first is written; the rest is read.
        numbers.remove(int(only[1]))
        writes = (1 << _width(opcode)) - 1 << int(only[1])
    reads = 0
    for number in numbers:
        reads |= 1 << number
    return reads, writes


def _descriptor(parts: Sequence[str]) -> range:
    """Which of the four registers of ``gdesc`` a wgmma reads: two for each operand in shared
    memory, the right one's last. The left one can be in registers of the thread.
    """
    return range(4) if parts[1].startswith("gdesc[") else range(2, 4)


def _width(opcode: str) -> int:
    """Registers that a result takes; rather too many than too few."""
    parts = opcode.split(".")
    if "128" in parts:
        return 4
    return 2 if "WIDE" in parts or any("64" in p for p in parts) else 1


def _may_be_written(code: Code, writes: Sequence[int]) -> list[int | None]:
    """For each instruction the registers that some path to it writes; None if there is no path."""
    before: list[int | None] = [None] * len(code.instructions)
    todo = [(0, 0)] if before else []
    while todo:
        position, written = todo.pop()
        known = before[position]
        merged = written if known is None else known | written
        if merged == known:
            continue
        before[position] = merged
        after = merged | writes[position]
        more = {"BSYNC": code.joins, "RET": code.returns}.get(code.instructions[position].base, ())
        todo.extend((place, after) for place in (*code.followers[position], *more))
    return before
