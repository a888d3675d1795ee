"""A superoptimized module is a module; decorated functions are copied and stored like functions."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import pytest
import torch
from frontend_kernels import Interpreter
from torch import nn

from mirage_py.frontend.decorator import superoptimize
from mirage_py.frontend.searches import CallOptions
from mirage_py.frontend.superoptimized import SuperoptimizedFunction
from mirage_py.frontend.superoptimized_module import SuperoptimizedModule

X = torch.randn(4, 6)


class Block(nn.Module):
    """A layer with what a module may have."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("offset", torch.randn(6))
        self.gain = 2.0

    def forward(self, x):
        return self.drop(torch.relu(self.linear(x)) * self.gain + self.offset)

    def half_gain(self):
        return self.gain / 2


@superoptimize
def scaled(x):
    """Twice."""
    return x * 2


class Holding(nn.Module):
    """A model that holds a decorated function and a superoptimized module."""

    def __init__(self):
        super().__init__()
        self.act = scaled
        self.block = superoptimize(Block())

    def forward(self, x):
        return self.act(self.block(x))


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no GPU
        yield


@pytest.fixture
def interpreter():
    return Interpreter()


@pytest.fixture
def served(interpreter):
    block = Block().eval().requires_grad_(False)
    return SuperoptimizedModule(block, CallOptions(strict=True), interpreter)


def test_it_is_a_module_with_the_names_of_its_own(served):
    block = served.__wrapped__
    assert isinstance(superoptimize(Block()), nn.Module)
    assert isinstance(superoptimize(seed=3)(Block()), nn.Module)
    assert list(served.state_dict()) == list(block.state_dict())
    assert [n for n, _ in served.named_parameters()] == ["linear.weight", "linear.bias"]
    assert [n for n, _ in served.named_modules()] == ["", "linear", "drop"]
    assert served.linear is block.linear
    assert (served.gain, served.half_gain()) == (2.0, 1.0)
    outer = nn.Sequential(served)
    assert [n for n, _ in outer.named_parameters()] == ["0.linear.weight", "0.linear.bias"]


def test_it_is_served_and_follows_its_weights(served, interpreter):
    torch.testing.assert_close(served(X), served.__wrapped__(X))
    other = Block().state_dict()
    served.load_state_dict(other)
    torch.testing.assert_close(served(X), served.__wrapped__(X))
    assert torch.equal(served.__wrapped__.offset, other["offset"])
    served.gain = 3.0
    assert served.__wrapped__.gain == 3.0
    torch.testing.assert_close(served(X), served.__wrapped__(X))
    served.linear = nn.Linear(6, 6, bias=False).requires_grad_(False)
    torch.testing.assert_close(served(X), served.__wrapped__(X))
    assert len(interpreter.programs) == 3


def test_mode_type_and_gradients():
    served = superoptimize(Block())
    outer = nn.Sequential(served).eval()
    assert not served.training
    assert not served.__wrapped__.training
    assert not served.drop.training
    torch.testing.assert_close(outer(X), served.__wrapped__(X))
    outer.train()
    assert served.drop.training
    outer.eval()
    outer.double()
    assert served.__wrapped__.offset.dtype is torch.float64
    assert outer(X.double()).dtype is torch.float64
    outer(X.double()).sum().backward()
    assert served.__wrapped__.linear.weight.grad is not None
    served.zero_grad()
    served.requires_grad_(False)
    assert not served.__wrapped__.linear.weight.requires_grad


def test_hooks_run(served):
    seen = []
    served.register_forward_pre_hook(lambda module, inputs: seen.append("before"))
    served.register_forward_hook(lambda module, inputs, result: result + 1)
    torch.testing.assert_close(served(X), served.__wrapped__(X) + 1)
    torch.testing.assert_close(served(X), served.__wrapped__(X) + 1)
    assert seen == ["before", "before"]


class Holds(nn.Module):
    """Tensors that are neither parameters nor buffers."""

    def __init__(self):
        super().__init__()
        self.scale = torch.rand(6)
        self.steps = {"shift": [torch.rand(6)]}
        self.mean = torch.zeros(6)

    def forward(self, x):
        self.mean.lerp_(x.mean(0), 0.1)
        return (x - self.mean) * self.scale + self.steps["shift"][0]


@pytest.mark.parametrize("is_inside", [False, True])
def test_tensors_in_fields_of_modules_are_read_and_written(interpreter, is_inside):
    inner, other = Holds(), Holds()
    other.scale, other.steps["shift"][0] = inner.scale, inner.steps["shift"][0]
    module, plain = inner, other
    if is_inside:
        module, plain = nn.Sequential(inner, nn.ReLU()), nn.Sequential(other, nn.ReLU())
    served = SuperoptimizedModule(module, CallOptions(strict=True), interpreter)
    torch.testing.assert_close(served(X), plain(X))
    inner.scale = other.scale = torch.rand(6) + 1
    torch.testing.assert_close(served(X), plain(X))
    torch.testing.assert_close(inner.mean, other.mean)
    assert inner.mean.any()
    assert len(interpreter.programs) == 1


def _saved(value):
    stream = io.BytesIO()
    torch.save(value, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "save": _saved,
}


@pytest.mark.parametrize("how", COPIES)
def test_models_are_copied(how):
    model = Holding().eval()
    model(X)
    found = COPIES[how](model)
    torch.testing.assert_close(found(X), model(X))
    assert found.act is scaled
    assert found.block.linear.weight is not model.block.linear.weight
    assert found.block.linear is found.block.__wrapped__.linear
    with torch.no_grad():
        model.block.linear.weight.zero_()
    assert found.block.linear.weight.any()


def test_functions_are_copied_as_functions():
    assert copy.deepcopy(scaled) is scaled
    assert copy.copy(scaled) is scaled
    assert pickle.loads(pickle.dumps(scaled)) is scaled
    inner = SuperoptimizedFunction(lambda x: x + 1, CallOptions(seed=4))
    found = copy.deepcopy(inner)
    torch.testing.assert_close(found(X), X + 1)
    assert found.options == inner.options


def test_with_other_options():
    assert superoptimize(seed=5)(scaled).options.seed == 5
    block = superoptimize(Block())
    assert superoptimize(seed=5)(block).__wrapped__ is block.__wrapped__
