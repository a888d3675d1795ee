"""One block graph to the text of one @triton.jit function.

Every value is a tile whose axes are its live dimensions (extent above 1) in one order for the whole
kernel, so that broadcasting is inserting None where an axis is missing.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mirage_py.codegen.padding import Padding
from mirage_py.codegen.precision import TypedBlock
from mirage_py.codegen.tiles import Tiling
from mirage_py.codegen.triton.expressions import elementwise
from mirage_py.codegen.writer import CodeWriter
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.dtypes import BOOL, F32, DType
from mirage_py.ugraph.index import IndexExpr, Predicate
from mirage_py.ugraph.node import Node
from mirage_py.ugraph.operators import ELEMENTWISE as ELEMENTWISE_KIND
from mirage_py.ugraph.operators import operator
from mirage_py.ugraph.plan import LaunchOptions
from mirage_py.ugraph.program import Program, Tensor
from mirage_py.ugraph.ugraph import Section

_RESERVED = ("tl", "triton", "torch", "pid", *keyword.kwlist)
# Below any float32 logit but finite, so that differences of two untouched maxima are 0 and not NaN.
_LOWEST = "-1e30"
_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True)
class KernelText:
    """``pointers`` are the tensors the kernel takes, in the order of its parameters."""

    name: str
    source: str
    pointers: tuple[str, ...]
    grid: int


class KernelEmitter:
    """Emits one typed block graph."""

    def __init__(
        self,
        program: Program,
        typed: TypedBlock,
        tensors: Mapping[str, Tensor],
        options: LaunchOptions,
    ) -> None:
        self.program = program
        self.block = typed.block
        self.dtypes = typed.dtypes
        self.tensors = tensors
        self.options = options
        self.tiling = Tiling(program, typed.block)
        self.padding = Padding(self.tiling, typed.block)
        self.out = CodeWriter()
        self.axis_order = self._axis_order()
        self.dim_var = {d: _identifier(d) for d in program.dim_names}
        self.names = self._value_names()
        self.users = self._count_users()
        # matmuls that are added straight into their accumulator
        self.fused = self._fused_products()
        self.declared: dict[str, int] = {}

    # -- entry -----------------------------------------------------------------------------------

    def emit(self) -> KernelText:
        """The kernel as text."""
        pointers = self._pointers()
        params = ", ".join(self._pointer_name(p) for p in pointers)
        out = self.out
        out.line("@triton.jit")
        out.line(f"def {self.block.name}({params}):")
        with out.indented():
            self._grid_indices()
            self._whole_indices()
            loops = 0
            for number, section in enumerate(self.block.sections):
                if section.loop is None:
                    for node in section.nodes:
                        self._node(node, number)
                else:
                    self._loop(number, section, loops)
                    loops += 1
        return KernelText(self.block.name, out.text(), pointers, self.tiling.grid_blocks)

    def _pointers(self) -> tuple[str, ...]:
        used = {n.access.tensor for n in self.block.nodes if n.op in ("load", "store")}
        return tuple(t for t in self.tensors if t in used)

    def _pointer_name(self, tensor: str) -> str:
        return f"{_identifier(tensor)}_ptr"

    def _axis_order(self) -> tuple[str, ...]:
        wanted = [d for d in self.options.flag("axes").split(",") if d]
        return (*wanted, *(d for d in self.program.dim_names if d not in wanted))

    def _value_names(self) -> list[str]:
        taken = {self.dim_var[d] for d in self.dim_var}
        names = []
        for number, node in enumerate(self.block.nodes):
            if node.op == "load":
                stem = f"{_identifier(node.access.tensor).lower()}_tile"
            elif node.op == "cast":
                stem = f"{names[node.args[0]]}_{self.dtypes[number]}"
            else:
                stem = {"accum_max": "peak", "accum_sum": "acc", "accum_rescaled": "acc"}.get(
                    node.op, node.op
                ) + str(number)
            while stem in taken:
                stem += "_"
            taken.add(stem)
            names.append(stem)
        return names

    def _count_users(self) -> list[int]:
        users = [0] * len(self.block.nodes)
        for node in self.block.nodes:
            for argument in node.args:
                users[argument] += 1
        return users

    def _fused_products(self) -> dict[int, int]:
        fused = {}
        for number, node in enumerate(self.block.nodes):
            if node.op not in ("accum_sum", "accum_rescaled"):
                continue
            product = node.args[0]
            if (
                self.block.nodes[product].op == "matmul"
                and self.users[product] == 1
                and self.tiling.is_dot(product)
                and self._dot_is_plain(product)
            ):
                fused[product] = number
        return fused

    # -- indices ---------------------------------------------------------------------------------

    def _grid_indices(self) -> None:
        axes = [a for a in self.block.grid if self.tiling.blocks(a.dim) > 1]
        if axes:
            self.out.line("pid = tl.program_id(0)")
        rest = "pid"
        for position, axis in enumerate(axes):
            blocks = self.tiling.blocks(axis.dim)
            last = position == len(axes) - 1
            value = rest if last else f"{rest} % {blocks}"
            if not last:
                rest = f"pid // {blocks}" if rest == "pid" else f"({rest}) // {blocks}"
            if " " in value and not last:
                value = f"({value})"
            self._tile_index(axis.dim, value)
        for axis in self.block.grid:
            if self.tiling.blocks(axis.dim) == 1:
                self._tile_index(axis.dim, None)

    def _tile_index(self, dim: str, block_number: str | None) -> None:
        tile = self.tiling.padded(dim, 0)
        var = self.dim_var[dim]
        wide = any(t.elements > _MAX_INT32 for t in self.tensors.values())
        if block_number is not None and wide:
            block_number = f"({block_number}).to(tl.int64)"
        if tile == 1:
            self.out.line(f"{var} = {block_number or '0'}")
        elif block_number is None:
            self.out.line(f"{var} = tl.arange(0, {tile})")
        else:
            base = block_number if " " not in block_number else f"({block_number})"
            self.out.line(f"{var} = {base} * {tile} + tl.arange(0, {tile})")
        self._tail_mask(dim, 0)

    def _whole_indices(self) -> None:
        looped = {s.loop for s in self.block.sections if s.loop is not None}
        gridded = set(self.block.grid_tiles)
        used = {d for n in self.block.nodes for d in self._index_dims(n)}
        for dim in self.program.dim_names:
            if dim in looped or dim in gridded or dim not in used:
                continue
            tile = self.tiling.padded(dim, 0)
            self.out.line(f"{self.dim_var[dim]} = {f'tl.arange(0, {tile})' if tile > 1 else '0'}")
            self._tail_mask(dim, 0)

    def _index_dims(self, node: Node) -> tuple[str, ...]:
        """Dimensions whose positions the node's text mentions."""
        if node.op in ("load", "store"):
            return node.access.dims()
        if isinstance(node.attr, IndexExpr | Predicate):
            return node.attr.dims()
        return node.reduced if node.op in ("sum", "max", "matmul") else ()

    def _tail_mask(self, dim: str, section: int) -> None:
        if self.tiling.has_tail(dim, section):
            var = self.dim_var[dim]
            self.out.line(f"{var}_in = {var} < {self.program.sizes[dim]}")

    def _loop(self, number: int, section: Section, loop_number: int) -> None:
        dim = section.loop
        assert dim is not None
        tile = self.tiling.padded(dim, number)
        size = self.program.sizes[dim]
        for node in section.nodes:
            self._initialise(node, number)
        stages = self.options.num_stages
        depth = stages[loop_number] if loop_number < len(stages) else 1
        var = self.dim_var[dim]
        staged = f", num_stages={depth}" if depth > 1 else ""
        self.out.line(f"for {var}_start in tl.range(0, {size}, {tile}{staged}):")
        with self.out.indented():
            if tile > 1:
                self.out.line(f"{var} = {var}_start + tl.arange(0, {tile})")
            else:
                self.out.line(f"{var} = {var}_start")
            self._tail_mask(dim, number)
            for node in section.nodes:
                self._node(node, number)

    def _initialise(self, number: int, section: int) -> None:
        node = self.block.nodes[number]
        if not node.op.startswith("accum"):
            return
        axes = self._axes(node.dims, section)
        shape = ", ".join(str(self.tiling.padded(d, section)) for d in axes)
        start = "0.0"
        if node.op == "accum_max":
            start = _LOWEST if node.attr == "shift" else 'float("-inf")'
        name = self.names[number]
        if not axes:
            self.out.line(f"{name} = {start}")
        elif start == "0.0":
            self.out.line(f"{name} = tl.zeros([{shape}], tl.float32)")
        else:
            self.out.line(f"{name} = tl.full([{shape}], {start}, tl.float32)")

    # -- tiles -----------------------------------------------------------------------------------

    def _axes(self, dims: Sequence[str], section: int) -> tuple[str, ...]:
        live = self.tiling.live(tuple(dims), section)
        return tuple(d for d in self.axis_order if d in live)

    def _expand(self, text: str, have: Sequence[str], want: Sequence[str]) -> str:
        """``text`` with axes ``have`` as a tile that broadcasts over axes ``want``."""
        if tuple(have) == tuple(want) or not have:
            return text
        missing_front = len(want) - len(have)
        if tuple(want[missing_front:]) == tuple(have) and missing_front == 0:
            return text
        picks = ", ".join(":" if d in have else "None" for d in want)
        return f"{_atom(text)}[{picks}]"

    def _value(self, number: int, want: Sequence[str], section: int) -> str:
        node = self.block.nodes[number]
        if node.op in ("const", "size"):
            return self._literal(node)
        return self._expand(self.names[number], self._axes(node.dims, section), want)

    def _literal(self, node: Node) -> str:
        value = node.attr if node.op == "const" else float(self.program.sizes[str(node.attr)])
        assert isinstance(value, float)
        if value in (float("inf"), float("-inf")):
            return f'float("{value}")'
        return repr(value)

    def _index_names(self, want: Sequence[str], section: int) -> dict[str, str]:
        """Text of each dimension's positions, expanded to the axes of a tile."""
        return {
            d: self._expand(var, (d,) if d in want else (), want) for d, var in self.dim_var.items()
        }

    def _in_range(self, dims: Sequence[str], want: Sequence[str], section: int) -> str:
        parts = [
            self._expand(f"{self.dim_var[d]}_in", (d,), want)
            for d in want
            if d in dims and self.tiling.has_tail(d, section)
        ]
        return " & ".join(parts)

    def _address(self, node: Node, want: Sequence[str], section: int) -> str:
        tensor = self.tensors[node.access.tensor]
        names = self._index_names(want, section)
        terms = [self._pointer_name(tensor.name)]
        for expr, stride, extent in zip(
            node.access.index, tensor.element_strides, tensor.shape, strict=True
        ):
            if stride == 0 or extent == 1 or (expr.op == "const" and expr.value == 0):
                continue
            text = expr.render(names)
            terms.append(text if stride == 1 else f"{_atom(text)} * {stride}")
        return " + ".join(terms)

    # -- nodes -----------------------------------------------------------------------------------

    def _node(self, number: int, section: int) -> None:
        node = self.block.nodes[number]
        name = self.names[number]
        axes = self._axes(node.dims, section)
        if node.op in ("const", "size") or number in self.fused:
            return
        if node.op == "load":
            self.out.line(f"{name} = {self._load(node, axes, section)}  # {node.access}")
        elif node.op == "store":
            self._store(node, section)
        elif node.op in ("index", "mask"):
            self.out.line(f"{name} = {self._position(node, axes, section)}")
        elif node.op == "cast":
            self._cast(number, node, section)
        elif node.op in ("sum", "max"):
            self.out.line(f"{name} = {self._reduce(node, section)}")
        elif node.op == "matmul":
            self.out.line(f"{name} = {self._matmul(number, section, None)}")
        elif node.op.startswith("accum"):
            self._accumulate(number, node, axes, section)
        elif operator(node.op).kind == ELEMENTWISE_KIND:
            self.out.line(f"{name} = {self._elementwise(node, axes, section)}")
        else:
            raise ScheduleError(f"no emission for '{node.op}'", where=self.block.name)

    def _load(self, node: Node, axes: Sequence[str], section: int) -> str:
        address = self._address(node, axes, section)
        extra = ""
        mask = self._in_range(node.access.dims(), axes, section)
        if mask:
            extra += f", mask={mask}, other=0.0"
        policy = self.options.flag(f"evict:{node.access.tensor}")
        if policy:
            extra += f', eviction_policy="{policy}"'
        return f"tl.load({address}{extra})"

    def _store(self, node: Node, section: int) -> None:
        dims = node.access.dims()
        axes = self._axes(dims, section)
        value = self._value(node.args[0], axes, section)
        have = self._axes(self.block.nodes[node.args[0]].dims, section)
        if set(have) != set(axes):
            shape = ", ".join(str(self.tiling.padded(d, section)) for d in axes)
            value = f"tl.broadcast_to({value}, [{shape}])" if have else f"tl.full([{shape}], {value}, {_tl(self.tensors[node.access.tensor].dtype)})"
        mask = self._in_range(dims, axes, section)
        suffix = f", mask={mask}" if mask else ""
        self.out.line(f"tl.store({self._address(node, axes, section)}, {value}{suffix})")

    def _position(self, node: Node, axes: Sequence[str], section: int) -> str:
        names = self._index_names(axes, section)
        assert isinstance(node.attr, IndexExpr | Predicate)
        text = node.attr.render(names)
        if node.op == "mask":
            return text
        scalar = not node.dims or not axes
        return f"({text}) * 1.0" if scalar else f"({text}).to(tl.float32)"

    def _cast(self, number: int, node: Node, section: int) -> None:
        source, to = node.args[0], self.dtypes[number]
        if self.block.nodes[source].op in ("const", "size"):
            self.out.line(f"{self.names[number]} = {self._literal(self.block.nodes[source])}")
            return
        value = self.names[source]
        if to == BOOL:
            self.out.line(f"{self.names[number]} = {value} != 0.0")
        elif self.block.nodes[source].dims and self._axes(node.dims, section):
            self.out.line(f"{self.names[number]} = {value}.to({_tl(to)})")
        else:
            self.out.line(f"{self.names[number]} = tl.cast({value}, {_tl(to)})")

    def _elementwise(self, node: Node, axes: Sequence[str], section: int) -> str:
        operands = [_atom(self._value(a, axes, section)) for a in node.args]
        types = [self.dtypes[a] for a in node.args]
        if node.op == "mul" and BOOL in types:
            mask, other = (0, 1) if types[0] == BOOL else (1, 0)
            chosen = operands[other] if types[other] != BOOL else f"{operands[other]}.to(tl.float32)"
            return f"tl.where({operands[mask]}, {chosen}, 0.0)"
        return elementwise(node.op, operands)

    def _masked_operand(self, number: int, dims: Sequence[str], section: int, neutral: str) -> str:
        """The operand's name, with the padding of ``dims`` replaced where it may not be neutral."""
        axes = self._axes(self.block.nodes[number].dims, section)
        name = self._value(number, axes, section)
        if neutral == "0.0":
            tails = [d for d in axes if d in dims and self.padding.needs_mask(number, d, section)]
        else:
            tails = [d for d in axes if d in dims and self.tiling.has_tail(d, section)]
        if not tails:
            return name
        mask = " & ".join(self._expand(f"{self.dim_var[d]}_in", (d,), axes) for d in tails)
        return f"tl.where({mask}, {name}, {neutral})"

    def _reduce(self, node: Node, section: int) -> str:
        neutral = "0.0" if node.op == "sum" else 'float("-inf")'
        text = self._masked_operand(node.args[0], node.reduced, section, neutral)
        axes = self._axes(self.block.nodes[node.args[0]].dims, section)
        return self._reduced(text, node.op, axes, node.reduced)

    def _reduced(self, text: str, op: str, axes: Sequence[str], over: Sequence[str]) -> str:
        for position in range(len(axes) - 1, -1, -1):
            if axes[position] in over:
                text = f"tl.{op}({text}, axis={position})"
        return text

    # -- contraction -----------------------------------------------------------------------------

    def _dot_is_plain(self, number: int) -> bool:
        """Whether the operands are matrices as they are: one live dimension on each side."""
        roles = self.tiling.roles(number)
        return max(len(roles.left), len(roles.right), len(roles.contracted)) == 1

    def _matmul(self, number: int, section: int, accumulator: str | None) -> str:
        node = self.block.nodes[number]
        if not self.tiling.is_dot(number):
            return self._product_and_sum(node, section)
        roles = self.tiling.roles(number)
        result = self._axes(node.dims, section)
        first, second = node.args
        left, right = roles.left, roles.right
        if result.index(right[0]) < result.index(left[0]):
            first, second, left, right = second, first, right, left
        rows, columns, inner = (self._ordered(r) for r in (left, right, roles.contracted))
        a = self._matrix(first, node.reduced, section, (*rows, *inner), (rows, inner))
        b = self._matrix(second, node.reduced, section, (*inner, *columns), (inner, columns))
        precision = ""
        if self.dtypes[node.args[0]] == F32:
            precision = f', input_precision="{self.options.flag("precision", "ieee")}"'
        if accumulator is not None:
            return f"tl.dot({a}, {b}, {accumulator}{precision})"
        text = f"tl.dot({a}, {b}{precision})"
        if not self._dot_is_plain(number):
            shape = ", ".join(str(self.tiling.padded(d, section)) for d in (*rows, *columns))
            text = f"tl.reshape({text}, [{shape}])"
            if (*rows, *columns) != result:
                order = ", ".join(str((*rows, *columns).index(d)) for d in result)
                text = f"tl.permute({text}, ({order}))"
        return text

    def _ordered(self, dims: Sequence[str]) -> tuple[str, ...]:
        return tuple(d for d in self.axis_order if d in dims)

    def _matrix(
        self,
        number: int,
        reduced: Sequence[str],
        section: int,
        want: tuple[str, ...],
        sides: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> str:
        """The operand as a matrix whose axes are ``sides``."""
        text = self._masked_operand(number, reduced, section, "0.0")
        have = self._axes(self.block.nodes[number].dims, section)
        if have != want:
            if len(want) == 2:
                text = f"tl.trans({text})"
            else:
                text = f"tl.permute({text}, ({', '.join(str(have.index(d)) for d in want)}))"
        if len(want) > 2:
            shape = ", ".join(str(self.tiling.elements(side, section)) for side in sides)
            text = f"tl.reshape({text}, [{shape}])"
        return text

    def _product_and_sum(self, node: Node, section: int) -> str:
        axes = self._axes(
            tuple(d for a in node.args for d in self.block.nodes[a].dims), section
        )
        parts = []
        for argument in node.args:
            have = self._axes(self.block.nodes[argument].dims, section)
            text = self._masked_operand(argument, node.reduced, section, "0.0")
            parts.append(_atom(self._expand(text, have, axes)))
        return self._reduced(" * ".join(parts), "sum", axes, node.reduced)

    # -- accumulators ----------------------------------------------------------------------------

    def _accumulate(self, number: int, node: Node, axes: Sequence[str], section: int) -> None:
        name = self.names[number]
        operand = node.args[0]
        if node.op == "accum_max":
            self.out.line(f"{name}_old = {name}")
            self.out.line(f"{name} = tl.maximum({name}_old, {self._value(operand, axes, section)})")
            return
        state = name
        if node.op == "accum_rescaled":
            factors = []
            assert isinstance(node.attr, tuple)
            for peak, degree in zip(node.args[1:], node.attr, strict=True):
                factors.append(self._rescale(peak, int(degree), axes, section))
            state = " * ".join([name, *factors])
        if operand in self.fused:
            self.out.line(f"{name} = {self._matmul(operand, section, state)}")
        else:
            self.out.line(f"{name} = {state} + {self._value(operand, axes, section)}")

    def _rescale(self, peak: int, degree: int, axes: Sequence[str], section: int) -> str:
        """exp(old - new) ** degree of a running maximum, named at its first use in the iteration."""
        base = self.names[peak]
        name = f"{base}_scale" if degree == 1 else f"{base}_scale{degree}".replace("-", "m")
        if self.declared.get(name) != section:
            self.declared[name] = section
            difference = f"{base}_old - {base}"
            scaled = difference if degree == 1 else f"({difference}) * {float(degree)}"
            self.out.line(f"{name} = tl.exp({scaled})")
        return self._expand(name, self._axes(self.block.nodes[peak].dims, section), axes)


def _identifier(name: str) -> str:
    clean = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    if not clean or clean[0].isdigit():
        clean = f"_{clean}"
    return f"{clean}_" if clean in _RESERVED else clean


def _atom(text: str) -> str:
    """Parenthesised unless it is one name, number, call or subscript."""
    depth = 0
    for position, character in enumerate(text):
        depth += character in "([" 
        depth -= character in ")]"
        if depth == 0 and (character == " " or (character == "-" and position == 0)):
            return f"({text})"
    return text


def _tl(dtype: DType) -> str:
    return f"tl.{dtype.triton_name}"
