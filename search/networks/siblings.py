"""Products of one operand by several weights, as one product by all of them side by side; products
of several operands by one weight, as one product of all of them one above the other.

A pair is merged by the proved rule. Of more than two all are merged at once, which the pair would
take as many rounds for as there are weights, with every subset on the way; the prover of rules
proves it for their number. Kernels that are enlarged are by proof if they are padded by half, else
by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mirage_py.networks.operators.tensor_type import TensorType
from mirage_py.search.networks.egraph import EGraph, ENode, Match, PatternNode
from mirage_py.search.networks.sibling_proofs import (
    enlarging_proof,
    merging_proof,
    stacking_proof,
)
from mirage_py.search.networks.substitution import BY_HAND, Place, Substitution

_STACKED = "each row of a product depends on its own row of the operand alone"
_WHY = "each column (channel) of a product depends on its own column (filter) of the weight alone"


def sibling_places(
    egraph: EGraph, used: Iterable[tuple[int, ENode]], rules: Sequence[Substitution]
) -> Iterator[tuple[Substitution, Match]]:
    """Every group of two or more products among the ``used`` members that one operator can compute:
    those with equal kernels, and all that kernels enlarged by zeros bring together.
    """
    groups: dict[tuple[object, ...], dict[int, ENode]] = {}
    for class_, node in used:
        for key in _keys(egraph, node):
            groups.setdefault(key, {}).setdefault(class_, node)
    seen: dict[tuple[int, ...], None] = {}
    for group in groups.values():
        if len(group) > 1 and tuple(group) not in seen:
            seen[tuple(group)] = None
            members = [(node, class_) for class_, node in sorted(group.items())]
            yield _pair(egraph, members, rules) or _merged(egraph, members)


def stacked_places(
    egraph: EGraph, used: Iterable[tuple[int, ENode]]
) -> Iterator[tuple[Substitution, Match]]:
    """Groups of products by one weight among the ``used`` members of which none needs another: the
    steps of a recurrence have one product of all inputs, and one by one those of its states.
    """
    chosen = dict(used)
    groups: dict[int, dict[int, ENode]] = {}
    for class_, node in chosen.items():
        if node.operator == "matmul" and all(egraph.type(c).rank == 2 for c in node.children):
            groups.setdefault(node.children[1], {})[class_] = node
    for weight, group in groups.items():
        levels: dict[int, list[tuple[int, ENode]]] = {}
        if len(group) > 1:
            depths = _depths(chosen, group)
            for class_, node in sorted(group.items()):
                levels.setdefault(depths[class_], []).append((class_, node))
        for members in levels.values():
            if len(members) > 1:
                yield _stacked(weight, members)


def _depths(chosen: Mapping[int, ENode], group: Mapping[int, ENode]) -> dict[int, int]:
    """How many of a group are on the longest way to each class."""
    depths: dict[int, int] = {}
    todo = list(group)
    while todo:
        class_ = todo[-1]
        children = chosen[class_].children if class_ in chosen else ()
        missing = [c for c in children if c not in depths]
        todo += missing
        if not missing:
            todo.pop()
            depths[class_] = max((depths[c] for c in children), default=0) + (class_ in group)
    return depths


def _stacked(weight: int, members: Sequence[tuple[int, ENode]]) -> tuple[Substitution, Match]:
    names = [(f"x{n}", f"y{n}") for n in range(len(members))]
    classes = {"w": weight}
    for (x, y), (class_, node) in zip(names, members, strict=True):
        classes |= {x: node.children[0], y: class_}
    rule = Substitution(
        f"{len(members)} products by one weight as one",
        tuple(PatternNode("matmul", (x, "w"), (y,)) for x, y in names),
        tuple(y for _, y in names),
        _one_above_the_other,
        _STACKED,
        stacking_proof(len(members)),
    )
    return rule, Match(classes, tuple(dict(node.attributes) for _, node in members))


def _one_above_the_other(place: Place) -> Sequence[int]:
    operands = [place.value(name) for name in place.match.classes if name.startswith("x")]
    (rows,) = place.add("concat", operands, axis=0)
    (product,) = place.add("matmul", [rows, place.value("w")])
    return place.add(
        "split", [product], axis=0, sizes=[place.graph.type(x).shape[0] for x in operands]
    )


def _pair(
    egraph: EGraph, members: Sequence[tuple[ENode, int]], rules: Sequence[Substitution]
) -> tuple[Substitution, Match] | None:
    """The rule that merges two products with equal kernels, where there is one."""
    kernels = {egraph.type(node.children[1]).shape[2:] for node, _ in members}
    if len(members) != 2 or len(kernels) > 1:
        return None
    for rule in rules:
        one, other = rule.pattern[0], rule.pattern[-1]
        if (
            rule.merges
            and one.operator == other.operator == members[0][0].operator
            and one.operands[0] == other.operands[0]
        ):
            classes: dict[str, int] = {}
            for node, (product, class_) in zip(rule.pattern, members, strict=True):
                classes |= dict(zip(node.operands, product.children, strict=True))
                classes[node.results[0]] = class_
            return rule, Match(classes, tuple(dict(node.attributes) for node, _ in members))
    return None


def _keys(egraph: EGraph, node: ENode) -> list[tuple[object, ...]]:
    """What products that can be merged have in common."""
    if node.operator == "matmul" and egraph.type(node.children[1]).rank == 2:
        return [("matmul", node.children[0])]
    if node.operator not in ("conv1d", "conv2d", "conv3d") or node.attribute("groups") != 1:
        return []
    kernel, padding = egraph.type(node.children[1]).shape[2:], node.attribute("padding")
    dilation = node.attribute("dilation")
    common = (node.operator, node.children[0], node.attribute("stride"), dilation)
    keys: list[tuple[object, ...]] = [(*common, kernel, padding)]
    if all(k % 2 and d == 1 for k, d in zip(kernel, dilation, strict=True)):
        # A kernel is enlarged around its centre, over which the padding has to leave it.
        keys.append((*common, tuple(k - 2 * p for k, p in zip(kernel, padding, strict=True))))
    return keys


def _merged(egraph: EGraph, group: Sequence[tuple[ENode, int]]) -> tuple[Substitution, Match]:
    first = group[0][0]
    names = [(f"w{n}", f"y{n}") for n in range(len(group))]
    pattern = tuple(PatternNode(first.operator, ("x", w), (y,)) for w, y in names)
    classes = {"x": first.children[0]}
    for (w, y), (node, class_) in zip(names, group, strict=True):
        classes |= {w: node.children[1], y: class_}
    attributes = tuple(dict(node.attributes) for node, _ in group)
    weights = [egraph.type(node.children[1]) for node, _ in group]
    is_matmul = first.operator == "matmul"
    rule = Substitution(
        f"{len(group)} products of one operand as one"
        if is_matmul
        else f"{len(group)} convolutions of one operand as one",
        pattern,
        tuple(y for _, y in names),
        _one_product if is_matmul else _one_convolution,
        _WHY,
        _proof(is_matmul, attributes, weights),
    )
    return rule, Match(classes, attributes)


def _proof(
    is_matmul: bool, attributes: Sequence[Mapping[str, Any]], weights: Sequence[TensorType]
) -> str:
    """The proof for products with these weights; by hand where it lacks one."""
    proof = merging_proof(is_matmul, len(weights))
    if is_matmul or len({w.shape[2:] for w in weights}) == 1 or proof == BY_HAND:
        return proof
    pairs = zip(attributes, weights, strict=True)
    is_half = all(
        k == 2 * p + 1 for a, w in pairs for k, p in zip(w.shape[2:], a["padding"], strict=True)
    )
    enlarging = enlarging_proof() if is_half else BY_HAND
    return BY_HAND if enlarging == BY_HAND else f"{proof}; {enlarging}"


def _one_product(place: Place) -> Sequence[int]:
    weights = [place.value(name) for name in place.match.classes if name.startswith("w")]
    (weight,) = place.add("concat", weights, axis=1)
    (product,) = place.add("matmul", [place.value("x"), weight])
    axis = place.graph.type(product).rank - 1
    sizes = [place.graph.type(w).shape[1] for w in weights]
    return place.add("split", [product], axis=axis, sizes=sizes)


def _one_convolution(place: Place) -> Sequence[int]:
    names = [name for name in place.match.classes if name.startswith("w")]
    weights = [place.value(name) for name in names]
    kernels = [place.type(name).shape[2:] for name in names]
    kernel = tuple(map(max, *kernels))
    more = [k - old for k, old in zip(kernel, kernels[0], strict=True)]
    before = place.attributes(0)["padding"]
    padding = tuple(p + extra // 2 for p, extra in zip(before, more, strict=True))
    wide = [
        w if k == kernel else place.add("enlarge", [w], kernel=kernel)[0]
        for w, k in zip(weights, kernels, strict=True)
    ]
    (weight,) = place.add("concat", wide, axis=0)
    attributes = {**place.attributes(0), "padding": padding}
    (product,) = place.add(place.operator(0), [place.value("x"), weight], **attributes)
    return place.add("split", [product], axis=1, sizes=[place.type(n).shape[0] for n in names])
