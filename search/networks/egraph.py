"""The e-graph of an operator graph, in egglog: operators as tables, equal values as one class.

A class has a number, the smallest of those that its members got when they were added. An operator
with several results is a class of its own, and each result is a ``result`` of it. Substitutions are
rules of egglog that only note where they match, with several roots if need be, as joins are what
egglog is good at; their conditions speak of shapes and attributes and are decided here, outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mirage_py.axioms.saturation.bindings import egg
from mirage_py.networks.operators.operator import AttributeValue, operator
from mirage_py.networks.operators.tensor_type import TensorType

RESULT = "result"  # an operator's result of a number, where it has several
INPUT = "input"
HERE = egg.RustSpan(__name__, 0, 0)

Attributes = tuple[tuple[str, AttributeValue], ...]
_SORT = "Class"
_NUMBERS = "number-of-class"
_MATCH = "match"
_SUFFIX = "-node"


@dataclass(frozen=True, slots=True)
class ENode:
    """An operator applied to classes."""

    operator: str
    attributes: Attributes
    children: tuple[int, ...]

    def attribute(self, name: str) -> Any:
        """The value of an attribute."""
        return dict(self.attributes)[name]


@dataclass(frozen=True, slots=True)
class PatternNode:
    """An operator of a pattern; operands and results are names of values."""

    operator: str
    operands: tuple[str, ...]
    results: tuple[str, ...]


Pattern = tuple[PatternNode, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """Classes of the named values, and the attributes of each node of the pattern."""

    classes: Mapping[str, int]
    attributes: tuple[Mapping[str, Any], ...]

    @property
    def key(self) -> tuple[tuple[int, ...], str]:
        """What tells it from other matches of a pattern, and sorts it among them."""
        return tuple(self.classes.values()), repr(self.attributes)


@dataclass
class EGraph:
    """Classes of values with their members; ``rebuild`` after additions and unions."""

    classes: dict[int, list[ENode]] = field(default_factory=dict)
    types: dict[int, tuple[TensorType, ...]] = field(default_factory=dict)
    _known: dict[ENode, int] = field(default_factory=dict)
    _leader: list[int] = field(default_factory=list)
    _added: list[ENode] = field(default_factory=list)
    _texts: dict[str, Attributes] = field(default_factory=dict)
    _tables: dict[str, int] = field(default_factory=dict)
    _told: list[Any] = field(default_factory=list)
    _patterns: list[Pattern] = field(default_factory=list)
    _egg: egg.EGraph = field(default_factory=egg.EGraph)

    def __post_init__(self) -> None:
        least = _call("min", _variable("old"), _variable("new"))
        self._told += [
            egg.Sort(HERE, _SORT, None),
            egg.FunctionCommand(HERE, _NUMBERS, egg.Schema([_SORT], "i64"), least),
            egg.AddRuleset(HERE, _MATCH),
        ]

    @property
    def nodes(self) -> int:
        """How many members all classes have."""
        return len(self._known)

    @property
    def newest(self) -> int:
        """The number that the next class gets."""
        return len(self._leader)

    def born(self) -> dict[ENode, int]:
        """The number under which each member was added first."""
        found: dict[ENode, int] = {}
        for number, node in enumerate(self._added):
            found.setdefault(self.canonical(node), number)
        return found

    def canonical(self, node: ENode) -> ENode:
        """A member with the numbers that classes have now."""
        return ENode(node.operator, node.attributes, tuple(map(self.find, node.children)))

    def find(self, class_: int) -> int:
        """The number of a class, of any number that it had."""
        while self._leader[class_] != class_:
            self._leader[class_] = self._leader[self._leader[class_]]
            class_ = self._leader[class_]
        return class_

    def type(self, class_: int) -> TensorType:
        """The type of a value."""
        (found,) = self.types[self.find(class_)]
        return found

    def add(self, node: ENode, types: Sequence[TensorType] | None = None) -> int:
        """The class of an operator; InputError where its shape rule refuses the operands.

        ``types`` has to be given of inputs.
        """
        node = self.canonical(node)
        known = self._known.get(node)
        if known is not None:
            return self.find(known)
        if node.operator == RESULT:
            types = (self.types[node.children[0]][node.attribute("index")],)
        elif types is None:
            operands = [self.type(c) for c in node.children]
            types = operator(node.operator).result_types(operands, dict(node.attributes))
        number = len(self._leader)
        self._leader.append(number)
        self._added.append(node)
        self._known[node] = number
        self.types[number] = tuple(types)
        self.classes[number] = [node]
        self._tell(node, number)
        return number

    def results(self, node: ENode) -> tuple[int, ...]:
        """The class of each result of an operator."""
        class_ = self.add(node)
        count = len(self.types[class_])
        if count == 1:
            return (class_,)
        return tuple(self.add(ENode(RESULT, (("index", n),), (class_,))) for n in range(count))

    def union(self, one: int, other: int) -> bool:
        """Two classes become one; False where they were, or where their types differ."""
        one, other = self.find(one), self.find(other)
        if one == other or self.types[one] != self.types[other]:
            return False
        self._leader[max(one, other)] = min(one, other)
        self._told.append(egg.ActionCommand(egg.Union(HERE, _name(one), _name(other))))
        return True

    def watch(self, pattern: Pattern) -> int:
        """Have the places noted where a pattern matches; its number for ``matches``."""
        names = _columns(pattern)
        sorts = [*[_SORT] * len(names), *["String"] * len(pattern)]
        table = f"{_MATCH}-{len(self._patterns)}"
        facts: list[Any] = []
        for n, node in enumerate(pattern):
            self._declare(node.operator, len(node.operands))
            operands = [_variable(f"v-{x}") for x in node.operands]
            found = _call(_table(node.operator, len(operands)), _variable(f"a-{n}"), *operands)
            if len(node.results) == 1:
                facts.append(egg.Eq(HERE, _variable(f"v-{node.results[0]}"), found))
                continue
            self._declare(RESULT, 1)
            facts.append(egg.Eq(HERE, _variable(f"n-{n}"), found))
            for place, name in enumerate(node.results):
                which = self._text((("index", place),))
                result = _call(_table(RESULT, 1), which, _variable(f"n-{n}"))
                facts.append(egg.Eq(HERE, _variable(f"v-{name}"), result))
        noted = _call(
            table,
            *[_variable(f"v-{x}") for x in names],
            *[_variable(f"a-{n}") for n in range(len(pattern))],
        )
        rule = egg.Rule(HERE, [egg.Expr_(HERE, noted)], facts, table, _MATCH)
        self._told += [egg.Relation(HERE, table, sorts), egg.RuleCommand(rule)]
        self._patterns.append(pattern)
        return len(self._patterns) - 1

    def rebuild(self) -> list[list[Match]]:
        """Congruent members become one, and every pattern is looked for; its matches, in order."""
        run = egg.RunSchedule(egg.Run(HERE, egg.RunConfig(_MATCH)))
        self._egg.run_program(*self._told, run)
        self._told = []
        functions = self._egg.freeze().functions
        number: dict[object, int] = {
            row.inputs[0]: self._egg.value_to_i64(row.output) for row in functions[_NUMBERS].rows
        }
        self._read_members(functions, number)
        return [self._read_matches(functions, number, n) for n in range(len(self._patterns))]

    def _read_members(self, functions: Any, number: Mapping[object, int]) -> None:
        for old in range(len(self._leader)):
            (bound,) = functions[_global(old)].rows
            self._leader[old] = number[bound.output]
        self._known, self.classes = {}, {}
        for table in self._tables:
            for row in functions[table].rows:
                attributes = self._texts[self._egg.value_to_string(row.inputs[0])]
                children = tuple(number[x] for x in row.inputs[1:])
                node = ENode(table.rpartition("/")[0], attributes, children)
                self._known[node] = number[row.output]
        for node, class_ in self._known.items():
            self.classes.setdefault(class_, []).append(node)
        for members in self.classes.values():
            members.sort(key=lambda m: (m.operator, m.children, repr(m.attributes)))
        self.classes = dict(sorted(self.classes.items()))

    def _read_matches(
        self, functions: Any, number: Mapping[object, int], pattern: int
    ) -> list[Match]:
        names = _columns(self._patterns[pattern])
        found = []
        for row in functions[f"{_MATCH}-{pattern}"].rows:
            classes = {name: number[x] for name, x in zip(names, row.inputs, strict=False)}
            texts = [self._egg.value_to_string(x) for x in row.inputs[len(names) :]]
            found.append(Match(classes, tuple(dict(self._texts[text]) for text in texts)))
        return sorted(found, key=lambda match: match.key)

    def _tell(self, node: ENode, number: int) -> None:
        table = self._declare(node.operator, len(node.children))
        operands = [_name(c) for c in node.children]
        made = _call(table, self._text(node.attributes), *operands)
        self._told += [
            egg.ActionCommand(egg.Let(HERE, _global(number), made)),
            egg.ActionCommand(
                egg.Set(HERE, _NUMBERS, [_name(number)], egg.Lit(HERE, egg.Int(number)))
            ),
        ]

    def _declare(self, name: str, arity: int) -> str:
        table = _table(name, arity)
        if table not in self._tables:
            self._tables[table] = arity
            schema = egg.Schema(["String", *[_SORT] * arity], _SORT)
            self._told.append(egg.Constructor(HERE, table, schema, None, unextractable=False))
        return table

    def _text(self, attributes: Attributes) -> egg.Lit:
        text = repr(attributes)
        self._texts[text] = attributes
        return egg.Lit(HERE, egg.String(text))


def _columns(pattern: Pattern) -> list[str]:
    """The named values of a pattern, each once."""
    found: Iterable[str] = (x for n in pattern for x in (*n.operands, *n.results))
    return list(dict.fromkeys(found))


def _table(name: str, arity: int) -> str:
    # egglog numbers the uses of a name at its end: a table's name may not end in a digit.
    return f"{name}/{arity}{_SUFFIX}"


def _global(number: int) -> str:
    return f"$class-{number}-"


def _name(number: int) -> egg.Var:
    return _variable(_global(number))


def _variable(name: str) -> egg.Var:
    return egg.Var(HERE, name)


def _call(name: str, *args: Any) -> egg.Call:
    return egg.Call(HERE, name, list(args))
