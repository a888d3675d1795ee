"""Convolutions that libraries run slowly, beside equal ones.

Grouped convolutions of ResNeXt with fewer and wider groups, depthwise ones of NasNet as sums of
taps, siblings of Inception as one. bf16, channels last, in CUDA graphs, on one GPU; a minute. What
comes out decides what `search/networks/costs.py` says of narrow groups.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.operators import operator
from mirage_py.search.networks.groups import merged_weight

F = torch.nn.functional
_GROUPS, _CALLS, _REPLAYS = 32, 10, 5
# Channels, height and stride of ResNeXt-50's grouped convolutions.
_RESNEXT = ((128, 56, 1), (256, 56, 2), (256, 28, 1), (512, 28, 2), (512, 14, 1), (1024, 14, 2))
_NASNET = ((44, 56, 3), (44, 56, 5), (264, 28, 5))
_INCEPTION = (
    (192, 35, (64, 48, 64), ((1, 1),) * 3),
    (768, 17, (192, 128, 128), ((1, 1),) * 3),
    (384, 8, (384, 384), ((1, 3), (3, 1))),
)


def main() -> None:
    """Print one line a convolution: microseconds of each way to compute it."""
    torch.backends.cudnn.benchmark = True
    for batch in (1, 16):
        for channels, height, stride in _RESNEXT:
            _grouped(batch, channels, height, stride)
        for channels, height, kernel in _NASNET:
            _depthwise(batch, channels, height, kernel)
        for inputs, height, outputs, kernels in _INCEPTION:
            _siblings(batch, inputs, height, outputs, kernels)


def _grouped(batch: int, channels: int, height: int, stride: int) -> None:
    x, w = _image(batch, channels, height), _weight(channels, channels // _GROUPS, 3, 3)
    want = F.conv2d(x, w, padding=1, stride=stride, groups=_GROUPS)
    row = []
    for merged in (1, 2, 4, 8, 16, 32):
        wide = _merged(w, merged)
        call = _convolution(x, wide, 1, stride, _GROUPS // merged)
        error = float((call().double() - want.double()).abs().max() / want.abs().max())
        row.append(
            f"{_GROUPS // merged}: {_us(call):.1f}" + (f" OFF BY {error:.2g}" * (error > 0.02))
        )
    print(f"groups    n{batch} c{channels} h{height} s{stride}   {'   '.join(row)}", flush=True)


def _convolution(
    x: torch.Tensor, w: torch.Tensor, padding: int, stride: int, groups: int
) -> Callable[[], torch.Tensor]:
    return lambda: F.conv2d(x, w, padding=padding, stride=stride, groups=groups)


def _merged(w: torch.Tensor, merged: int) -> torch.Tensor:
    """The weight that the graph level makes, computed by its operators."""
    if merged == 1:
        return w
    builder = GraphBuilder()
    given = builder.input("w", tuple(w.shape))
    graph = builder.build(merged_weight(builder.apply, given, tuple(w.shape), _GROUPS, merged))
    value = w
    for node in graph.nodes:
        value = operator(node.operator).over_torch([value], dict(node.values))[0]
    return value.contiguous(memory_format=torch.channels_last)


def _depthwise(batch: int, channels: int, height: int, kernel: int) -> None:
    x, w = _image(batch, channels, height), _weight(channels, 1, kernel, kernel)

    def taps(x: torch.Tensor) -> torch.Tensor:
        edge = kernel // 2
        wide = F.pad(x.relu(), (edge,) * 4)
        total = torch.zeros_like(x, dtype=torch.float32)
        for i in range(kernel):
            for j in range(kernel):
                part = wide[:, :, i : i + height, j : j + height].float()
                total = total + part * w[:, 0, i, j][None, :, None, None].float()
        return total.to(x.dtype)

    def library() -> torch.Tensor:
        return F.conv2d(x.relu(), w, padding=kernel // 2, groups=channels)

    torch.compiler.reset()
    compiled = torch.compile(taps)
    error = float((compiled(x).double() - library().double()).abs().max())
    times = (
        f"relu and library: {_us(library):.1f}   taps in one kernel: {_us(lambda: compiled(x)):.1f}"
    )
    print(f"depthwise n{batch} c{channels} h{height} k{kernel}   {times}   (off by {error:.2g})")


def _siblings(
    batch: int,
    inputs: int,
    height: int,
    outputs: tuple[int, ...],
    kernels: tuple[tuple[int, int], ...],
) -> None:
    x = _image(batch, inputs, height)

    def us(channels: int, kernel: tuple[int, int]) -> float:
        w = _weight(channels, inputs, *kernel)
        return _us(lambda: F.conv2d(x, w, padding=(kernel[0] // 2, kernel[1] // 2)))

    each = [us(o, k) for o, k in zip(outputs, kernels, strict=True)]
    whole = us(sum(outputs), (max(k[0] for k in kernels), max(k[1] for k in kernels)))
    print(f"siblings  n{batch} c{inputs} h{height}   {sum(each):.1f} apart   {whole:.1f} as one")


def _image(batch: int, channels: int, height: int) -> torch.Tensor:
    made = torch.randn(batch, channels, height, height, device="cuda", dtype=torch.bfloat16)
    return made.to(memory_format=torch.channels_last)


def _weight(*shape: int) -> torch.Tensor:
    made = torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    return made.to(memory_format=torch.channels_last)


def _us(call: Callable[[], torch.Tensor]) -> float:
    """The least time of a call among replays of several in one CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_CALLS):
            call()
    times = []
    for _ in range(_REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / _CALLS)
    return min(times)


if __name__ == "__main__":
    main()
