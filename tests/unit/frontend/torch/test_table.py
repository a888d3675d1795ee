"""docs/reference/torch.md lists what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from mirage_py.frontend.torch import HANDLERS
from mirage_py.frontend.torch.handlers.registry import handles

DOCS = Path(__file__).resolve().parents[4] / "docs" / "reference" / "torch.md"
ROW = re.compile(r"^\| (\w+) \| (.*) \|$", re.MULTILINE)


def test_the_documented_operators_are_those_of_the_table():
    documented = {}
    for family, operators in ROW.findall(DOCS.read_text(encoding="utf-8")):
        for operator in re.findall(r"`([\w.]+)`", operators):
            assert operator not in documented
            documented[operator] = family
    assert documented == {name.removeprefix("aten."): row.family for name, row in HANDLERS.items()}


def test_every_operator_is_one_of_torch():
    for name in HANDLERS:
        packet, overload = name.removeprefix("aten.").split(".")
        assert overload in getattr(torch.ops.aten, packet).overloads(), name


def test_every_handler_says_what_it_computes():
    assert [name for name, row in HANDLERS.items() if not row.handler.__doc__] == []


def test_an_operator_has_one_handler():
    with pytest.raises(ValueError, match="two handlers"):
        handles("add.Tensor")(lambda t: None)
