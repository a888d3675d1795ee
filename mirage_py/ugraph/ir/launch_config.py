"""The launch configuration of a kernel: what is chosen of its text beside its tiles.

It changes how fast a kernel is, never what it computes. Emitters and the search read fields; stored
plans have ``num_warps``, ``num_stages`` and pairs of texts, the flags, for every option that is not
at its default. The reference page of launch options is written from this class
(``python -m benchmarks.pages.launch_options``).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from operator import attrgetter
from typing import Any, NoReturn

from mirage_py.errors import InputError
from mirage_py.ugraph.ir.launch_choices import (
    COUNT,
    NAMES,
    WARP_GRID,
    Arch,
    BlockOrder,
    MatmulInstruction,
    NextStart,
    Option,
    OverlapMode,
    Precision,
    RescalingMode,
    StoreMode,
    Text,
    choice,
    switch,
)

_EVICT, _EVICT_FIRST = "evict:", "evict_first"
_BOTH, _CUDA, _TRITON = "Triton and CUDA", "CUDA", "Triton"
_FREE = "nothing"


def _about(
    key: str, text: Text, backend: str, does: str, *, default: str, cost: str = _FREE,
    capability: int = 80,
) -> Mapping[str, Option]:  # fmt: skip
    return {"option": Option(key, text, backend, capability, default, does, cost)}


@dataclass(frozen=True, slots=True, repr=False)
class LaunchConfig:
    """How a kernel is launched; raises InputError for a value that an option cannot have.

    ``num_stages`` is the depth of each loop's software pipeline, one entry per loop in order.
    """

    num_warps: int = 4
    num_stages: tuple[int, ...] = ()
    _: KW_ONLY
    reversed_axes: bool = field(default=False, metadata=_about(
        "axes", switch("reversed"), _BOTH,
        "reverses the order of tile axes, which swaps the operands of every matmul: a narrow "
        "matmul gets the 64 rows that wgmma needs",
        default="the order in which no matmul needs a transpose",
    ))  # fmt: skip
    block_order: BlockOrder | None = field(default=None, metadata=_about(
        "order", choice(BlockOrder), _BOTH,
        "the order in which blocks of the grid start: `grouped` takes eight along the second "
        "axis for each of the first, for the L2; `backwards` begins at the end of axes with "
        "unequal work; `longest` starts the longest blocks first",
        default="first axis fastest",
        cost="index arithmetic at the kernel's start",
    ))  # fmt: skip
    descriptors: bool = field(default=False, metadata=_about(
        "copies", switch("descriptors"), _BOTH,
        "loads tiles of loops by TMA where it can reach all of them",
        default="copies by threads (`cp.async`)",
        cost="a tensor map for each tensor; shared memory in TMA's layout", capability=90,
    ))  # fmt: skip
    early_start: bool = field(default=False, metadata=_about(
        "start", switch("early"), _BOTH,
        "programmatic dependent launch: the kernel is placed while the previous one still "
        "runs, and waits for its results",
        default="after the previous kernel",
        cost="one wait in the kernel", capability=90,
    ))  # fmt: skip
    next_start: NextStart | None = field(default=None, metadata=_about(
        "next", choice(NextStart), _BOTH,
        "of every kernel of a plan: the plan lies between kernels that start early, so that the "
        "first one does, too, and what follows may start when a kernel has `waited`, or comes to "
        "its last `stores`",
        default="nothing behind the plan starts early",
        cost="under a clock a plan that follows itself begins while it runs", capability=90,
    ))  # fmt: skip
    constants: tuple[str, ...] = field(default=(), metadata=_about(
        "constants", NAMES, _CUDA,
        "inputs that no kernel in front writes: their first tiles are copied to shared memory "
        "before the kernel waits; with `next`",
        default="none",
        cost="nothing", capability=90,
    ))  # fmt: skip
    evict_first: tuple[str, ...] = field(default=(), metadata=_about(
        "evict:", NAMES, _BOTH,
        "an L2 eviction hint for loads of one tensor",
        default="no hint",
        cost="another kernel that reads the tensor finds less of it in the L2",
    ))  # fmt: skip
    precision: Precision | None = field(default=None, metadata=_about(
        "precision", choice(Precision), _BOTH,
        "tensor cores for matmuls of float32: `tf32` rounds operands to 10 bits of mantissa, "
        "`tf32x3` takes three matmuls of TF32 and is about as exact as float32",
        default="`ieee`: CUDA cores",
        cost="`tf32`: 13 bits of mantissa; `tf32x3`: a third of the rate, registers for the parts",
    ))  # fmt: skip
    run_time_sizes: tuple[str, ...] = field(default=(), metadata=_about(
        "sizes", NAMES, _TRITON,
        "these dimensions' sizes are arguments of the kernel",
        default="sizes are constants",
        cost="index arithmetic, and masks for every tail",
    ))  # fmt: skip
    one_variant: bool = field(default=False, metadata=_about(
        "variants", switch("one"), _TRITON,
        "with run-time sizes: one machine code for all numbers, so that each orders sums alike",
        default="another one for multiples of 16",
        cost="accesses along axes of such a size are narrow",
    ))  # fmt: skip
    arch: Arch | None = field(default=None, metadata=_about(
        "arch", choice(Arch), _CUDA,
        "the instruction set that the text may use; `sm_90a` runs on Hopper only",
        default="`sm_80`; `sm_90a` for clusters",
    ))  # fmt: skip
    matmul: MatmulInstruction | None = field(default=None, metadata=_about(
        "products", choice(MatmulInstruction), _CUDA,
        "the matmul instruction, where wgmma fits",
        default="`wgmma`",
        cost="`mma`: operands come through registers", capability=90,
    ))  # fmt: skip
    excess_codes: bool = field(default=False, metadata=_about(
        "codes", switch("excess"), _CUDA,
        "leaves the zero point of four-bit weights to one more row tile of the matmul, and scales "
        "of groups, of eight bits too, to the sums of a group",
        default="each weight is less its zero point and times its scale before the matmul",
        cost="sums in float32 of about six times as large numbers",
    ))  # fmt: skip
    warp_grid: tuple[int, ...] = field(default=(), metadata=_about(
        "warps", WARP_GRID, _CUDA,
        "MMA partitioning: warps along rows, columns and the contracted dimension",
        default="by rule",
    ))  # fmt: skip
    concatenated_n: bool = field(default=True, metadata=_about(
        "joins", switch("off", value=False), _CUDA,
        "`off` keeps matmuls of the same rows apart, which are else one instruction with "
        "concatenated N",
        default="on",
        cost="an instruction for each matmul", capability=90,
    ))  # fmt: skip
    producer_warps: bool = field(default=False, metadata=_about(
        "producer", switch("warps"), _CUDA,
        "producer warps with TMA (warp specialization)",
        default="no producer",
        cost="one warp more, or a warp group from two warp groups on", capability=90,
    ))  # fmt: skip
    overlap: OverlapMode | None = field(default=None, metadata=_about(
        "overlap", choice(OverlapMode), _CUDA,
        "MMA/softmax overlap: a dependent matmul runs one iteration late; `across` waits for "
        "it at the head of the next iteration; needs TMA",
        default="no overlap",
        cost="registers for the operand of the iteration before", capability=90,
    ))  # fmt: skip
    ping_pong: bool = field(default=False, metadata=_about(
        "turns", switch("on"), _CUDA,
        "ping-pong scheduling of two warp groups or more; with `overlap`",
        default="all groups at once",
        cost="two named barriers for each turn", capability=90,
    ))  # fmt: skip
    persistent_blocks: int = field(default=0, metadata=_about(
        "blocks", COUNT, _CUDA,
        "a persistent kernel of so many blocks with a tile scheduler; with `producer`",
        default="one block a work tile",
        cost="its blocks keep their SMs to the end", capability=90,
    ))  # fmt: skip
    producer_sums: bool = field(default=False, metadata=_about(
        "sums", switch("producer"), _CUDA,
        "row reductions (norms of keys) in the idle producer warps; with `producer`; an error "
        "where a loop has such reductions and they cannot be there",
        default="in the warps that compute",
        cost="a whole warp group of producers, and a barrier for each tile", capability=90,
    ))  # fmt: skip
    rescaling: RescalingMode | None = field(default=None, metadata=_about(
        "rescaling", choice(RescalingMode), _CUDA,
        "when sums of an online softmax are rescaled: `lazy` only when a maximum rises by "
        "more than 2^8; `optimistic` only when a warp votes that values may overflow",
        default="at once",
        cost="a vote of the warp in each iteration",
    ))  # fmt: skip
    stores: StoreMode | None = field(default=None, metadata=_about(
        "stores", choice(StoreMode), _CUDA,
        "wide stores: `lanes` by quad shuffles, `rows` as whole rows through shared memory",
        default="as the registers hold it",
        cost="shuffles, or shared memory for a tile",
    ))  # fmt: skip
    thread_graphs: bool = field(default=True, metadata=_about(
        "threads", switch("off", value=False), _CUDA,
        "`off` sends values of elementwise chains through memory, for comparison",
        default="on",
        cost="shared memory and barriers",
    ))  # fmt: skip
    chosen_layouts: bool = field(default=True, metadata=_about(
        "layouts", switch("naive", value=False), _CUDA,
        "`naive` gives each tile the register layout that suits its own shape, for comparison",
        default="layouts that few values have to change",
        cost="layout conversions",
    ))  # fmt: skip
    barrier_schedule: bool = field(default=True, metadata=_about(
        "schedule", switch("off", value=False), _CUDA,
        "`off` gives each exchange a barrier of its own, for comparison",
        default="the order of work that takes the fewest barriers",
        cost="barriers",
    ))  # fmt: skip
    memory_reuse: bool = field(default=True, metadata=_about(
        "memory", switch("off", value=False), _CUDA,
        "`off` gives each buffer memory of its own, for comparison",
        default="reuse of shared memory by liveness",
        cost="shared memory",
    ))  # fmt: skip

    def __post_init__(self) -> None:
        if type(self.num_warps) is not int or self.num_warps < 1:
            _refuse("num_warps", self.num_warps, "a number from 1 on")
        for stages in self.num_stages:
            if type(stages) is not int or stages < 0:
                _refuse("num_stages", self.num_stages, "a number for each loop")
        # Most are at their defaults, and the search makes many.
        for (name, default), value in zip(_DEFAULTS, _VALUES(self), strict=True):
            if value is not default and not _holds(_OPTIONS[name], default, value):
                _refuse(name, value, ", ".join(_OPTIONS[name].text.values))

    def __repr__(self) -> str:
        shown = [f"{name} {value}" for name, value in self.flags]
        stages = f"stages {', '.join(map(str, self.num_stages))}" if self.num_stages else ""
        return f"<{'; '.join(s for s in (f'{self.num_warps} warps', stages, *shown) if s)}>"

    @property
    def uses_tma(self) -> bool:
        """Whether TMA loads tiles of loops, by the warps that compute or by a producer."""
        return self.descriptors or self.producer_warps

    @property
    def flags(self) -> tuple[tuple[str, str], ...]:
        """Key and text of each option that is not at its default, sorted, as stored plans have
        them.
        """
        found = [(f"{_EVICT}{tensor}", _EVICT_FIRST) for tensor in self.evict_first]
        for name, default in _DEFAULTS:
            value = getattr(self, name)
            if value != default and name != _EVICT_FIRST:
                found.append((_OPTIONS[name].key, _OPTIONS[name].text.write(value)))
        return tuple(sorted(found))

    @classmethod
    def from_flags(
        cls, num_warps: int, num_stages: tuple[int, ...], flags: Iterable[tuple[str, str]]
    ) -> LaunchConfig:
        """What ``flags`` gave. Raises InputError for an unknown key, a key given twice and a text
        that is no value of its option.
        """
        values: dict[str, Any] = {}
        evicted: list[str] = []
        for key, text in flags:
            name = _name(key)
            if name in values or (name == _EVICT_FIRST and key.removeprefix(_EVICT) in evicted):
                raise InputError(f"the launch option '{key}' is given twice", repair="say it once")
            if name != _EVICT_FIRST:
                values[name] = _read(name, text)
            elif text == _EVICT_FIRST:
                evicted.append(key.removeprefix(_EVICT))
            else:
                _refuse(key, text, _EVICT_FIRST)
        return cls(num_warps, num_stages, evict_first=tuple(sorted(evicted)), **values)

    def with_flag(self, key: str, text: str) -> LaunchConfig:
        """The configuration with an option set by its text; the empty text is its default."""
        flags = {**dict(self.flags), key: text}
        _name(key)
        given = [(k, t) for k, t in flags.items() if t]
        return LaunchConfig.from_flags(self.num_warps, self.num_stages, given)


def launch_options() -> Mapping[str, Option]:
    """What is known of every option, by the name of its field."""
    return _OPTIONS


_OPTIONS: Mapping[str, Option] = {
    f.name: f.metadata["option"] for f in fields(LaunchConfig) if f.metadata
}
_DEFAULTS: tuple[tuple[str, object], ...] = tuple(
    (f.name, f.default) for f in fields(LaunchConfig) if f.metadata
)
_VALUES = attrgetter(*(name for name, _ in _DEFAULTS))
_NAMES = {option.key: name for name, option in _OPTIONS.items()}


def _holds(option: Option, default: object, value: object) -> bool:
    return (type(value) is type(default) and value == default) or option.holds(value)


def _name(key: str) -> str:
    """The field of a key."""
    if key.startswith(_EVICT) and key != _EVICT:
        return _EVICT_FIRST
    if key not in _NAMES or key == _EVICT:
        close = difflib.get_close_matches(key, _NAMES, 1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        known = ", ".join(f"{k}TENSOR" if k == _EVICT else k for k in sorted(_NAMES))
        raise InputError(f"unknown launch option '{key}'", repair=f"{hint}use one of {known}")
    return _NAMES[key]


def _read(name: str, text: str) -> object:
    option = _OPTIONS[name]
    try:
        return option.text.read(text)
    except ValueError:
        _refuse(option.key, text, ", ".join(option.text.values))


def _refuse(option: str, value: object, values: str) -> NoReturn:
    raise InputError(
        f"the launch option '{option}' cannot be '{value}'",
        repair=f"use {values}, or leave the option out",
    )
