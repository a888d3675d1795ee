"""The reference page of launch options, from the class that holds them.

    python -m benchmarks.pages.launch_options

writes docs/reference/launch_options.md; a test holds the page to the class.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mirage_py.ugraph.ir.launch_choices import Option
from mirage_py.ugraph.ir.launch_config import launch_options

PAGE = Path(__file__).parents[2] / "docs/reference/launch_options.md"
BACKENDS = {"Triton and CUDA": "Both back ends", "Triton": "Triton", "CUDA": "CUDA"}
_HEAD = """\
# Launch options

<!-- Written by python -m benchmarks.pages.launch_options; do not edit. -->

A plan has one `LaunchConfig` for each kernel (`mirage_py/ugraph/ir/launch_config.py`):
`num_warps`, `num_stages` (one entry for each loop, the depth of its software pipeline) and the
options below. The tuner chooses them; `report.json` and `plan.json` of an artifact have those of
the winner. They change which code is emitted and how fast it is, never what is computed;
`precision` alone changes how exactly.

Stored plans have a pair of texts, the key and the value, for each option that is not at its
default; in Python each is a field. An unknown key and a value that is not listed are errors,
wherever a plan comes from. An option without effect (on another back end, below the compute
capability, or where a kernel leaves no choice) is ignored, unless it says otherwise. CUDA kernels
have what is from sm_90 on with `arch` `sm_90a` alone. `python -m benchmarks.ablation` measures
what those that are for comparison are worth.
"""
_TABLE = ("key", "field", "values", "default", "from", "what it does", "what it costs")


def page() -> str:
    """The page as text."""
    parts = [_HEAD]
    for backend, title in BACKENDS.items():
        found = {n: o for n, o in launch_options().items() if o.backend == backend}
        rows = [_row(name, option) for name, option in found.items()]
        parts.append(
            "\n".join([f"## {title}", "", _line(_TABLE), _line("---" for _ in _TABLE), *rows, ""])
        )
    return "\n".join(parts)


def _row(name: str, option: Option) -> str:
    key = f"{option.key}TENSOR" if option.key.endswith(":") else option.key
    # A value with a space in it describes values.
    texts = (v if " " in v else f"`{v}`" for v in option.text.values)
    values = "`evict_first`" if option.key.endswith(":") else ", ".join(texts)
    since = f"sm_{option.capability}"
    return _line((f"`{key}`", f"`{name}`", values, option.default, since, option.does, option.cost))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
