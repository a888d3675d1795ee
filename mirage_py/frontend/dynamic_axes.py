"""Axes of a call whose sizes change: which they are, and the same call at other sizes."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mirage_py.arguments import shown
from mirage_py.errors import InputError
from mirage_py.frontend.torch.guards.call_key import Call
from mirage_py.frontend.torch.guards.calls import Signature

# For each parameter its axes, each with the name of its size or, in a sequence, without.
Declared = Mapping[str, Mapping[int, str] | Sequence[int]]

# What torch._dynamo.mark_dynamic and mark_static leave on a tensor.
_MARK = "_dynamo_dynamic_indices"
_STATIC_MARK = "_dynamo_static_indices"


@dataclass(frozen=True, slots=True)
class DynamicAxis:
    """An axis of a leaf of the call, and the name of its size: equal names are equal sizes."""

    leaf: int
    axis: int
    name: str


def marks_of(leaves: Sequence[Any]) -> tuple[Hashable, ...]:
    """What torch._dynamo.mark_dynamic and mark_static said of these; empty where they said nothing.

    Asked at every call.
    """
    for leaf in leaves:
        said = getattr(leaf, "__dict__", None)
        if said and (_MARK in said or _STATIC_MARK in said):
            break
    else:
        return ()
    return tuple(
        tuple(tuple(sorted(getattr(leaf, mark, ()))) for mark in (_MARK, _STATIC_MARK))
        for leaf in leaves
    )


def check_axes(declared: object) -> None:
    """InputError for what is no ``Declared``."""
    if declared is None:
        return
    if isinstance(declared, Mapping) and all(
        isinstance(name, str) and _are_axes(axes) for name, axes in declared.items()
    ):
        return
    raise InputError(
        f"'dynamic' is {shown(declared)}",
        why="it says which axes of which parameters change",
        repair='pass a dict such as dynamic={"x": {0: "tokens"}}, or {"x": (0,)} without names',
    )


def _are_axes(axes: object) -> bool:
    if isinstance(axes, Mapping):
        return all(type(a) is int and isinstance(name, str) for a, name in axes.items())
    if isinstance(axes, str) or not isinstance(axes, Sequence):
        return False
    return all(type(a) is int for a in axes)


def check_declared(declared: Declared | None, signature: Signature) -> None:
    """InputError for a name that is no parameter of the function: its axes would stay static."""
    if not declared or signature.parameters is None:
        return
    known = signature.parameters.parameters
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in known.values()):
        return
    for name in declared:
        if name not in known:
            raise InputError(
                f"dynamic= names '{name}', which is no parameter",
                why=f"the parameters are {', '.join(known)}",
                repair='name one of them, as in dynamic={"x": {0: "tokens"}}',
            )


def dynamic_axes(
    call: Call, names: Sequence[str], declared: Declared | None
) -> tuple[DynamicAxis, ...]:
    """The axes that ``declared`` names and those that torch._dynamo.mark_dynamic marked, less those
    of mark_static.

    Marked axes of one size have one name, as torch has it. Raises InputError for an axis that there
    is none of.
    """
    found: dict[tuple[int, int], str] = {}
    if declared and call.structure is None:
        for leaf, name in enumerate(names):
            if name in declared:
                for axis, size in _named(declared[name], name):
                    found[leaf, _place(call.leaves[leaf], axis, name)] = size
    by_size: dict[int, str] = {}
    for leaf, value in enumerate(call.leaves):
        marked = getattr(value, _MARK, None)
        if marked:
            for axis in sorted(marked):
                label = names[leaf] if call.structure is None else f"leaf{leaf}"
                name = by_size.setdefault(value.shape[axis], f"{label}_{axis}")
                found.setdefault((leaf, axis), name)
        for axis in sorted(getattr(value, _STATIC_MARK, ())):
            found.pop((leaf, axis), None)
    return tuple(DynamicAxis(leaf, axis, name) for (leaf, axis), name in sorted(found.items()))


def leading_axis(call: Call) -> tuple[DynamicAxis, ...]:
    """The first axis of the first tensor."""
    tensors = (n for n, v in enumerate(call.leaves) if isinstance(v, torch.Tensor) and v.dim())
    return tuple(DynamicAxis(n, 0, "rows") for n in itertools.islice(tensors, 1))


def sizes_of(call: Call, axes: Sequence[DynamicAxis]) -> dict[str, int] | None:
    """The size of each name; None where one name stands for two sizes."""
    sizes: dict[str, int] = {}
    for a in axes:
        size = call.leaves[a.leaf].shape[a.axis]
        if sizes.setdefault(a.name, size) != size:
            return None
    return sizes


def group_key(call: Call, axes: Sequence[DynamicAxis]) -> Hashable:
    """Equal for calls that differ in the sizes of these axes alone, and in strides over them."""
    by_leaf: dict[int, dict[int, str]] = {}
    for a in axes:
        by_leaf.setdefault(a.leaf, {})[a.axis] = a.name
    return tuple(
        (
            tuple(names.get(n, extent) for n, extent in enumerate(tensor.shape)),
            tuple(
                None if n in over or (tensor.shape[n] == 1 and n not in names) else stride
                for n, stride in enumerate(_steps(tensor, names))
            ),
        )
        for leaf, names in by_leaf.items()
        for tensor in (call.leaves[leaf],)
        for over in (_outside(tensor, names),)
    )


def call_at(call: Call, axes: Sequence[DynamicAxis], sizes: Mapping[str, int]) -> Call:
    """The call with fresh tensors, of any values, where an axis has another size."""
    wanted: dict[int, dict[int, int]] = {}
    for a in axes:
        wanted.setdefault(a.leaf, {})[a.axis] = sizes[a.name]
    leaves = list(call.leaves)
    for leaf, extents in wanted.items():
        leaves[leaf] = _resized(leaves[leaf], extents)
    return Call(tuple(leaves), call.structure)


def without_sizes(call: Call, axes: Sequence[DynamicAxis]) -> Call:
    """The call without the tensors that have such an axis: the rest of its key."""
    dropped = {a.leaf for a in axes}
    leaves = [
        ("sized", v.dtype, v.device, v.requires_grad) if n in dropped else v
        for n, v in enumerate(call.leaves)
    ]
    return Call(tuple(leaves), call.structure)


# -- inside ----------------------------------------------------------------------------------------


def _named(axes: Mapping[int, str] | Sequence[int], parameter: str) -> Iterator[tuple[int, str]]:
    if isinstance(axes, Mapping):
        yield from axes.items()
        return
    for axis in axes:
        yield axis, f"{parameter}_{axis}".replace("-", "m")


def _place(value: Any, axis: int, name: str) -> int:
    rank = value.dim() if isinstance(value, torch.Tensor) else 0
    if not -rank <= axis < rank:
        raise InputError(
            f"'{name}' has no axis {axis}",
            where="dynamic",
            why=f"it has {rank} axes",
            repair="name axes of tensors by their number, from 0 or, from the last, -1",
        )
    return axis % rank


def _outside(tensor: torch.Tensor, inner: Mapping[int, Any]) -> tuple[int, ...]:
    """The axes whose step is over one of the axes ``inner``."""
    steps = tensor.stride()
    return tuple(
        axis
        for axis, step in enumerate(steps)
        if any(i != axis and 0 < steps[i] and (steps[i], -i) < (step, -axis) for i in inner)
    )


def _steps(tensor: torch.Tensor, inner: Mapping[int, Any]) -> list[int]:
    """The strides, with that of an axis of one point, which may be any, as if it had more."""
    steps = list(tensor.stride())
    over = _outside(tensor, inner)
    reach = [tensor.shape[n] * s for n, s in enumerate(steps) if n not in (*inner, *over)]
    return [
        max(reach, default=1) if n in inner and tensor.shape[n] == 1 else step
        for n, step in enumerate(steps)
    ]


def _resized(tensor: torch.Tensor, extents: Mapping[int, int]) -> torch.Tensor:
    """A tensor of the same order of axes in memory, with other extents."""
    shape, strides = list(tensor.shape), _steps(tensor, extents)
    for inner, extent in extents.items():
        for axis in _outside(tensor, {inner: extent}):
            strides[axis] = strides[axis] // max(1, tensor.shape[inner]) * extent
        shape[inner] = extent
    fresh = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)
    return fresh.requires_grad_(tensor.requires_grad)
