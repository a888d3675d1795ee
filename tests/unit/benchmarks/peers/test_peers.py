"""The peers compute what eager PyTorch does, as far as a CPU can run them."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend

from benchmarks.peers import library_attention
from benchmarks.peers.compiled import compiled
from benchmarks.peers.library_matmul import matmul_peers
from benchmarks.peers.peers import PEER_NAMES, peers
from benchmarks.peers.prepared import Prepared
from benchmarks.workloads.workload import Workload
from benchmarks.workloads.workloads import cells
from mirage_py.errors import InputError
from mirage_py.frontend.spec import parse_file

DISTINCT = {w.example: w for w in cells().values()}
# Extents of one spec are distinct; flex_attention wants powers of two for features.
SMALL = {"R": 2, "G": 3, "B": 4, "H": 6, "T": 7, "S": 9, "D": 16, "N": 11, "M": 13, "F": 14}
GPU_ONLY = ("flash_window",)


def _same(function: Callable[..., Any], **_options: object) -> Callable[..., Any]:
    return function


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled, and the back end is the one that there is."""
    monkeypatch.setattr(torch, "compile", _same)
    backends = dict.fromkeys(library_attention._BACKENDS, SDPBackend.MATH)
    monkeypatch.setattr(library_attention, "_BACKENDS", backends)


def inputs_of(workload: Workload) -> list[torch.Tensor]:
    text = workload.spec.read_text(encoding="utf-8")
    sizes = {n: SMALL[n] for n in re.findall(r"\b([A-Z]+) = \d", text) if n in SMALL}
    if "cross_entropy" in workload.example:
        sizes["V"] = 17
    program = parse_file(workload.spec, sizes=sizes)
    drawn = torch.Generator().manual_seed(3)
    return [
        torch.randn(t.shape, generator=drawn, dtype=torch.float64)
        if t.dtype.is_float
        else torch.randint(0, 17, t.shape, generator=drawn)
        for t in program.inputs
    ]


def as_tuple(result: Any) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("example", DISTINCT)
def test_peers_give_what_eager_gives(example: str, on_cpu: None):
    workload = DISTINCT[example]
    inputs = inputs_of(workload)
    found = peers(workload)
    wanted = as_tuple(found.pop("eager")(*inputs))
    for name in GPU_ONLY:
        found.pop(name, None)
    assert found
    for name, peer in found.items():
        # The second call finds the layouts that the first one made.
        for _ in range(2):
            for value, expected in zip(as_tuple(peer(*inputs)), wanted, strict=True):
                torch.testing.assert_close(
                    value,
                    expected,
                    rtol=1e-9,
                    atol=1e-9,
                    msg=lambda text, name=name: f"{name}: {text}",
                )


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_a_window_is_as_long_as_the_programs(on_cpu: None, monkeypatch: pytest.MonkeyPatch):
    window = 3
    form = library_attention.Form(causal=True, window=window)
    forms = {"sliding_window_attention": lambda _: (form,)}
    monkeypatch.setattr(library_attention, "_FORMS", forms)
    workload = DISTINCT["large/sliding_window_attention"]
    inputs = inputs_of(workload)
    wanted = workload.torch_function()(*inputs, window=window)
    found = library_attention.attention_peers(workload.program_name)
    for name in ("sdpa_cudnn", "sdpa_efficient", "flex"):
        torch.testing.assert_close(found[name](*inputs), wanted, rtol=1e-9, atol=1e-9)
    whole = workload.torch_function()(*inputs)
    assert not torch.allclose(wanted, whole)


def names_for(example: str) -> set[str]:
    return set(peers(DISTINCT[example])) - {"eager", "compile", "compile_max_autotune"}


def test_which_peers_there_are():
    kernels = {"sdpa_flash", "sdpa_cudnn", "sdpa_efficient", "flex"}
    assert names_for("attention") == names_for("qknorm_attention") == kernels
    grouped = kernels | {"sdpa_flash_gqa", "sdpa_cudnn_gqa"}
    assert names_for("models/token_attention") == grouped
    assert names_for("large/decode_attention") == grouped
    assert names_for("models/qknorm_token_attention") == grouped
    assert names_for("models/prompt_attention") == {"sdpa_flash", "sdpa_cudnn", "flex"}
    assert names_for("large/sliding_window_attention") == {
        "sdpa_cudnn",
        "sdpa_efficient",
        "flash_window",
        "flex",
    }
    assert names_for("large/softcap_attention") == {"flex"}
    assert names_for("gated_mlp") == {"cublas_concat", "cublas_linear"}
    assert names_for("models/projection_residual") == {"cublas", "cublas_linear"}
    assert names_for("softmax") == set()


def test_every_name_is_used_and_no_other():
    used = {name for workload in DISTINCT.values() for name in peers(workload)}
    assert used == set(PEER_NAMES)


def test_names_choose():
    workload = DISTINCT["attention"]
    assert list(peers(workload, ["flex", "eager", "cublas"])) == ["eager", "flex"]
    with pytest.raises(InputError, match="unknown peer tensorrt"):
        peers(workload, ["tensorrt"])


def test_a_layout_is_made_once_for_each_input_and_goes_with_it():
    prepared = Prepared()
    made: list[torch.Tensor] = []

    def transposed(x: torch.Tensor) -> torch.Tensor:
        made.append(x.t().contiguous())
        return made[-1]

    first, second = torch.ones(2, 3), torch.zeros(2, 3)
    results = [prepared("t", transposed, x) for x in (first, second, first, second)]
    assert results[0] is results[2] is made[0]
    assert results[1] is results[3] is made[1]
    assert len(made) == 2
    # New inputs at an old address get layouts of their own.
    address = first.data_ptr()
    del first
    gc.collect()
    again = torch.full((2, 3), 7.0)
    assert torch.equal(prepared("t", transposed, again), again.t())
    assert len(made) == 3, address


def test_weights_as_a_linear_layer_holds_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "compile", _same)
    seen: list[tuple[int, ...]] = []
    real = torch.addmm

    def addmm(add: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        seen.append(w.stride())
        return real(add, x, w)

    monkeypatch.setattr(torch, "addmm", addmm)
    inputs = inputs_of(DISTINCT["models/projection_residual"])
    for peer in matmul_peers("projection_residual").values():
        peer(*inputs)
    assert seen == [(SMALL["M"], 1), (1, SMALL["D"])]


def test_each_compilation_has_code_of_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "compile", _same)

    def double(x: float) -> float:
        return 2 * x

    first, second = compiled(double), compiled(double)
    assert first(3) == second(3) == 6
    assert first.__code__ is not second.__code__
