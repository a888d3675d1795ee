"""Variances of PyTorch functions: long rows are cut into parts, of which each is read once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from mirage_py.frontend.torch.trace import trace
from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.rewrites.parallel_variance import cuts_into_parts, long_variances
from mirage_py.targets import H200
from mirage_py.ugraph.ir.program import Program

Function = Callable[..., torch.Tensor]
LONG = (16, 1 << 18)
IMAGES = (8, 16, 128, 128)


def own(x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / ((mean - x) ** 2).mean(-1, keepdim=True).sqrt()


def of_pair(x: torch.Tensor) -> torch.Tensor:
    variance, mean = torch.var_mean(x, -1, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1e-5)


def of_sum(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x.relu() + x, (x.shape[-1],))


def in_training(x: torch.Tensor) -> torch.Tensor:
    return F.relu(F.batch_norm(x, None, None, training=True))


def rms(x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],))


def with_largest(x: torch.Tensor) -> torch.Tensor:
    return x.var(-1) + x.amax(-1)


def program_of(f: Function, shape: tuple[int, ...], kind: torch.dtype = torch.bfloat16) -> Program:
    return normalise(trace(f, torch.empty(shape, dtype=kind, device="meta")))


@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (lambda x: F.layer_norm(x, (x.shape[-1],)), LONG),
        (lambda x: x.var(-1), LONG),
        (lambda x: x.var(-1, unbiased=False), LONG),
        (lambda x: x.std(), LONG),
        (own, LONG),
        (of_pair, LONG),
        (of_sum, LONG),
        (in_training, IMAGES),
        (lambda x: F.group_norm(x, 4), IMAGES),
        (F.instance_norm, (1, 8, 512, 512)),
    ],
)
def test_a_variance_is_known_however_it_is_written(f: Function, shape: tuple[int, ...]) -> None:
    assert long_variances(program_of(f, shape), H200)


@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (rms, LONG),  # no mean
        (lambda x: x.var(-1), (16, 8192)),  # a block holds a row
        (lambda x: x.var(-1), (4096, 1 << 15)),  # the L2 holds the rows that are read again
        (with_largest, LONG),  # another pass
    ],
)
def test_programs_that_stay_as_they_are(f: Function, shape: tuple[int, ...]) -> None:
    assert not long_variances(program_of(f, shape), H200)


@pytest.mark.parametrize(
    ("f", "shape", "cuts"),
    [
        (lambda x: x.var(-1), LONG, [(("d_part",), 16), (("d_part",), 64)]),
        (lambda x: x.std(), (3, 40000), [(("m_d_part",), 8), (("m_d_part",), 30)]),
        # So many images, or so much of one.
        (in_training, (8, 16, 64, 128), [(("b_part",), 4), (("s_d_part", "b"), 2)]),
        # The pixels of an image are one part.
        (in_training, IMAGES, [(("b",), 1), (("s_d_part", "b"), 4)]),
        # So many channels of a group as have at most 16384 pixels.
        (lambda x: F.group_norm(x, 2), (2, 16, 64, 64), [(("h_1_part",), 2), (("h_1",), 1)]),
    ],
    ids=["rows", "no power of two", "small images", "images", "groups"],
)
def test_a_part_is_one_tile_of_what_lies_side_by_side(
    f: Function, shape: tuple[int, ...], cuts: list[tuple[tuple[str, ...], int]]
) -> None:
    found = cuts_into_parts(program_of(f, shape), H200)
    assert [(cut.outer, cut.splits) for cut in found] == cuts


def test_a_part_is_short_where_channels_lie_side_by_side() -> None:
    """A block has many channels of it."""
    x = torch.empty(8, 64, 128, 128, dtype=torch.bfloat16, device="meta")
    program = normalise(trace(in_training, x.to(memory_format=torch.channels_last)))
    cuts = cuts_into_parts(program, H200)
    assert [program.sizes[cut.dim] // cut.splits for cut in cuts] == [256, 64]


def test_how_many_rows_are_few_is_the_targets() -> None:
    program = program_of(lambda x: x.var(-1), (260, 1 << 15))
    small = replace(H200, sms=8)
    assert long_variances(program, H200)
    assert not long_variances(program, small)
