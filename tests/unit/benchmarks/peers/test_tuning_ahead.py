"""What coordinate descent may try next is compiled before it is tried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.peers import tuning_ahead

triton = pytest.importorskip("triton")


class Tuner:
    """As Inductor's, of two fields."""

    tunable_fields = ("XBLOCK", "num_warps")

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}

    def get_neighbour_values(self, _field: str, value: int) -> list[int]:
        return [value * 2, value // 2]

    def lookup_in_cache(self, config: Any) -> float | None:
        return self.seen.get(str(config))

    def is_valid_config(self, config: Any) -> bool:
        return config.num_warps > 1

    def compare_config(self, func: Any, candidate: Any, best: Any, us: float) -> Any:
        self.seen[str(candidate)] = found = func(candidate)
        return found < us, found


class Autotuner:
    """As Inductor's, that tries one configuration after another."""

    def __init__(self) -> None:
        self.coordesc_tuner, self.compiled = Tuner(), []
        self.tried: list[tuple[str, bool]] = []
        self.fn = SimpleNamespace(fn=None)
        self._reload_kernel = lambda: SimpleNamespace(fn=SimpleNamespace(fn=len))

    def _precompile_config(self, config: Any) -> None:
        self.compiled.append(str(config))
        if config.num_warps == 8:
            raise RuntimeError("out of resources")

    def _coordinate_descent_tuning(self, launcher: Any) -> str:
        def func(config: Any) -> float:
            self.tried.append((str(config), str(config) in self.compiled))
            return abs(config.kwargs["XBLOCK"] - 64)

        best, us = launcher.config, func(launcher.config)
        for _ in range(3):
            for config in tuning_ahead.neighbours(self.coordesc_tuner, best):
                is_better, found = self.coordesc_tuner.compare_config(func, config, best, us)
                best, us = (config, found) if is_better else (best, us)
        return str(best)


def test_the_neighbours_of_each_best_configuration_are_compiled_first() -> None:
    start = SimpleNamespace(config=triton.Config({"XBLOCK": 16}, num_warps=4))
    plain = Autotuner()
    want = plain._coordinate_descent_tuning(start)
    tuning_ahead._patch(Autotuner, Tuner)
    ahead = Autotuner()
    assert ahead._coordinate_descent_tuning(start) == want
    assert "XBLOCK: 64" in want
    # The same configurations are tried in the same order, each but the first compiled before.
    assert [name for name, _ in ahead.tried] == [name for name, _ in plain.tried]
    assert all(was_compiled for _, was_compiled in ahead.tried[1:])
