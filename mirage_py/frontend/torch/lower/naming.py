"""Readable names: dimensions by their role in the first operator that reads a tensor.

The letters are those of papers: rows m and columns n of a product over k; batch b, heads h, queries
s, keys t, features d of an attention. A name that is taken gets a number.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Sequence

import torch

from mirage_py.ugraph.ir.renaming import free_name

_BY_RANK = {0: "", 1: "d", 2: "md", 3: "bsd", 4: "bhsd"}
_ATTENTION = ("bhsd", "bhtd", "bhte")
_PRODUCTS = ("aten.matmul.default", "aten.mm.default", "aten.bmm.default")

# A letter that names a tensor of the function already is spelled out.
_SPELLED = {
    "b": "batch",
    "d": "features",
    "e": "values",
    "h": "heads",
    "k": "inner",
    "m": "rows",
    "n": "columns",
    "s": "queries",
    "t": "keys",
}


def dimension_hints(placeholder: torch.fx.Node, rank: int, taken: Collection[str]) -> list[str]:
    """One name per axis of an input."""
    usual = _letters(placeholder, rank).rjust(rank, "b")
    letters = usual[len(usual) - rank :]
    return [_SPELLED.get(letter, letter) if letter in taken else letter for letter in letters]


def _letters(placeholder: torch.fx.Node, rank: int) -> str:
    usual = _BY_RANK.get(rank, "bhsd")
    user = next(iter(placeholder.users), None)
    if user is None or placeholder not in user.args:
        return usual
    operator, place = str(user.target), list(user.args).index(placeholder)
    if operator == "aten.scaled_dot_product_attention.default" and place < 3:
        return _ATTENTION[place] if rank == 4 else _ATTENTION[place].replace("h", "")
    if operator == "aten.linear.default" and place == 1:
        return "nk"
    if operator == "aten.linear.default" and place == 2:
        return "n"
    if operator in _PRODUCTS and place == 1 and rank >= 2:
        return "kn" if rank == 2 else "bkn"
    if operator in _PRODUCTS and place == 0 and rank == 2:
        return "mk"
    return usual


def identifier(text: str, fallback: str) -> str:
    """``text`` as a plain name: ``layers.0.weight`` -> ``layers_0_weight``."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    if not name or keyword.iskeyword(name):
        return fallback
    return name if not name[0].isdigit() else f"{fallback}_{name}"


def distinct(names: Sequence[str]) -> list[str]:
    """The same names, with a number where one was there before."""
    taken: set[str] = set()
    return [free_name(name, taken) for name in names]
