"""Definitions, checked and with all indices written, to the nodes of a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from mirage_py.errors import MirageError, SpecError
from mirage_py.frontend.spec.extents import Extents
from mirage_py.frontend.spec.functions import CONSTANTS, FUNCTIONS, REDUCTIONS, power
from mirage_py.frontend.spec.indices import as_index
from mirage_py.frontend.spec.symbols import Symbols, element_type
from mirage_py.frontend.spec.tree import (
    Binary,
    Call,
    Compare,
    Definition,
    Expr,
    Name,
    Number,
    Ref,
    Unary,
)
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BOOL, F32, DType
from mirage_py.ugraph.ir.index import IndexExpr, Predicate

_ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
_COMPARISON = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
_CONDITIONS = tuple(_COMPARISON.values())


@dataclass
class Lowering:
    """Builds one program. Later definitions read earlier ones by substituting their indices."""

    symbols: Symbols
    extents: Extents
    builder: ProgramBuilder
    defined: dict[str, int] = field(default_factory=dict)
    # Whether a node is known to be 0 or 1.
    _truth: dict[int, bool] = field(default_factory=dict)

    def definition(self, definition: Definition) -> None:
        """Build the right side; an output is declared as well."""
        target = definition.target
        node = self.value(definition.value)
        self.defined[target.name] = node
        if definition.is_let:
            return
        with self._at(target):
            index = [self._index(i) for i in target.indices]
            self.builder.output(target.name, node, index, self._output_type(definition))

    def value(self, expr: Expr) -> int:
        """The node of an expression."""
        position = as_index(expr, self.symbols.sizes, self.extents.letters)
        if position is not None and position.dims():
            return self.builder.index(position)
        match expr:
            case Number(text=text):
                return self.builder.const(float(text))
            case Name(name=name):
                return self.builder.const(CONSTANTS.get(name) or float(self.symbols.sizes[name]))
            case Ref():
                return self._read(expr)
            case Unary(op="not", operand=operand):
                return self._negation(self._condition(operand))
            case Unary(operand=operand):
                return self._negative(operand)
            case Binary():
                return self._binary(expr)
            case Compare():
                return self._compare(expr)
            case Call():
                return self._call(expr)
        raise AssertionError(f"{expr} was to be spelled out before")

    # -- leaves ----------------------------------------------------------------------------------

    def _read(self, ref: Ref) -> int:
        index = tuple(self._index(i) for i in ref.indices)
        with self._at(ref):
            if ref.name in self.defined:
                letters = self.extents.layouts[ref.name].letters_at(index)
                simple = {d: ix.simplify(e, self.extents.letters) for d, e in letters.items()}
                return self.builder.substitute(self.defined[ref.name], simple)
            return self.builder.load(ref.name, index)

    def _index(self, expr: Expr) -> IndexExpr:
        index = as_index(expr, self.symbols.sizes, self.extents.letters)
        assert index is not None, "checked with the extents"
        return index

    # -- operators -------------------------------------------------------------------------------

    def _negative(self, operand: Expr) -> int:
        inner = self.value(operand)
        value = self._constant(inner)
        return self.builder.apply("neg", inner) if value is None else self.builder.const(-value)

    def _binary(self, expr: Binary) -> int:
        if expr.op in ("//", "%"):
            raise self.symbols.source.error(
                expr.span,
                f"'{expr.op}' works on indices only",
                why="it is taken between an index expression and a positive whole number",
                repair="use / for values" if expr.op == "//" else "use it inside an index",
            )
        if expr.op in ("&", "|"):
            operands = self._condition(expr.left), self._condition(expr.right)
            return self._joined("and" if expr.op == "&" else "or", *operands)
        left, right = self.value(expr.left), self.value(expr.right)
        with self._at(expr):
            if expr.op == "^":
                return power(self.builder, left, right)
            if expr.op == "/":
                if self._constant(right) == 0.0:
                    raise self.symbols.source.error(
                        expr.right.span,
                        "division by zero",
                        repair="divide by a number other than 0; add a small number such as 1e-6 "
                        "to keep a divisor away from it",
                    )
                right = self._count(expr.right, right)
            return self.builder.apply(_ARITHMETIC[expr.op], left, right)

    def _count(self, expr: Expr, node: int) -> int:
        """A divisor; ``/ D`` is how a mean is written, so there D is the extent of its one index.

        Thus ``sum[d](x) / D`` and ``mean[d](x)`` are one node.
        """
        if isinstance(expr, Name) and expr.name in self.symbols.sizes:
            named = [d for d, names in self.extents.size_names.items() if expr.name in names]
            same = [d for d in named if self.extents.letters[d] == self.symbols.sizes[expr.name]]
            if len(same) == 1:
                return self.builder.size(same[0])
        return node

    # -- conditions ------------------------------------------------------------------------------

    def _compare(self, expr: Compare) -> int:
        result: int | None = None
        for op, left, right in zip(expr.ops, expr.operands, expr.operands[1:], strict=False):
            part = self._comparison(_COMPARISON[op], left, right)
            result = part if result is None else self._joined("and", result, part)
        assert result is not None
        return result

    def _comparison(self, op: str, left: Expr, right: Expr) -> int:
        sizes, letters = self.symbols.sizes, self.extents.letters
        a, b = as_index(left, sizes, letters), as_index(right, sizes, letters)
        if a is not None and b is not None:
            return self._mask(ix.compare(op, ix.simplify(a, letters), ix.simplify(b, letters)))
        return self.builder.apply(op, self.value(left), self.value(right))

    def _mask(self, predicate: Predicate) -> int:
        if predicate.dims():
            return self.builder.mask(predicate)
        return self.builder.const(1.0 if predicate.evaluate({}) else 0.0)

    def _condition(self, expr: Expr) -> int:
        """A value of 0 and 1."""
        node = self.value(expr)
        if not self._is_condition(node):
            raise self.symbols.source.error(
                expr.span,
                "this is a number where a condition is needed",
                why="&, | and not join comparisons",
                repair="compare it, as in x != 0",
            )
        return node

    def _is_condition(self, node: int) -> bool:
        if node not in self._truth:
            self._truth[node] = self._is_truth(node)
        return self._truth[node]

    def _is_truth(self, node: int) -> bool:
        row = self.builder.nodes[node]
        if row.op == "load":
            return self.builder.inputs[row.access.tensor].dtype == BOOL
        if row.op in ("mul", "sub", "add"):
            # What _joined and _negation make of conditions on values.
            return all(self._is_condition(a) for a in row.args)
        return row.op in ("mask", *_CONDITIONS) or self._constant(node) in (0.0, 1.0)

    def _joined(self, op: str, a: int, b: int) -> int:
        left, right = self._predicate(a), self._predicate(b)
        if left is not None and right is not None:
            return self.builder.mask(Predicate(op, args=(left, right)))
        both = self.builder.apply("mul", a, b)
        if op == "and":
            return both
        return self.builder.apply("sub", self.builder.apply("add", a, b), both)

    def _negation(self, node: int) -> int:
        inner = self._predicate(node)
        if inner is not None:
            return self.builder.mask(Predicate("not", args=(inner,)))
        return self.builder.apply("sub", self.builder.const(1.0), node)

    def _predicate(self, node: int) -> Predicate | None:
        attr = self.builder.nodes[node].attr
        return attr if isinstance(attr, Predicate) else None

    # -- calls -----------------------------------------------------------------------------------

    def _call(self, call: Call) -> int:
        with self._at(call):
            if call.over is not None:
                return self._reduction(call, call.over)
            if call.name == "cast":
                return self.builder.cast(self.value(call.args[0]), self._type(call.args[1]))
            args = [self.value(a) for a in call.args]
            if call.name == "where" and self._constant(args[0]) is not None:
                return args[1] if self._constant(args[0]) else args[2]
            return FUNCTIONS[call.name].build(self.builder, args)

    def _reduction(self, call: Call, over: tuple[Expr, ...]) -> int:
        row = REDUCTIONS[call.name]
        body = self.value(call.args[0])
        eps = row.eps or 0.0
        for extra in (*call.args[1:], *(value for _, value in call.keywords)):
            value = self._constant(self.value(extra))
            if value is None:
                raise self.symbols.source.error(
                    extra.span, "eps must be a number", repair=f"write {row.usage}"
                )
            eps = value
        dims = [e.name for e in over if isinstance(e, Name)]
        return row.build(self.builder, body, dims, eps)

    def _type(self, expr: Expr) -> DType:
        if isinstance(expr, Name):
            return element_type(self.symbols.source, expr)
        raise self.symbols.source.error(
            expr.span, "the second argument of cast is a type", repair="write cast(x, f16)"
        )

    # -- the rest --------------------------------------------------------------------------------

    def _output_type(self, definition: Definition) -> DType:
        """As written, else as declared, else the one float type of all inputs, else f32."""
        if definition.dtype is not None:
            return element_type(self.symbols.source, definition.dtype)
        declared = self.symbols.declared.get(definition.target.name)
        if declared is not None:
            return declared.dtype
        return common_type([d.dtype for d in self.symbols.inputs])

    def _constant(self, node: int) -> float | None:
        row = self.builder.nodes[node]
        return row.attr if row.op == "const" and isinstance(row.attr, float) else None

    @contextmanager
    def _at(self, expr: Expr) -> Iterator[None]:
        """Give an error of the builder the place in the text."""
        try:
            yield
        except SpecError:
            raise
        except MirageError as error:
            if error.exit_code == 2:
                repair = error.repair or "write it with other operators"
                raise self.symbols.source.error(
                    expr.span, error.what, why=error.why, repair=repair
                ) from None
            where = f"{self.symbols.source.file}:{expr.span.line}:{expr.span.column}"
            raise type(error)(error.what, where=where, why=error.why, repair=error.repair) from None


def common_type(types: Sequence[DType]) -> DType:
    """The float type that all float inputs share; f32 where they differ or there is none."""
    floats = list(dict.fromkeys(t for t in types if t.is_float))
    return floats[0] if len(floats) == 1 else F32
