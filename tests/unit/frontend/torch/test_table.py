"""docs/reference/torch.md lists what the code does."""

from __future__ import annotations

import inspect
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


def _numbers(value):
    """A size that torch repeats for each axis, or a list that is empty, as a tuple."""
    return tuple(dict.fromkeys(value)) if isinstance(value, list | tuple) else value


def test_what_a_handler_is_not_given_is_as_torch_has_it():
    # Graphs leave out arguments that equal the default of the schema, as hardtanh(x, -1, 1) does.
    same = {((), None), (None, ()), ("valid", 0), (True, None)}
    apart = []
    for name, row in HANDLERS.items():
        packet, overload = name.removeprefix("aten.").split(".")
        schema = getattr(getattr(torch.ops.aten, packet), overload)._schema
        own = list(inspect.signature(row.handler).parameters.values())[1:]
        given = [a for a in schema.arguments if not a.kwarg_only]
        pairs = list(
            zip(given, [p for p in own if p.kind is p.POSITIONAL_OR_KEYWORD], strict=False)
        )
        names = {p.name: p for p in own if p.kind is not p.VAR_POSITIONAL}
        pairs += [(a, names[a.name]) for a in schema.arguments if a.kwarg_only and a.name in names]
        for argument, parameter in pairs:
            if not argument.has_default_value() or argument.name.startswith("cudnn_enable"):
                continue
            theirs, ours = _numbers(argument.default_value), _numbers(parameter.default)
            theirs = theirs[0] if isinstance(theirs, tuple) and len(theirs) == 1 else theirs
            if theirs != ours and (theirs, ours) not in same:
                apart.append((name, argument.name, theirs, ours))
    assert apart == []


def test_an_operator_has_one_handler():
    with pytest.raises(ValueError, match="two handlers"):
        handles("add.Tensor")(lambda t: None)
