"""State that a function reads besides its arguments: tracing leaves it alone, and a change of it is
seen.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import mirage_py
from mirage_py.errors import MirageWarning, UnsupportedError

X = torch.randn(4, 6)


class Cache:
    """Keys so far, and how many."""

    def __init__(self):
        self.keys = torch.randn(2, 6)
        self.rows = []
        self.count = 2


@dataclass(eq=False)
class Scales:
    gain: float = 2.0
    shift: object = None


@dataclass(frozen=True)
class Setting:
    gain: float


def test_what_a_package_remembers_is_its_own_wherever_it_lies(tmp_path, monkeypatch):
    folder = tmp_path / "dist-packages"
    folder.mkdir()
    text = "seen = {}\ndef scale(x):\n    seen[type(x)] = len(seen)\n    return x * 2\n"
    (folder / "remembers_types.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    scale = importlib.import_module("remembers_types").scale
    assert len(mirage_py.trace(lambda x: scale(x) + 1, X).inputs) == 1


def grown(cache, x):
    cache.keys = torch.cat((cache.keys, x))
    return x @ cache.keys.T


def counted(cache, x):
    cache.count += 1
    return x * cache.count


def collected(cache, x):
    cache.rows.append(x * 2)
    return x * 2


def returned(cache, x):
    cache.keys = x * 2
    return cache


@pytest.mark.parametrize("fn", [grown, counted, collected, returned])
def test_a_cache_is_left_alone(optimised, fn):
    cache, want = Cache(), Cache()
    before = dict(vars(cache))
    want.keys = cache.keys
    with pytest.raises(UnsupportedError, match="changes cache"):
        mirage_py.trace(fn, cache, X)
    assert vars(cache) == before
    assert cache.rows == []
    with pytest.warns(MirageWarning, match="changes cache"):
        got = optimised(fn)(cache, X)
    expected = fn(want, X)
    if isinstance(got, Cache):
        assert got is cache
        got, expected = got.keys, expected.keys
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(cache.keys, want.keys)
    assert (cache.count, len(cache.rows)) == (want.count, len(want.rows))
    assert [type(row) for row in cache.rows] == [torch.Tensor] * len(cache.rows)


def test_a_cache_that_is_read_alone_is_an_input(optimised, interpreter):
    cache = Cache()
    fn = optimised(lambda cache, x: x @ cache.keys.T)
    torch.testing.assert_close(fn(cache, X), X @ cache.keys.T)
    cache.keys = torch.randn(2, 6)
    torch.testing.assert_close(fn(cache, X), X @ cache.keys.T)
    assert len(interpreter.programs) == 1


@pytest.mark.parametrize("refused", [False, True])
def test_batch_statistics_are_left_alone(refused):
    norm = nn.BatchNorm1d(6)
    with pytest.raises(UnsupportedError):
        mirage_py.trace(lambda x: norm(x).sort().values if refused else norm(x), X)
    assert norm.num_batches_tracked.item() == 0
    assert not norm.running_mean.any()
    assert type(norm.running_mean) is torch.Tensor


def test_lists_and_dicts_keep_no_fake_tensors(optimised):
    kept, given, told = [], [], {}

    def by_closure(x):
        kept.append(x * 2)
        return x * 2

    def by_argument(x, out):
        out.append(x * 2)
        return x * 2

    def by_dict(x, out):
        out["twice"] = x * 2
        return x * 2

    with pytest.warns(MirageWarning, match="changes kept"):
        optimised(by_closure)(X)
    with pytest.warns(MirageWarning, match="changes"):
        optimised(by_argument)(X, given)
    with pytest.warns(MirageWarning, match="changes"):
        optimised(by_dict)(X, told)
    for value in (kept[0], given[0], told["twice"]):
        torch.testing.assert_close(value, X * 2)
    assert (len(kept), len(given)) == (1, 1)


def test_a_counter_in_a_closure_counts(optimised):
    count = 0

    def fn(x):
        nonlocal count
        count += 1
        return x * 2

    served = optimised(fn)
    with pytest.warns(MirageWarning, match="changes count"):
        served(X)
    served(X)
    assert count == 2


def test_tensors_of_one_element_held_elsewhere(optimised):
    scales = Scales(shift=torch.tensor(1.5))

    def by_object(x):
        return x * scales.shift

    def by_argument(x, scales):
        return x * scales.shift

    def by_number(x):
        return x * float(scales.gain)

    served = [optimised(by_object), optimised(by_argument), optimised(by_number)]
    for change in (
        lambda: None,
        lambda: setattr(scales, "shift", torch.tensor(-3.0)),
        lambda: scales.shift.fill_(7.0),
        lambda: setattr(scales, "gain", 5.0),
    ):
        change()
        for _ in range(2):
            torch.testing.assert_close(served[0](X), X * scales.shift)
            torch.testing.assert_close(served[1](X, scales), X * scales.shift)
            torch.testing.assert_close(served[2](X), X * scales.gain)


def test_fields_of_object_arguments(optimised, interpreter):
    scales = Scales()
    fn = optimised(lambda x, s: x * s.gain)
    for gain in (2.0, 3.0, 2.0, -0.0, 0.0):
        scales.gain = gain
        for _ in range(2):
            assert torch.equal(torch.signbit(fn(X, scales)), torch.signbit(X * gain))
            torch.testing.assert_close(fn(X, scales), X * gain)
    assert len(interpreter.programs) == 4
    other = Scales(9.0)
    torch.testing.assert_close(fn(X, other), X * 9.0)


def test_frozen_arguments_are_values(optimised, interpreter):
    fn = optimised(lambda x, s: x * s.gain)
    for _ in range(3):
        torch.testing.assert_close(fn(X, Setting(2.0)), X * 2)
    torch.testing.assert_close(fn(X, Setting(3.0)), X * 3)
    assert len(interpreter.programs) == 2


FLAG = 2.0
TABLE = {"gain": 3.0}


def helper(x):
    return x * FLAG


def test_globals_of_the_function_and_of_its_helpers(optimised, monkeypatch):
    fn = optimised(lambda x: helper(x) + TABLE["gain"])
    torch.testing.assert_close(fn(X), X * 2 + 3)
    torch.testing.assert_close(fn(X), X * 2 + 3)
    monkeypatch.setitem(globals(), "FLAG", 4.0)
    torch.testing.assert_close(fn(X), X * 4 + 3)
    monkeypatch.setitem(TABLE, "gain", 5.0)
    torch.testing.assert_close(fn(X), X * 4 + 5)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.gain = 2.0
        self.doubles = False

    def forward(self, x):
        y = self.inner(x) * self.gain
        return y * 2 if self.doubles else y


def test_flags_and_hooks_of_modules(optimised):
    module = Scaled().requires_grad_(False)
    fn = optimised(module)

    def agrees():
        for _ in range(2):
            torch.testing.assert_close(fn(X), module(X), atol=1e-5, rtol=1e-5)

    agrees()
    module.doubles = True
    agrees()
    module.gain = 3.0
    agrees()
    handle = module.inner.register_forward_hook(lambda module, inputs, result: result + 1)
    agrees()
    handle.remove()
    agrees()
    module.inner.weight = nn.Parameter(torch.randn(6, 6), requires_grad=False)
    agrees()
    module.inner = nn.Sequential(nn.Linear(6, 6, bias=False).requires_grad_(False), nn.ReLU())
    agrees()


def test_a_state_that_keeps_changing_is_given_up(optimised, interpreter):
    scales = Scales()
    fn = optimised(lambda x: x * scales.gain)

    def run():
        for number in range(20):
            scales.gain = float(number)
            torch.testing.assert_close(fn(X), X * number)

    with pytest.warns(MirageWarning, match="keeps changing"):
        run()
    assert len(interpreter.programs) < 12


def test_objects_of_a_trace_are_no_results(optimised):
    with pytest.warns(MirageWarning, match="a result is of type Scales"):
        result = optimised(lambda x: Scales(shift=x * 2))(X)
    torch.testing.assert_close(result.shift, X * 2)
