"""The key of a call: equal keys share a prepared kernel, and some calls have none."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, Protocol

import torch
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _get_current_dispatch_mode

from mirage_py.frontend.torch.guards.calls import Signature
from mirage_py.frontend.torch.guards.plain_values import is_plain, sign
from mirage_py.frontend.torch.lower.lowering import program_dtype
from mirage_py.settings import torch_rounds

_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)
_CONTAINERS = (tuple, list, dict)


@dataclass(frozen=True, slots=True)
class Call:
    """A call's arguments as leaves; ``structure`` is None where every argument is a leaf itself."""

    leaves: tuple[Any, ...]
    structure: pytree.TreeSpec | None

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The leaves that are tensors."""
        return tuple(leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor))


class NamedSize(Protocol):
    """An axis of a leaf, and the name of its size."""

    @property
    def leaf(self) -> int:
        """Its place among the leaves."""

    @property
    def axis(self) -> int:
        """Its number."""

    @property
    def name(self) -> str:
        """What the size is called."""


class CallReader:
    """Reads calls of one function; the common spelling is read without binding names."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        parameters = signature.parameters.parameters if signature.parameters else {}
        self.names = tuple(parameters)
        self._defaults = tuple(p.default for p in parameters.values())
        self._is_plain = bool(parameters) and all(
            p.kind is Parameter.POSITIONAL_OR_KEYWORD for p in parameters.values()
        )

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        """The leaves of a call, however it is spelled; TypeError where Python would raise it."""
        if self._is_plain and not kwargs and len(args) <= len(self.names):
            values = args + self._defaults[len(args) :]
            for value in values:  # a generator would take three times as long
                if type(value) not in _PLAIN_TENSORS and (
                    isinstance(value, _CONTAINERS) or value is Parameter.empty
                ):
                    break
            else:
                return Call(values, None)
        leaves, structure = pytree.tree_flatten(self.signature.bind(args, kwargs))
        # A list of one tensor is one leaf, too, and the function wants the list.
        leaves_alone = structure.num_nodes == structure.num_leaves + 1
        flat = leaves_alone and structure.num_children == len(self.names)
        return Call(tuple(leaves), None if flat else structure)

    def arguments(self, call: Call) -> dict[str, Any]:
        """The call's arguments by name."""
        if call.structure is None:
            return dict(zip(self.names, call.leaves, strict=True))
        arguments = pytree.tree_unflatten(call.leaves, call.structure)
        assert isinstance(arguments, dict)
        return arguments

    def describe(self, call: Call, sizes: Sequence[NamedSize] = ()) -> str:
        """The call as a person would note it: ``x: f16[16, 4096], eps: 1e-06``.

        The extents of axes of many ``sizes`` are their names.
        """
        names = self.names if call.structure is None else ("",) * len(call.leaves)
        named: dict[int, dict[int, str]] = {}
        for size in sizes:
            named.setdefault(size.leaf, {})[size.axis] = size.name
        parts = [_described(leaf, named.get(n, {})) for n, leaf in enumerate(call.leaves)]
        return ", ".join(
            f"{name}: {part}" if name else part for name, part in zip(names, parts, strict=True)
        )


def call_key(call: Call) -> Hashable:
    """Equal for calls that one kernel can serve; its hash fails where an argument has none."""
    return tuple([_leaf_key(leaf) for leaf in call.leaves]), call.structure, *ambient()


def tensor_key(tensor: torch.Tensor) -> Hashable:
    """Shape, type, strides and device; whether a gradient is wanted."""
    wanted = tensor.requires_grad and torch.is_grad_enabled()
    if not has_strides(tensor):
        return tensor.layout, tensor.dtype, tensor.device, wanted
    return tensor.shape, tensor.dtype, tensor.stride(), tensor.device, wanted


def has_strides(tensor: torch.Tensor) -> bool:
    """Whether it lies in memory by strides; torch ends the process that makes a guard of others."""
    return tensor.layout is torch.strided and not tensor.is_nested


def is_watched(leaves: Sequence[Any]) -> bool:
    """Whether something records or transforms the call: it must see the function itself."""
    if _get_current_dispatch_mode() is not None or torch._C._is_tracing():  # noqa: SLF001
        return True
    if getattr(forward_ad, "_current_level", -1) >= 0:  # a kernel would lose tangents
        return True
    # Inside vmap, grad and the like a tensor looks plain, yet stands for many.
    if torch._C._functorch.maybe_current_level() is not None:  # noqa: SLF001
        return True
    for leaf in leaves:  # noqa: SIM110  a generator would take three times as long
        if type(leaf) not in _PLAIN_TENSORS and _is_symbolic(leaf):
            return True
    return False


def _is_symbolic(leaf: Any) -> bool:
    return isinstance(leaf, (torch.Tensor, torch.fx.Proxy))


def _leaf_key(leaf: Any) -> Hashable:
    if isinstance(leaf, torch.Tensor):
        return tensor_key(leaf)
    # 1, 1.0 and True are equal in Python and different in a program, and so are objects: what a
    # trace holds to is the state of one of them.
    which = sign(leaf) if is_plain(leaf) else id(leaf)
    if type(leaf) is slice:  # before Python 3.12 it has no hash
        return slice, *map(_leaf_key, (leaf.start, leaf.stop, leaf.step))
    return type(leaf), leaf, which, isinstance(leaf, torch.nn.Module) and leaf.training


def ambient() -> tuple[Hashable, ...]:
    """State of torch that changes what a function computes."""
    on_gpu = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
    on_cpu = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    # A library's convolutions do at each call what torch is set to.
    rounds, _ = torch_rounds()
    return torch.is_grad_enabled(), on_gpu, on_cpu, torch.get_default_dtype(), rounds


def _described(leaf: Any, sizes: Mapping[int, str]) -> str:
    if not isinstance(leaf, torch.Tensor):
        is_short = leaf is None or isinstance(leaf, (int, float, str))
        return repr(leaf) if is_short else type(leaf).__name__
    kind = program_dtype(leaf.dtype) or str(leaf.dtype).removeprefix("torch.")
    if not has_strides(leaf):
        layout = "nested" if leaf.is_nested else str(leaf.layout).removeprefix("torch.")
        return f"{kind} {layout} on {leaf.device}"
    strides = "" if leaf.is_contiguous() else f" strides {list(leaf.stride())}"
    shape = ", ".join(str(sizes.get(axis, extent)) for axis, extent in enumerate(leaf.shape))
    return f"{kind}[{shape}]{strides} on {leaf.device}"
