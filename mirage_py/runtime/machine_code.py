"""Whether the machine code of a kernel reads a uniform register that nothing has written.

ptxas 12.8 builds the descriptors of ``wgmma`` from such registers where two products share a
shared-memory address: the launch fails, or the result is another one each time. Neither PTX nor an
interpreter shows it, and a kernel that is compiled for another machine is never launched here.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_TIMEOUT_S = 60
_LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:(@!?\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_LABEL = re.compile(r"^(\.L\w+):")
_TARGET = re.compile(r"`\((\.L\w+)\)")
_UNIFORM = re.compile(r"\bUR(\d+)\b")
_PREDICATE = re.compile(r"!?U?P(?:\d+|T|R)$")
# Where control goes is not in the text: no verdict.
_OPAQUE = ("BRX", "BRXU", "JMX", "JMXU", "CALL", "RET")
_ENDS = ("EXIT", "KILL")


@dataclass(frozen=True, slots=True)
class _Instruction:
    """Sets of uniform registers are bits. ``follows``: control may go on to the next one."""

    text: str
    reads: int
    writes: int
    targets: tuple[str, ...]
    follows: bool


def unwritten_registers(cubin: bytes, tool: str) -> tuple[str, ...]:
    """Instructions that read a uniform register which no path from the kernel's start has written.

    ``tool`` is nvdisasm. None where the code calls or jumps to computed addresses. Raises OSError
    or subprocess.SubprocessError where the tool does not run.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run(
            [tool, "--no-dataflow", "--print-code", str(path)],
            capture_output=True,
            text=True,
            check=True,
            timeout=_TIMEOUT_S,
        )
    return unwritten_in(done.stdout)


def unwritten_in(sass: str) -> tuple[str, ...]:
    """The same for the text that nvdisasm prints of one kernel."""
    code, labels = _parsed(sass)
    if any(_opcode(x.text) in _OPAQUE for x in code):
        return ()
    joins = tuple(t for x in code if _opcode(x.text) == "BSSY" for t in x.targets)
    written = _may_be_written(code, labels, joins)
    return tuple(
        x.text
        for x, before in zip(code, written, strict=True)
        if before is not None and x.reads & ~before
    )


def _parsed(sass: str) -> tuple[list[_Instruction], dict[str, int]]:
    code: list[_Instruction] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        label = _LABEL.match(line)
        if label is not None:
            labels[label[1]] = len(code)
            continue
        found = _LINE.match(line)
        if found is not None:
            code.append(_instruction(found[1] or "", found[2], found[3]))
    return code, labels


def _instruction(guard: str, opcode: str, operands: str) -> _Instruction:
    parts = [p.strip() for p in operands.split(",")] if operands else []
    numbers = [int(n) for n in _UNIFORM.findall(operands)]
    if "gdesc[" in operands:
        numbers = [n + k for n in numbers for k in _descriptor(parts)]
    writes = 0
    plain = next((p for p in parts if not _PREDICATE.match(p)), "")
    only = _UNIFORM.fullmatch(plain)
    if only is not None and "SETP" not in opcode:
        # What comes first is written; the rest is read.
        numbers.remove(int(only[1]))
        writes = (1 << _width(opcode)) - 1 << int(only[1])
    reads = 0
    for number in numbers:
        reads |= 1 << number
    base = opcode.partition(".")[0]
    return _Instruction(
        text=f"{opcode} {operands}".strip(),
        reads=reads,
        writes=writes,
        targets=tuple(_TARGET.findall(operands)),
        follows=bool(guard) or base not in ("BRA", "JMP", *_ENDS),
    )


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


def _opcode(text: str) -> str:
    return re.split(r"[. ]", text, maxsplit=1)[0]


def _may_be_written(
    code: Sequence[_Instruction], labels: dict[str, int], joins: Sequence[str]
) -> list[int | None]:
    """For each instruction the registers that some path to it writes; None if there is no path."""
    before: list[int | None] = [None] * len(code)
    todo = [(0, 0)] if code else []
    while todo:
        position, written = todo.pop()
        if position >= len(code):
            continue
        known = before[position]
        merged = written if known is None else known | written
        if merged == known:
            continue
        before[position] = merged
        instruction = code[position]
        after = merged | instruction.writes
        opcode = _opcode(instruction.text)
        targets = joins if opcode == "BSYNC" else instruction.targets
        if opcode != "BSSY":
            todo.extend((labels[t], after) for t in targets if t in labels)
        if instruction.follows:
            todo.append((position + 1, after))
    return before
