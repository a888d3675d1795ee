from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from mirage_py.errors import SpecError
from mirage_py.frontend.spec import parse
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program
from mirage_py.ugraph.ir.program import Program

Array = NDArray[np.float64]


def run(program: Program, inputs: dict[str, Array]) -> dict[str, Array]:
    return evaluate_program(program, inputs, FloatMeaning())


@pytest.fixture
def values() -> Callable[..., dict[str, Array]]:
    """``values(text, X=x)``: the outputs of a spec in float64."""

    def compute(text: str, **inputs: Array) -> dict[str, Array]:
        return run(parse(text), {k: np.asarray(v, dtype=np.float64) for k, v in inputs.items()})

    return compute


@pytest.fixture
def error() -> Callable[..., SpecError]:
    """``error(text)``: the error that a spec raises."""

    def provoke(text: str, **options: object) -> SpecError:
        with pytest.raises(SpecError) as caught:
            parse(text, **options)
        assert caught.value.repair, "an error names its repair"
        return caught.value

    return provoke


@pytest.fixture
def random() -> Callable[..., Array]:
    rng = np.random.default_rng(0)
    return lambda *shape: rng.normal(size=shape)
