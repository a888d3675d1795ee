"""Input sets on which a kernel is run: random ones and adversarial ones.

random         standard normal; inputs that are the second operand of a matrix product over n
               terms are divided by sqrt(n), so that results keep their size
large          the same, as large as the types allow: up to a quarter of the largest finite value,
               so that the results still have a value in their type, and so that all that the
               program reads may be multiplied before anything is divided
huge_row       one row of the first matrix is that large, the rest is as in random
offset         the first matrix lies around 32: what is computed from its rows less their means must
               not lose the difference
tiny           in the subnormal range of a half or 8-bit type; 2^-40 of random in wider ones
zeros          all 0
constant       all 0.75
alternating    signs alternate along the last axis
outliers       a few columns of the data are up to 3e4 times the rest, gains there are 4
far            the data lies around 1e4, or as far from zero as results allow
far_rows       each row of the data lies around another number, up to there
small          the data is a thousandth of random, gains are a hundredth
integers       whole numbers from -2 to 2 and the constants of comparisons: ties, and zeros
edges          the first and the last element along the longest axis that is summed is up to 30
               times the rest: of a sum little is left without its last term, and of a softmax,
               where all is positive
short_edges    the same along the next axis, with signs
negative       the data is negative, all else positive, logits down to -30 or so: a zero from behind
               the end of a row is the maximum, and most of a sum of exponentials
close          what is subtracted from each other is close together and far from zero
logits         the data as large as makes the largest logit 100
masked_rows    masks hide every third row, and nothing of every third; lengths are the shortest
left_padding   masks hide the beginnings of rows, of each row more
right_padding  masks hide the ends of rows

The sets from ``edges`` on are there for programs that sum, take a maximum, exponentiate, subtract
or mask. Masks are
truth values, or what is added to logits; hidden by those is the lowest number of the type. An input
whose sums are under a root holds what was squared elsewhere: its values are not negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log2, prod, sqrt

import numpy as np

from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.dtypes import F32, DType
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.verify.evaluate.element_types import round_to, smallest_normal
from mirage_py.verify.evaluate.labels import label_ranges
from mirage_py.verify.numerical_check import extreme_inputs
from mirage_py.verify.numerical_check.input_changes import Change, Changes, Probe, kept_as
from mirage_py.verify.numerical_check.input_roles import contracted_terms, data_inputs, under_roots
from mirage_py.verify.numerical_check.periodic_input import PeriodicInput, drawn_elements

__all__ = ["SET_NAMES", "InputSet", "drawn_sets", "input_sets", "set_names"]

# For every program.
_GENERAL = (
    "random", "large", "huge_row", "offset", "tiny", "zeros", "constant", "alternating",
    "outliers", "far", "far_rows", "small", "integers",
)  # fmt: skip
_SPECIAL: Mapping[str, Callable[[Program], bool]] = {
    "edges": extreme_inputs.reduces,
    "short_edges": extreme_inputs.reduces_two,
    "negative": extreme_inputs.has_maxima,
    "close": extreme_inputs.subtracts,
    "logits": extreme_inputs.exponentiates,
    "masked_rows": extreme_inputs.masks,
    "left_padding": extreme_inputs.masks,
    "right_padding": extreme_inputs.masks,
}
SET_NAMES = (*_GENERAL, *_SPECIAL)
# Sets of inputs that are no change of random ones.
_DRAWN = ("integers", "negative", "masked_rows", "left_padding", "right_padding")
_CONSTANT = 0.75
_NEGATIVE_LOGIT = 30.0
_OFFSET = 32.0
_WIDE_TINY = 2.0**-40
# The largest of some thousand normal numbers is about 4.
_NORMAL_PEAK = 4.0


@dataclass(frozen=True)
class InputSet:
    """Every input, each rounded to its type; ``is_mild`` where it was too late to find out how
    large they may be.
    """

    name: str
    inputs: dict[str, PeriodicInput]
    is_mild: bool = False

    @cached_property
    def arrays(self) -> dict[str, FloatArray]:
        """All values, as float64."""
        return {name: x.dense() for name, x in self.inputs.items()}


def set_names(program: Program) -> tuple[str, ...]:
    """The sets that say something about this program, in the order above."""
    return (*_GENERAL, *(name for name, says in _SPECIAL.items() if says(program)))


def input_sets(program: Program, seed: int) -> tuple[InputSet, ...]:
    """All sets of the program in the order above. The same seed gives the same arrays."""
    return tuple(drawn_sets(program, seed, set_names(program)))


def drawn_sets(
    program: Program, seed: int, names: Sequence[str], deadline: float | None = None
) -> Iterator[InputSet]:
    """The sets of these names, one after the other. After ``deadline`` (of ``time.monotonic``) no
    larger numbers are looked for, of those with which results still fit their types.
    """
    draw = _Draw(program, seed, deadline)
    for name in names:
        inputs = draw.inputs(name)
        stored = {t.name: _as_stored(t, inputs[t.name]) for t in program.inputs}
        yield InputSet(name, stored, draw.is_mild)


class _Draw:
    """Everything that the sets of one program have in common."""

    def __init__(self, program: Program, seed: int, deadline: float | None) -> None:
        self._program = program
        self._deadline = deadline
        self._base = _random(program, seed)
        self._rounded = {t.name: _rounded(t, self._base[t.name]) for t in program.inputs}
        self._squares = under_roots(program)
        self._floats = [t for t in program.inputs if t.dtype.is_float]
        self._matrix = [next((t for t in self._floats if len(t.shape) > 1), None)]
        self._data = data_inputs(program)

    @cached_property
    def _probe(self) -> Probe:
        return Probe(self._program, self._base, self._deadline)

    @property
    def is_mild(self) -> bool:
        """Whether it became too late for what sets needed to know."""
        return "_probe" in vars(self) and self._probe.was_cut

    def inputs(self, name: str) -> dict[str, PeriodicInput]:
        """The inputs of one set."""
        first = [t for t in self._matrix if t is not None]
        if name in ("zeros", "constant", "alternating"):
            return {**self._rounded, **{t.name: self._plain(name, t) for t in self._floats}}
        if name in ("edges", "short_edges"):
            return self._edged(name)
        if name in _DRAWN:
            return {**self._rounded, **self._positive(self._drawn(name))}
        changes: Changes = {}
        if name == "large":
            changes = self._largest({t.name: np.ones(()) for t in self._floats})
        elif name == "huge_row":
            changes = self._largest({t.name: _first_row(t) for t in first})
        elif name == "offset":
            changes = {t.name: Change.of(t, 1.0, _OFFSET) for t in first}
        elif name == "tiny":
            changes = {t.name: Change.of(t, _tiny_scale(t.dtype)) for t in first}
        elif name == "small":
            changes = extreme_inputs.small(self._floats, self._data)
        elif name in ("outliers", "far", "far_rows"):
            levels, made = extreme_inputs.LEVELS[name]
            level = self._probe.largest(levels, lambda x: made(self._floats, self._data, x))
            changes = made(self._floats, self._data, level)
        elif name == "logits":
            changes = extreme_inputs.scaled_logits(self._probe, self._data)
        elif name == "close":
            scaled = extreme_inputs.scaled_logits(self._probe, self._data)
            found = extreme_inputs.close(self._program, self._base, scaled)
            return {**self._changed(scaled), **self._positive(found)}
        return self._changed(changes)

    def _changed(self, changes: Changes) -> dict[str, PeriodicInput]:
        """The random inputs with these changes."""
        made = {
            t.name: changes[t.name].of_input(self._base[t.name], t.dtype)
            for t in self._floats
            if t.name in changes
        }
        return {**self._rounded, **self._positive(made)}

    def _edged(self, name: str) -> dict[str, PeriodicInput]:
        axes = extreme_inputs.reduced_axes(self._program, 0 if name == "edges" else 1)

        def made(level: float) -> Changes:
            return extreme_inputs.edges(self._floats, axes, level)

        found = self._changed(made(self._probe.largest(extreme_inputs.EDGE_LEVELS, made)))
        if name == "edges" and extreme_inputs.exponentiates(self._program):
            return {**found, **{t.name: found[t.name].mapped(np.abs) for t in self._floats}}
        return found

    def _drawn(self, name: str) -> dict[str, PeriodicInput]:
        if name == "integers":
            return extreme_inputs.integers(self._program)
        if name == "negative":
            scaled = extreme_inputs.scaled_logits(self._probe, self._data, _NEGATIVE_LOGIT)
            return extreme_inputs.negative(self._base, self._floats, self._data, scaled)
        return extreme_inputs.masked(self._program, name)

    def _positive(self, inputs: Mapping[str, PeriodicInput]) -> dict[str, PeriodicInput]:
        return {n: x.mapped(np.abs) if n in self._squares else x for n, x in inputs.items()}

    def _plain(self, name: str, tensor: Tensor) -> PeriodicInput:
        if name in ("zeros", "constant"):
            value = _CONSTANT / contracted_terms(self._program).get(tensor.name, 1)
            number = round_to(np.full(1, 0.0 if name == "zeros" else value), tensor.dtype)
            return PeriodicInput.of(tensor.shape, number)
        sizes = np.abs(self._rounded[tensor.name].table[0])
        if not tensor.shape or tensor.name in self._squares:
            return PeriodicInput.of(tensor.shape, sizes)
        odd = (np.arange(tensor.shape[-1]) % 2).astype(np.uint8)
        axes = (1,) * (len(tensor.shape) - 1)
        return PeriodicInput(tensor.shape, np.stack([sizes, -sizes]), odd.reshape(*axes, -1))

    def _largest(self, where: Mapping[str, FloatArray]) -> Changes:
        """Times the largest power of two with which everything fits, where it is not 0."""

        def scaled(exponent: float) -> Changes:
            return {
                t.name: Change.of(t, np.where(where[t.name] != 0, 2.0**exponent, 1.0), share=1 / 4)
                for t in self._floats
                if t.name in where
            }

        limit = min((t.dtype.max_finite / 4 for t in self._floats), default=1.0)
        most = min(log2(max(limit / _NORMAL_PEAK, 1.0)), _exponent_in_any_order(self._program))
        return scaled(self._probe.largest(range(1 + max(0, int(most))), scaled))


def _random(program: Program, seed: int) -> dict[str, PeriodicInput]:
    terms = contracted_terms(program)
    labels = label_ranges(program)
    squares = under_roots(program)
    found: dict[str, PeriodicInput] = {}
    for number, tensor in enumerate(program.inputs):
        draw = np.random.default_rng([seed, number])
        count = drawn_elements(tensor.shape)
        if tensor.dtype.is_float:
            values = draw.normal(size=count) / sqrt(terms.get(tensor.name, 1))
            values = np.abs(values) if tensor.name in squares else values
        elif tensor.dtype.max_finite == 1.0:
            values = draw.integers(0, 2, size=count).astype(np.float64)
        else:
            low, high = labels.get(tensor.name, (-8, 8))
            values = draw.integers(low, high + 1, size=count).astype(np.float64)
        found[tensor.name] = _as_stored(tensor, PeriodicInput.of(tensor.shape, values))
    return found


def _rounded(tensor: Tensor, base: PeriodicInput) -> PeriodicInput:
    return base.mapped(lambda x: round_to(x, tensor.dtype).astype(kept_as(tensor.dtype)))


def _as_stored(tensor: Tensor, values: PeriodicInput) -> PeriodicInput:
    """The values as a tensor of this layout can hold them: where elements share memory, as in an
    expanded tensor or in windows that overlap, the last one written is the value of all.
    """
    strides = tensor.element_strides
    if not _shares_memory(tensor.shape, strides):
        return values
    span = 1 + sum((e - 1) * s for e, s in zip(tensor.shape, strides, strict=True))
    memory = np.zeros(span)
    view = np.lib.stride_tricks.as_strided(
        memory, tensor.shape, [s * memory.itemsize for s in strides]
    )
    view[...] = values.dense()
    return PeriodicInput.of(tensor.shape, view.copy())


def _shares_memory(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements may have one place: some axis steps less far than those within it."""
    reach = 0
    for stride, extent in sorted((s, e) for s, e in zip(strides, shape, strict=True) if e > 1):
        if stride <= reach:
            return True
        reach += (extent - 1) * stride
    return False


def _tiny_scale(dtype: DType) -> float:
    if dtype.bytes <= 2 and smallest_normal(dtype) > smallest_normal(F32):
        return smallest_normal(dtype)
    return _WIDE_TINY


def _first_row(tensor: Tensor) -> FloatArray:
    where = np.zeros((*tensor.shape[:-1], 1))
    where[(0,) * (len(tensor.shape) - 1)] = 1.0
    return where


def _exponent_in_any_order(program: Program) -> float:
    """Of the inputs whose product, each as often as the program reads it, times the terms of all
    contractions fits float32: equal programs may multiply before they divide.
    """
    factors, terms = 0, 0.0
    for node in program.nodes:
        if node.op == "load":
            factors += program.tensors[node.access.tensor].dtype.is_float
        factors += node.op == "square"
        if node.op in ("matmul", "sum"):
            terms = max(terms, log2(prod(program.sizes[d] for d in node.reduced)))
    return (log2(F32.max_finite / 4) - terms) / max(1, factors) - log2(_NORMAL_PEAK)
