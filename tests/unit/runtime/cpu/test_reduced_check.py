"""Plans and eager PyTorch at small sizes on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from mirage_py.frontend.spec import parse
from mirage_py.runtime.cpu import reduced_check

SUM = "N = 8\nX[N] : f32\nY[n] = X[n] + X[n]\n"


@pytest.fixture
def threads() -> Iterator[int]:
    usual = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(usual)


def test_eager_pytorch_runs_on_one_thread(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen threads that waited for one another kept compilers from their cores."""
    program, seen = parse(SUM), []

    def function(*inputs: torch.Tensor) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return inputs[0] + inputs[0]

    monkeypatch.setattr(reduced_check, "torch_function", lambda _: function)
    found = reduced_check.eager_outputs(program, {"X": np.arange(8.0)})
    assert found is not None
    assert found["Y"].tolist() == [2.0 * n for n in range(8)]
    assert seen == [1]
    assert torch.get_num_threads() == threads


def test_threads_that_start_meanwhile_keep_their_own_number(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that first used torch meanwhile, such as one that loads data, stayed at one."""
    program, seen = parse(SUM), []

    def elsewhere() -> None:
        torch.ones(8).sum()
        seen.append(torch.get_num_threads())

    def function(*inputs: torch.Tensor) -> torch.Tensor:
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()
        return inputs[0] + inputs[0]

    monkeypatch.setattr(reduced_check, "torch_function", lambda _: function)
    assert reduced_check.eager_outputs(program, {"X": np.arange(8.0)}) is not None
    assert seen == [threads]
