"""Equality saturation: applies the laws to a program until they add nothing, or a bound is hit."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from mirage_py.axioms.saturation.bindings import egg
from mirage_py.axioms.saturation.commands import (
    DEPENDENCE_TABLE,
    MAX_AXES,
    NO_SIZE,
    Command,
    commands,
    run_dependence,
    run_once,
)
from mirage_py.axioms.saturation.language import (
    EXTENT_TABLE,
    HERE,
    TABLE_SUFFIX,
    Expr,
    integer,
    translate,
    variable,
)
from mirage_py.axioms.terms import class_table
from mirage_py.axioms.terms.class_table import Bound, ClassTable
from mirage_py.axioms.terms.law import RINGS, Ring
from mirage_py.axioms.terms.term import REDUCTIONS, Term, size, subterms
from mirage_py.errors import InputError, UnsupportedError
from mirage_py.reasons import Code

# Every benchmark program stops by itself within 20 rounds; a bound is for the others.
ROUNDS = 40
MAX_NODES = 20_000
_OF_CUT = 0.25


# E-graphs without a program, with the laws that they were told, by the identities of these: to tell
# them takes longer than all rounds of a usual program. The main thread's: none ends in another one.
_IDLE: dict[tuple[int, ...], tuple[Sequence[Command], egg.EGraph]] = {}
_MOST_IDLE = 8


def saturate(
    roots: Sequence[Term],
    leaf_axes: Mapping[str, tuple[str, ...]],
    *,
    axes: Sequence[str],
    ring: Ring = "factored",
    rounds: int = ROUNDS,
    max_nodes: int = MAX_NODES,
) -> ClassTable:
    """All terms that the laws make of the roots, as a table.

    ``leaf_axes`` gives for each leaf the axes it depends on; ``axes`` all axes in the program's
    order. Bounds are counts, so a result does not depend on the machine: after ``rounds``
    applications of all laws, or after the first one that leaves more than ``max_nodes`` rows,
    saturation stops and the table's ``bound`` says which. Of the latter the table is that of an
    earlier round, the last one that left at most a quarter as many: they triple each round then,
    and whatever is made of them, too. Raises InputError for an axis or leaf that is not declared.
    """
    saturation = Saturation(roots, leaf_axes, axes=axes, ring=ring)
    try:
        return _saturated(saturation, rounds, max_nodes)
    finally:
        saturation.close()


def _saturated(saturation: Saturation, rounds: int, max_nodes: int) -> ClassTable:
    bound: Bound = "rounds"
    small = 0
    while saturation.rounds < rounds:
        if saturation.nodes() <= _OF_CUT * max_nodes:
            small = saturation.rounds
        changed = saturation.step(max_nodes)
        if saturation.nodes() > max_nodes:
            saturation.restart(small, max_nodes)
            bound = "nodes"
            break
        if not changed:
            bound = "none"
            break
    return saturation.freeze(bound)


class Saturation:
    """An e-graph of some roots that takes one round of laws at a time."""

    def __init__(
        self,
        roots: Sequence[Term],
        leaf_axes: Mapping[str, tuple[str, ...]],
        *,
        axes: Sequence[str],
        ring: Ring,
    ) -> None:
        _check(roots, leaf_axes, axes, ring)
        self.roots = tuple(roots)
        self.axes = tuple(axes)
        self.ring: Ring = ring
        bits = {axis: 1 << n for n, axis in enumerate(self.axes)}
        facts = extent_facts(self.roots, self.axes) if ring == "expanded" else ()
        terms = (*self.roots, *(t for pair in facts for t in pair))
        # Factored before expanded: the expanded forms are then seen in fewer rounds and fewer rows.
        rings = RINGS[: 1 + RINGS.index(ring)]
        self._round = [run_once(ring) for ring in rings]
        self._laws = commands(terms, rings)
        told: list[egg.ActionCommand] = []

        def register(expr: Expr) -> Expr:
            # By name, because egglog walks expressions by recursion: deep programs would exhaust
            # its stack. A name ends in a letter, see TABLE_SUFFIX.
            name = f"${len(told)}-of-program"
            told.append(egg.ActionCommand(egg.Let(HERE, name, expr)))
            return variable(name)

        exprs = translate(terms, {axis: integer(bit) for axis, bit in bits.items()}, register)
        for term, expr in exprs.items():
            if term.op == "leaf":
                mask = integer(NO_SIZE | sum(bits[axis] for axis in leaf_axes[term.attr]))
                told.append(egg.ActionCommand(egg.Set(HERE, DEPENDENCE_TABLE, [expr], mask)))
        for left, right in facts:
            told.append(egg.ActionCommand(egg.Union(HERE, exprs[left], exprs[right])))
        self._told = told
        self._egraph = _with_laws(self._laws)
        self._begin()

    def _begin(self) -> None:
        self.rounds = 0
        self._egraph.run_program(egg.Push(1), *self._told)

    def step(self, max_nodes: int) -> bool:
        """Apply every law once, everywhere. False when nothing changed.

        The laws of the expanded ring wait if those of the factored one already crossed the bound.
        """
        self.rounds += 1
        changed = False
        for laws in self._round:
            (done,) = self._egraph.run_program(laws)
            assert isinstance(done, egg.RunScheduleOutput)
            changed |= done.report.updated
            if self.nodes() > max_nodes:
                break
        return changed

    def restart(self, rounds: int, max_nodes: int) -> None:
        """Back to what was there after so many rounds, made again: few programs are cut, and to
        keep a copy took as long as the round after it.
        """
        self._egraph.run_program(egg.Pop(HERE, 1))
        self._begin()
        while self.rounds < rounds:
            self.step(max_nodes)

    def close(self) -> None:
        """Give the e-graph back: it may end in its own thread only."""
        egraph = self._egraph
        del self._egraph
        if _in_main_thread():
            egraph.run_program(egg.Pop(HERE, 1))
            _IDLE[tuple(map(id, self._laws))] = self._laws, egraph
            if len(_IDLE) > _MOST_IDLE:
                del _IDLE[next(iter(_IDLE))]

    def nodes(self) -> int:
        """Number of rows a table would have now."""
        (tables,) = self._egraph.run_program(egg.PrintSize(HERE, None))
        assert isinstance(tables, egg.PrintAllFunctionsSize)
        return sum(rows for table, rows in tables.sizes if table.endswith(TABLE_SUFFIX))

    def freeze(self, bound: Bound) -> ClassTable:
        """The table as it is now."""
        # Classes that the last laws made have no dependence yet.
        self._egraph.run_program(run_dependence())
        low = self._egraph
        number: dict[object, int] = {}
        masks: dict[int, int] = {}
        rows: list[tuple[str, str, tuple[int, ...], int]] = []
        for table, function in low.freeze().functions.items():
            op = "size" if table == EXTENT_TABLE else table.removesuffix(TABLE_SUFFIX)
            for row in function.rows:
                inputs = list(row.inputs)
                if table == DEPENDENCE_TABLE:
                    class_ = number.setdefault(inputs[0], len(number))
                    masks[class_] = low.value_to_i64(row.output)
                    continue
                if not table.endswith(TABLE_SUFFIX):
                    continue  # egglog's own bindings of the roots
                attr = ""
                if function.input_sorts and function.input_sorts[0] == "String":
                    attr = low.value_to_string(inputs.pop(0))
                elif function.input_sorts and function.input_sorts[0] == "i64":
                    attr = self.axes[low.value_to_i64(inputs.pop(0)).bit_length() - 1]
                args = tuple(number.setdefault(i, len(number)) for i in inputs)
                rows.append((op, attr, args, number.setdefault(row.output, len(number))))
        dependence_ = {
            c: tuple(a for n, a in enumerate(self.axes) if mask >> n & 1)
            for c, mask in masks.items()
        }
        return class_table.build(
            rows, dependence_, self.roots, ring=self.ring, rounds=self.rounds, bound=bound
        )


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _with_laws(laws: Sequence[Command]) -> egg.EGraph:
    """An e-graph that has been told the laws and nothing else."""
    idle = _IDLE.pop(tuple(map(id, laws)), None) if _in_main_thread() else None
    if idle is not None:
        return idle[1]
    egraph = egg.EGraph()
    egraph.run_program(*laws)
    return egraph


def _check(
    roots: Sequence[Term],
    leaf_axes: Mapping[str, tuple[str, ...]],
    axes: Sequence[str],
    ring: str,
) -> None:
    if ring not in RINGS:
        raise InputError(f"unknown ring '{ring}'", repair=f"use one of {', '.join(RINGS)}")
    if len(axes) > MAX_AXES:
        raise UnsupportedError(
            f"a program of {len(axes)} axes",
            why=f"dependence is kept in {MAX_AXES} bits",
            repair="split fewer dimensions over loops or grids",
            code=Code.TOO_MANY_AXES,
        )
    used = {axis: f"leaf '{name}'" for name, own in leaf_axes.items() for axis in own}
    for term in subterms(*roots):
        if term.op in REDUCTIONS:
            used[term.attr] = f"a {term.op}"
        elif term.op == "var":
            raise InputError(f"variable '{term}' in a program", why="variables belong to laws")
        elif term.op == "leaf" and term.attr not in leaf_axes:
            raise InputError(f"the axes of leaf '{term}' are not given")
    for axis, where in used.items():
        if axis not in axes:
            raise InputError(f"axis '{axis}' of {where} is not among the axes {tuple(axes)}")


def extent_facts(roots: Sequence[Term], axes: Sequence[str]) -> tuple[tuple[Term, Term], ...]:
    """Equal pairs for the dimensions whose size the roots use. Axis "k.t" belongs to "k".

    The law of sizes: the size of a dimension is the product of the sizes of its axes.
    """
    facts: list[tuple[Term, Term]] = []
    for term in subterms(*roots):
        parts = [size(axis) for axis in axes if axis.rpartition(".")[0] == term.attr]
        if term.op == "size" and parts:
            product = parts[0]
            for part in parts[1:]:
                product = product * part
            facts.append((term, product))
    return tuple(facts)
