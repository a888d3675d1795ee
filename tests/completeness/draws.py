"""One random tiny input of a program in a configuration: leaves, outputs, values of graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from completeness.graphs import Graph, Step
from completeness.kinds import HAND, Configuration, Kind

from mirage_py.ugraph.field import FIELDS, DivisionByZero, FieldArray, FieldOps
from mirage_py.ugraph.interpret.meaning import FieldMeaning
from mirage_py.ugraph.ir.node import REDUCING, Attr
from mirage_py.ugraph.ir.program import Program

# A looped dimension has two iterations with tiles of two points.
_LOOP = (2, 2)
_ATTEMPTS = 64
_ANY_SIZE = 7919
# Operators that agree with others on some inputs: one point is not enough.
_PIECEWISE = ("mask", "max", "maximum", "minimum", "relu")


def reduced_dims(program: Program) -> tuple[str, ...]:
    """The dimensions that some operator of the program reduces."""
    found = {d for n in program.nodes if n.op in REDUCING for d in n.reduced}
    return tuple(d for d in program.dim_names if d in found)


class Draw:
    """Values have an axis for trials, then a loop and a tile axis for each reduced dimension.

    Along the other dimensions every value is pointwise, so one point stands for all. ``leaves`` are
    the program's, as each kernel reads them; with ``both_ways`` what is read in tiles can be read
    whole as well. With ``true_sizes`` off the size of a dimension is any number, whatever the
    number of its points.
    """

    def __init__(
        self,
        program: Program,
        configuration: Configuration,
        seed: int,
        *,
        both_ways: bool = False,
        true_sizes: bool = True,
    ) -> None:
        self.program = program
        self.configuration = configuration
        self.reduced = reduced_dims(program)
        self.axes = {d: (1 + 2 * n, 2 + 2 * n) for n, d in enumerate(self.reduced)}
        self.seed = seed
        self.ops = FieldOps(FIELDS[0], seed)
        self.meaning = FieldMeaning(self.ops)
        self.leaves = tuple(self._leaves(both_ways))
        self._true_sizes = true_sizes
        self._trials = 8 if any(n.op in _PIECEWISE for n in program.nodes) else 2
        looped = [d for loops in configuration.looped for d in loops]
        self._extents = {
            d: _LOOP if d in looped else (1, 5 + 2 * n) for n, d in enumerate(self.reduced)
        }

    def value_of(self, leaf: Step) -> FieldArray:
        """A leaf's value: random elements, random bits for a mask, a scalar as it is."""
        if leaf.op == "const":
            assert isinstance(leaf.attr, float)
            return self._scalar(leaf.attr)
        if leaf.op == "size":
            loop, tile = self._extents[str(leaf.attr)]
            return self._scalar(loop * tile if self._true_sizes else _ANY_SIZE)
        shape = self._shape(leaf.kind.dims)
        draw = self.ops.random_bits if leaf.op == "mask" else self.ops.random
        return draw(shape, f"{leaf.op} {leaf.attr}")

    def outputs(self) -> list[FieldArray]:
        """The program's own values. Raises DivisionByZero."""
        done: list[FieldArray] = []
        for node in self.program.nodes:
            if not node.args:
                done.append(self.value_of(Step(node.op, (), node.attr, Kind(None, node.dims))))
            else:
                done.append(self._apply(node.op, node.attr, [done[a] for a in node.args], None))
        return [done[o.node] for o in self.program.outputs]

    def values(
        self, graph: Graph, instead: Mapping[int, FieldArray] | None = None
    ) -> list[FieldArray]:
        """The value of each step; ``instead`` has other ones for some. Raises DivisionByZero."""
        given = instead or {}
        done: list[FieldArray] = []
        for n, step in enumerate(graph.steps):
            if n in given:
                done.append(given[n])
            elif not step.args:
                done.append(self.value_of(step))
            else:
                looped = graph.steps[step.args[0]].kind.looped
                args = [done[a] for a in step.args]
                done.append(self._apply(step.op, step.attr, args, looped))
        return done

    def _leaves(self, both_ways: bool) -> Iterator[Step]:
        hidden = () if self.configuration.again else self.configuration.gridded
        for node in dict.fromkeys(n for n in self.program.nodes if not n.args):
            for kernel in range(len(self.configuration.looped)):
                if kernel and any(d in hidden for d in node.dims):
                    continue
                kinds = dict.fromkeys(self.configuration.read(node.dims, kernel))
                if both_ways:
                    kinds[Kind(None, node.dims, kernel)] = None
                yield from (Step(node.op, (), node.attr, kind) for kind in kinds)

    def _shape(self, dims: Sequence[str]) -> tuple[int, ...]:
        extents = [self._extents[d] if d in dims else (1, 1) for d in self.reduced]
        return (self._trials, *(e for pair in extents for e in pair))

    def _scalar(self, number: float) -> FieldArray:
        return self.ops.constant(number).reshape((1,) * (1 + 2 * len(self.reduced)))

    def _apply(
        self, op: str, attr: Attr, args: Sequence[FieldArray], looped: str | None
    ) -> FieldArray:
        return evaluated(self.meaning, op, attr, args, looped, self.axes)


def evaluated(
    meaning: FieldMeaning,
    op: str,
    attr: Attr,
    args: Sequence[FieldArray],
    looped: str | None,
    axes: Mapping[str, tuple[int, int]],
) -> FieldArray:
    """An operator on values of a loop, or of none. ``axes`` are those of each dimension.

    An accumulator reduces the iterations of its loop; any other operator the tile of the loop that
    it is in, and all of any other dimension.
    """
    if op == HAND:
        return args[0]
    if attr is None:
        return meaning.apply(op, None, args)
    assert isinstance(attr, tuple)
    dims = [str(d) for d in attr]
    if op.startswith("accum_"):
        over = [axes[d][0] for d in dims]
    else:
        over = [axis for d in dims for axis in axes[d][1 if d == looped else 0 :]]
    if op.endswith("max"):
        return meaning.max(args[0], over)
    return meaning.sum(meaning.apply("mul", None, args) if op == "matmul" else args[0], over)


def drawn(
    program: Program, configuration: Configuration, seed: int, *, both_ways: bool = False
) -> tuple[Draw, list[FieldArray]]:
    """A draw on which the program divides by no zero, and its outputs."""
    for attempt in range(_ATTEMPTS):
        draw = Draw(program, configuration, seed * _ATTEMPTS + attempt, both_ways=both_ways)
        try:
            return draw, draw.outputs()
        except DivisionByZero:
            continue
    raise AssertionError(f"{program.name} divides by zero in every draw")
