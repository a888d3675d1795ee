"""Cached kernels of a decorated function: saved, explained, and served again without a search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from mirage_py.errors import InputError
from mirage_py.frontend.torch.trace import TracedCall
from mirage_py.runtime.sized.sized_launch import runner_of
from mirage_py.runtime.store.artifact import Artifact
from mirage_py.runtime.store.plan_text import artifact_of, explanation
from mirage_py.runtime.store.saved import save_artifact
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.tiles_text import tiles_of


class Served(Protocol):
    """What serves a signature."""

    @property
    def signature(self) -> str:
        """The call as text."""

    @property
    def served_by(self) -> str:
        """A description of the kernel, or why there is none."""

    @property
    def kernel(self) -> Callable[..., Any] | None:
        """The kernel, if there is one."""

    @property
    def traced(self) -> TracedCall | None:
        """The program, if the function could be traced."""

    @property
    def source(self) -> str:
        """Where it came from, in a word."""


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
        runner: Any = runner_of(artifact.plan)
        runner.source = "loaded"
        return runner  # type: ignore[no-any-return]


def described(kernel: Callable[..., Any]) -> str:
    """A kernel in a line: its tiles, where it has a plan."""
    plan = getattr(kernel, "plan", None)
    return tiles_of(plan) if isinstance(plan, Plan) else "an optimised kernel"


def operands_of(name: str, served: Served) -> tuple[Program, Plan | None]:
    """The program of a signature and the plan that serves it, None where a function does.

    Raises InputError where there is no program.
    """
    if served.traced is None:
        raise InputError(
            f"{name}({served.signature}) has no kernel",
            why=served.served_by,
            repair="call it with arguments that a kernel can serve",
        )
    return served.traced.program, getattr(served.kernel, "plan", None)


def save_entry(folder: Path | str, name: str, served: Served, report: Mapping[str, Any]) -> None:
    """Write what serves a signature as an artifact. Raises InputError as ``operands_of`` does."""
    program, plan = operands_of(name, served)
    save_artifact(folder, program=program, plan=plan, report=report)


def explained(name: str, served: Served, report: Mapping[str, Any]) -> str:
    """What serves a signature and why, with the line that gives the same plan again."""
    head = [f"{name}({served.signature})", f"served by: {served.served_by} ({served.source})"]
    if served.traced is None:
        return "\n".join(head)
    validity = getattr(served.kernel, "validity", None)
    if validity is not None:
        head.append(f"right for: {validity}")
    plan: Plan | None = getattr(served.kernel, "plan", None)
    return "\n".join([*head, *explanation(served.traced.program, plan, report)])
