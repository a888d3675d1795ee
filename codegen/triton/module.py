"""A kernel as a Python file that runs alone: docstring, kernel, launcher, and a small main."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mirage_py.codegen.lowering.lowering import lowered
from mirage_py.codegen.text.names import TRITON, emitted_names, renamed_plan
from mirage_py.codegen.text.writer import CodeWriter, in_docstring
from mirage_py.codegen.tiling.dependent_launch import ALONE, LaunchOrder, launch_orders
from mirage_py.codegen.triton.kernel import KernelEmitter, KernelText
from mirage_py.codegen.triton.scalars import Scalar
from mirage_py.codegen.triton.tile_text import CHECKED_POSITION, size_name
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.checks.run_time_sizes import run_time_sizes
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.text.printing import format_block

_CHECK = f'''\
@triton.jit
def {CHECKED_POSITION}(position, count: tl.constexpr):
    """The position where it is one of ``count``; else the kernel ends with an error."""
    return tl.inline_asm_elementwise(
        "{{ .reg .pred outside; setp.ge.u64 outside, $1, $2; @outside trap; mov.b64 $0, $1; }}",
        "=l,l,l",
        [position, tl.full([], count, tl.int64)],
        dtype=tl.int64,
        is_pure=False,
        pack=1,
    )


'''


@dataclass(frozen=True)
class TritonKernel:
    """One emitted kernel: ``source`` is a whole Python file, ``text`` the kernel's own facts."""

    text: KernelText
    source: str
    options: LaunchConfig
    pointers: tuple[Tensor, ...]
    order: LaunchOrder = ALONE

    @property
    def name(self) -> str:
        """The function's name, also the file's stem."""
        return self.text.name


def emit_triton(plan: Plan) -> tuple[TritonKernel, ...]:
    """Every block graph of the plan, in launch order; library calls are left out.

    Raises ScheduleError where the plan has open tiles or clusters.
    """
    names = emitted_names(plan.ugraph, TRITON)
    if names.keep_all:
        return _emitted(plan)
    old_tensors = {new: old for old, new in names.tensors.items()}
    old_dims = {new: old for old, new in names.dims.items()}
    tensors = plan.ugraph.tensors
    rows = zip(plan.ugraph.kernels, plan.options, strict=True)
    of_blocks = [options for kernel, options in rows if isinstance(kernel, BlockGraph)]
    return tuple(
        replace(
            kernel,
            text=_of_plan(kernel.text, old_tensors, old_dims),
            pointers=tuple(tensors[old_tensors[t.name]] for t in kernel.pointers),
            options=options,
        )
        for kernel, options in zip(_emitted(renamed_plan(plan, names)), of_blocks, strict=True)
    )


def _of_plan(text: KernelText, tensors: Mapping[str, str], dims: Mapping[str, str]) -> KernelText:
    """What is known of a kernel, by the names that the plan has instead of those in its text."""
    return replace(
        text,
        pointers=tuple(tensors[p] for p in text.pointers),
        tiles={tensors[name]: tile for name, tile in text.tiles.items()},
        scalars=tuple(
            Scalar(s.dim and dims[s.dim], s.tensor and tensors[s.tensor], s.axis)
            for s in text.scalars
        ),
        axes=tuple((dims[d], tile) for d, tile in text.axes),
    )


def _emitted(plan: Plan) -> tuple[TritonKernel, ...]:
    """The same for a plan whose names the text can have."""
    ugraph = plan.ugraph
    rows = zip(ugraph.kernels, plan.options, launch_orders(plan), strict=True)
    blocks = [(k, options, order) for k, options, order in rows if isinstance(k, BlockGraph)]
    _refuse_clusters([block for block, _, _ in blocks])
    run_time = run_time_sizes(plan)
    found = lowered(ugraph, [b for b, _, _ in blocks], run_time.dims)
    kernels = []
    for (block, options, order), types in zip(blocks, found.blocks, strict=True):
        emitter = KernelEmitter(
            ugraph.program, types, ugraph.tensors, options, found.in_base_two, order, run_time
        )
        text = emitter.emit()
        pointers = tuple(ugraph.tensors[p] for p in text.pointers)
        source = _file(ugraph, block, text, options, pointers, order)
        kernels.append(TritonKernel(text, source, options, pointers, order))
    return tuple(kernels)


def _refuse_clusters(blocks: Sequence[BlockGraph]) -> None:
    for block in blocks:
        if block.cluster_dims:
            raise ScheduleError(
                f"its blocks share {', '.join(block.cluster_dims)} in a cluster",
                where=block.name,
                why="Triton has no reduction over a cluster",
                repair='use backend="cuda"',
            )


def _file(
    ugraph: UGraph,
    block: BlockGraph,
    text: KernelText,
    options: LaunchConfig,
    pointers: tuple[Tensor, ...],
    order: LaunchOrder,
) -> str:
    written = {n.access.tensor for _, n in block.stores()}
    added = block.added_tensors
    out = CodeWriter()
    out.line(f'"""{block.name}: a kernel for {in_docstring(ugraph.program.name)}.')
    out.line()
    for tensor in pointers:
        strides = ", ".join(map(str, tensor.element_strides))
        role = "writes" if tensor.name in written else "reads "
        role = "adds to" if tensor.name in added else role
        out.line(f"{role} {tensor.name}{list(tensor.shape)} {tensor.dtype}, strides ({strides})")
    out.line()
    out.line("What each block does:")
    out.line()
    text_of_block = format_block(ugraph, block)
    for line in text_of_block[text_of_block.index("kernel ") :].splitlines():
        out.line(line)
    out.line('"""')
    out.line()
    for module in ("torch", "triton", "triton.language as tl"):
        out.line(f"import {module}")
    if text.tiles:
        out.line("from triton.tools.tensor_descriptor import TensorDescriptor")
    if order != ALONE:
        out.line("from triton.language.extra import cuda")
    out.line()
    out.line()
    check = _CHECK if f"{CHECKED_POSITION}(" in text.source else ""
    for line in (check + text.source).splitlines():
        out.line(line)
    out.line()
    out.line()
    params = ", ".join(t.name for t in pointers)
    out.line(f"def launch({params}):")
    with out.indented():
        out.line(
            f'"""Run the kernel on the current stream; {", ".join(sorted(written))} is written."""'
        )
        for name in added:
            out.line(f"{name}.zero_()")
        early = ", launch_pdl=True" if order.uses_pdl else ""
        given = ", ".join([*(_argument(t, text) for t in pointers), *_scalars(text)])
        sizes = run_time_size_lines(ugraph, pointers, text)
        for line in sizes:
            out.line(line)
        grid = grid_text(ugraph, text) if sizes else str(text.grid)
        out.line(f"{text.name}[({grid},)]({given}, num_warps={options.num_warps}{early})")
    out.line()
    out.line()
    out.line('if __name__ == "__main__":')
    with out.indented():
        for tensor in pointers:
            out.line(f"{tensor.name} = {_example(tensor, tensor.name in written)}")
        out.line(f"launch({params})")
        for tensor in pointers:
            if tensor.name in written:
                norm = f"{tensor.name}.float().norm().item()"
                out.line(f'print("{tensor.name}", tuple({tensor.name}.shape), {norm})')
    return out.text()


def _scalars(text: KernelText) -> list[str]:
    """The numbers that the kernel takes, by tensors of the launcher."""
    return [s.name if s.dim else f"{s.tensor}.stride({s.axis})" for s in text.scalars]


def _argument(tensor: Tensor, text: KernelText) -> str:
    """A tensor as the kernel takes it."""
    tile = text.tiles.get(tensor.name)
    if tile is None:
        return tensor.name
    return f"TensorDescriptor.from_tensor({tensor.name}, {list(tile)})"


def _example(tensor: Tensor, written: bool) -> str:
    dtype = f"torch.{tensor.dtype.torch_name}"
    if written:
        return f'torch.empty({list(tensor.shape)}, dtype={dtype}, device="cuda")'
    if tensor.strides is None:
        return f'torch.randn({list(tensor.shape)}, device="cuda").to({dtype})'
    return (
        f'torch.randn({_storage_elements(tensor)}, device="cuda").to({dtype})'
        f".as_strided({list(tensor.shape)}, {list(tensor.element_strides)})"
    )


def _storage_elements(tensor: Tensor) -> int:
    return 1 + sum((e - 1) * s for e, s in zip(tensor.shape, tensor.element_strides, strict=True))


def parameter_type(dtype: DType, tile: tuple[int, ...] | None = None) -> str:
    """Triton's name, in a signature, of a pointer to this type, or of a descriptor that fetches
    tiles of it.
    """
    short = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "f8e4m3": "fp8e4nv",
             "f8e5m2": "fp8e5", "bool": "i1"}  # fmt: skip
    if tile is not None:
        return f"tensordesc<{short.get(dtype.name, dtype.name)}[{','.join(map(str, tile))}]>"
    return f"*{short.get(dtype.name, dtype.name)}"


def run_time_size_lines(ugraph: UGraph, pointers: Sequence[Tensor], text: KernelText) -> list[str]:
    """``s_size = Q.shape[2]`` for every size that the kernel takes, or that its grid needs."""
    names = [t.name for t in pointers]
    dims = [s.dim for s in text.scalars if s.dim]
    return [f"{size_name(dim)} = {_extent(ugraph, names, dim)}" for dim in dims]


def grid_text(ugraph: UGraph, text: KernelText) -> str:
    """The number of blocks, as a product of what each grid axis needs."""
    run_time = [s.dim for s in text.scalars if s.dim]
    fixed = 1
    factors = []
    for dim, tile in text.axes:
        if dim in run_time:
            size = size_name(dim)
            factors.append(size if tile == 1 else f"triton.cdiv({size}, {tile})")
        else:
            fixed *= -(-ugraph.program.sizes[dim] // tile)
    return " * ".join([*([str(fixed)] if fixed != 1 or not factors else []), *factors])


def _extent(ugraph: UGraph, names: Sequence[str], dim: str) -> str:
    """Where the launcher finds a size: an axis of a tensor that the kernel takes.

    Raises ScheduleError where no tensor of the kernel has the dimension as an axis of its own.
    """
    nodes = [n for k in ugraph.kernels if isinstance(k, BlockGraph) for n in k.nodes]
    for node in (*nodes, *ugraph.program.nodes):
        if not isinstance(node.attr, Access) or node.attr.tensor not in names:
            continue
        shape = ugraph.tensors[node.attr.tensor].shape
        for axis, expr in enumerate(node.attr.index):
            if expr.is_dim and expr.name == dim and shape[axis] == ugraph.program.sizes[dim]:
                return f"{node.attr.tensor}.shape[{axis}]"
    raise ScheduleError(
        f"no tensor of the kernel has '{dim}' as an axis",
        where=ugraph.program.name,
        why="its size is an argument, which the launcher reads off a tensor",
        repair="keep the size fixed",
    )
