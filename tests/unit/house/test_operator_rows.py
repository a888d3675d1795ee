"""Every row of the table of elementwise operators says what is true of its operator, and kernels of
both languages compute it: what a row lacks, or says wrongly, fails here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from naive import naive_plan

from mirage_py.frontend.spec import parse
from mirage_py.frontend.torch import trace
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.field import FIELDS, FieldArray, FieldOps
from mirage_py.ugraph.interpret.meaning import FieldMeaning, FloatMeaning
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import ELEMENTWISE, Operator, all_operators
from mirage_py.verify.field_test.polynomial_degree import DegreeMeaning, Degrees
from mirage_py.verify.field_test.unknown_functions import UnknownFunctionMeaning
from mirage_py.verify.numerical_check.rounding_error import Rounded, RoundingMeaning

ROWS = [o for o in all_operators() if o.kind == ELEMENTWISE and o.name not in ("cast", "shift")]
UNARY = [o for o in ROWS if o.arity == 1]
COUNT = 1024
SPREADS = 4.0
LEAST = 2.0**-126


def ids(row: Operator) -> str:
    return row.name


def numbers(row: Operator) -> np.ndarray:
    """Of every size that float32 holds with room for squares, around what the row says is special,
    and around 0 and 1; where the operator has a value.
    """
    draw = np.random.default_rng(3)
    sign = np.where(np.arange(64) % 2 == 0, 1.0, -1.0)
    sizes = [(1e-30, 1e-4), (1e-4, 0.1), (0.1, 1.0), (1.0, 20.0), (20.0, 100.0), (100.0, 1e15)]
    found = [sign * np.exp(draw.uniform(np.log(a), np.log(b), 64)) for a, b in sizes]
    near = sign * np.exp(draw.uniform(np.log(2.0**-24), np.log(0.1), 64))
    found += [c + (abs(c) or 1.0) * near for c in (0.0, 1.0, -1.0, *row.points)]
    x = np.concatenate(found).astype(np.float32).astype(np.float64)
    if row.least > -np.inf:
        x = np.where(x > row.least, x, np.abs(x))
    return x


def floats(row: Operator, *operands: np.ndarray) -> np.ndarray:
    return FloatMeaning().apply(row.name, None, operands)


def operands_of(row: Operator) -> list[np.ndarray]:
    """Operands whose result float32 holds."""
    x = numbers(row)
    args = [np.roll(x, 7 * n) for n in range(row.arity)]
    if row.name == "pow":
        args = [np.clip(np.abs(args[0]), 1e-3, 1e3), np.clip(args[1], -4.0, 4.0)]
    if row.name == "where":
        args[0] = (args[0] > 0).astype(np.float64)
    if row.is_bitwise:
        args = [np.rint(np.clip(args[0], -4e4, 4e4)), np.rint(np.clip(np.abs(args[1]), 0, 15))]
    args = [a.astype(np.float32).astype(np.float64) for a in args]
    size = np.abs(floats(row, *args))
    fits = (size < 1e37) & ((size > 1e-37) | (size == 0))
    return [np.resize(a[fits], COUNT) for a in args]


def program_of(*rows: Operator) -> Program:
    """Each row of operands of its own, ``COUNT`` of them."""
    b = ProgramBuilder("rows")
    b.dim("n", COUNT)
    for row in rows:
        args = []
        for number in range(row.arity):
            b.input(f"{row.name}_{number}", (COUNT,), F32)
            args.append(b.load(f"{row.name}_{number}", ("n",)))
        if row.name == "where":
            args[0] = b.apply("gt", args[0], b.const(0.5))
        b.output(f"R_{row.name}", b.apply(row.name, *args), ("n",), F32)
    return b.build()


@pytest.mark.parametrize(
    ("backend", "run"),
    [
        ("triton", run_interpreted),
        pytest.param(
            "cuda",
            run_emulated,
            marks=pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler"),
        ),
    ],
)
def test_kernels_compute_it_within_its_error(backend, run):
    plan = replace(naive_plan(program_of(*ROWS), {"n": 64}), backend=backend)
    operands = {row.name: operands_of(row) for row in ROWS}
    found = run(plan, {f"{op}_{n}": a for op, all_ in operands.items() for n, a in enumerate(all_)})
    wrong: dict[str, float] = {}
    for row in ROWS:
        meaning = RoundingMeaning(F32.unit_roundoff)
        want = meaning.apply(row.name, None, [Rounded(a) for a in operands[row.name]])
        error = 0.0 if want.error is None else want.error
        off = np.abs(found[f"R_{row.name}"] - want.value) / (SPREADS * error + LEAST)
        if not (off <= 1.0).all():
            wrong[row.name] = float(off.max())
    assert wrong == {}


@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_its_text_in_torch_means_the_same(row: Operator):
    args = operands_of(row)
    got = torch_function(program_of(row))(*(torch.tensor(a).float() for a in args))
    want = floats(row, *args)
    scale = np.abs(args[0]) if row.rounds == "operand" else np.abs(want)
    assert (np.abs(got.double().numpy() - want) <= 16 * F32.unit_roundoff * scale + LEAST).all()


@pytest.mark.parametrize("row", [o for o in UNARY if o.aten], ids=ids)
def test_its_name_in_torch_is_this_operator(row: Operator):
    for name in row.aten:
        packet, overload = name.split(".")
        call = getattr(getattr(torch.ops.aten, packet), overload)
        program = trace(lambda x, call=call: call(x), torch.ones(4, 8))
        assert [n.op for n in program.nodes if n.op != "load"] == [row.name]


@pytest.mark.parametrize("row", UNARY, ids=ids)
def test_its_name_in_a_spec_is_this_operator(row: Operator):
    text = "-X[n]" if row.name == "neg" else f"{row.name}(X[n])"
    program = parse(f"N = 8\nX[N] : f32\nY[n] = {text}")
    assert [n.op for n in program.nodes] == ["load", row.name]


@pytest.mark.parametrize("row", UNARY, ids=ids)
def test_what_it_says_of_real_numbers_is_true(row: Operator):
    x = np.sort(numbers(row))
    x = x[np.abs(floats(row, x)) < np.inf]
    y = floats(row, x)
    zero, low = floats(row, np.array(0.0)), floats(row, np.array(-np.inf))
    assert row.keeps_zero == bool(zero == 0.0)
    assert not row.vanishes or low == 0.0
    assert len(x) > 500
    if row.least > -np.inf:
        outside = floats(row, np.array([row.least - 0.1, row.least - 5.0]))
        assert row.is_partial
        assert np.isnan(outside).all()
    if row.rises:
        assert (np.diff(y) >= 0).all()
    if row.steepest is not None:
        dense = np.sort(np.concatenate([x, np.linspace(-30, 30, 60_001)]))
        rise = np.abs(np.diff(floats(row, dense)))
        assert (rise <= row.steepest * np.diff(dense) + 1e-14 * np.abs(dense[1:])).all()
    if row.period is not None:
        some = np.linspace(-30, 30, 6_001)
        assert np.abs(floats(row, some + row.period) - floats(row, some)).max() < 1e-13
        moved = some[:, None] + np.linspace(-row.period, row.period, 101)
        apart = np.abs(floats(row, moved) - floats(row, some)[:, None]).max(axis=1)
        off = np.full_like(some, row.period / SPREADS)
        carried = RoundingMeaning(0.0).apply(row.name, None, [Rounded(some, off)]).error
        assert carried is not None
        assert (SPREADS * carried >= apart).all()
    assert row.parity in ("", "odd", "even")
    if row.parity:
        np.testing.assert_array_equal(floats(row, -x), -y if row.parity == "odd" else y)


@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_its_meaning_over_a_field_is_one_function(row: Operator):
    """Of the same operands the same value, and the parity that the row says; what it is through
    others is that value too, where those have one.
    """
    ops, again = (FieldOps(FIELDS[0], 9) for _ in range(2))
    args = [ops.random((200,), f"{n}") for n in range(row.arity)]
    found = FieldMeaning(ops).apply(row.name, None, args)
    assert found.fingerprint() == FieldMeaning(again).apply(row.name, None, args).fingerprint()
    if row.arity == 1:
        other = FieldMeaning(ops).apply(row.name, None, [ops.random((200,), "other")])
        assert not np.array_equal(found.p, other.p)
    if row.parity:
        mirrored = FieldMeaning(ops).apply(row.name, None, [ops.neg(args[0])])
        assert ops.equal(mirrored, ops.neg(found) if row.parity == "odd" else found)


@pytest.mark.parametrize("row", [o for o in ROWS if o.name not in ("exp", "where")], ids=ids)
def test_the_error_bound_takes_no_more_for_granted(row: Operator):
    """Of what the row does not say how it is computed the value is unknown: that over the field
    shows in no degree, and in no value.
    """
    ops = FieldOps(FIELDS[0], 9)
    args = [FieldArray(ops.random((50,), f"{n}").p, None) for n in range(row.arity)]
    meaning, degrees = UnknownFunctionMeaning(ops), DegreeMeaning()
    found = meaning.apply(row.name, None, args)
    degrees.apply(row.name, None, [Degrees((50,), 1)] * row.arity)
    field = FieldMeaning(ops).apply(row.name, None, args)
    assert (row.is_rational and row.name != "reciprocal_no_nan") == (not degrees.arguments)
    assert row.is_rational == np.array_equal(found.p, field.p)
    if row.parity:
        mirrored = meaning.apply(row.name, None, [ops.neg(args[0])])
        assert ops.equal(mirrored, ops.neg(found) if row.parity == "odd" else found)
