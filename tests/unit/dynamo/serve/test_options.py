from __future__ import annotations

import pytest

from mirage_py.dynamo.serve.options import BackendOptions, backend_options
from mirage_py.errors import InputError


@pytest.mark.parametrize(
    ("mode", "effort", "cuda_graphs"),
    [
        (None, "quick", False),
        ("default", "quick", False),
        ("reduce-overhead", "quick", True),
        ("max-autotune", "full", True),
        ("max-autotune-no-cudagraphs", "full", False),
    ],
)
def test_modes(mode: str | None, effort: str, cuda_graphs: bool):
    found = backend_options(mode)
    assert (found.effort, found.cuda_graphs) == (effort, cuda_graphs)


def test_options_win_over_the_mode():
    found = backend_options("max-autotune", {"effort": "none", "seed": 3})
    assert (found.effort, found.seed, found.cuda_graphs) == ("none", 3, True)


def test_without_any_it_is_the_default():
    assert backend_options(None, {}) == BackendOptions()


def test_an_unknown_key_names_the_known_ones():
    with pytest.raises(InputError) as error:
        backend_options(None, {"efort": "full"})
    assert "did you mean 'effort'" in str(error.value)
    assert "max_regions" in str(error.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("effort", "much"),
        ("rest", "xla"),
        ("on_cpu", "fast"),
        ("budget", "1m"),
        ("budget", -1),
        ("budget", float("nan")),
        ("seed", 0.5),
        ("seed", True),
        ("cache", 1),
        ("max_regions", "all"),
        ("max_sizes", "all"),
        ("shapes", "padded"),
        ("edges", (64, 16)),
        ("edges", ("many",)),
        ("whole_graph", True),
        ("inductor", "max_autotune"),
    ],
)
def test_wrong_values_are_refused(key: str, value: object):
    with pytest.raises(InputError, match=key):
        backend_options(None, {key: value})


def test_an_unknown_mode_is_refused():
    with pytest.raises(InputError, match="reduce-overhead"):
        backend_options("fast")
