"""Structural operators: leaves, reductions, contraction, accumulators and stores.

Their meaning lies in the interpreter (mirage_py.ugraph.interpret), which knows tiles and loops.
Views (reshape, transpose, slice, repeat, broadcast, concat) are not here:
mirage_py.ugraph.building.views turns each of them into the index expressions of loads.
"""

from __future__ import annotations

from mirage_py.ugraph.operators.base import (
    CONTRACT,
    EFFECT,
    ELEMENTWISE,
    LEAF,
    REDUCE,
    STATE,
    Operator,
    register,
)

# attr: Access. Every index stays inside the tensor; the validator checks its bounds.
LOAD = register(Operator("load", LEAF, 0, 0, abstract="leaf"))
# attr: Access without a tensor, one index for each dimension of the operand: the operand's value at
# other indices. The operand is a tensor in memory between two parts; only programs have it.
READ = register(Operator("read", LEAF, 1, 0))
# attr: float
CONST = register(Operator("const", LEAF, 0, 0))
# attr: str. The extent of a dimension, as a number.
SIZE = register(Operator("size", LEAF, 0, 0))
# attr: IndexExpr. The value of an index expression, as a number.
INDEX = register(Operator("index", LEAF, 0, 1, abstract="leaf"))
# attr: Predicate. 1 where it holds, else 0.
MASK = register(Operator("mask", LEAF, 0, 1, abstract="leaf"))

# attr: tuple[str, ...], the dimensions reduced
SUM = register(Operator("sum", REDUCE, 1, 1))
MAX = register(Operator("max", REDUCE, 1, 1))

# attr: tuple[str, ...], the dimensions summed over
MATMUL = register(Operator("matmul", CONTRACT, 2, 2, symbol="@"))

# The operand, where it only shifts exponents: exp(z - m) / sum(exp(z - m)) is the same for every m.
# Over a field it is a fresh random value for each tile, so only results that do not depend on it
# pass. The random value has a key, which the interpreter knows and a row of a table does not.
SHIFT = register(
    Operator(
        "shift", ELEMENTWISE, 1, 0, over_floats=lambda x: x, is_rational=True, torch="{}",
        text="{0}",
    )
)  # fmt: skip

# Loop-carried state of a block graph.
# attr: None
ACCUM_SUM = register(Operator("accum_sum", STATE, 1, 1))
# attr: None for a maximum that the program asks for, "shift" for one that only shifts exponents.
# The latter may be read inside its own loop, where it is the running maximum, this iteration
# included. Over a field it is a fresh random value in each iteration, as with `shift`.
ACCUM_MAX = register(Operator("accum_max", STATE, 1, 1))
# args: value, then one running maximum per degree; attr: tuple[int, ...] degrees.
# state = state * prod(exp(old_i - new_i) ** degree_i) + value: the sum of a loop whose terms were
# shifted by a maximum that moves (online softmax, Milakov and Gimelshein 2018).
ACCUM_RESCALED = register(Operator("accum_rescaled", STATE, -1, 6))

# attr: Access, the tensor written (a program output or an intermediate) and where.
# Along a grid axis that the indices lack, the first block writes.
STORE = register(Operator("store", EFFECT, 1, 0))
# attr: Access. Adds to the tensor, which is zero before the kernel, what all blocks have: the sum
# over the grid axes that the value has and the indices lack. Along a grid axis that neither has,
# the first block adds.
STORE_ADD = register(Operator("store_add", EFFECT, 1, 1, symbol="+="))
