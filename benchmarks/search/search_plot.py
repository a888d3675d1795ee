"""A line chart with a logarithmic axis as SVG text that needs no other program."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 860, 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 300, 44, 52
_LABEL_PX = 16  # the least distance between the names of two lines
_STYLE = (
    "text{font-family:'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:13px;"
    "fill:#1d2329}"
    ".title{font-size:15px;font-weight:600}.axis{fill:#59636e}"
)


@dataclass(frozen=True, slots=True)
class Line:
    """``points`` are (x, y); ``ends_open`` if the last y is only a lower bound."""

    name: str
    color: str
    points: Sequence[tuple[int, float]]
    ends_open: bool = False
    dashed: bool = False


def line_chart(title: str, x_name: str, y_name: str, lines: Sequence[Line]) -> str:
    """The chart as the text of an ``.svg`` file. All y must be positive."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    scale = _Scale(min(xs), max(xs), _decade(min(ys), math.floor), _decade(max(ys), math.ceil))
    body = [
        *_axes(scale, title, x_name, y_name),
        *(part for x in lines for part in _line(scale, x)),
    ]
    body += _names(scale, lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}">\n<title>{escape(title)}</title>\n'
        f'<style>{_STYLE}</style>\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _decade(value: float, rounded: Callable[[float], int]) -> int:
    return rounded(math.log10(value))


@dataclass(frozen=True, slots=True)
class _Scale:
    """From data to pixels. ``low`` and ``high`` are powers of ten."""

    first: int
    last: int
    low: int
    high: int

    def x(self, value: float) -> float:
        share = (value - self.first) / max(1, self.last - self.first)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        share = (math.log10(value) - self.low) / max(1, self.high - self.low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _text(x: float, y: float, text: str, *, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def _axes(scale: _Scale, title: str, x_name: str, y_name: str) -> list[str]:
    grey = ' class="axis"'
    right, bottom = scale.x(scale.last), scale.y(10**scale.low)
    parts = [_text(_LEFT, 24, title, more=' class="title"')]
    for power in range(scale.low, scale.high + 1):
        y = scale.y(10.0**power)
        parts.append(
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}" stroke="#d8dee4"/>'
        )
        parts.append(_text(_LEFT - 8, y + 4, f"{10.0**power:,g}", anchor="end", more=grey))
    parts += [
        _text(scale.x(x), bottom + 20, str(x), anchor="middle", more=grey)
        for x in range(scale.first, scale.last + 1)
    ]
    middle = (_LEFT + right) / 2
    parts.append(_text(middle, _HEIGHT - 10, x_name, anchor="middle", more=grey))
    up = (scale.y(10.0**scale.high) + bottom) / 2
    turned = f' class="axis" transform="rotate(-90 16 {up:.1f})"'
    parts.append(_text(16, up, y_name, anchor="middle", more=turned))
    return parts


def _line(scale: _Scale, line: Line) -> list[str]:
    at = [(scale.x(x), scale.y(y)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    dashes = ' stroke-dasharray="6 4"' if line.dashed else ""
    stroke = f'stroke="{line.color}" stroke-width="2"'
    parts = [f'<polyline points="{path}" fill="none" {stroke}{dashes}/>']
    closed = at[:-1] if line.ends_open else at
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{line.color}"/>' for x, y in closed]
    if line.ends_open:
        # An arrow upwards: at least so much.
        x, y = at[-1]
        arrow = f"{x - 6:.1f},{y + 5:.1f} {x + 6:.1f},{y + 5:.1f} {x:.1f},{y - 7:.1f}"
        parts.append(f'<polygon points="{arrow}" fill="#ffffff" {stroke}/>')
    return parts


def _names(scale: _Scale, lines: Sequence[Line]) -> list[str]:
    """The name of each line right of the chart, as near to its end as the others let it."""
    parts = []
    least = 0.0
    x = scale.x(scale.last) + 14
    for line in sorted(lines, key=lambda line: scale.y(line.points[-1][1])):
        y = max(scale.y(line.points[-1][1]), least + _LABEL_PX)
        least = y
        dashes = ' stroke-dasharray="4 3"' if line.dashed else ""
        parts.append(
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x + 18:.1f}" y2="{y:.1f}" '
            f'stroke="{line.color}" stroke-width="2"{dashes}/>'
        )
        parts.append(_text(x + 24, y + 4, line.name))
    return parts
