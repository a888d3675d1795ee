"""The examples: each program once as a spec and once as a torch function, and both say the same."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mirage_py.frontend.spec import parse_file
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program

FOLDER = Path(__file__).parents[4] / "examples"
NAMES = (
    "attention",
    "gated_mlp",
    "layernorm_linear",
    "lora",
    "ntrans",
    "qknorm_attention",
    "rmsnorm_matmul",
    "softmax",
)
SMALL = {"B": 3, "D": 8, "N": 5, "R": 2, "H": 2, "T": 4, "S": 6}


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def small_sizes(path: Path) -> dict[str, int]:
    written = [n for n in SMALL if f"{n} = " in path.read_text("utf-8")]
    return {n: SMALL[n] for n in written}


def test_all_are_there():
    for folder in (FOLDER, FOLDER / "odd"):
        assert tuple(sorted(p.stem for p in folder.glob("*.math"))) == NAMES
    assert tuple(sorted(p.stem for p in FOLDER.glob("*.py"))) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_spec_and_function_agree(name: str):
    torch = pytest.importorskip("torch")
    path = FOLDER / f"{name}.math"
    program = parse_file(path, sizes=small_sizes(path))
    rng = np.random.default_rng(1)
    inputs = {t.name: rng.normal(size=t.shape) for t in program.inputs}
    function = getattr(module(name), name)
    expected = function(*(torch.from_numpy(x) for x in inputs.values())).numpy()
    (got,) = evaluate_program(program, inputs, FloatMeaning()).values()
    np.testing.assert_allclose(got, expected, rtol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_spec_and_function_have_the_same_shapes(name: str):
    pytest.importorskip("torch")
    program = parse_file(FOLDER / f"{name}.math")
    example = module(name)
    inputs = example.example_inputs("meta")
    assert [(tuple(x.shape), str(x.dtype)) for x in inputs] == [
        (t.shape, f"torch.{t.dtype.torch_name}") for t in program.inputs
    ]
    result = getattr(example, name)(*inputs)
    assert tuple(result.shape) == program.outputs[0].tensor.shape


@pytest.mark.parametrize("name", NAMES)
def test_odd_sizes_change_the_sizes_only(name: str):
    path = FOLDER / f"{name}.math"
    sizes = small_sizes(path)
    odd = parse_file(FOLDER / "odd" / f"{name}.math", sizes=sizes)
    assert odd.digest == parse_file(path, sizes=sizes).digest
    assert parse_file(FOLDER / "odd" / f"{name}.math").digest != parse_file(path).digest
