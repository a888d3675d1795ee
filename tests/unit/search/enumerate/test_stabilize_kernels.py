"""Shifts of exponentials in µGraphs of several kernels: stored, read, rescaled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from exp_graphs import (
    CAUSAL,
    LOOPED,
    NO_MASK,
    NORM,
    WHOLE,
    attention,
    check,
    check_floats,
    kernel,
    library,
    loads,
    ops,
    softmax,
)  # fmt: skip
from families import stabilize

from mirage_py.search.enumerate.search import search
from mirage_py.search.stabilize.stabilize import stabilized
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.interpret import evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F16
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.text_form import parse_ugraph
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.sizes.shrink import fixed_dims, shrink_ugraph
from mirage_py.verify.sizes.small_sizes import instantiate_small, small_extents


@pytest.mark.covering(1)
@pytest.mark.parametrize("masked", [NO_MASK, CAUSAL])
@pytest.mark.parametrize("combine", [WHOLE, LOOPED])
def test_parts_are_rescaled_to_one_shift(combine: str, masked: str) -> None:
    safe = check(attention(combine, masked))
    (added,) = safe.intermediates[2:]
    assert (added.name, added.shape, str(added.dtype)) == ("shift0", (2, 5, 3), "f32")
    assert ops(safe, 0).count("accum_rescaled") == 2
    assert loads(safe, 1).count("shift0") == 1
    assert ops(safe, 1).count("accum_rescaled") == (2 if combine == LOOPED else 0)
    assert ops(safe, 1).count("exp") == 1


def test_a_part_that_is_masked_wholly_counts_nothing() -> None:
    safe = stabilize(attention(WHOLE, CAUSAL))
    program = safe.program
    inputs = {t.name: np.ones(t.shape) for t in program.inputs}
    # Row 0 sees one key. All others, complete splits of them, would be e^800 times as heavy.
    inputs["Q"][:] = 200.0
    inputs["K"][:, 0] = -1.0
    inputs["V"][:, 0] = 3.0
    found = evaluate_ugraph(safe, inputs, FloatMeaning())["O"]
    assert found[:, 0] == pytest.approx(np.full((2, 6), 3.0))


def test_three_kernels_in_a_chain() -> None:
    safe = check(
        softmax(
            "tensor A[5, 2, 3] : f32\ntensor B[5, 2, 3] : f32\n"
            "tensor C[5, 2] : f32\ntensor D[5, 2] : f32",
            """
kernel first {
  grid b by 2, r by 1, p by 2
  %0 = load X[b, (r * 3 + p) * 4 + s]
  %1 = exp %0
  %2 = load W[(r * 3 + p) * 4 + s]
  %3 = mul %1, %2
  %4 = sum[s] %3
  %5 = sum[s] %1
  store A[b, r, p] = %4
  store B[b, r, p] = %5
}
kernel second {
  grid b by 2, r by 1
  %0 = load A[b, r, p]
  %1 = sum[p] %0
  %2 = load B[b, r, p]
  %3 = sum[p] %2
  store C[b, r] = %1
  store D[b, r] = %3
}
kernel third {
  grid b by 3
  %0 = load C[b, r]
  %1 = sum[r] %0
  %2 = load D[b, r]
  %3 = sum[r] %2
  %4 = div %1, %3
  store Y[b] = %4
}
""",
        )
    )
    shifts = safe.intermediates[4:]
    assert [t.shape for t in shifts] == [(5, 2, 3), (5, 2)]
    assert "shift0" in loads(safe, 1)
    assert "shift1" in loads(safe, 2)
    assert "shift0" not in loads(safe, 2)


def test_a_third_kernel_that_reads_two_shifts() -> None:
    safe = check(
        softmax(
            "tensor A[5, 2, 3] : f32\ntensor B[5, 2, 3] : f32\ntensor D[5, 2] : f32",
            """
kernel first {
  grid b by 2, r by 1, p by 2
  %0 = load X[b, (r * 3 + p) * 4 + s]
  %1 = exp %0
  %2 = load W[(r * 3 + p) * 4 + s]
  %3 = mul %1, %2
  %4 = sum[s] %3
  %5 = sum[s] %1
  store A[b, r, p] = %4
  store B[b, r, p] = %5
}
kernel second {
  grid b by 2, r by 1
  %0 = load B[b, r, p]
  %1 = sum[p] %0
  store D[b, r] = %1
}
kernel third {
  grid b by 3
  loop r by 1 {
    %0 = load A[b, r, p]
    %1 = sum[r, p] %0
    %2 = accum_sum %1
    %3 = load D[b, r]
    %4 = sum[r] %3
    %5 = accum_sum %4
  }
  %6 = div %2, %5
  store Y[b] = %6
}
""",
        )
    )
    assert loads(safe, 2).count("shift0") == loads(safe, 2).count("shift1") == 1
    assert ops(safe, 2).count("accum_max") == 1


@pytest.mark.parametrize("loop", ["", "loop"])
def test_a_square_is_rescaled_twice(loop: str) -> None:
    tail = """
  %0 = load A[b, p]
  %1 = sum[p] %0
  %2 = load B[b, p]
  %3 = sum[p] %2
  %4 = sqrt %3
  %5 = div %1, %4
  store Y[b] = %5
"""
    looped = """
  loop p by 2 {
    %0 = load A[b, p]
    %1 = sum[p] %0
    %2 = accum_sum %1
    %3 = load B[b, p]
    %4 = sum[p] %3
    %5 = accum_sum %4
  }
  %6 = sqrt %5
  %7 = div %2, %6
  store Y[b] = %7
"""
    safe = check(
        softmax(
            "tensor A[5, 3] : f32\ntensor B[5, 3] : f32",
            f"""
kernel first {{
  grid b by 2, p by 2
  %0 = load X[b, (r * 3 + p) * 4 + s]
  %1 = exp %0
  %2 = load W[(r * 3 + p) * 4 + s]
  %3 = mul %1, %2
  %4 = sum[r, s] %3
  %5 = square %1
  %6 = sum[r, s] %5
  store A[b, p] = %4
  store B[b, p] = %6
}}
kernel second {{
  grid b by 3
  {looped if loop else tail}
}}
""",
            NORM,
        )
    )
    assert ops(safe, 1).count("exp") == 2
    degrees = [n.degrees for n in kernel(safe, 1).nodes if n.op == "accum_rescaled"]
    assert degrees == ([(1,), (2,)] if loop else [])


def test_a_scale_of_whole_rows_flows_through_memory() -> None:
    safe = check(
        softmax(
            "tensor A[5] : f32\ntensor B[5] : f32",
            """
kernel first {
  grid b by 2
  %0 = load X[b, (r * 3 + p) * 4 + s]
  %1 = exp %0
  %2 = load W[(r * 3 + p) * 4 + s]
  %3 = mul %1, %2
  %4 = sum[r, p, s] %3
  %5 = sum[r, p, s] %1
  store A[b] = %4
  store B[b] = %5
}
kernel second {
  grid b by 3
  %0 = load A[b]
  %1 = load B[b]
  %2 = div %0, %1
  store Y[b] = %2
}
""",
        )
    )
    assert len(safe.intermediates) == 2
    assert "exp" not in ops(safe, 1)


def test_an_exp_that_is_computed_again_reads_the_shift() -> None:
    safe = check(
        softmax(
            "tensor B[5, 3] : f32\ntensor A[5] : f32",
            """
kernel first {
  grid b by 2, p by 2
  loop s by 3 {
    %0 = load X[b, (r * 3 + p) * 4 + s]
    %1 = exp %0
    %2 = sum[r, s] %1
    %3 = accum_sum %2
  }
  store B[b, p] = %3
}
kernel second {
  grid b by 2
  loop s by 3 {
    %0 = load W[(r * 3 + p) * 4 + s]
    %1 = load X[b, (r * 3 + p) * 4 + s]
    %2 = cast[f16] %1
    %3 = exp %2
    %4 = mul %0, %3
    %5 = sum[r, p, s] %4
    %6 = accum_sum %5
  }
  store A[b] = %6
}
kernel third {
  grid b by 3
  %0 = load A[b]
  %1 = load B[b, p]
  %2 = sum[p] %1
  %3 = div %0, %2
  store Y[b] = %3
}
""",
        )
    )
    # The second kernel sums over the splits, so it takes the maximum of the first one's maxima; the
    # third brings the sum of the first to that.
    assert loads(safe, 1).count("shift0") == 1
    assert "accum_max" not in ops(safe, 1)
    assert loads(safe, 2).count("shift0") == loads(safe, 2).count("shift1") == 1


def test_exps_in_the_second_kernel_only() -> None:
    safe = check(
        softmax(
            "tensor Z[5, 24] : f32",
            """
kernel first {
  grid b by 2, r by 1, p by 2, s by 3
  %0 = load X[b, (r * 3 + p) * 4 + s]
  %1 = neg %0
  %2 = neg %1
  store Z[b, (r * 3 + p) * 4 + s] = %2
}
kernel second {
  grid b by 2
  %0 = load Z[b, (r * 3 + p) * 4 + s]
  %1 = exp %0
  %2 = load W[(r * 3 + p) * 4 + s]
  %3 = mul %1, %2
  %4 = sum[r, p, s] %3
  %5 = sum[r, p, s] %1
  %6 = div %4, %5
  store Y[b] = %6
}
""",
        )
    )
    assert len(safe.intermediates) == 1
    assert ops(safe, 1).count("shift") == 1


SCALED = """
ugraph scaled
dim b = 5
dim c = 3
dim s = 6
input Q[5, 3] : f16
input K[6, 3] : f16
output Y[5] : f32
tensor A[5] : f32
program {
  %0 = load Q[b, c]
  %1 = load K[s, c]
  %2 = matmul[c] %0, %1
  %3 = const 0.25
  %4 = mul %2, %3
  %5 = exp %4
  %6 = sum[s] %5
  %7 = square %5
  %8 = sum[s] %7
  %9 = sqrt %8
  %10 = div %6, %9
  return Y[b] = %10
}
kernel first {
  grid b by 2
  %0 = load Q[b, c]
  %1 = const 4.0
  %2 = div %0, %1
  %3 = load K[s, c]
  %4 = matmul[c] %3, %2
  %5 = exp %4
  %6 = sum[s] %5
  store A[b] = %6
}
kernel second {
  grid b by 2
  %0 = load Q[b, c]
  %1 = const 0.25
  loop s by 4 {
    %2 = load K[s, c]
    %3 = mul %0, %2
    %4 = mul %1, %3
    %5 = sum[c] %4
    %6 = exp %5
    %7 = square %6
    %8 = sum[s] %7
    %9 = accum_sum %8
  }
  %10 = sqrt %9
  %11 = load A[b]
  %12 = div %11, %10
  store Y[b] = %12
}
"""


def test_an_exponent_with_its_scale_at_another_place() -> None:
    safe = check(parse_ugraph(SCALED, "text"))
    assert loads(safe, 1).count("shift0") == 1


def test_an_intermediate_that_two_kernels_read() -> None:
    safe = check(
        softmax(
            "tensor A[5, 3] : f32\ntensor B[5, 3] : f32\ntensor C[5] : f32",
            """
kernel first {
  grid b by 2, p by 2
  %0 = load X[b, (r * 3 + p) * 4 + s]
  %1 = exp %0
  %2 = load W[(r * 3 + p) * 4 + s]
  %3 = mul %1, %2
  %4 = sum[r, s] %3
  %5 = sum[r, s] %1
  store A[b, p] = %4
  store B[b, p] = %5
}
kernel second {
  grid b by 2
  %0 = load A[b, p]
  %1 = load B[b, p]
  %2 = div %0, %1
  %3 = sum[p] %1
  %4 = mul %2, %1
  %5 = div %4, %3
  %6 = sum[p] %5
  store C[b] = %6
}
kernel third {
  grid b by 2
  %0 = load C[b]
  %1 = load B[b, p]
  %2 = sum[p] %1
  %3 = mul %0, %2
  %4 = div %3, %2
  store Y[b] = %4
}
""",
        )
    )
    assert loads(safe, 1).count("shift0") == 1
    assert loads(safe, 2).count("shift0") + loads(safe, 2).count("shift1") <= 2


def test_a_scale_flows_through_a_library_product() -> None:
    safe = check(library())
    assert ops(safe, 0).count("shift") == 1
    assert len(safe.intermediates) == 2


def test_a_forgotten_rescale_is_refuted() -> None:
    safe = stabilize(attention(WHOLE))
    last = kernel(safe, 1)
    factor = next(n for n, node in enumerate(last.nodes) if node.op == "exp")
    place = next(n for n, node in enumerate(last.nodes) if factor in node.args)
    loaded = next(a for a in last.nodes[place].args if a != factor)
    changed = replace(last.nodes[place], op="maximum", args=(loaded, loaded))
    nodes = (*last.nodes[:place], changed, *last.nodes[place + 1 :])
    wrong = replace(safe, kernels=(safe.kernels[0], replace(last, nodes=nodes)))
    assert not field_test(safe.program, wrong, trials=2, seed=3).equal


def searched(*, causal: bool) -> Program:
    b = ProgramBuilder("attention")
    for d, size in {"q": 32, "s": 64, "d": 16, "e": 16}.items():
        b.dim(d, size)
    b.input("Q", (32, 16), F16)
    b.input("K", (64, 16), F16)
    b.input("V", (64, 16), F16)
    p = b.apply("exp", b.matmul(b.load("Q", "qd"), b.load("K", "sd"), "d"))
    if causal:
        p = b.apply("mul", b.mask(ix.compare("le", ix.dim("s"), ix.dim("q"))), p)
    b.output("O", b.matmul(b.apply("div", p, b.sum(p, "s")), b.load("V", "se"), "s"), "qe", F16)
    return b.build()


@pytest.mark.parametrize("causal", [False, True])
def test_what_the_search_finds_does_not_overflow(causal: bool) -> None:
    found = [stabilized(f.ugraph) for f in search(searched(causal=causal)).families]
    safe = [s.ugraph for s in found if not s.faults]
    several = [u for u in safe if len(u.kernels) > 1]
    assert len(several) > len(found) // 4
    for family in safe:
        extents = small_extents(family.program, 3, fixed_dims(family.program, family.kernels))
        check_floats(instantiate_small(shrink_ugraph(family, extents)), scale=300.0)
