"""Models of transformers through torch.compile with this backend, on padded and packed batches.

    python -m benchmarks.whole_models.padded_models     # on the CPU: regions as their programs
    ... --kernels llama                                 # on the CPU: regions as Triton's kernels
    ... --device cuda                                   # on a GPU: regions as kernels
    ... --device cuda --effort quick gpt2               # where they are faster

Ten decoders and encoders with random weights, as small as their configurations allow. Each gets
sequences padded on the left and on the right, and several sequences packed into one row by their
positions. All logits are compared with eager's, those of padding too: a row of attention without a
key is 0 there, and must not become NaN that the next layer spreads.

Effort none serves every region by the plan that the model ranks first: nothing is timed, and no
region is left to Inductor for being as fast there. Each model has a process of its own, which may
fail or take too long; rows are written as they come.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.report.provenance import commit
from mirage_py.dynamo.serve.service import Service

PADDINGS = ("left", "right", "packed")
# Logits of random weights are of size 1: float32 rounds at 1e-7, a bfloat16 kernel at 4e-3.
_TOLERANCE = {torch.float32: 2e-4, torch.bfloat16: 6e-2}
_ROWS, _LENGTH = 3, 16
# Words of the backend's warning of a region whose kernel does not run.
_BROKEN = "its kernel failed"


@dataclass(frozen=True, slots=True)
class Row:
    """A model on one kind of batch; ``not_finite`` counts logits that are no numbers.

    ``regions`` are distinct ones that something serves, ``kernels`` those of them that kernels of
    ours do; ``left`` are left to torch, ``why_left`` says why; the kernels of ``broken`` failed
    when they were called.
    """

    model: str
    padding: str
    error: float
    allowed: float
    not_finite: int
    eager_not_finite: int
    logits: int
    regions: int
    seconds: float
    kernels: int = 0
    left: int = 0
    broken: int = 0
    why_left: str = ""
    failure: str = ""

    @property
    def passed(self) -> bool:
        """Whether the logits are those of eager."""
        is_equal = self.error <= self.allowed and self.not_finite == self.eager_not_finite
        return is_equal and not self.broken and not self.failure


@dataclass(frozen=True, slots=True)
class Way:
    """How models are compiled: on which device, and what serves their regions."""

    device: str = "cpu"
    kernels: bool = False
    effort: str = "none"
    budget: float = 8.0

    @property
    def options(self) -> dict[str, Any]:
        """Those of torch.compile."""
        if self.device == "cpu":
            return {"rest": "eager", "on_cpu": "reference", "target": "h200"}
        chosen = {"effort": self.effort, "budget": self.budget}
        if self.effort == "none":
            return {"rest": "eager", "min_gain": 0.0, **chosen}
        return {"rest": "inductor", "whole_graph": "trust", **chosen}

    @property
    def arguments(self) -> list[str]:
        """The same for the command line."""
        flags = ["--kernels"] if self.kernels else []
        numbers = ["--effort", self.effort, "--budget", str(self.budget)]
        return ["--device", self.device, *flags, *numbers]


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


def compare(name: str, padding: str, way: Way) -> Row:
    """One model on one kind of batch, compiled and not."""
    torch.compiler.reset()
    torch.manual_seed(1)
    has_kernels = way.device == "cuda" or way.kernels
    dtype = torch.bfloat16 if has_kernels else torch.float32
    # Matrix products on tensor cores need heads of 16.
    eager = MODELS[name](64 if has_kernels else 32).eval().to(way.device, dtype)
    inputs = batch(padding, way.device)
    counter = _Served()
    logger = logging.getLogger("mirage_py.dynamo")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(counter)
    started = time.perf_counter()
    try:
        fast = _compiled(eager, way)
        with torch.no_grad(), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
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
        counter.regions if has_kernels else 0,
        len(counter.reasons),
        sum(_BROKEN in str(w.message) for w in said),
        "; ".join(dict.fromkeys(counter.reasons)),
    )


def _compiled(model: torch.nn.Module, way: Way) -> Callable[..., Any]:
    if way.kernels and way.device == "cpu":
        from benchmarks.whole_models.interpreted_regions import backend

        return torch.compile(model, backend=backend(way.options, way.budget))
    from mirage_py.dynamo.backend import mirage_py

    return torch.compile(model, backend=mirage_py, options=way.options)


class _Served(logging.Handler):
    """Counts the regions that something serves, and those that are left alone."""

    def __init__(self) -> None:
        super().__init__()
        self.regions = 0
        self.reasons: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Look at one line of the backend's log."""
        service: Service | None = getattr(record, "service", None)
        if service is not None and service.kernel is None:
            self.reasons.append(str(service.why)[:200])
        self.regions += service is not None and service.kernel is not None


def rows_of(name: str, way: Way) -> Iterator[Row]:
    """One model on each kind of batch that it knows; what fails is a row too."""
    for padding in (p for model, p in cases() if model == name):
        started = time.perf_counter()
        try:
            yield compare(name, padding, way)
        except Exception as error:  # noqa: BLE001  the next case may run
            seconds = time.perf_counter() - started
            yield _failed(name, padding, seconds, f"{type(error).__name__}: {error}")


def _failed(name: str, padding: str, seconds: float, why: str) -> Row:
    return Row(name, padding, float("inf"), 0.0, 0, 0, 0, 0, round(seconds, 1), failure=why[:500])


def rows_of_process(name: str, way: Way, limit_s: float, workers: int) -> Iterator[Row]:
    """The same from a process of its own, which is ended after ``limit_s`` seconds."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.whole_models.padded_models",
        "--rows",
        name,
        *way.arguments,
    ]
    environment = {"MIRAGE_PY_WORKERS": str(workers), **os.environ}
    started = time.perf_counter()
    left = [padding for model, padding in cases() if model == name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        clock = threading.Timer(limit_s, process.kill)
        clock.start()
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                row = Row(**json.loads(line))
                left.remove(row.padding)
                yield row
        code = process.wait()
        clock.cancel()
    seconds = time.perf_counter() - started
    why = f"took over {limit_s:.0f} s" if seconds >= limit_s else f"its process ended with {code}"
    yield from (_failed(name, padding, seconds, why) for padding in left)


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    heads = ("model", "batch", "logits", "not finite: ours, eager", "error", "allowed",
             "regions: by kernels of ours, left", "s", "")  # fmt: skip
    lines = [
        f"| {' | '.join(heads)} |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for r in rows:
        verdict = r.failure or (f"{r.broken} kernels failed" if r.broken else "")
        verdict = verdict.splitlines()[0] if verdict else ""
        verdict = "equal" if r.passed else f"**differs** {verdict}".rstrip()
        lines.append(
            f"| {r.model} | {r.padding} | {r.logits} | {r.not_finite}, {r.eager_not_finite} | "
            f"{r.error:.1e} | {r.allowed:.0e} | {r.regions}: {r.kernels}, {r.left} | {r.seconds} "
            f"| {verdict} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the table, write the rows; 0 if all models agree with eager."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_RAW)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}; all by default")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--kernels", action="store_true", help="on a CPU, run Triton's kernels")
    parser.add_argument("--effort", choices=("none", "quick", "full"), default="none")
    parser.add_argument("--budget", type=float, default=8.0, help="seconds for each region")
    parser.add_argument("--jobs", type=int, help="models at a time; a quarter of the processors")
    parser.add_argument("--seconds", type=float, default=240.0, help="for each model")
    parser.add_argument("--rows", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args(arguments)
    unknown = [name for name in given.models if name not in MODELS]
    if unknown:
        parser.error(f"unknown model '{unknown[0]}': use {', '.join(MODELS)}")
    way = Way(given.device, given.kernels, given.effort, given.budget)
    names = [name for name in MODELS if name in given.models or not given.models]
    if given.rows:
        warnings.simplefilter("ignore")
        for row in (row for name in names for row in rows_of(name, way)):
            print(json.dumps(asdict(row)), flush=True)
        return 0
    processors = os.cpu_count() or 1
    jobs = max(1, min(given.jobs or processors // 4, len(names)))
    rows: list[Row] = []
    lock = threading.Lock()

    def take(name: str) -> None:
        for row in rows_of_process(name, way, given.seconds, max(1, processors // jobs)):
            with lock:
                rows.append(row)
                rows.sort(key=lambda r: cases().index((r.model, r.padding)))
                print(row, file=sys.stderr, flush=True)
                if given.output is not None:
                    _write(given.output, rows, way)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(take, names))
    print(table(rows))
    return 0 if rows and all(row.passed for row in rows) else 1


_RAW = argparse.RawDescriptionHelpFormatter


def _write(path: Path, rows: Sequence[Row], way: Way) -> None:
    document = {
        "commit": commit(),
        "torch": torch.__version__,
        "device": way.device,
        "command": " ".join(["python -m benchmarks.whole_models.padded_models", *way.arguments]),
        "rows": list(map(asdict, rows)),
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
