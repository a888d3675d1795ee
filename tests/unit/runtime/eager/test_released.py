"""Values that a function drops when nothing reads them any more."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import torch

import mirage_py
from mirage_py.runtime.eager.eager_source import eager_source, torch_function
from mirage_py.runtime.eager.released import with_values_released

SOURCE = '''"""A chain."""

def run(x):
    a = made(x)
    b = made(a)
    y = made(b)
    c = [made(v) for v in (y, y)]
    y[0] = made(c[0])
    return y, x
'''


class Live:
    """Counts how many of it there are, and the most there were at once."""

    now = most = 0

    def __init__(self, _of: Any = None) -> None:
        Live.now += 1
        Live.most = max(Live.most, Live.now)

    def __del__(self) -> None:
        Live.now -= 1

    def __getitem__(self, _at: int) -> Live:
        return self

    def __setitem__(self, _at: int, _value: Any) -> None:
        pass


def most_alive(source: str) -> int:
    module = ModuleType("chain")
    module.__dict__["made"] = Live
    exec(source, module.__dict__)
    Live.now = Live.most = 0
    result = module.run(None)
    assert isinstance(result[0], Live)
    assert result[1] is None
    return Live.most


def test_no_more_than_what_is_read_again_stays():
    assert most_alive(SOURCE) == 6
    assert most_alive(with_values_released(SOURCE)) == 4  # y, the list's two, and what is stored
    assert '"""A chain."""' in with_values_released(SOURCE)


def test_a_program_in_torch_keeps_no_intermediate_and_computes_the_same():
    def chain(x):
        for _ in range(6):
            x = torch.tanh(x) + 0.5
        return x

    x = torch.rand(8, 16)
    program = mirage_py.trace(chain, x)
    run = torch_function(program)
    alive: list[int] = []

    def watch(frame: Any, event: str, _arg: Any) -> Any:
        if event == "line" and frame.f_code is run.__code__:
            alive.append(sum(isinstance(v, torch.Tensor) for v in frame.f_locals.values()))
        return watch

    sys.settrace(watch)
    try:
        found = run(x)
    finally:
        sys.settrace(None)
    # The input, what was computed last and what is computed from it.
    assert max(alive) <= 3 < eager_source(program).count(" = ")
    np.testing.assert_allclose(found.numpy(), chain(x).numpy(), rtol=1e-6)
