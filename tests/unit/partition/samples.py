"""Programs that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mirage_py.frontend.spec import parse, parse_file
from mirage_py.pipeline.partition.partition import Partition
from mirage_py.pipeline.pipeline import normalise
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program
from mirage_py.ugraph.ir.program import Program

Array = NDArray[np.float64]
LARGE = Path(__file__).parents[3] / "examples" / "large"
# Every extent another one, so that no axis can be mistaken for another.
SMALL = {name: 2 + n for n, name in enumerate("RDHBTSFMNVEG")} | {"WINDOW": 4, "CAP": 5}


@cache
def small(name: str) -> Program:
    path = LARGE / f"{name}.math"
    text = path.read_text("utf-8")
    sizes = {n: size for n, size in SMALL.items() if f"{n} = " in text}
    return normalise(parse_file(path, sizes=sizes))


def spec(text: str) -> Program:
    return normalise(parse(text))


def inputs_of(program: Program) -> dict[str, Array]:
    rng = np.random.default_rng(5)
    return {
        t.name: rng.normal(size=t.shape)
        if t.dtype.is_float
        else rng.integers(0, SMALL["V"], t.shape).astype(np.float64)
        for t in program.inputs
    }


def in_sequence(partition: Partition, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of the whole program from its parts, one after the other, in float64."""
    tensors = dict(inputs)
    for part in partition.parts:
        given = {t.name: tensors[t.name] for t in part.inputs}
        tensors |= evaluate_program(part, given, FloatMeaning())
    return {o.tensor.name: tensors[o.tensor.name] for o in partition.program.outputs}
