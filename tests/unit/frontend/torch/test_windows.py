"""Convolutions, pooling and norms over channels: imported programs against torch."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from frontend_kernels import Interpreter
from torch.utils import _pytree as pytree

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.decorator import CallOptions, SuperoptimizedFunction
from mirage_py.frontend.superoptimized_module import SuperoptimizedModule
from mirage_py.frontend.torch.guards.calls import Signature
from mirage_py.frontend.torch.trace import trace, trace_call
from mirage_py.ugraph.checks.validate import validate_program
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.rewrite.masks import lower_masks
from mirage_py.ugraph.text.json_form import dump_text, load_text
from mirage_py.ugraph.text.printing import format_program
from mirage_py.ugraph.text.text_form import parse_program
from tests.data.windows import CONVOLUTIONS, OTHERS

CASES = {**CONVOLUTIONS, **OTHERS}


def _inputs(shapes, seed=0):
    torch.manual_seed(seed)
    return [torch.randn(shape) for shape in shapes]


@pytest.mark.parametrize("name", CASES)
def test_a_program_is_what_torch_computes(name):
    function, *shapes = CASES[name]
    inputs = _inputs(shapes)
    program = trace(function, *inputs)
    want = function(*(x.double() for x in inputs)).numpy()
    data = {t.name: x.double().numpy() for t, x in zip(program.inputs, inputs, strict=True)}
    for form in (program, lower_masks(program)):
        validate_program(form)
        assert parse_program(format_program(form)) == form
        (found,) = evaluate_program(form, data, FloatMeaning()).values()
        np.testing.assert_allclose(found, want, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_the_decorator_serves_what_torch_gives(name):
    function, *shapes = CASES[name]
    inputs = _inputs(shapes)
    fast = SuperoptimizedFunction(function, CallOptions(strict=True), Interpreter())
    for _ in range(2):
        torch.testing.assert_close(fast(*inputs), function(*inputs), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["strided", "depthwise", "transposed2_1", "residual", "batch"])
def test_torch_compile_gives_what_torch_gives(name):
    function, *shapes = CASES[name]
    inputs = _inputs(shapes)
    torch.compiler.reset()
    options = {"rest": "eager", "on_cpu": "reference", "target": "h200"}
    found = torch.compile(function, backend="mirage_py", options=options)(*inputs)
    torch.testing.assert_close(found, function(*inputs), atol=1e-4, rtol=1e-4)


class _Trained(torch.nn.Module):
    def __init__(self, twice=False):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.twice = twice

    def forward(self, x):
        y = self.norm(self.conv(x)).relu()
        return self.norm(y) if self.twice else y


@pytest.mark.parametrize("twice", [False, True])
@torch.no_grad()
def test_a_batch_norm_in_training_writes_what_torch_writes(twice):
    module = _Trained(twice)
    reference = copy.deepcopy(module)
    before = copy.deepcopy(module.state_dict())
    x = _inputs([(2, 3, 5, 6)])[0]
    signature = Signature.of(module)
    arguments = signature.bind([x], {})
    traced = trace_call(signature, arguments)
    want = reference(x)
    inputs = traced.inputs(pytree.tree_leaves(dict(arguments)))
    data = {t.name: i.double().numpy() for t, i in zip(traced.program.inputs, inputs, strict=True)}
    found = evaluate_program(traced.program, data, FloatMeaning())
    outputs = [torch.tensor(found[o.tensor.name]).float() for o in traced.program.outputs]
    expected = traced.outputs_of(lambda: module(x))
    assert len(outputs) == 3
    for one, other in zip(outputs, expected, strict=True):
        torch.testing.assert_close(one, other)
    # Neither tracing nor the reference left anything behind.
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name
    torch.testing.assert_close(traced.pack(outputs), want)
    assert int(module.norm.num_batches_tracked) == 1 + twice
    for name, value in module.state_dict().items():
        torch.testing.assert_close(value, reference.state_dict()[name], msg=name)


@torch.no_grad()
def test_the_decorator_moves_running_statistics_once_a_call():
    module = _Trained()
    reference = copy.deepcopy(module)
    x = _inputs([(2, 3, 5, 6)])[0]
    interpreter = Interpreter()
    fast = SuperoptimizedModule(module, CallOptions(strict=True), interpreter)
    for _ in range(3):
        torch.testing.assert_close(fast(x), reference(x), atol=1e-5, rtol=1e-5)
    assert len(interpreter.programs) == 1
    for name, value in module.state_dict().items():
        torch.testing.assert_close(value, reference.state_dict()[name], msg=name)


@pytest.mark.parametrize(("stride", "reads"), [(2, 0), (3, 0), (1, 1)])
@pytest.mark.parametrize("pool", ["max_pool2d", "avg_pool2d"])
def test_what_is_pooled_in_windows_apart_is_not_in_memory(pool, stride, reads):
    """Five rows are no multiple of the windows; each element is computed once for all that."""

    def pooled(x):
        return getattr(torch.nn.functional, pool)(torch.tanh(x), 2, stride)

    (x,) = _inputs([(2, 3, 5, 7)])
    program = trace(pooled, x)
    assert sum(node.op == "read" for node in program.nodes) == reads
    (found,) = evaluate_program(program, {"x": x.double().numpy()}, FloatMeaning()).values()
    np.testing.assert_allclose(found, pooled(x.double()).numpy(), atol=1e-9)


def test_windows_of_different_sizes_are_refused():
    with pytest.raises(UnsupportedError, match="different sizes"):
        trace(lambda x: torch.nn.functional.adaptive_avg_pool1d(x, 3), torch.randn(1, 2, 7))


def test_json_keeps_a_read():
    function, *shapes = CASES["two"]
    program = trace(function, *_inputs(shapes))
    assert any(node.op == "read" for node in program.nodes)
    assert load_text(dump_text(program), "test") == program
