"""Both stored forms read back to equal objects, and refuse anything else with an error of ours."""

from __future__ import annotations

import json

import graph_strategies as graphs
import samples
from hypothesis import given
from hypothesis import strategies as st

from mirage_py.errors import FormatError
from mirage_py.ugraph.checks.validate import validate_program, validate_ugraph
from mirage_py.ugraph.text.index_text import read_index, read_predicate
from mirage_py.ugraph.text.json_form import dump_text, from_json, load_text, to_json
from mirage_py.ugraph.text.text_form import (
    format_program,
    format_ugraph,
    parse_index,
    parse_predicate,
    parse_program,
    parse_ugraph,
)


@given(graphs.raw_expressions())
def test_index_expressions(expr):
    assert parse_index(str(expr)) == expr
    assert read_index(str(expr)) == expr


@given(graphs.raw_predicates())
def test_predicates(predicate):
    assert parse_predicate(str(predicate)) == predicate
    assert read_predicate(str(predicate)) == predicate


@given(graphs.programs())
def test_programs(program):
    validate_program(program)
    assert parse_program(format_program(program)) == program
    assert from_json(json.loads(json.dumps(to_json(program)))) == program


@given(st.one_of(graphs.one_kernel_graphs(), graphs.odd_graphs()))
def test_ugraphs(ugraph):
    validate_ugraph(ugraph)
    assert parse_ugraph(format_ugraph(ugraph)) == ugraph
    assert load_text(dump_text(ugraph), "text") == ugraph


def read_or_refuse(read, text):
    """No other error than ours, and that says where."""
    try:
        read(text)
    except FormatError as caught:
        error = caught
    else:
        return
    assert error.where


@given(st.sampled_from(sorted(samples.TEXTS)), st.data())
def test_damaged_text_is_refused_or_read(name, data):
    text = format_ugraph(samples.ugraph(name))
    at = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 12))
    damage = data.draw(st.text('%[](){}=,:?+-*/<&|~ \n09azXY#"\\', max_size=6))
    read_or_refuse(parse_ugraph, text[:at] + damage + text[at + length :])


def nodes_of(value, path=()):
    """Paths to all values inside JSON data."""
    yield path
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, inner in items:
        yield from nodes_of(inner, (*path, key))


@given(st.sampled_from(sorted(samples.TEXTS)), st.data())
def test_damaged_json_is_refused_or_read(name, data):
    tree = to_json(samples.ugraph(name))
    path = data.draw(st.sampled_from([p for p in nodes_of(tree) if p]))
    junk = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.text(max_size=5),
        st.just([]),
        st.just({}),
        st.just([1, "x"]),
    )
    holder = tree
    for key in path[:-1]:
        holder = holder[key]
    if data.draw(st.booleans()):
        holder[path[-1]] = data.draw(junk)
    else:
        del holder[path[-1]]
    read_or_refuse(from_json, tree)


@given(st.text(max_size=40))
def test_any_text_is_refused(text):
    for read in (lambda t: load_text(t, "t"), parse_program, parse_ugraph):
        read_or_refuse(read, text)
