"""The text of a kernel under construction: its head, its lines, and names of its values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from mirage_py.codegen.cuda.memory.memory import SharedMemory
from mirage_py.codegen.cuda.plan.kernel_plan import KernelPlan
from mirage_py.codegen.cuda.text.c_text import LINE, added, wrapped
from mirage_py.codegen.cuda.text.layout import Layout
from mirage_py.codegen.cuda.text.linear_text import Places, register_part, thread_part
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.text.names import value_stem
from mirage_py.codegen.text.operator_text import atom

# What a value belongs to: a node, or a factor that follows from one.
Key = int | tuple[str, int, int]


class Emission:
    """Lines, names and positions that all parts of the emitter share."""

    def __init__(self, plan: KernelPlan) -> None:
        self.plan = plan
        self.facts = facts = plan.facts
        self.layouts = plan.layouts
        self.options = options = plan.options
        self.index_type = plan.index_type
        self.memory = SharedMemory(options.memory_reuse)
        # Bits of the warp's number.
        self.warp_bits = (options.num_warps - 1).bit_length()
        # A block's place on each grid axis of several blocks.
        self.block_names: dict[str, str] = {}
        # The first position of a tile along each dimension, as text.
        self.starts: dict[str, str] = {}
        self.head: list[str] = []
        self._lines: list[str] = []
        self._depth = 1
        self._interned: dict[str, str] = {}
        self._names = {"lane", "warp", *facts.program.dim_names, *facts.tensors, facts.block.name}
        self.names = self._value_names()
        self._taken: set[str] = set()
        self._scopes: list[dict[Key, list[Value]]] = [{}]
        # Whether threads have exchanged data in the loop that is being written.
        self.has_exchanged = False
        # Masks that hold all over the tiles of the loop that is being written.
        self.held_masks: Collection[int] = ()

    # -- lines -----------------------------------------------------------------------------------

    def line(self, text: str = "") -> None:
        """A line, continued where it is too long."""
        indent = "    " * self._depth
        if not text:
            self._lines.append("")
            return
        self._lines += [indent + part for part in wrapped(text, LINE - len(indent))]

    def comment(self, text: str) -> None:
        """A line of comment."""
        self.line(f"// {text}")

    @contextmanager
    def indented(self, head: str, end: str = "}") -> Iterator[None]:
        """A braced statement."""
        self.line(f"{head} {{".lstrip())
        self._depth += 1
        yield
        self._depth -= 1
        self.line(end)

    def only(self, condition: str) -> AbstractContextManager[None]:
        """What is written inside is done where a condition holds; empty: everywhere."""
        return self.indented(f"if ({condition})") if condition else nullcontext()

    @contextmanager
    def unrolled(self, variable: str, count: int, copies: int | None = None) -> Iterator[str]:
        """A loop over registers; gives the text of its variable, 0 where there is but one.

        ``copies`` is how many iterations are written out; None: all of them.
        """
        if count == 1:
            yield "0"
            return
        self.line(f"#pragma unroll{'' if copies is None else f' {copies}'}")
        with self.indented(f"for (int {variable} = 0; {variable} < {count}; ++{variable})"):
            yield variable

    def body(self) -> list[str]:
        """All lines so far."""
        return self._lines

    # -- names -----------------------------------------------------------------------------------

    def _value_names(self) -> list[str]:
        facts = self.facts
        names: list[str] = []
        for number, node in enumerate(facts.block.nodes):
            names.append(self.fresh(value_stem(number, node, facts.dtypes[number], names)))
        return names

    def fresh(self, stem: str) -> str:
        """A name that nothing has yet."""
        name, count = stem, 2
        while name in self._names:
            name, count = f"{stem}_{count}", count + 1
        self._names.add(name)
        return name

    def value_name(self, number: int) -> str:
        """A load's own name for its first registers, another one for the next; a node of any other
        kind has its name from where it is computed.
        """
        name = self.names[number]
        computed = self.facts.block.nodes[number].op != "load"
        if name in self._taken or (computed and not self.facts.is_transparent(number)):
            return self.fresh(name)
        self._taken.add(name)
        return name

    # -- values ----------------------------------------------------------------------------------

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Values that are made inside are forgotten after it."""
        self._scopes.append({})
        yield
        self._scopes.pop()

    def hold(self, key: Key, value: Value) -> None:
        """A value is in registers from here on."""
        self._scopes[-1].setdefault(key, []).append(value)

    def held(self, key: Key) -> list[Value]:
        """What is in registers of a node, in every layout; the innermost scope first."""
        return [v for scope in reversed(self._scopes) for v in scope.get(key, ())]

    def drop(self, key: Key) -> None:
        """A value is no more what it was."""
        for scope in self._scopes:
            scope.pop(key, None)

    # -- positions -------------------------------------------------------------------------------

    def interned(self, stem: str, text: str) -> str:
        """A constant of the thread, computed once at the kernel's head."""
        if text.isidentifier() or text == "0":
            return text
        if text not in self._interned:
            name = self.fresh(stem)
            self._interned[text] = name
            self.head.append(f"const int {name} = {text};")
        return self._interned[text]

    def local(self, dim: str, layouts: Mapping[str, Layout]) -> str:
        """The position along a dimension in its tile; ``layouts`` are given by the variables that
        count their registers, the thread's part follows from the first.
        """
        first = next(iter(layouts.values()))
        places = _positions(dim, first, *layouts.values())
        thread = self.interned(f"{dim}_at", thread_part(first, places))
        registers = [register_part(layout, places, v) for v, layout in layouts.items()]
        return added(thread, *registers)

    def position(self, dim: str, layouts: Mapping[str, Layout]) -> str:
        """The position along a dimension in its tensor."""
        return added(self.starts.get(dim, "0"), self.local(dim, layouts))

    def positions(self, layouts: Mapping[str, Layout]) -> dict[str, str]:
        """The position along every dimension, in parentheses where that matters."""
        return {d: atom(self.position(d, layouts)) for d in self.facts.program.dim_names}

    def in_range(self, dims: tuple[str, ...], section: int, layouts: Mapping[str, Layout]) -> str:
        """C condition: positions along these dimensions are inside; empty if all are."""
        tiling = self.facts.tiling
        texts = [
            f"{self.position(d, layouts)} < {self.facts.program.sizes[d]}"
            for d in dims
            if tiling.has_tail(d, section)
        ]
        return " && ".join(texts)

    def barrier(self, reason: str = "") -> None:
        """All threads of the block meet."""
        self.line(f"{self.plan.pipeline.roles.barrier_call}{f'  // {reason}' if reason else ''}")
        self.memory.phase += 1


def _positions(dim: str, *layouts: Layout) -> Places:
    return {bit: bit[1] for layout in layouts for bit in layout.bits() if bit[0] == dim}
