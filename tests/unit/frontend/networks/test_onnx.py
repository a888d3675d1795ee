"""ONNX models as modules of torch, against the reference evaluator of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mirage_py.errors import InputError, UnsupportedError
from mirage_py.frontend.networks.onnx_module import onnx_module

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

DRAW = np.random.default_rng(0)
X = (1, 4, 6, 6)


def floats(*shape: int) -> Any:
    return DRAW.uniform(0.5, 1.5, shape).astype("float32")


def ints(*numbers: int) -> Any:
    return np.array(numbers, dtype="int64")


def saved(path: Path, op: str, shape: tuple[int, ...], held: list[Any], **attributes: Any) -> Any:
    """A model of one operator of its input and some initializers, and how many results."""
    outputs = attributes.pop("outputs", 1)
    names = [f"c{n}" for n in range(len(held))]
    results = [f"y{n}" for n in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], results, **attributes)],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, []) for y in results],
        [numpy_helper.from_array(a, name) for a, name in zip(held, names, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    onnx.save(model, path)
    return model


CASES: dict[str, tuple[str, tuple[int, ...], list[Any], dict[str, Any]]] = {
    "conv": (
        "Conv",
        X,
        [floats(6, 2, 3, 3), floats(6)],
        {"group": 2, "strides": [2, 2], "pads": [1] * 4},
    ),
    "uneven": ("Conv", X, [floats(3, 4, 3, 3)], {"pads": [0, 1, 2, 1]}),
    "same": ("Conv", X, [floats(3, 4, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "turned": ("ConvTranspose", X, [floats(4, 3, 3, 3)], {"strides": [2, 2], "pads": [1] * 4}),
    "max": ("MaxPool", X, [], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}),
    "average": ("AveragePool", X, [], {"kernel_shape": [3, 3], "pads": [1] * 4}),
    "global": ("GlobalAveragePool", X, [], {}),
    "norm": ("BatchNormalization", X, [floats(4) for _ in range(4)], {"epsilon": 1e-3}),
    "layer": ("LayerNormalization", X, [floats(6), floats(6)], {"axis": -1}),
    "gemm": ("Gemm", (3, 4), [floats(5, 4), floats(5)], {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    "matmul": ("MatMul", (3, 4), [floats(4, 2)], {}),
    "slice": ("Slice", X, [ints(1, 0), ints(3, 5), ints(1, -1), ints(1, 2)], {}),
    "split": ("Split", X, [ints(1, 3)], {"axis": 1, "outputs": 2}),
    "halves": ("Split", (1, 5), [], {"axis": 1, "outputs": 2, "num_outputs": 2}),
    "reshape": ("Reshape", X, [ints(0, -1, 12)], {}),
    "unsqueeze": ("Unsqueeze", (2, 3), [ints(0, -1)], {}),
    "squeeze": ("Squeeze", (1, 3, 1), [ints(0)], {}),
    "mean": ("ReduceMean", X, [ints(2, 3)], {"keepdims": 0}),
    "pad": ("Pad", (2, 3), [ints(0, 1, 2, 0), np.float32(3.0)], {}),
    "clip": ("Clip", (2, 3), [np.float32(0.7), np.float32(1.0)], {}),
    "gather": ("Gather", (5, 3), [ints(4, 0)], {"axis": 0}),
    "concat": ("Concat", (2, 3), [floats(2, 1)], {"axis": 1}),
    "transpose": ("Transpose", (2, 3, 4), [], {}),
    "flatten": ("Flatten", X, [], {"axis": 2}),
    "softmax": ("Softmax", (2, 3), [], {}),
    "leaky": ("LeakyRelu", (2, 3), [], {"alpha": 0.2}),
    "power": ("Pow", (2, 3), [np.float32(2.0)], {}),
    "sum": ("Sum", (2, 3), [floats(2, 3), floats(1, 3)], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_operators_mean_what_the_reference_says(name: str, tmp_path: Path):
    op, shape, held, attributes = CASES[name]
    model = saved(tmp_path / "m.onnx", op, shape, held, **attributes)
    module = onnx_module(tmp_path / "m.onnx")
    (x,) = module.examples()
    want = ReferenceEvaluator(model).run(None, {"x": x.numpy()})
    for one, other in zip(want, module(x), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-4, atol=1e-5)


def test_what_is_not_read_says_why(tmp_path: Path):
    path = tmp_path / "m.onnx"
    saved(path, "Softsign", (2,), [])
    module = onnx_module(path)
    with pytest.raises(UnsupportedError, match="Softsign"):
        module(*module.examples())
    with pytest.raises(InputError, match="there is no such file"):
        onnx_module(tmp_path / "absent.onnx")
    path.write_bytes(b"no model")
    with pytest.raises(InputError, match="is no ONNX model"):
        onnx_module(path)
    saved(path, "Relu", ("batch",), [])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="sizes that are not known"):
        onnx_module(path).examples()
