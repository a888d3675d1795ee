"""Pictures of a result file: bars of each workload and its peers, and a roofline.

matplotlib is an extra: nothing else of the suite needs it.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report.summary import best_peer, key_of, peers_of
from mirage_py.errors import InputError
from mirage_py.targets import ALL_TARGETS, H200, Target

Row = Mapping[str, Any]

_OURS = "#1f6feb"
# One for each peer there is.
_COLORS = (
    *("#8c959f", "#d4a72c", "#bc4c00", "#1a7f37", "#8250df", "#bf3989", "#0a7ea4"),
    *("#3b3f45", "#7ee787", "#ffa198", "#a5d6ff", "#e2c5ff", "#953800"),
)
_MOST_COLUMNS = 4


def are_possible() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def write_plots(document: Mapping[str, Any], folder: Path, name: str) -> list[Path]:
    """``NAME-bars.png`` and ``NAME-roofline.png``; none where nothing was measured.

    Raises InputError without matplotlib.
    """
    if not are_possible():
        raise InputError(
            "there is nothing to draw with",
            why="matplotlib is not installed",
            repair="pip install -e '.[bench]'",
        )
    rows = [row for row in document["rows"] if row["ours_us"]]
    if not rows:
        return []
    import matplotlib as mpl

    paths = folder / f"{name}-bars.png", folder / f"{name}-roofline.png"
    # Its own canvas whatever the user's settings: there may be no display.
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        _save(_bars(rows, document), paths[0])
        roofed = [row for row in rows if row.get("moved_bytes")]
        if roofed:
            _save(_roofline(roofed, document), paths[1])
    return [p for p in paths if p.exists()]


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=130)


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _bars(rows: Sequence[Row], document: Mapping[str, Any]) -> Any:
    """A panel for each workload: microseconds of ours and every right peer, batch by batch."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["workload"], []).append(row)
    columns = min(_MOST_COLUMNS, len(groups))
    lines = math.ceil(len(groups) / columns)
    figure = _figure(4.2 * columns, 2.5 * lines + 0.6)
    figure.suptitle(f"{_machine(document)}: microseconds with a cold L2, shorter is better")
    names = ["ours", *dict.fromkeys(n for row in rows for n in peers_of(row))]
    colors = dict(zip(names, (_OURS, *_COLORS * len(names)), strict=False))
    panels = figure.subplots(lines, columns, squeeze=False).flatten()
    for panel, (workload, group) in zip(panels, groups.items(), strict=False):
        _panel(panel, workload, sorted(group, key=lambda row: row["batch"]), colors)
    for panel in panels[len(groups) :]:
        panel.set_visible(False)
    handles = [_patch(color, name) for name, color in colors.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(8, len(handles)))
    return figure


def _panel(panel: Any, workload: str, group: Sequence[Row], colors: Mapping[str, str]) -> None:
    place = 0.0
    ticks = []
    for row in group:
        times = {"ours": row["ours_us"], **peers_of(row)}
        for offset, (name, us) in enumerate(times.items()):
            panel.bar(place + offset, us, color=colors[name], width=0.9)
        if row.get("floor_us"):
            left, right = place - 0.5, place + len(times) - 0.5
            panel.hlines(row["floor_us"], left, right, colors="#000000", linestyles="dotted")
        ticks.append(place + (len(times) - 1) / 2)
        place += len(times) + 1
    panel.set_title(workload)
    panel.set_xticks(ticks, [f"batch {row['batch']}" for row in group])
    panel.set_ylabel("us; dotted: roofline")


def _patch(color: str, name: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=color, label=name)


def _roofline(rows: Sequence[Row], document: Mapping[str, Any]) -> Any:
    """Reached TFLOP/s against flops for each byte, with the target's roof."""
    target = _target(document)
    figure = _figure(9.0, 5.5)
    panel = figure.subplots()
    drawn = [row for row in rows if row["flops"]]
    at = [row["flops"] / row["moved_bytes"] for row in drawn] or [1.0]
    low, high = min(at) / 2, max(max(at) * 2, target.tensor_flops_per_us / target.dram_bytes_per_us)
    steps = [low * (high / low) ** (n / 100) for n in range(101)]
    rates = [min(x * target.dram_bytes_per_us, target.tensor_flops_per_us) / 1e6 for x in steps]
    panel.loglog(steps, rates, color="#000000", label=f"roof of {target.name}")
    ours = [row["flops"] / row["ours_us"] / 1e6 for row in drawn]
    panel.scatter(at, ours, color=_OURS, s=18, label="ours", zorder=3)
    rivals = [(x, row) for x, row in zip(at, drawn, strict=False) if best_peer(row)]
    best = [row["flops"] / min(peers_of(row).values()) / 1e6 for _, row in rivals]
    panel.scatter(
        [x for x, _ in rivals], best, color=_COLORS[2], marker="x", s=18, label="best peer"
    )
    for x, y, row in zip(at, ours, drawn, strict=False):
        panel.annotate(key_of(row), (x, y), fontsize=5, xytext=(3, -5), textcoords="offset points")
    panel.set_xlabel("flops of the contractions for each byte of inputs and outputs")
    panel.set_ylabel("TFLOP/s")
    panel.set_title(_machine(document))
    panel.legend(loc="upper left")
    return figure


def _machine(document: Mapping[str, Any]) -> str:
    return f"{document['machine'].get('gpu')}, {document['date']}, {document['commit']}"


def _target(document: Mapping[str, Any]) -> Target:
    """The known target that the GPU's name names; that of the suite's searches else."""
    gpu = str(document["machine"].get("gpu")).lower()
    return next((t for t in ALL_TARGETS if t.name in gpu.split()), H200)
