"""Parts in sequence are the program, and what crosses a cut may be in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from graph_strategies import programs
from hypothesis import given, settings
from torch import Tensor
from unit.frontend.spec.large_references import PARTITIONED, REFERENCES
from unit.partition.samples import in_sequence, inputs_of, small, spec

from mirage_py.frontend.spec import parse_file
from mirage_py.frontend.torch import trace
from mirage_py.pipeline.partition import partition as cuts
from mirage_py.pipeline.partition.flow import Flow
from mirage_py.pipeline.partition.limits import PartitionLimits, fits_part
from mirage_py.pipeline.partition.partition import Partition, partition
from mirage_py.pipeline.partition.parts import held_values
from mirage_py.pipeline.pipeline import normalise, partition_of
from mirage_py.ugraph.building import sharing
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.checks.validate import validate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program
from mirage_py.ugraph.ir.dtypes import F16, F32, DType
from mirage_py.ugraph.ir.program import Program

LARGE = Path(__file__).parents[4] / "examples" / "large"
NORM_THEN_PRODUCTS = """
T = 4, D = 5, F = 3
X[T, D], W[D, F], V[D, F] : f16
let h[t, d] = rms_norm[d](X[t, d], eps=1e-6)
Y[t, s] = sum[f](sum[d](h[t, d] * W[d, f]) * sum[d](h[s, d] * V[d, f]))
"""


def check_sequence(program: Program, found: Partition) -> None:
    inputs = inputs_of(program)
    with np.errstate(all="ignore"):
        expected = evaluate_program(program, inputs, FloatMeaning())
        got = in_sequence(found, inputs)
    assert list(got) == list(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [*REFERENCES, *PARTITIONED])
@pytest.mark.parametrize("operators", [1, 4])
def test_parts_of_the_large_examples_in_sequence_are_the_program(name: str, operators: int):
    program = small(name)
    found = partition(program, PartitionLimits(operators=operators, reduced_dims=1))
    assert len(found.parts) > 1
    for number, part in enumerate(found.parts):
        validate_program(part)
        assert part.name == f"{program.name}_part{number}"
        for d in part.dims:
            assert program.sizes[d.name] == d.size
    check_sequence(program, found)


@settings(max_examples=60, deadline=None)
@given(programs())
def test_parts_of_random_programs_in_sequence_are_the_program(program: Program):
    found = partition(program, PartitionLimits(operators=2, reduced_dims=1))
    for part in found.parts:
        validate_program(part)
    check_sequence(program, found)


def test_a_transformer_block_is_cut_where_people_cut_it():
    program = normalise(parse_file(LARGE / "transformer_block.math"))
    found = partition(program)
    assert all(fits_part(part, PartitionLimits()) for part in found.parts)
    inputs = [[t.name for t in part.inputs] for part in found.parts]
    assert inputs == [
        ["X", "R", "G", "WQ", "WK", "WV"],
        ["WO", "T2", "T3", "T4", "T1"],
        ["N", "W1", "W2", "W3", "T5"],
    ]
    # Residuals are not rounded; queries, keys and values are.
    assert [t.dtype for t in found.cuts] == [F32, F16, F16, F16, F32]
    # Queries and keys are made of the same rows, by one name.
    assert found.parts[0].dim_names == ("t", "d", "h", "e")
    assert found.reason == (
        "partitioned in 3 parts at T1 (1.0 MB), T2 (0.5 MB), T3 (0.5 MB), T4 (0.5 MB), "
        "T5 (1.0 MB): beyond the limit of 24 operators and 4 reduced dimensions "
        "(transformer_block has 46 operators and 6 reduced dims)"
    )


@pytest.mark.parametrize("name", ["causal_attention", "qknorm_attention_out", "softcap_attention"])
def test_an_exponential_and_its_sum_stay_together(name: str):
    found = partition(small(name), PartitionLimits(operators=1, reduced_dims=1))
    homes = [part for part in found.parts if any(n.op == "exp" for n in part.nodes)]
    assert len(homes) == 1
    assert [n.op for n in homes[0].nodes].count("sum") == 1
    assert [n.op for n in homes[0].nodes].count("div") >= 1
    _, uncut = found.reason.split("; ")
    assert homes[0].name in uncut


def test_a_log_takes_the_scale_out():
    program = spec("B = 4, D = 5\nX[B, D] : f16\nY[b] = log(sum[d](exp(X[b, d]))) * 2 + 1")
    first, second, *_ = partition(program, PartitionLimits(operators=1)).parts
    assert [n.op for n in first.nodes] == ["load", "exp", "sum", "log"]
    assert second.nodes[0].op == "load"


def test_a_value_read_at_two_indices_is_one_tensor():
    found = partition(spec(NORM_THEN_PRODUCTS), PartitionLimits(operators=8, reduced_dims=2))
    readers = [part for part in found.parts if any(t in found.cuts for t in part.inputs)]
    assert readers
    # The rows are normalised once.
    assert sum(n.op == "sqrt" for part in found.parts for n in part.nodes) == 1
    check_sequence(found.program, found)


def test_what_products_read_is_half_and_the_rest_is_not_rounded():
    found = partition(spec(NORM_THEN_PRODUCTS), PartitionLimits(operators=1, reduced_dims=1))
    multiplied = {
        part.nodes[a].access.tensor
        for part in found.parts
        for n in part.nodes
        if n.op == "matmul"
        for a in n.args
    }
    types = {t.name: t.dtype for t in found.cuts}
    assert F16 in types.values()
    assert F32 in types.values()
    assert types == {name: F16 if name in multiplied else F32 for name in types}


def test_inputs_of_several_types_meet_in_f32():
    mixed = spec(
        "B = 4\nX[B, B], V[B, B] : f16\nW[B, B] : f32\n"
        "Y[b, d] = sum[c](V[c, d] * sum[a](X[b, a] * W[a, c]))"
    )
    assert [t.dtype for t in partition(mixed, PartitionLimits(operators=1)).cuts] == [F32]


@pytest.mark.parametrize(("dtype", "cuts"), [("f32", ["H"]), ("f16", ["T1"])])
def test_an_output_that_is_precise_enough_is_the_tensor_between_parts(dtype: str, cuts: list[str]):
    program = spec(
        f"B = 4, D = 5\nX[B, D], R[B, D] : f16\nH[B, D] : {dtype}\nH[b, d] = X[b, d] + R[b, d]\n"
        "Y[b, d] = exp(H[b, d])"
    )
    found = partition(program, PartitionLimits(operators=1))
    assert [t.name for t in found.cuts] == cuts
    check_sequence(program, found)


def test_a_scalar_crosses_as_one_element():
    program = spec("B = 4, D = 5\nX[B, D] : f32\nY[b, d] = X[b, d] / sqrt(sum[i, j](X[i, j]^2))")
    found = partition(program, PartitionLimits(operators=1))
    assert (1,) in [t.shape for t in found.cuts]
    check_sequence(program, found)


def test_fewest_bytes_cross():
    # Between the two products the narrow tensor crosses, not the wide one.
    program = spec(
        "B = 64, D = 64, R = 2\nX[B, D], A[D, R], C[R, D] : f16\n"
        "Y[b, f] = silu(sum[r](silu(sum[d](silu(X[b, d]) * A[d, r])) * C[r, f]))"
    )
    found = partition(program, PartitionLimits(operators=3, reduced_dims=1))
    assert [t.shape for t in found.cuts] == [(64, 2)]


# Two norms over a batch in training: what was running is scaled, and joined by what the batch has.
RUNNING = """
B = 64, C = 16, N = 32
X[B, C], W[C, N], R[C], S[N] : f32
m[c] = mean[b](X[b, c])
Y[b, n] = sum[c](relu(X[b, c] - m[c]) * W[c, n])
k[n] = mean[b](Y[b, n])
Z[b, n] = relu(Y[b, n] - k[n])
P[c] = R[c] * 0.9 + m[c] * 0.1
Q[n] = S[n] * 0.9 + k[n] * 0.1
"""


def test_what_is_computed_of_inputs_alone_stands_before_what_needs_it():
    program = normalise(spec(RUNNING))
    flow = Flow(program)
    scaled = {
        n
        for n, needed in flow.needs.items()
        if not needed and program.nodes[flow.first[n]].op == "mul"
    }
    assert len(scaled) == 2
    for order in (*flow.orders, flow.smallest_first):
        assert sorted(order) == sorted(flow.needs)
        place = {n: at for at, n in enumerate(order)}
        assert all(place[a] < place[n] for n, needed in flow.needs.items() for a in needed)
        for n in scaled:
            assert n in flow.needs[order[place[n] + 1]]


def test_what_cannot_be_cut_is_one_part():
    program = spec("B = 4, D = 5\nX[B, D] : f16\nY[b, d] = softmax[d](X[b, d])")
    found = partition(program, PartitionLimits(operators=1))
    assert len(found.parts) == 1
    assert found.cuts == ()
    assert found.reason.startswith("searched whole: it cannot be cut")


CHAIN = (
    "B = 64, D = 64, R = 2\nX[B, D], A[D, R], C[R, D] : f16\n"
    "let h0[b, d] = X[b, d]\n"
    + "".join(
        f"let p{n}[b, f] = sum[r](sum[d](silu(h{n - 1}[b, d]) * A[d, r]) * C[r, f])\n"
        f"let h{n}[b, d] = h{n - 1}[b, d] + sin(p{n}[b, d])\n"
        for n in range(1, 7)
    )
    + "Y[b, d] = h6[b, d]"
)


def test_few_of_the_segments_are_made_and_the_cheapest_cuts_are_found(
    monkeypatch: pytest.MonkeyPatch,
):
    program, limits = spec(CHAIN), PartitionLimits(operators=6, reduced_dims=2)
    made = []
    make = cuts._Cuts._program

    def counted(self, start, end, held, name):
        made.append((start, end))
        return make(self, start, end, held, name)

    monkeypatch.setattr(cuts._Cuts, "_program", counted)
    flow = Flow(program)
    order = flow.orders[0]
    found = cuts._Cuts(flow, order, limits)
    assert len(made) < 4 * len(order)

    # Against all segments, from the shortest on to the first that is too large.
    held = held_values(flow, order)
    cost = {0: 0.0}
    for end in range(1, len(order) + 1):
        totals = []
        for start in range(end - 1, -1, -1):
            part = make(found, start, end, held, "part")
            if start < end - 1 and not fits_part(part, limits):
                break
            totals.append(cost[start] + cuts._cost(part))
        cost[end] = min(totals)
    assert found.cost == cost[len(order)]


def test_what_a_projection_computes_has_its_features_last():
    """However it is read later: keys that scores take transposed are written as they come."""
    import torch

    def attention(x, w):
        q, k, v = (p.reshape(2, 16, 2, 6).transpose(1, 2) for p in (x @ w.mT).chunk(3, dim=-1))
        return ((q @ k.transpose(-2, -1)).softmax(-1) @ v).transpose(1, 2)

    data = torch.randn(2, 16, 8), torch.randn(36, 8)
    found = partition(normalise(trace(attention, *data)), PartitionLimits(4, 2))
    shapes = [t.shape for part in found.parts for t in part.inputs if t.name.startswith("T")]
    assert {shape for shape in shapes if 6 in shape} == {(2, 16, 2, 6)}


def test_a_cache_that_is_returned_is_copied_apart(monkeypatch: pytest.MonkeyPatch):
    def step(q: Tensor, keys: Tensor, values: Tensor):
        scores = torch.einsum("bd,bsd->bs", q, keys).softmax(-1)
        return keys.clone(), torch.einsum("bs,bsd->bd", scores, values), q + 1, values.clone()

    shapes = (3, 16), (3, 8, 16), (3, 8, 16)
    program = trace(step, *(torch.zeros(s) for s in shapes))
    assert partition_of(program) is None  # it takes no time
    monkeypatch.setattr(cuts, "_LARGE_COPY_BYTES", 3 * 8 * 16 * 4)
    found = partition_of(program)
    assert found is not None
    results = [o.tensor.name for o in program.outputs]
    written = [[o.tensor.name for o in part.outputs] for part in found.parts]
    assert written == [results[1:3], results[:1], results[3:]]
    # Programs whose rows are kept apart are not cut.
    assert partition_of(program, apart=False) is None
    check_sequence(found.program, found)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x.clone(), x + y),
        # The norm has what it returns in registers.
        lambda x, y: (x.clone(), x / x.square().mean(-1, keepdim=True), y * 2),
    ],
)
def test_what_a_kernel_has_anyway_is_not_copied_apart(function, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cuts, "_LARGE_COPY_BYTES", 1)
    assert partition_of(trace(function, torch.zeros(3, 4), torch.zeros(3, 4))) is None


NORM_LINEAR = """
B = {rows}, D = 1024, N = 4096
X[B, D], G[D], W[D, N] : bf16
Y[b, n] = sum[d](rms_norm[d](X[b, d], eps=1e-6) * G[d] * W[d, n])
"""


@pytest.mark.parametrize(("rows", "parts"), [(1, 1), (64, 1), (8192, 2)])
def test_rows_are_normalised_before_a_large_matmul_and_in_a_small_one(rows: int, parts: int):
    found = partition(normalise(spec(NORM_LINEAR.format(rows=rows))))
    assert len(found.parts) == parts


BATCH_NORM = """
B = 64, D = 48
X[B, D], R[B, D] : {half}
let y[b, d] = tanh(X[b, d]) * 2 + R[b, d]
let m[d] = mean[b](y[b, d])
Z[b, d] = (y[b, d] - m[d]) / sqrt(mean[b]((y[b, d] - m[d])^2) + 1e-5)
"""


@pytest.mark.parametrize(("in_halves", "between"), [(False, F32), (True, F16)])
def test_cuts_in_halves_but_for_statistics(in_halves: bool, between: DType):
    program = normalise(spec(BATCH_NORM.format(half="f16")))
    found = partition(program, PartitionLimits(operators=4), in_halves=in_halves)
    assert {t.shape: t.dtype for t in found.cuts} == {(64, 48): between, (48,): F32}
    assert found.in_halves == in_halves
    assert found.with_parts(found.parts, "part", "").in_halves == in_halves


def test_what_is_read_at_other_indices_is_no_statistic():
    """Branches of a concatenation were stored in float32, twice the bytes."""
    x, first, second = (torch.empty(s, dtype=torch.float16) for s in ((64, 96), (96, 48), (96, 16)))

    def branches(x, first, second):
        return torch.cat((torch.relu(x @ first), torch.tanh(x @ second)), 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "_WASTED", 0.0)
        patch.setattr(sharing, "_OF_AN_ELEMENT", 0.0)
        patch.setattr(ProgramBuilder, "has_stored", True)
        program = normalise(trace(branches, x, first, second))
    found = partition(program, PartitionLimits(operators=4), in_halves=True)
    assert {t.shape: t.dtype for t in found.cuts} == {(64, 48): F16, (64, 16): F16}


def test_cuts_of_a_program_in_float32_are_in_float32():
    program = normalise(spec(BATCH_NORM.format(half="f32")))
    found = partition(program, PartitionLimits(operators=4), in_halves=True)
    assert {t.dtype for t in found.cuts} == {F32}


def test_a_norm_of_long_rows_is_not_cut_between_its_mean_and_its_variance():
    """Each of them would read all rows once more, and what is between them is as large."""
    text = """B = 32768, C = 8
X[B, C] : f32
let E[b, c] = exp(tanh(X[b, c]))
let A[c] = sum[b](E[b, c]) / 32768
let V[c] = sum[b](square(E[b, c] - A[c])) / 32768
Y[b, c] = (E[b, c] - A[c]) / sqrt(V[c] + 0.00001)"""
    found = partition(spec(text), PartitionLimits(operators=9))
    assert [[n.op for n in p.nodes].count("sum") for p in found.parts] in ([0, 2], [2, 0])


def test_keys_that_are_returned_beside_attention_are_computed_once_for_both():
    def attention(x, w, q):
        keys = torch.nn.functional.linear(x, w).view(2, 8, 2, 4).transpose(1, 2)
        return (q @ keys.transpose(2, 3)).softmax(-1) @ keys, keys.contiguous()

    inputs = torch.randn(2, 8, 6), torch.randn(8, 6), torch.randn(2, 2, 5, 4)
    program = trace(attention, *inputs)
    found = partition_of(program)
    assert found is not None
    products = [[n.op for n in part.nodes].count("matmul") for part in found.parts]
    assert products == [1, 2]
    given = {t.name: d.double().numpy() for t, d in zip(program.inputs, inputs, strict=True)}
    got = in_sequence(found, given)
    for output, want in zip(program.outputs, attention(*(d.double() for d in inputs)), strict=True):
        np.testing.assert_allclose(got[output.tensor.name], want.numpy(), rtol=1e-9, atol=1e-12)
    # Where rows are to stay apart nothing is cut.
    assert partition_of(program, apart=False) is None


@pytest.mark.parametrize("late", [False, True])
def test_attention_to_few_keys_is_not_cut_though_its_scores_are_smaller(late: bool):
    """77 keys, heads of 160 columns, as in Stable Diffusion."""

    def attention(x, keys, wq, wk, wv, wo):
        def heads(y):
            return y.view(*y.shape[:2], 2, -1).transpose(1, 2)

        linear = torch.nn.functional.linear
        v = None if late else heads(linear(keys, wv))
        scores = heads(linear(x, wq)) @ heads(linear(keys, wk)).transpose(2, 3)
        weights = scores.softmax(-1)
        v = heads(linear(keys, wv)) if late else v
        return linear((weights @ v).transpose(1, 2).flatten(2), wo)

    def of(*sizes):
        return torch.empty(*sizes, dtype=torch.bfloat16)

    weights = of(320, 320), of(320, 96), of(320, 96), of(320, 320)
    program = normalise(trace(attention, of(2, 1024, 320), of(2, 77, 96), *weights))
    found = partition(program)
    assert [[n.op for n in part.nodes].count("matmul") for part in found.parts] == [3, 3]
    assert [t.shape for t in found.cuts] == [(2, 1024, 2, 160), (2, 77, 2, 160), (2, 77, 2, 160)]
    # Where nothing else is small enough, it is.
    assert len(partition(program, PartitionLimits(operators=2)).parts) == 4
