"""Calls of regions in Inductor's code, straight to Python and past the dispatcher.

The dispatcher boxes lists of tensors and strings for a kernel that is Python again: 10 us of 13 for
a call, which a model that is not captured in a CUDA graph pays for each region. Inductor has a
registry of operators whose calls are written otherwise; with ``cpp_wrapper`` all stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MODULE = "mirage_py.dynamo.serve.region_op"


def call_directly(operator: str, function: str, first: str = "") -> None:
    """Have Inductor write calls of ``torch.ops.mirage_py.OPERATOR.default`` as calls of a
    ``function`` of ``region_op.py``, with the argument ``first`` in front.
    """
    try:
        from torch._inductor.codegen import custom_extern_kernel_codegen as registry

        known, kind = registry.CUSTOM_EXTERN_KERNEL_CODEGEN, registry.CustomCodegen
    except (ImportError, AttributeError):  # an older torch
        return
    name = f"torch.ops.mirage_py.{operator}.default"

    def write(node: Any, writeline: Callable[[str], None]) -> None:
        from torch._inductor import ir
        from torch._inductor.virtualized import V

        wrapper: Any = V.graph.wrapper_code
        wrapper.add_import_once(f"from {_MODULE} import {function}")
        arguments = [*([first] if first else []), *node.codegen_args(), *node.codegen_kwargs()]
        # What writes to its inputs alone gives nothing.
        taken = "" if isinstance(node.layout, ir.NoneLayout) else f"{node.get_name()} = "
        writeline(f"{taken}{function}({', '.join(arguments)})")

    known[name] = kind(python=write)
