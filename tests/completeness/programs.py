"""The programs whose block graphs are enumerated, with the vocabulary and how far to go.

``most`` is the number of operators, accumulators included, for each choice of looped dimensions. A
vocabulary holds what the program is made of, and operators that could say the same in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from completeness.draws import reduced_dims
from completeness.kinds import Configuration, Operation, operations

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F16
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import operator
from mirage_py.ugraph.rewrite.split_dim import outer_dim, split_dim

Looped = tuple[str, ...]
_PARTS = 8

# It holds because |d| * (sum(x) / |d|) = sum(x), and no law cancels (axioms/laws/division.py).
DEVIATIONS = "the deviations from a mean sum to 0"


@dataclass(frozen=True)
class Case:
    """``further`` has what a nightly run adds, or where it goes beyond ``most``.

    ``lost`` are graphs that the search cannot find and that nothing beats, each with its reason.
    """

    make: Callable[[], Program]
    elementwise: tuple[str, ...]
    reductions: tuple[str, ...]
    most: Mapping[Looped, int]
    further: Mapping[Looped, int] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """One program in one configuration of one kernel, or of two.

    ``looped`` has the looped dimensions of each kernel; ``split`` a dimension that blocks of the
    first of two kernels split, and ``again`` lets the second one read what is split
    too; ``most`` is the number of operators.
    """

    name: str
    looped: tuple[Looped, ...]
    most: int
    split: str | None = None
    again: bool = False

    @cached_property
    def program(self) -> Program:
        """With the dimension split, if there is one."""
        program = CASES[self.name].make()
        return split_dim(program, self.split, _PARTS) if self.split else program

    @cached_property
    def configuration(self) -> Configuration:
        """What each kernel does with the dimensions."""
        gridded = (outer_dim(self.split),) if self.split else ()
        return Configuration(self.program.dim_names, self.looped, gridded, self.again)

    @cached_property
    def vocabulary(self) -> tuple[Operation, ...]:
        """The operators."""
        case = CASES[self.name]
        elementwise = [(o.name, o.arity, o.commutative) for o in map(operator, case.elementwise)]
        reduced = reduced_dims(self.program)
        return operations(elementwise, case.reductions, reduced, self.configuration)

    def __str__(self) -> str:
        loops = " | ".join(",".join(looped) or "-" for looped in self.looped)
        return f"{self.name} {f'split {self.split} ' if self.split else ''}{loops}"


class Spec:
    """A thin shorthand over the builder."""

    def __init__(self, name: str, **sizes: int) -> None:
        self.b = ProgramBuilder(name)
        self.apply, self.sum, self.matmul = self.b.apply, self.b.sum, self.b.matmul
        for dim, size in sizes.items():
            self.b.dim(dim, size)

    def load(self, name: str, dims: str) -> int:
        if name not in self.b.inputs:
            self.b.input(name, [self.b.sizes[d] for d in dims], F16)
        return self.b.load(name, list(dims))

    def done(self, **outputs: int) -> Program:
        for name, node in outputs.items():
            self.b.output(name, node, list(self.b.nodes[node].dims), F16)
        return self.b.build()


def matmul() -> Program:
    s = Spec("matmul", b=64, d=1024, n=512)
    return s.done(Y=s.matmul(s.load("X", "bd"), s.load("W", "dn"), "d"))


def scaled_matmul() -> Program:
    s = Spec("scaled_matmul", b=64, d=1024, n=512)
    x = s.apply("mul", s.load("X", "bd"), s.load("C", "b"))
    return s.done(Y=s.matmul(x, s.load("W", "dn"), "d"))


def outer_product() -> Program:
    """The one product that outgrows its operands and is built."""
    s = Spec("outer_product", b=64, d=1024, n=512)
    totals = s.sum(s.load("X", "bd"), "d")
    return s.done(Y=s.apply("mul", totals, s.load("V", "n")))


def chain() -> Program:
    s = Spec("chain", b=64, d=1024, r=16, n=512)
    low = s.matmul(s.load("X", "bd"), s.load("A", "dr"), "d")
    return s.done(Y=s.matmul(low, s.load("B", "rn"), "r"))


def lora() -> Program:
    s = Spec("lora", b=64, d=1024, r=16, n=512)
    x = s.load("X", "bd")
    low = s.matmul(s.matmul(x, s.load("A", "dr"), "d"), s.load("B", "rn"), "r")
    return s.done(Y=s.apply("add", s.matmul(x, s.load("W", "dn"), "d"), low))


def two_contractions() -> Program:
    s = Spec("two_contractions", b=64, d=1024, k=1024, n=512)
    first = s.matmul(s.load("X", "bd"), s.load("W", "dn"), "d")
    return s.done(Y=s.apply("add", first, s.matmul(s.load("Z", "bk"), s.load("U", "kn"), "k")))


def whole_sum() -> Program:
    s = Spec("whole_sum", b=64, n=128)
    return s.done(Y=s.sum(s.apply("mul", s.load("X", "bn"), s.load("C", "b")), "bn"))


def scaled_sum() -> Program:
    s = Spec("scaled_sum", b=64, d=1024)
    x = s.apply("mul", s.load("X", "bd"), s.load("C", "b"))
    return s.done(Y=s.sum(x, "d"))


def shifted_sum() -> Program:
    s = Spec("shifted_sum", b=64, d=1024)
    x = s.apply("mul", s.load("X", "bd"), s.load("C", "b"))
    return s.done(Y=s.sum(s.apply("add", x, s.load("Z", "bd")), "d"))


def exp_product() -> Program:
    s = Spec("exp_product", b=64, d=1024)
    factors = [s.apply("exp", s.load(n, "bd")) for n in "XZ"]
    return s.done(Y=s.sum(s.apply("mul", *factors), "d"))


def gated() -> Program:
    s = Spec("gated", b=64, d=1024, n=512)
    x = s.load("X", "bd")
    gate = s.apply("silu", s.matmul(x, s.load("U", "dn"), "d"))
    return s.done(Y=s.apply("mul", gate, s.matmul(x, s.load("W", "dn"), "d")))


def l2_norm() -> Program:
    s = Spec("l2_norm", b=64, d=1024)
    x = s.load("X", "bd")
    return s.done(Y=s.apply("div", x, _length(s, x)))


def norm_matmul() -> Program:
    s = Spec("norm_matmul", b=64, d=1024, n=512)
    x = s.load("X", "bd")
    normed = s.apply("div", x, _length(s, x))
    return s.done(Y=s.matmul(normed, s.load("W", "dn"), "d"))


def share_matmul() -> Program:
    """Rows divided by their sums, then a product: the structure of a norm in fewer operators."""
    s = Spec("share_matmul", b=64, d=1024, n=512)
    x = s.load("X", "bd")
    shares = s.apply("div", x, s.sum(x, "d"))
    return s.done(Y=s.matmul(shares, s.load("W", "dn"), "d"))


def residual_norm() -> Program:
    s = Spec("residual_norm", b=64, d=1024)
    moved = s.apply("add", s.load("X", "bd"), s.load("A", "bd"))
    return s.done(Y=s.apply("div", moved, _length(s, moved)))


def residual_share() -> Program:
    """The new residual is an output too."""
    s = Spec("residual_share", b=64, d=1024)
    moved = s.apply("add", s.load("X", "bd"), s.load("A", "bd"))
    return s.done(R=moved, Y=s.apply("div", moved, s.sum(moved, "d")))


def two_outputs() -> Program:
    s = Spec("two_outputs", b=64, d=1024)
    x = s.load("X", "bd")
    total = s.sum(x, "d")
    return s.done(S=total, Y=s.apply("div", x, total))


def softmax() -> Program:
    s = Spec("softmax", b=64, n=1024)
    e = s.apply("exp", s.load("X", "bn"))
    return s.done(Y=s.apply("div", e, s.sum(e, "n")))


def masked_softmax() -> Program:
    s = Spec("masked_softmax", b=64, n=64)
    mask = s.b.mask(ix.compare("ge", ix.dim("b"), ix.dim("n")))
    e = s.apply("mul", s.apply("exp", s.load("X", "bn")), mask)
    return s.done(Y=s.apply("div", e, s.sum(e, "n")))


def softmax_matmul() -> Program:
    s = Spec("softmax_matmul", b=64, s=1024, e=64)
    e = s.apply("exp", s.load("X", "bs"))
    weights = s.apply("div", e, s.sum(e, "s"))
    return s.done(Y=s.matmul(weights, s.load("V", "se"), "s"))


def max_norm() -> Program:
    s = Spec("max_norm", b=64, d=1024)
    x = s.load("X", "bd")
    return s.done(Y=s.apply("div", x, s.b.max(x, "d")))


def centred() -> Program:
    s = Spec("centred", b=64, d=1024)
    x = s.load("X", "bd")
    return s.done(Y=s.apply("sub", x, s.b.mean(x, "d")))


def spread() -> Program:
    """Deviations from the sum, without the sizes of a variance: two loops, one after the other."""
    s = Spec("spread", b=64, d=1024)
    x = s.load("X", "bd")
    deviations = s.apply("sub", x, s.sum(x, "d"))
    return s.done(Y=s.sum(s.apply("square", deviations), "d"))


def variance() -> Program:
    s = Spec("variance", b=64, d=1024)
    x = s.load("X", "bd")
    deviations = s.apply("sub", x, s.b.mean(x, "d"))
    return s.done(Y=s.b.mean(s.apply("square", deviations), "d"))


def _length(s: Spec, x: int) -> int:
    return s.apply("sqrt", s.sum(s.apply("square", x), "d"))


_NORM = ("div", "square", "sqrt")
_PRODUCTS = ("sum", "matmul")
_SUMS = ("sum",)
_MAXIMA = ("max",)

CASES: dict[str, Case] = {
    "matmul": Case(
        matmul, ("mul", "div"), _PRODUCTS, {(): 3, ("d",): 4}, {(): 5, ("d",): 6}
    ),
    "scaled_matmul": Case(
        scaled_matmul, ("mul", "div"), _PRODUCTS, {(): 3, ("d",): 4}, {(): 5, ("d",): 6}
    ),
    "outer_product": Case(
        outer_product, ("mul", "add"), _PRODUCTS, {(): 4, ("d",): 5}, {(): 5, ("d",): 6}
    ),
    "chain": Case(
        chain, ("mul",), _PRODUCTS, {(): 4, ("d",): 4, ("r",): 4}, {(): 5, ("d",): 6, ("r",): 6}
    ),
    "lora": Case(lora, ("mul", "add"), _PRODUCTS, {(): 4, ("d",): 5}, {(): 5, ("d",): 6}),
    "two_contractions": Case(
        two_contractions, ("add",), ("matmul",), {(): 4, ("d",): 5, ("d", "k"): 6}
    ),
    "whole_sum": Case(
        whole_sum, ("mul",), _SUMS, {(): 6, ("b",): 6, ("n",): 6, ("b", "n"): 6},
        {(): 7, ("b",): 7, ("n",): 7, ("b", "n"): 7},
    ),
    "scaled_sum": Case(
        scaled_sum, ("mul", "add"), _SUMS, {(): 5, ("d",): 6}, {(): 6, ("d",): 7}
    ),
    "shifted_sum": Case(
        shifted_sum, ("add", "mul"), _SUMS, {(): 5, ("d",): 6}, {(): 6, ("d",): 7}
    ),
    "exp_product": Case(
        exp_product, ("mul", "exp", "add"), _SUMS, {(): 5, ("d",): 6}, {(): 6, ("d",): 7}
    ),
    "gated": Case(gated, ("mul", "silu"), _PRODUCTS, {(): 5, ("d",): 6}, {(): 6, ("d",): 7}),
    "l2_norm": Case(
        l2_norm, ("mul", *_NORM), _SUMS, {(): 5, ("d",): 5}, {(): 6, ("d",): 7}
    ),
    "norm_matmul": Case(
        norm_matmul, ("mul", *_NORM), _PRODUCTS, {(): 5}, {(): 6, ("d",): 7}
    ),
    "share_matmul": Case(
        share_matmul, ("mul", "div"), _PRODUCTS, {(): 4, ("d",): 5}, {(): 6, ("d",): 7}
    ),
    "residual_norm": Case(
        residual_norm, ("add", *_NORM), _SUMS, {(): 5}, {(): 6, ("d",): 6}
    ),
    "residual_share": Case(
        residual_share, ("add", "div", "mul"), _SUMS, {(): 4, ("d",): 5}, {(): 5, ("d",): 6}
    ),
    "two_outputs": Case(
        two_outputs, ("mul", "div"), _SUMS, {(): 4, ("d",): 4}, {(): 5, ("d",): 6}
    ),
    "softmax": Case(
        softmax, ("mul", "div", "exp"), _SUMS, {(): 4, ("n",): 5}, {(): 6, ("n",): 6}
    ),
    "masked_softmax": Case(
        masked_softmax, ("mul", "div", "exp"), _SUMS, {(): 5, ("n",): 5}, {("n",): 6}
    ),
    "softmax_matmul": Case(
        softmax_matmul, ("mul", "div", "exp"), _PRODUCTS, {(): 5, ("s",): 6}, {(): 6, ("s",): 7}
    ),
    "max_norm": Case(
        max_norm, ("mul", "div", "maximum"), _MAXIMA, {(): 3, ("d",): 4}, {(): 4, ("d",): 5}
    ),
    "centred": Case(
        centred, ("add", "sub", "neg", "div"), _SUMS, {(): 4, ("d",): 4}, {(): 5, ("d",): 6}
    ),
    "spread": Case(
        spread, ("add", "sub", "mul", "square"), _SUMS, {(): 5, ("d",): 6}, {(): 6, ("d",): 7}
    ),
    "variance": Case(
        variance, ("sub", "mul", "div", "square"), _SUMS, {(): 5}, {(): 6, ("d",): 7},
        {
            "sum[d](mul(sub(X[b, d], sum[d](div(X[b, d], d))), div(X[b, d], d)))": DEVIATIONS,
            "sub(sum[d](mul(div(X[b, d], d), X[b, d])), square(sum[d](div(X[b, d], d))))":
                DEVIATIONS,
        },
    ),
}  # fmt: skip


# Two kernels.
PAIRS = (
    Subject("matmul", ((), ()), 5, "d"),
    Subject("matmul", (("d",), ()), 5, "d"),
    Subject("chain", ((), ()), 4),
    Subject("chain", (("d",), ("r",)), 5),
    Subject("share_matmul", ((), ()), 5),
    Subject("l2_norm", ((), ()), 5),
    Subject("softmax", (("n",), ()), 6),
)
FURTHER_PAIRS = (
    Subject("l2_norm", ((), ()), 6),
    Subject("matmul", ((), ()), 6, "d"),
    Subject("chain", ((), ()), 5),
    Subject("chain", (("d",), ("r",)), 6),
    Subject("lora", ((), ()), 5),
    Subject("share_matmul", ((), ()), 6),
    Subject("share_matmul", (("d",), ("d",)), 6),
    Subject("share_matmul", ((), ()), 7, "d"),
    Subject("shifted_sum", (("d",), ()), 6, "d"),
    Subject("softmax", (("n",), ("n",)), 6),
)


def subjects(*, further: bool = False) -> tuple[Subject, ...]:
    """Every program in every configuration of one kernel, then pairs; ``further`` at night."""
    alone = tuple(
        Subject(name, (looped,), most)
        for name, case in CASES.items()
        for looped, most in ({**case.most, **case.further} if further else case.most).items()
    )
    return (*alone, *PAIRS, *(FURTHER_PAIRS if further else ()))
