"""The shipped database: it reads back as it prints, and every proof in it replays."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirage_py.axioms.substitutions.database import (
    all_rules,
    certificates,
    fault_of,
    proved_rules,
    write,
)
from mirage_py.axioms.substitutions.expression import nodes
from mirage_py.axioms.substitutions.rule import Rule, at_rank
from mirage_py.axioms.substitutions.rule_text import read_rules
from mirage_py.errors import FormatError
from mirage_py.search.substitutions.instances import differs


def test_every_rule_has_a_proof_that_replays() -> None:
    known = certificates()
    assert len(proved_rules()) > 70
    assert {rule.name: fault for rule in proved_rules() if (fault := fault_of(rule, known))} == {}


def test_texts_read_back() -> None:
    rules = all_rules()
    assert read_rules("\n\n".join(map(str, rules))) == rules


def test_a_rule_with_the_certificate_of_another_is_refused() -> None:
    one, other = [rule for rule in proved_rules() if len(rule.left) == 2][:2]
    assert fault_of(one, {one.name: certificates()[other.name]})
    assert fault_of(one, {}) == "it has no certificate"
    swapped = Rule(one.name, one.left, one.right[::-1], one.status)
    assert fault_of(swapped, certificates())


def test_a_wrong_text_is_no_rule() -> None:
    text = str(all_rules()[0])
    for wrong in (text.replace("becomes", "is"), text.replace("give", "take"), "rule 1 sure"):
        with pytest.raises((FormatError, ValueError)):
            read_rules(wrong)


def test_pointwise_rules_hold_for_other_numbers_of_axes() -> None:
    for rule in proved_rules():
        for rank in (1, 4):
            for other in at_rank(rule, rank):
                if other != rule and rule.name in ("1", "6"):
                    assert not differs(other.left, other.right, trials=1)
                    assert all(len(x.type) in (0, rank) for x in nodes(*other.left))


def test_it_is_written_as_it_is_read(tmp_path: Path) -> None:
    write(all_rules(), certificates(), tmp_path)
    assert all_rules(tmp_path) == all_rules()
    assert certificates(tmp_path) == certificates()
