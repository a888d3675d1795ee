"""Tensors without indices and ``@``, spelled out with indices.

On the right of ``Y[b, n] = ...`` a tensor written without indices is read at the indices on the
left, aligned at the last axis as in NumPy. ``A @ B`` sums over A's last axis and B's last but one;
its own axes are named by the left side too. After this every tensor has its indices and ``@`` is
``sum[k](A * B)``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mirage_py.frontend.spec.functions import reserved_as
from mirage_py.frontend.spec.symbols import Symbols
from mirage_py.frontend.spec.tree import (
    Binary,
    Call,
    Compare,
    Definition,
    Expr,
    Name,
    Ref,
    Span,
    Transpose,
    Unary,
    walk,
)

# What is known of an axis before extents are: the size name or number it was declared with, and the
# index letter that suits it.
_Kind = str | int


@dataclass(frozen=True, slots=True)
class _Axis:
    kind: _Kind
    letter: str


class SpellOut:
    """Rewrites the definitions of a spec one after the other."""

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols
        self._source = symbols.source
        self._axes: dict[str, tuple[_Axis, ...]] = {}
        for name, declaration in symbols.declared.items():
            self._axes[name] = tuple(
                _Axis(a.size_name or a.extent, a.size_name.lower() if a.size_name else "k")
                for a in declaration.axes
            )
        self._kinds = self._kinds_of_written_letters()

    def definition(self, definition: Definition) -> Definition:
        """The same definition with all indices written; later ones may refer to it."""
        target = definition.target
        letters = [e.name for i in target.indices for e in walk(i) if isinstance(e, Name)]
        value = self._spell(definition.value, target.indices, tuple(letters))
        if target.name not in self._axes:
            self._axes[target.name] = tuple(
                _Axis(self._kinds.get(i.name, [i.name])[0], i.name)
                if isinstance(i, Name)
                else _Axis("", "k")
                for i in target.indices
            )
        return replace(definition, value=value)

    def _kinds_of_written_letters(self) -> dict[str, list[_Kind]]:
        """For each letter that the user wrote, the kinds of the axes it stands on."""
        kinds: dict[str, list[_Kind]] = {}
        for definition in self._symbols.definitions:
            for top in (definition.target, definition.value):
                for expr in walk(top):
                    if isinstance(expr, Ref) and expr.name in self._symbols.declared:
                        for axis, index in zip(self._axes[expr.name], expr.indices, strict=False):
                            if isinstance(index, Name):
                                kinds.setdefault(index.name, []).append(axis.kind)
        return kinds

    # -- reading at a frame ----------------------------------------------------------------------

    def _spell(self, expr: Expr, frame: tuple[Expr, ...], taken: tuple[str, ...]) -> Expr:
        """``expr`` where its last axis is read at the last index of ``frame``, and so on.

        ``taken`` are the letters that a sum made here must not use.
        """
        match expr:
            case Name(name=name, span=span) if self._symbols.is_tensor(name):
                axes = self._axes.get(name)
                if axes is None:
                    # Its definition comes later; the check of names says so.
                    return Ref(name, (), span, span)
                if len(axes) > len(frame):
                    raise self._source.error(
                        span,
                        f"'{name}' has {len(axes)} axes, but only {len(frame)} "
                        f"{'is' if len(frame) == 1 else 'are'} left here to name them",
                        why="a tensor without indices is read at those on the left side",
                        repair=f"write its indices: {name}[{', '.join('ijklmn'[: len(axes)])}]",
                    )
                return Ref(name, frame[len(frame) - len(axes) :], span, span)
            case Unary():
                return replace(expr, operand=self._spell(expr.operand, frame, taken))
            case Binary(op="@"):
                return self._product(expr, frame, taken)
            case Binary():
                return replace(
                    expr,
                    left=self._spell(expr.left, frame, taken),
                    right=self._spell(expr.right, frame, taken),
                )
            case Compare():
                parts = tuple(self._spell(o, frame, taken) for o in expr.operands)
                return replace(expr, operands=parts)
            case Transpose():
                if len(self._bare_axes(expr.operand)) < 2 or len(frame) < 2:
                    raise self._source.error(
                        expr.span,
                        "only a matrix without indices, read at two or more of them, is transposed",
                        repair="write the tensor with its indices exchanged, as in W[n, d] for W'",
                    )
                return self._spell(expr.operand, (*frame[:-2], frame[-1], frame[-2]), taken)
            case Call():
                taken = (*taken, *(e.name for e in expr.over or () if isinstance(e, Name)))
                return replace(
                    expr,
                    args=tuple(self._spell(a, frame, taken) for a in expr.args),
                    keywords=tuple((k, self._spell(v, frame, taken)) for k, v in expr.keywords),
                )
        return expr

    def _bare_axes(self, expr: Expr) -> tuple[_Axis, ...]:
        """The axes of an expression that no indices name, as NumPy would broadcast them."""
        match expr:
            case Name(name=name):
                return self._axes.get(name, ())
            case Transpose(operand=operand):
                inner = self._bare_axes(operand)
                return (*inner[:-2], inner[-1], inner[-2]) if len(inner) > 1 else inner
            case Unary(operand=operand):
                return self._bare_axes(operand)
            case Binary(op="@", left=left, right=right):
                a, b = self._bare_axes(left), self._bare_axes(right)
                batch = _broadcast(a[:-2], b[:-2])
                return (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))
            case Binary(left=left, right=right):
                return _broadcast(self._bare_axes(left), self._bare_axes(right))
            case Compare(operands=operands) | Call(args=operands):
                axes: tuple[_Axis, ...] = ()
                for operand in operands:
                    axes = _broadcast(axes, self._bare_axes(operand))
                return axes
        return ()

    # -- products --------------------------------------------------------------------------------

    def _product(self, expr: Binary, frame: tuple[Expr, ...], taken: tuple[str, ...]) -> Expr:
        a, b = self._bare_axes(expr.left), self._bare_axes(expr.right)
        letter = self._written_letter(expr) or self._chosen_letter(expr, a, b, taken)
        k = Name(letter, expr.op_span)
        vectors = _is_vector(expr.left, a), _is_vector(expr.right, b)
        if len(frame) < (len(a) > 1) + (len(b) > 1):
            raise self._source.error(
                expr.op_span,
                "the result of this '@' has more axes than the left side has indices",
                repair="add an index to the left side, or write sum[k](A[i, k] * B[k, j])",
            )
        # The result has the axes [..., m, n] of the frame, without m where the left side is a
        # vector and without n where the right side is one.
        left, right = frame[:-1], (*frame[:-2], k, *frame[-1:])
        if vectors[0]:
            left, right = (), (*frame[:-1], k, *frame[-1:])
        elif vectors[1]:
            left = frame
        left = (*left, k)
        if vectors[1]:
            right = (k,)
        inner = (*taken, letter)
        spelled = [self._spell(expr.left, left, inner), self._spell(expr.right, right, inner)]
        for side, part in zip(("left", "right"), spelled, strict=True):
            if letter not in [e.name for e in walk(part) if isinstance(e, Name)]:
                raise self._source.error(
                    expr.op_span,
                    f"'@' sums over index '{letter}', on which its {side} side does not depend",
                    repair="write the sum out: sum[k](... * ...)",
                )
        times = Binary("*", spelled[0], spelled[1], expr.span, expr.op_span)
        return Call("sum", (k,), (times,), (), expr.span, expr.op_span)

    def _written_letter(self, expr: Binary) -> str:
        """The letter that indices on either side name as the one to sum over, if they do."""
        found: list[tuple[str, Span]] = []
        for side, position in ((expr.left, -1), (expr.right, -2)):
            if isinstance(side, Ref) and side.indices:
                index = side.indices[max(position, -len(side.indices))]
                if not isinstance(index, Name):
                    raise self._source.error(
                        index.span,
                        "'@' sums over a plain index, and this is an expression",
                        repair="write the sum out: sum[k](... * ...)",
                    )
                found.append((index.name, index.span))
        if len(found) == 2 and found[0][0] != found[1][0]:
            raise self._source.error(
                found[1][1],
                f"'@' sums over '{found[0][0]}' on its left but '{found[1][0]}' on its right",
                why="it takes the last index of its left side and the last but one of its right",
                repair=f"use one letter for both, or write sum[{found[0][0]}](... * ...)",
            )
        return found[0][0] if found else ""

    def _chosen_letter(
        self, expr: Binary, a: tuple[_Axis, ...], b: tuple[_Axis, ...], taken: tuple[str, ...]
    ) -> str:
        """A letter for an axis that nobody named: its size in lower case where that is free.

        So ``X @ W`` and ``mean[d](X[b, d]^2)`` run over one dimension, and so do ``X @ W1`` and
        ``X @ W2``.
        """
        axis = a[-1] if a else (b[-2:] or (None,))[0]
        if axis is None:
            raise self._source.error(
                expr.op_span,
                "'@' cannot tell over which index to sum",
                why="neither side is a tensor, with or without indices",
                repair="write the sum out: sum[k](... * ...)",
            )
        stem = axis.letter
        number = 0
        while True:
            letter = stem if number == 0 else f"{stem}_{number}"
            number += 1
            if letter in taken or letter in self._symbols.sizes or reserved_as(letter):
                continue
            if self._symbols.is_tensor(letter):
                continue
            if all(kind == axis.kind for kind in self._kinds.setdefault(letter, [axis.kind])):
                return letter


def _broadcast(a: tuple[_Axis, ...], b: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
    return a if len(a) >= len(b) else b


def _is_vector(expr: Expr, axes: tuple[_Axis, ...]) -> bool:
    return len(axes) == 1 or (isinstance(expr, Ref) and len(expr.indices) == 1)
