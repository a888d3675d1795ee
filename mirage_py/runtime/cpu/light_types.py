"""Types of Triton's language, made once for each shape: the interpreter makes some for every
operation, with their names and those of all their parts, which takes longer than the operation.
"""

from __future__ import annotations

import functools
from typing import Any


@functools.cache
def make_types_once() -> None:
    """Patch the language and its interpreter; nothing else may run in this process."""
    import triton.language.core as tl
    from triton.runtime import interpreter

    _type_tuples_late(tl)
    _share_blocks(tl)
    _share_shapes(tl)
    interpreter._get_np_dtype = _numpy_types(interpreter._get_np_dtype)  # noqa: SLF001


def _type_tuples_late(tl: Any) -> None:
    """The type of a tuple is found when somebody asks for it: hardly ever."""
    original = tl.tuple.__init__

    def init(self: Any, args: Any, type: Any = None) -> None:  # noqa: A002
        if type is None:
            self.values = [*args]
        else:
            original(self, args, type)

    def type_of(self: Any) -> Any:
        if "_type" not in self.__dict__:
            original(self, self.values)
        return self.__dict__["_type"]

    tl.tuple.__init__ = init
    tl.tuple.type = property(type_of, lambda self, given: self.__dict__.update(_type=given))


def _share_blocks(tl: Any) -> None:
    """Shape, size and name of a block, by the name of its elements and its shape."""
    original = tl.block_type.__init__
    known: dict[tuple[Any, ...], tuple[Any, int, str]] = {}

    def init(self: Any, element_ty: Any, shape: Any) -> None:
        key = (element_ty.name, *(getattr(extent, "value", extent) for extent in shape))
        if key not in known:
            original(self, element_ty, shape)
            known[key] = self.shape, self.numel, self.name
        self.element_ty = element_ty
        self.shape, self.numel, self.name = known[key]

    tl.block_type.__init__ = init


def _share_shapes(tl: Any) -> None:
    """Shape and size of a tensor, by those of its type."""
    original = tl.tensor.__init__
    known: dict[tuple[int, ...], tuple[Any, Any]] = {}

    def init(self: Any, handle: Any, type: Any) -> None:  # noqa: A002
        shape = tuple(type.shape) if type.is_block() else ()
        if shape not in known:
            original(self, handle, type)
            known[shape] = self.shape, self.numel
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = known[shape]

    tl.tensor.__init__ = init


def _numpy_types(original: Any) -> Any:
    known: dict[str, Any] = {}

    def numpy_type(of: Any) -> Any:
        name = of.scalar.name
        if name not in known:
            known[name] = original(of)
        return known[name]

    return numpy_type
