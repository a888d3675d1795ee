"""torch.compile's contract: what comes out is what eager gives, whatever the function does."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mirage_py.errors import InputError, MirageWarning
from mirage_py.reasons import Code, reason

Compiled = Callable[..., Any]
Lines = Callable[[str], list[str]]


def block(x: torch.Tensor, g: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.silu(F.rms_norm(x, (x.shape[-1],), g) @ w)


def arguments(rows: int = 6) -> tuple[torch.Tensor, ...]:
    return torch.randn(rows, 32), torch.randn(32), torch.randn(32, 48)


def test_the_backend_is_found_by_name():
    # An installation older than the entry point does not list it.
    from importlib.metadata import entry_points

    found = [e.value for e in entry_points(group="torch_dynamo_backends") if e.name == "mirage_py"]
    if not found:
        pytest.skip("installed before the entry point was there")
    assert found == ["mirage_py.dynamo.backend:mirage_py"]
    assert "mirage_py" in torch._dynamo.list_backends()


def test_importing_it_loads_no_search():
    code = (
        "import sys, mirage_py.dynamo.backend; "
        "print([m for m in ('egglog', 'triton', 'mirage_py.search', 'mirage_py.pipeline.pipeline',"
        " 'mirage_py.frontend') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_result_is_that_of_eager(compiled: Compiled, lines: Lines):
    inputs = arguments()
    torch.testing.assert_close(compiled(block)(*inputs), block(*inputs))
    (line,) = lines("served by")
    assert "mm silu" in line
    assert "its program in plain PyTorch" in line


def test_views_of_one_of_several_results_are_made_in_its_region(compiled: Compiled, lines: Lines):
    def normed(x: torch.Tensor, w: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> Any:
        y = F.batch_norm(x @ w, mean, var).view(2, 4, 16)
        return y, F.hardswish(y.view(8, 16)) * 2

    inputs = torch.randn(8, 32), torch.randn(32, 16), torch.randn(16), torch.rand(16) + 0.5
    torch.testing.assert_close(compiled(normed)(*inputs), normed(*inputs))
    assert [x for x in lines("served by") if "batch_norm_legit_no_training hardswish" in x] != []


def test_an_unknown_option_is_an_error(compiled: Compiled):
    with pytest.raises((InputError, torch._dynamo.exc.BackendCompilerFailed), match="effort"):
        compiled(block, eforts="full")(*arguments())


def test_cpu_tensors_are_left_to_the_rest_by_default(compiled: Compiled, lines: Lines):
    inputs = arguments()
    torch.testing.assert_close(compiled(block, on_cpu="rest")(*inputs), block(*inputs))
    assert lines("served by") == []
    assert lines("no tensor on a GPU") != []


def test_nothing_is_served_beyond_max_regions(compiled: Compiled, lines: Lines):
    inputs = arguments()
    torch.testing.assert_close(compiled(block, max_regions=0)(*inputs), block(*inputs))
    assert lines("served by") == []
    assert lines("max_regions") != []


def test_dynamic_sizes_make_entries_and_no_recompilation(compiled: Compiled):
    fast = compiled(block, dynamic=True)
    torch._dynamo.utils.counters.clear()
    for rows in (6, 7, 40, 7):
        inputs = arguments(rows)
        torch.testing.assert_close(fast(*inputs), block(*inputs))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_a_second_batch_size_is_right(compiled: Compiled):
    fast = compiled(block)
    for rows in (6, 9, 12):
        inputs = arguments(rows)
        torch.testing.assert_close(fast(*inputs), block(*inputs))


def test_sizes_inside_a_region_may_be_symbols(compiled: Compiled):
    def reshaped(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        heads = x.view(x.shape[0], -1, 4, 8).transpose(1, 2)
        return torch.softmax(heads @ heads.transpose(-1, -2) / x.shape[1], -1) @ heads * w

    fast = compiled(reshaped, dynamic=True)
    for batch, rows in ((2, 5), (3, 5), (3, 11)):
        inputs = torch.randn(batch, rows, 32), torch.randn(8)
        torch.testing.assert_close(fast(*inputs), reshaped(*inputs))


def test_places_alone_of_a_maximum_may_be_a_result(compiled: Compiled):
    """Nothing reads the maximum: with open sizes the whole graph went to eager, with a warning."""

    def nearest(x: torch.Tensor, codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        place = (-x).max(-1)[1]
        return F.embedding(place, codes) * 2, place

    fast = compiled(nearest, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", MirageWarning)
        for rows in (6, 7):
            inputs = torch.randn(rows, 9), torch.randn(9, 16)
            torch.testing.assert_close(fast(*inputs), nearest(*inputs))


def test_graph_breaks_give_several_graphs(compiled: Compiled, lines: Lines):
    def broken(x: torch.Tensor, g: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = block(x, g, w)
        torch._dynamo.graph_break()
        return (y + 1).relu() * y

    inputs = arguments()
    torch.testing.assert_close(compiled(broken)(*inputs), broken(*inputs))
    assert len(lines("served by")) == 2


def test_results_have_the_strides_of_eager(compiled: Compiled):
    def many(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = (x.transpose(0, 2) * 2).relu()
        return y, y.transpose(0, 1), y[1:], y.sum(1), x.expand(4, *x.shape).neg(), x

    x = torch.randn(3, 4, 5)
    for got, want in zip(compiled(many)(x), many(x), strict=True):
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()


@pytest.mark.parametrize("axes", [(1, 0, 2), (2, 0, 1)], ids=["permuted", "columns last"])
def test_a_layer_norm_of_permuted_rows_can_be_viewed(compiled: Compiled, axes: tuple[int, ...]):
    """Its result is row-major in eager, and the model's own code has found so."""

    def normed(x: torch.Tensor) -> torch.Tensor:
        y = F.layer_norm(x, x.shape[-1:])
        return y.view(-1, x.shape[-1]) * 1.5

    x = torch.randn(4, 6, 8).permute(axes).requires_grad_()
    result = compiled(normed)(x)
    torch.testing.assert_close(result, normed(x))
    (found,) = torch.autograd.grad(result.square().sum(), x)
    (want,) = torch.autograd.grad(normed(x).square().sum(), x)
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)


def test_results_do_not_share_memory_by_accident(compiled: Compiled):
    def copies(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.clone(), x + 0

    x = torch.randn(5)
    first, second = compiled(copies)(x)
    first.add_(1)
    second.add_(2)
    torch.testing.assert_close(first, second - 1)
    torch.testing.assert_close(first, x + 1)


def test_inputs_that_are_written_to(compiled: Compiled):
    def writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2).add_(y)
        return (x * y).relu()

    x, y = torch.randn(2, 6)
    mine, theirs = x.clone(), x.clone()
    torch.testing.assert_close(compiled(writes)(mine, y), writes(theirs, y))
    torch.testing.assert_close(mine, theirs)


def test_strided_and_aliased_inputs(compiled: Compiled):
    fast = compiled(lambda x, y: F.softmax(x * y + x.T, -1))
    base = torch.randn(20, 30)
    for x, y in ((base[:8:2, 3:7], base[4:8, 10:14]), (base[:4, :4].T, base[:4, :4])):
        torch.testing.assert_close(fast(x, y), F.softmax(x * y + x.T, -1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types(compiled: Compiled, dtype: torch.dtype):
    inputs = [t.to(dtype) for t in arguments()]
    got, want = compiled(block)(*inputs), block(*inputs)
    assert got.dtype is dtype
    torch.testing.assert_close(got, want, atol=0.05, rtol=0.05)


def test_autocast_is_that_of_eager(compiled: Compiled):
    inputs = arguments()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, want = compiled(block)(*inputs), block(*inputs)
    assert got.dtype is want.dtype is torch.bfloat16
    torch.testing.assert_close(got, want, atol=0.05, rtol=0.05)


def test_random_numbers_stay_outside(compiled: Compiled):
    def dropped(x: torch.Tensor) -> torch.Tensor:
        return F.dropout((x * 2).relu(), 0.5) + 1

    y = compiled(dropped)(torch.ones(1000))
    assert 0.3 < (y == 1).float().mean().item() < 0.7


def test_a_kernel_that_fails_is_one_warning(compiled: Compiled, monkeypatch: pytest.MonkeyPatch):
    from mirage_py.dynamo.compile import compiler
    from mirage_py.dynamo.serve.service import Service
    from mirage_py.errors import MirageWarning

    def fails(*inputs: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("out of registers")

    service = Service(fails, reason(Code.KERNEL, "a kernel"))
    monkeypatch.setattr(compiler, "server_for", lambda *_: lambda *_: service)
    fast, inputs = compiled(block), arguments()
    with pytest.warns(MirageWarning, match="out of registers"):
        torch.testing.assert_close(fast(*inputs), block(*inputs))
    torch.testing.assert_close(fast(*inputs), block(*inputs))


def test_a_region_that_cannot_be_made_is_left_alone(
    compiled: Compiled, lines: Lines, monkeypatch: pytest.MonkeyPatch
):
    from mirage_py.dynamo.serve import region_call
    from mirage_py.errors import UnsupportedError

    def refuses(*_: Any) -> Any:
        raise UnsupportedError("no such thing", why="it is a test")

    monkeypatch.setattr(region_call, "region_program", refuses)
    inputs = arguments()
    torch.testing.assert_close(compiled(block)(*inputs), block(*inputs))
    assert any("left to eager: no such thing (it is a test)" in line for line in lines("region"))


def test_a_lost_gpu_is_told_of(compiled: Compiled, monkeypatch: pytest.MonkeyPatch):
    """Eager could not run either, and would say less."""
    from torch._dynamo.exc import BackendCompilerFailed

    from mirage_py.dynamo.compile import compiler
    from mirage_py.errors import LostGpuError

    def breaks_it(*_: Any) -> Any:
        raise LostGpuError("plan 6 broke this process's GPU context", launched="plan 6")

    monkeypatch.setattr(compiler, "server_for", lambda *_: breaks_it)
    with pytest.raises(BackendCompilerFailed, match="plan 6 broke"):
        compiled(block)(*arguments())


def test_identical_layers_are_optimised_once(compiled: Compiled, monkeypatch: pytest.MonkeyPatch):
    from mirage_py.dynamo.compile import compiler
    from mirage_py.dynamo.serve import servers

    made = []

    def counting(region: Any, own: Any) -> Any:
        made.append(region.program.digest)
        return servers.reference(region, own)

    monkeypatch.setattr(compiler, "server_for", lambda *_: counting)

    def deep(x: torch.Tensor, *layers: torch.Tensor) -> torch.Tensor:
        for w in layers:
            x = x + F.silu(F.rms_norm(x, (32,)) @ w)
        return x

    inputs = torch.randn(6, 32), *(torch.randn(32, 32) / 6 for _ in range(12))
    torch.testing.assert_close(compiled(deep)(*inputs), deep(*inputs))
    assert 1 <= len(made) <= 3
    assert len(dict.fromkeys(made)) == len(made)
