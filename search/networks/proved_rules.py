"""Rules of the database as substitutions: both directions of each, where a match says all that the
other side needs.

A name of a size stands for the extents of one axis or of several, as the rule's proof allows: of
all axes in a pointwise rule, of those before and behind a joined one, of all spatial axes; a rule
about matrices holds for each matrix of a stack, and for rows along several axes. What is found is
compared with the types of the rule's inputs and with the attributes of its operators; the types of
all other values follow from these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from mirage_py.axioms.substitutions.database import proved_rules
from mirage_py.axioms.substitutions.expression import Expr, inputs, nodes, operators, type_text
from mirage_py.axioms.substitutions.rule import PROVED, Rule, is_pointwise, joined_axis
from mirage_py.networks.ir.graph import Graph
from mirage_py.search.networks.egraph import Pattern, PatternNode
from mirage_py.search.networks.substitution import Place, Substitution
from mirage_py.search.substitutions.network_sizes import Sizes

_WINDOWED = ("conv", "max_pool", "avg_pool")


# Other operators are in no network that came without them: nothing brings them in.
_BROUGHT_IN = ("add", "mul", "scale", "concat", "split", "enlarge")

_ELEMENTWISE = ("add", "mul", "scale", "relu")


def by_rules(program: Graph) -> tuple[Substitution, ...]:
    """What the proved rules do to a network by default: where its operators allow it.

    Left out is what costs room and gains nothing alone: a direction that makes more operators, and
    rules about elementwise operators, which kernels fuse in any order.
    """
    there = {*_BROUGHT_IN, *(node.operator for node in program.nodes)}
    return tuple(
        r
        for r in _all()
        if all(node.operator in there for node in r.pattern)
        and not r.grows
        and not all(node.operator in _ELEMENTWISE for node in r.pattern)
    )


@lru_cache(maxsize=1)
def _all() -> tuple[Substitution, ...]:
    return substitutions_of(proved_rules())


def substitutions_of(rules: Sequence[Rule]) -> tuple[Substitution, ...]:
    """What rules do; those without a proof do nothing, nor do those of which an input has an axis
    of parts: no tensor of a network says where its parts are.
    """
    proved = [rule for rule in rules if rule.status == PROVED and not _has_parts(rule)]
    readings = [
        _Reading(rule, forward, axes, as_number)
        for rule in proved
        for forward in (True, False)
        if rule.applies(forward=forward)
        for axes in _spatial(rule)
        for as_number in _numbers(rule)
    ]
    return tuple(r.substitution() for r in readings if r.is_connected)


def _has_parts(rule: Rule) -> bool:
    given = inputs(*rule.left, *rule.right)
    return any(len(axis) > 1 for x in given for axis in x.type)


def _spatial(rule: Rule) -> tuple[int, ...]:
    """Numbers of spatial axes; 0 where no operator's name says it."""
    has_windows = any(x.op in _WINDOWED for x in nodes(*rule.left, *rule.right))
    return (1, 2, 3) if has_windows else (0,)


def _numbers(rule: Rule) -> tuple[bool, ...]:
    """Whether its scalars may be tensors, and numbers as well: each only a factor."""
    sides = (*rule.left, *rule.right)
    scalars = [x for x in inputs(*sides) if not x.type]
    plain = all(
        (x.op == "mul" and n == 1 and x.args[0].type) or a not in scalars
        for x in nodes(*sides)
        for n, a in enumerate(x.args)
    )
    return (False, True) if scalars and plain else (False,)


@dataclass(frozen=True)
class _Reading:
    """A direction of a rule, at a number of spatial axes, with scalars as tensors or as numbers."""

    rule: Rule
    forward: bool
    spatial: int
    as_number: bool

    @property
    def here(self) -> tuple[Expr, ...]:
        """The side that is looked for."""
        return self.rule.left if self.forward else self.rule.right

    @property
    def there(self) -> tuple[Expr, ...]:
        """The side that is made."""
        return self.rule.right if self.forward else self.rule.left

    def operator(self, x: Expr) -> str:
        """The operator of networks."""
        if self.as_number and x.op == "mul" and not x.args[1].type:
            return "scale"
        return f"{x.op}{self.spatial}d" if x.op in _WINDOWED else x.op

    def operands(self, x: Expr) -> tuple[Expr, ...]:
        """The operands that are values."""
        return x.args[:1] if self.operator(x) == "scale" else x.args

    @property
    def given(self) -> list[Expr]:
        """The inputs that are values."""
        return [x for x in inputs(*self.here) if x.type or not self.as_number]

    @property
    def is_connected(self) -> bool:
        """Whether its roots read something in common: else every two values of a network match."""
        reads = [
            {x for x in nodes(root) if x.op != "input" or x.type or not self.as_number}
            for root in self.here
        ]
        return all(reads[0] & other for other in reads)

    def substitution(self) -> Substitution:
        """The rule as a substitution."""
        names, found, order = _pattern(self)
        roots = tuple(names[x] for x in self.here)
        sides = [", ".join(self.operator(x) for x in _made(side)) or "its operand" for side in (
            self.here, self.there,
        )]  # fmt: skip
        types = ", ".join(
            f"{x.name}{type_text(x.type)}" for x in inputs(*self.rule.left, *self.rule.right)
        )
        once = len(self.rule.once(self.there))
        return Substitution(
            f"rule {self.rule.name}: {sides[0]} as {sides[1]}",
            found,
            roots,
            _Make(self, order, names, roots),
            f"equal for all sizes {types}",
            f"proved for all sizes, certificate {self.rule.name} of the rules",
            merges=len(roots) > 1 and all(x.op != "split" for x in self.here),
            grows=operators(*self.there) - once > operators(*self.here),
        )


def _made(side: Sequence[Expr]) -> list[Expr]:
    """The operators, both results of a split as one."""
    found: dict[object, Expr] = {}
    for x in nodes(*side):
        if x.op != "input":
            found.setdefault(_key(x), x)
    return list(found.values())


def _key(x: Expr) -> object:
    return (x.attr("axis"), x.attr("sizes"), x.args) if x.op == "split" else x


def _pattern(reading: _Reading) -> tuple[dict[Expr, str], Pattern, tuple[Expr, ...]]:
    """Names of values, the pattern, and the operator of each of its nodes."""
    names = {x: x.name for x in inputs(*reading.here)}
    found, order = [], _made(reading.here)
    for n, x in enumerate(order):
        results = [x]
        if x.op == "split":
            results = [Expr("split", (x.attrs[0], i, x.attrs[2]), x.args) for i in (0, 1)]
        for i, result in enumerate(results):
            names[result] = f"u{n}-{i}"
        operands = tuple(names[a] for a in reading.operands(x))
        found.append(PatternNode(reading.operator(x), operands, tuple(names[r] for r in results)))
    return names, tuple(found), tuple(order)


@dataclass(frozen=True)
class _Make:
    """Computes one side at a place where the other was found; None where the sizes do not fit."""

    reading: _Reading
    order: tuple[Expr, ...]
    names: dict[Expr, str]
    roots: tuple[str, ...]

    def __hash__(self) -> int:
        return hash((self.reading.rule.name, self.reading.forward))

    def __call__(self, place: Place) -> Sequence[int] | None:
        reading, values = self.reading, [place.value(root) for root in self.roots]
        # Both orders of two equal roots match, and a root beside itself does.
        if len({x.op for x in reading.here} - {"split"}) == 1 and values != sorted(set(values)):
            return None
        sizes = self._sizes(place)
        if sizes is None:
            return None
        made = {x: place.value(x.name) for x in reading.given}
        for x in nodes(*reading.there):
            if x.op == "input":
                continue
            operands = [made[a] for a in reading.operands(x)]
            types = [place.graph.type(c) for c in operands]
            attributes = sizes.attributes(x, types)
            results = place.add(reading.operator(x), operands, **attributes)
            made[x] = results[int(str(x.attr("index"))) if x.op == "split" else 0]
        return [made[x] for x in reading.there]

    def _sizes(self, place: Place) -> Sizes | None:
        """What the names of the rule stand for at a place."""
        reading, found = self.reading, Sizes()
        whole = (*reading.rule.left, *reading.rule.right)
        axis = None
        if joined_axis(*whole) is not None:
            axes = [
                place.attributes(n)["axis"]
                for n, x in enumerate(self.order)
                if x.op in ("concat", "split")
            ]
            if not axes:
                return None
            axis = axes[0]
        shapes = [(x.type, place.type(x.name).shape) for x in reading.given]
        if not found.bind(whole, shapes, axis, pointwise=is_pointwise(*whole)):
            return None
        for n, x in enumerate(self.order):
            types = [place.type(self.names[a]) for a in reading.operands(x)]
            if not found.fits(x, types, place.attributes(n)):
                return None
        return found
