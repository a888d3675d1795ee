"""Steps from the fastest plan so far, while others compile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.runtime.tune.scene import BASE, Baselines, Check, Scene, number_of, numbered

from mirage_py.ugraph.ir.plan import Plan


def test_steps_from_the_fastest_are_tried_while_others_compile(monkeypatch: pytest.MonkeyPatch):
    """What differs from it in launch options, once and not before enough are timed."""
    # The first round knows a plan by its options, and the final one by its place.
    times = {f"plan {n}": 9.0 if n in (12, 32) else 12.0 for n in range(60)}
    scene = Scene(monkeypatch, {**BASE, **times})
    scene.check.is_ready = True
    warm_up = Baselines()
    warm_up.takes_turns = True
    timed = property(lambda check: {numbered(n): 12.0 for n in check.begun})
    monkeypatch.setattr(Check, "timed", timed, raising=False)

    def beside(plan: Plan) -> list[Plan]:
        ugraph = replace(plan.ugraph, program=replace(plan.ugraph.program, name="another"))
        near = [numbered(number_of(plan) + n) for n in (1, *range(30, 60))]
        return [replace(plan, ugraph=ugraph), *near]

    report = scene.run(10, warm_up=warm_up, beside=beside)
    # Plan 1 was known, and the other one has another graph.
    assert scene.check.begun == [*range(6), *range(30, 39), *range(6, 10)]
    assert [m.name.split(":")[0] for m in report.measured[10:12]] == ["plan 10", "plan 11"]
    assert report.best.plan == numbered(32)
