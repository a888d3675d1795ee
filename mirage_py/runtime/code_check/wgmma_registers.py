"""Register rules of wgmma: no access to accumulators or operands in flight, and a fence between a
write to them and the wgmma.

A data-flow analysis over all ways through an entry, so also over some that no thread takes. A move
only gives a register another name; what was under way there is so here.
"""

from __future__ import annotations

from collections.abc import Mapping

from mirage_py.runtime.code_check.events import REGISTERS, Fault
from mirage_py.runtime.code_check.ptx.flow import EXIT, flow_of, names_in, read, written
from mirage_py.runtime.code_check.ptx.ptx import Entry, Instruction, Vector

# For each register: how many groups were ended since its product began (0: its own is open), and
# whether the product only reads it.
_Pending = Mapping[str, tuple[int, bool]]
_MOST_GROUPS = 32
_EVERYTHING = "*"


def register_faults(entry: Entry) -> list[Fault]:
    """Faults, one a line."""
    if not any(i.parts[:2] == ("wgmma", "mma_async") for i in entry.instructions):
        return []
    flow = flow_of(entry)
    operands = {
        name
        for i in entry.instructions
        if i.parts[:2] == ("wgmma", "mma_async")
        for o in i.operands[:2]
        if isinstance(o, Vector)
        for name in names_in(o)
    }
    related = _moved(entry, operands)
    # Before the first fence of all, everything counts as written.
    start = frozenset({_EVERYTHING})
    states: dict[int, tuple[dict[str, tuple[int, bool]], frozenset[str]]] = {0: ({}, start)}
    waiting = [0]
    faults: dict[int, Fault] = {}
    while waiting:
        at = waiting.pop()
        pending, dirty = dict(states[at][0]), set(states[at][1])
        block = flow.blocks[at]
        for n in range(block.first, block.stop):
            _step(entry.instructions[n], pending, dirty, related, faults)
        for to in block.successors:
            if to == EXIT:
                continue
            known = states.get(to)
            merged = _joined(known[0], pending) if known else dict(pending)
            both = frozenset(dirty) | (known[1] if known else frozenset())
            if known is None or merged != known[0] or both != known[1]:
                states[to] = merged, both
                if to not in waiting:
                    waiting.append(to)
    return list(faults.values())


def _moved(entry: Entry, operands: set[str]) -> frozenset[str]:
    """Operands of products and what is moved to or from them."""
    found = set(operands)
    moves = [i for i in entry.instructions if i.parts[0] == "mov" and len(i.operands) == 2]
    size = -1
    while size != len(found):
        size = len(found)
        for i in moves:
            names = [*names_in(i.operands[0]), *names_in(i.operands[1])]
            if len(names) == 2 and (names[0] in found or names[1] in found):
                found.update(names)
    return frozenset(found)


def _joined(a: _Pending, b: _Pending) -> dict[str, tuple[int, bool]]:
    """What may be under way by either way: the youngest."""
    found = dict(a)
    for name, (age, only_read) in b.items():
        if name in found:
            found[name] = min(age, found[name][0]), only_read and found[name][1]
        else:
            found[name] = age, only_read
    return found


def _step(
    i: Instruction,
    pending: dict[str, tuple[int, bool]],
    dirty: set[str],
    related: frozenset[str],
    faults: dict[int, Fault],
) -> None:
    if i.parts[0] == "wgmma":
        return _product(i, pending, dirty, faults)
    if _moves(i, pending, dirty, faults):
        return None
    outs = written(i)
    if pending:
        for name in read(i):
            if name in pending and not pending[name][1]:
                _say(i, name, faults)
        for name in outs:
            if name in pending:
                _say(i, name, faults)
    dirty.update(name for name in outs if name in related)
    return None


def _moves(
    i: Instruction,
    pending: dict[str, tuple[int, bool]],
    dirty: set[str],
    faults: dict[int, Fault],
) -> bool:
    """Do a plain move; False for what is none."""
    outs = written(i)
    if i.parts[0] != "mov" or len(i.operands) != 2 or len(outs) != 1 or i.guard:
        return False
    source, name = i.operands[1], outs[0]
    if source is None or isinstance(source, int):
        # A constant is nothing that was computed late; it may not come over sums under way.
        if name in pending:
            _say(i, name, faults)
        dirty.discard(name)
        return True
    if not isinstance(source, str):
        return False
    (dirty.add if source in dirty else dirty.discard)(name)
    if source in pending:
        pending[name] = pending[source]
    else:
        pending.pop(name, None)
    return True


def _product(
    i: Instruction,
    pending: dict[str, tuple[int, bool]],
    dirty: set[str],
    faults: dict[int, Fault],
) -> None:
    what = i.parts[1]
    if what == "fence":
        dirty.clear()
    elif what == "commit_group":
        for name, (age, only_read) in pending.items():
            pending[name] = min(age + 1, _MOST_GROUPS), only_read
    elif what == "wait_group":
        left = i.operands[0]
        assert isinstance(left, int)
        for name in [n for n, (age, _) in pending.items() if age > left]:
            del pending[name]
    elif what == "mma_async":
        sums = list(names_in(i.operands[0]))
        rows = list(names_in(i.operands[1])) if isinstance(i.operands[1], Vector) else []
        for name in (*sums, *rows):
            if name in dirty or _EVERYTHING in dirty:
                text = f"{name} may be written since the last wgmma.fence"
                faults.setdefault(i.line, Fault(REGISTERS, i.line, text))
        for name in rows:
            if name in pending and not pending[name][1]:
                _say(i, name, faults)
            pending.setdefault(name, (0, True))
            pending[name] = 0, pending[name][1]
        for name in sums:
            pending[name] = 0, False


def _say(i: Instruction, name: str, faults: dict[int, Fault]) -> None:
    text = f"{i.opcode} touches {name}, which products under way use"
    faults.setdefault(i.line, Fault(REGISTERS, i.line, text))
