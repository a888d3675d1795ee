"""Plans as a line of text."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace

import pytest
from plans import attention_plan, rms_plan, two_kernel_plan

import mirage_py
from mirage_py.errors import FormatError, VerificationError
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.sized.sized_launch import SizedRunner
from mirage_py.runtime.store import plan_text as module
from mirage_py.runtime.store.plan_text import artifact_of, is_plan_text, plan_text
from mirage_py.runtime.store.saved import save_artifact
from mirage_py.ugraph.checks.run_time_sizes import run_time_dims, with_run_time_sizes
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.json_form import dump_text

PLAN = rms_plan()
PROGRAM = PLAN.ugraph.program


@pytest.mark.parametrize("plan", [PLAN, two_kernel_plan(), attention_plan()])
def test_comes_back(plan):
    text = plan_text(plan.ugraph.program, plan)
    assert is_plan_text(text)
    assert "\n" not in text
    assert '"' not in text
    assert "\\" not in text
    found = artifact_of(f" {text}\n")
    assert found.plan == plan
    assert found.program == plan.ugraph.program
    assert isinstance(mirage_py.kernel_from(text), PlanRunner)


def test_a_plan_with_run_time_sizes_comes_back():
    plan = with_run_time_sizes(attention_plan(), ("q", "s"))
    kernel = mirage_py.kernel_from(plan_text(plan.ugraph.program, plan))
    assert isinstance(kernel, SizedRunner)
    assert run_time_dims(kernel.plan) == ("q", "s")


def test_a_folder_is_read_too(tmp_path):
    folder = tmp_path / "out"
    save_artifact(folder, program=PROGRAM, plan=PLAN, report={})
    assert artifact_of(folder).plan == PLAN


def packed(content: object) -> str:
    body = zlib.compress(json.dumps(content).encode())
    return f"{module.PREFIX}{module._checksum(body)}:{base64.b85encode(body).decode()}"


@pytest.mark.parametrize(
    "text",
    [
        plan_text(PROGRAM, PLAN)[:-9],
        plan_text(PROGRAM, PLAN).replace(":", ":0", 1),
        packed({}),
        packed([1, 2]),
        packed([json.loads(dump_text(PROGRAM))] * 2),
        packed([json.loads(dump_text(two_kernel_plan().ugraph.program)),
                json.loads(dump_text(PLAN))]),
        f"{module.PREFIX}:",
    ],
)  # fmt: skip
def test_what_is_no_plan(text):
    with pytest.raises(FormatError):
        artifact_of(text)


def test_a_bomb_is_not_unpacked(monkeypatch):
    monkeypatch.setattr(module, "_MAX_BYTES", 1000)
    with pytest.raises(FormatError, match="unpacks to more than"):
        artifact_of(packed([0] * 5000))


def test_a_plan_that_computes_something_else_is_refused():
    (block,) = PLAN.ugraph.kernels
    nodes = tuple(Node("abs", n.args, None, n.dims) if n.op == "square" else n for n in block.nodes)
    assert nodes != block.nodes
    wrong = Plan(replace(PLAN.ugraph, kernels=(replace(block, nodes=nodes),)), PLAN.options)
    with pytest.raises(VerificationError):
        artifact_of(plan_text(PROGRAM, wrong))
