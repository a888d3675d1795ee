"""``mirage-py report``: a result as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from mirage_py.cli.shell.screen import Screen


@click.command(short_help="Write a result as one HTML file to pass around.")
@click.argument("subject", metavar="ARTIFACT", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The report.  [default: ./NAME.html]",
)
@click.option("--only", metavar="NAME", default="", help="Only these rows of a benchmark file.")
@click.option("--pack", is_flag=True, help="Write a JSON file to make a report from later.")
@click.pass_obj
def report(screen: Screen, subject: Path, output: Path | None, only: str, pack: bool) -> int:
    """Write a result as one HTML file: evidence, pictures, code, and how to reproduce it.

    ARTIFACT is a folder that `superoptimize -o` wrote, a packed artifact, or a result file of the
    benchmarks. The file loads nothing, opens from disk, and needs no GPU to be made.

    \b
    mirage-py report attention.mirage -o attention.html
    mirage-py report benchmarks/results/h200-suite.json -o suite.html
    """  # noqa: D301  \b is click's mark for lines that stay as they are
    from mirage_py.report.packed import packed
    from mirage_py.report.write import write_file, write_report
    from mirage_py.runtime.store.artifact import load_artifact

    path = output or Path(f"{only or subject.stem}{'.json' if pack else '.html'}")
    if pack:
        write_file(path, packed(load_artifact(subject)))
    else:
        write_report(subject, path, only=only)
    screen.out(str(path))
    return 0
