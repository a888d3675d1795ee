"""Control flow of an entry: basic blocks, where the ways from each of them meet again, and which
registers need not be followed because they never hold anything but data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mirage_py.runtime.code_check.ptx.integers import KNOWN, is_integer
from mirage_py.runtime.code_check.ptx.ptx import Address, Entry, Instruction, Vector

EXIT = -1
_ENDS = ("ret", "exit")


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions ``first`` up to ``stop``. ``target`` is where its branch leads, ``following``
    what comes without it; EXIT for neither.
    """

    first: int
    stop: int
    target: int
    following: int
    branch: Instruction | None

    @property
    def successors(self) -> tuple[int, ...]:
        """Blocks, EXIT among them."""
        if self.branch is None:
            return (self.following,)
        if not self.branch.guard:
            return (self.target,)
        return (self.target, self.following)


@dataclass(frozen=True, slots=True)
class Flow:
    """``meets[b]`` is the first block that every way from ``b`` to the end comes to, or EXIT."""

    blocks: tuple[Block, ...]
    meets: tuple[int, ...]


def flow_of(entry: Entry) -> Flow:
    """Blocks in the order of the text; the first is where it begins."""
    code = entry.instructions
    starts = {0}
    starts |= {entry.labels[str(i.operands[-1])] for i in code if i.parts[0] == "bra"}
    starts |= {n + 1 for n, i in enumerate(code) if i.parts[0] == "bra" or i.parts[0] in _ENDS}
    order = sorted(s for s in starts if s < len(code))
    number = {start: n for n, start in enumerate(order)}
    blocks: list[Block] = []
    for n, start in enumerate(order):
        stop = order[n + 1] if n + 1 < len(order) else len(code)
        last = code[stop - 1]
        following = n + 1 if n + 1 < len(order) else EXIT
        if last.parts[0] == "bra":
            to = entry.labels[str(last.operands[-1])]
            blocks.append(Block(start, stop - 1, number.get(to, EXIT), following, last))
        elif last.parts[0] in _ENDS:
            blocks.append(Block(start, stop - 1, EXIT, following, last))
        else:
            blocks.append(Block(start, stop, EXIT, following, None))
    return Flow(tuple(blocks), _meets(blocks))


def _meets(blocks: Sequence[Block]) -> tuple[int, ...]:
    """Immediate postdominators, by sets as bits: kernels have some hundred blocks at most."""
    count = len(blocks)
    end = 1 << count
    everything = (end << 1) - 1
    after = [everything] * count
    changed = True
    while changed:
        changed = False
        for n in reversed(range(count)):
            common = everything
            for s in blocks[n].successors:
                common &= end if s == EXIT else after[s]
            new = common | 1 << n
            changed |= new != after[n]
            after[n] = new
    meets = []
    for n in range(count):
        others = after[n] & ~(1 << n) & ~end
        # The nearest one is that which all others come after.
        nearest = [m for m in range(count) if others >> m & 1 and after[m] & ~end == others]
        meets.append(nearest[0] if nearest else EXIT)
    return tuple(meets)


# What a thread computes from registers alone; all else has effects, or is a load.
_PURE = KNOWN | {
    *("setp", "fma", "ex2", "lg2", "rsqrt", "sqrt", "rcp", "sin", "cos", "tanh", "mma", "testp"),
    *("clz", "brev", "bfind", "fns", "vote", "shfl", "createpolicy", "set", "sad", "mapa"),
    *("copysign", "activemask", "match", "redux", "isspacep", "slct", "getctarank", "elect"),
    *("vadd", "vmax", "vmin", "dp4a", "mul24", "mad24"),
}


def names_in(operand: object) -> Iterator[str]:
    """Registers and symbols that an operand names."""
    if isinstance(operand, str):
        yield from operand.split("|")
    elif isinstance(operand, Vector):
        for item in operand.items:
            yield from names_in(item)
    elif isinstance(operand, Address):
        yield from names_in(operand.base)
        for item in operand.coordinates:
            yield from names_in(item)


def is_pure(instruction: Instruction) -> bool:
    """Whether it does nothing but write its first operand."""
    return instruction.parts[0] in _PURE


def written(instruction: Instruction) -> tuple[str, ...]:
    """Registers that it writes."""
    name = instruction.parts[0]
    if not instruction.operands:
        return ()
    first = instruction.operands[0]
    if name in ("ld", "ldmatrix", "wgmma", "atom", "ldu") and instruction.parts[1:2] != ("fence",):
        return tuple(names_in(first))
    if name == "mbarrier" and instruction.parts[1] in ("try_wait", "test_wait", "arrive"):
        return tuple(names_in(first)) if isinstance(first, str) and first != "_" else ()
    if is_pure(instruction):
        return tuple(names_in(first))
    return ()


def read(instruction: Instruction) -> tuple[str, ...]:
    """Registers and symbols that it reads, its guard among them."""
    outs = written(instruction)
    sources = instruction.operands[1:] if outs else instruction.operands
    found = [n for o in sources for n in names_in(o)]
    if instruction.parts[0] == "wgmma":
        found += outs
    return (*found, instruction.guard) if instruction.guard else tuple(found)


def followed(entry: Entry) -> list[bool]:
    """For each instruction whether what it does may matter: all but computations on data alone."""
    code = entry.instructions
    pure = [is_pure(i) for i in code]
    definitions: dict[str, list[int]] = {}
    for n, instruction in enumerate(code):
        for name in written(instruction):
            definitions.setdefault(name, []).append(n)
    opaque: dict[str, bool] = {}
    data = [_is_data(i) for i in code]
    changed = True
    while changed:
        changed = False
        for n, instruction in enumerate(code):
            if not data[n] and pure[n] and _reads_data(instruction, opaque):
                data[n] = changed = True
        for name, places in definitions.items():
            if name not in opaque and all(data[n] for n in places):
                opaque[name] = changed = True
    return [
        not pure[n] or any(name not in opaque for name in written(code[n]))
        for n in range(len(code))
    ]


def _is_data(instruction: Instruction) -> bool:
    """Whether its results depend on data whatever it reads."""
    name, kind = instruction.parts[0], instruction.parts[-1]
    if name in ("ld", "mbarrier", "elect"):
        return False
    if name in ("ldmatrix", "wgmma", "mma", "atom"):
        return True
    if name in ("shfl", "vote", "mapa", "activemask", "redux"):
        return False
    if not is_pure(instruction):
        return False
    if kind != "pred" and not is_integer(kind):
        return True
    return name == "cvt" and not is_integer(instruction.parts[-2])


def _reads_data(instruction: Instruction, opaque: dict[str, bool]) -> bool:
    sources = [n for o in instruction.operands[1:] for n in names_in(o)]
    if instruction.parts[-1] == "pred" and instruction.parts[0] in ("and", "or"):
        return all(name in opaque for name in sources)
    return any(name in opaque for name in sources)


def live_at(entry: Entry, flow: Flow, keep: Sequence[bool]) -> list[frozenset[str]]:
    """For each block the registers that it, or what follows, reads before writing them."""
    numbers: dict[str, int] = {}
    uses, kills = [], []
    for block in flow.blocks:
        use = kill = 0
        stop = block.stop + (block.branch is not None)
        for n in range(block.first, stop):
            instruction = entry.instructions[n]
            if not keep[n]:
                continue
            for name in read(instruction):
                use |= (1 << numbers.setdefault(name, len(numbers))) & ~kill
            if not instruction.guard:
                for name in written(instruction):
                    kill |= 1 << numbers.setdefault(name, len(numbers))
        uses.append(use)
        kills.append(kill)
    live = [0] * len(uses)
    changed = True
    while changed:
        changed = False
        for n in reversed(range(len(uses))):
            out = 0
            for s in flow.blocks[n].successors:
                out |= 0 if s == EXIT else live[s]
            new = uses[n] | out & ~kills[n]
            changed |= new != live[n]
            live[n] = new
    names = list(numbers)
    return [frozenset(names[b] for b in range(len(names)) if bits >> b & 1) for bits in live]
