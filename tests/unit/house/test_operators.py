"""Every operator, in every place that must know it: a new one fails here until all of them do.

That a back end computes them right is tested beside it, as in
tests/unit/codegen/test_triton_operators.py; that the e-graph has them in
tests/unit/axioms/terms/test_term.py.
"""

from __future__ import annotations

import importlib

import pytest
import torch

from mirage_py.frontend.spec.functions import function_names
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import ELEMENTWISE, Operator, all_operators

OPERATORS = [o for o in all_operators() if o.kind == ELEMENTWISE]
# Casts carry a type; tests/unit/runtime/eager/test_eager.py has them.
UNTYPED = [o for o in OPERATORS if o.name != "cast"]
BACK_ENDS = {"cuda": "cuda.text.expressions", "triton": "triton.expressions"}
# Written with signs, or by another name, or by the search alone.
WITHOUT_A_FUNCTION = (
    "add", "sub", "mul", "div", "neg", "lt", "le", "gt", "ge", "eq", "ne", "maximum", "minimum",
    "shift",
)  # fmt: skip
# Rational functions of their operands: the field computes them, so the error bound may too.
RATIONAL = (
    "add", "sub", "mul", "div", "neg", "square", "where", "cast", "reciprocal_no_nan", "shift",
)  # fmt: skip


def program_of(operator: Operator) -> Program:
    b = ProgramBuilder(operator.name)
    b.dim("m", 5)
    names = ("X", "Y", "Z")[: operator.arity]
    for name in names:
        b.input(name, (5,), F32)
    args = [b.load(name, ("m",)) for name in names]
    b.output("R", b.apply(operator.name, *args), ("m",), F32)
    return b.build()


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("operator", UNTYPED, ids=lambda o: o.name)
def test_every_back_end_emits_it(back_end: str, operator: Operator):
    module = importlib.import_module(f"mirage_py.codegen.{BACK_ENDS[back_end]}")
    emitted = {**module.ELEMENTWISE, **getattr(module, "STEPS", {})}
    assert operator.name in emitted or operator.lowered is not None


@pytest.mark.parametrize("operator", UNTYPED, ids=lambda o: o.name)
def test_eager_pytorch_computes_it(operator: Operator):
    program = program_of(operator)
    drawn = torch.rand(operator.arity, 5, generator=torch.Generator().manual_seed(1)) + 0.1
    inputs = {t.name: row for t, row in zip(program.inputs, drawn, strict=True)}
    want = evaluate_program(
        program, {n: x.double().numpy() for n, x in inputs.items()}, FloatMeaning()
    )
    got = torch_function(program)(*inputs.values())
    torch.testing.assert_close(got.double(), torch.as_tensor(want["R"]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_the_spec_language_has_it(operator: Operator):
    assert operator.name in (*function_names(), *WITHOUT_A_FUNCTION)


def test_the_error_bound_computes_rational_functions_alone():
    """An operator that the bound took for a rational function without being one would give a number
    that nobody has proven.
    """
    assert sorted(o.name for o in OPERATORS if o.is_rational) == sorted(RATIONAL)
