"""Tiles of fused convolutions on this GPU: compiled, checked, timed against the library, cached.

CACHE/operators/KEY.json    {convolution: tiles, microseconds of the kernel and of the library}

A kernel is checked on small whole numbers, whose sums are exact: its result must equal float64's,
rounded once, bit by bit, so that one missing or extra product shows. Memory outside the result must
not change. On normal numbers the error may not exceed what rounding explains. The library's time is
the least of: cuDNN with the surrounding code in its own kernel, cuDNN with one elementwise kernel
of ours after it (measured or modelled), and, for a 1 x 1 convolution, cuBLAS.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from mirage_py.errors import MirageError, ScheduleError
from mirage_py.runtime.base.atomic import write_text
from mirage_py.runtime.base.gpu_context import require_gpu
from mirage_py.runtime.base.private_folder import private_folder
from mirage_py.runtime.compile.compile import KernelSource
from mirage_py.runtime.compile.compile_pool import CompilePool
from mirage_py.runtime.launch.convolutions.block_counters import make_counters
from mirage_py.runtime.launch.convolutions.weights import memory_format, weight_form
from mirage_py.runtime.launch.fused_convolution import (
    convolved,
    epilogue_source,
    fused_convolution_runner,
    kernel_source,
)
from mirage_py.runtime.store.cache import toolchain
from mirage_py.runtime.timing.timing import time_interleaved
from mirage_py.search.model.baseline_model import fused_us
from mirage_py.search.networks.convolutions.tiles import least_us, ranked_tiles
from mirage_py.search.networks.convolutions.window_tiles import window_tiles
from mirage_py.targets import Target
from mirage_py.ugraph.ir.convolution import (
    ConvolutionPlan,
    ConvolutionTiles,
    FusedConvolution,
    LibraryConvolution,
    WindowTiles,
    plan_of,
)

log = logging.getLogger("mirage_py.dynamo")

_TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
_CANDIDATES, _EARLY = 4, 1
# More of what takes long, for which the model finds several shapes of tiles as good.
_MORE_CANDIDATES = 2
_REPS, _SETS = 7, 4
# Of the largest result, on normal numbers; sums of whole numbers are held to all bits.
_NEAR = 0.02
# What a way of the library may take beyond what it would with a modelled kernel after it.
_DOUBT = 1.1
# What takes long by the model of our kernels: the library is tuned for it.
_LONG_US = 8.0
# Inputs of whole numbers, before one of normal numbers; elements around a result.
_GELU_NEAR = 1e-4
_EXACT, _GUARD = 2, 1 << 14


@dataclass(frozen=True, slots=True)
class Timed:
    """The fastest kernel of a convolution; ``why`` there is none. ``library`` is the library's way
    with what is around, where no compiler's way is expected to be faster.
    """

    tiles: ConvolutionTiles | WindowTiles | None
    us: float
    library_us: float
    why: str = ""
    library: LibraryConvolution | None = None

    @property
    def pays(self) -> bool:
        """Whether the kernel is faster than the library."""
        return self.tiles is not None and self.us < self.library_us

    @property
    def plan(self) -> ConvolutionPlan | None:
        """The fastest way; None for the convolution as it stands."""
        return self.tiles if self.pays else self.library


def convolution_times(
    specs: Sequence[FusedConvolution], target: Target, device: torch.device
) -> dict[FusedConvolution, Timed]:
    """Each convolution's fastest kernel."""
    path = _path(device)
    known = _read(path)
    missing = [s for s in dict.fromkeys(specs) if _key(s) not in known]
    wanted = {s: _candidates(s, target) for s in missing}
    major, minor = torch.cuda.get_device_capability(device)
    sources = [kernel_source(s, t) for s, tiles in wanted.items() for t in tiles]
    sources += _epilogues(missing)
    with CompilePool() as pool:
        pool.compile_sources(sources, 10 * major + minor)
    index = torch.empty(0, device=device).device.index
    make_counters(index)
    with _disable_current_modes(), torch.no_grad():
        for spec, tiles in wanted.items():
            known[_key(spec)] = _timed(spec, tiles, target, index)
    if missing:
        # Other processes have timed convolutions meanwhile.
        known = _read(path) | known
        with contextlib.suppress(OSError):
            content = {key: asdict(row) for key, row in known.items()}
            write_text(path, json.dumps(content, indent=0) + "\n")
    return {s: known[_key(s)] for s in specs}


def _candidates(spec: FusedConvolution, target: Target) -> list[ConvolutionTiles | WindowTiles]:
    """What the model ranks first, and the first of them so that they start early; of single
    channels kernels over windows alone, where there are any.
    """
    is_long = least_us(spec, target) >= _LONG_US
    count = _CANDIDATES + _MORE_CANDIDATES * is_long
    over_windows = window_tiles(spec, target, count)
    if over_windows:
        return [*over_windows]
    ranked = ranked_tiles(spec, target, count)
    return [*ranked, *(replace(tiles, is_early=True) for tiles in ranked[:_EARLY])]


def _epilogues(specs: Sequence[FusedConvolution]) -> list[KernelSource]:
    found = []
    for spec in specs:
        if not spec.is_bare:
            with contextlib.suppress(ScheduleError):
                found.append(epilogue_source(spec))
    return found


def library_ways(spec: FusedConvolution, target: Target) -> list[LibraryConvolution]:
    """What the library can do with what stands around. Its own kernels end with a relu; they, and
    the search for its fastest algorithm, take seconds to begin: only for what takes long.
    """
    if spec.is_bare or spec.relu_before or spec.gelu_after or spec.is_matmul:
        return []
    # The elementwise kernel wants channels last, and the library's own no pools.
    if spec.pool or spec.is_planar or spec.is_separable:
        return []
    ways = [LibraryConvolution(is_fused=False)]
    if spec.is_plain_product and spec.groups == 1:
        ways.append(LibraryConvolution(is_fused=False, is_product=True))
    if least_us(spec, target) >= _LONG_US:
        ways.append(LibraryConvolution(is_fused=False, is_tuned=True))
        ways += [LibraryConvolution(is_fused=True)] * spec.relu_after
    return ways


def _timed(
    spec: FusedConvolution,
    tiled: Sequence[ConvolutionTiles | WindowTiles],
    target: Target,
    index: int,
) -> Timed:
    ways = library_ways(spec, target)
    candidates: list[ConvolutionPlan] = [*tiled, *ways]
    entries: dict[str, Callable[[int], Any]] = {}
    sets = [_Operands(spec, index, seed, exact=False) for seed in range(_SETS)]
    check = Check(spec, index)
    dropped: list[str] = []
    for number, tiles in enumerate(candidates):
        try:
            run = fused_convolution_runner(spec, tiles, index)
            why = check.fault(tiles)
        except MirageError as error:
            dropped.append(f"{tiles}: {error}")
            continue
        # What the library refuses it refuses with an error of its own.
        except RuntimeError as error:
            require_gpu(str(spec), error)
            dropped.append(f"{tiles}: {str(error).splitlines()[0]}")
            continue
        if why:
            dropped.append(f"{tiles}: {why}")
            continue
        packed = [o.packed(tiles) for o in sets]

        def ours(n: int, run: Any = run, packed: Any = packed) -> Any:
            return run(sets[n].x, packed[n], sets[n].bias, sets[n].residual)

        entries[str(number)] = ours
    for line in dropped:
        log.warning("graph level: a kernel of %s is not used: %s", spec, line)
    entries["library"] = lambda n: sets[n].convolved()
    if spec.is_matmul:
        entries["product"] = lambda n: sets[n].product()
    times = time_interleaved(entries, _SETS, reps=_REPS)
    ran = {n: t.median_us for n, t in times.items() if t.ran}
    theirs = [ran.pop(name, float("inf")) for name in ("library", "product")]
    library_us = min(theirs) + _around_us(spec, target)
    measured = {candidates[int(n)]: us for n, us in ran.items()}
    of_library = {w: measured.pop(w) for w in ways if w in measured}
    library = min(of_library, key=lambda w: of_library[w], default=None)
    if library is not None and of_library[library] > _DOUBT * library_us:
        library = None
    if library is not None:
        library_us = min(library_us, of_library[library])
    if not measured:
        why = "; ".join(dropped) or "none ran"
        return Timed(None, float("inf"), library_us, why, library)
    best = min(measured, key=lambda t: measured[t])
    assert not isinstance(best, LibraryConvolution)
    return Timed(best, measured[best], library_us, library=library)


class Check:
    """Inputs of a convolution with what comes out, for all kernels of it."""

    def __init__(self, spec: FusedConvolution, index: int) -> None:
        self._spec, self._index = spec, index
        drawn = [_Operands(spec, index, seed, exact=seed < _EXACT) for seed in range(_EXACT + 1)]
        self._cases = [(given, given.exact_result()) for given in drawn]

    def fault(self, tiles: ConvolutionPlan) -> str:
        """What is wrong with a kernel's results on this GPU; nothing where it is right. The library
        may round what it hands to an elementwise kernel.
        """
        spec = self._spec
        exact = 0 if isinstance(tiles, LibraryConvolution) else _EXACT
        run = fused_convolution_runner(spec, tiles, self._index)
        for number, (given, want) in enumerate(self._cases):
            packed = given.packed(tiles)
            try:
                rooms = [_Guarded(spec, want) for _ in range(2)]
                for room in rooms:
                    run(given.x, packed, given.bias, given.residual, room.result)
                torch.cuda.synchronize()
            except Exception as error:
                require_gpu(str(spec), error)
                raise
            first, again = (room.result for room in rooms)
            if not all(room.guards_hold() for room in rooms):
                return "it writes outside of the result"
            if not torch.equal(first, again):
                return "two calls differ"
            if number < exact and not _agree(spec, first, want.to(first.dtype)):
                return "sums of whole numbers differ"
            off = float((first.double() - want).abs().max() / want.abs().max().clamp(min=1e-30))
            if not off <= _NEAR:
                return f"off by {off:.2g} of the largest result"
        return ""


def _agree(spec: FusedConvolution, one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether sums of whole numbers are the same; a GELU of one far below 0 is 0 or nearly so."""
    if not spec.gelu_after:
        return torch.equal(one, other)
    return bool(((one.double() - other.double()).abs() <= _GELU_NEAR).all())


class _Guarded:
    """Memory for a result with nothing in it that is a number, and as much around it."""

    def __init__(self, spec: FusedConvolution, like: torch.Tensor) -> None:
        count, kind = like.numel(), _TYPES[spec.dtype]
        self._all = torch.full((count + 2 * _GUARD,), float("nan"), dtype=kind, device=like.device)
        shape = spec.result_shape
        inner = self._all[_GUARD : _GUARD + count]
        if spec.is_planar:
            self.result = inner.view(shape)
        else:
            self.result = inner.view(shape[0], *shape[2:], shape[1]).movedim(-1, 1)

    def guards_hold(self) -> bool:
        """Whether nothing was written before and after the result."""
        return bool(self._all[:_GUARD].isnan().all() & self._all[-_GUARD:].isnan().all())


class _Operands:
    """Inputs of a convolution; ``exact``: whole numbers, none of them 0, small enough for sums."""

    def __init__(self, spec: FusedConvolution, index: int, seed: int, *, exact: bool) -> None:
        self.spec = spec
        generator = torch.Generator(f"cuda:{index}").manual_seed(seed)
        kind = _TYPES[spec.dtype]

        def drawn(*shape: int) -> torch.Tensor:
            if not exact:
                made = torch.randn(shape, device=f"cuda:{index}", generator=generator)
                return made.to(kind)
            made = torch.randint(1, 4, shape, device=f"cuda:{index}", generator=generator)
            sign = torch.randint(0, 2, shape, device=f"cuda:{index}", generator=generator)
            return (made * (2 * sign - 1)).to(kind)

        def image(space: Sequence[int], channels: int, apart: int, offset: int) -> torch.Tensor:
            count = max(apart, offset + channels)
            if spec.is_planar:
                return drawn(spec.batch, count, *space)[:, offset : offset + channels]
            return drawn(spec.batch, *space, count).movedim(-1, 1)[:, offset : offset + channels]

        self.x = image(spec.space, spec.inputs, spec.apart, spec.offset)
        self.weight = None
        if not spec.pool:
            weight = drawn(*spec.weight_shape)
            is_flat = weight.dim() == 1
            kept = torch.contiguous_format if is_flat else memory_format(spec)
            self.weight = weight.contiguous(memory_format=kept)
        self.bias = drawn(spec.results) if spec.has_bias else None
        residual = (spec.residual_apart, spec.residual_offset)
        self.residual = None
        if spec.has_residual:
            self.residual = image(spec.out_space, spec.results, *residual)

    def packed(self, plan: ConvolutionPlan) -> torch.Tensor | None:
        """The weight as a plan reads it; a pool has none."""
        return None if self.weight is None else weight_form(self.spec, plan).packed(self.weight)

    def convolved(self) -> torch.Tensor:
        """The convolution alone, by the library."""
        return convolved(self.spec, self.x, self.weight, self.spec.groups)

    def product(self) -> torch.Tensor:
        """The convolution of a product of matrices as that product."""
        assert self.weight is not None
        places = self.x.movedim(1, -1).reshape(-1, self.spec.inputs)
        weight = self.weight.reshape(self.spec.results, -1).t()
        return places @ weight if self.bias is None else torch.addmm(self.bias, places, weight)

    def exact_result(self) -> torch.Tensor:
        """The result in float64."""
        s, x = self.spec, self.x.double()
        x = x.relu() if s.relu_before else x
        weight = None if self.weight is None else self.weight.double()
        result = convolved(s, x, weight, s.groups)
        if self.bias is not None:
            result = result + self.bias.double().reshape(-1, *(1,) * len(s.space))
        if self.residual is not None:
            result = result + self.residual.double()
        if s.gelu_after:
            return torch.nn.functional.gelu(result)
        return result.relu() if s.relu_after else result


def _around_us(spec: FusedConvolution, target: Target) -> float:
    """What an elementwise kernel takes for what is around the convolution."""
    image = 2.0 * spec.batch * prod(spec.space) * spec.inputs
    result = 2.0 * spec.places * spec.results
    total = fused_us(2 * image, 0.0, target) if spec.relu_before else 0.0
    if spec.gelu_after:
        total += fused_us(2 * result, 0.0, target)
    # Products of compilers take in all else themselves.
    if not spec.is_matmul and (spec.has_bias or spec.has_residual or spec.relu_after):
        total += fused_us((2 + spec.has_residual) * result, 0.0, target)
    return total


def _key(spec: FusedConvolution) -> str:
    return json.dumps(asdict(spec))


def _read(path: Path) -> dict[str, Timed]:
    try:
        rows: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        for row in rows.values():
            for name in ("tiles", "library"):
                row[name] = None if row[name] is None else plan_of(row[name])
        return {key: Timed(**row) for key, row in rows.items()}
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return {}


def _path(device: torch.device) -> Path:
    content = [torch.cuda.get_device_name(device), torch.__version__, sorted(toolchain().items())]
    key = hashlib.sha256(
        json.dumps(["convolutions and the library's", *content]).encode()
    ).hexdigest()[:32]
    return private_folder("operators") / f"{key}.json"
