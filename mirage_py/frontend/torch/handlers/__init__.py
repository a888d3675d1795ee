"""One handler per ATen operator, one file per family. ``HANDLERS`` is the whole table."""

from __future__ import annotations

from mirage_py.frontend.torch.handlers import (
    activations,
    arithmetic,
    attention,
    casts,
    constants,
    contractions,
    convolutions,
    losses,
    masks,
    normalisations,
    ordered,
    pooling,
    reads,
    reductions,
    shapes,
)
from mirage_py.frontend.torch.handlers.registry import Row, rows

HANDLERS = rows()

__all__ = [
    "HANDLERS",
    "Row",
    "activations",
    "arithmetic",
    "attention",
    "casts",
    "constants",
    "contractions",
    "convolutions",
    "losses",
    "masks",
    "normalisations",
    "ordered",
    "pooling",
    "reads",
    "reductions",
    "shapes",
]
