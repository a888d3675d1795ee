"""Kernels ranked by workers that wait for kernels to compile, beside a ranking in this process.

The ranking goes through its forms in one order, whoever ranks their kernels, and never waits: what
it asks for is ranked here unless a worker was faster. So its plans are those of one process. A
worker ranks kernels that are alike one after the other, as each takes the tilings of the first.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import astuple, replace
from typing import Any

from mirage_py.collector import rarely_collecting
from mirage_py.runtime.process.executor import reply_of
from mirage_py.runtime.process.warm_workers import FEW_PLACES, WARM
from mirage_py.runtime.process.worker_process import Reply, Task
from mirage_py.search.model.cost_model import Estimate
from mirage_py.search.model.footprint import Footprint
from mirage_py.search.model.launches import BackEnd
from mirage_py.search.rank.forms import Form, form_of
from mirage_py.search.rank.kernel_choices import (
    KernelChoice,
    KernelOf,
    RankedKernel,
    ranked_in_order,
)
from mirage_py.search.rank.kernel_models import BestTiles
from mirage_py.search.tilings.tilings import tiles_of
from mirage_py.settings import Settings
from mirage_py.targets import ALL_TARGETS, Target
from mirage_py.targets import target as target_named
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, LibraryCall, UGraph
from mirage_py.ugraph.text.json_form import dump_text, load_text

Json = dict[str, Any]
# The number of a kernel, and a back end.
_Key = tuple[int, BackEnd]
# A group takes some tenths of a second.
_LONGEST_S = 60.0


class RankPool:
    """Rankings of kernels by workers that compile kernels next, where many are kept and nobody uses
    them. Nothing is begun after ``end``, and what nobody needs any more is not begun either.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._is_known = target in ALL_TARGETS
        self._texts: dict[Form, str] = {}
        self._asked: dict[_Key, KernelOf] = {}
        self._running: dict[_Key, Future[Reply]] = {}
        self._found: dict[_Key, RankedKernel] = {}

    def prepare(self) -> None:
        """Start the workers, which import what a ranking takes while others of its parts run."""
        with WARM.lent(Settings.from_env().workers) as pool:
            if pool is not None and pool.places > FEW_PLACES and self._is_known:
                for _ in range(pool.places):
                    pool.submit(_READY)

    def begin(self, group: Sequence[KernelOf], backends: Sequence[BackEnd]) -> None:
        """Rank those that are not begun yet, in their order, for back ends with equal tilings."""
        fresh = [one for one in group if (one.number, backends[0]) not in self._asked]
        with WARM.lent(Settings.from_env().workers) as pool:
            if pool is None or pool.places <= FEW_PLACES or not self._is_known or not fresh:
                return
            asked = {(one.number, backend): one for one in fresh for backend in backends}
            future = pool.submit(self._task(fresh, backends), _LONGEST_S)
            self._asked |= asked
            self._running |= dict.fromkeys(asked, future)

    def found(self, number: int, backend: BackEnd) -> RankedKernel | None:
        """What is known of a kernel by now."""
        future = self._running.get((number, backend))
        if future is not None and future.done():
            self._take(future)
        return self._found.get((number, backend))

    def end(self) -> None:
        """Begin none of these any more."""
        for future in self._running.values():
            future.cancel()
        self._running.clear()

    def _task(self, group: Sequence[KernelOf], backends: Sequence[BackEnd]) -> Task:
        for one in group:
            if one.form not in self._texts:
                self._texts[one.form] = dump_text(one.form.ugraph)
        return {
            "service": "mirage_py.pipeline.pools.rank_pool:rank_group",
            "target": self._target.name,
            "backends": list(backends),
            "kernels": [[one.number, self._texts[one.form], one.place] for one in group],
        }

    def _take(self, future: Future[Reply]) -> None:
        reply = None if future.cancelled() else reply_of(future)
        for number, value in reply.value if reply is not None and reply.done else ():
            first, *_ = value["choices"]
            found = _read(value, self._asked[number, first].block)
            self._found |= {(number, backend): found for backend in value["choices"]}
        self._running = {key: f for key, f in self._running.items() if f is not future}


def ready(task: Mapping[str, Any]) -> None:
    """What a worker does that has imported this module."""
    del task


_READY: Task = {"service": "mirage_py.pipeline.pools.rank_pool:ready"}


def rank_group(task: Mapping[str, Any]) -> list[tuple[int, Json]]:
    """The inside of a worker: what it finds of each kernel that fits."""
    target = target_named(task["target"])
    group = [KernelOf(n, _form(text, target), place) for n, text, place in task["kernels"]]
    with rarely_collecting():
        found = ranked_in_order(group, task["backends"], target)
        return [(one.number, _written(ranked)) for one, ranked in found]


@functools.lru_cache(maxsize=256)
def _form(text: str, target: Target) -> Form:
    ugraph = load_text(text, "form")
    assert isinstance(ugraph, UGraph)
    return form_of(ugraph, target, {})


def _written(ranked: RankedKernel) -> Json:
    """As JSON: tilings once, and what of them is not the tiles only where it is a choice."""
    best, tilings = ranked.best, dict[Any, tuple[int, BlockGraph]]()
    choices: Json = {}
    for backend, of_backend in ranked.choices.items():
        choices[backend] = rows = []
        for choice in of_backend:
            assert not isinstance(choice.kernel, LibraryCall)
            tiles = tiles_of(choice.kernel)
            number, _ = tilings.setdefault(tiles, (len(tilings), choice.kernel))
            o = choice.options
            rows.append((number, o.num_warps, o.num_stages, o.flags, astuple(choice.estimate)))
    return {
        "among": None if best.among is None else sorted(best.among, key=str),
        "tiles": best.tiles,
        "grids": [[astuple(a) for a in block.grid] for _, block in tilings.values()],
        "loops": [[s.tile for s in block.sections] for _, block in tilings.values()],
        "choices": choices,
    }


def _read(value: Json, block: BlockGraph) -> RankedKernel:
    blocks = [
        replace(
            block,
            grid=tuple(GridAxis(*axis) for axis in grid),
            sections=tuple(replace(s, tile=t) for s, t in zip(block.sections, tiles, strict=True)),
        )
        for grid, tiles in zip(value["grids"], value["loops"], strict=True)
    ]
    choices = {
        backend: tuple(
            KernelChoice(
                blocks[number],
                _options(warps, tuple(stages), tuple(map(tuple, flags))),
                _estimate(*estimate),
            )
            for number, warps, stages, flags, estimate in rows
        )
        for backend, rows in value["choices"].items()
    }
    among = value["among"]
    best = BestTiles(
        None if among is None else frozenset(map(_tiles, among)), tuple(map(_tiles, value["tiles"]))
    )
    return RankedKernel(best, choices)


def _tiles(found: Sequence[Sequence[int | None]]) -> tuple[tuple[int | None, ...], ...]:
    return tuple(map(tuple, found))


@functools.lru_cache(maxsize=4096)
def _options(
    warps: int, stages: tuple[int, ...], flags: tuple[tuple[str, str], ...]
) -> LaunchConfig:
    return LaunchConfig.from_flags(warps, stages, flags)


def _estimate(
    time_us: float, footprint: Sequence[int], blocks: int, per_sm: int, bound: str
) -> Estimate:
    return Estimate(time_us, Footprint(*footprint), blocks, per_sm, bound)
