"""Launches of compiled Triton kernels with as little work per call as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mirage_py.codegen.triton.module import TritonKernel
from mirage_py.errors import CompileError
from mirage_py.runtime.compile.compile import KernelSource, checked_handle

if TYPE_CHECKING:
    import torch

# A loaded kernel: blocks, stream, pointers and scalars to a launch.
Launcher = Callable[[int, int, Sequence[Any]], None]
# What each place of a kernel's pointers gets, out of every tensor of a plan.
Arguments = Callable[[Sequence["torch.Tensor"]], list[Any]]

# Versions of triton whose launcher in C takes its arguments in the order that ``_direct`` has.
_LAUNCHER_KNOWN = ("3.6.",)


def triton_launcher(kernel: TritonKernel, aligned: tuple[int, ...], index: int) -> Launcher:
    """The kernel, compiled for a device and loaded there; ``aligned`` are its scalars that are
    multiples of 16.

    Raises CompileError where the GPU does not take it, or the assembler has spoilt it.
    """
    return source_launcher(KernelSource.of(kernel, aligned), index)


def source_launcher(kernel: KernelSource, index: int) -> Launcher:
    """``triton_launcher`` of what the compiler sees of a kernel."""
    import torch
    from triton import knobs

    major, minor = torch.cuda.get_device_capability(index)
    compiled = checked_handle(kernel, 10 * major + minor)
    with torch.cuda.device(index):
        try:
            compiled[(1, 1, 1)]  # loads it
        except Exception as error:
            raise CompileError(
                f"the GPU does not take it: {error}",
                where=kernel.name,
                why=f"it asks for {compiled.metadata.shared} bytes of shared memory a block "
                f"and {kernel.num_warps} warps",
                repair="choose a plan with smaller tiles or fewer stages",
            ) from error
    start, fixed = _direct(compiled)
    hooks = knobs.runtime

    def launch(grid: int, stream: int, arguments: Sequence[Any]) -> None:
        # A chain of hooks since triton 3.5, one function or None before.
        hook = hooks.launch_enter_hook
        if hook is not None and getattr(hook, "calls", True):  # a profiler wants to know of it
            compiled[(grid, 1, 1)](*arguments, stream=stream)
        else:
            start(grid, 1, 1, stream, *fixed, *arguments)

    return launch


def arguments_of(
    kernel: TritonKernel, places: Sequence[int], facts: Sequence[tuple[list[int], list[int]]]
) -> Arguments:
    """The arguments of a kernel, whose pointers are at ``places`` among the tensors of a plan, of
    the shapes and strides ``facts``: addresses, and descriptors where the kernel asks for them.
    """
    from triton.tools.tensor_descriptor import TensorDescriptor

    tiles = [kernel.text.tiles.get(t.name) for t in kernel.pointers]
    # Strides as the kernel knows them: torch may say anything of an axis of one element.
    described = [
        (n, *fact, list(tile))
        for n, (tile, fact) in enumerate(zip(tiles, facts, strict=True))
        if tile is not None
    ]

    # Addresses as integers: for tensors triton asks the driver about every pointer.
    def addresses(memory: Sequence[torch.Tensor]) -> list[Any]:
        return [memory[p].data_ptr() for p in places]

    def with_descriptors(memory: Sequence[torch.Tensor]) -> list[Any]:
        pointers = addresses(memory)
        for number, shape, strides, tile in described:
            pointers[number] = TensorDescriptor(memory[places[number]], shape, strides, tile)
        return pointers

    return with_descriptors if described else addresses


def _direct(compiled: Any) -> tuple[Callable[..., None], tuple[Any, ...]]:
    """What launches, and what it takes between the stream and the kernel's own arguments.

    Triton's launcher is a function in C behind one in Python that allocates scratch memory, which
    these kernels have none of; where the version is one that is known, the first is called alone.
    """
    import triton

    run, hooks = compiled.run, (None, None, None)
    packed = compiled.packed_metadata
    scratch = [getattr(run, f"{kind}_scratch_size", 1) for kind in ("global", "profile")]
    if triton.__version__.startswith(_LAUNCHER_KNOWN) and not any(scratch):
        early = (run.launch_cooperative_grid, run.launch_pdl)
        return run.launch, (compiled.function, *early, None, None, packed, *hooks)
    return run, (compiled.function, packed, *hooks)
