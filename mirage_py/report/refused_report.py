"""The report of a program that was refused: what happened, why, what serves, what to try."""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.errors import MirageError
from mirage_py.report.page.page import render

_MEANINGS = {
    1: "a fault of mirage_py: please report it with the program",
    2: "the input is at fault, and says so before any search",
    4: "verification failed: what was found is not used",
    5: "an operator or a form that mirage_py does not know",
    6: "no candidate compiled or ran",
}
SECTIONS = (("start", "Start"), ("again", "Run it again"), ("program", "Program"))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no kernel. ``serves`` is what runs in its place, empty where nothing does;
    ``parts`` say what became of a function that is served in parts.
    """

    name: str
    what: str
    where: str = ""
    why: str = ""
    repair: str = ""
    meaning: str = ""
    command: str = ""
    source: str = ""
    serves: str = ""
    parts: tuple[str, ...] = ()


def refusal_of(name: str, error: MirageError, *, command: str = "", source: str = "") -> Refusal:
    """From the error that ended a command."""
    meaning = f"exit code {error.exit_code}: {_MEANINGS.get(error.exit_code, 'an error')}"
    return Refusal(name, error.what, error.where, error.why, error.repair, meaning, command, source)


def refused_html(refusal: Refusal) -> str:
    """One HTML file."""
    answers = (
        ("How much faster?", "Not at all: there is no kernel of ours", "start"),
        ("Against what?", "Nothing was timed", "start"),
        ("Is it measured?", "No: nothing of ours ran", "start"),
        ("On which GPU?", "None was used", "start"),
        ("Is it proved?", "There is nothing to prove", "start"),
        ("What may still be wrong?", "Nothing of ours is used", "start"),
        ("Which kernel does what?", "There is none as a whole", "program"),
        ("Why no kernel?", refusal.what, "why"),
        ("What serves instead?", refusal.serves or "Nothing: the command ended", "why"),
        ("How do I run it again?", refusal.command or "Call it with the same arguments", "again"),
    )
    return render(
        "refused.html.j2",
        title=f"{refusal.name}: refused",
        sections=SECTIONS,
        refusal=refusal,
        answers=answers,
    )
