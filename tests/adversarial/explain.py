"""Reasons why a mutant that the verifier accepts and float64 cannot tell apart is right.

Two ways: a normal form that both have, whose rules hold for real numbers; and a list of single
mutants, each with a reason that a person gave (``equal.json``).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from adversarial.corpus import Site, mutant, originals
from adversarial.normal_form import normal_form

LIST = Path(__file__).with_name("equal.json")
BY_RULE = "the same normal form"
WITHOUT_SHIFTS = "the same but for what shifts exponents; overflow is the float gate's"


def explanation(site: Site) -> str:
    """The reason, or nothing if there is none."""
    _, original = originals()[site.graph]
    wrong = mutant(site)
    if normal_form(wrong) == normal_form(original):
        return BY_RULE
    if normal_form(wrong, unshifted=True) == normal_form(original, unshifted=True):
        return WITHOUT_SHIFTS
    return listed().get(str(site), "")


@cache
def listed() -> dict[str, str]:
    """The reason of each site in the list."""
    groups = json.loads(LIST.read_text(encoding="utf-8"))
    return {site: group["why"] for group in groups for site in group["sites"]}
