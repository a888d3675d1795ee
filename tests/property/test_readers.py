"""Readers of untrusted files: they read them, or say what is wrong and where, in seconds.

The targets, their examples and the ways to damage them are those of `make fuzz` (tests/fuzz).
"""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from fuzz import targets
from fuzz.mutation import paths
from fuzz.targets import TARGETS
from hypothesis import given
from hypothesis import strategies as st
from plans import rms_plan

from mirage_py.errors import MAX_PART_CHARACTERS, FormatError, SpecError
from mirage_py.frontend.spec import parse
from mirage_py.ugraph.ir.launch_choices import Precision
from mirage_py.ugraph.text.json_form import dump_text, load_text
from mirage_py.ugraph.text.text_form import parse_program


@pytest.fixture(scope="module", autouse=True)
def _scratch():
    yield
    targets.clean()
    targets._scratch.cache_clear()


@pytest.mark.parametrize("name", TARGETS)
def test_examples_are_read(name: str):
    target = TARGETS[name]
    read = [target.run(text) for text in target.seeds()]
    assert any(read)
    if name != "spec":  # some of its examples are wrong on purpose
        assert all(read)


@pytest.mark.parametrize("name", TARGETS)
@given(st.integers(0, 2**32 - 1))
def test_damaged_examples_are_read_or_refused(name: str, seed: int):
    rng, target = random.Random(seed), TARGETS[name]
    seeds = target.seeds()
    target.run(target.mutate(rng, rng.choice(seeds), seeds))


@pytest.mark.parametrize("name", TARGETS)
@given(st.text(max_size=60))
def test_any_text_is_refused(name: str, text: str):
    TARGETS[name].run(text)


# -- JSON: another type at every path -------------------------------------------------------------

OTHERS = (None, True, -1, 10**30, 0.5, "", "x", "\ud800", [], {}, [[]], {"a": 1})


def test_another_type_at_every_path():
    (options,) = rms_plan().options
    plan = replace(rms_plan(), options=(replace(options, precision=Precision.TF32),))
    document = json.loads(dump_text(plan))
    places = [path for path in paths(document) if path]
    assert len(places) > 150
    for path in places:
        holder = document
        for key in path[:-1]:
            holder = holder[key]
        before = holder[path[-1]]
        # Each of the others at some paths, and every path with a few of them.
        for number, other in enumerate(OTHERS):
            if (number + len(path) + len(str(path))) % 3 == 0:
                holder[path[-1]] = other
                targets.read_json(json.dumps(document))
        del holder[path[-1]]
        targets.read_json(json.dumps(document))
        holder.insert(path[-1], before) if isinstance(holder, list) else holder.update(
            {path[-1]: before}
        )
    assert json.loads(dump_text(load_text(json.dumps(document), "again"))) == json.loads(
        dump_text(plan)
    )


def test_operands_of_later_and_of_no_nodes():
    """Forward references, which could make a cycle, and places outside of the list."""
    document = json.loads(dump_text(rms_plan()))
    for nodes in (
        document["ugraph"]["program"]["nodes"],
        document["ugraph"]["kernels"][0]["nodes"],
    ):
        for position, node in enumerate(nodes):
            for at, operand in enumerate(node.get("args", [])):
                for wrong in (position, position + 1, len(nodes), 10**9, -1):
                    node["args"][at] = wrong
                    with pytest.raises(FormatError):
                        load_text(json.dumps(document), "plan.json")
                node["args"][at] = operand


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
def test_numbers_that_are_none(number: str):
    text = dump_text(rms_plan()).replace('"size": 96', f'"size": {number}', 1)
    with pytest.raises(FormatError):
        load_text(text, "plan.json")


def test_keys_that_are_given_twice():
    text = dump_text(rms_plan()).replace('"backend":', '"backend": "triton", "backend":', 1)
    with pytest.raises(FormatError, match="given twice"):
        load_text(text, "plan.json")


# -- size and depth -------------------------------------------------------------------------------

LARGE = 10**6
HEAD = "program p\ndim b = 4\ninput X[4] : f16\noutput Y[4] : f16\n"


@pytest.mark.parametrize(
    "text",
    [
        "(" * LARGE,
        "X[4] : f16\nY[b] = " + "(" * LARGE + "X[b]" + ")" * LARGE,
        "X[4] : f16\nY[b] = " + "(" * 3000 + "X[b]" + ")" * 3000,
        "X[4] : f16\nY[b] = " + "-" * 20_000 + "X[b]",
        "X[4] : f16\nY[b] = X[b]" + " + 1" * 5000,
        "X[4] : f16\nY[b] = X[b]" + "^2" * 5000,
        "X[4] : f16\nY[b] = X[b] * 9^9^9^9^9^9^9",
        "X[4] : f16\nY[b] = X[b]^" + "9" * 400,
        "X[10^30] : f16\nY[b] = X[b]",
        f"D = {10**30}\nX[D] : f16\nY[b] = X[b]",
        "A = 2\n"
        + "".join(f"A{n} = A{n - 1} * A{n - 1}\n" for n in range(1, 50)).replace("A0", "A"),
        "X[4] : f16\nY[b] = X[" + ", ".join(["b"] * 3000) + "]",
        f"X[4] : f16\nY[b] = X[b] + {'n' * 50_000}",
        f"X[4] : f16\nlet {'ab' * 20_000}c[b] = X[b]\nY[b] = {'ab' * 20_000}d[b]",
        "X[4] : f16\nY[b] = " + "max(" * 2000 + "X[b]" + ")" * 2000,
        "X[4, 4] : f16\nY[a, b] = X" + "'" * 10_000,
        "X[4] : f16\nlet a0[b] = X[b]\n"
        + "".join(f"let a{n + 1}[b] = a{n}[b]\n" for n in range(300)),
    ],
    ids=range(17),
)
def test_large_and_deep_specs(text: str):
    targets.read_spec(text)


def test_a_deep_chain_of_definitions_is_no_recursion():
    lines = [f"let a{n + 1}[b] = exp(a{n}[b] * 0.5)" for n in range(1500)]
    text = "\n".join(["X[4] : f16", "let a0[b] = X[b]", *lines, "Y[b] = a1500[b]"])
    targets.read_spec(text)


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "%0 = load X[" + "(" * LARGE + "b" + ")" * LARGE + "]\nreturn Y[b] = %0\n",
        HEAD + "%0 = load X[" + "(" * 9000 + "b" + ")" * 9000 + "]\nreturn Y[b] = %0\n",
        HEAD + "%0 = load X[" + "b + " * 9000 + "b]\nreturn Y[b] = %0\n",
        HEAD + "%0 = mask " + "(~" * 9000 + "(b < 1)" + ")" * 9000 + "\nreturn Y[b] = %0\n",
        HEAD + "%1 = neg %0\n%0 = neg %1\nreturn Y[b] = %0\n",
        HEAD + "%999999999 = load X[b]\nreturn Y[b] = %999999999\n",
        HEAD.replace("4", "9" * 18) + "%0 = load X[b]\nreturn Y[b] = %0\n",
        HEAD.replace("4", "9" * 30) + "%0 = load X[b]\nreturn Y[b] = %0\n",
    ],
    ids=range(8),
)
def test_large_and_deep_texts(text: str):
    targets.read_text(text)


@pytest.mark.parametrize("text", ["[" * LARGE, '{"a":' * LARGE, "9" * LARGE, '"' + "a" * LARGE])
def test_large_and_deep_json(text: str):
    assert not targets.read_json(text)


# -- messages -------------------------------------------------------------------------------------


def test_a_message_has_an_end():
    """It quotes what was given, and what was given may be a name of any length."""
    with pytest.raises(SpecError) as raised:
        parse("X[4] : f16\nY[b] = X[b]" + " " * 30_000 + "+ " + "n" * 30_000 + "[b]")
    shown = str(raised.value)
    assert len(shown) < 3 * MAX_PART_CHARACTERS + 500
    line, caret = shown.splitlines()[1:3]
    assert line[caret.index("^")] == "n"
    with pytest.raises(FormatError) as refused:
        parse_program(f"program p\ndim {'d' * 30_000} = 4\ndim {'d' * 30_000} = 4\n")
    assert len(str(refused.value)) < 3 * MAX_PART_CHARACTERS + 500


@pytest.mark.parametrize("column", [1, 80, 159, 160, 161, 400, 5000])
def test_the_caret_stays_under_its_place(column: int):
    text = "let " + " " * (column - 1) + "! = 1" + " " * 300
    with pytest.raises(SpecError) as raised:
        parse(text)
    line, caret = str(raised.value).splitlines()[1:3]
    assert line[caret.index("^")] == "!"
