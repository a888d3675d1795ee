"""Torch functions that cannot be programs; `# here` marks the line that the error must name."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def running_maximum(x):
    return torch.cummax(x, dim=-1).values * 2  # here


def middle_of_rows(x):
    return torch.median(x, dim=-1).values  # here


def looked_up(x, positions):
    return x[positions > 0]  # here


def drops(x):
    return F.dropout(x, p=0.5, training=True) + 1  # here


def unfolded(x):
    return F.unfold(x, 3)  # here


def branches_on_data(x):
    if x.sum() > 0:  # here
        return x
    return -x


def reads_a_value(x):
    return x * x.max().item()  # here


def selects(x):
    return x[x > 0]  # here


def waves(x):
    return torch.atan2(x, x + 1)  # here


def inverted(x):
    return torch.linalg.inv(x)  # here


def noisy(x):
    return x + torch.randn_like(x)  # here


def spectrum(x):
    return torch.fft.rfft(x).abs()  # here


def pooled(x):
    return F.adaptive_avg_pool1d(x, 5)  # here


def most_frequent(x):
    return torch.mode(x, dim=-1).values  # here


# What to pass to each: name -> values of --input.
INPUTS = {
    "looked_up": ("x=f32[64,8]", "positions=i32[64]"),
    "unfolded": ("x=f32[1,4,8,8]",),
    "inverted": ("x=f32[8,8]",),
    "pooled": ("x=f32[1,4,32]",),
}
DEFAULT_INPUTS = ("x=f32[16,32]",)
