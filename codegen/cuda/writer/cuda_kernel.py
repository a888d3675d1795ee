"""The emitted CUDA kernel as the runtime takes it: its text and its launch parameters."""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.program import Tensor


@dataclass(frozen=True, slots=True)
class Im2col:
    """How TMA goes along pixels of images (``cuTensorMapEncodeIm2col``): along each axis between
    channels and the image's number, the fastest first, from 0 to the ``corners``, which are counted
    back from the tensor's end; ``steps`` of all axes.
    """

    corners: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorMap:
    """How TMA (sm_90) sees a tensor (``cuTensorMapEncodeTiled``).

    ``shape`` and ``box`` count elements, ``strides_bytes`` the bytes from one to the next; all have
    the contiguous axis first, which ``strides_bytes`` leaves out. ``swizzle_bytes`` is 0, 32, 64 or
    128. ``steps`` are those between the elements of a box, which the box spans (none: 1). Elements
    outside of the tensor arrive as zeros. In ``windows`` the box is of channels and pixels.
    ``rounds``: float32 arrives as the nearest numbers of TF32.
    """

    name: str
    tensor: str
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int
    steps: tuple[int, ...] = ()
    windows: Im2col | None = None
    rounds: bool = False


@dataclass(frozen=True, slots=True)
class CudaKernel:
    """One kernel. ``source`` is a file that nvcc and NVRTC compile alone; ``body`` is the same
    without the device functions it uses, for which a CPU has others.

    Parameters are the addresses of ``pointers``, then ``tensor_maps`` by value. ``grid`` counts
    blocks, of which ``cluster`` neighbours form a thread-block cluster (1: none). ``smem_bytes`` is
    dynamic shared memory. ``capability`` is what the text is for: 80, or 90 for sm_90a.
    ``uses_pdl``: the GPU may start its blocks before the previous kernel has ended.
    """

    name: str
    source: str
    body: str
    pointers: tuple[Tensor, ...]
    tensor_maps: tuple[TensorMap, ...]
    grid: int
    cluster: int
    threads: int
    smem_bytes: int
    capability: int
    options: LaunchConfig
    uses_pdl: bool = False
