"""``@superoptimize`` and its options; what a decorated function does is in superoptimized.py."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, overload

import torch

from mirage_py.errors import InputError
from mirage_py.frontend.dynamic_axes import Declared
from mirage_py.frontend.searches import CallOptions
from mirage_py.frontend.superoptimized import SuperoptimizedFunction
from mirage_py.frontend.superoptimized_module import SuperoptimizedModule

__all__ = ["CallOptions", "SuperoptimizedFunction", "superoptimize"]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def superoptimize(fn: torch.nn.Module, /) -> SuperoptimizedModule: ...  # type: ignore[overload-overlap]


@overload
def superoptimize(fn: Callable[P, R], /) -> SuperoptimizedFunction[P, R]: ...


@overload
def superoptimize(
    fn: None = None,
    /,
    *,
    target: str = "auto",
    backend: str = "auto",
    effort: str = "quick",
    budget: float | None = None,
    seed: int = 0,
    strict: bool = False,
    cache: bool = True,
    shapes: str | None = None,
    dynamic: Declared | None = None,
    edges: tuple[int, ...] = (),
    plan: Path | str | None = None,
    invariant: bool = False,
) -> Callable[[Callable[P, R]], SuperoptimizedFunction[P, R]]: ...


def superoptimize(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    target: str = "auto",
    backend: str = "auto",
    effort: str = "quick",
    budget: float | None = None,
    seed: int = 0,
    strict: bool = False,
    cache: bool = True,
    shapes: str | None = None,
    dynamic: Declared | None = None,
    edges: tuple[int, ...] = (),
    plan: Path | str | None = None,
    invariant: bool = False,
) -> Any:
    """Make a torch function call the fastest kernels that can be found for it.

    Use it as ``@superoptimize`` or ``@superoptimize(effort="full")``. ``budget`` limits the search
    of a signature, in seconds. Kernels, torch.compile of the function and the function itself are
    timed (except with effort ``none``), and the fastest serves. With ``strict``, an error is raised
    where otherwise the function itself would run with a warning.

    ``shapes`` sets how dimensions with changing sizes are served: ``static`` (a kernel for
    each size), ``bucketed`` (one for each bucket of sizes, whose upper ends ``edges`` may set), or
    ``symbolic`` (one for all). These dimensions are named by ``dynamic``, as in
    ``{"x": {0: "tokens"}}``, or marked by ``torch._dynamo.mark_dynamic``; the default for them is
    ``bucketed``. See docs/how-to/dynamic_shapes.md.

    ``plan`` is a saved artifact, or the plan text that ``explain`` prints: it serves calls with
    its program without a search.

    With ``invariant`` the bits of each row are the same however many rows a call has: one kernel
    serves all numbers of rows, and an error is raised if none can. Rows are the dynamic axes, or
    else the first axis of the first tensor. See docs/how-to/invariant_rows.md.

    Raises InputError for an unknown option.
    """
    ends: Any = edges
    options = CallOptions(
        target,
        backend,
        effort,
        budget,
        seed,
        strict,
        cache,
        shapes,
        dynamic,
        tuple(ends) if isinstance(ends, list) else ends,
        str(plan) if isinstance(plan, Path) else plan,
        invariant,
    )
    _ = options.request  # a wrong one is an error here, at any call none
    return functools.partial(_served, options) if fn is None else _served(options, fn)


def _served(
    options: CallOptions, fn: Callable[..., Any]
) -> SuperoptimizedFunction[..., Any] | SuperoptimizedModule:
    if isinstance(fn, SuperoptimizedFunction | SuperoptimizedModule):
        fn = fn.__wrapped__  # with other options
    if isinstance(fn, torch.nn.Module):
        return SuperoptimizedModule(fn, options)
    if not callable(fn):
        raise InputError(
            f"superoptimize was given a {type(fn).__name__}",
            why="it takes a function or a torch.nn.Module; options go by name",
            repair='write @superoptimize, or @superoptimize(effort="full")',
        )
    return SuperoptimizedFunction(fn, options)
