"""Every operator at the points where it may lose digits: near 0, near its own special points, at
the ends of its type's range. Operators of the IR, and functions of torch as they are imported.

A program has one row for each kind of points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.checks.differential_cases import FLOATS, one_kernel
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import ELEMENTWISE, all_operators
from mirage_py.verify.evaluate.element_types import round_to, smallest_normal
from mirage_py.verify.shifts.safe_exp import add_safe_shifts

_POINTS = 64
_TILES = {"m": 4}
# The point around which a row lies, and how far away it goes.
_CENTRES = (
    *(0.5, 1.0, -0.5, -1.0, 2.0, -3.0, 10.0, -10.0),
    *dict.fromkeys(point for operator in all_operators() for point in operator.points),
)
_LEFT_OUT = ("cast", "shift", "lt", "le", "gt", "ge", "eq", "ne", "where")


@dataclass(frozen=True)
class PointCase:
    """``plan`` computes one function of rows of points; ``expected`` are its values in float64,
    ``eager`` is the function in torch.
    """

    name: str
    dtype: DType
    plan: Plan
    arrays: Mapping[str, FloatArray]
    expected: FloatArray
    eager: Callable[..., Any]


def kinds_of_points() -> tuple[str, ...]:
    """The names of the rows."""
    around = [f"around {c:g}" for c in _CENTRES]
    return ("below 1e-4", "below 0.1", "below 1", "to 20", "to 100", "subnormal", "ends", *around)


def points(dtype: DType, seed: int = 0) -> FloatArray:
    """Rows in the order of ``kinds_of_points``, both signs."""
    draw = np.random.default_rng(seed)
    least, most = smallest_normal(dtype), dtype.max_finite
    sign = np.where(np.arange(_POINTS) % 2 == 0, 1.0, -1.0)

    def between(low: float, high: float) -> FloatArray:
        low = max(low, least)
        return sign * np.exp(draw.uniform(np.log(low), np.log(high), _POINTS))

    rows = [
        between(1e-30, 1e-4), between(1e-4, 0.1), between(0.1, 1.0), between(1.0, 20.0),
        between(20.0, 100.0), sign * draw.uniform(0.0, least, _POINTS), between(most**0.5, most),
    ]  # fmt: skip
    near = sign * np.exp(draw.uniform(np.log(dtype.unit_roundoff), np.log(0.1), _POINTS))
    rows += [c * (1.0 + near) for c in _CENTRES]
    return np.stack([round_to(np.clip(r, -most, most), dtype) for r in rows])


def point_cases(
    backends: Sequence[str] = ("triton", "cuda"),
    types: Sequence[DType] = FLOATS,
    names: Sequence[str] | None = None,
) -> Iterator[PointCase]:
    """Every operator and function, or those of these names, in every type and for all back ends."""

    def is_asked(name: str) -> bool:
        return names is None or name in names

    for dtype in types:
        for case in (*_operators(dtype, is_asked), *_functions(dtype, is_asked)):
            for backend in backends:
                yield replace(case, plan=replace(case.plan, backend=backend))


def _operators(dtype: DType, is_asked: Callable[[str], bool]) -> Iterator[PointCase]:
    from mirage_py.runtime.eager.eager_source import torch_function

    x = points(dtype)
    # Beside each point another one; close to it; in another row.
    seconds = {
        "": points(dtype, 1),
        " close": round_to(x * (1.0 + 4.0 * dtype.unit_roundoff), dtype),
        " mixed": round_to(np.roll(points(dtype, 2), 3, axis=0), dtype),
    }
    for operator in all_operators():
        if operator.kind != ELEMENTWISE or operator.name in _LEFT_OUT:
            continue
        for word, y in seconds.items() if operator.arity == 2 else (("", x),):
            if not is_asked(operator.name + word):
                continue
            b = ProgramBuilder(f"op_{operator.name}")
            b.dim("m", x.shape[0])
            b.dim("n", x.shape[1])
            names = ("X", "Y")[: operator.arity]
            for name in names:
                b.input(name, x.shape, dtype)
            args = [b.load(name, ("m", "n")) for name in names]
            b.output("R", b.apply(operator.name, *args), ("m", "n"), dtype)
            program = b.build()
            arrays = dict(zip(names, (x, y), strict=False))
            expected = evaluate_program(program, arrays, FloatMeaning())["R"]
            yield PointCase(
                f"{operator.name}{word}", dtype, one_kernel(program, _TILES), arrays, expected,
                torch_function(program),
            )  # fmt: skip


def torch_functions() -> dict[str, Callable[..., Any]]:
    """Functions of one tensor, as users write them; torch's own value in float64 has to be right,
    which it is not where gelu cancels.
    """
    import torch
    from torch.nn import functional as F

    return {
        "torch.log1p": torch.log1p,
        "torch.expm1": torch.expm1,
        "elu": F.elu,
        "selu": F.selu,
        "celu": partial(F.celu, alpha=2.0),
        "softplus of beta": partial(F.softplus, beta=3.0, threshold=10.0),
        "logsigmoid": F.logsigmoid,
        "F.silu": F.silu,
        "hardsigmoid": F.hardsigmoid,
        "leaky_relu": F.leaky_relu,
        "relu6": F.relu6,
        "softsign": F.softsign,
        "torch.sigmoid": torch.sigmoid,
        "reciprocal": torch.reciprocal,
        "pow 3": lambda x: x**3,
        "pow 1.5": lambda x: x.abs() ** 1.5,
        "pow -2": lambda x: x**-2,
        "softmax": lambda x: x.softmax(-1),
        "softmax of floats": lambda x: _at_least_float(x).softmax(-1),
        "log_softmax": lambda x: x.log_softmax(-1),
        "logsumexp": lambda x: x.logsumexp(-1),
        "mean": lambda x: x.mean(-1),
        "var": lambda x: x.var(-1),
        "std": lambda x: x.std(-1),
        "norm": lambda x: x.norm(dim=-1),
        "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
        "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-6),
        "normalize": lambda x: F.normalize(x, dim=-1),
    }


def _at_least_float(x: Any) -> Any:
    return x if x.element_size() == 8 else x.float()


def _functions(dtype: DType, is_asked: Callable[[str], bool]) -> Iterator[PointCase]:
    import torch

    import mirage_py
    from mirage_py.errors import MirageError

    values = points(dtype)
    x = torch.from_numpy(values).to(getattr(torch, dtype.torch_name))
    for name, function in torch_functions().items():
        if not is_asked(name):
            continue

        def called(x: Any, function: Callable[..., Any] = function) -> Any:
            return function(x)

        try:
            program = mirage_py.trace(called, x, name=_identifier(name))
        except MirageError:
            continue
        expected = function(x.double()).numpy()
        (tensor,) = program.inputs
        yield PointCase(name, dtype, _in_rows(program), {tensor.name: values}, expected, called)


def _in_rows(program: Program) -> Plan:
    """Tiled along the first dimension of the output, whatever it is called."""
    safe = add_safe_shifts(program)
    first = safe.nodes[safe.outputs[0].node].dims[0]
    return one_kernel(safe, {first: 4})


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)
