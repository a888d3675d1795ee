"""The database of rules: those that ``mirage-py rules generate`` found, and their certificates.

``rules.txt`` is read when rules are asked for; ``certificates.json.gz`` only to verify them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from mirage_py.axioms.substitutions.proofs import fault
from mirage_py.axioms.substitutions.rule import PROVED, Rule
from mirage_py.axioms.substitutions.rule_text import read_rules
from mirage_py.errors import FormatError

FOLDER = Path(__file__).parent
RULES, CERTIFICATES = "rules.txt", "certificates.json.gz"
_HEAD = "# Made by `mirage-py rules generate`; `mirage-py rules verify` replays the proofs.\n\n"


@lru_cache(maxsize=4)
def all_rules(folder: Path = FOLDER) -> tuple[Rule, ...]:
    """Every rule, proved or only tested. Raises FormatError for a text that is no list of rules."""
    return read_rules((folder / RULES).read_text(encoding="utf-8"))


def proved_rules() -> tuple[Rule, ...]:
    """The rules that are applied by default: those with a proof for all sizes."""
    return tuple(rule for rule in all_rules() if rule.status == PROVED)


def certificates(folder: Path = FOLDER) -> Mapping[str, Any]:
    """The certificates by the names of their rules."""
    try:
        found = json.loads(gzip.decompress((folder / CERTIFICATES).read_bytes()))
    except (OSError, ValueError, EOFError) as error:
        raise FormatError(
            "holds no certificates", where=str(folder / CERTIFICATES), why=str(error)[:200]
        ) from None
    if not isinstance(found, dict):
        raise FormatError("holds no certificates", where=str(folder / CERTIFICATES))
    return found


def fault_of(rule: Rule, known: Mapping[str, Any]) -> str:
    """Why a rule is not proved by its certificate; "" if it is."""
    if rule.name not in known:
        return "it has no certificate"
    return fault(rule.left, rule.right, known[rule.name])


def write(
    rules: Sequence[Rule], proofs: Mapping[str, Any], folder: Path, *, head: str = _HEAD
) -> None:
    """Write a database; the same bytes for the same rules."""
    folder.mkdir(parents=True, exist_ok=True)
    text = head + "\n\n".join(map(str, rules)) + "\n"
    (folder / RULES).write_text(text, encoding="utf-8")
    kept = {rule.name: proofs[rule.name] for rule in rules if rule.status == PROVED}
    data = json.dumps(kept, separators=(",", ":"), sort_keys=True).encode()
    (folder / CERTIFICATES).write_bytes(gzip.compress(data, mtime=0))
