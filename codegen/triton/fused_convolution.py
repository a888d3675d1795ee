"""A convolution with what stands around it as one Triton kernel: an implicit matrix product.

The image, the result and the residual have channels last; the weight is packed as [packs, taps *
channels, results] (``packed_shape``). A pack is so many groups as one product, block-diagonal in
them: groups of four channels fill no tile of a tensor core. Rows are places of the result, columns
its channels; a step of the loop multiplies so many (tap, channel) pairs. ``splits`` blocks may
share a tile: each writes its sum, and the last one to arrive adds them in their order, so results
do not depend on who was last. What sums no channels may do without a product (cuda/windows).
"""

from __future__ import annotations

from math import prod

from mirage_py.codegen.text.writer import CodeWriter
from mirage_py.codegen.triton.separable_convolution import emit_separable_sums, fault_of
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.ir.convolution import ConvolutionTiles, FusedConvolution

NAME = "fused_convolution"
# Addresses are 32-bit numbers.
_MOST = 2**31 - 1
_TRITON_TYPES = {"bf16": "tl.bfloat16", "f16": "tl.float16"}


def emit_fused_convolution(spec: FusedConvolution, tiles: ConvolutionTiles) -> str:
    """The kernel as a Python module. Its parameters are x, w, then those of bias, residual that
    there are, y, and with splits partial (float32) and arrived (int32, zeros before and after).

    Raises ScheduleError where tiles or sizes do not fit.
    """
    _check(spec, tiles)
    writer = CodeWriter()
    writer.line("import triton")
    writer.line("import triton.language as tl")
    if tiles.is_early:
        writer.line("from triton.language.extra import cuda")
    writer.line()
    writer.line()
    writer.line("@triton.jit")
    writer.line(f"def {NAME}({', '.join(parameters(spec, tiles))}):")
    with writer.indented():
        _emit_places(writer, spec, tiles)
        if tiles.is_early:
            writer.line("cuda.gdc_wait()")
            writer.line("cuda.gdc_launch_dependents()")
        if spec.is_separable:
            emit_separable_sums(writer, spec, tiles, _TRITON_TYPES[spec.dtype])
        else:
            _emit_loop(writer, spec, tiles)
        if tiles.splits > 1:
            _emit_meeting(writer, tiles)
            with writer.indented():
                _emit_result(writer, spec, tiles)
        else:
            _emit_result(writer, spec, tiles)
    return writer.text()


def pointer_types(spec: FusedConvolution, tiles: ConvolutionTiles) -> tuple[str, ...]:
    """Triton's names of the types of the parameters."""
    given = {"partial": "*fp32", "arrived": "*i32"}
    plain = "*bf16" if spec.dtype == "bf16" else "*fp16"
    return tuple(given.get(name, plain) for name in parameters(spec, tiles))


def parameters(spec: FusedConvolution, tiles: ConvolutionTiles) -> tuple[str, ...]:
    """Names of the pointers, in order."""
    names = ["x", "w"] + ["bias"] * spec.has_bias + ["residual"] * spec.has_residual + ["y"]
    return (*names, *(("partial", "arrived") if tiles.splits > 1 else ()))


def _check(spec: FusedConvolution, tiles: ConvolutionTiles) -> None:
    sizes = (tiles.rows, tiles.columns, tiles.depth)
    largest = max(spec.batch * prod(spec.space) * spec.apart, spec.places * spec.results)
    largest = max(largest, spec.places * spec.residual_apart * spec.has_residual)
    # What a window reads outside of the image is computed too, and then masked.
    outside = spec.padding_frames * spec.height + max(spec.padding) + 1
    around = outside * spec.width * spec.apart + tiles.rows * spec.results
    why = ""
    if spec.dtype not in _TRITON_TYPES:
        why = f"elements of {spec.dtype} are not taken"
    elif any(n < 16 or n & (n - 1) for n in sizes):
        why = f"tiles of {sizes} are no powers of two from 16 on"
    elif spec.groups % tiles.pack or spec.inputs % spec.groups or _splits_results(spec, tiles):
        why = f"{spec.groups} groups do not make packs of {tiles.pack}"
    elif spec.pool or spec.is_planar:
        why = "it is a pool, or its channels are not last"
    elif spec.is_separable and fault_of(spec, tiles):
        why = fault_of(spec, tiles)
    elif largest + around > _MOST:
        why = "addresses do not fit 32 bits"
    elif min(*spec.out_space, tiles.splits) < 1:
        why = "there is no window"
    if why:
        raise ScheduleError(f"no kernel for this convolution: {why}")


def _splits_results(spec: FusedConvolution, tiles: ConvolutionTiles) -> bool:
    """Whether results fall into no equal groups, or packs, of which separable ones have results."""
    parts = tiles.packs(spec) if spec.is_separable else spec.groups
    return spec.results % parts != 0


def _emit_places(w: CodeWriter, spec: FusedConvolution, tiles: ConvolutionTiles) -> None:
    """Which tile a block has, and where its rows are."""
    _, across = tiles.tiles(spec)
    packs = tiles.packs(spec)
    w.line("number = tl.program_id(0)")
    w.line(f"part = number % {tiles.splits}")
    w.line(f"tile = number // {tiles.splits}")
    w.line(f"columns = tile % {across} * {tiles.columns} + tl.arange(0, {tiles.columns})")
    w.line(f"pack = tile // {across} % {packs}")
    w.line(f"rows = tile // {across * packs} * {tiles.rows} + tl.arange(0, {tiles.rows})")
    w.line(f"row_is_in = rows < {spec.places}")
    inside, outside = tiles.channels(spec)
    w.line(f"column_is_in = columns < {outside}")
    if spec.is_plain_product and not spec.is_separable:
        w.line(f"start = rows * {spec.apart} + pack * {inside} + {spec.offset}")
        return
    high, wide = spec.out_height, spec.out_width
    w.line(f"top = rows // {wide} % {high} * {spec.stride[0]} - {spec.padding[0]}")
    w.line(f"left = rows % {wide} * {spec.stride[1]} - {spec.padding[1]}")
    places = high * wide
    if spec.has_frames:
        frames = f"rows // {places} % {spec.out_frames}"
        w.line(f"front = {frames} * {spec.stride_frames} - {spec.padding_frames}")
        places *= spec.out_frames
    image = prod(spec.space) * spec.apart
    w.line(f"start = rows // {places} * {image} + pack * {inside} + {spec.offset}")


def _emit_loop(w: CodeWriter, spec: FusedConvolution, tiles: ConvolutionTiles) -> None:
    inside, outside = tiles.channels(spec)
    pairs = spec.taps * inside
    steps = tiles.steps(spec)
    each = -(-steps // tiles.splits)
    w.line(f"total = tl.zeros([{tiles.rows}, {tiles.columns}], tl.float32)")
    first, last = "0", str(steps)
    if tiles.splits > 1:
        first, last = f"part * {each}", f"min(part * {each} + {each}, {steps})"
    w.line(f"for step in tl.range({first}, {last}, num_stages={tiles.stages}):")
    with w.indented():
        w.line(f"pairs = step * {tiles.depth} + tl.arange(0, {tiles.depth})")
        _emit_image(w, spec, tiles)
        at = f"pack * {pairs * outside} + pairs[:, None] * {outside} + columns[None, :]"
        mask = "column_is_in[None, :]"
        if pairs % tiles.depth:
            mask = f"(pairs < {pairs})[:, None] & {mask}"
        w.line(f"b = tl.load(w + {at}, mask={mask}, other=0.0)")
        w.line("total = tl.dot(a, b, total)")


def _emit_image(w: CodeWriter, spec: FusedConvolution, tiles: ConvolutionTiles) -> None:
    """The elements of the image that a step multiplies; zeros beyond its edges."""
    inside, _ = tiles.channels(spec)
    pairs = spec.taps * inside
    if spec.is_plain_product:
        mask = "row_is_in[:, None]"
        if pairs % tiles.depth:
            mask += f" & (pairs < {pairs})[None, :]"
        w.line(f"a = tl.load(x + start[:, None] + pairs[None, :], mask={mask}, other=0.0)")
    else:
        # Where a step stays within a tap, the tap is one number.
        is_one_tap = inside % tiles.depth == 0
        if is_one_tap:
            w.line(f"tap = step // {inside // tiles.depth}")
            w.line(f"channel = step % {inside // tiles.depth} * {tiles.depth} + "
                   f"tl.arange(0, {tiles.depth})")  # fmt: skip
        else:
            w.line(f"tap = pairs // {inside}")
            w.line(f"channel = pairs % {inside}")
        _emit_window(w, spec, is_one_tap=is_one_tap)
        line = f"frame * {spec.height} + row" if spec.has_frames else "row"
        line = f"({line})" if spec.has_frames else line
        place = f"({line} * {spec.width} + column) * {spec.apart}"
        if is_one_tap:
            w.line("is_in = is_in & row_is_in")
            at = f"(start + {place})[:, None] + channel[None, :]"
            mask = "is_in[:, None]"
        else:
            at = f"start[:, None] + {place} + channel[None, :]"
            mask = "is_in & row_is_in[:, None]"
            if pairs % tiles.depth:
                mask += f" & (pairs < {pairs})[None, :]"
        w.line(f"a = tl.load(x + {at}, mask={mask}, other=0.0)")
    if spec.relu_before:
        w.line("a = tl.where(a < 0, 0.0, a).to(a.dtype)")


def _emit_window(w: CodeWriter, spec: FusedConvolution, *, is_one_tap: bool) -> None:
    """The row and the column, and the frame, that each place reads at a tap."""
    high, wide = spec.kernel
    down = f"tap // {wide} % {high}" if spec.has_frames else f"tap // {wide}"
    axes = [
        ("row", "top", down, spec.dilation[0], spec.height),
        ("column", "left", f"tap % {wide}", spec.dilation[1], spec.width),
    ]
    if spec.has_frames:
        ahead = f"tap // {high * wide}"
        axes.insert(0, ("frame", "front", ahead, spec.dilation_frames, spec.frames))
    for name, first, step, apart, _ in axes:
        begin, more = first, step
        if not is_one_tap:
            begin, more = f"{first}[:, None]", f"({step})[None, :]"
        w.line(f"{name} = {begin} + {more} * {apart}")
    for number, (name, *_, size) in enumerate(axes):
        before = "is_in & " if number else ""
        w.line(f"is_in = {before}({name} >= 0) & ({name} < {size})")


def _emit_meeting(w: CodeWriter, tiles: ConvolutionTiles) -> None:
    """The last block of a tile adds what all have found."""
    size = tiles.rows * tiles.columns
    at = f"tl.arange(0, {tiles.rows})[:, None] * {tiles.columns} + "
    at += f"tl.arange(0, {tiles.columns})[None, :]"
    w.line(f"inner = {at}")
    w.line(f"slot = partial + (tile * {tiles.splits}).to(tl.int64) * {size}")
    w.line(f"tl.store(slot + part * {size} + inner, total)")
    # All threads have stored before one of them says so.
    w.line("tl.debug_barrier()")
    w.line('before = tl.atomic_add(arrived + tile, 1, sem="acq_rel")')
    w.line(f"if before == {tiles.splits - 1}:")
    with w.indented():
        w.line("tl.debug_barrier()")
        w.line("total = tl.zeros_like(total)")
        w.line(f"for other in tl.static_range({tiles.splits}):")
        with w.indented():
            # Written by other blocks: not out of this SM's L1.
            w.line(f'total += tl.load(slot + other * {size} + inner, cache_modifier=".cg")')
        w.line("tl.store(arrived + tile, 0)")


def _emit_result(w: CodeWriter, spec: FusedConvolution, tiles: ConvolutionTiles) -> None:
    _, outside = tiles.channels(spec)
    w.line("result = total")
    w.line(f"channels = pack * {outside} + columns")
    if spec.has_bias:
        w.line("shift = tl.load(bias + channels, mask=column_is_in, other=0.0)")
        w.line("result += shift.to(tl.float32)[None, :]")
    w.line(f"target = rows[:, None] * {spec.results} + channels[None, :]")
    w.line("is_in = row_is_in[:, None] & column_is_in[None, :]")
    if spec.has_residual:
        apart = f"rows[:, None] * {spec.residual_apart} + channels[None, :]"
        at = f"{apart} + {spec.residual_offset}"
        w.line(f"more = tl.load(residual + {at}, mask=is_in, other=0.0)")
        w.line("result += more.to(tl.float32)")
    if spec.relu_after:
        # As torch's: what is not a number stays so.
        w.line("result = tl.where(result < 0, 0.0, result)")
    if spec.gelu_after:
        w.line(f"result = 0.5 * result * (1.0 + tl.erf(result * {2**-0.5}))")
    w.line(f"tl.store(y + target, result.to({_TRITON_TYPES[spec.dtype]}), mask=is_in)")
