"""Values that options cannot have: whatever they are, an error of ours in a few words."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

import mirage_py
from mirage_py.dynamo.serve.options import BackendOptions, backend_options
from mirage_py.errors import InputError, MirageError
from mirage_py.pipeline.selection.request import Request
from mirage_py.settings import Settings

_LONGEST = 2500


class Unshowable:
    """Not even its repr works."""

    def __repr__(self) -> str:
        raise ZeroDivisionError


ODD: dict[str, Any] = {
    "None": None, "nothing": "", "a word": "x", "a NUL": "a\0b", "long": "y" * 100_000,
    "negative": -1, "2^80": 1 << 80, "digits": 10**5000, "1e300": 1e300, "inf": math.inf,
    "-inf": -math.inf, "NaN": math.nan, "True": True, "False": False, "list": [], "words": ["a"],
    "dict": {}, "unhashable": {"x": {0: []}}, "object": object(), "bytes": b"auto", "tuple": (),
    "numbers": (-5,), "large numbers": (1 << 80,), "NaNs": (math.nan,), "nested": [[1]], "int": 5,
    "half": 0.5, "number as text": "0", "tensor": torch.ones(2), "type": int,
    "unshowable": Unshowable(), "half a character": "\ud800",
}  # fmt: skip

# What of these an option may be. A plan is read when the function is called.
_BUDGETS = ("None", "2^80", "1e300", "inf", "int", "half")
_SHARES = ("int", "half", "2^80", "1e300", "inf", "digits")
_TRUTHS = ("True", "False")
_TEXTS = ("None", *(name for name, value in ODD.items() if isinstance(value, str)))
_FITS: Mapping[str, tuple[str, ...]] = {
    "budget": _BUDGETS,
    "seed": ("int",),
    "strict": _TRUTHS,
    "invariant": _TRUTHS,
    "cache": _TRUTHS,
    "cuda_graphs": _TRUTHS,
    "shapes": ("None",),
    "mode": ("None",),
    "options": ("None", "dict"),
    "dynamic": ("None", "dict"),
    "edges": ("list", "tuple"),
    "plan": _TEXTS,
    "progress": ("None",),
    "report": ("nothing", "a word", "number as text"),
    "scheduler": ("nothing",),
    "inductor": ("dict", "unhashable"),
    "max_regions": ("None", "int", "2^80", "digits"),
    "max_sizes": ("None", "int", "2^80", "digits"),
    "min_gain": _SHARES,
    "fn": ("None", "type"),
    "limits": ("None",),
    "baselines": ("None", "dict"),
    "journal": ("None",),
    "sizes": ("None", "dict"),
    "torch.compile shapes": (),
    "size": ("int",),
}

SPEC = "B = 2, D = 3\nX[B, D] : f32\nY[b] = sum[d](X[b, d])\n"
PROGRAM = mirage_py.parse(SPEC)
OPEN = "B = ?\nX[B] : f32\nY[b] = X[b]\n"


def _kept(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def _cases() -> dict[str, tuple[str, Callable[[Any], object]]]:
    """By name, which option it is and what is called with its value."""
    cases: dict[str, tuple[str, Callable[[Any], object]]] = {}
    for name in inspect.signature(mirage_py.superoptimize).parameters:
        if name != "fn":
            cases[f"superoptimize {name}"] = (
                name,
                lambda v, n=name: mirage_py.superoptimize(**{n: v})(_kept),
            )
    for field in fields(BackendOptions):
        cases[f"torch.compile {field.name}"] = (
            field.name,
            lambda v, n=field.name: backend_options(None, {n: v}),
        )
    for name in ("target", "backend", "effort", "budget", "seed"):
        cases[f"pipeline {name}"] = (name, lambda v, n=name: Request(**{n: v}))
    return cases | {
        "superoptimize": ("fn", mirage_py.superoptimize),
        "torch.compile mode": ("mode", backend_options),
        "torch.compile options": ("options", lambda v: backend_options(None, v)),
        "parse": ("text", mirage_py.parse),
        "parse sizes": ("sizes", lambda v: mirage_py.parse(SPEC, sizes=v)),
        "parse a size": ("size", lambda v: mirage_py.parse(OPEN, sizes={"B": v})),
        "trace": ("function", mirage_py.trace),
        "load": ("folder", mirage_py.load),
        "kernel_from": ("text", mirage_py.kernel_from),
        "save": ("result", lambda v: mirage_py.save(v, "anywhere")),
        "optimize": ("program", mirage_py.optimize),
    }


CASES = _cases()


@pytest.mark.parametrize("case", CASES)
def test_an_odd_value_is_an_error_of_ours(case: str) -> None:
    option, call = CASES[case]
    for name, value in ODD.items():
        if name in _FITS.get(case, _FITS.get(option, ())):
            call(value)
            continue
        with pytest.raises(MirageError) as error:
            call(value)
        assert "\n" not in error.value.what, name
        assert len(str(error.value)) < _LONGEST, name


@pytest.mark.parametrize("name", ["limits", "baselines", "progress", "should_stop", "journal"])
def test_optimize_looks_at_its_options_before_it_works(name: str) -> None:
    for title, value in ODD.items():
        usual = title in _FITS.get(name, ()) or callable(value) or isinstance(value, str)
        if not usual:
            with pytest.raises(InputError, match=name):
                mirage_py.optimize(PROGRAM, target="h200", effort="none", **{name: value})


ENVIRONMENT: dict[str, tuple[str, ...]] = {
    "MIRAGE_PY_WORKERS": (
        "x", "-1", "0", "1e400", "nan", "inf", "99999999999", "9" * 5000, "0x10", "1.5",
    ),
    "MIRAGE_PY_COMPILE_TIMEOUT": (
        "x", "-1", "0", "1e400", "nan", "inf", "-inf", "99999999999", "9" * 5000, "0x10",
    ),
    "MIRAGE_PY_NO_CACHE": ("x", "-1", "2", "nan", "9" * 5000, "None"),
    "MIRAGE_PY_CACHE_DIR": ("/dev/null", "/dev/null/x", "~no-such-user/x", "a" * 5000, "a\0b"),
    "MIRAGE_PY_DUMP": ("/dev/null", "/dev/null/x", "~no-such-user/x", "a" * 5000, "a\0b"),
}  # fmt: skip


@pytest.mark.parametrize("variable", ENVIRONMENT)
def test_an_odd_variable_is_an_error_that_names_it(variable: str) -> None:
    for value in ENVIRONMENT[variable]:
        with pytest.raises(InputError, match=variable) as error:
            Settings.from_env({variable: value})
        assert len(str(error.value)) < _LONGEST
        assert "\n" not in error.value.what
    for empty in ("", "  "):
        assert Settings.from_env({variable: empty}) == Settings.from_env({})


COMMANDS: tuple[tuple[str, ...], ...] = (
    *(("superoptimize", "SPEC", "--budget", v) for v in ("x", "-1", "0", "nan", "")),
    *(("superoptimize", "SPEC", "--seed", v) for v in ("x", "-1", "1.5", "9" * 1000, "")),
    *(("superoptimize", "SPEC", "--target", v) for v in ("x", "")),
    *(("superoptimize", "SPEC", "--effort", v) for v in ("x", "")),
    *(("superoptimize", "SPEC", "--backend", v) for v in ("x", "")),
    *(
        ("superoptimize", "SPEC", "--limit", v)
        for v in ("", "x", "max_nodes", "max_nodes=", "max_nodes=-1", "max_nodes=0",
                  "max_nodes=²", "max_nodes=" + "9" * 5000, "max_nodes=nan", "rings=x")
    ),
    *(
        ("superoptimize", "SPEC", "--size", v)
        for v in ("", "B", "B=", "B=x", "B=0", "B=-1", "B=²", "B=1.5", "B=" + "9" * 5000, "=2")
    ),
    *(("superoptimize", "SPEC", "--input", v) for v in ("", "x", "x=f16", "x=f16[-1]")),
    *(("superoptimize", "SPEC", "--output", v) for v in ("y" * 5000, "/dev/null/x")),
    *(("superoptimize", "SPEC", "--journal", v) for v in ("y" * 5000, "/dev/null/x")),
    *(("superoptimize", v) for v in ("", "y" * 5000, "/dev/null/x", ".")),
    *(("verify", "SPEC", "SPEC", "--trials", v) for v in ("x", "0", "-1", "1e3")),
    *(("verify", "SPEC", "SPEC", "--seed", v) for v in ("x", "-1")),
    *(("cache", "prune", "--older-than", v) for v in ("x", "-1d", "nan", "9" * 5000 + "d", "²d")),
    *(("cache", "prune", "--max-size", v) for v in ("x", "-1", "infGB", "9" * 5000 + "GB")),
    *(("cache", "show", v) for v in ("", "y" * 5000, "../..")),
    *(("show", v) for v in ("", "y" * 5000, "/dev/null/x", ".")),
    *(("explain", v) for v in ("", "y" * 5000, "/dev/null/x")),
)  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=lambda w: " ".join(w)[:60])
def test_an_odd_word_of_a_command_is_said_to_be_one(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from mirage_py.cli.shell.run import run

    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path / "cache"))
    spec = tmp_path / "small.math"
    spec.write_text(SPEC, encoding="utf-8")
    code = run([str(spec) if word == "SPEC" else word for word in words])
    said = capsys.readouterr().err
    assert code == 2, said
    assert "Traceback" not in said
    assert "internal error" not in said.lower()
    assert 0 < len(said) < 2 * _LONGEST
