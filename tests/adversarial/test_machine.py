"""The second interpreter against NumPy, and its behaviour where the first one refuses."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import numpy as np
import plans
import pytest
from adversarial import machine
from adversarial.corpus import originals
from adversarial.judge import DIFFERENT, OVERFLOWS, SAME, random_inputs, verdict
from adversarial.machine import CrashError, run_program, run_ugraph

from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.operators import ELEMENTWISE
from mirage_py.ugraph.operators.base import all_operators
from mirage_py.ugraph.text.text_form import parse_ugraph

REFERENCES = {
    "rms": (plans.rms_plan, plans.rms_reference, "Y"),
    "attention": (plans.attention_plan, plans.attention_reference, "O"),
    "two kernels": (plans.two_kernel_plan, plans.scale_reference, "Y"),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_it_computes_what_numpy_does(name: str) -> None:
    make, reference, output = REFERENCES[name]
    ugraph = make().ugraph
    inputs = plans.random_inputs(ugraph.program)
    expected = reference(inputs)
    assert plans.relative_error(run_program(ugraph.program, inputs)[output], expected) < 1e-12
    for backwards in (False, True):
        found = run_ugraph(ugraph, inputs, backwards=backwards)
        assert plans.relative_error(found[output], expected) < 1e-12


def test_it_shares_no_code_with_what_it_judges() -> None:
    tree = ast.parse(Path(machine.__file__).read_text(encoding="utf-8"))
    imported = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    ours = [name for name in imported if name.startswith("mirage_py")]
    # Data only.
    assert sorted(ours) == [
        f"mirage_py.ugraph.ir.{name}" for name in ("dtypes", "index", "node", "program", "ugraph")
    ]
    source = Path(machine.__file__).read_text(encoding="utf-8")
    assert ".evaluate(" not in source
    assert "over_floats" not in source


def test_every_elementwise_operator_agrees_with_the_other_interpreter() -> None:
    draw = np.random.default_rng(0)
    for row in all_operators():
        name = row.name
        if row.kind != ELEMENTWISE or name == "cast":
            continue
        args = [draw.normal(size=50) for _ in range(row.arity)]
        with np.errstate(all="ignore"):
            found = np.asarray(machine.FUNCTIONS[name](*args), dtype=np.float64)
            expected = FloatMeaning().apply(name, None, args)
        assert np.allclose(found, expected, rtol=1e-12, equal_nan=True), name


HEAD = """
ugraph small
dim a = 5
dim b = 4
input X[5, 4] : f32
output Y[5, 4] : f32
tensor T[5, 4] : f32
program {
  %0 = load X[a, b]
  %1 = neg %0
  return Y[a, b] = %1
}
"""
NEGATE = "kernel first {\ngrid a by 2\n%0 = load X[a, b]\n%1 = neg %0\nstore T[a, b] = %1\n}\n"
COPY = "kernel last {\ngrid a by 2, b by 3\n%0 = load T[a, b]\nstore Y[a, b] = %0\n}\n"


def small(kernels: str, *, tensor: str = "T[5, 4] : f32") -> UGraph:
    return parse_ugraph(HEAD.replace("T[5, 4] : f32", tensor) + kernels)


def inputs() -> dict[str, np.ndarray]:
    return {"X": np.random.default_rng(1).normal(size=(5, 4))}


def test_kernels_run_in_order_and_memory_starts_as_nan() -> None:
    right = small(NEGATE + COPY)
    assert np.array_equal(run_ugraph(right, inputs())["Y"], -inputs()["X"])
    turned = UGraph(right.program, right.kernels[::-1], right.intermediates)
    assert np.isnan(run_ugraph(turned, inputs())["Y"]).all()
    assert verdict(right.program, right) == SAME
    assert verdict(right.program, turned) == DIFFERENT


def test_an_integer_tensor_drops_fractions() -> None:
    found = run_ugraph(small(NEGATE + COPY, tensor="T[5, 4] : i32"), inputs())["Y"]
    assert np.array_equal(found, np.trunc(-inputs()["X"]))


def test_blocks_that_write_one_place_depend_on_their_order() -> None:
    right = small(NEGATE + COPY)
    (first, last) = right.kernels
    store = dataclasses.replace(first.nodes[-1], attr=Access("T", (ix.dim("a") % 2, ix.dim("b"))))
    racing = dataclasses.replace(first, nodes=(*first.nodes[:-1], store))
    wrong = UGraph(right.program, (racing, last), right.intermediates)
    forwards = run_ugraph(wrong, inputs())["Y"]
    assert not np.array_equal(forwards, run_ugraph(wrong, inputs(), backwards=True)["Y"])


def test_what_is_read_outside_crashes() -> None:
    right = small(NEGATE + COPY)
    (first, last) = right.kernels
    for wrong in (ix.dim("a") + 1, ix.dim("a") - 1):
        load = dataclasses.replace(first.nodes[0], attr=Access("X", (wrong, ix.dim("b"))))
        outside = dataclasses.replace(first, nodes=(load, *first.nodes[1:]))
        with pytest.raises(CrashError, match="outside"):
            run_ugraph(UGraph(right.program, (outside, last), right.intermediates), inputs())


def test_additions_start_at_zero_and_the_first_block_stores_what_all_have() -> None:
    text = """
ugraph sums
dim a = 5
dim p = 3
dim b = 4
input X[5, 12] : f32
output Y[5] : f32
output Z[5] : f32
program {
  %0 = load X[a, p * 4 + b]
  %1 = sum[p, b] %0
  %2 = load X[a, 0]
  return Y[a] = %1
  return Z[a] = %2
}
kernel k {
  grid a by 2, p by 2
  %0 = load X[a, p * 4 + b]
  %1 = sum[b] %0
  %2 = load X[a, 0]
  store_add Y[a] = %1
  store Z[a] = %2
}
"""
    ugraph = parse_ugraph(text)
    values = {"X": np.random.default_rng(2).normal(size=(5, 12))}
    found = run_ugraph(ugraph, values)
    assert np.allclose(found["Y"], values["X"].sum(axis=1), rtol=1e-14)
    assert np.array_equal(found["Z"], values["X"][:, 0])


def test_a_shift_that_overflows_is_told_from_a_wrong_number() -> None:
    text = """
ugraph softmax
dim a = 5
dim b = 4
input X[5, 4] : f32
output Y[5, 4] : f32
program {
  %0 = load X[a, b]
  %1 = exp %0
  %2 = sum[b] %1
  %3 = div %1, %2
  return Y[a, b] = %3
}
kernel k {
  grid a by 2
  %0 = load X[a, b]
  %1 = max[b] %0
  %2 = const 1000.0
  %3 = OP %1, %2
  %4 = shift %3
  %5 = sub %0, %4
  %6 = exp %5
  %7 = sum[b] %6
  %8 = div %6, %7
  store Y[a, b] = %8
}
"""
    far = parse_ugraph(text.replace("OP", "sub"))
    assert verdict(far.program, far) == OVERFLOWS
    near = parse_ugraph(text.replace("OP", "div"))
    assert verdict(near.program, near) == SAME
    wrong = parse_ugraph(text.replace("OP", "sub").replace("sub %0, %4", "div %0, %4"))
    assert verdict(wrong.program, wrong) == DIFFERENT


def test_both_interpreters_agree_on_what_searches_found() -> None:
    for name, (program, graph) in list(originals().items())[::9]:
        values = random_inputs(program, 3, 1.0)
        other = evaluate_ugraph(graph, values, FloatMeaning())
        expected = evaluate_program(program, values, FloatMeaning())
        for tensor, found in run_ugraph(graph, values).items():
            assert np.allclose(found, other[tensor], rtol=1e-9, atol=1e-12), name
        for tensor, found in run_program(program, values).items():
            assert np.allclose(found, expected[tensor], rtol=1e-9, atol=1e-12), name
