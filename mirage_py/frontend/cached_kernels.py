"""Cached kernels of a decorated function: saved, explained, and served again without a search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mirage_py.errors import InputError
from mirage_py.frontend.entries import Entry
from mirage_py.reasons import Code, Reason, Served, Server, reason
from mirage_py.runtime.eager.compiled import serving
from mirage_py.runtime.eager.torch_steps import served_by
from mirage_py.runtime.store.artifact import Artifact, OriginalProgram
from mirage_py.runtime.store.plan_text import artifact_of, explanation
from mirage_py.runtime.store.saved import save_artifact
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.tiles_text import tiles_of


class Pinned:
    """Saved kernels, by the program that they compute; read when the first program asks."""

    def __init__(self, plan: str | None = None) -> None:
        self._waiting = [plan] if plan is not None else []
        self._artifacts: dict[str, Artifact] = {}

    def add(self, plan: str) -> None:
        """Take in the folder of an artifact or the text of a plan. Raises as ``artifact_of``."""
        artifact = artifact_of(plan)
        self._artifacts[artifact.program.digest] = artifact

    def kernel_for(self, program: Program) -> Callable[..., Any] | None:
        """The kernel that was saved for this very program: wiring, sizes, types and strides."""
        while self._waiting:
            self.add(self._waiting.pop())
        artifact = self._artifacts.get(program.digest)
        if artifact is None:
            return None
        if artifact.plan is None:
            return artifact.runner()
        runner: Any = artifact.runner()
        runner.source = "loaded"
        return runner  # type: ignore[no-any-return]


def what_serves(kernel: Callable[..., Any], itself: Callable[..., Any]) -> Served:
    """What runs for a kernel that an optimizer gave for a function: the tiles of ours, or why it is
    the function ``itself`` or a program in PyTorch.
    """
    if isinstance(kernel, OriginalProgram):
        return kernel.served
    if kernel is itself:
        return Served(Server.EAGER, Reason(Code.ORIGINAL_FASTER))
    plan = getattr(kernel, "plan", None)
    tiles = tiles_of(plan) if isinstance(plan, Plan) else "an optimised kernel"
    words = getattr(kernel, "description", None) or tiles
    in_parts = served_by(plan, words) if isinstance(plan, Plan) else None
    return in_parts or Served(Server.OURS, reason(Code.KERNEL, words))


def direct_form(
    kernel: Callable[..., Any],
    itself: Callable[..., Any],
    function: Callable[..., Any],
    *,
    dynamic: bool = False,
) -> Callable[..., Any] | None:
    """What serves calls of ``function`` with their own arguments, where an optimizer gave the
    function ``itself`` or torch.compile for it; None for kernels of ours.
    """
    if kernel is itself:
        return function
    if not isinstance(kernel, OriginalProgram):
        return None
    if itself is function:  # so it is compiled already
        return kernel.function
    return serving(function, kernel.record, dynamic=dynamic)


def operands_of(name: str, entry: Entry) -> tuple[Program, Plan | None]:
    """The program of a signature and the plan that serves it, None where a function does.

    Raises InputError where there is no program.
    """
    if entry.traced is None:
        raise InputError(
            f"{name}({entry.signature}) has no kernel",
            why=str(entry.served.why),
            repair="call it with arguments that a kernel can serve",
        )
    return entry.traced.program, getattr(entry.kernel, "plan", None)


def save_entry(folder: Path | str, name: str, entry: Entry, report: Mapping[str, Any]) -> None:
    """Write what serves a signature as an artifact. Raises InputError as ``operands_of`` does."""
    program, plan = operands_of(name, entry)
    save_artifact(folder, program=program, plan=plan, report=report)


def write_entry_report(
    path: Path | str, name: str, entry: Entry, report: Mapping[str, Any]
) -> Path:
    """Write a report on what serves a signature, or why no kernel does, as one HTML file."""
    from mirage_py.report.refused_report import Refusal
    from mirage_py.report.write import write_refused, write_report

    if entry.traced is not None:
        return write_report(Artifact(*operands_of(name, entry), report), path)
    parts = entry.instead.lines if entry.instead is not None else ()
    what = f"{name}({entry.signature}) has no kernel as a whole"
    by, why = entry.served.by, str(entry.served.why)
    return write_refused(Refusal(name, what, why=why, serves=str(by), parts=parts), path)


def explained(name: str, entry: Entry, report: Mapping[str, Any]) -> str:
    """What serves a signature and why, with the line that gives the same plan again."""
    head = [f"{name}({entry.signature})", f"served by: {entry.served} ({entry.source})"]
    if entry.traced is None:
        return "\n".join([*head, *(entry.instead.lines if entry.instead is not None else ())])
    validity = getattr(entry.kernel, "validity", None)
    if validity is not None:
        head.append(f"right for: {validity}")
    plan: Plan | None = getattr(entry.kernel, "plan", None)
    return "\n".join([*head, *explanation(entry.traced.program, plan, report)])
