"""Launch configurations: their texts, what is refused, and the plans that are stored."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from mirage_py.errors import FormatError, InputError
from mirage_py.ugraph.ir.launch_choices import (
    Arch,
    BlockOrder,
    MatmulInstruction,
    NextStart,
    OverlapMode,
    Precision,
    RescalingMode,
    StoreMode,
)
from mirage_py.ugraph.ir.launch_config import LaunchConfig, launch_options
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.json_form import dump_text, from_json, load_text, to_json

ROOT = Path(__file__).parents[4]
# Every option at a value that is not its default, as stored plans say it.
TEXTS = {
    "arch": ("sm_90a", "arch", Arch.SM_90A),
    "axes": ("reversed", "reversed_axes", True),
    "blocks": ("132", "persistent_blocks", 132),
    "codes": ("excess", "excess_codes", True),
    "constants": ("W,U", "constants", ("W", "U")),
    "copies": ("descriptors", "descriptors", True),
    "joins": ("off", "concatenated_n", False),
    "layouts": ("naive", "chosen_layouts", False),
    "memory": ("off", "memory_reuse", False),
    "next": ("stores", "next_start", NextStart.STORES),
    "order": ("longest", "block_order", BlockOrder.LONGEST),
    "overlap": ("across", "overlap", OverlapMode.ACROSS),
    "precision": ("tf32", "precision", Precision.TF32),
    "producer": ("warps", "producer_warps", True),
    "products": ("mma", "matmul", MatmulInstruction.MMA),
    "rescaling": ("lazy", "rescaling", RescalingMode.LAZY),
    "schedule": ("off", "barrier_schedule", False),
    "sizes": ("s,t", "run_time_sizes", ("s", "t")),
    "start": ("early", "early_start", True),
    "stores": ("rows", "stores", StoreMode.ROWS),
    "sums": ("producer", "producer_sums", True),
    "threads": ("off", "thread_graphs", False),
    "turns": ("on", "ping_pong", True),
    "variants": ("one", "one_variant", True),
    "warps": ("1x4x1", "warp_grid", (1, 4, 1)),
    "evict:K": ("evict_first", "evict_first", ("K",)),
}


def plan_of(config: LaunchConfig) -> Plan:
    """A stored plan whose kernels are launched so."""
    found = from_json(json.loads((ROOT / "tests/data/cuda_plans/lora_cluster.json").read_text()))
    assert isinstance(found, Plan)
    return replace(found, options=(config,) * len(found.options))


def test_every_option_is_tried_here() -> None:
    named = sorted(name for _, name, _ in TEXTS.values())
    assert named == sorted(launch_options())
    assert {*named, "num_warps", "num_stages"} == {f.name for f in fields(LaunchConfig)}


@pytest.mark.parametrize("key", TEXTS)
def test_a_text_is_a_field_and_the_field_the_text(key: str) -> None:
    text, name, value = TEXTS[key]
    config = LaunchConfig(**{name: value})
    assert config.flags == ((key, text),)
    assert LaunchConfig.from_flags(4, (), [(key, text)]) == config
    assert LaunchConfig().with_flag(key, text) == config != LaunchConfig()
    assert config.with_flag(key, "") == LaunchConfig()
    assert load_text(dump_text(plan_of(config)), "plan").options[0] == config


def test_all_at_once_are_sorted() -> None:
    flags = tuple(sorted((key, text) for key, (text, _, _) in TEXTS.items()))
    config = LaunchConfig(8, (3, 2), **{name: value for _, name, value in TEXTS.values()})
    assert config.flags == flags
    assert LaunchConfig.from_flags(8, (3, 2), reversed(flags)) == config
    assert LaunchConfig().flags == ()


@pytest.mark.parametrize(
    ("key", "text"),
    [("arch", "sm_80"), ("precision", "ieee"), ("products", "wgmma")],
)
def test_a_default_that_is_said_stays_said(key: str, text: str) -> None:
    assert LaunchConfig().with_flag(key, text).flags == ((key, text),)


@pytest.mark.parametrize("key", ["overlaps", "evict", "evict:", "num_warps", "", "TURNS"])
def test_an_unknown_key_is_refused(key: str) -> None:
    with pytest.raises(InputError, match=f"unknown launch option '{key}'") as caught:
        LaunchConfig.from_flags(4, (), [(key, "on")])
    assert "overlap" in caught.value.repair
    assert ("did you mean 'overlap'" in caught.value.repair) == (key == "overlaps")
    with pytest.raises(InputError, match="unknown launch option"):
        LaunchConfig().with_flag(key, "")


WRONG = [
    *((key, "") for key in TEXTS),
    *((key, "perhaps") for key in TEXTS if key not in ("constants", "sizes")),
    ("arch", "sm_70"), ("axes", "True"), ("joins", "on"), ("memory", "on"), ("blocks", "0"),
    ("blocks", "007"), ("blocks", "-1"), ("blocks", "\u0663"), ("warps", "3x1x1"),
    ("warps", "1x4"), ("warps", "0x1x1"), ("sizes", "s,s"), ("sizes", "s,"), ("turns", "off"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "text"), WRONG)
def test_a_text_that_is_no_value_is_refused(key: str, text: str) -> None:
    with pytest.raises(InputError, match=f"cannot be '{text}'") as caught:
        LaunchConfig.from_flags(4, (), [(key, text)])
    assert caught.value.repair.startswith("use ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("overlap", "on"), ("overlap", True), ("producer_warps", 1), ("producer_warps", "warps"),
        ("concatenated_n", 0), ("concatenated_n", 1), ("persistent_blocks", False),
        ("persistent_blocks", -1), ("persistent_blocks", 1.0),
        ("persistent_blocks", True), ("warp_grid", (3, 1, 1)), ("warp_grid", [1, 4, 1]),
        ("evict_first", "K"), ("evict_first", ("K", "K")), ("run_time_sizes", ("s,t",)),
        ("arch", OverlapMode.ON), ("num_warps", 0), ("num_warps", True), ("num_stages", (-1,)),
        ("num_stages", ("3",)), ("persistent_blocks", None),
    ],
)  # fmt: skip
def test_a_field_has_values_of_its_type_alone(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"'{name}' cannot be"):
        replace(LaunchConfig(), **{name: value})


@pytest.mark.parametrize("key", ["turns", "evict:K"])
def test_a_key_given_twice_is_refused(key: str) -> None:
    flag = (key, TEXTS[key][0])
    with pytest.raises(InputError, match=f"'{key}' is given twice"):
        LaunchConfig.from_flags(4, (), [flag, flag])


def test_a_tensor_may_be_called_as_an_option() -> None:
    flags = (("arch", "sm_90a"), ("evict:arch", "evict_first"))
    assert LaunchConfig.from_flags(4, (), flags[::-1]).flags == flags


@pytest.mark.parametrize(
    ("flag", "what"),
    [
        (["warp_specialize", "1"], "unknown launch option 'warp_specialize'"),
        (["overlap", "off"], "'overlap' cannot be 'off'"),
        (["evict:K", "evict_last"], "'evict:K' cannot be 'evict_last'"),
    ],
)
def test_a_stored_plan_is_held_to_it_too(flag: list[str], what: str) -> None:
    document = to_json(plan_of(LaunchConfig()))
    document["options"][0]["flags"] = [flag]
    with pytest.raises(FormatError, match=what) as caught:
        load_text(json.dumps(document), "pasted")
    assert caught.value.where.startswith("pasted.options[0].flags")
    assert "use " in caught.value.repair


# -- committed plans ------------------------------------------------------------------------------

MEASURED = ("h200-measurements.jsonl.gz", "h200-measurements-held-out.jsonl.gz")
# One of so many measured plans is read here; together the two files have 16,346.
EVERY = 40


def documents() -> Iterator[object]:
    """The stored plans of the tests, and a sample of those that were measured."""
    for path in sorted((ROOT / "tests/data").rglob("*.json")):
        yield from plans_in(json.loads(path.read_text()))
    for name in MEASURED:
        with gzip.open(ROOT / "benchmarks/results" / name, "rt") as lines:
            for number, line in enumerate(lines):
                if number % EVERY == 0:
                    yield json.loads(line)["plan"]


def plans_in(data: object) -> Iterator[object]:
    if isinstance(data, dict) and data.get("kind") == "plan":
        yield data
    elif isinstance(data, dict | list):
        for value in data.values() if isinstance(data, dict) else data:
            yield from plans_in(value)


def test_committed_plans_are_read_and_written_as_they_are() -> None:
    count = 0
    keys: dict[str, None] = {}
    for document in documents():
        found = from_json(document)
        assert isinstance(found, Plan)
        assert json.dumps(to_json(found), sort_keys=True) == json.dumps(document, sort_keys=True)
        flags = [flag for options in found.options for flag in options.flags]
        keys.update(dict.fromkeys(key.partition(":")[0] for key, _ in flags))
        count += 1
    assert count == 414
    assert {"arch", "evict", "overlap", "producer", "sums", "turns"} <= keys.keys()


def test_flags_of_committed_result_files_are_known() -> None:
    """Result files have the options of a plan beside its text, as an object."""
    count = 0
    for path in sorted((ROOT / "benchmarks/results").glob("*.json")):
        for flags in flags_in(json.loads(path.read_text())):
            assert dict(LaunchConfig.from_flags(4, (), flags.items()).flags) == flags
            count += 1
    assert count == 150


def flags_in(data: object) -> Iterator[dict[str, str]]:
    if isinstance(data, dict) and isinstance(data.get("flags"), dict) and "num_stages" in data:
        yield data["flags"]
    if isinstance(data, dict | list):
        for value in data.values() if isinstance(data, dict) else data:
            yield from flags_in(value)
