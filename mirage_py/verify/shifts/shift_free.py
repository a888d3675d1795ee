"""The shift-free form of programs: exp(x - max(x)) / sum(exp(x - max(x))) loses its maximum.

What is subtracted inside an exponential is a free shift if no output depends on it. That is tested,
not matched: the value is replaced by an independent random one, twice, and the outputs must stay
the same in the field. So every spelling of a safe softmax becomes the same program, and the emitted
kernel chooses its own shift. A maximum that matters stays. Where a log gives the shift back, its
uses after the log go too: max(x) + log(sum(exp(x - max(x)))) becomes log(sum(exp(x))).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import cast

from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.field import FIELDS, FieldArray, FieldOps
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FieldMeaning
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.node import REDUCING, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import ELEMENTWISE, operator
from mirage_py.ugraph.rewrite.rebuild import Rule, rebuild
from mirage_py.verify.evaluate.trial import random_inputs, redrawn
from mirage_py.verify.evaluate.work import MAX_TRIAL_WORK, program_work
from mirage_py.verify.shifts.shift_laws import Shifted, ShiftLaws, needs_shift_laws
from mirage_py.verify.sizes.shrink import shrink
from mirage_py.verify.sizes.small_sizes import small_extents

_TRIALS = 4
# (1 - keep) * -1e4 is a mask: without the 1 all that is kept is 1e4 larger, and loses its digits.
_MOST_GAIN = 1e3


@dataclass(frozen=True, slots=True)
class _Shift:
    """``users`` are additions and subtractions of the value ``node``: inside an exponential, and
    perhaps others that undo it behind a log.
    """

    node: int
    users: tuple[int, ...]


def remove_free_shifts(program: Program, *, seed: int) -> tuple[Program, tuple[str, ...]]:
    """The program without its free shifts, and what was removed, in words.

    The result has the same dimensions, inputs, outputs and strides.
    """
    removed: list[str] = []
    while True:
        candidates = _candidates(program)
        free = [] if not candidates else _free(program, candidates, seed)
        if not free:
            return program, tuple(removed)
        # Those that are free whatever the others are; removing them changes which others there are.
        together = _together(program, free)
        removed += [
            f"%{s.node} ({_described(program, s.node)}) only shifts an exponential"
            for s in together
        ]
        rules = {user: _without(program, user, s.node) for s in together for user in s.users}
        program = rebuild(program, rules)


def _together(program: Program, free: Sequence[_Shift]) -> list[_Shift]:
    """The first of the free shifts, and of the others those of other values and other places, as
    long as every input is read without them.
    """
    found: list[_Shift] = []
    for shift in free:
        taken = {user for s in found for user in s.users}
        is_apart = all(s.node != shift.node for s in found) and taken.isdisjoint(shift.users)
        if is_apart and _still_reads_all(program, [*found, shift]):
            found.append(shift)
    return found


def without_infinities(program: Program, *, seed: int) -> Program:
    """The program as the field can evaluate it.

    Minus infinity may stand under a maximum only (see mirage_py.ugraph.rewrite.masks), and there it
    is part of a shift that is free.
    """
    infinite = any(isinstance(n.attr, float) and not isfinite(n.attr) for n in program.nodes)
    return remove_free_shifts(program, seed=seed)[0] if infinite else program


def _described(program: Program, position: int) -> str:
    node = program.nodes[position]
    over = f" over {', '.join(node.reduced)}" if node.op in ("max", "sum", "matmul") else ""
    return f"{node.op}{over}, one value for each point of [{', '.join(node.dims)}]"


def _candidates(program: Program) -> list[_Shift]:
    """Values with fewer dimensions than what they are added to or subtracted from, under an exp.

    A value that is added to operands of several matmuls stays in each or leaves all of them: keys
    need no bias of a norm, but queries and values do, and with it all are products of one operand.
    """
    gains = _gains_in_exponents(program)
    below_exp = [0.0 < gain <= _MOST_GAIN for gain in gains]
    operands = _operands_of_matmuls(program)
    has_log = any(n.op == "log" for n in program.nodes)
    users: dict[int, list[int]] = {}
    outside: dict[int, list[int]] = {}
    multiplied: dict[int, list[int]] = {}
    for position, node in enumerate(program.nodes):
        if node.op in ("add", "sub"):
            for operand in dict.fromkeys(node.args):
                if operands[position]:
                    multiplied.setdefault(operand, []).append(position)
                if below_exp[position] and len(program.nodes[operand].dims) < len(node.dims):
                    users.setdefault(operand, []).append(position)
                elif has_log:
                    outside.setdefault(operand, []).append(position)
    found: list[_Shift] = []
    for operand, positions in users.items():
        found.append(_Shift(operand, tuple(positions)))
        if len(positions) > 1:
            found.extend(_Shift(operand, (p,)) for p in positions)
        others = outside.get(operand, [])
        found.extend(_Shift(operand, (*positions, p)) for p in others)
        if len(others) > 1:
            found.append(_Shift(operand, (*positions, *others)))
    whole = [s for s in found if _is_whole(s, multiplied.get(s.node, ()))]
    return [s for s in whole if _still_reads_all(program, [s])]


def _is_whole(shift: _Shift, multiplied: Sequence[int]) -> bool:
    """Whether all or none of the uses in operands of matmuls are those of the shift."""
    inside = [user in shift.users for user in multiplied]
    return all(inside) or not any(inside)


def _gains_in_exponents(program: Program) -> list[float]:
    """For each node how many times it stands in an exponent at most, as far as numbers say; 0 where
    no exp depends on it.
    """
    nodes = program.nodes
    gains = [0.0] * len(nodes)
    for position in range(len(nodes) - 1, -1, -1):
        node = nodes[position]
        gain = max(gains[position], 1.0) if node.op == "exp" else gains[position]
        for a in dict.fromkeys(node.args) if gain else ():
            gains[a] = max(gains[a], gain * _factor(nodes, node, a))
    return gains


def _factor(nodes: Sequence[Node], node: Node, operand: int) -> float:
    """What a product or quotient with a large number makes of one operand."""
    others = [nodes[a] for a in node.args if a != operand]
    if node.op not in ("mul", "div") or not others or others[0].op != "const":
        return 1.0
    number = abs(float(cast(float, others[0].attr)))
    return max(1.0, number if node.op == "mul" else 1.0 / (number or 1.0))


def _operands_of_matmuls(program: Program) -> list[bool]:
    """For each node whether a matmul multiplies it, or what elementwise operators but exp make of
    it.
    """
    return _below(program, "matmul", lambda op: op != "exp" and operator(op).kind == ELEMENTWISE)


def _below(program: Program, op: str, passes: Callable[[str], bool]) -> list[bool]:
    """For each node whether one of these operators has it for an operand, itself or by what
    operators that it ``passes`` make of it.
    """
    found = [False] * len(program.nodes)
    for position in range(len(program.nodes) - 1, -1, -1):
        node = program.nodes[position]
        if node.op == op or (found[position] and passes(node.op)):
            for a in node.args:
                found[a] = True
    return found


def _still_reads_all(program: Program, shifts: Sequence[_Shift]) -> bool:
    """Whether every input is read without the shifts; a program may not ignore one."""
    without = {(user, s.node) for s in shifts for user in s.users}
    live: dict[int, None] = {}
    todo = [o.node for o in program.outputs]
    while todo:
        position = todo.pop()
        if position in live:
            continue
        live[position] = None
        args = program.nodes[position].args
        todo.extend(a for a in args if (position, a) not in without)
    loads = (program.nodes[n] for n in live if program.nodes[n].op == "load")
    read = {t for n in loads for t in n.access.tensors}
    return all(t.name in read for t in program.inputs)


def _without(program: Program, user: int, shift: int) -> Rule:
    """The addition or subtraction as if the shift were 0."""
    node = program.nodes[user]
    negated = node.op == "sub" and node.args[0] == shift

    def rule(builder: ProgramBuilder, args: Sequence[int]) -> int:
        (kept,) = (a for a, old in zip(args, node.args, strict=True) if old != shift)
        return builder.apply("neg", kept) if negated else kept

    return rule


def _free(program: Program, candidates: Sequence[_Shift], seed: int) -> list[_Shift]:
    """The candidates on which no output depends, in every one of several trials."""
    opened = _opened(program, candidates)
    opened = shrink(opened, small_extents(opened, seed))
    if program_work(opened) > MAX_TRIAL_WORK:
        return []
    free = list(candidates)
    try:
        for trial in range(_TRIALS):
            field = FIELDS[trial % len(FIELDS)]
            free = redrawn(opened, field, seed + trial, partial(_survivors, opened, free))
    except UnsupportedError:
        # The field cannot evaluate the program at all; whoever evaluates it next will say why.
        return []
    return free


def _opened(program: Program, candidates: Iterable[_Shift]) -> Program:
    """The program with every use of a candidate reading an input of its own instead.

    All at once: another candidate may be a maximum over masked values, which has no value in the
    field. A shift that is free for any values of the others is free for those they have; so what
    is reduced without any candidate in it is an input, too: no convolution is evaluated.
    """
    rules = {n: _as_input(program, n) for n in _reduced_apart(program, candidates)}
    for user in dict.fromkeys(u for s in candidates for u in s.users):
        shifts = [s.node for s in candidates if user in s.users]
        rules[user] = _reading_inputs(program, user, tuple(dict.fromkeys(shifts)))
    return rebuild(program, rules, drop_unread_inputs=True)


def _reduced_apart(program: Program, candidates: Iterable[_Shift]) -> Iterator[int]:
    """Sums, maxima and products of data that depend on no candidate."""
    users = {u for s in candidates for u in s.users}
    depends = [False] * len(program.nodes)
    has_data = [False] * len(program.nodes)
    for position, node in enumerate(program.nodes):
        depends[position] = position in users or any(depends[a] for a in node.args)
        has_data[position] = node.op == "load" or any(has_data[a] for a in node.args)
        if node.op in REDUCING and has_data[position] and not depends[position]:
            yield position


def _as_input(program: Program, position: int) -> Rule:
    dims = program.nodes[position].dims

    def rule(builder: ProgramBuilder, args: Sequence[int]) -> int:
        del args
        tensor = builder.input(f"value {position}", [builder.sizes[d] for d in dims], F32)
        return builder.load(tensor.name, dims)

    return rule


def _reading_inputs(program: Program, user: int, shifts: tuple[int, ...]) -> Rule:
    node = program.nodes[user]

    def rule(builder: ProgramBuilder, args: Sequence[int]) -> int:
        operands: list[int] = []
        for old, new in zip(node.args, args, strict=True):
            operands.append(new)
            if old in shifts:
                dims = program.nodes[old].dims
                name = _input_name(old, user)
                if name not in builder.inputs:
                    builder.input(name, [builder.sizes[d] for d in dims], F32)
                operands[-1] = builder.load(name, dims)
        return builder.apply(node.op, *operands)

    return rule


def _input_name(shift: int, user: int) -> str:
    return f"free shift {shift} in {user}"


def _survivors(opened: Program, candidates: Sequence[_Shift], ops: FieldOps) -> list[_Shift]:
    """The candidates that may vary without any output changing in this trial."""
    inputs = random_inputs(opened, ops)
    shapes = {t.name: t.shape for t in opened.inputs}
    # A use inside another candidate is gone from this program, so nothing can be said about it
    # here.
    candidates = [s for s in candidates if all(_input_name(s.node, u) in shapes for u in s.users)]

    def varied(shift: _Shift, key: str) -> dict[str, FieldArray]:
        names = [_input_name(shift.node, user) for user in shift.users]
        return {n: ops.random(shapes[n], f"{key} {shift.node}") for n in names}

    # All uses of one value start with one value.
    start: dict[str, FieldArray] = {}
    for shift in candidates:
        start |= varied(shift, "first")
    outputs = _Outputs(opened, inputs | start, ops)

    def survive(shifts: Sequence[_Shift]) -> list[_Shift]:
        # What does not change with all of them does not with one. Half of them where it does.
        if not shifts:
            return []
        second: dict[str, FieldArray] = {}
        for shift in shifts:
            second |= varied(shift, "second")
        before, after = outputs.at({n: start[n] for n in second}), outputs.at(second)
        if all(ops.equal(before[name], after[name]) for name in before):
            return list(shifts)
        half = len(shifts) // 2
        return [*survive(shifts[:half]), *survive(shifts[half:])] if half else []

    # Other uses of a value are tested by themselves: some are of several shifts.
    firsts = [s for n, s in enumerate(candidates) if s.node not in {c.node for c in candidates[:n]}]
    found = survive(firsts)
    for shift in candidates:
        if shift not in firsts:
            found += survive([shift])
    return [s for s in candidates if s in found]


class _Outputs:
    """The outputs of a program whose free shifts start at ``values`` and are then varied."""

    def __init__(self, opened: Program, values: Mapping[str, FieldArray], ops: FieldOps) -> None:
        self._opened = opened
        self._values = values
        self._meaning = FieldMeaning(ops)
        self._needs_laws = needs_shift_laws(opened)
        self._start: dict[str, FieldArray] | None = None

    def at(self, shifts: Mapping[str, FieldArray]) -> dict[str, FieldArray]:
        """The outputs for these values of some shifts."""
        values = {**self._values, **shifts}
        if self._needs_laws:
            # The other candidates are numbers here: some are no shifts at all.
            laws = ShiftLaws(self._meaning)
            inputs = {n: laws.free(x) if n in shifts else Shifted(x) for n, x in values.items()}
            found = evaluate_program(self._opened, inputs, laws)
            return {name: laws.plain(x) for name, x in found.items()}
        if all(self._values[n] is x for n, x in shifts.items()):
            self._start = self._start or evaluate_program(self._opened, values, self._meaning)
            return self._start
        return evaluate_program(self._opened, values, self._meaning)
