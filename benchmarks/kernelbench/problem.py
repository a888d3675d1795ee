"""One problem of a checkout: its file, its model and inputs, at its own sizes or smaller ones."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# Extents of inputs that a reduced problem has at most.
_REDUCED = 32
_DRAWN = ("rand", "randn")
_FILLED = ("uniform_", "normal_", "kaiming_uniform_", "xavier_uniform_", "trunc_normal_")


@dataclass(frozen=True, slots=True)
class Problem:
    """A file of ``level``; ``key`` is level and number."""

    level: int
    path: Path

    @property
    def key(self) -> str:
        """As in ``L2-17``."""
        return f"L{self.level}-{self.path.stem.partition('_')[0]}"


def problems(checkout: Path, levels: Sequence[int]) -> list[Problem]:
    """The problems of these levels in order. Raises FileNotFoundError where a folder is missing."""
    roots = [checkout, checkout / "KernelBench"]
    found = []
    for level in levels:
        folder = next((r for root in roots if (r := root / f"level{level}").is_dir()), None)
        if folder is None:
            raise FileNotFoundError(f"no folder level{level} in {checkout}")
        files = [p for p in folder.glob("*.py") if p.stem.partition("_")[0].isdigit()]
        files.sort(key=lambda p: int(p.stem.partition("_")[0]))
        found += [Problem(level, path) for path in files]
    return found


def every_kth(chosen: Sequence[Problem], k: int) -> list[Problem]:
    """Of each level the first problem and every k-th after it, the levels by turns: whenever a run
    ends, what it has is spread over all of them.
    """
    levels: dict[int, list[Problem]] = {}
    for problem in chosen:
        levels.setdefault(problem.level, []).append(problem)
    picked = [found[::k] for found in levels.values()]
    return [p for row in zip_longest(*picked) for p in row if p is not None]


class _NotFilled(TorchFunctionMode):
    """Tensors are made and not filled: only their shapes matter, and pages stay untouched."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Memory as it is in the place of random numbers."""
        del types
        given = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _DRAWN:
            return torch.empty(*args, **given)
        if name in _FILLED:
            return args[0] if args else given["tensor"]
        return func(*args, **given)


def load(
    problem: Problem, *, filled: bool = True, reduced: bool = False
) -> tuple[torch.nn.Module, list[Any]]:
    """The model and its inputs."""
    text = problem.path.read_text(encoding="utf-8")
    if reduced:
        text = reduced_source(text)
    module = ModuleType(f"kernelbench_{problem.key.replace('-', '_')}")
    module.__file__ = str(problem.path)
    sys.modules[module.__name__] = module

    def made() -> tuple[torch.nn.Module, list[Any]]:
        exec(compile(text, str(problem.path), "exec"), module.__dict__)
        return module.Model(*module.get_init_inputs()), list(module.get_inputs())

    if filled:
        torch.manual_seed(42)
        return made()
    with _NotFilled():
        return made()


def reduced_source(text: str) -> str:
    """The same problem with small inputs: numbers that only ``get_inputs`` reads are made small."""
    tree = ast.parse(text)
    kept: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "get_init_inputs":
            kept |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    for node in tree.body:
        names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
        if isinstance(node, ast.Assign) and not any(n in kept for n in names):
            for part in ast.walk(node.value):
                if isinstance(part, ast.Constant) and type(part.value) is int:
                    part.value = min(part.value, _REDUCED)
    return ast.unparse(tree)
