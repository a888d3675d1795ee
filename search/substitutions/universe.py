"""Universes: the inputs and operators that graphs are enumerated over.

All inputs of a sort have one shape and all axes of a matrix one size, so that every graph that any
shapes allow is among those enumerated; the shapes that a rule needs are inferred afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.axioms.substitutions.expression import UNIT, Attr

# An axis as it was joined: a size by its name, or two axes one after the other.
Tree = str | tuple["Tree", "Tree"]
MATRIX: tuple[Tree, ...] = ("m", "m")
VECTOR: tuple[Tree, ...] = ("a", "m", "b")
IMAGE: tuple[Tree, ...] = ("n", "c", "h")
KERNEL: tuple[Tree, ...] = ("c", "c", "r")
LARGE: tuple[Tree, ...] = ("c", "c", ("e", ("r", "e")))
SCALAR: tuple[Tree, ...] = ()


@dataclass(frozen=True, slots=True)
class Universe:
    """Inputs by sort, operators with their attributes, and how many operators a graph may have."""

    name: str
    inputs: tuple[tuple[str, tuple[Tree, ...]], ...]
    operators: tuple[tuple[str, tuple[Attr, ...]], ...]
    most: int

    def smaller(self, most: int) -> Universe:
        """The same with fewer operators in a graph."""
        return Universe(self.name, self.inputs, self.operators, most)


def _named(
    stem: str, count: int, shape: tuple[Tree, ...]
) -> tuple[tuple[str, tuple[Tree, ...]], ...]:
    return tuple((f"{stem}{n}", shape) for n in range(count))


def _pieces(*axes: int) -> tuple[tuple[str, tuple[Attr, ...]], ...]:
    joins = tuple(("concat", (axis,)) for axis in axes)
    return (*joins, *(("split", (axis, part)) for axis in axes for part in (0, 1)))


_ADD, _MUL, _RELU = ("add", ()), ("mul", ()), ("relu", ())
_CONV, _PAIR = ("conv", (UNIT, 1)), ("conv", (UNIT, 2))
_MATMUL, _TRANSPOSE = ("matmul", ()), ("transpose", ())
_ENLARGE, _MAX, _MEAN = ("enlarge", ("e",)), ("max_pool", (UNIT, "r")), ("avg_pool", (UNIT, "r"))
_SCALAR = (("s", SCALAR),)
_IMAGES = (*_named("x", 2, IMAGE), *_named("k", 2, KERNEL))

# A kernel that is not enlarged beside two that are.
_KERNELS = (("x0", IMAGE), *_named("k", 2, KERNEL), ("l0", LARGE), *_SCALAR)

UNIVERSES: tuple[Universe, ...] = (
    Universe("sums", _named("x", 3, VECTOR), (_ADD, _MUL), 3),
    Universe("scaled", (*_named("x", 2, VECTOR), *_SCALAR, ("t", SCALAR)), (_ADD, _MUL, _RELU), 3),
    Universe("joined", (*_named("x", 4, VECTOR), *_SCALAR), (_ADD, _MUL, _RELU, *_pieces(1)), 3),
    Universe("matrices", _named("x", 4, MATRIX), (_MATMUL, _ADD, *_pieces(0, 1)), 3),
    Universe(
        "transposed",
        (*_named("x", 2, MATRIX), *_SCALAR),
        (_MATMUL, _ADD, _MUL, _RELU, _TRANSPOSE, *_pieces(0, 1)),
        3,
    ),
    # Without groups first: over equal sizes two groups say what in general only one kernel says.
    Universe("convolutions", _IMAGES, (_CONV, _ADD, _RELU, *_pieces(0, 1)), 3),
    Universe("groups", _IMAGES, (_CONV, _PAIR, *_pieces(0, 1)), 3),
    Universe("images", _named("x", 4, IMAGE), _pieces(0, 1), 3),
    Universe("kernels", _KERNELS, (_CONV, _ADD, _MUL, _ENLARGE, *_pieces(0, 1)), 3),
    Universe(
        "pools",
        (*_named("x", 2, IMAGE), *_SCALAR),
        (_ADD, _MUL, _RELU, _MAX, _MEAN, *_pieces(0, 1)),
        3,
    ),
)
# Of four operators, over fewer inputs: what says the same of more of them was found before.
UNIVERSES += (
    Universe("pointwise of four", _named("x", 3, VECTOR), (_ADD, _MUL, _RELU), 4),
    Universe("joined of four", _named("x", 4, VECTOR), (_ADD, _RELU, *_pieces(1)), 4),
    Universe("matrices of four", _named("x", 3, MATRIX), (_MATMUL, _ADD, *_pieces(0, 1)), 4),
    Universe("convolutions of four", _IMAGES, (_CONV, _ADD, _RELU, *_pieces(0, 1)), 4),
    Universe("groups of four", _IMAGES, (_CONV, _PAIR, *_pieces(0, 1)), 4),
    Universe(
        "transposed of four",
        _named("x", 2, MATRIX),
        (_MATMUL, _ADD, _RELU, _TRANSPOSE, *_pieces(0, 1)),
        4,
    ),
    Universe("kernels of four", _KERNELS[:4], (_CONV, _ADD, _ENLARGE, *_pieces(0, 1)), 4),
    Universe(
        "pools of four",
        _named("x", 2, IMAGE),
        (_ADD, _RELU, _MAX, _MEAN, *_pieces(0, 1)),
        4,
    ),
)
