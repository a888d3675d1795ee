"""The programs that the search is tested on, at sizes people run them at."""

from __future__ import annotations

from collections.abc import Callable

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.composites import clamp, l2_norm, layer_norm, rms_norm, softmax
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F16
from mirage_py.ugraph.ir.program import Program


class Spec:
    """A thin shorthand over the builder: inputs are declared and loaded in one line."""

    def __init__(self, name: str, **sizes: int) -> None:
        self.b = ProgramBuilder(name)
        for dim, size in sizes.items():
            self.b.dim(dim, size)

    def load(self, name: str, dims: str) -> int:
        if name not in self.b.inputs:
            self.b.input(name, [self.b.sizes[d] for d in dims], F16)
        return self.b.load(name, list(dims))

    def output(self, name: str, node: int, dims: str) -> None:
        self.b.output(name, node, list(dims), F16)

    def contract(self, x: int, y: int, dims: str) -> int:
        return self.b.sum(self.b.apply("mul", x, y), list(dims))


def rmsnorm_matmul(b: int = 16, d: int = 4096, n: int = 6144) -> Program:
    s = Spec("rmsnorm_matmul", b=b, d=d, n=n)
    x, g, w = s.load("X", "bd"), s.load("G", "d"), s.load("W", "dn")
    normed = s.b.apply("mul", rms_norm(s.b, x, "d", 1e-6), g)
    s.output("Y", s.contract(normed, w, "d"), "bn")
    return s.b.build()


def gated_mlp(b: int = 8, d: int = 4096, n: int = 4096) -> Program:
    s = Spec("gated_mlp", b=b, d=d, n=n)
    x, u, w = s.load("X", "bd"), s.load("U", "dn"), s.load("W", "dn")
    gate = s.b.apply("silu", s.contract(x, u, "d"))
    s.output("Y", s.b.apply("mul", gate, s.contract(x, w, "d")), "bn")
    return s.b.build()


def lora(b: int = 16, d: int = 256, r: int = 16, n: int = 4096) -> Program:
    s = Spec("lora", b=b, d=d, r=r, n=n)
    x, w, down, up = s.load("X", "bd"), s.load("W", "dn"), s.load("A", "dr"), s.load("B", "rn")
    low_rank = s.contract(s.contract(x, down, "d"), up, "r")
    s.output("Y", s.b.apply("add", s.contract(x, w, "d"), low_rank), "bn")
    return s.b.build()


def attention(h: int = 2, q: int = 256, s: int = 4096, d: int = 64, e: int = 64) -> Program:
    p = Spec("attention", h=h, q=q, s=s, d=d, e=e)
    scores = p.contract(p.load("Q", "hqd"), p.load("K", "hsd"), "d")
    p.output("O", p.contract(softmax(p.b, scores, "s"), p.load("V", "hse"), "s"), "hqe")
    return p.b.build()


def causal_attention(h: int = 2, q: int = 256, s: int = 256, d: int = 64, e: int = 64) -> Program:
    p = Spec("causal_attention", h=h, q=q, s=s, d=d, e=e)
    scores = p.contract(p.load("Q", "hqd"), p.load("K", "hsd"), "d")
    mask = p.b.mask(ix.compare("ge", ix.dim("q"), ix.dim("s")))
    weights = p.b.apply("mul", p.b.apply("exp", scores), mask)
    weights = p.b.apply("div", weights, p.b.sum(weights, "s"))
    p.output("O", p.contract(weights, p.load("V", "hse"), "s"), "hqe")
    return p.b.build()


def qknorm_attention(h: int = 2, q: int = 256, s: int = 4096, d: int = 64, e: int = 64) -> Program:
    p = Spec("qknorm_attention", h=h, q=q, s=s, d=d, e=e)
    queries = l2_norm(p.b, p.load("Q", "hqd"), "d", 1e-6)
    keys = l2_norm(p.b, p.load("K", "hsd"), "d", 1e-6)
    weights = softmax(p.b, p.contract(queries, keys, "d"), "s")
    p.output("O", p.contract(weights, p.load("V", "hse"), "s"), "hqe")
    return p.b.build()


def ntrans(b: int = 16, d: int = 4096) -> Program:
    """The normalised residual update of nGPT: norm(x + alpha * (norm(h) - x))."""
    s = Spec("ntrans", b=b, d=d)
    x, hidden, alpha = s.load("X", "bd"), s.load("H", "bd"), s.load("A", "bd")
    step = s.b.apply("sub", l2_norm(s.b, hidden, "d"), x)
    moved = s.b.apply("add", x, s.b.apply("mul", alpha, step))
    s.output("Y", l2_norm(s.b, moved, "d"), "bd")
    return s.b.build()


def row_softmax(b: int = 64, n: int = 32768) -> Program:
    s = Spec("softmax", b=b, n=n)
    s.output("Y", softmax(s.b, s.load("X", "bn"), "n"), "bn")
    return s.b.build()


def layernorm_linear(b: int = 64, d: int = 1024, n: int = 4096) -> Program:
    s = Spec("layernorm_linear", b=b, d=d, n=n)
    x, gain, shift = s.load("X", "bd"), s.load("G", "d"), s.load("H", "d")
    normed = s.b.apply("mul", layer_norm(s.b, x, "d", 1e-5), gain)
    normed = s.b.apply("add", normed, shift)
    product = s.contract(normed, s.load("W", "dn"), "d")
    s.output("Y", s.b.apply("add", product, s.load("C", "n")), "bn")
    return s.b.build()


def norm_gated_mlp(b: int = 8, d: int = 4096, n: int = 4096) -> Program:
    """Residual, RMSNorm and gated MLP; the new residual is an output too."""
    s = Spec("norm_gated_mlp", b=b, d=d, n=n)
    moved = s.b.apply("add", s.load("X", "bd"), s.load("A", "bd"))
    normed = s.b.apply("mul", rms_norm(s.b, moved, "d", 1e-6), s.load("G", "d"))
    gate = s.b.apply("silu", s.contract(normed, s.load("U", "dn"), "d"))
    s.output("Y", s.b.apply("mul", gate, s.contract(normed, s.load("W", "dn"), "d")), "bn")
    s.output("R", moved, "bd")
    return s.b.build()


def row_statistics(b: int = 64, n: int = 4096) -> Program:
    """Three outputs of two shapes: mean, variance and the standardised row."""
    s = Spec("row_statistics", b=b, n=n)
    x = s.load("X", "bn")
    mean = s.b.mean(x, "n")
    centred = s.b.apply("sub", x, mean)
    variance = s.b.mean(s.b.apply("square", centred), "n")
    s.output("M", mean, "b")
    s.output("V", variance, "b")
    s.output("Y", s.b.apply("div", centred, s.b.apply("sqrt", variance)), "bn")
    return s.b.build()


def linear_attention(h: int = 4, q: int = 512, s: int = 512, d: int = 64, e: int = 64) -> Program:
    """No softmax: the state sum_s K V can be contracted before the queries come in."""
    p = Spec("linear_attention", h=h, q=q, s=s, d=d, e=e)
    scores = p.contract(p.load("Q", "hqd"), p.load("K", "hsd"), "d")
    p.output("O", p.contract(scores, p.load("V", "hse"), "s"), "hqe")
    return p.b.build()


def grouped_attention(q: int = 16, s: int = 512, d: int = 64, e: int = 64) -> Program:
    """Four query heads share two key heads: the head of K is an index expression."""
    p = Spec("grouped_attention", h=4, q=q, s=s, d=d, e=e)
    for name, width in (("K", "d"), ("V", "e")):
        p.b.input(name, [2, s, p.b.sizes[width]], F16)
    shared = ix.dim("h") // 2
    keys, rows = (p.b.load(n, [shared, "s", w]) for n, w in (("K", "d"), ("V", "e")))
    weights = softmax(p.b, p.contract(p.load("Q", "hqd"), keys, "d"), "s")
    p.output("O", p.contract(weights, rows, "s"), "hqe")
    return p.b.build()


def alibi_attention(h: int = 4, q: int = 256, s: int = 256, d: int = 64, e: int = 64) -> Program:
    """The distance of query and key, an index as a number, is added to the scores."""
    p = Spec("alibi_attention", h=h, q=q, s=s, d=d, e=e)
    scores = p.contract(p.load("Q", "hqd"), p.load("K", "hsd"), "d")
    distance = p.b.index(ix.dim("s") - ix.dim("q"))
    bias = p.b.apply("mul", p.b.apply("mul", distance, p.b.const(0.0625)), p.load("M", "h"))
    weights = softmax(p.b, p.b.apply("add", scores, bias), "s")
    p.output("O", p.contract(weights, p.load("V", "hse"), "s"), "hqe")
    return p.b.build()


def clamped_maximum(b: int = 32, n: int = 4096) -> Program:
    """Comparisons, selections and maxima: operators without algebra."""
    s = Spec("clamped_maximum", b=b, n=n)
    x, y = s.load("X", "bn"), s.load("Z", "bn")
    larger = s.b.apply("where", s.b.apply("lt", x, y), y, x)
    s.output("Y", s.b.max(clamp(s.b, larger, 0.25, 1.25), "n"), "b")
    return s.b.build()


def two_contractions(b: int = 16, d: int = 1024, k: int = 1024, n: int = 1024) -> Program:
    """A sum of products over two unrelated dimensions: a loop for each."""
    s = Spec("two_contractions", b=b, d=d, k=k, n=n)
    first = s.contract(s.load("X", "bd"), s.load("W", "dn"), "d")
    second = s.contract(s.load("Z", "bk"), s.load("U", "kn"), "k")
    s.output("Y", s.b.apply("add", first, second), "bn")
    return s.b.build()


def whole_sum(b: int = 64, n: int = 64) -> Program:
    """One number: the sum over two dimensions of a product."""
    s = Spec("whole_sum", b=b, n=n)
    s.output("Y", s.contract(s.load("X", "bn"), s.load("Z", "bn"), "bn"), "")
    return s.b.build()


PROGRAMS: dict[str, Callable[..., Program]] = {
    "rmsnorm_matmul": rmsnorm_matmul,
    "gated_mlp": gated_mlp,
    "lora": lora,
    "attention": attention,
    "qknorm_attention": qknorm_attention,
    "ntrans": ntrans,
    "softmax": row_softmax,
    "layernorm_linear": layernorm_linear,
}
MORE: dict[str, Callable[..., Program]] = {
    "causal_attention": causal_attention,
    "norm_gated_mlp": norm_gated_mlp,
    "row_statistics": row_statistics,
    "linear_attention": linear_attention,
    "grouped_attention": grouped_attention,
    "alibi_attention": alibi_attention,
    "clamped_maximum": clamped_maximum,
    "two_contractions": two_contractions,
    "whole_sum": whole_sum,
}
# No tile of 2 divides a reduced one; the 9 can have 3 splits.
SMALL_SIZES: dict[str, tuple[int, ...]] = {
    "rmsnorm_matmul": (3, 9, 5),
    "gated_mlp": (3, 9, 5),
    "lora": (3, 9, 7, 5),
    "attention": (2, 3, 9, 7, 5),
    "qknorm_attention": (2, 3, 9, 7, 5),
    "ntrans": (3, 9),
    "softmax": (3, 9),
    "layernorm_linear": (3, 9, 5),
    "causal_attention": (2, 3, 9, 7, 5),
    "norm_gated_mlp": (3, 9, 5),
    "row_statistics": (3, 9),
    "linear_attention": (2, 3, 9, 7, 5),
    "grouped_attention": (3, 9, 7, 5),
    "alibi_attention": (2, 3, 9, 7, 5),
    "clamped_maximum": (3, 9),
    "two_contractions": (3, 9, 7, 5),
    "whole_sum": (5, 9),
}
