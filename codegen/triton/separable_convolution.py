"""The products of a separable convolution as Triton text: the sums of single channels over their
windows, and the pointwise convolution of these, which never reach memory.

The packed weight is [taps, channels], padded to whole lines of memory, and behind it [channels,
results].
"""

from __future__ import annotations

from mirage_py.codegen.text.writer import CodeWriter
from mirage_py.ugraph.ir.convolution import ConvolutionTiles, FusedConvolution

# Elements of a line of memory.
_LINE = 64
# Positions of a window that are unrolled; of more each row is an iteration, as the compiler takes
# half a minute for 25, and 180 registers for what it reads ahead.
_UNROLLED = 9


def pointwise_offset(spec: FusedConvolution) -> int:
    """Where the pointwise weight begins."""
    return -(-spec.taps * spec.inputs // _LINE) * _LINE


def fault_of(spec: FusedConvolution, tiles: ConvolutionTiles) -> str:
    """Why there is no kernel; nothing where there is one."""
    if spec.has_frames or spec.groups != spec.inputs:
        return "separable ones slide along two axes, over single channels"
    if tiles.splits > 1 or tiles.pack != spec.groups:
        return "windows of single channels are neither split nor packed"
    if tiles.depth < spec.inputs:
        return "a step has not all channels"
    return ""


def emit_separable_sums(
    w: CodeWriter, spec: FusedConvolution, tiles: ConvolutionTiles, dtype: str
) -> None:
    """``total`` of a tile of places and results. ``top`` and ``left`` are where windows begin,
    ``start`` is where an image does, and ``columns`` are the results.
    """
    high, wide = spec.kernel
    w.line(f"channel = tl.arange(0, {tiles.depth})")
    w.line(f"channel_is_in = channel < {spec.inputs}")
    w.line(f"deep = tl.zeros([{tiles.rows}, {tiles.depth}], tl.float32)")
    unrolled = "static_range" if high * wide <= _UNROLLED else "range"
    w.line(f"for down in tl.{unrolled}({high}):")
    with w.indented():
        w.line(f"line = top + down * {spec.dilation[0]}")
        w.line(f"line_is_in = row_is_in & (line >= 0) & (line < {spec.height})")
        w.line(f"for along in tl.static_range({wide}):")
        with w.indented():
            w.line(f"place = left + along * {spec.dilation[1]}")
            w.line(f"is_in = line_is_in & (place >= 0) & (place < {spec.width})")
            w.line(f"at = start + (line * {spec.width} + place) * {spec.apart}")
            w.line("mask = is_in[:, None] & channel_is_in[None, :]")
            w.line("a = tl.load(x + at[:, None] + channel[None, :], mask=mask, other=0.0)")
            w.line("a = a.to(tl.float32)")
            if spec.relu_before:
                w.line("a = tl.where(a < 0, 0.0, a)")
            tap = f"(down * {wide} + along) * {spec.inputs} + channel"
            w.line(f"b = tl.load(w + {tap}, mask=channel_is_in, other=0.0).to(tl.float32)")
            w.line("deep += a * b[None, :]")
    at = f"{pointwise_offset(spec)} + channel[:, None] * {spec.results} + columns[None, :]"
    w.line("mask = channel_is_in[:, None] & column_is_in[None, :]")
    w.line(f"b = tl.load(w + {at}, mask=mask, other=0.0)")
    w.line(f"total = tl.dot(deep.to({dtype}), b)")
