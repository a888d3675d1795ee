"""The sums of a depthwise convolution as Triton text: each channel adds up its own window.

No tensor core multiplies channels that have nothing in common: each element of the image is a
multiply-add for each position of the window, out of the L1 for all but the first.
"""

from __future__ import annotations

from mirage_py.codegen.text.writer import CodeWriter
from mirage_py.ugraph.ir.convolution import FusedConvolution

# Positions of the rows of a window that are unrolled; of more each row is an iteration.
_UNROLLED = 32


def emit_channel_sums(w: CodeWriter, spec: FusedConvolution) -> None:
    """``total`` of a tile of places and channels. ``top``, ``left``, ``front`` are where windows
    begin, ``start`` is where an image does, and ``columns`` are the channels.
    """
    high, wide = spec.kernel
    frames = spec.kernel_frames if spec.has_frames else 1
    w.line("total = tl.zeros([rows.shape[0], columns.shape[0]], tl.float32)")
    if spec.is_plain_product:
        _emit_tap(w, spec, "start", "row_is_in", "0")
        return
    if not spec.has_frames:
        _emit_lines(w, spec, "0", "line", "row_is_in", is_unrolled=high * wide <= _UNROLLED)
        return
    w.line(f"for ahead in tl.range({frames}):")
    with w.indented():
        w.line(f"frame = front + ahead * {spec.dilation_frames}")
        w.line(f"frame_is_in = row_is_in & (frame >= 0) & (frame < {spec.frames})")
        first, line = f"ahead * {high}", f"(frame * {spec.height} + line)"
        _emit_lines(w, spec, first, line, "frame_is_in", is_unrolled=high * wide <= _UNROLLED)


def _emit_lines(
    w: CodeWriter, spec: FusedConvolution, first: str, line: str, is_in: str, *, is_unrolled: bool
) -> None:
    """The rows of a window, from the one numbered ``first``; ``line`` is where each is."""
    high, wide = spec.kernel
    w.line(f"for down in tl.{'static_range' if is_unrolled else 'range'}({high}):")
    with w.indented():
        w.line(f"line = top + down * {spec.dilation[0]}")
        w.line(f"line_is_in = {is_in} & (line >= 0) & (line < {spec.height})")
        w.line(f"for along in tl.static_range({wide}):")
        with w.indented():
            w.line(f"column = left + along * {spec.dilation[1]}")
            w.line(f"is_in = line_is_in & (column >= 0) & (column < {spec.width})")
            place = f"start + ({line} * {spec.width} + column) * {spec.apart}"
            _emit_tap(w, spec, place, "is_in", f"({first} + down) * {wide} + along")


def _emit_tap(w: CodeWriter, spec: FusedConvolution, place: str, is_in: str, tap: str) -> None:
    w.line(f"at = ({place})[:, None] + columns[None, :]")
    mask = f"{is_in}[:, None] & column_is_in[None, :]"
    w.line(f"a = tl.load(x + at, mask={mask}, other=0.0).to(tl.float32)")
    if spec.relu_before:
        w.line("a = tl.where(a < 0, 0.0, a)")
    at = f"({tap}) * {spec.results} + columns"
    w.line(f"b = tl.load(w + {at}, mask=column_is_in, other=0.0).to(tl.float32)")
    w.line("total += a * b[None, :]")
