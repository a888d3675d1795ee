"""A program as a PyTorch function, as somebody would write it who has no superoptimizer.

Products run in the inputs' half type on the tensor cores, reductions in float32, softmax and the
norms through PyTorch's own functions, the rest in the types that PyTorch's promotion gives.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, prod
from typing import Any

from mirage_py.codegen.text.writer import CodeWriter, in_docstring
from mirage_py.errors import UnsupportedError
from mirage_py.runtime.base.modules import load_module
from mirage_py.runtime.eager.eager_patterns import Attention, Norm, Patterns, Softmax
from mirage_py.runtime.eager.eager_views import Views, aligned, permuted
from mirage_py.runtime.eager.released import with_values_released
from mirage_py.ugraph.ir.dtypes import BOOL, F32, F64, I64, DType
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.predicates import decided
from mirage_py.ugraph.ir.program import Output, Program, Tensor
from mirage_py.ugraph.operators import ELEMENTWISE, operator
from mirage_py.ugraph.rewrite.convolutions import axes_in_memory, convolution_at
from mirage_py.verify.shifts.safe_exp import add_safe_shifts

_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
# Half types overflow or lose too much here; written by hand these would be float32 too.
_WIDENED = ("exp", "square", "pow")
_RESERVED = ("torch", "F", *keyword.kwlist)
# Values that wait for each other: a network has thousands in a chain, Python's stack is shorter.
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class _Value:
    """A Python expression; ``dims`` are its axes. A scalar has no dtype and a known value."""

    text: str
    dims: tuple[str, ...] = ()
    dtype: DType | None = None
    scalar: float | None = None


class _TooDeepError(Exception):
    """The value ``number`` has to be written before others that wait for it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def eager_source(program: Program) -> str:
    """A Python module whose function ``run`` takes the inputs in order and returns the outputs.

    Raises UnsupportedError for an operator that has no PyTorch form.
    """
    writer = _Writer(program)
    text = writer.module()
    if writer.has_bare_exp:
        # Where softmax stands there is none left. A quotient of other sums of exponentials gets the
        # shift that somebody who writes it by hand would give it.
        shifted = add_safe_shifts(program, lowest=None)
        if shifted != program:
            return _Writer(shifted).module()
    return text


class _Writer:
    def __init__(self, program: Program) -> None:
        names = {t.name: _identifier(t.name) for t in program.inputs}
        self.program = program
        self.nodes = program.nodes
        self.inputs = {t.name: replace(t, name=names[t.name]) for t in program.inputs}
        self.views = Views(program, names)
        self.patterns = Patterns(program)
        found = {n: convolution_at(program, n) for n in range(len(program.nodes))}
        self.convolutions = {n: product for n, product in found.items() if product is not None}
        self.device = f"{next(iter(names.values()))}.device" if names else '"cuda"'
        halves = [t.dtype for t in program.inputs if t.dtype.is_float]
        one_half = len(set(halves)) == 1 and halves[0].is_half
        self.half = halves[0] if one_half else None
        self.values: dict[int, _Value] = {}
        self.taken = set(names.values())
        self.out = CodeWriter()
        self.has_bare_exp = False
        self.wide = _computed_wide(program)
        self.weights: dict[int, _Value] = {}
        self.depth = 0

    def module(self) -> str:
        out = self.out
        out.line(
            f'"""{in_docstring(self.program.name)} as plain PyTorch, one call for each step."""'
        )
        out.line()
        out.line("import torch")
        out.line("import torch.nn.functional as F")
        if self.convolutions:
            out.line()
            out.line("from mirage_py.runtime.launch.library_convolution import convolved")
            out.line("from mirage_py.ugraph.ir.convolution import read_convolution")
            out.line()
        for number, found in self.convolutions.items():
            out.line(f'_CONVOLUTION_{number} = read_convolution("{found.spec}")')
        out.line()
        out.line()
        out.line(f"def run({', '.join(t.name for t in self.inputs.values())}):")
        with out.indented():
            results = [self._result(o) for o in self.program.outputs]
            out.line(f"return {', '.join(results)}")
        return out.text()

    # -- values ----------------------------------------------------------------------------------

    def _value(self, number: int) -> _Value:
        if number not in self.values:
            if self.depth == _DEEPEST:
                raise _TooDeepError(number)
            self.depth += 1
            try:
                value = self._computed(number)
            finally:
                self.depth -= 1
            if number in self.wide and value.dtype is not None and value.dtype.is_half:
                value = self._cast(value, F32)
            self.values[number] = self._named(number, value)
        return self.values[number]

    def _needed(self, number: int) -> _Value:
        """The value, however long the chain below: what is farthest down is written first."""
        waiting = [number]
        while waiting:
            try:
                self._value(waiting[-1])
                waiting.pop()
            except _TooDeepError as deeper:
                waiting.append(deeper.number)
        return self.values[number]

    def _named(self, number: int, value: _Value) -> _Value:
        """The value under a name of its own, unless it is a scalar or an input as it is."""
        if value.scalar is not None or value.text.isidentifier():
            return value
        name = f"{self.nodes[number].op}_{number}"
        while name in self.taken:
            name += "_"
        self.out.line(f"{name} = {value.text}")
        return replace(value, text=name)

    def _computed(self, number: int) -> _Value:
        found = self.patterns.match(number)
        node = self.nodes[number]
        if isinstance(found, Softmax):
            return self._softmax(found)
        if isinstance(found, Attention):
            # What the product reads is the normalised weights, under the same node. They are there
            # already where something below the other operand had to come first.
            if found.weights_node not in self.weights:
                self.weights[found.weights_node] = self._named(
                    found.weights_node, self._softmax(found.weights)
                )
            self.values[found.weights_node] = self.weights[found.weights_node]
            try:
                return self._matmul(self.nodes[found.matmul])
            finally:
                del self.values[found.weights_node]
        if isinstance(found, Norm):
            return self._norm(found)
        if number in self.convolutions:
            return self._convolution(number)
        return self._scaled_norm(node) or self._primitive(node)

    def _primitive(self, node: Node) -> _Value:
        if node.op == "load":
            tensor = self.inputs[node.access.tensor]
            text = self.views.load(tensor, node.access.index, node.dims)
            return _Value(text, node.dims, tensor.dtype)
        if node.op == "read":
            held = self._held(node.args[0])
            tensor = Tensor(held.text, self._shape(held), held.dtype or F32)
            text = self.views.load(tensor, node.access.index, node.dims)
            return _Value(text, node.dims, held.dtype)
        if node.op in ("const", "size"):
            constant = self.patterns.sizes[str(node.attr)] if node.op == "size" else node.attr
            assert isinstance(constant, float | int)
            return _scalar(float(constant))
        if node.op == "index":
            assert isinstance(node.attr, IndexExpr)
            if node.attr.op == "const":
                return _scalar(float(node.attr.value))
            text = self.views.positions(node.attr, node.dims, self.device)
            return _Value(f"({text}).float()", node.dims, F32)
        if node.op == "mask":
            assert isinstance(node.attr, Predicate)
            names = {d: self.views.position(d, node.dims, self.device) for d in node.attr.dims()}
            if not names:  # comparisons of numbers are Python's, and no condition to torch
                truth = decided(node.attr)
                return _Value(f"torch.tensor({truth}, device={self.device})", (), BOOL)
            return _Value(node.attr.render(names), node.dims, BOOL)
        if node.op in ("sum", "max"):
            return self._reduction(node)
        if node.op == "matmul":
            return self._matmul(node)
        if operator(node.op).kind == ELEMENTWISE:
            return self._elementwise(node)
        raise UnsupportedError(f"no PyTorch form of '{node.op}'", where=self.program.name)

    def _held(self, number: int) -> _Value:
        """What a node reads, or computes, as a tensor: its axes are those of its place in memory,
        or else the dimensions of the value.
        """
        node = self.nodes[number]
        if node.op == "load":
            tensor = self.inputs[node.access.tensor]
            return _Value(tensor.name, (), tensor.dtype)
        if node.op == "read":
            return self._held(node.args[0])
        value = self._value(number)
        text = aligned(value.text, value.dims, node.dims)
        return self._named(number, replace(value, text=text, dims=node.dims))

    def _shape(self, held: _Value) -> tuple[int, ...]:
        return tuple(self.views.sizes[d] for d in held.dims)

    def _with_axes(self, held: _Value, axes: Sequence[Sequence[int]]) -> _Value:
        """A value whose dimensions, by their numbers, are these axes."""
        if len(axes) == len(held.dims):
            return held
        shape, order = self._shape(held), [n for axis in axes for n in axis]
        text = permuted(held.text, held.dims, [held.dims[n] for n in order])
        sizes = ", ".join(str(prod(shape[n] for n in axis)) for axis in axes)
        return replace(held, text=f"{text}.reshape({sizes})", dims=())

    def _elementwise(self, node: Node) -> _Value:
        args = [self._value(a) for a in node.args]
        known = [a.scalar for a in args if a.scalar is not None]
        meaning = operator(node.op).over_floats
        if len(known) == len(args) and meaning is not None:
            return _scalar(float(meaning(*known)))
        if node.op == "cast":
            assert isinstance(node.attr, DType)
            return self._cast(args[0], node.attr)
        if node.op == "where":
            return self._where(node, [args[0], *map(self._as_number, args[1:])])
        if node.op == "mul" and not known and [a.dtype for a in args].count(BOOL) == 1:
            return self._masked(node, args)
        if operator(node.op).is_bitwise:
            whole = [
                f"{_atom(aligned(a.text, a.dims, node.dims))}.long()"
                if a.scalar is None
                else str(int(a.scalar))
                for a in args
            ]
            return _Value(operator(node.op).torch.format(*whole), node.dims, I64)
        # Integers are compared as they are.
        are_whole = [a.dtype is not None and not a.dtype.is_float and a.dtype != BOOL for a in args]
        if node.op not in _COMPARISONS or not all(are_whole):
            args = [self._as_number(a) for a in args]
            if node.op in _WIDENED:
                narrow = [a.dtype is not None and a.dtype.bytes < F32.bytes for a in args]
                args = [self._cast(a, F32) if n else a for a, n in zip(args, narrow, strict=True)]
            args = self._of_one_type(args)
        self.has_bare_exp |= node.op == "exp"
        dtype = BOOL if node.op in _COMPARISONS else _promoted(args)
        if node.op in ("maximum", "minimum"):
            side = "min" if node.op == "maximum" else "max"
            for x, bound in (args, args[::-1]):
                if bound.scalar is not None:
                    return _Value(f"{_atom(x.text)}.clamp({side}={bound.text})", x.dims, dtype)
        texts = [_atom(aligned(a.text, a.dims, node.dims)) for a in args]
        if node.op == "fmod" and args[0].scalar is not None:  # torch takes no number there
            texts[0] = f"torch.full_like({texts[1]}, {texts[0]})"
        return _Value(operator(node.op).torch.format(*texts), node.dims, dtype)

    def _as_number(self, value: _Value) -> _Value:
        """In a program truth values and integers are numbers: of two masks + would be "or". Float8
        are, too, with which PyTorch multiplies matrices alone.
        """
        dtype = value.dtype
        is_number = dtype is None or (dtype.is_float and dtype.bytes > 1)
        return value if is_number else self._cast(value, F32)

    def _masked(self, node: Node, args: Sequence[_Value]) -> _Value:
        """A value times a truth value, selected as kernels do: exp(x) under a mask may be infinite
        where it is masked, and 0 times that is no number.
        """
        mask, other = args if args[0].dtype == BOOL else args[::-1]
        kind = _promoted([self._as_number(mask), self._as_number(other)])
        return self._where(node, [mask, self._cast(other, kind), _scalar(0.0)])

    def _where(self, node: Node, args: Sequence[_Value]) -> _Value:
        args = [args[0], *self._of_one_type([*args[1:]])]
        condition, x, y = (aligned(a.text, a.dims, node.dims) for a in args)
        if args[0].dtype != BOOL:
            condition = f"{_atom(condition)} != 0"
        return _Value(f"torch.where({condition}, {x}, {y})", node.dims, _promoted(args[1:]))

    def _of_one_type(self, args: list[_Value]) -> list[_Value]:
        """The operands, such that PyTorch computes in the type of all: to it a tensor without axes
        is like a number beside one that has some. Numbers are float32: where a half type has no
        such number (on a GPU that is an error) the others are float32 too.
        """
        dtype = _promoted(args)
        if any(a.scalar is not None and dtype.max_finite < abs(a.scalar) < inf for a in args):
            return [self._cast(a, F32) for a in args]
        if all(a.dtype != dtype for a in args if a.dims):
            return [self._cast(a, dtype) if a.dims else a for a in args]
        return args

    def _cast(self, value: _Value, to: DType) -> _Value:
        if value.dtype in (None, to):
            return value
        text = f"{_atom(value.text)}.to(torch.{to.torch_name})"
        return _Value(text, value.dims, to)

    def _reduction(self, node: Node) -> _Value:
        x = self._value(node.args[0])
        x = self._as_number(x) if x.dtype is not None and x.dtype.is_float else x
        axes = ", ".join(str(x.dims.index(d)) for d in node.reduced)
        if node.op == "max":
            return _Value(f"{_atom(x.text)}.amax(({axes},))", node.dims, x.dtype)
        dtype = F64 if x.dtype == F64 else F32
        widened = "" if x.dtype == dtype else f", dtype=torch.{dtype.torch_name}"
        return _Value(f"{_atom(x.text)}.sum(({axes},){widened})", node.dims, dtype)

    # -- products --------------------------------------------------------------------------------

    def _convolution(self, number: int) -> _Value:
        found = self.convolutions[number]
        image = self._held(found.left)
        node = self.nodes[found.left]
        if node.op == "read":
            image = self._with_axes(image, axes_in_memory(node.access.index, self._shape(image)))
        first, second, dtype = self._of_product((image, self._held(found.right)))
        text = f"convolved(_CONVOLUTION_{number}, {first.text}, {second.text})"
        return _Value(text, self.nodes[number].dims, dtype)

    def _of_product(self, operands: Iterable[_Value]) -> tuple[_Value, _Value, DType]:
        """The operands of a product in its type, and this type."""
        args = list(operands)
        halves = [a.dtype for a in args if a.dtype is not None and a.dtype.is_half]
        dtype = halves[0] if halves else self.half or F32
        if any(a.dtype == F64 for a in args):
            dtype = F64
        elif any(a.dtype is not None and not a.dtype.is_float and a.dtype.bytes > 1 for a in args):
            dtype = F32
        first, second = (self._cast(a, dtype) for a in args)
        return first, second, dtype

    def _matmul(self, node: Node) -> _Value:
        first, second, dtype = self._of_product(self._value(a) for a in node.args)
        batch = [d for d in first.dims if d in second.dims and d not in node.reduced]
        rows = [d for d in first.dims if d not in second.dims]
        columns = [d for d in second.dims if d not in first.dims]
        a = self._matrix(first, batch, rows, node.reduced)
        b = self._matrix(second, batch, node.reduced, columns)
        text = f"{a} @ {b}"
        have = (*batch, *rows, *columns)
        if len(rows) != 1 or len(columns) != 1:
            text = f"({text}).reshape({', '.join(str(self.views.sizes[d]) for d in have)})"
        if have != node.dims:
            text = permuted(f"({text})" if text.endswith(b) else text, have, node.dims)
        return _Value(text, node.dims, dtype)

    def _matrix(
        self, x: _Value, batch: Sequence[str], rows: Sequence[str], columns: Sequence[str]
    ) -> str:
        """The operand as batched matrices, one axis on each side."""
        text = permuted(_atom(x.text), x.dims, (*batch, *rows, *columns))
        if len(rows) == len(columns) == 1:
            return text
        sizes = self.views.sizes
        sides = [prod(sizes[d] for d in side) for side in (rows, columns)]
        shape = ", ".join(str(e) for e in (*(sizes[d] for d in batch), *sides))
        return f"{text}.reshape({shape})"

    # -- whole functions -------------------------------------------------------------------------

    def _softmax(self, found: Softmax) -> _Value:
        x = self._as_number(self._value(found.scores))
        dims = x.dims
        text = x.text
        for number in found.masks:
            mask = self._value(number)
            dims = self.program.order((*dims, *mask.dims))
            keep = _atom(aligned(mask.text, mask.dims, dims))
            refused = f"~{keep}" if mask.dtype == BOOL else f"({keep} == 0)"
            x_text = _atom(aligned(text, x.dims, dims))
            if set(dims) != set(x.dims):
                shape = ", ".join(str(self.views.sizes[d]) for d in dims)
                x_text = f"{x_text}.expand({shape})"
            text = f'{x_text}.masked_fill({refused}, float("-inf"))'
            x = replace(x, dims=dims)
        if len(found.dims) == 1:
            axis = dims.index(found.dims[0])
            function = "_safe_softmax" if found.is_safe else "softmax"
            function = "log_softmax" if found.is_log else function
            return _Value(f"torch.{function}({text}, dim={axis})", dims, x.dtype)
        axes = ", ".join(str(dims.index(d)) for d in found.dims)
        wide = _atom(text) if x.dtype == F64 else f"{_atom(text)}.float()"
        total = f"torch.logsumexp({wide}, ({axes},), keepdim=True)"
        if found.is_safe:  # less a finite number, minus infinity stays what it is
            total = f"{total}.clamp(min={-F32.max_finite!r})"
        text = f"{wide} - {total}"
        text = text if found.is_log else f"torch.exp({text})"
        return _Value(text, dims, F64 if x.dtype == F64 else F32)

    def _norm(self, found: Norm, extra: str = "") -> _Value:
        x = self._as_number(self._value(found.x))
        order = (*(d for d in x.dims if d not in found.dims), *found.dims)
        shape = ", ".join(str(self.views.sizes[d]) for d in found.dims)
        operand = permuted(x.text, x.dims, order)
        text = f"F.{found.function}({operand}, ({shape},){extra}, eps={found.eps!r})"
        return _Value(permuted(text, order, x.dims), x.dims, x.dtype)

    def _scaled_norm(self, node: Node) -> _Value | None:
        """norm(x) * gain, and layer_norm(x) * gain + bias, are one call too."""
        if node.op == "add":
            for scaled, bias in (node.args, node.args[::-1]):
                found, gain = self._gain(self.nodes[scaled])
                if found and gain is not None and found.function == "layer_norm":
                    b = self._parameter(found, bias)
                    g = self._parameter(found, gain) if b else None
                    if g and b:
                        return self._norm(found, f", weight={g.text}, bias={b.text}")
        found, gain = self._gain(node)
        if found and gain is not None:
            g = self._parameter(found, gain)
            if g:
                return self._norm(found, f", weight={g.text}")
        return None

    def _gain(self, node: Node) -> tuple[Norm | None, int | None]:
        if node.op == "mul":
            for normal, gain in (node.args, node.args[::-1]):
                found = self.patterns.match(normal)
                if isinstance(found, Norm) and self.nodes[gain].dims == found.dims:
                    return found, gain
        return None, None

    def _parameter(self, found: Norm, number: int) -> _Value | None:
        """The value, if it fits as a parameter of the norm: its dimensions and the type of x."""
        if self.nodes[number].dims != found.dims:
            return None
        value = self._value(number)
        x = self._as_number(self._value(found.x))
        return value if value.dtype == x.dtype else None

    # -- results ---------------------------------------------------------------------------------

    def _result(self, output: Output) -> str:
        value = self._needed(output.node)
        tensor = output.tensor
        torch_dtype = f"torch.{tensor.dtype.torch_name}"
        if value.scalar is not None:
            shape = ", ".join(map(str, tensor.shape))
            text = (
                f"torch.full(({shape},), {value.text}, dtype={torch_dtype}, device={self.device})"
            )
            return text.replace("(,)", "()")
        value = self._cast(value, tensor.dtype)
        stored = self.views.stored(_atom(value.text), value.dims, tensor, output.index)
        if stored is not None:
            return stored
        name = _identifier(tensor.name)
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        shape = ", ".join(map(str, tensor.shape))
        self.out.line(
            f"{name} = torch.empty(({shape},), dtype={torch_dtype}, device={self.device})"
        )
        dims = self.program.order(output.dims)
        places = ", ".join(self.views.positions(e, dims, self.device) for e in output.index)
        self.out.line(f"{name}[{places}] = {aligned(value.text, value.dims, dims)}")
        return name


def _computed_wide(program: Program) -> tuple[int, ...]:
    """What is read, and products, that make a float32 result without being rounded on the way.

    PyTorch gives such a result of half inputs only where they were converted first.
    """
    todo = [o.node for o in program.outputs if o.tensor.dtype == F32]
    seen: dict[int, None] = {}
    while todo:
        number = todo.pop()
        node = program.nodes[number]
        is_rounded = isinstance(node.attr, DType) and node.attr.is_half
        if number in seen or is_rounded:
            continue
        seen[number] = None
        if node.op != "matmul":
            todo.extend(node.args)
    return tuple(n for n in seen if program.nodes[n].op in ("load", "matmul"))


def _scalar(value: float) -> _Value:
    finite = isfinite(value)
    return _Value(repr(value) if finite else f'float("{value}")', scalar=value)


def _promoted(args: Sequence[_Value]) -> DType:
    """The type that PyTorch gives an operation on tensors of these types and Python floats."""
    floats = [a.dtype for a in args if a.dtype is not None and a.dtype.is_float]
    if not floats:
        return F32
    if F64 in floats:
        return F64
    return floats[0] if all(f == floats[0] for f in floats) else F32


def _identifier(name: str) -> str:
    clean = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    if not clean or clean[0].isdigit():
        clean = f"_{clean}"
    return f"{clean}_" if clean in _RESERVED else clean


def _atom(text: str) -> str:
    """Parenthesised unless it is a name, a call, a subscript or a plain number."""
    depth = 0
    for position, character in enumerate(text):
        depth += character in "(["
        depth -= character in ")]"
        if depth == 0 and (character in " ~" or (character == "-" and position == 0)):
            return f"({text})"
    return text


def torch_function(program: Program) -> Callable[..., Any]:
    """A function of the inputs in order that returns the output, or a tuple of several.

    It runs on any device and is differentiable and traceable; the source is ``eager_source``'s,
    with values released as soon as nothing reads them.
    Raises UnsupportedError for an operator that has no PyTorch form.
    """
    function: Callable[..., Any] = load_module(
        with_values_released(eager_source(program)), "eager"
    ).run
    return function
