"""Formatting of the field test's substitutes for functions, in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_LAW = "exp(a) exp(b) = exp(a + b)"
_STANDS_FOR = (
    ("powers", "by a fixed exponent, which respects products"),
    ("ordered", "by a random total order"),
    ("equality", "as it is between whole numbers, else at random"),
    ("random", "as a random function, without laws"),
)


def format_functions(functions: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Of the JSON form of a FunctionUse (mirage_py.verify.field_test.meanings); nothing of None."""
    if functions is None:
        return ()
    return (*_paths(functions), *_others(functions))


def _paths(functions: Mapping[str, Any]) -> Iterator[str]:
    # What the µGraph nests and the program does not has to be said as well.
    found = [functions[part] for part in ("program", "ugraph") if functions[part]]
    counts: dict[str, int] = {}
    for paths in found:
        for output, count in paths["outputs"].items():
            counts[output] = max(count, counts.get(output, 0))
    if not any(counts.values()):
        yield "No path from an input to an output carries an exponential."
        return
    carrying = [output for output, count in counts.items() if count]
    names, through = _listed(carrying), _listed(functions["exponential"] or functions["random"])
    nested = [(n["outer"], tuple(n["inner"]), n["lawful"]) for p in found for n in p["nested"]]
    if not nested:
        yield (
            f"No path to {names} carries more than one exponential ({through}), so the law {_LAW} "
            "holds in the trials."
        )
        return
    for outer, inner, lawful in dict.fromkeys(nested):
        of = f"Paths to {names} carry several exponentials: {outer} is applied to what carries "
        if lawful:
            yield (
                f"{of}{_listed(inner)}; a random function or a truth value lies between, so the "
                f"law {_LAW} holds there too."
            )
        else:
            yield (
                f"{of}{_listed(inner)}, and stands for a random function there, of which "
                "exp(-a) = 1 / exp(a) alone is known."
            )


def _others(functions: Mapping[str, Any]) -> Iterator[str]:
    said = [f"{_listed(functions[key])} {how}" for key, how in _STANDS_FOR if functions[key]]
    if functions["shifts"]:
        said.append("maxima that only shift exponents as random values")
    if said:
        yield f"The trials take {'; '.join(said)}."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
