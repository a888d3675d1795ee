"""First calls of the peers."""

from __future__ import annotations

import pytest
import samples
import torch

from benchmarks.warm_up import WarmUp
from mirage_py.runtime.gate_store import laid_out

PROGRAM = samples.ugraph("softmax").program


def test_what_is_compiled_here_is_not_compiled_again_when_it_is_timed():
    compiled = 0

    def backend(module, inputs):
        nonlocal compiled
        compiled += 1
        return module.forward

    peer = torch.compile(lambda x: torch.softmax(x, -1), backend=backend, dynamic=False)
    warm = WarmUp(PROGRAM, {"peer": peer}, "cpu")
    warm.wait()
    assert (compiled, list(warm.seconds)) == (1, ["peer"])
    (x,) = PROGRAM.inputs
    dtype = getattr(torch, x.dtype.torch_name)
    with torch.no_grad():
        peer(laid_out(x, torch.ones(x.shape, dtype=dtype)))
    assert compiled == 1


def test_a_peer_that_does_not_run_is_the_tuners_to_report():
    def fails(x):
        raise RuntimeError("no kernel")

    warm = WarmUp(PROGRAM, {"fails": fails, "works": torch.square}, "cpu")
    warm.wait()
    assert list(warm.seconds) == ["works"]


def test_no_input_takes_the_address_of_one_that_a_peer_remembers():
    seen = []
    warm = WarmUp(PROGRAM, {"peer": lambda x: seen.append(x.data_ptr())}, "cpu")
    warm.wait()
    (x,) = PROGRAM.inputs
    fresh = [torch.zeros(x.shape, dtype=getattr(torch, x.dtype.torch_name)) for _ in range(8)]
    assert seen[0] not in [t.data_ptr() for t in fresh]


@pytest.mark.gpu
def test_a_launch_takes_some_microseconds():
    from benchmarks.launch_floor import launch_us

    assert 0.3 < launch_us() < 10.0
