"""Copies between global memory, shared memory and registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.layout.blocked import copied
from mirage_py.codegen.cuda.layout.code_operands import PrivateTile
from mirage_py.codegen.cuda.layout.shared_tile import SharedTile
from mirage_py.codegen.cuda.layout.staging import Staged, matrix_layout, vector_run
from mirage_py.codegen.cuda.layout.warp_tiles import copied_by_warps
from mirage_py.codegen.cuda.text.c_text import C_TYPES, added, index_text, predicate_text
from mirage_py.codegen.cuda.text.layout import Layout
from mirage_py.codegen.cuda.text.linear_text import is_only_copy
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.codegen.text.operator_text import atom
from mirage_py.codegen.tiling.contiguity import slope, strided
from mirage_py.codegen.tiling.places import single_places
from mirage_py.codegen.tiling.read_conditions import read_conditions
from mirage_py.ugraph.ir.dtypes import BOOL, DType
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.node import STORES, Node

# What an access of so many bytes goes through.
VECTORS = {16: "uint4", 8: "uint2", 4: "unsigned"}
_MATRICES = 4


class Copies:
    """Writes loads, copies and stores."""

    def __init__(self, emission: Emission) -> None:
        self.out = emission
        self.facts = emission.facts
        self.conditions = read_conditions(self.facts.block, self.facts.tensors)
        # Variables that hold elements of tensors.
        self.places: dict[str, str] = {}

    def load_places(self) -> None:
        """Positions of outputs in place: loaded early, they are there when results are."""
        for element in single_places(self.facts.block):
            name = f"{element.name}_value"
            text = f"{element.name}[{self._offset(element.name, element.args, {}) or '0'}]"
            self.out.line(f"const long long {name} = {text};")
            self.places[str(element)] = name

    # -- global memory ---------------------------------------------------------------------------

    def offset(self, node: Node, layouts: dict[str, Layout], section: int = 0) -> str:
        """Elements from a tensor's first one to where an access points."""
        names = dict(self.out.positions(layouts))
        for expr in node.access.index:
            self._name_elements(expr, names, layouts, section)
        is_store = node.op in STORES
        return self._offset(node.access.tensor, node.access.index, names, is_checked=is_store)

    def _name_elements(
        self, expr: IndexExpr, names: dict[str, str], layouts: dict[str, Layout], section: int
    ) -> None:
        """Texts of positions that are data, innermost first; 0 where there are none."""
        for part in expr.args:
            self._name_elements(part, names, layouts, section)
        if str(expr) in self.places:
            names[str(expr)] = self.places[str(expr)]
        elif expr.op == "data":
            text = f"{expr.name}[{self._offset(expr.name, expr.args, names) or '0'}]"
            inside = self.out.in_range(expr.dims(), section, layouts)
            names[str(expr)] = f"({inside} ? {text} : 0)" if inside else text

    def _offset(
        self,
        name: str,
        index: Sequence[IndexExpr],
        names: Mapping[str, str],
        *,
        is_checked: bool = False,
    ) -> str:
        """A position that is data is inside, modulo the extent, or ``is_checked``."""
        tensor = self.facts.tensors[name]
        terms = []
        for axis, expr, stride in strided(index, tensor):
            text = index_text(expr, names)
            if is_checked and expr.tensors():
                text = f"checked_position({text}, {tensor.shape[axis]})"
            if text != "0":
                terms.append(text if stride == 1 else f"{atom(text)} * {stride}")
        return added(*terms)

    def loaded(self, load: int, target: Layout, only: str = "") -> Value:
        """A load straight into registers; ``only`` is the C condition of the threads that do."""
        out, facts = self.out, self.facts
        node = facts.block.nodes[load]
        dtype = facts.dtypes[load]
        vector = vector_of(facts, load, target)
        is_packed = (dtype.is_half and vector > 1) or (not dtype.is_float and vector > 2)
        value = Value(out.value_name(load), target, dtype, is_packed)
        layout = Layout(target.registers[vector.bit_length() - 1 :], target.lanes, target.warps)
        out.line(f"{value.declaration()}  // {node.access}")
        count = target.register_count // vector
        with out.only(only), out.unrolled("i", count) as i:
            layouts = {i: layout}
            inside = self._inside(load, layouts)
            place = f"{node.access.tensor} + {self.offset(node, layouts, facts.section(load))}"
            self._load_line(value, i, place, vector, inside, node.access.tensor)
        return value

    def _inside(self, load: int, layouts: dict[str, Layout]) -> str:
        """The C condition under which a load reads its tensor; empty: everywhere."""
        facts = self.facts
        inside = self.out.in_range(facts.live(load), facts.section(load), layouts)
        if load not in self.conditions:
            return inside
        condition = predicate_text(self.conditions[load], self.out.positions(layouts))
        return f"{inside} && {condition}" if inside else condition

    def _load_line(
        self, value: Value, i: str, place: str, vector: int, inside: str, tensor: str
    ) -> None:
        width = vector * value.dtype.bytes
        if not value.dtype.is_float and not value.is_packed:
            text, zero = f"*({place})", "false" if value.dtype == BOOL else "0"
            self.out.line(f"{value.word(i)} = {f'{inside} ? {text} : {zero}' if inside else text};")
            return
        streams = tensor in self.out.options.evict_first
        if width < 4:
            text = f"reinterpret_cast<const unsigned short*>({place})[0]"
            text = f"low_{value.dtype.name}({text})"
            zero = "0.0f"
        elif value.is_packed or value.dtype.is_half or vector > 1:
            kind = VECTORS[width]
            text = f"*reinterpret_cast<const {kind}*>({place})"
            if streams:
                text = f"load_{width}_evict_first({place})"
            zero = "0u" if kind == "unsigned" else f"{kind}{{}}"
        else:
            text, zero = f"{place.split(' + ', 1)[0]}[{place.split(' + ', 1)[1]}]", "0.0f"
        if inside:
            text = f"{inside} ? {text} : {zero}"
        words = max(1, width // 4)
        if words == 1 and (value.is_packed or vector == 1):
            self.out.line(f"{value.word(i)} = {text};")
            return
        kind = VECTORS[width]
        start = value.word("0" if i == "0" else f"{words} * {i}")
        self.out.line(f"*reinterpret_cast<{kind}*>(&{start}) = {text};")

    # -- to shared memory ------------------------------------------------------------------------

    def issue(self, staged: Staged, buffer: str) -> None:
        """Start the copies of a tile to where ``buffer`` points."""
        out, facts = self.out, self.facts
        node = facts.block.nodes[staged.load]
        layout = copied(staged.tile.bits, staged.vector, out.warp_bits)
        own = out.plan.warp_tiles.get(staged.load)
        if own is not None:
            layout = copied_by_warps(staged, own)
        only = is_only_copy(layout)
        with out.only(only), out.unrolled("i", layout.register_count) as i:
            layouts = {i: layout}
            inside = out.in_range(facts.live(staged.load), facts.section(staged.load), layouts)
            section = facts.section(staged.load)
            source = f"{node.access.tensor} + {self.offset(node, layouts, section)}"
            if staged.tile.panels_flip:
                source = self._by_steps(staged.load, layout, i) or source
            to = f"{buffer} + {self.tile_offset(staged.tile, layouts)}"
            if staged.is_asynchronous:
                width = staged.copy_bytes
                out.line(f"cp_async_{width}({to}, {source}, {inside or 'true'});")
            else:
                kind = "unsigned short"
                read = f"reinterpret_cast<const {kind}*>({source})[0]"
                read = f"{inside} ? {read} : ({kind})0" if inside else read
                out.line(f"*reinterpret_cast<{kind}*>({to}) = {read};")

    def issue_private(self, load: int, tile: PrivateTile, buffer: str) -> None:
        """Start the copies of what each thread reads of a tile."""
        out, facts = self.out, self.facts
        node, section = facts.block.nodes[load], facts.section(load)
        with out.unrolled("i", tile.pieces.register_count) as i:
            layouts = {i: tile.pieces}
            inside = self._inside(load, layouts) or "true"
            source = f"{node.access.tensor} + {self.offset(node, layouts, section)}"
            source = self._by_steps(load, tile.pieces, i) or source
            # With a cache policy an H200 takes the instruction for an illegal one (CUDA 13.0).
            # Of a row each access of a warp has 64 bytes, a half of what the memory gives at once.
            to = self._private_place(tile, buffer, i)
            out.line(f"cp_async_16_of_128({to}, {source}, {inside});")

    def _by_steps(self, load: int, layout: Layout, i: str) -> str:
        """The place that copy ``i`` reads as that of the first one and a constant, which the
        instruction holds: no address is computed for each. Empty where the steps are uneven.
        """
        facts = self.facts
        node, section = facts.block.nodes[load], facts.section(load)
        steps = dict.fromkeys(facts.live(load), 0)
        for _, expr, stride in strided(node.access.index, facts.tensors[node.access.tensor]):
            for dim in set(expr.dims()) & set(steps):
                step = slope(expr, dim)
                if step is None:
                    return ""
                steps[dim] += step * stride
        first = Layout((), layout.lanes, layout.warps)
        apart = [steps[dim] << power for dim, power in layout.registers]
        terms = [f"({i} >> {n} & 1) * {step}" for n, step in enumerate(apart) if step]
        if apart and all(step == apart[0] << n for n, step in enumerate(apart)):
            terms = [f"{i} * {apart[0]}"] if apart[0] else []
        place = f"{node.access.tensor} + ({self.offset(node, {i: first}, section)})"
        return " + ".join((place, *(terms if i != "0" else ())))

    def read_private(self, load: int, tile: PrivateTile, buffer: str) -> Value:
        """What a thread has copied for itself, in registers."""
        out = self.out
        value = Value(out.value_name(load), tile.layout, self.facts.dtypes[load], is_packed=True)
        out.line(f"{value.declaration()}  // {self.facts.block.nodes[load].access}")
        with out.unrolled("i", tile.pieces.register_count) as i:
            place = self._private_place(tile, buffer, i)
            to = value.word("0" if i == "0" else f"4 * {i}")
            out.line(
                f"*reinterpret_cast<uint4*>(&{to}) = *reinterpret_cast<const uint4*>({place});"
            )
        return value

    def _private_place(self, tile: PrivateTile, buffer: str, i: str) -> str:
        thread = self.out.interned("private_at", "(lane << 4) + (warp << 9)")
        step = "" if i == "0" else f"{i} * {tile.piece_step}"
        return added(*(part for part in (buffer, thread, step) if part))

    def tile_offset(self, tile: SharedTile, layouts: dict[str, Layout]) -> str:
        """Bytes from a tile's first to the element that layouts point to."""
        thread, registers, piece = tile.offset(layouts, self.out.interned)
        return added(thread, registers, piece)

    # -- from shared memory ----------------------------------------------------------------------

    def read(
        self, staged: Staged, buffer: str, target: Layout, name: str, steps: dict[str, Layout]
    ) -> Value:
        """A staged tile, or the part of it that ``steps`` choose, in registers."""
        dtype = self.facts.dtypes[staged.load]
        return self.read_tile(staged.tile, dtype, buffer, target, name, steps)

    def read_tile(
        self,
        tile: SharedTile,
        dtype: DType,
        buffer: str,
        target: Layout,
        name: str,
        steps: dict[str, Layout],
    ) -> Value:
        """A tile in shared memory, or the part of it that ``steps`` choose, in registers."""
        matrix = matrix_layout(tile, target) if dtype.is_half else None
        if matrix is not None:
            return self._matrices(tile, dtype, buffer, target, name, steps, matrix)
        out = self.out
        pairs = zip(target.registers, tile.columns, strict=False)
        run = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        vector = min(1 << run, 16 // tile.element_bytes) if dtype.is_float else 1
        packed = dtype.is_half and vector > 1
        value = Value(name, target, dtype, packed)
        out.line(value.declaration())
        width = vector * tile.element_bytes
        layout = Layout(target.registers[vector.bit_length() - 1 :], target.lanes, target.warps)
        with out.unrolled("i", target.register_count // vector) as i:
            place = f"{buffer} + {self.tile_offset(tile, {i: layout, **steps})}"
            if width == 1:
                out.line(
                    f"{value.word(i)} = *reinterpret_cast<const {C_TYPES[dtype.name]}*>({place});"
                )
            elif width == 2:
                read = f"*reinterpret_cast<const unsigned short*>({place})"
                out.line(f"{value.word(i)} = low_{dtype.name}({read});")
            elif width == 4 and not dtype.is_half:
                out.line(f"{value.word(i)} = *reinterpret_cast<const float*>({place});")
            else:
                kind, words = VECTORS[width], width // 4
                first = value.word(f"{words} * {i}" if words > 1 and i != "0" else i)
                to = first if words == 1 else f"*reinterpret_cast<{kind}*>(&{first})"
                out.line(f"{to} = *reinterpret_cast<const {kind}*>({place});")
        return value

    def _matrices(
        self,
        tile: SharedTile,
        dtype: DType,
        buffer: str,
        target: Layout,
        name: str,
        steps: dict[str, Layout],
        matrix: tuple[Layout, bool],
    ) -> Value:
        out = self.out
        layout, transposes = matrix
        value = Value(name, target, dtype, is_packed=True)
        out.line(value.declaration())
        count = min(_MATRICES, value.words)
        suffix = "_trans" if transposes else ""
        with out.unrolled("i", value.words // count) as i:
            base = "" if i == "0" else f"{count} * {i} + "
            words = ", ".join(value.word(f"{base}{n}") for n in range(count))
            place = self.tile_offset(tile, {i: layout, **steps})
            out.line(f"ldmatrix_x{count}{suffix}({words}, {buffer} + {place});")
        return value


def vector_of(facts: BlockAnalysis, access: int, layout: Layout) -> int:
    """The most elements that each thread can load or store at once."""
    if not layout.registers:
        return 1
    dim = layout.registers[0][0]
    if dim not in facts.block.nodes[access].dims:
        return 1
    return vector_run(facts, access, dim, layout.register_run(dim))
