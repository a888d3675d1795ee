"""The first calls of the peers: what compiles at its first call does so here, and is timed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mirage_py.runtime.gate_store import laid_out
from mirage_py.ugraph.program import Program

if TYPE_CHECKING:
    import torch

Call = Callable[..., Any]


class WarmUp:
    """Calls each peer once, in a thread, while worker processes compile the candidates.

    ``wait`` is to be called before anything is timed: a peer that chooses its kernels by timing
    them must have the GPU to itself. The inputs live as long as this object, because a peer may
    keep what it derived from an input under that input's address.
    """

    def __init__(self, program: Program, peers: Mapping[str, Call], device: str = "cuda") -> None:
        self.seconds: dict[str, float] = {}
        self._peers = dict(peers)
        self._device = device
        self._inputs = _zeros(program, device)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return when every peer has been called."""
        self._thread.join()

    def _run(self) -> None:
        import torch

        # As in the tuner: a compiled function belongs to the mode it was compiled in, which every
        # thread has for itself.
        with torch.no_grad():
            for name, peer in self._peers.items():
                start = time.perf_counter()
                try:
                    peer(*self._inputs)
                    if self._device != "cpu":
                        torch.cuda.synchronize()
                except Exception:  # noqa: BLE001
                    # The tuner calls it too, and says why it does not run.
                    continue
                self.seconds[name] = time.perf_counter() - start


def _zeros(program: Program, device: str) -> tuple[torch.Tensor, ...]:
    """Inputs in the layouts that the peers are timed on; zeros are valid indices too."""
    import torch

    return tuple(
        laid_out(t, torch.zeros(t.shape, dtype=getattr(torch, t.dtype.torch_name), device=device))
        for t in program.inputs
    )
