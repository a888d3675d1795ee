"""The programs of examples/large at their sizes, and against NumPy at small ones."""

from __future__ import annotations

import importlib.util
from functools import cache, partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from unit.frontend.spec.large_references import PARTITIONED, REFERENCES, Array

from mirage_py.frontend.spec import parse_file
from mirage_py.pipeline.pipeline import normalise
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.printing import format_program
from mirage_py.ugraph.text.text_form import parse_program

FOLDER = Path(__file__).parents[4] / "examples" / "large"
ALL = {**REFERENCES, **PARTITIONED}
NAMES = tuple(ALL)
# Every extent another one, so that no axis can be mistaken for another.
WINDOW, CAP = 4, 5
SMALL = {name: 2 + n for n, name in enumerate("RDHBTSFMNVEG")} | {"WINDOW": WINDOW, "CAP": CAP}


@cache
def program_of(name: str) -> Program:
    return parse_file(FOLDER / f"{name}.math")


@cache
def small(name: str) -> Program:
    path = FOLDER / f"{name}.math"
    text = path.read_text("utf-8")
    return parse_file(path, sizes={n: size for n, size in SMALL.items() if f"{n} = " in text})


@cache
def large_functions() -> ModuleType:
    spec = importlib.util.spec_from_file_location("large_functions", FOLDER / "functions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs_of(program: Program) -> dict[str, Array]:
    rng = np.random.default_rng(5)
    return {
        t.name: rng.normal(size=t.shape)
        if t.dtype.is_float
        else rng.integers(0, SMALL["V"], t.shape).astype(np.float64)
        for t in program.inputs
    }


@pytest.mark.parametrize("name", NAMES)
def test_prints_and_reads_back(name: str):
    for program in (program_of(name), normalise(program_of(name))):
        assert parse_program(format_program(program)).digest == program.digest


@pytest.mark.parametrize("name", NAMES)
def test_the_normal_form_is_final_and_keeps_the_interface(name: str):
    program = program_of(name)
    normal = normalise(program)
    assert normalise(normal).digest == normal.digest
    assert [t.name for t in normal.inputs] == [t.name for t in program.inputs]
    assert [o.tensor for o in normal.outputs] == [o.tensor for o in program.outputs]


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_numpy(name: str):
    program = small(name)
    inputs = inputs_of(program)
    expected = ALL[name](**inputs)
    for form in (program, normalise(program)):
        got = evaluate_program(form, inputs, FloatMeaning())
        assert list(got) == list(expected)
        for output, value in expected.items():
            np.testing.assert_allclose(got[output], value, rtol=1e-9, atol=1e-12)


def test_all_are_there():
    assert sorted(NAMES) == sorted(p.stem for p in FOLDER.glob("*.math"))


def torch_function(name: str):
    function = getattr(large_functions(), name)
    given = {"sliding_window_attention": {"window": WINDOW}, "softcap_attention": {"cap": CAP}}
    return partial(function, **given.get(name, {}))


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_torch(name: str):
    torch = pytest.importorskip("torch")
    program = small(name)
    inputs = inputs_of(program)
    result = torch_function(name)(*(torch.from_numpy(x) for x in inputs.values()))
    results = result if isinstance(result, tuple) else (result,)
    got = evaluate_program(program, inputs, FloatMeaning())
    # Losses are computed in float32.
    tolerance = 1e-5 if "entropy" in name else 1e-9
    for value, expected in zip(got.values(), results, strict=True):
        np.testing.assert_allclose(value, expected.numpy(), rtol=tolerance, atol=tolerance)


def test_both_spellings_of_the_cross_entropy_are_one_program():
    spelled, shifted = (
        normalise(program_of(name)) for name in ("cross_entropy", "cross_entropy_shifted")
    )
    assert spelled.nodes == shifted.nodes
