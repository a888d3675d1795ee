"""The baseline computes the program, and is what a PyTorch user would write."""

from __future__ import annotations

from math import log
from pathlib import Path

import numpy as np
import pytest
import torch
from plans import random_inputs, relative_error, rms_program, scale_program

import mirage_py
from mirage_py.frontend.torch.trace import trace
from mirage_py.runtime.eager.eager_source import eager_source, torch_function
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BF16, BOOL, F16, F32
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.sizes.shrink import fixed_dims, shrink

EXAMPLES = sorted((Path(__file__).parents[4] / "examples").rglob("*.math"))
BOUND = 4e-3


def check(program: Program, bound: float = BOUND) -> list[torch.Tensor]:
    """Run the PyTorch function on the CPU and compare with float64."""
    arrays = random_inputs(program)
    tensors = []
    for t in program.inputs:
        dtype = getattr(torch, t.dtype.torch_name)
        tensors.append(torch.from_numpy(arrays[t.name]).to(dtype))
        arrays[t.name] = tensors[-1].double().numpy()
    want = evaluate_program(program, arrays, FloatMeaning())
    got = torch_function(program)(*tensors)
    results = list(got) if isinstance(got, tuple) else [got]
    assert len(results) == len(program.outputs)
    for output, result in zip(program.outputs, results, strict=True):
        assert tuple(result.shape) == output.tensor.shape
        assert result.dtype == getattr(torch, output.tensor.dtype.torch_name)
        reference = want[output.tensor.name]
        assert relative_error(result.double().numpy(), reference) < bound
    return results


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples(path: Path):
    program = mirage_py.parse(path.read_text())
    fixed = fixed_dims(program)
    extents = {d.name: min(d.size, 9 + 2 * n) for n, d in enumerate(program.dims)}
    # bfloat16 has three bits less than half precision.
    bound = 8 * BOUND if any(t.dtype is BF16 for t in program.inputs) else BOUND
    check(shrink(program, {d: e for d, e in extents.items() if d not in fixed}), bound)


def test_float8_is_a_number_beside_scales():
    text = """
    M = 6, G = 2, N = 4, R = 8
    X[M, G * R], W[N, G * R] : f8e4m3, A[G, M], S[N // 2, G] : f32
    index r < R
    Y[m, n] : bf16 = sum[g, r](X[m, g * 8 + r] * W[n, g * 8 + r] * A[g, m] * S[n // 2, g])
    Z[m] : f32 = max[g](A[g, m] * X[m, 8 * g])
    """
    check(mirage_py.parse(text), 8 * BOUND)


def test_norms_and_softmax_are_one_call():
    assert "F.rms_norm(X, (96,), weight=G, eps=1e-06)" in eager_source(rms_program())
    text = """
    B = 3, D = 8
    X[B, D], G[D], Z[D] : f16
    Y[b, d] = layer_norm[d](X[b, d], eps=1e-5) * G[d] + Z[d]
    S[b, d] = softmax[d](X[b, d])
    """
    program = mirage_py.parse(text)
    source = eager_source(program)
    assert "F.layer_norm(X, (8,), weight=G, bias=Z, eps=1e-05)" in source
    assert "torch.softmax(X, dim=1)" in source
    check(program)


def test_a_softmax_in_pieces_does_not_overflow():
    text = """
    H = 2, S = 6, D = 4
    Z[H, S], V[S, D] : f16
    let e[h, s] = exp(Z[h, s])
    O[h, d] = sum[s]( e[h, s] * V[s, d] ) / sum[s]( e[h, s] )
    """
    program = mirage_py.parse(text)
    assert "torch.softmax(Z, dim=1)" in eager_source(program)
    check(program)
    z = torch.full((2, 6), 5e4, dtype=torch.float16)
    out = torch_function(program)(z, torch.ones(6, 4, dtype=torch.float16))
    assert torch.equal(out, torch.ones(2, 4, dtype=torch.float16))


def test_the_logarithm_of_a_softmax_is_exact_beside_large_numbers():
    """``m + log(sum)`` is ``m`` there, so that a reference of three equal numbers was 0 (biases are
    taken for masks by the numerical check, which refused every plan of a language model's head).
    """
    text = "M = 2, N = 3\nX[M, N] : f32\nY[m, n] = X[m, n] - log(sum[n](exp({})))"
    free = mirage_py.parse(text.format("X[m, n]"))
    with torch.no_grad():
        found = trace(lambda x: x.log_softmax(-1), torch.zeros(2, 3))
    x = torch.full((2, 3), -3e38)
    for program in (free, found):
        assert torch_function(program)(x).tolist() == x.log_softmax(-1).tolist() != [[0.0] * 3] * 2
        check(program)
    # Shifted, and not shifted back: that is another function.
    shifted = mirage_py.parse(text.format("X[m, n] - max[n](X[m, n])"))
    other = torch_function(shifted)(torch.ones(2, 3))
    assert other.tolist() == [[pytest.approx(1 - log(3))] * 3] * 2


def test_a_softmax_over_two_axes_is_exact_in_float64():
    program = mirage_py.parse("M = 3, N = 4\nX[M, N] : f64\nY[m, n] = softmax[m, n](X[m, n])")
    x = torch.linspace(0, 1, 12, dtype=torch.float64).reshape(3, 4)
    assert torch_function(program)(x).reshape(-1).tolist() == pytest.approx(
        x.reshape(-1).softmax(0).tolist(), rel=1e-14
    )


def test_other_quotients_of_exponentials_do_not_overflow():
    text = """
    H = 3, S = 6
    Z[H, S], A[H, S], B[H, S] : f16
    Y[h] = sum[s]( exp(Z[h, s]) * A[h, s] ) / sum[s]( exp(Z[h, s]) * B[h, s] )
    """
    program = mirage_py.parse(text)
    assert "amax" in eager_source(program)
    z = torch.full((3, 6), 5e4, dtype=torch.float16)
    ones = torch.ones(3, 6, dtype=torch.float16)
    assert torch.equal(torch_function(program)(z, ones, ones), ones[:, 0])
    # A lone exponential means what it says.
    alone = mirage_py.parse("N = 4\nX[N] : f32\nY[n] = exp(X[n])")
    assert "amax" not in eager_source(alone)
    check(alone)


def test_a_masked_softmax():
    b = ProgramBuilder("masked")
    b.dim("h", 3), b.dim("q", 5), b.dim("s", 7)
    b.input("Z", (3, 5, 7), F16)
    keep = b.mask(ix.compare("le", ix.dim("s"), ix.dim("q") + 2))
    weights = b.apply("mul", b.apply("exp", b.load("Z", ("h", "q", "s"))), keep)
    b.output("P", b.apply("div", weights, b.sum(weights, ("s",))), ("h", "q", "s"), F16)
    program = b.build()
    assert "masked_fill" in eager_source(program)
    (result,) = check(program)
    assert (result[0, 0, 3:] == 0).all()


def test_views_and_gathers():
    b = ProgramBuilder("views")
    b.dim("h", 4), b.dim("d", 3), b.dim("n", 5)
    b.input("X", (5, 12), F32)
    b.input("Y", (5, 2), F32)
    b.input("Z", (9, 7), F32)
    h, d, n = ix.dim("h"), ix.dim("d"), ix.dim("n")
    heads = b.load("X", (n, h * 3 + d))
    groups = b.load("Y", (n, h // 2))
    corner = b.load("Z", (n + 2, d * 2 + 1))
    total = b.apply("add", b.apply("mul", heads, groups), corner)
    b.output("A", total, (n, h * 3 + d), F32)
    b.output("B", total, (h * 5 + n, d), F32)
    b.output("C", b.apply("mul", b.index(n * 2 + h), total), (d, n, h), F32)
    program = b.build()
    source = eager_source(program)
    assert "X.reshape(5, 4, 3)" in source
    assert "Z.as_strided" in source
    check(program, 1e-6)


def test_one_element_is_read_by_itself():
    b = ProgramBuilder("element")
    b.dim("d", 6)
    b.input("X", (1, 1), F32)
    b.input("Y", (6,), F32)
    zero, d = ix.const(0), ix.dim("d")
    product = b.apply("mul", b.load("X", (zero, zero)), b.load("Y", (d,)))
    b.output("Z", product, (zero, d), F32)
    check(b.build(), 1e-6)


def test_every_elementwise_operator():
    b = ProgramBuilder("operators")
    b.dim("i", 4), b.dim("j", 6)
    b.input("X", (4, 6), F32)
    b.input("Y", (6,), F32)
    x, y = b.load("X", ("i", "j")), b.load("Y", ("j",))
    positive = b.apply("add", b.apply("abs", x), b.const(0.5))
    for op in ("neg", "exp", "square", "abs", "relu", "sigmoid", "silu", "tanh", "gelu",
               "gelu_tanh", "erf"):  # fmt: skip
        b.output(f"out_{op}", b.apply(op, x), ("i", "j"), F32)
    for op in ("log", "sqrt", "rsqrt"):
        b.output(f"out_{op}", b.apply(op, positive), ("i", "j"), F32)
    for op in ("add", "sub", "mul", "div", "maximum", "minimum", "lt", "le", "gt", "ge", "eq",
               "ne"):  # fmt: skip
        b.output(f"out_{op}", b.apply(op, x, y), ("i", "j"), F32)
        b.output(f"const_{op}", b.apply(op, y, b.const(0.5)), ("j",), F32)
    b.output("out_pow", b.apply("pow", positive, b.const(1.7)), ("i", "j"), F32)
    chosen = b.apply("where", b.apply("lt", x, y), x, b.const(3.0))
    b.output("out_where", chosen, ("j", "i"), F32)
    b.output("out_cast", b.cast(x, F16), ("i", "j"), F16)
    b.output("out_max", b.max(x, ("i",)), ("j",), F32)
    b.output("size", b.size("j"), (), F32)
    b.output("wide", y, ("i", "j"), F32)
    check(b.build(), 1e-3)


def test_products_over_several_dimensions():
    text = """
    B = 2, C = 3, D = 4, E = 5, K = 6
    X[B, C, D, K], W[B, D, K, E] : f32
    Y[b, e, c] = sum[d, k]( X[b, c, d, k] * W[b, d, k, e] )
    Z[b] = sum[c, d, k]( X[b, c, d, k] * X[b, c, d, k] )
    """
    check(mirage_py.parse(text), 1e-5)


def test_strange_names():
    b = ProgramBuilder("names")
    b.dim("lambda", 3)
    for name in ("class", "F", "1 x"):
        b.input(name, (3,), F32)
    total = b.apply("add", b.load("class", ("lambda",)), b.load("F", ("lambda",)))
    b.output("torch", b.apply("mul", total, b.load("1 x", ("lambda",))), ("lambda",), F32)
    check(b.build(), 1e-6)


def test_torch_compile_takes_it_whole():
    x = torch.randn(33, 70).half()
    function = torch_function(scale_program())
    traced = torch.compile(function, backend="eager", fullgraph=True, dynamic=False)
    assert torch.equal(traced(x), function(x))


def test_it_is_differentiable_and_takes_other_strides():
    x = torch.randn(70, 33).half().T.requires_grad_()
    torch_function(scale_program())(x).float().sum().backward()
    assert x.grad is not None
    assert np.isfinite(x.grad.numpy()).all()


def test_masks_are_numbers():
    """+ of two masks would be "or" in PyTorch, and - an error."""
    b = ProgramBuilder("masks")
    b.dim("m", 6)
    x, y = (b.load(b.input(n, (6,), BOOL).name, [ix.dim("m")]) for n in "XY")
    both, neither = b.apply("add", x, y), b.apply("sub", b.const(1.0), x)
    b.output("S", b.apply("mul", both, both), [ix.dim("m")], F32)
    b.output("N", neither, [ix.dim("m")], F32)
    one, other = torch.arange(6) % 2 == 0, torch.arange(6) % 3 == 0
    total, rest = torch_function(b.build())(one, other)
    assert torch.equal(total, (one.float() + other.float()) ** 2)
    assert torch.equal(rest, 1 - one.float())


def test_a_tensor_without_axes_is_no_number():
    """To PyTorch the type of one does not count beside a tensor that has axes."""
    text = """
    N = 64
    X[N] : bf16
    let L[n] = X[n] - sum[n](X[n] * X[n])
    Y[n] : f32 = L[n]
    Z[n] : f32 = where(L[n] < 0.0, X[n], sum[n](X[n] * X[n]))
    """
    check(mirage_py.parse(text))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: x.float().softmax(-1),
        lambda x, w: (x.float() - x.float().mean(-1, keepdim=True)).tanh() * 3,
        lambda x, w: torch.nn.functional.layer_norm(x.float(), (64,)),
        lambda x, w: (x @ w).float().sigmoid(),
    ],
    ids=["softmax", "pointwise", "norm", "behind a product"],
)
def test_a_wide_result_of_half_inputs_is_computed_wide(fn):
    torch.manual_seed(0)
    x, w = torch.randn(4, 64).bfloat16(), torch.randn(64, 8).bfloat16()
    program, given = trace(fn, x, w), {"x": x, "w": w}
    result = torch_function(program)(*[given[t.name] for t in program.inputs])
    want = fn(x, w)
    assert result.dtype is want.dtype is torch.float32
    torch.testing.assert_close(result, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("fn", "dtype"),
    [
        (lambda x: (torch.where(x > 0, 1e5, x.float()) * 1e-3).half(), torch.float16),
        (lambda x: (x.float().clamp(min=1e5) * 1e-3).half(), torch.float16),
        (lambda x: (torch.where(x > 0, 3.4e38, x.float()) * 1e-38).bfloat16(), torch.bfloat16),
    ],
)
def test_a_number_that_the_half_type_does_not_have(fn, dtype: torch.dtype):
    # On a GPU torch refuses such a number; on a CPU it makes infinity of it.
    program = trace(fn, torch.randn(5, 7, generator=torch.Generator().manual_seed(1)).to(dtype))
    (result,) = check(program)
    assert result.isfinite().all()


def test_a_condition_without_dimensions():
    """Rows of a sequence that are appended to one of zeros, read one by one."""

    def following(x: torch.Tensor) -> torch.Tensor:
        longer = torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], 1)
        return longer[:, 1] + 0.5 * longer[:, 2]

    program = trace(following, torch.randn(4, 3))
    assert any(n.op == "mask" and not n.dims for n in program.nodes)
    check(program)


def _pooled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.max_pool2d(torch.relu(x * w), 3, 2, 1)


def _two_convolutions(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    inner = torch.relu(torch.nn.functional.conv2d(x, w, padding=1))
    return torch.nn.functional.conv2d(inner, v, stride=2) * 2


def _transposed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv_transpose2d(torch.tanh(x), w, stride=2, padding=1)


def _depthwise(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv1d(x.transpose(1, 2), w, padding=2, groups=4).transpose(1, 2)


def _of_a_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    normal = torch.nn.functional.group_norm(x, 2)
    return torch.nn.functional.conv2d(normal, w, padding=1)


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (_of_a_norm, [(2, 6, 5, 4), (3, 6, 3, 3)]),
        (_pooled, [(2, 3, 9, 8), (3, 1, 1)]),
        (_two_convolutions, [(2, 3, 9, 9), (4, 3, 3, 3), (5, 4, 3, 3)]),
        (_transposed, [(2, 3, 5, 4), (3, 2, 3, 4)]),
        (_depthwise, [(2, 9, 4), (4, 1, 3)]),
    ],
)
def test_windows_over_what_is_computed(fn, shapes):
    inputs = [torch.randn(s, generator=torch.Generator().manual_seed(3)) for s in shapes]
    program = trace(fn, *inputs)
    if fn is not _pooled:
        assert "convolved(" in eager_source(program)
    got = torch_function(program)(*inputs)
    torch.testing.assert_close(got, fn(*inputs), rtol=1e-5, atol=1e-5)
    check(program, 1e-5)


def test_a_computed_value_is_read_at_other_indices():
    b = ProgramBuilder("read")
    b.dim("i", 6), b.dim("j", 5), b.dim("o", 2), b.dim("k", 3)
    b.input("X", (6, 5), F32)
    held = b.stored(b.apply("exp", b.load("X", ("i", "j"))))
    o, k, j = ix.dim("o"), ix.dim("k"), ix.dim("j")
    turned = b.read(held, (o * 2 + k, j * -1 + 4))
    b.output("Y", b.sum(turned, ("k",)), (o, j), F32)
    wrapped = b.read(held, ((o * 2 + k) % 2, j))
    b.output("Z", wrapped, (j, o, k), F32)
    check(b.build(), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_overflows_where_it_is_masked_is_zero(dtype: torch.dtype):
    # Decays of a linear attention: below the diagonal exp(g - g') is small, above it is infinite.
    def decay(g: torch.Tensor) -> torch.Tensor:
        above = torch.ones(6, 6, dtype=torch.bool).triu(1)
        return (g[:, None] - g[None, :]).masked_fill(above, -torch.inf).exp()

    g = (-90.0 * torch.arange(6.0)).to(dtype)
    torch.testing.assert_close(torch_function(trace(decay, g))(g), decay(g))


def test_what_overflows_where_data_mask_it_is_zero():
    def chosen(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(keep <= 0, -torch.inf).exp()

    x, keep = torch.tensor([100.0, 1.0, 2.0]), torch.tensor([-1.0, 1.0, 0.0])
    torch.testing.assert_close(torch_function(trace(chosen, x, keep))(x, keep), chosen(x, keep))


def test_a_chain_may_be_longer_than_pythons_stack():
    b = ProgramBuilder("chain")
    b.dim("n", 4)
    b.input("X", (4,), F32)
    value = b.load("X", ("n",))
    for _ in range(1500):
        value = b.apply("tanh", b.apply("mul", value, b.const(1.5)))
    b.output("Y", value, ("n",), F32)
    (found,) = check(b.build())
    assert found.abs().min() > 0.8
