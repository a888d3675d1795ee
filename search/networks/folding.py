"""Substitutions that move arithmetic into weights, where it is done once if they are constant.

A batch norm is a factor and a term of each channel; a factor of each output of a product belongs to
the columns (filters) of its weight, one of each input to its rows. What they make of weights costs
nothing where weights are declared constant; elsewhere the costs say that it does not pay.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.search.networks.egraph import PatternNode
from mirage_py.search.networks.substitution import BY_HAND, Place, Substitution

_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")


def _normalised(place: Place) -> Sequence[int]:
    """x * s + (bias - mean * s), s = gain / sqrt(variance + eps)."""
    x = place.type("x")
    wide = (1, x.shape[1], *(1,) * (x.rank - 2))
    gain, bias, mean, variance = (place.value(n) for n in ("gain", "bias", "mean", "variance"))
    (raised,) = place.add("shift", [variance], term=place.attributes(0)["eps"])
    (spread,) = place.add("sqrt", [raised])
    (factor,) = place.add("div", [gain, spread])
    (centre,) = place.add("mul", [mean, factor])
    (term,) = place.add("sub", [bias, centre])
    (factors,) = place.add("reshape", [factor], shape=wide)
    (terms,) = place.add("reshape", [term], shape=wide)
    (scaled,) = place.add("mul", [place.value("x"), factors])
    return place.add("add", [scaled, terms])


def _normalised_sum(place: Place) -> Sequence[int] | None:
    """batch norm(x + c) = batch norm of x with its mean less c, c one number for each channel."""
    x, c = place.type("x"), place.type("c")
    if c.shape != (1, x.shape[1], *(1,) * (x.rank - 2)):
        return None
    (terms,) = place.add("reshape", [place.value("c")], shape=(x.shape[1],))
    (mean,) = place.add("sub", [place.value("mean"), terms])
    others = [place.value(n) for n in ("gain", "bias", "variance")]
    operands = [place.value("x"), *others[:2], mean, others[2]]
    return place.add("batch_norm", operands, **place.attributes(1))


def _filters_scaled(place: Place) -> Sequence[int] | None:
    """conv(x, w) * s = conv(x, w * s), s one number for each result's channel."""
    s, w, y = place.type("s"), place.type("w"), place.type("y")
    if s.shape != (1, y.shape[1], *(1,) * (y.rank - 2)):
        return None
    (factors,) = place.add("reshape", [place.value("s")], shape=(w.shape[0], *(1,) * (w.rank - 1)))
    (weight,) = place.add("mul", [place.value("w"), factors])
    return place.add(place.operator(0), [place.value("x"), weight], **place.attributes(0))


def _columns_scaled(place: Place) -> Sequence[int] | None:
    """(x w) * s = x (w * s), s one number for each column."""
    s, w = place.type("s"), place.type("w")
    if s.shape not in ((w.shape[-1],), (1, w.shape[-1])) or w.rank != 2:
        return None
    (weight,) = place.add("mul", [place.value("w"), place.value("s")])
    return place.add("matmul", [place.value("x"), weight])


def _rows_scaled(place: Place) -> Sequence[int] | None:
    """(x * s) w = x (s * w), s one number for each row of w."""
    s, w = place.type("s"), place.type("w")
    if s.shape != (w.shape[0],) or w.rank != 2:
        return None
    (factors,) = place.add("reshape", [place.value("s")], shape=(w.shape[0], 1))
    (weight,) = place.add("mul", [place.value("w"), factors])
    return place.add("matmul", [place.value("x"), weight])


def _number_into_weight(place: Place) -> Sequence[int]:
    """(x w) * c = x (w * c), c a number."""
    factor = place.attributes(1)["factor"]
    (weight,) = place.add("scale", [place.value("w")], factor=factor)
    return place.add(place.operator(0), [place.value("x"), weight], **place.attributes(0))


def _scaled(operator: str, make: object, operands: tuple[str, str]) -> Substitution:
    pattern = (
        PatternNode(operator, ("x", "w"), ("y",)),
        PatternNode("mul", operands, ("z",)),
    )
    return Substitution(
        f"factors of the results of {operator} into its weight",
        pattern,
        ("z",),
        make,  # type: ignore[arg-type]
        "a product is linear in its weight",
        BY_HAND,
    )


def folding() -> tuple[Substitution, ...]:
    """All of them."""
    found = [
        Substitution(
            "batch norm as a factor and a term",
            (PatternNode("batch_norm", ("x", "gain", "bias", "mean", "variance"), ("y",)),),
            ("y",),
            _normalised,
            "the definition of a batch norm with known statistics, multiplied out",
            BY_HAND,
        )
    ]
    for operands in (("x", "c"), ("c", "x")):
        pattern = (
            PatternNode("add", operands, ("y",)),
            PatternNode("batch_norm", ("y", "gain", "bias", "mean", "variance"), ("z",)),
        )
        why = "(x + c) - mean = x - (mean - c)"
        found.append(
            Substitution("a term of each channel into the mean of a batch norm", pattern, ("z",),
                         _normalised_sum, why, BY_HAND)
        )  # fmt: skip
    for operands in (("y", "s"), ("s", "y")):
        found += [_scaled(name, _filters_scaled, operands) for name in _CONVOLUTIONS]
        found.append(_scaled("matmul", _columns_scaled, operands))
    for operands in (("x", "s"), ("s", "x")):
        pattern = (
            PatternNode("mul", operands, ("y",)),
            PatternNode("matmul", ("y", "w"), ("z",)),
        )
        found.append(
            Substitution(
                "factors of the rows of a product's weight",
                pattern,
                ("z",),
                _rows_scaled,
                "each term of a product is x[k] s[k] w[k, n]",
                BY_HAND,
            )
        )
    for name in ("matmul", *_CONVOLUTIONS):
        pattern = (
            PatternNode(name, ("x", "w"), ("y",)),
            PatternNode("scale", ("y",), ("z",)),
        )
        found.append(
            Substitution(
                f"a number into the weight of {name}",
                pattern,
                ("z",),
                _number_into_weight,
                "a product is linear in its weight",
                BY_HAND,
            )
        )
    return tuple(found)
