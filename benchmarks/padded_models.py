"""Models of transformers through torch.compile with this backend, on padded and packed batches.

    python -m benchmarks.padded_models                 # on the CPU: regions as their programs
    python -m benchmarks.padded_models --device cuda   # on a GPU: regions as kernels
    python -m benchmarks.padded_models --device cuda --measured  # what is faster alone

Ten decoders and encoders with random weights, as small as their configurations allow. Each gets
sequences padded on the left and on the right, and several sequences packed into one row by their
positions. All logits are compared with eager's, those of padding too: a row of attention without a
key is 0 there, and must not become NaN that the next layer spreads.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.provenance import commit

PADDINGS = ("left", "right", "packed")
# Logits of random weights are of size 1: float32 rounds at 1e-7, a bfloat16 kernel at 4e-3.
_TOLERANCE = {torch.float32: 2e-4, torch.bfloat16: 6e-2}
_ROWS, _LENGTH = 3, 16


@dataclass(frozen=True, slots=True)
class Row:
    """A model on one kind of batch; ``not_finite`` counts logits that are no numbers."""

    model: str
    padding: str
    error: float
    allowed: float
    not_finite: int
    eager_not_finite: int
    logits: int
    regions: int
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether the logits are those of eager."""
        return self.error <= self.allowed and self.not_finite == self.eager_not_finite


def _config(width: int, **more: Any) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 61,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **more,
    }


def _grouped(width: int, **more: Any) -> dict[str, Any]:
    return _config(width, num_key_value_heads=2, **more)


def _made(name: str, kind: str, make: Callable[[int], Mapping[str, Any]]) -> Callable[..., Any]:
    def build(width: int) -> torch.nn.Module:
        import transformers

        config = getattr(transformers, f"{name}Config")(**make(width))
        model: torch.nn.Module = getattr(transformers, f"{name}{kind}")(config)
        return model

    return build


MODELS: dict[str, Callable[[int], torch.nn.Module]] = {
    "llama": _made("Llama", "ForCausalLM", _grouped),
    "qwen3": _made("Qwen3", "ForCausalLM", lambda w: _grouped(w, head_dim=w // 4)),
    "mistral": _made("Mistral", "ForCausalLM", lambda w: _grouped(w, sliding_window=6)),
    "mixtral": _made(
        "Mixtral",
        "ForCausalLM",
        lambda w: _grouped(w, num_local_experts=4, num_experts_per_tok=2),
    ),
    "phi3": _made("Phi3", "ForCausalLM", _grouped),
    "olmo2": _made("Olmo2", "ForCausalLM", _grouped),
    "gpt2": _made(
        "GPT2",
        "LMHeadModel",
        lambda w: {"n_embd": w, "n_layer": 2, "n_head": 4, "vocab_size": 61, "n_positions": 64},
    ),
    "gptneox": _made("GPTNeoX", "ForCausalLM", _config),
    "bert": _made("Bert", "ForMaskedLM", _config),
    "roberta": _made("Roberta", "ForMaskedLM", _config),
}
# Positions do not say where a sequence begins to an encoder.
_NOT_PACKED = ("bert", "roberta")


def cases() -> list[tuple[str, str]]:
    """Each model with each kind of batch that it knows."""
    return [
        (model, padding)
        for model in MODELS
        for padding in PADDINGS
        if padding != "packed" or model not in _NOT_PACKED
    ]


def batch(padding: str, device: str) -> dict[str, torch.Tensor]:
    """Inputs of three rows; one is not padded."""
    ids = torch.randint(3, 61, (_ROWS, _LENGTH), device=device)
    if padding == "packed":
        lengths = ((5, 11), (16,), (3, 6, 7))
        positions = [torch.cat([torch.arange(n) for n in row]) for row in lengths]
        return {"input_ids": ids, "position_ids": torch.stack(positions).to(device)}
    keep = torch.ones(_ROWS, _LENGTH, dtype=torch.int64, device=device)
    for row, missing in enumerate((9, 0, 4)):
        if padding == "left":
            keep[row, :missing] = 0
        elif missing:
            keep[row, -missing:] = 0
    return {"input_ids": ids * keep, "attention_mask": keep}


def compare(name: str, padding: str, options: Mapping[str, Any], device: str) -> Row:
    """One model on one kind of batch, compiled and not."""
    from mirage_py.dynamo.backend import mirage_py

    torch.compiler.reset()
    torch.manual_seed(1)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    width = 256 if device == "cuda" else 32
    eager = MODELS[name](width).eval().to(device, dtype)
    inputs = batch(padding, device)
    counter = _Served()
    logger = logging.getLogger("mirage_py.dynamo")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(counter)
    started = time.perf_counter()
    try:
        fast = torch.compile(eager, backend=mirage_py, options=dict(options))
        with torch.no_grad():
            got = fast(**inputs, use_cache=False).logits.double()
            want = eager(**inputs, use_cache=False).logits.double()
    finally:
        logger.removeHandler(counter)
        logger.setLevel(level)
    both = torch.isfinite(got) & torch.isfinite(want)
    return Row(
        name,
        padding,
        float((got - want)[both].abs().max()) if both.any() else float("inf"),
        _TOLERANCE[dtype],
        int((~torch.isfinite(got)).sum()),
        int((~torch.isfinite(want)).sum()),
        got.numel(),
        counter.regions,
        round(time.perf_counter() - started, 1),
    )


class _Served(logging.Handler):
    """Counts the regions that something serves."""

    def __init__(self) -> None:
        super().__init__()
        self.regions = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Look at one line of the backend's log."""
        self.regions += "served by" in record.getMessage()


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    lines = [
        "| model | batch | logits | not finite: ours, eager | error | allowed | regions | |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for r in rows:
        verdict = "equal" if r.passed else "**differs**"
        lines.append(
            f"| {r.model} | {r.padding} | {r.logits} | {r.not_finite}, {r.eager_not_finite} | "
            f"{r.error:.1e} | {r.allowed:.0e} | {r.regions} | {verdict} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the table, write the rows; 0 if all models agree with eager."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", default="", help="names of models, with commas")
    parser.add_argument("--measured", action="store_true", help="serve what is faster only")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args(arguments)
    only = [name for name in given.only.split(",") if name]
    options: dict[str, Any] = {"rest": "eager", "on_cpu": "reference", "target": "h200"}
    if given.device == "cuda":
        options = {"rest": "inductor", "budget": 4, "whole_graph": "trust"}
        options |= {"whole_graph": "race"} if given.measured else {"min_gain": 0.0}
    warnings.simplefilter("ignore")
    rows = []
    for name, padding in cases():
        if not only or name in only:
            rows.append(compare(name, padding, options, given.device))
            print(rows[-1], file=sys.stderr, flush=True)
    print(table(rows))
    if given.output is not None:
        document = {
            "commit": commit(),
            "torch": torch.__version__,
            "device": given.device,
            "rows": list(map(asdict, rows)),
        }
        given.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
