"""KernelBench's harness on problems of the test's own, laid out as a checkout."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner

from benchmarks.kernelbench import command, distances, document, measured, page, shared_gpu
from benchmarks.kernelbench.command import main
from benchmarks.kernelbench.footprint import Footprint, footprint_of
from benchmarks.kernelbench.problem import Problem, every_kth, load, problems, reduced_source
from mirage_py.errors import LostGpuError
from mirage_py.runtime.base import gpu_context

HEAD = """
import torch
import torch.nn as nn

batch_size = 64
channels = 3
height, width = 512, 256
kernel = 3

def get_inputs():
    return [torch.rand(batch_size, channels, height, width)]
"""
CONV = (
    HEAD
    + """
class Model(nn.Module):
    def __init__(self, channels, kernel):
        super().__init__()
        self.conv = nn.Conv2d(channels, 8, kernel, padding=1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(self.conv(x)).relu()

def get_init_inputs():
    return [channels, kernel]
"""
)
ZERO = (
    HEAD
    + """
class Model(nn.Module):
    def forward(self, x):
        y = x.amax((1, 2, 3), keepdim=True)
        return torch.relu(y - y.mean(1, keepdim=True))

def get_init_inputs():
    return []
"""
)
MEDIAN = ZERO.replace(
    "return torch.relu(y - y.mean(1, keepdim=True))", "return x.median(-1).values"
)


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "KernelBench" / "level2"
    folder.mkdir(parents=True)
    for name, text in (("10_Median", MEDIAN), ("1_Conv", CONV), ("2_Zero", ZERO)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return tmp_path


def test_named_problems_are_run_in_the_order_they_are_named_in(checkout, monkeypatch):
    ran: list[str] = []

    def row_of(problem: Problem, options: object, seconds: float) -> dict[str, object]:
        del options, seconds
        ran.append(problem.key)
        return {"problem": problem.path.stem, "status": "refused", "reason": "not here"}

    monkeypatch.setattr(command, "row_of", row_of)
    asked = [str(checkout), "--level", "2", "--dry", "--only"]
    assert CliRunner().invoke(main, [*asked, "L2-10,L2-1"]).exit_code == 0
    assert ran == ["L2-10", "L2-1"]
    done = CliRunner().invoke(main, [*asked, "L2-1,L2-77"])
    assert done.exit_code == 2
    assert "L2-77" in done.output


def test_problems_are_in_the_order_of_their_numbers(checkout):
    assert [p.key for p in problems(checkout, [2])] == ["L2-1", "L2-2", "L2-10"]
    with pytest.raises(FileNotFoundError, match="level1"):
        problems(checkout, [1])


def test_a_problem_is_as_given_or_has_small_inputs(checkout):
    problem = problems(checkout, [2])[0]
    torch.manual_seed(0)
    model, (x,) = load(problem, filled=False)
    assert x.shape == (64, 3, 512, 256)
    assert model.conv.weight.shape == (8, 3, 3, 3)
    model, (x,) = load(problem, reduced=True)
    assert x.shape == (32, 3, 32, 32)  # channels are the model's too
    assert 0 < float(x.min()) < float(x.max()) < 1
    assert float(model.conv.weight.detach().abs().max()) > 0


def test_only_numbers_of_the_inputs_become_small():
    text = reduced_source("a = 100\nb = 200\ndef get_init_inputs():\n    return [b]\n")
    assert "a = 32" in text
    assert "b = 200" in text


def test_a_dry_run_says_what_is_taken_and_why_not(checkout):
    out = checkout / "out.json"
    done = CliRunner().invoke(main, [str(checkout), "--level", "2", "--dry", "-o", str(out)])
    assert done.exit_code == 0, done.output
    found = json.loads(out.read_text(encoding="utf-8"))
    rows = found["rows"]
    assert {key: row["status"] for key, row in rows.items()} == {
        "L2-1": "taken",
        "L2-2": "taken",
        "L2-10": "refused",
    }
    assert rows["L2-1"]["convolutions"] == 1
    assert rows["L2-1"]["parts"] >= 2
    assert [row.get("zero", False) for row in rows.values()] == [False, True, False]
    assert rows["L2-10"]["left"] == {"aten.median.dim: no_handler": 1}
    level = found["summary"]["L2"]
    assert (level["problems"], level["taken"], level["identically_zero"]) == (3, 2, ["L2-2"])
    assert list(level["refused"]) == ["torch operator aten.median.dim is not supported"]


def test_rows_of_an_earlier_run_are_kept(checkout):
    earlier, out = checkout / "earlier.json", checkout / "out.json"
    kept = {"problem": "2_Zero", "status": "refused", "reason": "it is said so"}
    earlier.write_text(json.dumps({"options": {"dtype": "fp32"}, "rows": {"L2-2": kept}}))
    asked = ["--level", "2", "--dry", "--only", "L2-2", "--rows", str(earlier), "-o", str(out)]
    done = CliRunner().invoke(main, [str(checkout), *asked])
    assert done.exit_code == 0, done.output
    assert json.loads(out.read_text(encoding="utf-8"))["rows"] == {"L2-2": kept}


def test_a_problem_without_end_is_stopped(checkout):
    endless = ZERO.replace("y = x.amax((1, 2, 3), keepdim=True)", "while True: pass")
    (checkout / "KernelBench/level2/3_Endless.py").write_text(endless, encoding="utf-8")
    asked = ["--level", "2", "--dry", "--only", "L2-3", "--limit", "1"]
    done = CliRunner().invoke(main, [str(checkout), *asked])
    assert "L2-3 3_Endless fp32: timeout not done in 1 s" in done.output


def test_the_tables_of_the_page_count_what_is_left(tmp_path):
    rows = {
        "L1-1": {"problem": "1_One", "status": "taken", "zero": True},
        "L1-2": {"problem": "2_Two", "status": "refused", "reason": "a | b in `c`"},
        "L1-3": {"problem": "3_Three", "status": "in parts", "reason": "d", "in_regions": 3,
                 "operators": 7},
    }  # fmt: skip
    result, filled = tmp_path / "result.json", tmp_path / "page.md"
    document.write(result, {"limit_s": 60.0, "dry": True}, rows)
    marks = "<!-- kernelbench-{0} -->\n<!-- /kernelbench-{0} -->\n"
    filled.write_text(marks.format("counts") + marks.format("left"), encoding="utf-8")
    page.fill_page(json.loads(result.read_text(encoding="utf-8")), filled)
    text = filled.read_text(encoding="utf-8")
    assert "| 1 | 3 | 1 | 1 | 1 | L1-1 |" in text
    assert "| L1-2 Two | a / b | - |" in text
    assert "| L1-3 Three | d | 3 of 7 |" in text


def test_the_table_of_a_gpu_counts_losses_and_says_what_has_no_time(tmp_path):
    timed = {"status": "taken", "correct": True, "commit": "abc", "served": "f(x) -> mirage_py: k"}
    rows = {
        "L1-1": {**timed, "problem": "1_One", "us": {"eager": 90.0, "compile": 60.0, "ours": 30.0}},
        "L1-2": {**timed, "problem": "2_Two", "us": {"eager": 90.0, "compile": 60.0, "ours": 75.0}},
        "L1-3": {"problem": "3_Three", "status": "crashed", "reason": "a late end", "commit": "d"},
    }
    result, filled = tmp_path / "result.json", tmp_path / "page.md"
    document.write(result, {"dry": False, "options": {"dtype": "bf16"}}, rows)
    filled.write_text("<!-- kernelbench-bf16 -->\n<!-- /kernelbench-bf16 -->\n", encoding="utf-8")
    page.fill_page(json.loads(result.read_text(encoding="utf-8")), filled)
    text = filled.read_text(encoding="utf-8")
    assert "| 1 | 3 | 2 | 1 | 1 | 1.26x | 1.90x |" in text
    assert "| L1-1 One | 90 | 60 | 30 | 2.000x | mirage_py | abc |" in text
    assert "| L1-3 Three | - | - | - | - | a late end | d |" in text


def test_a_sample_is_spread_over_the_levels():
    every = [Problem(level, Path(f"{n}_x.py")) for level in (1, 2) for n in range(1, 6)]
    assert [p.key for p in every_kth(every, 2)] == ["L1-1", "L2-1", "L1-3", "L2-3", "L1-5", "L2-5"]


def test_memory_of_a_gpu_is_held_by_shares(tmp_path):
    assert shared_gpu.shares_of(100, 141 << 30) == 1
    assert shared_gpu.shares_of(1 << 40, 141 << 30) == shared_gpu.SHARES
    # What workers without a row take is nobody's share.
    assert shared_gpu.shares_of(30 << 30, 141 << 30, 8) > shared_gpu.shares_of(30 << 30, 141 << 30)
    order: list[str] = []

    def all_of_it() -> None:
        with shared_gpu.memory(tmp_path, shared_gpu.SHARES):
            order.append("all")

    with shared_gpu.memory(tmp_path, 2):
        other = Thread(target=all_of_it)
        other.start()
        other.join(0.2)
        order.append("two")
    other.join(10)
    assert order == ["two", "all"]


def test_the_memory_of_a_model_that_reads_a_number_while_it_is_made(tmp_path):
    path = tmp_path / "3_Rates.py"
    path.write_text(
        CONV.replace("super().__init__()", "super().__init__(); torch.linspace(0, 1, 3)[1].item()")
    )
    found, image = footprint_of(Problem(2, path)), 64 * 512 * 256
    assert (found.inputs, found.results) == (3 * image, 8 * image)
    assert found.parameters == 8 * 3 * 9 + 8 + 5 * 8 - 7  # of the convolution and of the norm
    # Both read and write the larger tensor, and are no work for the host.
    assert 16 * image <= found.step <= 16 * image + 1000
    assert not found.is_pointwise
    assert found.bytes(2) > 8 * 2 * 16 * image


def test_the_memory_of_an_elementwise_model(tmp_path):
    path = tmp_path / "4_Swish.py"
    lines = (
        "import torch",
        "class Model(torch.nn.Module):",
        "    def forward(self, x): return x * torch.sigmoid(x)",
        "def get_inputs(): return [torch.rand(1 << 12, 1 << 17)]",
        "def get_init_inputs(): return []",
    )
    path.write_text("\n".join(lines))
    found, size = footprint_of(Problem(1, path)), 1 << 29
    assert found == Footprint(0, size, size, 3 * size, is_pointwise=True)
    # 15 tensors: those that the row holds, and those of its check worker.
    assert found.bytes(2) == 15 * 2 * size


def test_a_row_gives_its_memory_back_before_the_next_one_has_it(tmp_path, monkeypatch):
    """What an error still held, and the allocator's cache, were in the next row's way."""
    events: list[str] = []

    class Tensor:
        def __del__(self) -> None:
            events.append("freed")

    def crashes(*_: object) -> dict[str, object]:
        tensor = Tensor()
        raise torch.OutOfMemoryError(f"CUDA out of memory: {type(tensor)}")

    @contextlib.contextmanager
    def memory(folder: Path, wanted: int):
        events.append(f"takes {wanted}")
        yield
        events.append("gives")

    path = tmp_path / "3_Conv.py"
    path.write_text(CONV)
    monkeypatch.setenv(measured.FOLDER, str(tmp_path))
    monkeypatch.setenv(measured.JOBS, "8")
    monkeypatch.setattr(measured, "_begin", lambda: None)
    monkeypatch.setattr(measured, "_beside_torch", crashes)
    monkeypatch.setattr(measured, "make_room", lambda: events.append("made room"))
    monkeypatch.setattr(shared_gpu, "memory", memory)
    gpu = SimpleNamespace(total_memory=141 << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
    task = {"level": 2, "path": str(path), "dtype": "bf16"}
    row = measured.measure(task)
    assert events == ["takes 1", "freed", "made room", "gives"]
    assert (row["status"], row["short_of_memory"]) == ("crashed", True)
    events.clear()
    measured.measure({**task, "alone": True})
    assert events[0] == f"takes {shared_gpu.SHARES}"


def test_results_are_compared_in_pieces(monkeypatch):
    monkeypatch.setattr(measured, "_PIECE", 4)
    x = torch.rand(3, 5)
    y = x.clone()
    assert measured._close(x, y, 1e-4)
    y[2, 4] += 1e-2
    assert not measured._close(x, y, 1e-4)
    assert not measured._close(x, x[:, :1], 1e-4)


def test_a_run_that_has_no_time_leaves_its_problems_to_the_next_one(checkout):
    out = checkout / "out.json"
    asked = ["--level", "2", "--dry", "--only", "L2-1,L2-2", "--rows", str(out), "-o", str(out)]
    kept = {"problem": "2_Zero", "status": "taken"}
    out.write_text(json.dumps({"options": {"dtype": "fp32"}, "rows": {"L2-2": kept}}))
    done = CliRunner().invoke(main, [str(checkout), *asked, "--seconds", "0"])
    assert done.exit_code == 0, done.output
    found = json.loads(out.read_text(encoding="utf-8"))
    assert (found["rows"], found["not_run"]) == ({"L2-2": kept}, ["L2-1"])


def test_rows_of_a_gpu_come_one_by_one_and_the_end_cuts_the_others_short(checkout, monkeypatch):
    monkeypatch.setattr(command.gpus, "visible", lambda: ("0",))
    here = "unit.benchmarks.row_services:kernelbench"
    services = {"prepare": f"{here}_prepare", "measure": f"{here}_row"}
    monkeypatch.setattr(command, "SERVICES", services)
    out = checkout / "out.json"
    asked = ["--level", "2", "--dtype", "bf16,fp32", "--jobs", "2", "--seconds", "100"]
    rows: list[object] = []
    # Its clock stands until two problems are done in both types; the third one hangs.
    clock = SimpleNamespace(monotonic=lambda: 99.9 if len(rows) == 4 else 0.0)
    monkeypatch.setattr("benchmarks.farm.farm.time", clock)
    monkeypatch.setattr(command, "time", clock)
    line = document.row_line
    monkeypatch.setattr(document, "row_line", lambda row: rows.append(row) or line(row))
    done = CliRunner().invoke(main, [str(checkout), *asked, "-o", str(out)])
    assert done.exit_code == 0, done.output
    for kind in ("bf16", "fp32"):
        found = json.loads((checkout / f"out-{kind}.json").read_text(encoding="utf-8"))
        assert {k: r["us"]["ours"] for k, r in found["rows"].items()} == {"L2-1": 2.0, "L2-2": 2.0}
        assert (found["not_run"], found["machine"]["gpu"]) == (["L2-10"], "a stand-in")
        assert found["summary"]["L2"]["fast_1_over_compile"] == 1.0
    assert found["cut_short"] == {f"L2-10-{kind}": ["0.0 searching"] for kind in ("bf16", "fp32")}


def test_a_row_without_memory_is_run_again_alone(checkout, monkeypatch):
    monkeypatch.setattr(command.gpus, "visible", lambda: ("0",))
    here = "unit.benchmarks.row_services:kernelbench"
    services = {"prepare": f"{here}_prepare", "measure": f"{here}_short_row"}
    monkeypatch.setattr(command, "SERVICES", services)
    out = checkout / "out.json"
    asked = ["--level", "2", "--only", "L2-1,L2-2", "--jobs", "2", "-o", str(out)]
    done = CliRunner().invoke(main, [str(checkout), *asked])
    assert done.exit_code == 0, done.output
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    # The first has all it needs then; the second crashes again, and its row is as it was.
    assert [rows[key].get("alone") for key in ("L2-1", "L2-2")] == [True, None]
    assert [rows[key]["us"]["ours"] for key in ("L2-1", "L2-2")] == [2.0, 8.0]


def test_a_peer_that_failed_has_no_time():
    times = {"ours": 2.0, "eager": 8.0, "compile_max_autotune": 3.0}
    found = document.summary({"L1-1": {"status": "taken", "correct": True, "us": times}})["L1"]
    assert found["geomean_over_compile"] == pytest.approx(1.5)


def test_shares_are_of_all_problems():
    def row(ours, correct=True):
        times = {"ours": ours, "eager": 10.0, "compile": 6.0, "compile_max_autotune": 8.0}
        return {"status": "taken", "correct": correct, "us": times}

    rows = {"L1-1": row(4.0), "L1-2": row(8.0), "L1-3": row(1.0, correct=False)}
    rows["L1-4"] = {"status": "refused", "reason": "x in `y`"}
    found = document.summary(rows)["L1"]
    assert (found["fast_0"], found["fast_1"], found["fast_2"]) == (0.5, 0.5, 0.25)
    assert (found["fast_1_over_compile"], found["correct"]) == (0.25, 2)
    assert (found["slower"], found["wrong"]) == ({"L1-2": 0.75}, ["L1-3"])
    # What PyTorch refuses is none of the problems; what eager rounds away is not wrong.
    rows["L1-5"] = {"status": document.NOT_OF_THIS_TYPE, "reason": "dtype"}
    rows["L1-3"]["closer_than_eager"] = True
    again = document.summary(rows)["L1"]
    assert (again["problems"], again["not_of_this_type"]) == (4, ["L1-5"])
    assert (again["wrong"], again["closer_than_eager"]) == ([], ["L1-3"])
    assert again["fast_0"] == found["fast_0"]
    assert found["geomean_over_eager"] == pytest.approx((2.5 * 1.25) ** 0.5)
    assert found["refused"] == {"x": 1}


class _Decay(torch.nn.Module):
    def forward(self, x):
        return torch.exp(torch.cumsum(x, -1))


def test_what_eager_rounds_away_is_told_from_what_is_wrong():
    model, x = _Decay(), torch.linspace(3, -3, 64, dtype=torch.bfloat16).repeat(8, 1)
    right = model(x.float()).bfloat16()
    assert not torch.allclose(right, model(x), atol=1e-2, rtol=1e-2)
    calls = {"eager": model, "ours": lambda x: model(x.float()).bfloat16()}
    found = distances.judged(calls, model, [x], 1e-2)
    assert found["closer_than_eager"]
    outside = {name: far["outside"] for name, far in found["from_float64"].items()}
    assert outside["ours"] == 0.0 < outside["eager"]
    calls["ours"] = lambda x: torch.cat([right[:-1], torch.zeros_like(right[:1])])
    assert not distances.judged(calls, model, [x], 1e-2)["closer_than_eager"]


def test_types_that_pytorch_refuses_are_told_from_other_faults():
    with pytest.raises(RuntimeError) as refused:
        torch.ones(2, 2) @ torch.ones(2, 2, dtype=torch.bfloat16)
    assert measured._is_of_types(refused.value)
    assert not measured._is_of_types(RuntimeError("CUDA out of memory"))


def test_times_are_taken_again_until_two_rounds_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    # A neighbour has the GPU in the first round, and in a part of the second.
    rounds = iter([{"a": 30.0, "b": 20.0}, {"a": 10.0, "b": 20.0}, {"a": 10.1, "b": 9.0}])
    rounds = iter([*rounds, {"a": 10.1, "b": 9.1}])
    waits: list[float] = []
    monkeypatch.setattr(measured, "_round_us", lambda *_: next(rounds))
    monkeypatch.setattr("time.sleep", waits.append)
    assert measured._microseconds({}, []) == {"a": 10.0, "b": 9.0}
    assert len(waits) == 3


def test_two_rounds_that_agree_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter([{"a": 10.1}, {"a": 10.0}])
    monkeypatch.setattr(measured, "_round_us", lambda *_: next(rounds))
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert measured._microseconds({}, []) == {"a": 10.0}


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_process_that_has_lost_its_gpu_measures_nothing_more(monkeypatch, is_lost):
    def crashes():
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(gpu_context, "gpu_is_lost", lambda: is_lost)
    if is_lost:
        with pytest.raises(LostGpuError):
            measured._outcome(crashes)
    else:
        assert measured._outcome(crashes)["status"] == "crashed"
