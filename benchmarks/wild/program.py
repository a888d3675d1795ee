"""A program of the suite ``wild``: a function as a user writes it, and its inputs at two sizes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

Function = Callable[..., Any]
# Of a size: what tests take, and what a real model has.
Extent = tuple[int, int]

_INPUT = re.compile(r"(\w+)(?:\[([\w,]*)\](?::(\w+)(?:<(\w+)>)?)?)?$")


@dataclass(frozen=True, slots=True)
class WildProgram:
    """``inputs`` names arguments in order, as in ``x[B,T] ids[B]:int<V> scale[]:f32 H``: data of
    the model's type, integers below V, a 0-d tensor in float32, and the size H itself.
    """

    name: str
    family: str
    function: Function
    inputs: str
    sizes: Mapping[str, Extent]

    def arguments(self, *, real: bool, device: str = "cpu", seed: int = 0) -> list[Any]:
        """New arguments: float32 at the small sizes, bfloat16 at real ones."""
        sizes = {name: extent[real] for name, extent in self.sizes.items()}
        dtype = torch.bfloat16 if real else torch.float32
        # On ``meta`` nothing has data.
        generator = torch.Generator("cpu" if device == "meta" else device)
        generator.manual_seed(zlib.crc32(self.name.encode()) + seed)
        words = self.inputs.split()
        return [_argument(word, sizes, dtype, device, generator) for word in words]


def _argument(
    word: str,
    sizes: Mapping[str, int],
    dtype: torch.dtype,
    device: str,
    generator: torch.Generator,
) -> Any:
    match = _INPUT.match(word)
    assert match is not None, word
    name, extents, kind, bound = match.groups()
    if extents is None:
        return sizes[name]
    shape = [sizes.get(e) or int(e) for e in extents.split(",") if e]
    if device == "meta":
        return torch.empty(shape, dtype=_TYPES.get(kind, dtype), device=device)
    if kind in ("int", "u8"):
        high = 256 if bound is None else sizes.get(bound) or int(bound)
        found = torch.randint(0, high, shape, generator=generator, device=device)
        return found.to(_TYPES[kind])
    if kind in ("i8", "i32"):
        most = 2 ** (7 if kind == "i8" else 31) - 1
        found = torch.randint(-most, most + 1, shape, generator=generator, device=device)
        return found.to(_TYPES[kind])
    if kind == "bool":
        found = torch.rand(shape, generator=generator, device=device) < 0.75
        # Some key of each row is there, as in every batch.
        found[..., :1] = True
        return found
    if kind in ("unit", "positive"):
        floor = 0.0 if kind == "unit" else 0.5
        return (torch.rand(shape, generator=generator, device=device) + floor).to(dtype)
    data = torch.randn(shape, generator=generator, device=device)
    # Weights are small, so that products of them are as large as what goes in.
    scale = shape[0] ** -0.5 if name.startswith("w") and len(shape) == 2 else 1.0
    return (data * scale).to(_TYPES.get(kind, dtype))


_TYPES = {
    "f32": torch.float32,
    "int": torch.int64,
    "i8": torch.int8,
    "i32": torch.int32,
    "u8": torch.uint8,
    "bool": torch.bool,
}
_FOUND: dict[str, WildProgram] = {}


def wild(inputs: str, **sizes: Extent) -> Callable[[Function], Function]:
    """Enter a function into the suite; its family is the module that it is in."""

    def enter(function: Function) -> Function:
        name = function.__name__
        assert name not in _FOUND, name
        family = function.__module__.rpartition(".")[2]
        _FOUND[name] = WildProgram(name, family, function, inputs, sizes)
        return function

    return enter


def entered() -> Mapping[str, WildProgram]:
    """What was entered so far."""
    return dict(_FOUND)
