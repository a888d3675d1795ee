"""Forgeries, one of each kind: of a certificate, and of the µGraph and program under one."""

# ruff: noqa: E501

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from adversarial.test_certificates import case

from mirage_py.axioms.certificate import checker
from mirage_py.axioms.certificate.checker import fault_of

Json = dict[str, Any]
SPLIT, LOOPS = "attention_long.split", "causal_attention.one_kernel_long"
CALL, TWO, ADDED = "rmsnorm_matmul.library", "rmsnorm_matmul.two_kernels", "hand_split_matmul_added"


class Forgery:
    """Program, µGraph and certificate, to be changed in place."""

    def __init__(self, name: str) -> None:
        self.program, self.ugraph, self.certificate = deepcopy(cached(name))

    def nodes(self, kernel: int = 0) -> list[Json]:
        found: list[Json] = self.ugraph["kernels"][kernel]["nodes"]
        return found

    def node(self, op: str, kernel: int = 0) -> Json:
        return next(n for n in self.nodes(kernel) if n["op"] == op)

    def step(self, law: str = "") -> Json:
        steps = [s for o in self.certificate["outputs"] for s in o["steps"]]
        return next(s for s in steps if s["law"].startswith(law) and s["with"])

    def term(self, op: str) -> int:
        return next(n for n, t in enumerate(self.certificate["terms"]) if t[0] == op)


@cache
def cached(name: str) -> tuple[Json, Json, Json]:
    return case(name)


@cache
def accepted(name: str) -> bool:
    """Whether what is forged is right before."""
    return fault_of(*cached(name)) == ""


def put(holder: Any, key: Any, value: Any) -> None:
    holder[key] = value


def nested(depth: int) -> Any:
    found: Any = 0
    for _ in range(depth):
        found = [found]
    return found


def swap_args(node: Json) -> None:
    node["args"] = node["args"][::-1]


def loop_of(f: Forgery) -> Json:
    sections = f.ugraph["kernels"][0]["sections"]
    return next(s for s in sections if s.get("loop"))


def accumulated(f: Forgery) -> Json:
    return next(n for n in f.nodes() if n["op"] == "accum_rescaled")


def renamed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


FORGERIES: dict[str, tuple[str, Callable[[Forgery], Any]]] = {
    # Steps.
    "no such law": (SPLIT, lambda f: put(f.step(), "law", "sums.anything")),
    "another law": (SPLIT, lambda f: put(f.step("sums.divide"), "law", "sums.multiply")),
    "a law of another operator": (SPLIT, lambda f: put(f.step("sums"), "law", "maxima.constant")),
    "a law that is a number": (SPLIT, lambda f: put(f.step(), "law", 3)),
    "the other direction": (SPLIT, lambda f: put(f.step("sums"), "forward", True)),
    "a direction that is text": (SPLIT, lambda f: put(f.step("division"), "forward", "false")),
    "another axis": (SPLIT, lambda f: put(f.step("sums")["with"], "i", "d")),
    "an axis that there is not": (SPLIT, lambda f: put(f.step("sums")["with"], "i", "q")),
    "an axis that is a term": (SPLIT, lambda f: put(f.step("sums")["with"], "i", 0)),
    "a term that is an axis": (SPLIT, lambda f: put(f.step("sums")["with"], "x", "s")),
    "another term": (SPLIT, lambda f: put(f.step("sums")["with"], "y", 0)),
    "what depends on the axis": (SPLIT, lambda f: put(f.step("sums")["with"], "y", f.term("exp"))),
    "a variable left out": (SPLIT, lambda f: f.step("sums")["with"].pop("y")),
    "a variable too many": (SPLIT, lambda f: put(f.step("sums")["with"], "z", 0)),
    "no binding": (SPLIT, lambda f: put(f.step("sums"), "with", {})),
    "another place": (SPLIT, lambda f: put(f.step("sums"), "at", [1])),
    "a place below leaves": (SPLIT, lambda f: put(f.step("sums"), "at", [0] * 50)),
    "a place from the end": (SPLIT, lambda f: put(f.step("sums"), "at", [-2])),
    "a place that is true": (SPLIT, lambda f: put(f.step("sums"), "at", [False])),
    "a place deep in lists": (SPLIT, lambda f: put(f.step("sums"), "at", nested(100_000))),
    "a cycle of steps": (SPLIT, lambda f: put(f.step("sums"), "after", f.step("sums")["before"])),
    "a step that begins elsewhere": (SPLIT, lambda f: put(f.step("sums"), "before", 0)),
    "a step into the table's end": (SPLIT, lambda f: put(f.step("sums"), "after", -1)),
    "a step beyond the table": (SPLIT, lambda f: put(f.step("sums"), "after", 10**30)),
    "the first step left out": (SPLIT, lambda f: f.certificate["outputs"][0]["steps"].pop(0)),
    "the last step left out": (SPLIT, lambda f: f.certificate["outputs"][0]["steps"].pop()),
    "steps in another order": (SPLIT, lambda f: f.certificate["outputs"][0]["steps"].reverse()),
    "steps that are none": (SPLIT, lambda f: put(f.certificate["outputs"][0], "steps", None)),
    "no steps": (SPLIT, lambda f: put(f.certificate["outputs"][0], "steps", [])),
    # Terms.
    "a term of itself": (SPLIT, lambda f: put(f.certificate["terms"], 4, ["exp", "", 4])),
    "a term of a later one": (SPLIT, lambda f: put(f.certificate["terms"], 4, ["exp", "", 9])),
    "a term from the end": (SPLIT, lambda f: put(f.certificate["terms"], 4, ["exp", "", -1])),
    "an operator of too many": (SPLIT, lambda f: put(f.certificate["terms"], 4, ["exp", "", 3, 3])),
    "an operator that there is not": (SPLIT, lambda f: put(f.certificate["terms"], 4, ["id", "", 3])),
    "a leaf that is none": (SPLIT, lambda f: put(f.certificate["terms"], 0, ["leaf", "Q"])),
    "a leaf that is a shift": (SPLIT, lambda f: put(f.certificate["terms"], 0, ["leaf", "shift k"])),
    "a sum over nothing": (SPLIT, lambda f: put(f.certificate["terms"], 3, ["sum", "", 2])),
    "a huge number": (SPLIT, lambda f: put(f.certificate["terms"], 0, ["const", "1e999999999"])),
    "no number": (SPLIT, lambda f: put(f.certificate["terms"], 0, ["const", "nan"])),
    "a variable as term": (SPLIT, lambda f: put(f.certificate["terms"], 0, ["var", "x"])),
    "a table cut short": (SPLIT, lambda f: put(f.certificate, "terms", f.certificate["terms"][:9])),
    # Dimensions, needs.
    "parts swapped": (SPLIT, lambda f: put(f.certificate["dims"], "s", ["s", "s_part"])),
    "one part twice": (SPLIT, lambda f: put(f.certificate["dims"], "s", ["s", "s"])),
    "parts of another": (SPLIT, lambda f: put(f.certificate["dims"], "t", ["s_part", "s"])),
    "a part alone": (SPLIT, lambda f: put(f.certificate["dims"], "s", ["s"])),
    "three parts": (SPLIT, lambda f: put(f.certificate["dims"], "s", ["s_part", "s", "h"])),
    "two dimensions made one": (SPLIT, lambda f: put(f.certificate["dims"], "e", ["d"])),
    "a dimension of nothing": (SPLIT, lambda f: put(f.certificate["dims"], "q", ["h"])),
    "needs left out": (SPLIT, lambda f: put(f.certificate, "needs", [])),
    "a call that reads otherwise": (CALL, lambda f: f.certificate.update(
        calls={k: v[::-1] for k, v in f.certificate["calls"].items()})),
    "a call that is not named": (CALL, lambda f: put(f.certificate, "calls", {})),
    # The µGraph.
    "a part too few": (SPLIT, lambda f: put(f.ugraph["program"]["dims"][4], "size", 5)),
    "a negative size": (SPLIT, lambda f: [put(d, "size", -d["size"])
                                          for g in (f.program, f.ugraph["program"])
                                          for d in g["dims"]]),
    "a size that is true": (SPLIT, lambda f: put(f.ugraph["program"]["dims"][0], "size", True)),
    "one dimension twice": (SPLIT, lambda f: f.ugraph["program"]["dims"].append(
        {"name": "s", "size": 11})),
    "a dimension like an axis": (SPLIT, lambda f: f.ugraph["program"]["dims"].append(
        {"name": "s.t", "size": 1})),
    "two kernels of one name": (SPLIT, lambda f: put(
        f.ugraph["kernels"][1], "name", f.ugraph["kernels"][0]["name"])),
    "two tensors of one name": (SPLIT, lambda f: put(f.ugraph["intermediates"][1], "name", "part0")),
    "a name of an output": (SPLIT, lambda f: put(f.ugraph["intermediates"][0], "name", "O")),
    "an intermediate of integers": (SPLIT, lambda f: put(
        f.ugraph["intermediates"][0], "dtype", "i32")),
    "an intermediate too short": (SPLIT, lambda f: put(
        f.ugraph["intermediates"][0], "shape", [5, 2, 9, 5])),
    "elements that share places": (SPLIT, lambda f: put(
        f.ugraph["intermediates"][0], "strides", [0, 0, 0, 0])),
    "kernels in another order": (SPLIT, lambda f: f.ugraph["kernels"].reverse()),
    "a kernel left out": (SPLIT, lambda f: f.ugraph["kernels"].pop(0)),
    "a store left out": (SPLIT, lambda f: f.nodes().remove(f.node("store"))),
    "a store at another place": (SPLIT, lambda f: put(f.node("store"), "attr", "part0[s, h, t, e]")),
    "a store of a part": (SPLIT, lambda f: put(f.node("store", 1), "attr", "O[h, t, 0 * e]")),
    "a load of another place": (SPLIT, lambda f: put(
        f.nodes()[0], "attr", "V[h, s_part * 11 + s + 1, e]")),
    "a load of other parts": (SPLIT, lambda f: put(
        f.nodes()[0], "attr", "V[h, s * 6 + s_part, e]")),
    "a factor that is not divided out": (SPLIT, lambda f: put(
        f.nodes(1)[5], "op", "square")),
    "a quotient the other way": (SPLIT, lambda f: swap_args(f.node("div", 1))),
    "a difference the other way": (SPLIT, lambda f: swap_args(f.node("sub"))),
    "another shift": (SPLIT, lambda f: put(f.nodes(1)[4], "args", [1, 1])),
    "a grid that cuts a sum": (SPLIT, lambda f: f.ugraph["kernels"][0]["grid"].append(
        {"dim": "s", "tile": 4})),
    "a grid that cuts twice": (SPLIT, lambda f: f.ugraph["kernels"][0]["grid"].append(
        {"dim": "h", "tile": 1})),
    "a tile of nothing": (SPLIT, lambda f: put(f.ugraph["kernels"][0]["grid"][0], "tile", 0)),
    "a node in no section": (SPLIT, lambda f: f.ugraph["kernels"][0]["sections"][0]["nodes"].pop()),
    "a node in two sections": (SPLIT, lambda f: f.ugraph["kernels"][0]["sections"].append(
        {"nodes": [0]})),
    "a mask that ends earlier": (LOOPS, lambda f: put(f.node("mask"), "attr", "(s < t)")),
    "the rest of a loop left out": (LOOPS, lambda f: put(
        f.node("mask"), "attr", "((s <= t) & (s < 8))")),
    "another power of a maximum": (LOOPS, lambda f: put(accumulated(f), "attr", [2])),
    "a sum that is not rescaled": (LOOPS, lambda f: accumulated(f).update(
        op="accum_sum", args=accumulated(f)["args"][:1], attr="")),
    "a maximum for a sum": (TWO, lambda f: put(f.node("sum"), "op", "max")),
    "a loop over another dimension": (LOOPS, lambda f: put(loop_of(f), "loop", "t")),
    "a loop that the grid cuts too": (LOOPS, lambda f: f.ugraph["kernels"][0]["grid"].append(
        {"dim": loop_of(f)["loop"], "tile": 4})),
    "a loop that is none": (LOOPS, lambda f: loop_of(f).pop("loop")),
    "parts that are not added": (ADDED, lambda f: put(f.node("store_add"), "op", "store")),
    "parts added twice": (ADDED, lambda f: f.ugraph["kernels"].append(
        {**deepcopy(f.ugraph["kernels"][0]), "name": "again"})),
    "a call of another operator": (CALL, lambda f: put(
        next(k for k in f.ugraph["kernels"] if k["kind"] != "block"), "op", "add")),
    # The program.
    "another program": (SPLIT, lambda f: put(f.program["nodes"][3], "op", "square")),
    "outputs exchanged": (SPLIT, lambda f: put(f.program["outputs"][0], "node", 5)),
    "an output elsewhere": (SPLIT, lambda f: put(f.program["outputs"][0], "index", ["h", "e", "t"])),
    "inputs of another shape": (SPLIT, lambda f: put(f.program["inputs"][0], "shape", [2, 9, 6])),
    # Other data.
    "an index deep in brackets": (SPLIT, lambda f: put(
        f.nodes()[0], "attr", f"V[h, {'(' * 5000}s{')' * 5000}, e]")),
    "an index that is too long": (SPLIT, lambda f: put(
        f.nodes()[0], "attr", f"V[h, s{' + 0' * 20_000}, e]")),
    "an index that is code": (SPLIT, lambda f: put(
        f.nodes()[0], "attr", "V[h, __import__('os').getpid(), e]")),
    "an index with a huge number": (SPLIT, lambda f: put(
        f.nodes()[0], "attr", f"V[h, s + {'9' * 9000}, e]")),
    "no certificate": (SPLIT, lambda f: f.certificate.clear()),
    "another output": (SPLIT, lambda f: put(f.certificate["outputs"][0], "output", "P")),
    "an output twice": (SPLIT, lambda f: f.certificate["outputs"].append(
        f.certificate["outputs"][0])),
    "no outputs": (SPLIT, lambda f: f.certificate["outputs"].clear()),
}  # fmt: skip


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_forgery_is_refused(kind: str):
    name, change = FORGERIES[kind]
    assert accepted(name)
    forgery = Forgery(name)
    change(forgery)
    assert fault_of(forgery.program, forgery.ugraph, forgery.certificate)


def test_a_file_that_is_cut_off_is_refused():
    program, ugraph, certificate = cached(SPLIT)
    # Nothing is called here: what would be read of calls may be missing.
    for key in (k for k in certificate if k != "calls"):
        kept = {k: v for k, v in certificate.items() if k != key}
        assert fault_of(program, ugraph, kept), key
    for document in (None, [], 0, "certificate", {"outputs": []}):
        assert fault_of(program, ugraph, document)  # type: ignore[arg-type]
    text = json.dumps(ugraph)
    for key in ("kernels", "program", "intermediates", "nodes", "sections", "grid"):
        assert fault_of(program, json.loads(text.replace(f'"{key}"', '"other"')), certificate), key


def lines_of_code(text: str) -> int:
    """Lines that are not blank, and neither comments nor docstrings."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    prose = [node.body[0] for node in found if node.body and ast.get_docstring(node)]
    inside = {n for e in prose for n in range(e.lineno, (e.end_lineno or e.lineno) + 1)}
    lines = enumerate(text.splitlines(), 1)
    return sum(n not in inside and line.strip()[:1] not in ("", "#") for n, line in lines)


def test_the_checker_is_small():
    """500 lines of code are allowed. With comments, docstrings and blank lines it must not grow."""
    texts = [m.read_text("utf-8") for m in sorted(Path(checker.__file__).parent.glob("*.py"))]
    assert sum(len(text.splitlines()) for text in texts) <= 610
    assert sum(lines_of_code(text) for text in texts) <= 441
