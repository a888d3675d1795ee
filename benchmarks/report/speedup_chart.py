"""The picture of the README: how many times faster than its peers each row of the suite is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.report.summary import BEST, best_peer, key_of, ratio

_WIDTH, _ROW, _TOP, _LEFT, _RIGHT = 880, 17, 68, 190, 240
# Where the axis ends; what is above it is cut there, and its number says how much it is.
_MOST = 4.0
_WON, _LOST, _USUAL = "#0b62c4", "#b3261e", "#9aa4ae"
_GREY = ' class="grey"'
_STYLE = (
    "text{font-family:'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:12px;"
    "fill:#1d2329}.title{font-size:15px;font-weight:600}.grey{fill:#59636e}"
)


def speedup_chart(document: Mapping[str, Any]) -> str:
    """Every measured row as the text of an ``.svg`` file: a bar for the fastest peer, a mark
    for max-autotune. The smallest gain comes first, so losses are on top.
    """
    rows = [row for row in document["rows"] if ratio(row, BEST) is not None]
    rows.sort(key=lambda row: (ratio(row, BEST) or 0.0, key_of(row)))
    height = _TOP + _ROW * len(rows) + 14
    title = f"{document['machine']['gpu']}: times faster than the fastest peer"
    body = [
        _text(16, 24, title, ' class="title"'),
        _text(16, 44, "bar: the fastest of eager, torch.compile, cuBLAS, SDPA, ...", _GREY),
        f'<rect x="430" y="35" width="3" height="11" fill="{_USUAL}"/>',
        _text(440, 44, "torch.compile, max-autotune", _GREY),
    ]
    for whole in range(int(_MOST) + 1):
        x = _x(whole)
        color = "#59636e" if whole == 1 else "#d8dee4"
        body.append(
            f'<line x1="{x:.1f}" y1="{_TOP - 6}" x2="{x:.1f}" y2="{height - 10}" stroke="{color}"/>'
        )
        body.append(_text(x, _TOP - 9, f"{whole}x", f'{_GREY} text-anchor="middle"'))
    for number, row in enumerate(rows):
        body += _bar(row, _TOP + _ROW * number)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}">\n<title>{escape(title)}</title>\n'
        f'<style>{_STYLE}</style>\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _x(times: float) -> float:
    return _LEFT + min(times, _MOST) / _MOST * (_WIDTH - _LEFT - _RIGHT)


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(text)}</text>'


def _bar(row: Mapping[str, Any], y: float) -> list[str]:
    times = ratio(row, BEST)
    assert times is not None
    color = _WON if times >= 1 else _LOST
    length = _x(times) - _LEFT
    parts = [
        _text(_LEFT - 8, y + 11, key_of(row), ' text-anchor="end"'),
        f'<rect x="{_LEFT}" y="{y + 2}" width="{length:.1f}" height="11" fill="{color}"/>',
        _text(_WIDTH - _RIGHT + 10, y + 11, f"{times:.2f}x", ""),
        _text(_WIDTH - _RIGHT + 55, y + 11, f"over {best_peer(row)}", _GREY),
    ]
    usual = ratio(row, "compile_max_autotune")
    if usual is not None:
        x = _x(usual) - 1.5
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="3" height="15" fill="{_USUAL}"/>')
    return parts
