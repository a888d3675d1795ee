"""How exact matmuls of float32 have to be, from torch's setting to the plans that are tried."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
import several_kernels
import torch
from fp32_plans import KERNEL, matmul_plan, matmul_program

import mirage_py
from mirage_py.errors import FormatError
from mirage_py.formatting.evidence_format import format_roofline
from mirage_py.frontend.spec import parse
from mirage_py.frontend.torch.guards.call_key import ambient
from mirage_py.frontend.torch.trace import trace
from mirage_py.pipeline.cached_pipeline import question_of
from mirage_py.pipeline.pipeline import normalise, partition_of
from mirage_py.pipeline.selection.request import Request
from mirage_py.runtime.env.matmul_setting import matmuls_as_in
from mirage_py.search.model.baseline_model import fused_model_us
from mirage_py.search.model.library_model import library_estimate
from mirage_py.search.rank.instantiate import rank
from mirage_py.search.rank.neighbours import neighbours
from mirage_py.search.rewrites.pieces import piece
from mirage_py.settings import torch_rounds
from mirage_py.targets import H200
from mirage_py.ugraph.ir.dtypes import Fp32Precision
from mirage_py.ugraph.ir.launch_choices import Precision
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.rewrite.convolutions import library_convolution
from mirage_py.ugraph.rewrite.split_dim import split_dim
from mirage_py.ugraph.text.json_form import from_json, to_json
from mirage_py.ugraph.text.text_form import format_program, parse_program

EXACT, ROUNDED = (matmul_program(256, 512, 256, p) for p in ("ieee", "tf32"))
ASKED = Request("h200", "triton", "none")


@pytest.fixture(autouse=True)
def _setting() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


def test_it_is_written_down_where_it_is_not_exact():
    assert "precision" not in format_program(EXACT)
    assert "fp32_precision" not in to_json(EXACT)
    assert format_program(ROUNDED).splitlines()[1] == "fp32_precision tf32"
    assert parse_program(format_program(ROUNDED)) == ROUNDED
    assert from_json(to_json(ROUNDED)) == ROUNDED
    assert ROUNDED.digest != EXACT.digest
    with pytest.raises(FormatError, match="bf16"):
        parse_program(format_program(ROUNDED).replace("precision tf32", "precision bf16"))
    with pytest.raises(FormatError, match="bf16"):
        from_json({**to_json(ROUNDED), "fp32_precision": "bf16"})


def test_programs_without_such_matmuls_stay():
    for program in (matmul_program(dtype="f16"), parse("B = 2\nX[B] : f32\nY[b] = X[b]")):
        assert program.held_to(Fp32Precision.TF32) is program


def test_rewrites_keep_it():
    masked = "B = 8\nX[B, B], W[B, B] : f32\nY[b, n] = sum[d](where(d <= b, X[b, d], 0) * W[d, n])"
    for program in (ROUNDED, parse(masked).held_to(Fp32Precision.TF32)):
        assert normalise(program).fp32_precision is Fp32Precision.TF32
        assert piece(program, {}).fp32_precision is Fp32Precision.TF32
    assert split_dim(ROUNDED, "d", 4).fp32_precision is Fp32Precision.TF32


@pytest.mark.parametrize(("word", "found"), [
    ("highest", "ieee"), ("high", "tf32"), ("medium", "tf32"),
])  # fmt: skip
def test_a_function_has_torchs_setting(word, found):
    arguments = torch.ones(4, 8), torch.ones(8, 16)
    before = ambient()
    torch.set_float32_matmul_precision(word)
    assert torch_rounds()[0] == (found == "tf32")
    assert (ambient() == before) == (word == "highest")
    assert trace(torch.matmul, *arguments).fp32_precision == found
    halves = trace(torch.matmul, *(x.half() for x in arguments))
    assert halves.fp32_precision is Fp32Precision.IEEE


def test_a_decorated_function_is_prepared_again():
    programs = []

    def optimizer(program, _inputs, itself):
        programs.append(program.fp32_precision)
        return itself

    fn = mirage_py.superoptimize(lambda x, w: x @ w)
    fn = type(fn)(fn.__wrapped__, fn.options, optimizer)
    given = torch.ones(4, 8), torch.ones(8, 16)
    for allowed in (False, True, True, False):
        torch.backends.cuda.matmul.allow_tf32 = allowed
        fn(*given)
        fn(*given)
    assert programs == ["ieee", "tf32"]


def test_a_request_says_otherwise():
    asked = replace(ASKED, fp32_precision="tf32")
    assert question_of(EXACT, asked).program == ROUNDED
    assert question_of(ROUNDED, ASKED).key != question_of(EXACT, ASKED).key
    assert question_of(ROUNDED, replace(ASKED, fp32_precision="ieee")).program == EXACT


def test_torch_computes_meanwhile_as_the_program_asks():
    with matmuls_as_in(ROUNDED):
        assert torch.backends.cuda.matmul.allow_tf32
        with matmuls_as_in(EXACT):
            assert not torch.backends.cuda.matmul.allow_tf32
        with matmuls_as_in(matmul_program(dtype="f16")):
            assert torch_rounds()[0]
    assert torch_rounds() == (False, True)


@pytest.mark.parametrize("backend", ["triton", "cuda"])
def test_what_is_tried(backend):
    """Every way that is exact enough, the fastest by the model first; none else."""
    exact, rounded = (
        [i.plan.options[0] for i in rank([family(p)], H200, 12, backend)]
        for p in (matmul_program(4096, 4096, 4096, p) for p in ("ieee", "tf32"))
    )
    assert [*dict.fromkeys(o.precision for o in exact)] == [Precision.TF32X3, None]
    ways = [*dict.fromkeys(o.precision for o in rounded)]
    assert (ways[0], {*ways}) == (Precision.TF32, {Precision.TF32, Precision.TF32X3, None})


def family(program):
    """The plan's µGraph with its tiles left open."""
    return several_kernels.over(program, re.sub(r"by \d+", "by ?", KERNEL))


def test_steps_between_them():
    for program, ways in ((EXACT, {None, "tf32x3"}), (ROUNDED, {None, "tf32", "tf32x3"})):
        plan = matmul_plan(program, None)
        assert {p.options[0].precision for p in neighbours(plan, H200)} == ways


def _convolved(x, taps):
    return torch.nn.functional.conv2d(x, taps)


def _projected(x, taps, w):
    return torch.relu(_convolved(x, taps)).flatten(2) @ w


@pytest.mark.parametrize(("matmuls", "convolutions"), [*product((False, True), repeat=2)])
def test_convolutions_have_a_setting_of_their_own(matmuls, convolutions):
    """torch rounds them by default. A part has what its own sum of products may round to."""
    x, taps, w = torch.ones(2, 4, 6, 6), torch.ones(8, 4, 3, 3), torch.ones(16, 5)
    torch.backends.cuda.matmul.allow_tf32 = matmuls
    torch.backends.cudnn.allow_tf32 = convolutions
    alone = trace(_convolved, x, taps).fp32_precision
    assert alone == ("tf32" if convolutions else "ieee")
    whole = trace(_projected, x, taps, w)
    held_to = whole.fp32_precision
    assert (held_to.rounds_matmuls, held_to.rounds_convolutions) == (matmuls, convolutions)
    assert parse_program(format_program(whole)) == whole
    found = partition_of(whole)
    assert found is not None
    kinds = {library_convolution(p) is not None: p.fp32_precision for p in found.parts}
    assert kinds == {
        True: "tf32" if convolutions else "ieee",
        False: "tf32" if matmuls else "ieee",
    }


def test_convolutions_take_less_time_where_they_are_rounded():
    x, taps, w = torch.ones(64, 256, 28, 28), torch.ones(256, 256, 3, 3), torch.ones(676, 8)
    times = []
    for rounds in (True, False):
        torch.backends.cudnn.allow_tf32 = rounds
        parts = partition_of(trace(_convolved, x, taps)).parts
        part, call = next((p, c) for p in parts if (c := library_convolution(p)) is not None)
        times.append(library_estimate(call, UGraph(part, (call,)), H200).time_us)
        times.append(fused_model_us(trace(_projected, x, taps, w), H200))
    assert times[2] > 4 * times[0]
    assert times[3] > 4 * times[1]


def test_explain_says_it():
    report = {"search": {"lower_bound_us": 90.0}, "best": None}
    words = [" ".join(format_roofline(report, p, H200)) for p in (EXACT, ROUNDED)]
    assert "held to ieee: by multiply-adds, or by three products of TF32" in words[0]
    assert "held to tf32: operands may be rounded" in words[1]
    halves = " ".join(format_roofline(report, matmul_program(dtype="f16"), H200))
    assert "float32" not in halves
