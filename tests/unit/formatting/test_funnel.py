"""The funnel of a search: every rule explained, every stage counted."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mirage_py.search
from mirage_py.formatting.funnel import RULES, funnel, rings
from mirage_py.reasons import Code, reason

SEARCH = {
    "seconds": 0.5,
    "candidates": 200,
    "valid": 2,
    "exhausted": True,
    "pruned": {"max_loops: more than 3 loops in a row": 20, "made up": 40},
    "examples": {"made up": "exp(X[b])"},
    "codes": {"max_loops: more than 3 loops in a row": "max_loops"},
    "evaluations": 140,
    "merged": 30,
    "tensors": 110,
    "configurations": 4,
    "hits": 2,
    "families": {"one kernel": 3, "split": 1},
    "tested": 3,
    "ranked": 8,
    "rings": ["factored: exhausted", "expanded: cut"],
}


def _candidate(source: str = "measured", *, passed: bool = True, time_us: float | None = 2.0):
    return {"source": source, "passed": passed, "time_us": time_us}


def test_stages_in_order():
    rows = funnel(SEARCH, ())
    assert [row.count for row in rows] == [200, 40, 20, 140, 30, 110, 2, 4, 3, 2, 8]
    assert rows[0].what.startswith("candidates in 4 configurations")
    assert rows[7].what == "families (one kernel: 3, split: 1)"


def test_rules_have_a_share_a_meaning_and_an_example():
    made_up, loops = funnel(SEARCH, ())[1:3]
    assert made_up.share == 0.2
    assert made_up.example == "exp(X[b])"
    assert made_up.meaning == ""
    assert loops.share == 0.1
    assert "result of the one before" in loops.meaning


def test_measured_candidates():
    candidates = [
        _candidate(),
        _candidate(time_us=None),
        _candidate(passed=False, time_us=None),
    ]
    rows = funnel(SEARCH, candidates)
    assert [(row.count, row.what) for row in rows[-3:]] == [
        (3, "compiled and checked against float64"),
        (1, "timed beside the baselines"),
        (1, "dropped"),
    ]
    assert funnel(SEARCH, [_candidate("model")]) == funnel(SEARCH, ())


def test_rings_say_what_they_are_and_how_they_ended():
    assert list(rings(SEARCH)) == [
        ("factored", "exhausted (sums and products are factored, never multiplied out)"),
        ("expanded", "cut (products are multiplied out as well)"),
    ]


def _rules_of_the_search() -> list[Code]:
    """The codes that closures and intermediates refuse tensors with."""
    found = []
    for path in sorted(Path(next(iter(mirage_py.search.__path__))).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = getattr(node, "func", None)
            if getattr(called, "id", getattr(called, "attr", "")) in ("RefusedError", "_refuse"):
                found += _codes(node.args[0])
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "rule":
                found += _codes(node.value)
    return found


def _codes(node: ast.expr) -> list[Code]:
    named = (n for n in ast.walk(node) if isinstance(n, ast.Attribute))
    return [Code[n.attr] for n in named if getattr(n.value, "id", "") == "Code"]


def test_every_rule_of_the_search_is_explained():
    rules = _rules_of_the_search()
    assert len(set(rules)) == 11
    assert set(rules) == set(RULES)


@pytest.mark.parametrize("code", RULES, ids=lambda code: code.name)
def test_a_rule_is_explained_from_its_code(code: Code):
    rule = reason(code, *[3] * code.sentence.count("{}"))
    search = {**SEARCH, "pruned": {str(rule): 1}, "codes": {str(rule): rule.name}}
    assert funnel(search, ())[1].meaning == RULES[code]
