"""Integer facts for all sizes and all tiles, each at least 1: what is cut is whole again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from mirage_py.axioms.certificate.indices import Form, Indices
from mirage_py.axioms.certificate.terms import RefusedError

Fact = dict[str, Any]
# What the missing elements of a shorter tile may be taken for in a reduction.
NEUTRAL = {"sum": "0", "max": "-inf"}
MOST_IN_CLUSTER = 16


def tiles(place: str, d: str, tile: int | None, reduced: Iterable[str], *, cluster: bool) -> Fact:
    """[i T, min((i + 1) T, N)) for 0 <= i < ceil(N / T) are not empty, disjoint, and all of [0, N).

    The last one lacks T ceil(N / T) - N < T elements: neutral ones in their place change nothing.
    """
    if tile is not None and tile < 1:
        raise RefusedError(f"{place}: a tile of {tile}")
    tail = {op: NEUTRAL[op] for op in sorted(dict.fromkeys(reduced))}
    needs = [f"ceil(|{d}| / tile) <= {MOST_IN_CLUSTER} in the {place}"] if cluster else []
    return {"rule": "tiles", "place": place, "dim": d, "tile": tile, "tail": tail, "needs": needs}


def parts(d: str, size: int, new: Sequence[str], sizes: Mapping[str, int]) -> Fact:
    """(p, s) -> p S + s is a bijection of [0, P) x [0, S) and [0, P S)."""
    if len(new) not in (1, 2) or size != prod(sizes[x] for x in new):
        raise RefusedError(f"dimension {d} is not made of {new}")
    needs = [f"|{d}| is a multiple of |{new[0]}|"] if len(new) == 2 else []
    needs += [f"|{d}| = |{new[0]}|"] if len(new) == 1 and new[0] != d else []
    return {"rule": "parts", "dim": d, "into": list(new), "needs": needs}


def added(tensor: str, over: Sequence[str]) -> Fact:
    """What blocks along axes add is the sum over the dimensions: their tiles are a partition."""
    return {"rule": "added", "tensor": tensor, "over": list(over), "needs": []}


def stored(tensor: str, shape: Sequence[int], forms: Sequence[Form], indices: Indices) -> Fact:
    """Each element is written once: along each axis mixed-radix numbers of dimensions of its own.

    All but the last of an axis have to keep their sizes, which are constants of the index.
    """
    needs: list[str] = []
    extents: list[str] = []
    dims = [d for form in forms for atom in form for d in indices.dims[atom]]
    if len(dict.fromkeys(dims)) != len(dims) or len(forms) != len(shape):
        raise RefusedError(f"stores to {tensor} that meet")
    for form, extent in zip(forms, shape, strict=True):
        digits = sorted((k, indices.size(atom), atom) for atom, k in form.items())
        reach = 1
        for k, size, _ in digits:
            if k != reach:
                raise RefusedError(f"stores to {tensor} that leave gaps or meet")
            reach *= size
        if reach != extent:
            raise RefusedError(f"stores to {tensor} that leave some of it out")
        needs += [f"|{atom}| = {size}" for _, size, atom in digits[:-1]]
        extents.append(" * ".join(f"|{atom}|" for _, _, atom in digits) or "1")
    return {"rule": "stored", "tensor": tensor, "extents": extents, "needs": needs}
