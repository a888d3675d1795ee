"""Questions of the kind "why not ...", read from words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mirage_py.errors import InputError
from mirage_py.questions.subject import Subject
from mirage_py.ugraph.ir.launch_config import launch_options
from mirage_py.ugraph.ir.ugraph import BlockGraph

_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4}
_ORIGINAL = ("original", "the original", "the original program", "baseline", "eager",
             "torch.compile", "pytorch")  # fmt: skip
# What people call options.
_ALIASES = {
    "tma": ("copies", "descriptors"),
    "pdl": ("start", "early"),
    "warp specialization": ("producer", "warps"),
    "ping-pong": ("turns", "on"),
    "persistent": ("blocks", ""),
    "tf32": ("precision", "tf32"),
}


@dataclass(frozen=True, slots=True)
class OfPlan:
    """A plan by its number in the report."""

    number: int


@dataclass(frozen=True, slots=True)
class OfKind:
    """Plans of a kind: a word of search.tilings.kinds, a split of one dimension, in so many
    splits, or a number of kernels.
    """

    word: str = ""
    dim: str = ""
    splits: int = 0
    kernels: int = 0


@dataclass(frozen=True, slots=True)
class OfBackEnd:
    """Plans of the other back end."""

    backend: str


@dataclass(frozen=True, slots=True)
class OfTile:
    """Another tile of a dimension: of the grid, of loops, or (``where`` is empty) of both."""

    dim: str
    size: int
    where: str = ""


@dataclass(frozen=True, slots=True)
class OfLaunch:
    """Another launch option: ``key`` is that of stored plans, or ``warps`` or ``stages`` with a
    number as text; an empty ``text`` asks about every value.
    """

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class OfOriginal:
    """What there was before: eager PyTorch, torch.compile, the vendor's library."""


Question = OfPlan | OfKind | OfBackEnd | OfTile | OfLaunch | OfOriginal


def read_question(text: str, subject: Subject) -> Question:
    """The question that words ask. Raises InputError, with what can be asked, for any other."""
    words = " ".join(re.sub(r"[?=:]", " ", text.lower()).split())
    words = words.removeprefix("why not ").removeprefix("a ")
    for read in (_plan, _plain_word, _kind, _launch_number, _tile, _option):
        found = read(words, subject)
        if found is not None:
            return found
    raise InputError(
        f"'{text:.80}' is no question about this result",
        where=subject.where,
        why="nothing of that name was part of the search",
        repair="ask one of: " + "; ".join(askable(subject)),
    )


def askable(subject: Subject) -> Iterator[str]:
    """What can be asked about a result, by example."""
    dims = _tiled_dims(subject)
    if subject.tried:
        yield f"a plan's number, 0 to {len(subject.tried) - 1}"
    yield "a kind: split, split DIM x8, cluster, library, atomic, one kernel, two kernels"
    yield "a back end: triton, cuda"
    if dims:
        yield f"a tile: tile DIM N, grid DIM N or loop DIM N with DIM of {', '.join(dims)}"
        keys = ", ".join(sorted(o.key for o in launch_options().values() if o.key != "evict:"))
        yield f"a launch option: 8 warps, 2 stages, or one of {keys} with its value"
    yield "original: eager PyTorch, torch.compile"


def _plan(words: str, subject: Subject) -> Question | None:
    found = re.fullmatch(r"(?:plan )?#?(\d{1,6})", words)
    if found is None:
        return None
    number = int(found[1])
    if number < len(subject.tried):
        return OfPlan(number)
    held = f"the report has {len(subject.tried)} plans"
    raise InputError(
        f"there is no plan {number}",
        where=subject.where,
        why=held,
        repair=f"name one from 0 to {len(subject.tried) - 1}" if subject.tried else "ask: original",
    )


def _plain_word(words: str, subject: Subject) -> Question | None:
    if words in ("cuda", "triton"):
        return OfBackEnd(words)
    if words in (*_ORIGINAL, subject.report["baseline"]["name"].lower()):
        return OfOriginal()
    return None


def _kind(words: str, subject: Subject) -> Question | None:
    found = re.fullmatch(r"split(?: (?!x ?\d)(\w+?))?(?: ?x ?(\d+))?", words)
    if found is not None:
        dim = _dim(found[1], subject.program.dim_names) if found[1] else ""
        return None if dim is None else OfKind("split", dim, int(found[2] or 0))
    if words.removesuffix("s") in ("cluster", "atomic"):
        return OfKind(words.removesuffix("s"))
    if words in ("library", "library call", "library calls"):
        return OfKind("library")
    found = re.fullmatch(r"(one|two|three|four|\d+) kernels?", words)
    if found is not None:
        return OfKind(kernels=_NUMBERS.get(found[1]) or int(found[1]))
    return OfKind(kernels=1) if words in ("fused", "fusion") else None


def _launch_number(words: str, subject: Subject) -> Question | None:
    del subject
    words = words.removeprefix("num_")  # as Triton spells it
    found = re.fullmatch(r"(\d{1,4}) ?(warp|stage)s?|(warp|stage)s? (\d{1,4})", words)
    if found is None:
        return None
    return OfLaunch(f"{found[2] or found[3]}s", found[1] or found[4])


def _tile(words: str, subject: Subject) -> Question | None:
    found = re.fullmatch(r"(?:(tile|grid|loop) )?(\S+?) ?(?:by |of | )(\d{1,9})", words)
    if found is None:
        return None
    dim = _dim(found[2], _tiled_dims(subject) or subject.program.dim_names)
    if dim is None:
        if found[1] is None:
            return None
        raise InputError(
            f"there is no dimension '{found[2]}'",
            where=subject.where,
            repair=f"name one of {', '.join(_tiled_dims(subject))}",
        )
    return OfTile(dim, int(found[3]), "" if found[1] in (None, "tile") else found[1])


def _option(words: str, subject: Subject) -> Question | None:
    del subject
    if words in _ALIASES:
        return OfLaunch(*_ALIASES[words])
    key, _, text = words.partition(" ")
    options = {o.key: o for o in launch_options().values()}
    if key in options and key != "evict:":
        return OfLaunch(key, text)
    # A value that only one option has: reversed, grouped, lazy.
    having = [o.key for o in options.values() if words in o.text.values]
    is_one = len(having) == 1 and words not in ("on", "off")
    return OfLaunch(having[0], words) if is_one else None


def _dim(word: str, dims: Sequence[str]) -> str | None:
    """A dimension by its name, whatever its case."""
    if word in dims:
        return word
    same = [d for d in dims if d.lower() == word.lower()]
    return same[0] if len(same) == 1 else None


def _tiled_dims(subject: Subject) -> tuple[str, ...]:
    return () if subject.plan is None else subject.plan.ugraph.program.dim_names


def blocks_of(subject: Subject) -> tuple[tuple[int, BlockGraph], ...]:
    """The winner's kernels that are no library calls, with their places."""
    kernels = () if subject.plan is None else subject.plan.ugraph.kernels
    return tuple((n, k) for n, k in enumerate(kernels) if isinstance(k, BlockGraph))
