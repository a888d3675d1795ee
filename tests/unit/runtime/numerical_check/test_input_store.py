"""The numerical check without its GPU: inputs prepared on the CPU, results of the interpreter
compared.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from plans import scale_program, two_kernel_plan
from unit.search import programs

from mirage_py.errors import CompileError, FormatError
from mirage_py.frontend.spec import parse
from mirage_py.reasons import Code
from mirage_py.runtime.base.layouts import laid_out
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.runtime.numerical_check import check_service, input_store
from mirage_py.runtime.numerical_check.check_pool import NumericalCheck
from mirage_py.runtime.numerical_check.check_service import check_plan, prepare, run_eager
from mirage_py.runtime.numerical_check.input_store import RANDOM, InputStore, to_arrays
from mirage_py.runtime.numerical_check.judge import DeviceJudge
from mirage_py.ugraph.ir.dtypes import BF16, F16
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.text.json_form import dump_text
from mirage_py.verify.numerical_check import periodic_input
from mirage_py.verify.numerical_check.float_case import EagerError, FloatEvidence
from mirage_py.verify.numerical_check.input_sets import SET_NAMES, drawn_sets
from mirage_py.verify.numerical_check.numerical_check import (
    MAX_REFERENCE_WORK,
    Reference,
    cases,
    judge,
    reference,
)

PLAN = two_kernel_plan(dtype=BF16, strides=(80, 1))
PROGRAM = PLAN.ugraph.program
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> InputStore:
    folder = tmp_path_factory.mktemp("check_plan")
    task = {"folder": str(folder), "program": dump_text(PROGRAM), "seed": 3}
    task |= {"max_work": MAX_REFERENCE_WORK, "threads": 1, "deadline": None}
    # As the check_plan does: what is needed first by itself.
    assert prepare({**task, "sets": SET_NAMES[:2]}) == dict.fromkeys(
        SET_NAMES[:2], (1.0, 0.0, False)
    )
    prepare({**task, "sets": SET_NAMES[2:]})
    found = InputStore(folder, PROGRAM)
    for name in SET_NAMES:
        assert found.read_eager(name) is None
        run_eager(found, name, CPU)
        assert found.read_eager(name) is not None
    return found


def test_random_inputs_come_first_and_lie_as_the_program_says(store: InputStore):
    assert SET_NAMES[0] == RANDOM
    (x,) = store.inputs("random", CPU)
    assert x.dtype == torch.bfloat16
    assert x.shape == (33, 70)
    assert x.stride() == (80, 1)
    assert 0.9 < x.float().std() < 1.1


def test_inputs_of_a_respawned_worker_are_the_same(store: InputStore):
    again = InputStore(store.folder, PROGRAM)
    for name in SET_NAMES:
        assert torch.equal(store.inputs(name, CPU)[0], again.inputs(name, CPU)[0])


def test_right_outputs_pass_on_every_set(store: InputStore):
    for name in SET_NAMES:
        (x,) = store.inputs(name, CPU)
        got = run_interpreted(PLAN, {"X": x.double().numpy()})
        found = on_host(store, name, got)
        assert found.passed, (name, found.reason)
        assert found.eager_rel_error is not None


def test_wrong_outputs_do_not(store: InputStore):
    (x,) = store.inputs("random", CPU)
    got = run_interpreted(PLAN, {"X": x.double().numpy()})
    got["Y"][5, 7] *= 1.5
    assert not on_host(store, "random", got).passed
    got["Y"][5, 7] = np.nan
    assert on_host(store, "random", got).reason.code is Code.NOT_FINITE


def on_host(store: InputStore, name: str, got: dict[str, np.ndarray]) -> FloatEvidence:
    (x,) = store.inputs(name, CPU)
    eager = to_arrays(PROGRAM, (torch_function(PROGRAM)(x),))
    return judge(PROGRAM, store.read_reference(name), got, eager=eager)


def on_device(store: InputStore, name: str, y: np.ndarray) -> FloatEvidence:
    there = DeviceJudge(PROGRAM, store.read_reference(name), CPU)
    return there.evidence((torch.from_numpy(np.asarray(y, np.float64)),), store.read_eager(name))


def test_the_device_says_of_right_outputs_what_the_host_says(store: InputStore):
    for name in SET_NAMES:
        (x,) = store.inputs(name, CPU)
        got = run_interpreted(PLAN, {"X": x.double().numpy()})
        here, there = on_host(store, name, got), on_device(store, name, got["Y"])
        assert there.passed
        assert there.max_rel_error == pytest.approx(here.max_rel_error, rel=1e-9)
        assert there.bound == pytest.approx(here.bound, rel=1e-9)
        assert there.eager_rel_error == pytest.approx(here.eager_rel_error, rel=1e-9)
        assert (there.nonfinite, there.compared) == (here.nonfinite, here.compared)


def test_the_device_takes_any_integer_for_what_is_no_number():
    program = parse("N = 3\nX[N], U[N] : f32\nY[N] : i8\nY[n] = cast(round(X[n] / U[n]), i8)")
    arrays = {"X": np.array([0.0, 20.0, -30.0]), "U": np.array([0.0, 1.0, 1.0])}
    there = DeviceJudge(program, reference(program, arrays), CPU)
    for first in (0, -128, 7):
        y = torch.tensor([first, 20, -30], dtype=torch.int8)
        assert there.evidence((y,), None).passed
    assert not there.evidence((torch.tensor([0, 25, -30], dtype=torch.int8),), None).passed


def test_the_device_says_of_wrong_outputs_what_the_host_says(store: InputStore):
    (x,) = store.inputs("random", CPU)
    right = run_interpreted(PLAN, {"X": x.double().numpy()})["Y"]
    for wrong in (1.5 * right[5, 7], np.nan, np.inf):
        y = right.copy()
        y[5, 7] = wrong
        y[8, 2] = 1e3
        here, there = on_host(store, "random", {"Y": y}), on_device(store, "random", y)
        assert not here.passed
        assert "Y[5, 7]" in str(here.reason)
        assert (there.passed, there.reason) == (here.passed, here.reason)
        assert there.row_excess == pytest.approx(here.row_excess, rel=1e-9, nan_ok=True)
        assert there.row_excess <= there.excess
        assert there.max_rel_error == pytest.approx(here.max_rel_error, rel=1e-9)
    assert on_device(store, "random", right[:5]) == on_host(store, "random", {"Y": right[:5]})
    assert on_device(store, "random", right[:5]).reason.code is Code.WRONG_SHAPE


def test_where_there_is_no_finite_value_a_finite_one_is_wrong(store: InputStore):
    # A row of zeros is divided by its sum: NaN.
    (x,) = store.inputs("zeros", CPU)
    got = run_interpreted(PLAN, {"X": x.double().numpy()})["Y"]
    assert not np.isfinite(got).any()
    right, wrong = (on_device(store, "zeros", y) for y in (got, np.zeros_like(got)))
    assert right.passed
    assert wrong.reason == on_host(store, "zeros", {"Y": np.zeros_like(got)}).reason
    assert wrong.reason.code is Code.FINITE


def test_farther_from_the_truth_than_eager(store: InputStore):
    known = store.read_reference("random")
    # Beside an eager that happened to be exact, what rounding allows is too much.
    there = DeviceJudge(PROGRAM, known, CPU)
    off = torch.from_numpy(known["Y"] * (1 + 2.0**-6))
    exact = there.of_eager((torch.from_numpy(known["Y"]),))
    assert exact == [EagerError(0.0, 0.0)]
    found = there.evidence((off,), exact)
    assert not found.passed
    assert found.reason.code is Code.WORSE_THAN_EAGER


def test_as_far_from_the_truth_as_eager(store: InputStore):
    known = store.read_reference("random")
    there = DeviceJudge(PROGRAM, known, CPU)
    (here,) = cases(PROGRAM, known)
    draw = np.random.default_rng(0)

    def off(share: float) -> np.ndarray:
        return known["Y"] + share * here.allowed * draw.choice((-1.0, 1.0), size=known["Y"].shape)

    eager, within, wrong = off(5.0), off(0.9), off(5.0)
    wrong[5, 7] += 20 * here.allowed.mean()
    for one, other, passes in (
        (off(6.0), eager, True),
        (off(11.0), eager, False),
        (wrong, eager, False),
        (np.where(wrong == wrong[5, 7], np.nan, wrong), eager, False),
        (off(1.1), within, False),
    ):
        of_eager = there.of_eager((torch.from_numpy(other),))
        found = there.evidence((torch.from_numpy(one),), of_eager)
        assert found.passed is passes
        assert here.judge(one, other).passed is passes
        assert found.excess > 1.0


def test_an_output_without_axes():
    program = programs.whole_sum()
    known = Reference({"Y": np.asarray(3.0)}, {"Y": np.asarray(0.0)})
    there = DeviceJudge(program, known, CPU)
    found = there.evidence((torch.tensor(3.0),), None)
    assert found.passed
    wrong = there.evidence((torch.tensor(3.5),), None)
    assert "Y[] = 3.5 instead of 3" in wrong.reason.data


def test_a_layout_has_memory_of_its_own():
    tensor = Tensor("X", (3, 4), F16, (1, 5))
    values = torch.arange(12.0).reshape(3, 4)
    first, second = laid_out(tensor, values), laid_out(tensor, values)
    assert first.stride() == (1, 5)
    assert torch.equal(first.float(), values)
    assert first.data_ptr() != second.data_ptr()


def test_an_expanded_layout_holds_one_value_along_its_axis():
    tensor = Tensor("X", (4, 3), F16, (0, 1))
    values = torch.arange(3.0).expand(4, 3)
    x = laid_out(tensor, values.contiguous())
    assert x.stride() == (0, 1)
    assert torch.equal(x, values.half())


def test_outputs_by_name():
    program = scale_program(2, 3)
    arrays = to_arrays(program, (torch.ones(2, 3, dtype=torch.float16),))
    assert list(arrays) == ["Y"]
    assert arrays["Y"].dtype == np.float64


def test_a_task_without_a_plan_is_refused(store: InputStore):
    task = {"folder": str(store.folder), "program": dump_text(PROGRAM), "device": "cpu"}
    with pytest.raises(FormatError, match="is no plan"):
        check_plan({**task, "plan": dump_text(PROGRAM), "sets": ["random"]})


def test_a_gate_that_cannot_be_set_up_says_why(monkeypatch: pytest.MonkeyPatch):
    program = scale_program(3, 4)
    with NumericalCheck(program, seed=0, device=99) as check:
        folder = Path(check.store.folder)
        with pytest.raises(CompileError, match="cannot be set up"):
            check.first([PLAN], l2_bytes=1 << 20, reps=3)
    assert not folder.exists()


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_the_device_has_what_the_reference_reads(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Element for element, in every set, also of inputs that repeat."""
    monkeypatch.setattr(periodic_input, "PERIOD", 4099)
    monkeypatch.setattr(input_store, "_AT_A_TIME", 1000)
    program = parse(
        f"B = 110, S = 64\nX[B, S], A[B, S] : {kind}\nM[B, S] : bool\nL[B] : i32\n"
        "Y[b, s] = softmax[s](where(M[b, s] & (s < L[b]), X[b, s], -1e4) + A[b, s])"
    )
    store = InputStore(tmp_path, program)
    for inputs in drawn_sets(program, 0, SET_NAMES):
        store.write_inputs(inputs.name, inputs.inputs)
        for tensor, x in zip(program.inputs, store.inputs(inputs.name, CPU), strict=True):
            assert np.array_equal(x.double().numpy(), inputs.arrays[tensor.name]), inputs.name
    assert (tmp_path / "random" / "table_0.npy").stat().st_size < 4 * 4099 + 200


def test_eager_that_does_not_fit_is_no_fault_of_a_plan_and_is_asked_once(
    store: InputStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    calls = []

    def too_large(*inputs: torch.Tensor) -> None:
        calls.append(inputs)
        raise torch.OutOfMemoryError("tried to allocate 48 GiB")

    monkeypatch.setattr(check_service, "torch_function", lambda _: too_large)
    check_service.forget({})
    found = InputStore(tmp_path, PROGRAM)
    for drawn in drawn_sets(PROGRAM, 0, SET_NAMES[:2]):
        found.write_inputs(drawn.name, drawn.inputs)
        run_eager(found, drawn.name, CPU)
        assert found.read_eager(drawn.name) is None
    assert len(calls) == 1
    check_service.forget({})
