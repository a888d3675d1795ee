"""An ONNX model as a module of torch: its initializers are buffers, its nodes calls of torch.

The package ``onnx`` reads it (the extra ``graph``). Functions, control flow, quantised and string
tensors are refused.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

from mirage_py.errors import InputError, UnsupportedError
from mirage_py.frontend.networks.onnx_rows import ROWS

# Softmax over one axis, and axes as operands: older models mean other things by the same names.
_OLDEST = 13


class OnnxModule(torch.nn.Module):
    """The graph of a model; ``forward`` takes its inputs in order and returns a tuple."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        import onnx

        self._graph, self._onnx = model.graph, onnx
        self._buffers_of: dict[str, str] = {}
        self._numbers: dict[str, torch.Tensor] = {}
        for n, entry in enumerate(self._graph.initializer):
            self._hold(n, entry.name, _tensor(onnx.numpy_helper.to_array(entry)))
        held = {**self._buffers_of, **self._numbers}
        self.inputs = tuple(i for i in self._graph.input if i.name not in held)

    def forward(self, *given: torch.Tensor) -> tuple[Any, ...]:
        """The outputs."""
        values: dict[str, Any] = {"": None, **self._numbers}
        values |= {name: getattr(self, own) for name, own in self._buffers_of.items()}
        values |= {i.name: x for i, x in zip(self.inputs, given, strict=True)}
        for node in self._graph.node:
            found = self._called(node, [values[name] for name in node.input])
            results = found if isinstance(found, tuple) else (found,)
            values |= dict(zip(node.output, results, strict=False))
        return tuple(values[entry.name] for entry in self._graph.output)

    def examples(self) -> tuple[torch.Tensor, ...]:
        """Random inputs of the sizes that the model names; InputError where it names none."""
        draw = torch.Generator().manual_seed(0)
        return tuple(_example(self._onnx, entry, draw) for entry in self.inputs)

    def _hold(self, number: int, name: str, tensor: torch.Tensor) -> None:
        # Whole numbers decide shapes: they stay numbers while the module is traced.
        if tensor.is_floating_point():
            self._buffers_of[name] = f"weight_{number}"
            self.register_buffer(self._buffers_of[name], tensor)
        else:
            self._numbers[name] = tensor

    def _called(self, node: Any, operands: list[Any]) -> Any:
        attributes = {
            a.name: _plain(self._onnx.helper.get_attribute_value(a)) for a in node.attribute
        }
        if node.op_type == "Constant":
            return self._constant(node)
        if node.op_type == "Cast":
            return operands[0].to(_torch_type(self._onnx, attributes["to"]))
        row = ROWS.get(node.op_type)
        if row is None or node.domain not in ("", "ai.onnx"):
            raise UnsupportedError(
                f"the ONNX operator {node.domain or 'ai.onnx'}.{node.op_type}",
                why=f"{len(ROWS)} operators are read",
                repair="export the model to torch, and call mirage_py.optimize_graph",
            )
        if node.op_type == "Split":
            attributes["outputs"] = len(node.output)
        return row(attributes, *operands)

    def _constant(self, node: Any) -> torch.Tensor:
        (attribute,) = node.attribute
        value = self._onnx.helper.get_attribute_value(attribute)
        if attribute.name == "value":
            return _tensor(self._onnx.numpy_helper.to_array(value))
        return torch.tensor(list(value) if attribute.name.endswith("s") else value)


def onnx_module(path: Path) -> OnnxModule:
    """The module of a file. Raises InputError where it is no model that is read here."""
    if importlib.util.find_spec("onnx") is None:
        raise InputError(
            "ONNX files are read by the package onnx",
            repair="pip install -e '.[graph]' in the repository",
        )
    import onnx

    if not path.is_file():
        raise InputError(
            "there is no such file",
            where=str(path),
            repair="pass an ONNX file, or MODEL.py:FUNCTION with --input",
        )
    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
    # The package raises whatever its parser met.
    except Exception as error:  # noqa: BLE001
        raise InputError(f"{path} is no ONNX model", why=str(error).splitlines()[0]) from None
    version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if version < _OLDEST:
        raise InputError(
            f"{path} is of operator set {version}",
            repair=f"export it with operator set {_OLDEST} or later",
        )
    return OnnxModule(model)


def _example(onnx: Any, entry: Any, draw: torch.Generator) -> torch.Tensor:
    kind = entry.type.tensor_type
    if not all(d.HasField("dim_value") and d.dim_value > 0 for d in kind.shape.dim):
        raise InputError(
            f"input '{entry.name}' of the model has sizes that are not known",
            repair="export the model with constant shapes",
        )
    shape = [d.dim_value for d in kind.shape.dim]
    wanted = _torch_type(onnx, kind.elem_type)
    if not wanted.is_floating_point:
        return torch.zeros(shape, dtype=wanted)
    return torch.randn(shape, generator=draw).to(wanted)


def _torch_type(onnx: Any, number: int) -> torch.dtype:
    name = str(onnx.helper.tensor_dtype_to_np_dtype(number))
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise UnsupportedError(f"a tensor of type {name}")
    return found


def _tensor(array: Any) -> torch.Tensor:
    if str(array.dtype) == "bfloat16":
        return torch.tensor(array.astype("float32")).bfloat16()
    return torch.tensor(array)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return list(value) if hasattr(value, "__len__") and not isinstance(value, str) else value
