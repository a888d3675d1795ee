"""The layout of nested boxes: nothing overlaps, sources are above their users."""

from __future__ import annotations

from itertools import combinations

from mirage_py.report.pictures.layered import Box, Layout, layout


def leaf(key: str, width: float = 60.0) -> Box:
    return Box(key, width=width, height=30.0)


def test_sources_are_above_their_users_and_no_two_boxes_overlap() -> None:
    keys = "abcdefg"
    edges = [("a", "c"), ("b", "c"), ("b", "d"), ("c", "e"), ("d", "e"), ("a", "f"), ("e", "g")]
    found = layout(Box("root", parts=tuple(map(leaf, keys))), edges)
    for low, high in edges:
        assert found.places[low].y + found.places[low].height < found.places[high].y
    assert_apart(found, keys)


def assert_apart(found: Layout, keys: str) -> None:
    for a, b in combinations(keys, 2):
        p, q = found.places[a], found.places[b]
        across = p.x + p.width <= q.x or q.x + q.width <= p.x
        assert across or p.y + p.height <= q.y or q.y + q.height <= p.y, (a, b)


def test_parts_lie_inside_of_their_box_and_stacked_ones_below_each_other() -> None:
    loop = Box("loop", "loop d by 64", parts=(leaf("a"), leaf("b"), leaf("c", 200.0)))
    after = Box("after", parts=(leaf("d"),))
    found = layout(
        Box("root", "kernel", parts=(loop, after), stacked=True), [("a", "b"), ("b", "d")]
    )
    inside = {"a": "loop", "b": "loop", "c": "loop", "d": "after", "loop": "root", "after": "root"}
    for key, outer in inside.items():
        p, q = found.places[key], found.places[outer]
        assert q.x < p.x < p.x + p.width < q.x + q.width
        assert q.y < p.y < p.y + p.height < q.y + q.height
    assert found.places["after"].y > found.places["loop"].y + found.places["loop"].height
    assert found.places["after"].width == found.places["loop"].width


def test_an_edge_that_passes_a_layer_goes_round_what_is_there() -> None:
    edges = [("a", "b"), ("b", "c"), ("a", "c")]
    found = layout(Box("root", parts=tuple(map(leaf, "abc"))), edges)
    passed = found.places["b"]
    assert not found.routes["a", "b"]
    points = found.routes["a", "c"]
    assert points
    assert all(not passed.x < x < passed.x + passed.width for x, _ in points)


def test_the_same_graph_is_laid_out_in_the_same_way() -> None:
    edges = [(a, b) for a, b in combinations("abcdefgh", 2) if (ord(a) * ord(b)) % 3]
    root = Box("root", parts=tuple(map(leaf, "abcdefgh")))
    assert layout(root, edges) == layout(root, edges)
