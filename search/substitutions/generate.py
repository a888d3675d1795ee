"""Generation of rules: equal graphs of all universes, made general, proved, and kept where the
rules before them do not imply them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, product
from typing import Any

from mirage_py.axioms.substitutions.expression import (
    ANY,
    SAME,
    UNIT,
    Expr,
    inputs,
    nodes,
    operators,
)
from mirage_py.axioms.substitutions.inference import typed, untyped
from mirage_py.axioms.substitutions.proofs import certificate_of
from mirage_py.axioms.substitutions.rule import (
    PROVED,
    TESTED,
    Rule,
    at_rank,
    is_pointwise,
    joined_axis,
)
from mirage_py.errors import InputError
from mirage_py.search.substitutions.egraph import Rewrite, are_equal, reaches
from mirage_py.search.substitutions.enumeration import Enumeration, split_sizes
from mirage_py.search.substitutions.instances import differs
from mirage_py.search.substitutions.normal_forms import NormalForms
from mirage_py.search.substitutions.renamings import Renamings
from mirage_py.search.substitutions.universe import UNIVERSES, Universe

# Small sizes that fingerprints are taken at; no two that a graph could mistake for one another.
# There are several images, as which element is the largest says little of each.
SIZES = {"m": 4, "a": 3, "b": 2, "n": 6, "c": 2, "h": 7, "r": 3, "e": 1}
RANKS = (1, 2, 3)


@dataclass
class Found:
    """Rules so far, their certificates, and counts by universe."""

    rules: list[Rule] = field(default_factory=list)
    certificates: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    seen: dict[tuple[Expr, ...], None] = field(default_factory=dict)
    # What tests alone confirm: no rules, but what follows from them is not tried again.
    tested: list[Rule] = field(default_factory=list)
    # What rules imply, though not by normal forms alone.
    lemmas: list[Rewrite] = field(default_factory=list)
    _names: Iterator[int] = field(default_factory=lambda: count(1))

    def keep(self, left: tuple[Expr, ...], right: tuple[Expr, ...], proof: Any) -> None:
        """Take a rule into the database."""
        rule = Rule(str(next(self._names)), left, right, PROVED)
        self.rules.append(rule)
        self.certificates[rule.name] = proof

    def rewrites_for(self, universe: Universe) -> list[Rewrite]:
        """The rules, and what only tests confirm, as they apply to what a universe has."""
        rank = max(len(shape) for _, shape in universe.inputs)
        names = {op for op, _ in universe.operators} | {"input"}
        axes = {attrs[0] for op, attrs in universe.operators if op == "concat"}
        every = (*self.rules, *self.tested)
        known = [r for r in every if all(x.op in names for x in nodes(*r.left, *r.right))]
        return [
            rewrite
            for rewrite in rewrites_of(known, (rank,))
            if all(x.attrs[0] in axes for x in nodes(*rewrite.left) if x.op == "concat")
        ]

    def forms_for(self, universe: Universe) -> NormalForms:
        """Normal forms by the rules, by what they imply, and by what only tests confirm."""
        rank = max(len(shape) for _, shape in universe.inputs)
        rewrites = rewrites_of((*self.rules, *self.tested), (rank,))
        return NormalForms([*rewrites, *self.lemmas], rank)

    def learn(
        self, one: Expr, other: Expr, forms: NormalForms, rewrites: Sequence[Rewrite]
    ) -> None:
        """Take what rules imply of two graphs into the normal forms, for all sizes if it holds for
        all.
        """
        first, second = forms.normal(one), forms.normal(other)
        if first is None or second is None:
            return
        as_they_are = (first,), (second,)
        for (left,), (right,) in (*general_forms(*as_they_are), as_they_are):
            if (left, right) == (first, second) or are_equal(left, right, rewrites):
                self.lemmas.append(Rewrite((left,), (right,)))
                forms.learn(left, right)
                return


def rewrites_of(rules: Sequence[Rule], ranks: Sequence[int] = RANKS) -> list[Rewrite]:
    """Both directions of rules where they say all, for tensors of some numbers of axes."""
    found: dict[Rewrite, None] = {}
    for rule, rank in product(rules, ranks):
        for r in at_rank(rule, rank):
            if r.applies(forward=True):
                found[Rewrite(r.left, r.right)] = None
            if r.applies(forward=False):
                found[Rewrite(r.right, r.left)] = None
    return list(found)


def generate(
    universes: Sequence[Universe] = UNIVERSES,
    *,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Found:
    """All rules of some universes, the smaller graphs first; what others imply is dropped before
    larger ones, as fewer rules lead further within the same bounds.
    """
    found = Found()
    for n, universe in enumerate(universes):
        if n and universe.most > universes[n - 1].most:
            found.rules = without_implied(found)
        enumeration = Enumeration(universe, SIZES, seed)
        enumeration.run()
        before = len(found.rules)
        pairs = _singles(enumeration, found)
        several = _several(enumeration, found)
        found.counts[universe.name] = {
            "graphs": enumeration.built,
            "equal": len(enumeration.equal),
            "classes": pairs,
            "pairs of outputs": several,
            "kept": len(found.rules) - before,
        }
        progress(f"{universe.name}: {found.counts[universe.name]}")
    return found


def without_implied(found: Found) -> list[Rule]:
    """The rules but for those that the others imply, the larger and more special ones first.

    Rules with two outputs imply none with one: what they join is taken apart again in a longer way
    than a rule about one output needs. One with two outputs is implied by what leads from its left
    side alone to the right: both would be equal by rules that bring the second operand from
    nowhere.
    """
    kept = list(found.rules)
    order = sorted(
        kept, key=lambda r: (-len(r.left), -max(r.size), len(inputs(*r.right)), -int(r.name))
    )
    for rule in order:
        others = [r for r in kept if r is not rule and len(r.left) <= len(rule.left)]
        rank = max(len(x.type) for x in nodes(*rule.left, *rule.right))
        rewrites = rewrites_of(others, (rank,))
        if len(rule.left) > 1:
            is_implied = reaches(rule.left, rule.right, rewrites)
        else:
            is_implied = are_equal(rule.left[0], rule.right[0], rewrites)
        if is_implied:
            kept.remove(rule)
    return kept


# -- graphs with one output ----------------------------------------------------------------------


def _singles(enumeration: Enumeration, found: Found) -> int:
    """Equal graphs, the smaller ones first, and of one size those of more inputs: where the normal
    forms of two differ and no e-graph makes them equal, they become a rule.
    """
    renamings = Renamings(enumeration)
    seen: dict[tuple[Expr, ...], None] = {}
    universe = enumeration.universe
    forms = found.forms_for(universe)
    for level in range(1, universe.most + 1):
        pairs: list[tuple[Expr, Expr]] = []
        for numbers in _pairs(enumeration, renamings, level):
            left, right = map(enumeration.expression, numbers)
            if not forms.are_equal(left, right) and {*inputs(left)} <= {*inputs(right)}:
                pairs.append((left, right))
        renamings.extend(level)
        rewrites = found.rewrites_for(universe)
        for left, right in sorted(pairs, key=lambda p: -len(inputs(p[1]))):
            name = renamed((left, right))
            if name in seen or forms.are_equal(left, right):
                continue
            seen[name] = None
            if are_equal(left, right, rewrites):
                found.learn(left, right, forms, rewrites)
            else:
                _consider((left,), (right,), found)
                rewrites = found.rewrites_for(universe)
                forms = found.forms_for(universe)
    return len(seen)


def _pairs(enumeration: Enumeration, renamings: Renamings, level: int) -> Iterator[tuple[int, int]]:
    """Equal graphs of which the larger has so many operators, each pair once whatever its inputs
    are called: with the one of fewer operators, else with the first under all renamings.
    """
    alike: dict[int, list[int]] = {}
    pairs: list[tuple[int, int]] = []
    for first, other in enumeration.equal:
        if enumeration.level(other) == level:
            if enumeration.level(first) == level:
                alike.setdefault(first, [first]).append(other)
            else:
                pairs.append((first, other))
    for numbers in alike.values():
        best = min(numbers, key=lambda n: renamings.smallest(renamings.key(n)))
        pairs += [(best, n) for n in numbers if n != best]
    seen: dict[object, None] = {}
    for first, other in pairs:
        key = renamings.pair(first, other, level)
        if key not in seen:
            seen[key] = None
            yield first, other


def _consider(left: tuple[Expr, ...], right: tuple[Expr, ...], found: Found) -> bool:
    """Whether a pair of equal graphs became a rule: in its most general form that has a proof."""
    tested = None
    for sides in general_forms(left, right):
        key = (*sides[0], *sides[1])
        if key in found.seen:
            continue
        found.seen[key] = None
        if _differ(*sides):
            continue
        proof = certificate_of(*sides)
        if proof is not None:
            found.keep(*sides, proof)
            return True
        tested = tested or Rule(f"t{len(found.tested) + 1}", *sides, TESTED)
    if tested is not None:
        found.tested.append(tested)
    return False


def _differ(left: tuple[Expr, ...], right: tuple[Expr, ...]) -> bool:
    try:
        return differs(left, right)
    except InputError:
        return True


def general_forms(
    left: tuple[Expr, ...], right: tuple[Expr, ...]
) -> Iterator[tuple[tuple[Expr, ...], tuple[Expr, ...]]]:
    """The same two graphs over the most general shapes, for every window or only for some."""
    sides = (*left, *right)
    has_window = any(x.op in ("conv", "max_pool", "avg_pool") for x in nodes(*sides))
    axis = 1 if joined_axis(*sides) is not None else None
    plain = max(len(x.type) for x in inputs(*sides))
    rank = 1 if is_pointwise(*sides) else 3 if axis is not None else plain
    for window in (ANY, SAME, UNIT) if has_window else ("",):
        free = renamed([untyped(x, axis=axis, window=window) for x in sides])
        try:
            new = typed(free, rank)
        except InputError:
            continue
        yield new[: len(left)], new[len(left) :]


_DATA, _WEIGHT, _SCALAR = ("x", "y", "z", "w"), ("a", "b", "c", "d"), ("s", "t")


def renamed(roots: Sequence[Expr]) -> tuple[Expr, ...]:
    """Inputs named by what they are, in the order in which they are met."""
    weights = {
        i
        for x in nodes(*roots)
        if x.op in ("matmul", "conv")
        for i in inputs(x.args[1])
        if i.attr("type") != ()
    }
    stems = {"x": iter(_DATA), "a": iter(_WEIGHT), "s": iter(_SCALAR)}
    done: dict[Expr, Expr] = {}
    for x in nodes(*roots):
        attrs = x.attrs
        if x.op == "input":
            kind = "s" if x.attr("type") == () else "a" if x in weights else "x"
            attrs = (next(stems[kind]), *x.attrs[1:])
        done[x] = Expr(x.op, attrs, tuple(done[a] for a in x.args))
    return tuple(done[x] for x in roots)


# -- graphs with two outputs ---------------------------------------------------------------------


def _several(enumeration: Enumeration, found: Found) -> int:
    """Two graphs with something in common that are the parts of one: joined, computed, split."""
    values = enumeration.values
    pairs: dict[tuple[Expr, ...], None] = {}
    for number, value in enumerate(values):
        if value.array is None:
            continue
        for axis, tree in enumerate(value.shape):
            if isinstance(tree, str) or value.op in ("input", "concat"):
                continue
            parts = _parts_of(enumeration, number, axis)
            if parts is None or not enumeration.is_canonical(parts):
                continue
            if len(enumeration.joint(parts)) <= enumeration.universe.most:
                sizes, inner = split_sizes(value.shape, axis), enumeration.expression(number)
                right = (Expr("split", (axis, n, sizes), (inner,)) for n in (0, 1))
                pairs[(*map(enumeration.expression, parts), *right)] = None
    # The more inputs, the more general.
    for pair in sorted(pairs, key=lambda p: (operators(*p), -len(inputs(*p)))):
        if not reaches(pair[:2], pair[2:], found.rewrites_for(enumeration.universe)):
            _consider(pair[:2], pair[2:], found)
    return len(pairs)


def _parts_of(enumeration: Enumeration, number: int, axis: int) -> tuple[int, int] | None:
    """The first values that equal the two parts of one, unless these are inputs or parts."""
    value = enumeration.values[number]
    assert value.array is not None
    length = enumeration.length(value.shape[axis][0])
    whole = (slice(None),) * axis
    found = []
    for where in (slice(0, length), slice(length, None)):
        known = enumeration.known(value.array[(*whole, where)])
        if known is None or enumeration.values[known].op in ("input", "split"):
            return None
        found.append(known)
    return (found[0], found[1]) if found[0] != found[1] else None
