"""A plan for a GPU that is not here has to compile for it and to fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plans import rms_plan

from mirage_py.errors import CompileError
from mirage_py.reasons import Code
from mirage_py.runtime.compile import ahead_of_time
from mirage_py.runtime.compile.ahead_of_time import compiled_plan
from mirage_py.targets import target


def test_a_plan_that_compiles_and_fits():
    assert compiled_plan(rms_plan(), target("h100")).fault is None


def test_one_that_takes_too_much_memory():
    small = replace(target("h100"), smem_per_block_bytes=1024)
    assert compiled_plan(rms_plan(), small).fault.code is Code.SHARED_MEMORY


def test_one_that_the_compiler_refuses(monkeypatch):
    def refuse(*_):
        raise CompileError("ptxas made code", code=Code.WRONG_MACHINE_CODE)

    monkeypatch.setattr(ahead_of_time, "compile_kernel", refuse)
    assert compiled_plan(rms_plan(), target("h100")).fault.code is Code.WRONG_MACHINE_CODE


def test_nothing_is_compiled_where_kernels_are_interpreted(monkeypatch):
    knobs = pytest.importorskip("triton").knobs
    monkeypatch.setattr(knobs.runtime, "interpret", True)
    monkeypatch.setattr(ahead_of_time, "compile_kernel", None)
    assert compiled_plan(rms_plan(), target("h100")).fault is None
