"""A module that is served by kernels, and still a module.

Parameters, buffers and submodules are those of the module it was made of, under the same names, so
its state, its device, its mode and its gradients are one and the same. Hooks on it run around the
kernel; hooks on the module inside are part of what is traced.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, cast

import torch

from mirage_py.frontend.entries import Entry
from mirage_py.frontend.searches import CallOptions, Optimizer, SizedOptimizer
from mirage_py.frontend.superoptimized import SuperoptimizedFunction

# What both modules hold as one object.
_SHARED = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")


class SuperoptimizedModule(torch.nn.Module):
    """Made by ``superoptimize``; what it has besides a module is that of SuperoptimizedFunction."""

    __wrapped__: torch.nn.Module

    def __init__(
        self,
        module: torch.nn.Module,
        options: CallOptions | None = None,
        optimizer: Optimizer | None = None,
        sized_optimizer: SizedOptimizer | None = None,
    ) -> None:
        super().__init__()
        self.training = module.training
        served = SuperoptimizedFunction[..., Any](module, options, optimizer, sized_optimizer)
        # Past Module's own setter: the module is not a part of this one, it is this one.
        vars(self).update({name: vars(module)[name] for name in _SHARED})
        vars(self).update(__wrapped__=module, _served=served, options=served.options)

    def served(self) -> SuperoptimizedFunction[..., Any]:
        """The function that has the kernels."""
        return cast("SuperoptimizedFunction[..., Any]", vars(self)["_served"])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the kernel for these arguments; prepare it first if there is none."""
        return self.served()(*args, **kwargs)

    def train(self, mode: bool = True) -> SuperoptimizedModule:
        """The mode of the module and of all its parts."""
        self.__wrapped__.train(mode)
        self.training = mode
        return self

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        """See SuperoptimizedFunction.prepare."""
        self.served().prepare(*args, **kwargs)

    def dispatch_table(self) -> str:
        """One line for each signature met so far, and what serves it."""
        return self.served().dispatch_table()

    def entry(self, *args: Any, **kwargs: Any) -> Entry:
        """What serves these arguments, prepared if need be."""
        return self.served().entry(*args, **kwargs)

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """See SuperoptimizedFunction.explain."""
        return self.served().explain(*args, **kwargs)

    def save(self, folder: Path | str, *args: Any, **kwargs: Any) -> None:
        """See SuperoptimizedFunction.save."""
        self.served().save(folder, *args, **kwargs)

    def load(self, plan: Path | str) -> None:
        """See SuperoptimizedFunction.load."""
        self.served().load(plan)

    def as_torch_op(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """See SuperoptimizedFunction.as_torch_op."""
        return self.served().as_torch_op(name, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # Parameters, buffers and submodules first, then what else the module has.
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(vars(self)["__wrapped__"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        """What is set here is set in the module, but for the mode and what is this one's own."""
        inside = vars(self).get("__wrapped__")
        if inside is None or name in vars(self):
            super().__setattr__(name, value)
        else:
            setattr(inside, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__wrapped__, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.served().made_of

    def __deepcopy__(self, memo: dict[int, Any]) -> SuperoptimizedModule:
        module, *rest = self.served().made_of
        return type(self)(copy.deepcopy(module, memo), *rest)
