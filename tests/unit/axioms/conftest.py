"""The meaning of a term over a finite field, and the programs that the tests saturate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from field_reference import NamedOps

from mirage_py.axioms.terms.term import (
    REDUCTIONS,
    Term,
    apply,
    const,
    leaf,
    reduce,
    size,
    subterms,
)
from mirage_py.ugraph.field import FieldArray


def apply_field(ops: NamedOps, term: Term, args: list[FieldArray]) -> FieldArray:
    """An elementwise operator; a constant exponent is known to the field as a number."""
    if term.op == "pow" and term.args[1].op == "const":
        return ops.pow_const(args[0], Fraction(term.args[1].attr))
    return getattr(ops, term.op)(*args)


def value_of(
    ops: NamedOps, term: Term, names: Mapping[str, FieldArray], extents: Mapping[str, int]
) -> FieldArray:
    """``names`` gives leaves and variables; arrays have an axis per extent, of 1 where absent."""
    axes = list(extents)
    done: dict[Term, FieldArray] = {}
    for t in subterms(term):
        args = [done[a] for a in t.args]
        if t.op in ("leaf", "var"):
            done[t] = names[t.attr]
        elif t.op == "const":
            done[t] = ops.constant(Fraction(t.attr)).reshape([1] * len(axes))
        elif t.op == "size":
            own = [extents[a] for a in axes if t.attr in (a, a.rpartition(".")[0])]
            product = 1
            for extent in own:
                product *= extent
            done[t] = ops.constant(product).reshape([1] * len(axes))
        elif t.op in REDUCTIONS:
            done[t] = reduce_field(ops, t.op, args[0], axes.index(t.attr), extents[t.attr])
        else:
            done[t] = apply_field(ops, t, args)
    return done[term]


def reduce_field(ops: NamedOps, op: str, x: FieldArray, axis: int, extent: int) -> FieldArray:
    # A term that does not depend on the axis is summed as often as the axis is long.
    shape = list(x.shape)
    shape[axis] = extent
    return getattr(ops, op)(x.broadcast(shape), axis, keepdims=True)


@dataclass
class Builder:
    """Collects leaves and axes while a program is written down."""

    parts: str
    axes: list[str] = field(default_factory=list)
    leaves: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def split(self, dim: str) -> tuple[str, ...]:
        own = tuple(f"{dim}.{part}" for part in self.parts)
        self.axes += [axis for axis in own if axis not in self.axes]
        return own

    def leaf(self, name: str, dims: str) -> Term:
        self.leaves[name] = tuple(axis for dim in dims for axis in self.split(dim))
        return leaf(name)

    def sum(self, dim: str, x: Term) -> Term:
        return reduce("sum", self.split(dim), x)

    def max(self, dim: str, x: Term) -> Term:
        return reduce("max", self.split(dim), x)

    def mean(self, dim: str, x: Term) -> Term:
        return self.sum(dim, x) / size(dim)

    def matmul(self, dim: str, x: Term, y: Term) -> Term:
        return self.sum(dim, x * y)

    def root_mean_square(self, dim: str, x: Term) -> Term:
        return apply("sqrt", self.mean(dim, apply("square", x)) + const("1e-06"))

    def softmax(self, dim: str, x: Term) -> Term:
        e = apply("exp", x)
        return e / self.sum(dim, e)


def rmsnorm_matmul(b: Builder) -> list[Term]:
    x, g, w = b.leaf("X", "bk"), b.leaf("G", "k"), b.leaf("W", "kn")
    return [b.matmul("k", x / b.root_mean_square("k", x) * g, w)]


def gated_mlp(b: Builder) -> list[Term]:
    x, u, w = b.leaf("X", "bk"), b.leaf("U", "kn"), b.leaf("W", "kn")
    return [apply("silu", b.matmul("k", x, u)) * b.matmul("k", x, w)]


def attention(b: Builder) -> list[Term]:
    q, k, v = b.leaf("Q", "hqd"), b.leaf("K", "hsd"), b.leaf("V", "hse")
    return [b.matmul("s", b.softmax("s", b.matmul("d", q, k) * const("0.125")), v)]


def masked_attention(b: Builder) -> list[Term]:
    q, k, v = b.leaf("Q", "hqd"), b.leaf("K", "hsd"), b.leaf("V", "hse")
    causal = apply("le", b.leaf("key_index", "s"), b.leaf("query_index", "q"))
    e = apply("where", causal, apply("exp", b.matmul("d", q, k)), const("0"))
    return [b.matmul("s", e / b.sum("s", e), v)]


def lora(b: Builder) -> list[Term]:
    x, w = b.leaf("X", "bk"), b.leaf("W", "kn")
    return [
        b.matmul("k", x, w) + b.matmul("r", b.matmul("k", x, b.leaf("A", "kr")), b.leaf("B", "rn"))
    ]


def qk_norm_attention(b: Builder) -> list[Term]:
    q, k, v = b.leaf("Q", "hqd"), b.leaf("K", "hsd"), b.leaf("V", "hse")
    q = q / b.root_mean_square("d", q) * b.leaf("G", "d")
    k = k / b.root_mean_square("d", k) * b.leaf("H", "d")
    return [b.matmul("s", b.softmax("s", b.matmul("d", q, k) * const("0.125")), v)]


def layer_norm(b: Builder) -> list[Term]:
    x = b.leaf("X", "bk")
    centred = x - b.mean("k", x)
    return [centred / b.root_mean_square("k", centred) * b.leaf("G", "k") + b.leaf("B", "k")]


def layer_norm_linear(b: Builder) -> list[Term]:
    (normed,) = layer_norm(b)
    return [b.matmul("k", normed, b.leaf("W", "kn"))]


def softmax(b: Builder) -> list[Term]:
    return [b.softmax("s", b.leaf("X", "bs"))]


def shifted_softmax(b: Builder) -> list[Term]:
    x = b.leaf("X", "bs")
    return [b.softmax("s", x - b.max("s", x))]


def residual_norm_gated_mlp(b: Builder) -> list[Term]:
    x = b.leaf("X", "bk") + b.leaf("A", "bk")
    y = x / b.root_mean_square("k", x) * b.leaf("G", "k")
    u, w = b.leaf("U", "kn"), b.leaf("W", "kn")
    return [x, apply("silu", b.matmul("k", y, u)) * b.matmul("k", y, w)]


def linear_attention(b: Builder) -> list[Term]:
    q, k, v = b.leaf("Q", "hqd"), b.leaf("K", "hsd"), b.leaf("V", "hse")
    return [b.matmul("s", b.matmul("d", q, k), v)]


def normalized_update(b: Builder) -> list[Term]:
    """nGPT: normalise x + alpha (normalise(h) - x)."""

    def unit(x: Term) -> Term:
        return x / apply("sqrt", b.sum("k", apply("square", x)))

    x, h, alpha = b.leaf("X", "bk"), b.leaf("H", "bk"), b.leaf("alpha", "k")
    return [unit(x + alpha * (unit(h) - x))]


PROGRAMS: dict[str, Callable[[Builder], list[Term]]] = {
    program.__name__: program
    for program in (
        rmsnorm_matmul,
        gated_mlp,
        attention,
        masked_attention,
        lora,
        qk_norm_attention,
        layer_norm,
        layer_norm_linear,
        softmax,
        shifted_softmax,
        residual_norm_gated_mlp,
        linear_attention,
        normalized_update,
    )
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "program" in metafunc.fixturenames:
        metafunc.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())


@pytest.fixture
def evaluate() -> Callable[..., FieldArray]:
    return value_of


@pytest.fixture
def builder() -> type[Builder]:
    return Builder


@pytest.fixture
def programs() -> dict[str, Callable[[Builder], list[Term]]]:
    return PROGRAMS
