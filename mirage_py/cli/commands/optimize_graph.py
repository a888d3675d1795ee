"""``mirage-py optimize-graph``: the operator graph of a model, rewritten as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirage_py.cli.input.options import (
    Seconds,
    inputs_option,
    json_option,
    seed_option,
    target_option,
)
from mirage_py.cli.shell.screen import Screen, stdout_to_stderr

if TYPE_CHECKING:
    from mirage_py.dynamo.networks.exported_graph import OptimizedGraph

DIFFERENT = 4


@click.command("optimize-graph", short_help="Rewrite a model's operator graph as a whole.")
@click.argument("model", metavar="MODEL")
@target_option()
@click.option(
    "--effort",
    type=click.Choice(["auto", "full"]),
    default="auto",
    show_default=True,
    help="Bounds of the search; full measures operators if there is a GPU.",
)
@click.option(
    "--freeze/--no-freeze",
    default=None,
    help="Treat weights as constant.  [default: yes for ONNX files]",
)
@click.option(
    "--budget", type=Seconds(), metavar="SECONDS", help="Time of the search and its checks."
)
@seed_option
@inputs_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Save the result here, as torch.export.save does.",
)
@json_option
@click.pass_obj
def optimize_graph(
    screen: Screen,
    model: str,
    target: str,
    effort: str,
    freeze: bool | None,
    budget: float | None,
    seed: int,
    inputs: tuple[str, ...],
    output: Path | None,
    json: bool,
) -> int:
    """Rewrite a model's operator graph as a whole, by substitutions, and verify it.

    MODEL is an ONNX file, or module.py:name of a function or torch.nn.Module, with an --input for
    each argument (or with a function example_inputs() in the module).

    \b
    mirage-py optimize-graph resnet.onnx
    mirage-py optimize-graph model.py:block --input x=bf16[16,4096] --freeze
    """  # noqa: D301  \b is click's mark for lines that stay as they are
    with stdout_to_stderr(), screen.progress() as progress:
        from mirage_py.cli.input.exported_model import exported_model

        progress("exporting")
        program = exported_model(model, inputs)
        from mirage_py.dynamo.networks import exported_graph

        progress("searching and verifying")
        is_onnx = model.endswith(".onnx")
        found = exported_graph.optimize_graph(
            program,
            target=target.lower(),
            effort=effort,
            freeze=is_onnx if freeze is None else freeze,
            budget=budget,
            seed=seed,
        )
        if output is not None:
            progress("saving")
            exported_graph.save_graph(found, program, output)
    if json:
        screen.document(_document(found))
    else:
        screen.out(str(found))
    wrong = found.evidence is not None and not found.evidence.equal
    return DIFFERENT if wrong else 0


def _document(found: OptimizedGraph) -> dict[str, Any]:
    result, evidence = found.result, found.evidence
    document: dict[str, Any] = {"changed": found.is_changed, "verdict": found.verdict}
    if result is not None:
        document |= {
            "before_us": result.before_us,
            "after_us": result.after_us,
            "steps": [
                {"rule": s.rule, "times": s.times, "why": s.why, "proof": s.proof}
                for s in result.steps
            ],
            "bound": result.bound,
            "extraction": result.extraction,
        }
    if evidence is not None:
        document["verified"] = {
            "equal": evidence.equal,
            "parts": evidence.parts,
            "tested": evidence.tested,
            "ran": evidence.ran,
            "float_error": evidence.float_error,
            "skipped": list(evidence.skipped),
        }
    return document
