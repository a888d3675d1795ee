"""Reports of plans of several kernels, library calls among them, of which nothing else is known."""

from __future__ import annotations

import re

import pytest
import several_kernels

from mirage_py.report.result_report import report_html
from mirage_py.runtime.store.artifact import Artifact
from mirage_py.ugraph.ir.ugraph import BlockGraph


@pytest.mark.parametrize("name", several_kernels.NAMES)
def test_each_kernel_has_its_code_and_every_link_its_place(name: str) -> None:
    plan = several_kernels.plan(name)
    text = report_html(Artifact(plan.ugraph.program, plan, {"target": "h200"}))
    known = set(re.findall(r' id="([^"]+)"', text))
    assert [link for link in re.findall(r'href="#([^"]+)"', text) if link not in known] == []
    for kernel in plan.ugraph.kernels:
        if isinstance(kernel, BlockGraph):
            assert f"kernel-{kernel.name}" in known
            nodes = {f"node-{kernel.name}-{n}" for n in range(len(kernel.nodes))}
            assert nodes <= known
        else:
            assert f"library: {kernel.op}" in text
    assert "not recorded" in text
