"""Every example program, and those of ``specs``, at sizes that a direct interpreter runs in
milliseconds.

``SMALL`` replaces the line of sizes of an example: all sizes of one program differ, and most are
such that a tile of 2, 4 or 5 leaves a tail. ``SPLIT`` has a reduced dimension that is long enough
for the search to share it out.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from mirage_py.frontend.spec import parse
from mirage_py.pipeline.partition.partition import partition
from mirage_py.pipeline.pipeline import normalise
from mirage_py.ugraph.ir.program import Program

SPECS = Path(__file__).with_name("specs")
EXAMPLES = Path(__file__).parents[2] / "examples"

SMALL = {
    "attention": "H = 2, T = 9, S = 14, D = 5",
    "gated_mlp": "B = 5, D = 14, N = 11",
    "layernorm_linear": "B = 5, D = 14, N = 11",
    "lora": "B = 5, D = 14, N = 11, R = 3",
    "ntrans": "B = 5, D = 14",
    "qknorm_attention": "H = 2, T = 9, S = 14, D = 5",
    "rmsnorm_matmul": "B = 5, D = 14, N = 11",
    "softmax": "B = 5, N = 14",
    "causal_attention": "B = 1, H = 2, T = 14, D = 5",
    "cross_entropy": "T = 5, D = 7, V = 14",
    "cross_entropy_shifted": "T = 5, D = 7, V = 14",
    "decode_attention": "B = 2, G = 3, R = 4, S = 14, D = 5",
    "layernorm_linear_gelu": "B = 5, D = 14, N = 11",
    "lora_gated_mlp": "B = 5, D = 14, F = 11, R = 3",
    "qknorm_attention_out": "B = 1, H = 2, T = 9, S = 14, D = 5, M = 7",
    "residual_norm_mlp": "B = 5, D = 14, F = 11",
    "residual_norm_mlp_down": "B = 5, D = 14, F = 11",
    "sliding_window_attention": "B = 1, H = 2, T = 14, D = 5, WINDOW = 6",
    "softcap_attention": "B = 1, H = 2, T = 14, D = 5, CAP = 3",
    "transformer_block": "T = 9, D = 14, H = 2, E = 5, F = 11",
}
SPLIT = {
    "attention": "H = 2, T = 9, S = 66, D = 5",
    "gated_mlp": "B = 5, D = 66, N = 11",
    "layernorm_linear": "B = 5, D = 66, N = 11",
    "lora": "B = 5, D = 66, N = 11, R = 3",
    "ntrans": "B = 5, D = 66",
    "qknorm_attention": "H = 2, T = 9, S = 66, D = 5",
    "rmsnorm_matmul": "B = 5, D = 66, N = 11",
    "softmax": "B = 5, N = 66",
    "causal_attention": "B = 1, H = 2, T = 66, D = 5",
    "cross_entropy": "T = 5, D = 7, V = 66",
    "cross_entropy_shifted": "T = 5, D = 7, V = 66",
    "decode_attention": "B = 2, G = 3, R = 4, S = 66, D = 5",
    "layernorm_linear_gelu": "B = 5, D = 66, N = 11",
    "lora_gated_mlp": "B = 5, D = 66, F = 11, R = 3",
    "residual_norm_mlp": "B = 5, D = 66, F = 11",
    "sliding_window_attention": "B = 1, H = 2, T = 66, D = 5, WINDOW = 30",
    "softcap_attention": "B = 1, H = 2, T = 66, D = 5, CAP = 3",
}
# Too large to be searched whole: each part is a program.
PARTS = ("transformer_block",)

_SIZES = re.compile(r"^[A-Z]+ = \d.*$", re.MULTILINE)


@cache
def program(name: str, sizes: str) -> Program:
    """An example with another line of sizes, as it is written."""
    (path,) = (p for p in EXAMPLES.rglob(f"{name}.math") if p.parent.name != "odd")
    text, count = _SIZES.subn(sizes, path.read_text(encoding="utf-8"), count=1)
    assert count == 1, f"{path} has no line of sizes"
    return parse(text)


@cache
def given() -> dict[str, Program]:
    """All of them as they are written, by a name that says which sizes, and which part where there
    are several; a part is in the form that is searched.
    """
    found: dict[str, Program] = {}
    for name, sizes in SMALL.items():
        small = program(name, sizes)
        parts = partition(normalise(small, seed=0)).parts if name in PARTS else (small,)
        for number, part in enumerate(parts):
            found[f"{name}{number}" if len(parts) > 1 else name] = part
    found |= {f"{name}_long": program(name, sizes) for name, sizes in SPLIT.items()}
    return found | {p.stem: parse(p.read_text(encoding="utf-8")) for p in sorted(SPECS.iterdir())}


@cache
def programs() -> dict[str, Program]:
    """The same in the form that is searched."""
    return {name: normalise(program, seed=0) for name, program in given().items()}
