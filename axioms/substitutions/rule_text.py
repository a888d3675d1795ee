"""Rules from their text, as ``rule.py`` prints it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mirage_py.axioms.substitutions.expression import OPERATORS, Attr, Axis, Expr, Type
from mirage_py.axioms.substitutions.rule import PROVED, TESTED, Rule
from mirage_py.errors import FormatError, MirageError

_INPUT = re.compile(r"(\w+)\[([^\]]*)\]")
_LINE = re.compile(r"([\w, ]+) = (\w+)\(([\w, ]*)(?:; ([^#]*))?\)")


def read_rules(text: str) -> tuple[Rule, ...]:
    """All rules of a text. Raises FormatError where it is no list of rules."""
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.strip() and line[0] != "#"]
        if lines:
            try:
                found.append(_rule(lines))
            except (IndexError, KeyError, ValueError, MirageError) as error:
                raise FormatError(
                    "is no rule", where=lines[0][:80], why=ascii(str(error))[1:-1][:200]
                ) from None
    return tuple(found)


def _rule(lines: Sequence[str]) -> Rule:
    word, name, status = lines[0].split()
    if word != "rule" or status not in (PROVED, TESTED):
        raise ValueError("it does not begin with `rule NAME proved` or `rule NAME tested`")
    middle = lines.index("becomes")
    given = {n: Expr("input", (n, _type(t))) for n, t in _INPUT.findall(lines[1])}
    left, right = _side(lines[2:middle], given), _side(lines[middle + 1 :], given)
    rule = Rule(name, left, right, status)
    if [x.type for x in left] != [x.type for x in right]:
        raise ValueError("its sides differ in the shapes of their outputs")
    return rule


def _type(text: str) -> Type:
    return tuple(_axis(part) for part in _apart(text, ",")) if text else ()


def _axis(text: str) -> Axis:
    return tuple(_apart(text.strip(), "+"))


def _apart(text: str, mark: str) -> Iterator[str]:
    """The parts between marks that stand in no parentheses."""
    depth, begin = 0, 0
    for n, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == mark and not depth:
            yield text[begin:n].strip()
            begin = n + 1
    yield text[begin:].strip()


def _side(lines: Sequence[str], given: dict[str, Expr]) -> tuple[Expr, ...]:
    known = dict(given)
    for line in lines[:-1]:
        match = _LINE.match(line.split("#")[0].strip())
        if match is None:
            raise ValueError(f"'{line.strip()}' is no operator")
        results, op, operands, attributes = match.groups()
        of = tuple(known[name] for name in operands.split(", "))
        for number, result in enumerate(results.split(", ")):
            known[result] = Expr(op, _attrs(op, attributes or "", number), of)
    word, _, outputs = lines[-1].strip().partition(" ")
    if word != "give":
        raise ValueError("a side ends with what it gives")
    return tuple(known[name] for name in outputs.split(", "))


def _attrs(op: str, text: str, number: int) -> tuple[Attr, ...]:
    words = dict(part.strip().split(" ", 1) for part in _apart(text, ",")) if text else {}
    found: list[Attr] = []
    for name in OPERATORS[op][1]:
        if name == "index":
            found.append(number)
        elif name == "sizes":
            found.append(tuple(_axis(part) for part in words["sizes"].split()))
        else:
            value = words[name].strip()
            found.append(int(value) if name in ("axis", "groups") else value)
    return tuple(found)
