"""Text made wrong on purpose: bytes, tokens, lines of valid examples, and what breaks readers."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

TOKEN = re.compile(r"\s+|[^\W\d]\w*|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\W", re.UNICODE)

# Letters that look like others, text that ends early, brackets, and numbers at every edge.
HOSTILE = (
    "", "\0", "\ufeff", "\r", "\n", "\u2028", "\u202e", "\u0430", "\u00b5", "\u03bc", "\u212a",
    "\uff11", "\u0661", "\u00b2", "\u0307", "\ud7ff", "\U0001f600", "(", ")", "[", "]", "{", "}",
    "((((((((", "[[[[[[[[", "^2^2^2^2^2^2^2", "0", "-1", "1", "2", "3", "7", "16", "127", "128",
    "65536", str(2**31), str(2**40), str(2**62), str(2**63), str(10**17), str(10**30), "9" * 400,
    "1e308", "1e309", "1e-400", "NaN", "Infinity", "-Infinity", "inf", "nan", "null", "true", "[]",
    "{}", '"', '""', "\\", "\\u0000", "\\ud800", "../", "/", ".", "#", "%0", "%999999999", "?",
    "__class__", "kernel", "program",
)  # fmt: skip
JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 2**31, 2**62, 2**63, 10**30, -(10**30), 0.5, 1e308, "", "x",
    "b", "inf", "nan", "\0", "\ud800", "../x", "X[b]", "(b < 3)", "a" * 5000, [], {}, [[]], [0],
    [1, "x"], ["b"], {"a": 1}, [None], [[[[[[]]]]]],
)  # fmt: skip


def mutated(rng: random.Random, text: str, others: Sequence[str]) -> str:
    """``text`` after one to four changes; ``others`` lend pieces of their own."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        text = rng.choice(_CHANGES)(rng, text, others)
    return text


def json_mutated(rng: random.Random, text: str) -> str:
    """JSON with a value, key or item changed at a random path; other text as it is."""
    try:
        tree: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    for _ in range(rng.choice((1, 1, 2, 3))):
        holders = [h for h in _holders(tree) if h]
        if not holders:
            break
        _change_item(rng, rng.choice(holders), holders)
    plain = json.dumps(tree, indent=rng.choice((None, 1)))
    # Half of a surrogate pair can be written in JSON, but not in a file.
    halves = "\\ud" in plain
    return plain if halves or rng.random() < 0.5 else json.dumps(tree, ensure_ascii=False)


def paths(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value inside JSON data, the whole first."""
    yield path
    items = tree.items() if isinstance(tree, dict) else ()
    items = enumerate(tree) if isinstance(tree, list) else items
    for key, inner in items:
        yield from paths(inner, (*path, key))


def _holders(tree: Any) -> Iterator[Any]:
    todo = [tree]
    while todo:
        item = todo.pop()
        if isinstance(item, dict | list):
            yield item
            todo += item.values() if isinstance(item, dict) else item


def _change_item(rng: random.Random, holder: Any, holders: Sequence[Any]) -> None:
    key = rng.choice([*holder]) if isinstance(holder, dict) else rng.randrange(len(holder))
    what = rng.randrange(5)
    if what == 0:
        del holder[key]
    elif what == 1:
        holder[key] = deepcopy(rng.choice(JUNK))
    elif what == 2 and type(holder[key]) is int:
        holder[key] += rng.choice((-1, 1, 2, -holder[key], 1 << 62))
    elif what == 3 and isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), json.loads(json.dumps(holder[key])))
    else:
        other = rng.choice(holders)
        lent = other[rng.choice([*other])] if isinstance(other, dict) else rng.choice(other)
        if len(copy := json.dumps(lent)) < 4000:
            holder[key] = json.loads(copy)


def _tokens(text: str) -> list[str]:
    return TOKEN.findall(text)


def _flip(rng: random.Random, text: str, _others: Sequence[str]) -> str:
    content = bytearray(text.encode(errors="surrogatepass"))
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return content.decode(errors="replace")


def _put(rng: random.Random, text: str, _others: Sequence[str]) -> str:
    tokens = _tokens(text)
    at = rng.randrange(len(tokens) + 1)
    tokens[at : at + rng.randrange(2)] = [rng.choice(HOSTILE)]
    return "".join(tokens)


def _delete(rng: random.Random, text: str, _others: Sequence[str]) -> str:
    tokens = _tokens(text)
    at = rng.randrange(len(tokens) + 1)
    del tokens[at : at + rng.choice((1, 1, 2, 5, 20))]
    return "".join(tokens)


def _lend(rng: random.Random, text: str, others: Sequence[str]) -> str:
    tokens, lender = _tokens(text), _tokens(rng.choice([text, *others]))
    start, at = rng.randrange(len(lender) + 1), rng.randrange(len(tokens) + 1)
    tokens[at : at + rng.randrange(3)] = lender[start : start + rng.choice((1, 1, 2, 5, 20))]
    return "".join(tokens)


def _number(rng: random.Random, text: str, _others: Sequence[str]) -> str:
    tokens = _tokens(text)
    places = [n for n, token in enumerate(tokens) if token[0].isdigit()]
    if places:
        tokens[rng.choice(places)] = str(rng.choice((0, 1, 2, 3, 5, 64, 2**31, 2**62, 10**30)))
    return "".join(tokens)


def _rename(rng: random.Random, text: str, _others: Sequence[str]) -> str:
    tokens = _tokens(text)
    places = [n for n, token in enumerate(tokens) if token[0].isalpha()]
    if places:
        tokens[rng.choice(places)] = tokens[rng.choice(places)]
    return "".join(tokens)


def _line(rng: random.Random, text: str, _others: Sequence[str]) -> str:
    lines = text.splitlines(keepends=True)
    if lines:
        line = lines.pop(rng.randrange(len(lines)))
        for _ in range(rng.randrange(3)):
            lines.insert(rng.randrange(len(lines) + 1), line)
    return "".join(lines)


def _nest(rng: random.Random, text: str, _others: Sequence[str]) -> str:
    tokens = _tokens(text)
    at = rng.randrange(len(tokens) + 1)
    deep = 20_000 if rng.random() < 0.02 else rng.choice((3, 20, 60, 100, 300, 1000))
    opener, closer = rng.choice(("()", "[]", "{}", ("-", ""), ("not ", ""), ("1+", ""), ("^2", "")))
    tokens[at : at + 1] = [opener * deep, *tokens[at : at + 1], closer * deep]
    return "".join(tokens)


_CHANGES: tuple[Callable[[random.Random, str, Sequence[str]], str], ...] = (
    _flip, _put, _put, _delete, _lend, _lend, _number, _rename, _line, _nest,
)  # fmt: skip
