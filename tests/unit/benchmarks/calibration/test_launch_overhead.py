"""The cost of a cached call, counted in function calls: a number that no other process changes.

Those of the bare ways are counted by the same rule: it is the distance that is bounded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest
import torch
from click.testing import CliRunner

from benchmarks.calibration import launch_overhead
from mirage_py.torch_ops.register import as_torch_op

# (functions in Python, functions in C) of one call, the launch itself left out. A new one is some
# 0.05 us on the machines that we have measured, 3 us of which are what a call may cost.
MOST = {
    "loaded artifact": (8, 5),
    "decorated function": (12, 6),
    "loaded artifact, size at run time": (11, 8),
    "decorated function, size at run time": (15, 9),
    "decorated function, served by eager": (9, 4),
    # Hooks, training mode and all else that the module holds may have changed.
    "decorated module": (55, 38),
}


def functions_called(call: Callable[[], object]) -> tuple[list[str], list[str]]:
    """Names of the functions in Python and in C that a call goes through, once it is cached."""
    for _ in range(3):
        call()
    called: dict[str, list[str]] = {"call": [], "c_call": []}

    def note(frame, event, argument):
        if event in called:
            name = frame.f_code.co_qualname if event == "call" else str(argument)
            called[event].append(name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return called["call"][1:], called["c_call"][:-1]  # without the lambda, and without setprofile


@pytest.fixture(scope="module")
def ways():
    with launch_overhead.fake_driver(on_gpu=False), torch.no_grad():
        yield dict(launch_overhead.ways("cpu"))


@pytest.mark.parametrize("name", MOST)
def test_a_cached_call_goes_through_few_functions(name: str, ways):
    in_python, in_c = functions_called(ways[name])
    most_in_python, most_in_c = MOST[name]
    assert len(in_python) <= most_in_python, in_python
    assert len(in_c) <= most_in_c, in_c


def test_an_operator_is_a_hop_behind_the_dispatcher():
    """Beside the operator that torch makes of the same function."""
    x, w = torch.randn(4, 6), torch.randn(6)

    @torch.library.custom_op("mirage_py_tests::bare_product", mutates_args=())
    def bare(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.mul(x, w)

    program = launch_overhead.trace(launch_overhead.scaled, x, w)
    plan = launch_overhead.plan_of(program)
    op = as_torch_op("mirage_py_tests::direct_product", program, plan).default
    with torch.no_grad():
        ours, _ = functions_called(lambda: op(x, w))
        torchs, _ = functions_called(lambda: torch.ops.mirage_py_tests.bare_product.default(x, w))
    in_front = [n.endswith("OperatorMeaning.reference") for n in ours].index(True)
    behind_torchs = [n.endswith("bare") for n in torchs].index(True)
    assert in_front <= 7, ours
    assert in_front < behind_torchs, torchs
    assert not any("forward_no_grad" in name for name in ours)


def test_the_command_prints_every_way(tmp_path, monkeypatch):
    monkeypatch.setattr(launch_overhead, "_CALLS", 2)
    monkeypatch.setattr(launch_overhead, "_REPEATS", 2)
    done = CliRunner().invoke(launch_overhead.main, ["-o", str(tmp_path / "o.json")])
    assert done.exit_code == 0, done.output
    assert all(name in done.output for name in MOST)
    assert '"machine": "no GPU' in (tmp_path / "o.json").read_text()


def test_the_page_has_the_figures_that_were_measured(request):
    root = request.config.rootpath
    measured = (root / "benchmarks/results/h200-launch-overhead.json").read_text(encoding="utf-8")
    page = (root / "docs/how-to/torch_ops.md").read_text(encoding="utf-8")
    assert launch_overhead.table(json.loads(measured)) in page
