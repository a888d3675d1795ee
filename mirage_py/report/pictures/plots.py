"""Plots: a roofline with its points, bars of times, a funnel, a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from markupsafe import Markup

from mirage_py.report.pictures.canvas import CHAR, Canvas

_WIDTH = 760.0
_ROW = 26.0


@dataclass(frozen=True, slots=True)
class Point:
    """``x`` in FLOP a byte and ``y`` in TFLOP/s; ``kind`` is best, peer, timed, ranked or floor."""

    x: float
    y: float
    kind: str
    label: str = ""
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """A length with a label; ``kind`` is best, peer, lost or other."""

    label: str
    value: float
    text: str
    kind: str = "other"


@dataclass(frozen=True, slots=True)
class Span:
    """A stage from ``begin`` to ``end``, in seconds."""

    label: str
    begin: float
    end: float


def roofline_svg(points: Sequence[Point], peak: float, bandwidth: float) -> Markup:
    """``peak`` in TFLOP/s, ``bandwidth`` in TB/s. Both axes are logarithmic."""
    ridge = peak / bandwidth
    xs = [p.x for p in points] + [ridge]
    ys = [p.y for p in points] + [peak]
    x0, x1 = floor(log10(min(xs) / 1.6)), ceil(log10(max(xs) * 1.6))
    y0, y1 = floor(log10(min(ys) / 1.6)), ceil(log10(max(ys) * 1.2))
    left, top, width, height = 64.0, 16.0, _WIDTH - 84.0, 330.0

    def at(x: float, y: float) -> tuple[float, float]:
        across = (log10(x) - x0) / (x1 - x0)
        up = (log10(y) - y0) / (y1 - y0)
        return left + across * width, top + (1 - up) * height

    canvas = Canvas(_WIDTH, height + 64, "Roofline: TFLOP/s against FLOP a byte", "plot")
    for power in range(x0, x1 + 1):
        x, _ = at(10.0**power, 10.0**y0)
        canvas.line(x, top, x, top + height, class_="mp-rule")
        canvas.text(x, top + height + 18, _power(power), class_="mp-small", text_anchor="middle")
    for power in range(y0, y1 + 1):
        _, y = at(10.0**x0, 10.0**power)
        canvas.line(left, y, left + width, y, class_="mp-rule")
        canvas.text(left - 8, y + 4, _power(power), class_="mp-small", text_anchor="end")
    canvas.text(left + width / 2, top + height + 40, "FLOP for each byte through memory",
                class_="mp-small", text_anchor="middle")  # fmt: skip
    canvas.text(left, 11, "TFLOP/s", class_="mp-small")
    low = max(10.0**x0, 10.0**y0 / bandwidth)
    corner, end, begin = at(ridge, peak), at(10.0**x1, peak), at(low, low * bandwidth)
    path = "".join(
        f"{'L' if n else 'M'}{x:.1f} {y:.1f}" for n, (x, y) in enumerate((begin, corner, end))
    )
    canvas.add("path", d=path, class_="mp-roof")
    canvas.text(end[0] - 4, end[1] - 7, f"{peak:.0f} TFLOP/s", class_="mp-small", text_anchor="end")
    middle = at((low * ridge) ** 0.5, (low * ridge) ** 0.5 * bandwidth)
    canvas.text(
        middle[0] - 8, middle[1] - 8, f"{bandwidth:.2f} TB/s", class_="mp-small", text_anchor="end"
    )
    order = {"ranked": 0, "timed": 1, "peer": 2, "floor": 3, "best": 4}
    taken: list[tuple[float, float]] = []
    for point in sorted(points, key=lambda p: order.get(p.kind, 0)):
        x, y = at(point.x, point.y)
        with canvas.group(tip=point.tip or point.label):
            canvas.add("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=6 if point.kind == "best" else 4,
                       class_=f"mp-point mp-p-{point.kind}")  # fmt: skip
        if point.label:
            row = y + 4
            while any(abs(row - other) < 13 and abs(x - at_x) < 150 for at_x, other in taken):
                row += 13
            taken.append((x, row))
            right = x < left + width - len(point.label) * CHAR - 14
            canvas.text(x + (10 if right else -10), row, point.label, class_="mp-small",
                        text_anchor="start" if right else "end")  # fmt: skip
    return canvas.markup()


def bars_svg(bars: Sequence[Bar], title: str) -> Markup:
    """Horizontal bars from zero, each with its value."""
    label = min(300.0, max((len(b.label) for b in bars), default=1) * CHAR + 12)
    value = max((len(b.text) for b in bars), default=1) * CHAR + 12
    longest = max([b.value for b in bars] or [1.0]) or 1.0
    canvas = Canvas(_WIDTH, len(bars) * _ROW + 8, title, "plot")
    for number, bar in enumerate(bars):
        y = 4 + number * _ROW
        length = bar.value / longest * (_WIDTH - label - value)
        with canvas.group(tip=f"{bar.label}: {bar.text}"):
            shown = bar.label if len(bar.label) * CHAR <= label else bar.label[:38] + "…"
            canvas.text(label - 8, y + 16, shown, text_anchor="end")
            canvas.rect(
                label, y + 3, max(length, 1), _ROW - 8, class_=f"mp-bar mp-b-{bar.kind}", rx=2
            )
            canvas.text(label + length + 7, y + 16, bar.text, class_="mp-small")
    return canvas.markup()


def timeline_svg(spans: Sequence[Span]) -> Markup:
    """Stages one below the other, each from its begin to its end."""
    label = min(380.0, max((len(s.label) for s in spans), default=1) * CHAR + 12)
    end = max([s.end for s in spans] or [1.0]) or 1.0
    room = _WIDTH - label - 70
    canvas = Canvas(
        _WIDTH, len(spans) * 22 + 30, "Timeline of search, check, compile and tune", "plot"
    )
    for quarter in range(5):
        x = label + room * quarter / 4
        canvas.line(x, 0, x, len(spans) * 22 + 4, class_="mp-rule")
        canvas.text(x, len(spans) * 22 + 20, f"{end * quarter / 4:.3g} s", class_="mp-small",
                    text_anchor="middle")  # fmt: skip
    for number, span in enumerate(spans):
        y = 2 + number * 22
        x, length = label + span.begin / end * room, (span.end - span.begin) / end * room
        with canvas.group(tip=f"{span.label}: {span.end - span.begin:.2f} s"):
            shown = span.label if len(span.label) * CHAR <= label else span.label[:50] + "…"
            canvas.text(label - 8, y + 14, shown, class_="mp-small", text_anchor="end")
            canvas.rect(x, y + 3, max(length, 1.5), 14, class_="mp-bar mp-b-best", rx=2)
            canvas.text(x + length + 6, y + 14, f"{span.end - span.begin:.2f} s", class_="mp-small")
    return canvas.markup()


def _power(power: int) -> str:
    return (
        f"{10**power}"
        if 0 <= power <= 4
        else (f"{10.0**power:g}" if -4 < power < 0 else f"1e{power}")
    )
