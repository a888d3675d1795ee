"""Plans that broke the GPU context of a process: they are not launched again on this machine.

    CACHE/quarantine/KEY.txt    what happened

Candidates run in a worker first. What passed there may still go wrong elsewhere, where memory lies
otherwise, and then it is the user's process that ends: once, and not at every start.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from mirage_py import __version__
from mirage_py.reasons import Code, Reason, reason
from mirage_py.runtime.base.cached_text import cache_text, cached_text, has_texts
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.json_form import dump_text

_KIND = "quarantine"


def put_away(plan: Plan, words: str) -> None:
    """Remember that a plan is not to be launched, and why; not where there is no cache."""
    cache_text(_KIND, _content(plan), words)


def why_not(plan: Plan) -> Reason | None:
    """Why a plan is not to be launched; None where it may be."""
    # Nearly always there is none, and a plan as text takes 10 ms: seconds, of all that are tuned.
    words = cached_text(_KIND, _content(plan)) if has_texts(_KIND) else None
    if words is None:
        return None
    return reason(Code.QUARANTINED, words or "it broke the GPU context of a process")


def _content(plan: Plan) -> tuple[str, ...]:
    """Another version of a compiler makes another kernel of a plan."""
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = ""
    return dump_text(plan), __version__, triton
