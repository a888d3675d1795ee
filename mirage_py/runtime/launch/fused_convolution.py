"""Fused convolutions on the GPU: their memory and their launch, and what they compute, by torch.

Where the library's kernel is faster, the operators around it are in it, or in one elementwise
kernel.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from math import prod
from typing import TYPE_CHECKING, Any, cast

from mirage_py.codegen.triton.convolution_epilogue import EPILOGUE, EPILOGUE_WARPS, emit_epilogue
from mirage_py.codegen.triton.convolution_epilogue import blocks as epilogue_blocks
from mirage_py.codegen.triton.convolution_epilogue import pointer_types as epilogue_pointer_types
from mirage_py.codegen.triton.fused_convolution import NAME, emit_fused_convolution, pointer_types
from mirage_py.runtime.compile.compile import POINTER_ALIGNMENT_BYTES, KernelSource
from mirage_py.runtime.compile.compile_cuda import CudaSource
from mirage_py.runtime.launch.convolutions.block_counters import block_counters
from mirage_py.runtime.launch.convolutions.weights import (
    memory_format,
    separable_parts,
    weight_form,
)
from mirage_py.runtime.launch.launch_triton import source_launcher
from mirage_py.runtime.launch.window_convolution import window_launcher, window_source
from mirage_py.ugraph.ir.convolution import (
    ConvolutionPlan,
    ConvolutionTiles,
    FusedConvolution,
    LibraryConvolution,
    WindowTiles,
)

if TYPE_CHECKING:
    import torch

# (image, packed weight, bias, residual, memory of the result or None) -> result
Runner = Callable[..., "torch.Tensor"]


def kernel_source(
    spec: FusedConvolution, tiles: ConvolutionTiles | WindowTiles
) -> KernelSource | CudaSource:
    """What the compiler sees of the kernel. Raises ScheduleError where the tiles do not fit."""
    return window_source(spec, tiles) if isinstance(tiles, WindowTiles) else _source(spec, tiles)


def _source(spec: FusedConvolution, tiles: ConvolutionTiles) -> KernelSource:
    text = emit_fused_convolution(spec, tiles)
    types = pointer_types(spec, tiles)
    return KernelSource(NAME, text, types, tiles.num_warps, tiles.is_early)


def reference(
    spec: FusedConvolution,
    tiles: ConvolutionPlan,
    x: torch.Tensor,
    packed: torch.Tensor | None,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
) -> torch.Tensor:
    """What the kernel computes, by torch; in float32 where there is no GPU."""
    kind, result = x.dtype, x.float()
    if spec.relu_before:
        result = result.relu()
    form = weight_form(spec, tiles)
    weight = None if packed is None else form.dense(packed).float()
    result = convolved(spec, result, weight, form.groups, between=kind)
    if bias is not None:
        result = result + bias.float().reshape(-1, *(1,) * len(spec.space))
    if residual is not None:
        result = result + residual.float()
    if spec.relu_after:
        result = result.relu()
    if spec.gelu_after:
        import torch

        result = torch.nn.functional.gelu(result)
    return result.to(kind).contiguous(memory_format=memory_format(spec))


def convolved(
    spec: FusedConvolution,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    groups: int,
    between: torch.dtype | None = None,
) -> torch.Tensor:
    """The convolution, or the pool, alone, by torch; of a separable one what is ``between`` may be
    rounded.
    """
    import torch

    functional: Any = torch.nn.functional
    stride, padding, dilation = spec.sliding
    rank = len(stride)
    if spec.pool == "max":
        pool = getattr(functional, f"max_pool{rank}d")
        return cast("torch.Tensor", pool(x, spec.window, stride, padding, dilation))
    if spec.pool:
        pool = getattr(functional, f"avg_pool{rank}d")
        return cast("torch.Tensor", pool(x, spec.window, stride, padding))
    convolution = functional.conv3d if spec.has_frames else functional.conv2d
    if spec.is_separable:
        assert weight is not None
        deep, point = separable_parts(spec, weight)
        found = convolution(x, deep, None, *spec.sliding, groups)
        return cast("torch.Tensor", convolution(found.to(between or x.dtype).to(x.dtype), point))
    return cast("torch.Tensor", convolution(x, weight, None, *spec.sliding, groups))


def new_result(spec: FusedConvolution, x: torch.Tensor) -> torch.Tensor:
    """Memory for a result."""
    import torch

    return torch.empty(
        spec.result_shape, dtype=x.dtype, device=x.device, memory_format=memory_format(spec)
    )


@functools.cache
def fused_convolution_runner(spec: FusedConvolution, tiles: ConvolutionPlan, index: int) -> Runner:
    """The kernel on a GPU, on torch's current stream. Raises CompileError."""
    import torch

    if isinstance(tiles, LibraryConvolution):
        return _library_runner(spec, tiles, index)
    if isinstance(tiles, WindowTiles):
        return _window_runner(spec, tiles, index)
    launch = source_launcher(_source(spec, tiles), index)
    blocks = tiles.blocks(spec)
    shared = blocks // tiles.splits
    sums = blocks * tiles.rows * tiles.columns

    def run(
        x: torch.Tensor,
        packed: torch.Tensor,
        bias: torch.Tensor | None,
        residual: torch.Tensor | None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        result = new_result(spec, x) if out is None else out
        image, at = laid_out(x, spec.apart, spec.offset)
        held = [image]
        pointers = [at, packed.data_ptr()]
        if bias is not None:
            pointers.append(bias.data_ptr())
        if residual is not None:
            more, at = laid_out(residual, spec.residual_apart, spec.residual_offset)
            held.append(more)
            pointers.append(at)
        pointers.append(result.data_ptr())
        stream = torch.cuda.current_stream(x.device).cuda_stream
        if tiles.splits > 1:
            held.append(torch.empty(sums, dtype=torch.float32, device=x.device))
            held.append(block_counters(index, shared, stream))
            pointers += [t.data_ptr() for t in held[-2:]]
        launch(blocks, stream, pointers)
        return result

    return run


def _window_runner(spec: FusedConvolution, tiles: WindowTiles, index: int) -> Runner:
    launch = window_launcher(spec, tiles, index)

    def run(
        x: torch.Tensor,
        packed: torch.Tensor | None,
        bias: torch.Tensor | None,
        residual: torch.Tensor | None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        result = new_result(spec, x) if out is None else out
        image, at = laid_out(x, spec.apart, spec.offset, is_planar=spec.is_planar)
        held, pointers = [image], {"x": at, "y": result.data_ptr()}
        if residual is not None:
            whole = spec.residual_apart, spec.residual_offset
            more, pointers["residual"] = laid_out(residual, *whole, is_planar=spec.is_planar)
            held.append(more)
        for name, given in (("w", packed), ("bias", bias)):
            if given is not None:
                pointers[name] = given.data_ptr()
        launch(pointers, x.device)
        return result

    return run


def epilogue_source(spec: FusedConvolution) -> KernelSource:
    """What the compiler sees of the elementwise kernel after a convolution of the library."""
    types = epilogue_pointer_types(spec)
    return KernelSource(EPILOGUE, emit_epilogue(spec), types, EPILOGUE_WARPS)


def _library_runner(spec: FusedConvolution, plan: LibraryConvolution, index: int) -> Runner:
    import torch

    aten: Any = torch.ops.aten
    launch = None
    in_product = plan.is_product and not spec.has_residual and (spec.has_bias or spec.is_bare)
    if not (plan.is_fused or spec.is_bare or in_product):
        launch = source_launcher(epilogue_source(spec), index)
    blocks = epilogue_blocks(spec)
    stride, padding, dilation = spec.sliding
    none, given = [0] * len(stride), (stride, padding, dilation, spec.groups)

    def library(
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        residual: torch.Tensor | None,
    ) -> torch.Tensor:
        found: torch.Tensor
        if plan.is_product:
            found = _product(spec, x, weight, bias if in_product else None)
        elif not plan.is_fused:
            found = aten.convolution(x, weight, None, *spec.sliding, False, none, spec.groups)
        elif residual is None:
            found = aten.cudnn_convolution_relu(x, weight, bias, *given)
        else:
            found = aten.cudnn_convolution_add_relu(x, weight, residual, 1.0, bias, *given)
        return found

    def run(
        x: torch.Tensor,
        packed: torch.Tensor,
        bias: torch.Tensor | None,
        residual: torch.Tensor | None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        with _fastest_algorithm() if plan.is_tuned else contextlib.nullcontext():
            result = library(x.relu() if spec.relu_before else x, packed, bias, residual)
        result = result.contiguous(memory_format=memory_format(spec))
        if launch is not None:
            held, pointers = [], [result.data_ptr()]
            if bias is not None:
                pointers.append(bias.data_ptr())
            if residual is not None:
                more, at = laid_out(residual, spec.residual_apart, spec.residual_offset)
                held.append(more)
                pointers.append(at)
            launch(blocks, torch.cuda.current_stream(x.device).cuda_stream, pointers)
        return result if out is None else out.copy_(result)

    return run


def _product(
    spec: FusedConvolution, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """The convolution as a product of the library, with relu where there is a bias."""
    import torch

    places = x.movedim(1, -1).reshape(-1, spec.inputs)
    columns = weight.reshape(spec.results, -1).t()
    if bias is None:
        found = places @ columns
    elif spec.relu_after:
        found = torch._addmm_activation(bias, places, columns)  # noqa: SLF001  no public one
    else:
        found = torch.addmm(bias, places, columns)
    return found.view(spec.batch, *spec.out_space, spec.results).movedim(-1, 1)


@contextlib.contextmanager
def _fastest_algorithm() -> Iterator[None]:
    """Let cuDNN time its algorithms; the fastest is known when a graph is captured."""
    import torch

    cudnn: Any = torch.backends.cudnn
    before, cudnn.benchmark = cudnn.benchmark, True
    try:
        yield
    finally:
        cudnn.benchmark = before


def laid_out(
    x: torch.Tensor, apart: int, offset: int, *, is_planar: bool = False
) -> tuple[torch.Tensor, int]:
    """An image as the kernel reads it, a copy where it lies otherwise, and the address of the place
    that its first channel is ``offset`` elements behind; ``is_planar``: so many whole channels.
    """
    samples, channels, *space = x.shape
    size = prod(space)
    side = 1 if is_planar else apart
    inner = [prod(space[n + 1 :]) * side for n in range(len(space))]
    wanted = (size * apart, size if is_planar else 1, *inner)
    lies = all(n == 1 or s == w for n, s, w in zip(x.shape, x.stride(), wanted, strict=True))
    behind = offset * size if is_planar else offset
    before = behind * x.element_size()
    if not lies or (x.data_ptr() - before) % POINTER_ALIGNMENT_BYTES:
        shape = (samples, apart, *space) if is_planar else (samples, *space, apart)
        room = x.new_empty(shape)
        whole = room if is_planar else room.movedim(-1, 1)
        x = whole[:, offset : offset + channels].copy_(x)
    return x, x.data_ptr() - before
