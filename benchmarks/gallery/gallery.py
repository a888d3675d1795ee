"""The gallery: reports made of committed artifacts and result files, so that it needs no GPU."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mirage_py.report.packed import packed
from mirage_py.report.page.page import render
from mirage_py.report.write import html_of
from mirage_py.runtime.store.artifact import load_artifact

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
SEARCHED = Path("benchmarks/results/gallery")


@dataclass(frozen=True, slots=True)
class Entry:
    """A report: what it is of, the file that it is made of, and which rows of it."""

    name: str
    about: str
    source: Path
    only: str = ""


EXAMPLES = {
    "attention": "Attention of 256 grouped queries to 4096 keys",
    "gated_mlp": "The gated unit of a transformer's MLP",
    "layernorm_linear": "LayerNorm followed by a linear layer",
    "lora": "A projection with a low-rank correction",
    "ntrans": "The normalised residual of nGPT",
    "qknorm_attention": "Attention with normalised queries and keys, in CUDA",
    "rmsnorm_matmul": "RMSNorm followed by a projection",
    "softmax": "Softmax over rows",
}
# What is searched otherwise than by default.
_OPTIONS = {"qknorm_attention": ("--backend", "cuda")}

ENTRIES = (
    *(Entry(name, about, ROOT / SEARCHED / f"{name}.json") for name, about in EXAMPLES.items()),
    Entry(
        "llama8b",
        "A whole model: eight layers of Llama 8B, one token, through torch.compile",
        RESULTS / "h200-whole-models.json",
        "llama8b-b1",
    ),
    Entry("suite", "The benchmark suite, each row beside its peers", RESULTS / "h200-suite.json"),
)


def build(out: Path) -> Iterator[Path]:
    """Write every report and an index of them."""
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for entry in ENTRIES:
        text = html_of(entry.source, only=entry.only)
        path = out / f"{entry.name}.html"
        path.write_text(text, encoding="utf-8")
        headline = text.partition("<title>")[2].partition("</title>")[0]
        rows.append((entry, headline, len(text.encode())))
        yield path
    index = out / "index.html"
    index.write_text(render("gallery.html.j2", title="Reports", sections=(), rows=rows), "utf-8")
    yield index


def search(target: str) -> None:
    """Search each example anew and pack what was found."""
    with tempfile.TemporaryDirectory() as folder:
        for name in EXAMPLES:
            artifact = Path(folder) / name
            spec = ("superoptimize", f"examples/{name}.math", "--target", target)
            options = ("--no-cache", *_OPTIONS.get(name, ()), "-o", str(artifact))
            subprocess.run(
                [sys.executable, "-m", "mirage_py", *spec, *options], cwd=ROOT, check=True
            )
            pack(name, artifact)


def pack(name: str, artifact: Path) -> None:
    """Keep an artifact's program, plan and report, without the folder that it came from."""
    found = load_artifact(artifact)
    text = packed(found).replace(str(artifact), f"{name}.mirage")
    (ROOT / SEARCHED / f"{name}.json").write_text(text, encoding="utf-8")
