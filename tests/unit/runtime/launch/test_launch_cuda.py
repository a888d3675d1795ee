"""Launches of CUDA kernels, with a driver that has no GPU and adds on the host."""

from __future__ import annotations

import contextlib
import sys
import threading
from dataclasses import replace

import pytest
import torch
from cuda_kernels import doubling_plan, emitting, kernel
from unit.runtime.fake_driver import FakeLibrary, built

from mirage_py.errors import CompileError
from mirage_py.runtime.compile.compile_cuda import MachineCode
from mirage_py.runtime.compile.compiled_facts import Resources
from mirage_py.runtime.launch import launch, launch_cuda
from mirage_py.runtime.launch.cuda_driver import CudaDriver
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.launch.launch_cuda import Places, launcher
from mirage_py.ugraph.ir.dtypes import F32

PLAN = doubling_plan()
LAUNCHED = "launch 77 grid 8,1,1 block 256,1,1 smem {} stream 5"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> FakeLibrary:
    return built(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def driver(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> CudaDriver:
    library.reset()
    library.fail_next(0)
    fake = CudaDriver(library.handle)
    monkeypatch.setattr(launch_cuda, "cuda_driver", lambda: fake)
    code = MachineCode(b"\x7fELF", Resources())
    monkeypatch.setattr(launch_cuda, "machine_code", lambda *_: code)
    return fake


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(64, 32), torch.zeros(64, 32)


def test_a_kernel_is_loaded_once_and_launched_with_addresses(
    driver: CudaDriver, library: FakeLibrary
):
    run = launch_cuda.cuda_launch(kernel(PLAN, "plain"), 90, 3, Places((1, 0)))
    assert library.lines == ["enter 1103", "load \x7fELF", "function doubling of 7"]
    library.reset()
    x, y = tensors()
    for _ in range(2):
        run([y, x], 5)
    assert library.lines == [LAUNCHED.format(0)] * 2
    assert torch.equal(y, x + x)


def test_what_a_kernel_asks_for_is_allowed_once(driver: CudaDriver, library: FakeLibrary):
    large = replace(kernel(PLAN, "cluster16"), smem_bytes=200_000)
    run = launch_cuda.cuda_launch(large, 90, 0, Places((0, 1)))
    assert library.lines[-2:] == ["set 8 200000", "set 14 1"]
    library.reset()
    launch_cuda.cuda_launch(kernel(PLAN, "cluster2"), 90, 0, Places((0, 1)))
    assert not any(line.startswith("set") for line in library.lines)
    library.reset()
    run(tensors(), 5)
    assert library.lines == [LAUNCHED.format(200_000)]


def test_a_kernel_may_start_before_the_one_in_front_has_ended(
    driver: CudaDriver, library: FakeLibrary
):
    early = replace(kernel(PLAN, "plain"), smem_bytes=99, uses_pdl=True)
    run = launch_cuda.cuda_launch(early, 90, 0, Places((0, 1)))
    library.reset()
    x, y = tensors()
    run([x, y], 5)
    assert library.lines == ["attribute 6 is 1 of 1", LAUNCHED.format(99)]
    assert torch.equal(y, x + x)


def test_tensor_maps_follow_the_addresses(driver: CudaDriver, library: FakeLibrary):
    run = launch_cuda.cuda_launch(kernel(PLAN, "copied"), 90, 0, Places((1,), ((0, F32),)))
    library.reset(with_map=True)
    pairs = [tensors() for _ in range(3)]
    for x, y in (*pairs, *pairs):
        run([x, y], 5)
        assert torch.equal(y, x + x)
        y.zero_()
    encoded = "map kind 7 rank 2 shape 32,64 stride 128 box 32,8 steps 1,1 swizzle 0"
    assert library.lines.count(encoded) == 3
    assert library.lines.count(LAUNCHED.format(1024)) == 6


def test_maps_of_old_addresses_go_first(
    driver: CudaDriver, library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("mirage_py.runtime.launch.tensor_maps._KEPT", 2)
    run = launch_cuda.cuda_launch(kernel(PLAN, "copied"), 90, 0, Places((1,), ((0, F32),)))
    a, b, c = (tensors() for _ in range(3))
    made = []
    for pair in (a, b, a, c, a, b):
        library.reset(with_map=True)
        run(pair, 5)
        made.append(sum(line.startswith("map") for line in library.lines))
    assert made == [1, 1, 0, 1, 0, 1]


def test_failures_are_in_the_drivers_words(driver: CudaDriver, library: FakeLibrary):
    places = Places((0, 1))
    library.fail_next(200)
    with pytest.raises(CompileError, match="the GPU does not take it: cuModuleLoadData") as raised:
        launch_cuda.cuda_launch(kernel(PLAN, "plain"), 90, 0, places)
    assert "CUDA_ERROR_FAKE (as the test wants it)" in str(raised.value)
    run = launch_cuda.cuda_launch(kernel(PLAN, "plain"), 90, 0, places)
    library.fail_next(719)
    with pytest.raises(CompileError, match="the launch fails: CUDA_ERROR_FAKE"):
        run(tensors(), 5)
    mapped = launch_cuda.cuda_launch(kernel(PLAN, "copied"), 90, 0, Places((1,), ((0, F32),)))
    library.fail_next(1)
    with pytest.raises(CompileError, match="TMA does not take X"):
        mapped(tensors(), 5)


def test_a_thread_that_has_no_context_gets_one(driver: CudaDriver, library: FakeLibrary):
    run = launch_cuda.cuda_launch(kernel(PLAN, "plain"), 90, 2, Places((0, 1)))
    library.reset()
    x, y = tensors()
    thread = threading.Thread(target=run, args=([x, y], 5))
    thread.start()
    thread.join()
    assert library.lines == ["enter 1102", LAUNCHED.format(0)]
    assert torch.equal(y, x + x)


def test_a_thread_that_has_no_context_gets_one_for_tensor_maps(
    driver: CudaDriver, library: FakeLibrary
):
    run = launch_cuda.cuda_launch(kernel(PLAN, "copied"), 90, 2, Places((1,), ((0, F32),)))
    library.reset(with_map=True)
    x, y = tensors()
    thread = threading.Thread(target=run, args=([x, y], 5))
    thread.start()
    thread.join()
    assert library.lines[0] == "enter 1102"
    assert torch.equal(y, x + x)


def test_threads_do_not_mix_up_arguments(driver: CudaDriver, library: FakeLibrary):
    run = launch_cuda.cuda_launch(kernel(PLAN, "plain"), 90, 0, Places((0, 1)))
    pairs = [tensors() for _ in range(4)]

    def work(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
        for _ in range(200):
            run(pair, 5)

    threads = [threading.Thread(target=work, args=(pair,)) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(y, x + x) for x, y in pairs)


def test_facts_of_a_loaded_function(driver: CudaDriver):
    assert driver.facts(77) == (40, 30, 10)


def test_a_launch_costs_little(driver: CudaDriver, library: FakeLibrary):
    run = launcher(kernel(PLAN, "plain"), driver, 77, 0, Places((0, 1)))
    pair = tensors()
    driver.enter(0)
    run(pair, 5)
    calls: list[str] = []
    profile = sys.getprofile()
    sys.setprofile(lambda frame, event, _: calls.append(event) if "call" in event else None)
    try:
        run(pair, 5)
    finally:
        sys.setprofile(profile)
    # 2 us of Python: each call is a tenth of one at most.
    assert len(calls) <= 20


@pytest.mark.parametrize("kind", ["plain", "copied"])
def test_a_runner_launches_plans_of_the_cuda_back_end(
    driver: CudaDriver, library: FakeLibrary, monkeypatch: pytest.MonkeyPatch, kind: str
):
    emitting(monkeypatch, lambda _: kind)
    monkeypatch.setattr(launch, "stream_function", lambda: lambda _index: 5)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", lambda _index: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _index: (9, 0))
    runner = PlanRunner(PLAN)
    library.reset(with_map=kind == "copied")
    x, y = tensors()
    runner._run([x], [y], torch.device("cuda", 0))
    assert torch.equal(y, x + x)
    assert library.lines[-1] == LAUNCHED.format(1024 if kind == "copied" else 0)
