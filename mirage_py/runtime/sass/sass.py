"""Machine code as nvdisasm prints it: instructions, and where control may go from each."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mirage_py.runtime.base.private_folder import scratch_folder

_TIMEOUT_S = 60
_LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:(@!?\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
# Labels inside of a function, and functions of the compiler's own, such as that of a division.
_LABEL = re.compile(r"^(\.L\w+|\$[\w$]+):")
_TARGET = re.compile(r"`\((\.L\w+|\$[\w$]+)\)")
# Where control goes is not in the text.
_OPAQUE = ("BRX", "BRXU", "JMX", "JMXU")
_JUMPS = ("BRA", "JMP")
_ENDS = ("EXIT", "KILL", "RET")


@dataclass(frozen=True, slots=True)
class Instruction:
    """``guard`` is its predicate (``@!P0``) or nothing, ``opcode`` has its dots."""

    guard: str
    opcode: str
    operands: tuple[str, ...]

    @property
    def base(self) -> str:
        """The opcode up to its first dot."""
        return self.opcode.partition(".")[0]

    @property
    def text(self) -> str:
        """As it is printed, without the guard."""
        return f"{self.opcode} {', '.join(self.operands)}".strip()


@dataclass(frozen=True, slots=True)
class Code:
    """The instructions of one kernel. ``followers`` are the places to which control may go on from
    each: from a call to the function and after it, from ``RET`` nowhere. ``joins`` are those where
    threads that went apart may meet (``BSSY``), ``returns`` those after calls. ``is_opaque``: it
    calls or jumps to computed addresses, which followers do not know.
    """

    instructions: tuple[Instruction, ...]
    followers: tuple[tuple[int, ...], ...]
    joins: tuple[int, ...]
    returns: tuple[int, ...]
    is_opaque: bool


def disassembled(cubin: bytes, tool: str) -> str:
    """What nvdisasm at ``tool`` prints of a cubin.

    Raises OSError or subprocess.SubprocessError where it does not run.
    """
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run(
            [tool, "--no-dataflow", "--print-code", str(path)],
            capture_output=True,
            text=True,
            check=True,
            timeout=_TIMEOUT_S,
        )
    return done.stdout


def parsed(sass: str) -> Code:
    """The text of one kernel."""
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        label = _LABEL.match(line)
        if label is not None:
            labels[label[1]] = len(found)
            continue
        parts = _LINE.match(line)
        if parts is not None:
            operands = tuple(p.strip() for p in parts[3].split(",")) if parts[3] else ()
            found.append(Instruction(parts[1] or "", parts[2], operands))
    joins = [t for x in found if x.base == "BSSY" for t in _targets(x, labels)]
    calls = [n for n, x in enumerate(found) if x.base == "CALL"]
    are_known = all(_targets(found[n], labels) for n in calls)
    return Code(
        tuple(found),
        tuple(_followers(n, x, labels, len(found)) for n, x in enumerate(found)),
        tuple(joins),
        tuple(n + 1 for n in calls),
        not are_known or any(x.base in _OPAQUE for x in found),
    )


def is_readable(sass: str) -> bool:
    """Whether a text is understood: it has instructions, and its jumps go to labels in it. Other
    versions of nvdisasm may print otherwise, and a tool may print nothing and report no error.
    """
    code = parsed(sass)
    jumps = [x for x in code.instructions if x.base in _JUMPS]
    labels = {m[1] for line in sass.splitlines() if (m := _LABEL.match(line))}
    return bool(code.instructions) and all(
        any(name in labels for operand in x.operands for name in _TARGET.findall(operand))
        for x in jumps
    )


def _followers(
    place: int, instruction: Instruction, labels: dict[str, int], count: int
) -> tuple[int, ...]:
    base, guard = instruction.base, instruction.guard
    targets = [] if base == "BSSY" else _targets(instruction, labels)
    # A jump may have its condition among its operands, as ``BRA.DIV UR4, ...``.
    goes_on = bool(guard) or base not in (*_JUMPS, *_ENDS) or len(instruction.operands) > 1
    if goes_on:
        targets.append(place + 1)
    return tuple(t for t in targets if t < count)


def _targets(instruction: Instruction, labels: dict[str, int]) -> list[int]:
    names = [n for operand in instruction.operands for n in _TARGET.findall(operand)]
    return [labels[n] for n in names if n in labels]
