"""How exact matmuls of float32 have to be, from torch's setting to the plans that are tried."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
import several_kernels
import torch
from fp32_plans import KERNEL, matmul_plan, matmul_program

import mirage_py
from mirage_py.errors import FormatError
from mirage_py.frontend.spec import parse
from mirage_py.frontend.torch.guards.call_key import ambient
from mirage_py.frontend.torch.trace import trace
from mirage_py.pipeline.pipeline import normalise, question_of
from mirage_py.pipeline.selection.request import Request
from mirage_py.runtime.env.matmul_setting import matmuls_as_in
from mirage_py.search.rank.instantiate import rank
from mirage_py.search.rank.neighbours import neighbours
from mirage_py.search.rewrites.pieces import piece
from mirage_py.settings import torch_fp32_precision
from mirage_py.targets import H200
from mirage_py.ugraph.ir.dtypes import Fp32Precision
from mirage_py.ugraph.ir.launch_choices import Precision
from mirage_py.ugraph.rewrite.split_dim import split_dim
from mirage_py.ugraph.text.json_form import from_json, to_json
from mirage_py.ugraph.text.text_form import format_program, parse_program

EXACT, ROUNDED = (matmul_program(256, 512, 256, p) for p in ("ieee", "tf32"))
ASKED = Request("h200", "triton", "none")


@pytest.fixture(autouse=True)
def _setting() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")


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
    assert torch_fp32_precision() == found
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
            assert torch_fp32_precision() == "tf32"
    assert torch_fp32_precision() == "ieee"


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
