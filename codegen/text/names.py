"""Names in emitted code: those of tensors, dimensions and kernels, unless they clash with another
meaning in either language.

Emitters name their variables after a tensor or dimension with a suffix (``X_ptr``, ``n_start``), or
after an operator with a number (``exp5``). A name is kept where it cannot be mistaken for one of
these, for a word of C, CUDA, Python or Triton, or for a name derived from another one. Otherwise it
gets an underscore or a prefix. So emitted names are distinct, whatever names a program has, and
ordinary ones are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from mirage_py.codegen.text.reserved_words import PYTHON
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Output, Program, Tensor
from mirage_py.ugraph.ir.renaming import rename_dims, renamed_node
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, LibraryCall, UGraph
from mirage_py.ugraph.operators import all_operators

_ORDINARY = re.compile(r"[A-Za-z](?:_?[A-Za-z0-9])*_?")
# What emitters put after the name of a dimension, and after that of a tensor.
_ENDINGS = {
    "dim": (
        *("at", "block", "blocks", "first", "in", "low", "next", "size", "slice", "start"),
        "whole",
    ),
    "tensor": ("desc", "map", "maps", "ptr", "stride", "tile", "tiles"),
    "kernel": (),
}
# What values of an operator are called; others have the operator's name.
_STEMS = {"accum_max": "peak", "accum_sum": "acc", "accum_rescaled": "acc", "matmul": "dot"}
_WORDS = (*dict.fromkeys(_STEMS.values()), *(row.name for row in all_operators()))
_NUMBERED = re.compile(rf"(?:{'|'.join(map(re.escape, _WORDS))})\d+(?:_.*)?")


def value_stem(number: int, node: Node, dtype: DType, names: Sequence[str]) -> str:
    """What the value of a node is called, where nothing else is; ``names`` are those of earlier
    values.
    """
    if node.op == "load":
        return f"{node.access.tensor.lower()}_tile"
    if node.op == "cast":
        return f"{names[node.args[0]]}_{dtype}"
    return f"{_STEMS.get(node.op, node.op)}{number}"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a language and an emitter have a meaning for: words, and forms of words; of kernels,
    which are functions, more of them.
    """

    words: frozenset[str]
    forms: re.Pattern[str] = re.compile(r"(?!)")
    functions: frozenset[str] = frozenset()
    function_forms: re.Pattern[str] = re.compile(r"(?!)")

    def has(self, name: str, *, is_function: bool) -> bool:
        """Whether a name means something else."""
        if name in self.words or self.forms.fullmatch(name):
            return True
        # Kernels call functions of floats by their names with an f; no other is called by a kernel.
        if name.endswith("f") and name[:-1] in self.functions:
            return True
        stems = (name, name[:-1], re.sub(r"[fl]?(?:\d+x?)?$", "", name))
        in_c = any(stem in self.functions for stem in stems) or self.function_forms.fullmatch(name)
        return is_function and bool(in_c)


TRITON = Vocabulary(PYTHON)


@dataclass(frozen=True, slots=True)
class EmittedNames:
    """The name in the text of every tensor, dimension and kernel of a µGraph."""

    tensors: Mapping[str, str]
    dims: Mapping[str, str]
    kernels: Mapping[str, str]

    @property
    def keep_all(self) -> bool:
        """Whether nothing is called otherwise."""
        maps = (self.tensors, self.dims, self.kernels)
        return all(old == new for names in maps for old, new in names.items())


def emitted_names(ugraph: UGraph, vocabulary: Vocabulary) -> EmittedNames:
    """Distinct names, as ``vocabulary`` permits them; ordinary ones are kept."""
    blocks = [k.name for k in ugraph.kernels if isinstance(k, BlockGraph)]
    asked = [("tensor", name) for name in ugraph.tensors]
    asked += [("dim", name) for name in ugraph.program.dim_names]
    asked += [("kernel", name) for name in blocks]
    taken = _Taken(vocabulary)
    given: dict[tuple[str, str], str] = {}
    # Those that stay come first: no other may have their names.
    for kind, name in asked:
        if taken.is_free(name, kind):
            given[kind, name] = taken.take(name, kind)
    for kind, name in asked:
        if (kind, name) not in given:
            free = (n for n in _others(name) if taken.is_free(n, kind))
            given[kind, name] = taken.take(next(free), kind)
    return EmittedNames(
        {name: given["tensor", name] for name in ugraph.tensors},
        {name: given["dim", name] for name in ugraph.program.dim_names},
        {name: given["kernel", name] for name in blocks},
    )


def _others(name: str) -> Iterator[str]:
    yield f"{name}_"
    clean = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    words = "_".join(word for word in clean.split("_") if word)
    yield f"named_{words}"
    yield from (f"named{number}_{words}" for number in count(2))


class _Taken:
    """The names that are given so far, with what they are given to."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._kinds: dict[str, str] = {}

    def take(self, name: str, kind: str) -> str:
        self._kinds[name] = kind
        return name

    def is_free(self, name: str, kind: str) -> bool:
        """Whether nothing else has this name, or one that follows from it."""
        if not _ORDINARY.fullmatch(name) or _NUMBERED.fullmatch(name.lower()):
            return False
        if name in self._kinds or self._vocabulary.has(name, is_function=kind == "kernel"):
            return False
        others = self._kinds.items()
        return not any(_follows(name, n, k) or _follows(n, name, kind) for n, k in others)


def _follows(name: str, other: str, kind: str) -> bool:
    """Whether an emitter may call something ``name`` because something is called ``other``. It
    writes the tiles of a tensor in lower case.
    """
    if not name.lower().startswith(f"{other.lower()}_"):
        return False
    ending = name[len(other) + 1 :].split("_", maxsplit=1)[0].rstrip("0123456789")
    return ending.lower() in _ENDINGS[kind]


def renamed_plan(plan: Plan, names: EmittedNames) -> Plan:
    """The same plan with these names."""
    graph = plan.ugraph
    program = rename_dims(_with_tensors(graph.program, names.tensors), names.dims)
    kernels = tuple(_renamed_kernel(kernel, names) for kernel in graph.kernels)
    intermediates = tuple(_called(t, names.tensors) for t in graph.intermediates)
    options = tuple(_renamed_options(o, names) for o in plan.options)
    return replace(plan, ugraph=UGraph(program, kernels, intermediates), options=options)


def _with_tensors(program: Program, tensors: Mapping[str, str]) -> Program:
    return replace(
        program,
        inputs=tuple(_called(t, tensors) for t in program.inputs),
        nodes=tuple(_of_tensors(n, tensors) for n in program.nodes),
        outputs=tuple(Output(_called(o.tensor, tensors), o.node, o.index) for o in program.outputs),
    )


def _called(tensor: Tensor, names: Mapping[str, str]) -> Tensor:
    return replace(tensor, name=names[tensor.name])


def _of_tensors(node: Node, tensors: Mapping[str, str]) -> Node:
    attr = node.attr
    if not isinstance(attr, Access):
        return node
    tensor = attr.tensor and tensors[attr.tensor]  # a value that is read again has no name
    return replace(node, attr=Access(tensor, attr.index))


def _renamed_kernel(kernel: Kernel, names: EmittedNames) -> Kernel:
    if isinstance(kernel, LibraryCall):
        args = tuple(names.tensors[a] for a in kernel.args)
        body = kernel.body and _renamed_block(kernel.body, kernel.name, names)
        return replace(kernel, args=args, result=names.tensors[kernel.result], body=body)
    return _renamed_block(kernel, names.kernels[kernel.name], names)


def _renamed_block(kernel: BlockGraph, name: str, names: EmittedNames) -> BlockGraph:
    dims = names.dims
    return replace(
        kernel,
        name=name,
        grid=tuple(replace(a, dim=dims[a.dim]) for a in kernel.grid),
        nodes=tuple(renamed_node(_of_tensors(n, names.tensors), dims) for n in kernel.nodes),
        sections=tuple(replace(s, loop=s.loop and dims[s.loop]) for s in kernel.sections),
    )


def _renamed_options(options: LaunchConfig, names: EmittedNames) -> LaunchConfig:
    return replace(
        options,
        evict_first=tuple(sorted(names.tensors.get(t, t) for t in options.evict_first)),
        constants=tuple(sorted(names.tensors.get(t, t) for t in options.constants)),
        run_time_sizes=tuple(names.dims.get(d, d) for d in options.run_time_sizes),
    )
