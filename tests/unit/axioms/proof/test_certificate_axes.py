"""Axes of the checker's terms: laws of tiles, and on which axes a term may depend, by numbers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from mirage_py.axioms.certificate.terms import TRUSTED, Term, Terms

B, D = 3, 10
# The tile of each loop; the last one is shorter.
TILES = {"": 4, "k/1": 3}
LEAVES = {"X": ("b", "d"), "Z": ("b",), "G": ("d",), "m": ("b", "d.l"), "n": ("d.lk/1",), "c": ()}
AXES = ("b", "d", *(f"d.{part}{loop}" for part in "lt" for loop in TILES))
Array = np.ndarray[Any, np.dtype[np.float64]]


def tile_of(axis: str) -> Array:
    """The iteration in which each place of d is."""
    return np.arange(D) // TILES[axis.partition(".")[2][1:]]


def reduced(op: str, axis: str, x: Array) -> Array:
    """A reduction of what has a value at each place of b and d, at each place again."""
    total = np.sum if op == "sum" else np.max
    if axis in ("b", "d"):
        return np.broadcast_to(total(x, axis="bd".index(axis), keepdims=True), x.shape)
    tile = tile_of(axis)
    if axis.startswith("d.t"):
        return np.stack([total(x[:, tile == n], axis=1) for n in tile], axis=1)
    firsts = [int(np.argmax(tile == n)) for n in range(int(tile[-1]) + 1)]
    return np.broadcast_to(total(x[:, firsts], axis=1, keepdims=True), x.shape)


def lengths(axis: str) -> Array:
    if "." not in axis:
        return np.full((B, D), float({"b": B, "d": D}[axis]))
    tile = tile_of(axis)
    count = [float(np.sum(tile == n)) if ".t" in axis else float(tile[-1] + 1) for n in tile]
    return np.broadcast_to(np.array(count), (B, D))


def side(row: Sequence[Any], axes: Mapping[str, str], x: Array) -> Array:
    op, attr, *args = row
    if op == "var":
        return x
    return lengths(axes[attr]) if op == "size" else reduced(op, axes[attr], side(args[0], axes, x))


@pytest.mark.parametrize("loop", TILES)
@pytest.mark.parametrize("name", ["tiles.sum", "tiles.max", "tiles.size"])
def test_a_dimension_is_its_tiles(name: str, loop: str):
    (law,) = (law for law in TRUSTED["laws"] if law["name"] == name)
    axes = dict(zip(law["tiles"], ("d", f"d.l{loop}", f"d.t{loop}"), strict=True))
    x = np.random.default_rng(3).normal(size=(B, D))
    assert np.allclose(side(law["left"], axes, x), side(law["right"], axes, x))
    if name == "tiles.sum":
        mixed = {**axes, law["tiles"][2]: "d.tk/1" if loop == "" else "d.t"}
        assert not np.allclose(side(law["left"], mixed, x), side(law["right"], mixed, x))


def grown(rng: random.Random, terms: Terms, leaves: Mapping[str, Array]) -> dict[Term, Array]:
    """Terms at random, with what they are; iterations are summed where a tile is one number."""
    made: dict[Term, Array] = {}
    for name, axes in LEAVES.items():
        made[terms.make("leaf", (), name, axes)] = leaves[name]
    for axis in AXES:
        made[terms.make("size", (), axis)] = lengths(axis)
    for _ in range(60):
        a, b = (rng.choice([*made]) for _ in range(2))
        op, axis = rng.choice(["add", "mul", "sum", "max"]), rng.choice(AXES)
        if op in ("add", "mul"):
            made[terms.make(op, (a, b))] = made[a] + made[b] if op == "add" else made[a] * made[b]
        elif ".l" not in axis or is_same_along(made[a], axis.replace(".l", ".t", 1)):
            made[terms.make(op, (a,), axis)] = reduced(op, axis, made[a])
    return made


def is_same_along(x: Array, axis: str) -> bool:
    if axis in ("b", "d"):
        return bool(np.allclose(x, np.roll(x, 1, axis="bd".index(axis)), rtol=1e-9))
    if ".l" in axis:
        return is_same_along(x, "d")
    return bool(np.allclose(x, reduced("max", axis, x), rtol=1e-9))


def test_what_is_free_of_an_axis_is_the_same_along_it():
    values = np.random.default_rng(5)
    leaves = {name: values.normal(size=(B, D)) for name in LEAVES}
    leaves["Z"] = np.broadcast_to(leaves["Z"][:, :1], (B, D))
    leaves["G"] = np.broadcast_to(leaves["G"][:1], (B, D))
    leaves["m"] = leaves["m"][:, tile_of("d.l")]
    leaves["n"] = np.broadcast_to(leaves["n"][:1, tile_of("d.lk/1")], (B, D))
    leaves["c"] = np.full((B, D), 0.7)
    free = bound = 0
    for seed in range(40):
        terms = Terms()
        for term, x in grown(random.Random(seed), terms, leaves).items():
            for axis in AXES:
                if term.is_free(axis):
                    assert is_same_along(x, axis), (term.op, term.attr, axis)
                    free += 1
                bound += not term.is_free(axis)
    assert min(free, bound) > 1000
