from __future__ import annotations

import json
from dataclasses import replace

import pytest
import samples

from mirage_py.errors import FormatError
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.json_form import (
    dump_text,
    from_json,
    load_text,
    read_ugraph,
    to_json,
    write_ugraph,
)

NAMES = sorted(samples.TEXTS)


@pytest.mark.parametrize("name", NAMES)
def test_samples_read_back(name):
    graph = samples.ugraph(name)
    assert from_json(to_json(graph)) == graph
    assert from_json(to_json(graph.program)) == graph.program
    assert load_text(dump_text(graph), name) == graph
    assert load_text(dump_text(graph), name).digest == graph.digest


def plan():
    graph = samples.ugraph("split_attention")
    options = (
        LaunchConfig(8, (3,), producer_warps=True, evict_first=("K",)),
        LaunchConfig(),
    )
    return Plan(graph, options, "cuda")


def test_plans_read_back():
    assert load_text(dump_text(plan()), "plan") == plan()


def test_files(tmp_path):
    path = tmp_path / "x.ug.json"
    write_ugraph(path, samples.ugraph("attention"))
    assert read_ugraph(path) == samples.ugraph("attention")
    assert "load" in path.read_text()
    path.write_text(dump_text(samples.ugraph("attention").program))
    with pytest.raises(FormatError, match="holds a program"):
        read_ugraph(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="cannot be read"):
        read_ugraph(path)
    with pytest.raises(FormatError, match="cannot be read"):
        read_ugraph(tmp_path / "absent")


def test_the_form():
    tree = to_json(samples.ugraph("split_attention"))
    kernel = tree["kernels"][0]
    assert kernel["nodes"][1] == {
        "op": "load",
        "attr": "K[h, p * 5 + s, c]",
        "dims": ["h", "p", "s", "c"],
    }
    assert kernel["sections"][1] == {"nodes": list(range(1, 12)), "loop": "s", "tile": 2}
    assert kernel["grid"] == [{"dim": "h", "tile": 1}, {"dim": "p", "tile": 1}]
    assert tree["program"]["inputs"][1]["strides"] == [60, 1, 15]


def test_infinite_constants():
    program = samples.ugraph("rms_norm_matmul").program
    nodes = list(program.nodes)
    nodes[9] = Node("const", (), float("-inf"))
    changed = replace(program, nodes=tuple(nodes))
    assert load_text(dump_text(changed), "p") == changed
    nodes[9] = Node("const", (), float("nan"))
    with pytest.raises(FormatError, match="NaN"):
        to_json(replace(program, nodes=tuple(nodes)))


def put(tree, path, value):
    *holders, last = path
    for key in holders:
        tree = tree[key]
    if value is ...:
        del tree[last]
    else:
        tree[last] = value


KERNEL = ("kernels", 0)
CHANGES = {
    "unknown kind": (("kind",), "thing", "unknown kind 'thing'"),
    "no kind": (("kind",), ..., "'kind' is missing"),
    "another schema": (("schema",), 2, "schema 2 is not 1"),
    "schema as text": (("schema",), "1", "whole number"),
    "unknown key": (("comment",), "hello", "unknown key 'comment'"),
    "missing key": ((*KERNEL, "threads"), ..., "'threads' is missing"),
    "size as text": (("program", "dims", 0, "size"), "16", "whole number"),
    "size as a float": (("program", "dims", 0, "size"), 16.0, "whole number"),
    "size as a truth": (("program", "dims", 0, "size"), True, "whole number"),
    "size beyond reason": (("program", "dims", 0, "size"), 1 << 80, "too large"),
    "size of zero": (("program", "dims", 0, "size"), 0, "size 0"),
    "name of a dimension": (("program", "dims", 0, "name"), "h; import os", "cannot be the name"),
    "unknown type": (("program", "inputs", 0, "dtype"), "f12", "unknown element type 'f12'"),
    "index with code": (
        ("program", "outputs", 0, "index", 0),
        "__import__('os')",
        "unexpected",
    ),
    "index of two axes": (("program", "outputs", 0, "index", 0), "t, h", "unexpected"),
    "wrong dims": ((*KERNEL, "nodes", 2, "dims"), ["t"], "its dimensions are"),
    "attribute of another operator": ((*KERNEL, "nodes", 2, "attr"), "c", "a list is expected"),
    "operator": ((*KERNEL, "nodes", 2, "op"), "matmull", "unknown operator"),
    "nodes as an object": ((*KERNEL, "nodes"), {}, "a list is expected"),
    "kernel as a list": (KERNEL, [], "an object is expected"),
    "kernel of another kind": ((*KERNEL, "kind"), "warp", "unknown kind of kernel 'warp'"),
    "tile of zero": ((*KERNEL, "grid", 0, "tile"), 0, "tile 0"),
    "thread graph of nothing": ((*KERNEL, "threads"), [[99]], "do not exist"),
}


@pytest.mark.parametrize("case", sorted(CHANGES))
def test_damage_is_refused(case):
    path, value, word = CHANGES[case]
    tree = json.loads(json.dumps(to_json(samples.ugraph("split_attention"))))
    put(tree, path, value)
    with pytest.raises(FormatError, match=word) as caught:
        from_json(tree, "file.ug.json")
    assert caught.value.where.startswith("file.ug.json")


def test_the_place_is_named():
    tree = to_json(samples.ugraph("split_attention"))
    put(tree, (*KERNEL, "nodes", 3, "args"), ["2"])
    with pytest.raises(FormatError) as caught:
        from_json(tree, "f")
    assert caught.value.where == "f.kernels[0].nodes[3].args[0]"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"options": []}, "0 options for 2 kernels"),
        ({"backend": 3}, "a text is expected"),
    ],
)
def test_damaged_plans(change, word):
    with pytest.raises(FormatError, match=word):
        from_json(to_json(plan()) | change)


def test_damaged_flags():
    tree = to_json(plan())
    tree["options"][0]["flags"][0].append("x")
    with pytest.raises(FormatError, match="a name and a value"):
        from_json(tree)


TEXTS = {
    '{"schema": 1': "no JSON",
    "": "no JSON",
    '{"schema": NaN}': "the number NaN",
    '{"schema": -Infinity}': "the number -Infinity",
    '{"schema": 1, "schema": 1}': "'schema' is given twice",
    "[" * 100_000: "no sensible JSON",
    '{"schema": ' + "9" * 5000 + "}": "no sensible JSON",
    "[]": "an object is expected",
    "3": "an object is expected",
}


@pytest.mark.parametrize("text", sorted(TEXTS), ids=lambda t: t[:20])
def test_what_is_no_json(text):
    with pytest.raises(FormatError, match=TEXTS[text]):
        load_text(text, "f")


@pytest.mark.parametrize("value", [1e999, 10**400, True, None, "huge", [1]])
def test_constants_are_numbers(value):
    tree = to_json(samples.ugraph("rms_norm_matmul").program)
    tree["nodes"][9]["attr"] = value
    with pytest.raises(FormatError):
        from_json(tree)
