"""Functions of real models through the decorator and torch.compile: right, and served as stated."""

from __future__ import annotations

from typing import Any

import click
import pytest
import torch
from nightly import NIGHTLY

from benchmarks.wild.agreement import Yardstick, difference
from benchmarks.wild.catalogue import FAMILIES, program_at, programs
from benchmarks.wild.command import chosen
from benchmarks.wild.dry_row import dry_row
from benchmarks.wild.summary import is_right, served_as, summary

# Small ones that are taken whole, one that writes to its arguments, one that is refused.
SAMPLE = {
    "add_rms_norm": "whole",
    "rotary_halves": "whole",
    "clamped_swiglu": "whole",
    "merged_attention": "whole",
    "moving_average": "whole",
    "packed_int4_weights": "whole",
    "sigmoid_router": "whole",
    "expert_choice": "whole",
    "sampled_features": "in parts",
    "greedy": "whole",
    "encoder_buckets": "whole",
    "interleaved_int4_weights": "whole",
    "state_space_chunks": "whole",
    "reaction_diffusion": "whole",
    "slice_cache": "eager",
}
TAKEN = list(programs()) if NIGHTLY else list(SAMPLE)


@pytest.mark.parametrize("name", TAKEN)
def test_programs_are_right_and_lose_no_side_effect(name: str):
    row = dry_row(programs()[name], budget_s=0)
    assert is_right(row), (row["decorator"]["fault"], row["compile"]["fault"])
    assert row["decorator"]["why"]
    if name in SAMPLE:
        assert served_as(row) == SAMPLE[name]


def test_there_are_150_programs_of_every_family():
    known = programs()
    assert len(known) >= 150
    assert list(dict.fromkeys(p.family for p in known.values())) == list(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_functions_run_at_both_sizes(family: str):
    for program in programs().values():
        if program.family != family:
            continue
        with torch.no_grad():
            program.function(*program.arguments(real=False))
            program.function(*program.arguments(real=True, device="meta"))


def test_a_difference_in_a_result_or_an_argument_is_seen():
    x = torch.arange(6.0).view(2, 3)
    assert difference([x, 1], [x.clone(), 1]) == ""
    assert "off by" in difference(x, x + torch.eye(2, 3))
    assert "not torch.float32" in difference(x.double(), x)
    assert "differ" in difference(x > 2, x > 3)
    assert "infinities" in difference(x, torch.where(x > 4, torch.inf, x))
    assert "infinities" in difference(torch.where(x > 4, torch.nan, x), x)
    assert "infinities" in difference(-x / 0, x / 0)
    assert "a result is" in difference((x,), [x])


def test_what_eager_rounds_is_held_against_double_precision():
    def decayed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x.cumsum(0)
        return torch.exp(total - total[-1]), total.argmax()

    x = torch.full((300,), 1.0, dtype=torch.bfloat16)
    yardstick = Yardstick(decayed, [x])
    decay, place = decayed(x.double())
    fused = decay.bfloat16(), place
    assert "off by" in difference(fused, decayed(x))
    assert "differ" in difference(fused[1], decayed(x)[1])
    assert yardstick.difference(fused, [x]) == ""
    assert "number 0" in yardstick.difference((fused[0] + 1, place), [x])
    assert "number 1" in yardstick.difference((fused[0], place - 2), [x])
    assert "number 2" in yardstick.difference(fused, [x + 1])


def test_reasons_are_counted_by_the_programs_they_cost():
    def row(code: str, why: str, by: str) -> dict[str, Any]:
        return {
            "decorator": {
                "served_by": by, "taken": "refused", "fault": "", "code": code, "why": why,
                "search_cpu_s": 1.0,
            },
            "compile": {
                "served_regions": 1, "fault": "", "operators": 3, "in_regions": 1,
                "search_cpu_s": 0.5,
                "left": [{"operator": "aten.sort", "count": 2, "code": "no_handler"}],
            },
        }  # fmt: skip

    rows = [
        row("other", "input 'a' is of torch.int64 (data)", "mirage_py in parts"),
        row("other", "input 'b' is of torch.int64 (data)", "eager"),
        row("requires_grad", "an argument requires grad", "torch.compile"),
    ]
    found = summary(rows)
    assert found["reasons"] == {
        "other: input is of torch.int64": 2,
        "requires_grad: an argument requires grad": 1,
    }
    assert found["left"] == {"aten.sort: no_handler": 3}
    assert (found["whole"], found["in_parts"], found["eager"]) == (0, 1, 2)
    assert found["search_cpu_s"] == 4.5


def test_a_program_at_other_sizes():
    program = program_at("latent_attention@B=1:S=64")
    q, _, c, *_ = program.arguments(real=True, device="meta")
    assert (q.shape[0], tuple(c.shape)) == (1, (1, 64, 512))
    assert programs()["latent_attention"].sizes["B"] == (2, 16)
    both = ["latent_attention@B=1", "greedy"]
    assert chosen(",".join(both)) == both
    assert chosen("norms,rms_norm_upcast,greedy")[-1] == "greedy"
    assert chosen("") == list(programs())
    for wrong in ("latent_attention@X=1", "latent_attention@B=", "no_such@B=1"):
        with pytest.raises(click.UsageError):
            chosen(wrong)
