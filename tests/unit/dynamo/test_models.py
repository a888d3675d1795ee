"""Real models: logits are those of eager, and so is training, step by step."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from dynamo_models import MODELS, batch
from nightly import NIGHTLY

Compiled = Callable[..., Any]
Lines = Callable[[str], list[str]]

STEPS = 20 if NIGHTLY else 6
# LoRA has a Llama inside, Gemma the norms of Qwen's queries and keys. What is trained runs forward
# too, images among it; experts and windows, trained, are at night.
TRAINED = MODELS if NIGHTLY else ("lora", "vit")
SERVED = MODELS if NIGHTLY else ("llama", "gemma3", "mixtral")


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    """Imported by the process that runs this file, not by all that collect it: it takes seconds."""
    pytest.importorskip("transformers")
    pytest.importorskip("peft")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        # The libraries' own business.
        warnings.simplefilter("ignore")
        yield


def model(name: str) -> torch.nn.Module:
    torch.manual_seed(1)
    return MODELS[name]()


@pytest.mark.parametrize("name", SERVED)
def test_logits_are_those_of_eager(compiled: Compiled, lines: Lines, name: str):
    eager = model(name).eval()
    fast = compiled(eager)
    with torch.no_grad():
        # Of a second batch of another size torch makes symbols: it compiles once more, which one of
        # the models shows.
        sizes = ((2, 9), (3, 7)) if name == "llama" or NIGHTLY else ((2, 9),)
        for rows, length in sizes:
            inputs = batch(name, rows, length)
            inputs.pop("labels")
            got, want = fast(**inputs), eager(**inputs)
            torch.testing.assert_close(got.logits, want.logits, atol=2e-5, rtol=1e-4)
    assert len(lines("served by")) >= 3
    left = [line for line in lines("left to") if ": region " in line]
    # Mixture of experts reads rows at quotients of positions, which no kernel computes.
    known = ("nothing was found", "a position that")
    assert [line for line in left if not any(words in line for words in known)] == []


@pytest.mark.parametrize("name", TRAINED)
def test_training_follows_eager(compiled: Compiled, lines: Lines, name: str):
    losses = {}
    inputs = batch(name)
    for kind in ("eager", "compiled"):
        trained = model(name).train()
        wanted = [p for p in trained.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(wanted, lr=0.1)
        run = trained if kind == "eager" else compiled(trained)
        losses[kind] = []
        for _ in range(STEPS):
            loss = run(**inputs).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[kind].append(loss.item())
    torch.testing.assert_close(
        torch.tensor(losses["compiled"]), torch.tensor(losses["eager"]), atol=1e-4, rtol=1e-3
    )
    assert losses["compiled"][-1] < losses["compiled"][0]
    assert lines("backward: region") != []
