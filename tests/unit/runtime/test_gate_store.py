"""The float gate without its GPU: preparing on the CPU, judging what the interpreter computes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from plans import scale_program, two_kernel_plan

from mirage_py.errors import CompileError, FormatError
from mirage_py.runtime.gate import FloatGate
from mirage_py.runtime.gate_service import gate, prepare
from mirage_py.runtime.gate_store import GateStore, laid_out, to_arrays
from mirage_py.runtime.interpreted import run_interpreted
from mirage_py.ugraph.dtypes import BF16, F16
from mirage_py.ugraph.json_form import dump_text
from mirage_py.ugraph.program import Tensor

PLAN = two_kernel_plan(dtype=BF16, strides=(80, 1))
PROGRAM = PLAN.ugraph.program
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> GateStore:
    folder = tmp_path_factory.mktemp("gate")
    task = {"folder": str(folder), "program": dump_text(PROGRAM), "device": "cpu", "seed": 3}
    names = prepare(task)
    found = GateStore(folder, PROGRAM)
    assert list(found.names) == names
    return found


def test_random_inputs_come_first_and_lie_as_the_program_says(store: GateStore):
    assert store.names[0] == "random"
    (x,) = store.inputs("random", CPU)
    assert x.dtype == torch.bfloat16
    assert x.shape == (33, 70)
    assert x.stride() == (80, 1)
    assert 0.9 < x.float().std() < 1.1


def test_inputs_of_a_respawned_worker_are_the_same(store: GateStore):
    again = GateStore(store.folder, PROGRAM)
    for name in store.names:
        assert torch.equal(store.inputs(name, CPU)[0], again.inputs(name, CPU)[0])


def test_right_outputs_pass_on_every_set(store: GateStore):
    for name in store.names:
        (x,) = store.inputs(name, CPU)
        got = run_interpreted(PLAN, {"X": x.double().numpy()})
        found = store.judge(name, got)
        assert found.passed, (name, found.reason)
        assert found.eager_rel_error is not None


def test_wrong_outputs_do_not(store: GateStore):
    (x,) = store.inputs("random", CPU)
    got = run_interpreted(PLAN, {"X": x.double().numpy()})
    got["Y"][5, 7] *= 1.5
    assert not store.judge("random", got).passed
    got["Y"][5, 7] = np.nan
    assert "not finite" in store.judge("random", got).reason


def test_a_layout_has_memory_of_its_own():
    tensor = Tensor("X", (3, 4), F16, (1, 5))
    values = torch.arange(12.0).reshape(3, 4)
    first, second = laid_out(tensor, values), laid_out(tensor, values)
    assert first.stride() == (1, 5)
    assert torch.equal(first.float(), values)
    assert first.data_ptr() != second.data_ptr()


def test_outputs_by_name():
    program = scale_program(2, 3)
    arrays = to_arrays(program, (torch.ones(2, 3, dtype=torch.float16),))
    assert list(arrays) == ["Y"]
    assert arrays["Y"].dtype == np.float64


def test_a_task_without_a_plan_is_refused(store: GateStore):
    task = {"folder": str(store.folder), "program": dump_text(PROGRAM), "device": "cpu"}
    with pytest.raises(FormatError, match="is no plan"):
        gate({**task, "plan": dump_text(PROGRAM), "sets": ["random"]})


def test_a_gate_that_cannot_be_set_up_says_why(monkeypatch: pytest.MonkeyPatch):
    program = scale_program(3, 4)
    with FloatGate(program, seed=0, device=99) as gate_:
        folder = Path(gate_.store.folder)
        with pytest.raises(CompileError, match="cannot be set up"):
            gate_.first([PLAN])
    assert not folder.exists()


def test_names_are_written_last(tmp_path: Path):
    store = GateStore(tmp_path, PROGRAM)
    store.write_names(("random", "zeros"))
    assert json.loads((tmp_path / "names.json").read_text()) == ["random", "zeros"]
