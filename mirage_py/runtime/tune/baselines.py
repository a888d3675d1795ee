"""The baselines: the user's function itself, and the same by torch.compile; their warm-up beside
the compilation of kernels.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mirage_py.runtime.base.layouts import laid_out
from mirage_py.runtime.eager.compiled import EAGER, MAX_AUTOTUNE, MODES, CompiledFunction
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.runtime.eager.writing import WritingFunction
from mirage_py.runtime.timing.autotuning_turns import can_take_turns, tuning_in_turns
from mirage_py.ugraph.ir.program import Program

if TYPE_CHECKING:
    import torch

Baseline = Callable[..., Any]


def baselines(
    program: Program,
    function: Baseline | None = None,
    *,
    effort: str = "quick",
    dynamic: bool = False,
    modes: Collection[str] | None = None,
) -> dict[str, Baseline]:
    """Functions of the program's inputs by name; ``function`` is the user's own, if there is one.

    ``eager`` always; but with effort none, torch.compile in both modes, or in these. ``dynamic``
    for many sizes. Compilation happens at the first call.
    """
    eager = function or torch_function(program)
    compiled: dict[str, Baseline] = {}
    wanted = MODES if modes is None else {name: MODES[name] for name in modes}
    for name, mode in wanted.items() if effort != "none" else ():
        form = functools.partial(CompiledFunction, mode=mode, dynamic=dynamic)
        compiled[name] = eager.by(form) if isinstance(eager, WritingFunction) else form(eager)
    return {EAGER: eager, **compiled}


class WarmUp(Mapping[str, Baseline]):
    """Baselines by name, each called once on zeros, in a thread, from ``begin`` on.

    Not beside a search: torch.compile is Python as the search is, and a thread that lets go of the
    interpreter waits its turn to get it back. A search of 0.3 s took 4.4 s, and was cut at its
    deadline. A function that chooses its kernels by timing them needs the GPU for itself: call
    ``wait`` before anything else is timed, or ask whether it ``takes_turns``, as torch.compile
    does. What a function raises is left to its next call. The
    inputs live as long as this object, because a function may keep what it made of one under its
    address. They are on ``device``, by default the current GPU.
    """

    def __init__(
        self,
        program: Program,
        functions: Mapping[str, Baseline],
        device: torch.device | None = None,
        *,
        held: Collection[str] = (),
    ) -> None:
        import torch

        self.held = tuple(n for n in functions if n in held)
        self.seconds: dict[str, float] = {}
        self._functions = dict(functions)
        self._device = device or torch.device("cuda", torch.cuda.current_device())
        self._inputs = _zeros(program, self._device)
        self._is_ended = False
        self._in_turns = False
        self._started = time.monotonic()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Call those that are not held, if that has not begun."""
        if self._thread is None:
            self._call([n for n in self._functions if n not in self.held])

    def go_on(self) -> None:
        """Call those that are held, too; the others have to be done."""
        names, self.held = self.held, ()
        self._call(names)

    def _call(self, names: Sequence[str]) -> None:
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._run, args=(names,), daemon=True)
        self._thread.start()

    def __getitem__(self, name: str) -> Baseline:
        return self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    @property
    def is_done(self) -> bool:
        """Whether ``wait`` would return at once."""
        return self._thread is not None and not self._thread.is_alive()

    @property
    def takes_turns(self) -> bool:
        """Whether what is called now keeps out of others' measurements, or nothing is called."""
        return self.is_done or self._in_turns

    @property
    def late(self) -> tuple[str, ...]:
        """What torch.compile has not compiled yet."""
        begun = (n for n in self._functions if n not in self.held)
        return tuple(n for n in begun if n in MODES and n not in self.seconds)

    def wait(self, most_s: float | None = None) -> float:
        """Return when each was called, or so many seconds after the beginning: the seconds that the
        calls took together. What writes to the user's tensors is waited for in any case.
        """
        self.begin()
        left_s = None if most_s is None else max(0.0, self._started + most_s - time.monotonic())
        self._join(None if self._writes else left_s)
        return sum(self.seconds.values())

    def end(self) -> None:
        """Call no other one."""
        self._is_ended = True
        if self._writes:
            self._join()

    def _join(self, seconds: float | None = None) -> None:
        if self._thread is not None:
            self._thread.join(seconds)

    @property
    def _writes(self) -> bool:
        return any(isinstance(f, WritingFunction) for f in self._functions.values())

    @contextlib.contextmanager
    def _apart(self, name: str) -> Iterator[None]:
        if name not in MODES:
            yield
            return
        with tuning_in_turns():
            self._in_turns = can_take_turns()
            try:
                yield
            finally:
                self._in_turns = False

    def _run(self, names: Sequence[str]) -> None:
        import torch

        on_gpu = self._device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(self._device)  # each thread has its own
        # So has it this mode, and a compiled function belongs to the mode it was compiled in.
        with torch.no_grad():
            for name in names:
                function, start = self._functions[name], time.monotonic()
                with contextlib.suppress(Exception):
                    if self._is_ended:
                        return
                    with self._apart(name):
                        function(*self._inputs)
                        if on_gpu:
                            torch.cuda.synchronize(self._device)
                self.seconds[name] = time.monotonic() - start


def compiling(program: Program, given: Mapping[str, Baseline] | None, effort: str) -> WarmUp:
    """The baselines of a program, to be compiled for the GPU: those that are ``given``, a given
    ``eager`` being the user's own function, and the usual ones where no torch.compile is given.
    With effort quick max-autotune is held.
    """
    if isinstance(given, WarmUp):
        return given
    own = dict(given or {})
    if not any(name in MODES for name in own):
        own = {**baselines(program, own.get(EAGER), effort=effort), **own}
    return WarmUp(program, own, held=(MAX_AUTOTUNE,) if effort == "quick" else ())


def _zeros(program: Program, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Inputs in the layouts that are timed; zeros are right for indices too."""
    import torch

    return tuple(
        laid_out(t, torch.zeros(t.shape, dtype=getattr(torch, t.dtype.torch_name), device=device))
        for t in program.inputs
    )
