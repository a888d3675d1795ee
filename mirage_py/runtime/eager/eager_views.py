"""Loads and stores of a program as PyTorch views: permute, reshape and slices, gathers at worst."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.verify.sizes.affine import Affine, affine, is_mixed_radix


class Views:
    """Texts of tensor expressions whose axes are named dimensions."""

    def __init__(self, program: Program, names: Mapping[str, str]) -> None:
        """``names`` has the variable of each input."""
        self.sizes = program.sizes
        self.names = dict(names)

    def load(self, tensor: Tensor, index: Sequence[IndexExpr], dims: Sequence[str]) -> str:
        """The tensor read at ``index``, with axes ``dims``."""
        name = tensor.name
        if _all_dims_once(index):
            names = [e.name for e in index]
            # An axis longer than its dimension is read from its start.
            cut = any(e != self.sizes[d] for e, d in zip(tensor.shape, names, strict=True))
            if not cut:
                return permuted(name, names, dims)
        digits = [self._digits(e, extent) for e, extent in zip(index, tensor.shape, strict=True)]
        flat = [d for axis in digits if axis is not None for d in axis]
        if None not in digits and len(set(flat)) == len(flat):
            shape = ", ".join(str(self.sizes[d]) for d in flat)
            return permuted(f"{name}.reshape({shape})", flat, dims)
        forms = [f for f in map(affine, index) if f is not None]
        # torch has no views that go backwards.
        forwards = all(factor > 0 for f in forms for _, factor in f.terms)
        if len(forms) == len(index) and forwards:
            return self._strided(name, forms, dims)
        where = ", ".join(self.positions(e, dims, f"{name}.device") for e in index)
        return f"{name}[{where}]"

    def _digits(self, expr: IndexExpr, extent: int) -> list[str] | None:
        """Dimensions from the coarsest to the finest that number the whole axis."""
        if not is_mixed_radix(expr, self.sizes) or expr.bounds(self.sizes)[1] + 1 != extent:
            return None
        form = affine(expr)
        assert form is not None
        return coarse_to_fine(form, self.sizes)

    def _strided(self, name: str, forms: Sequence[Affine], dims: Sequence[str]) -> str:
        steps = dict.fromkeys(dims, "0")
        offset = [f"{name}.storage_offset()"]
        for axis, form in enumerate(forms):
            for d, factor in form.terms:
                step = f"{factor} * {name}.stride({axis})"
                steps[d] = step if steps[d] == "0" else f"{steps[d]} + {step}"
            if form.constant:
                offset.append(f"{form.constant} * {name}.stride({axis})")
        # Lists, as one element read by itself has no axes, and "(,)" is no tuple.
        shape = ", ".join(str(self.sizes[d]) for d in dims)
        strides = ", ".join(steps[d] for d in dims)
        return f"{name}.as_strided([{shape}], [{strides}], {' + '.join(offset)})"

    def positions(self, expr: IndexExpr, dims: Sequence[str], device: str) -> str:
        """The index as an integer tensor that broadcasts over axes ``dims``."""
        names = {d: self.position(d, dims, device) for d in expr.dims()}
        self._name_elements(expr, names)
        return expr.render(names)

    def _name_elements(self, expr: IndexExpr, names: dict[str, str]) -> None:
        """Texts of positions that are data: torch indexes by int64 alone."""
        for part in expr.args:
            self._name_elements(part, names)
        if expr.op == "data":
            index = ", ".join(a.render(names) for a in expr.args)
            names[str(expr)] = f"{self.names[expr.name]}{f'[{index}]' if index else ''}.long()"

    def position(self, dim: str, dims: Sequence[str], device: str) -> str:
        """0, 1, 2, ... along a dimension, as a tensor that broadcasts over axes ``dims``."""
        behind = len(dims) - 1 - list(dims).index(dim)
        picks = "[:" + ", None" * behind + "]" if behind else ""
        return f"torch.arange({self.sizes[dim]}, device={device}){picks}"

    def stored(
        self, value: str, dims: Sequence[str], tensor: Tensor, index: Sequence[IndexExpr]
    ) -> str | None:
        """The value laid out as the tensor, or None where no view says it."""
        order: list[str] = []
        for expr in index:
            if expr.op == "const":
                continue
            if not is_mixed_radix(expr, self.sizes):
                return None
            form = affine(expr)
            assert form is not None
            order += coarse_to_fine(form, self.sizes)
        if len(set(order)) != len(order) or set(dims) - set(order):
            return None
        missing = [d for d in order if d not in dims]
        if missing:
            value = aligned(value, dims, order)
            value = f"{value}.expand({', '.join(str(self.sizes[d]) for d in order)})"
        else:
            value = permuted(value, dims, order)
        if tuple(self.sizes[d] for d in order) != tensor.shape:
            value = f"{value}.reshape({', '.join(map(str, tensor.shape))})"
        return value


def coarse_to_fine(form: Affine, sizes: object) -> list[str]:
    """The dimensions of a mixed radix, largest step first."""
    assert hasattr(sizes, "__getitem__")
    return [d for d, _ in sorted(form.terms, key=lambda t: (t[1], sizes[t[0]]), reverse=True)]


def permuted(text: str, have: Sequence[str], want: Sequence[str]) -> str:
    """The axes in another order."""
    if list(have) == list(want):
        return text
    order = ", ".join(str(list(have).index(d)) for d in want)
    return f"{text}.permute({order})"


def aligned(text: str, have: Sequence[str], want: Sequence[str]) -> str:
    """An axis of extent 1 for every dimension that is missing after the first one present."""
    ordered = [d for d in want if d in have]
    text = permuted(text, have, ordered)
    if not ordered or list(want[len(want) - len(ordered) :]) == ordered:
        return text
    first = list(want).index(ordered[0])
    picks = ", ".join(":" if d in have else "None" for d in want[first:])
    return f"{text}[{picks}]"


def _all_dims_once(index: Sequence[IndexExpr]) -> bool:
    names = [e.name for e in index if e.is_dim]
    return len(names) == len(index) == len(set(names))
