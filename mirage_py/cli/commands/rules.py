"""``mirage-py rules``: substitutions of operator graphs: found, shown, replayed, handed on."""

from __future__ import annotations

from pathlib import Path

import click

from mirage_py.cli.shell.screen import Screen, stdout_to_stderr

NOT_PROVED = 4
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.group(short_help="Substitutions of operator graphs: find, show, verify, export.")
def rules() -> None:
    """Rules that replace small operator graphs by equal ones: found, and proved for all sizes."""


@rules.command(short_help="Enumerate graphs, pair equal ones, prove them.")
@click.option("-o", "--output", type=_FOLDER, help="Folder for rules.txt and its certificates.")
@click.option("--universe", "names", multiple=True, help="Only these sets of operators.")
@click.option("--seed", default=0, show_default=True, help="Of the random elements.")
@click.pass_obj
def generate(screen: Screen, output: Path | None, names: tuple[str, ...], seed: int) -> int:
    """Enumerate all small graphs and keep the rules that the others do not imply.

    Without an output folder the rules are printed.
    """
    from mirage_py.axioms.substitutions.database import write
    from mirage_py.search.substitutions.generate import generate as found_by
    from mirage_py.search.substitutions.generate import without_implied
    from mirage_py.search.substitutions.universe import UNIVERSES

    unknown = [name for name in names if all(u.name != name for u in UNIVERSES)]
    if unknown:
        known = ", ".join(u.name for u in UNIVERSES)
        raise click.BadParameter(f"no universe {unknown[0]}; there are {known}")
    with stdout_to_stderr(), screen.progress() as progress:
        chosen = [u for u in UNIVERSES if u.name in names] or UNIVERSES
        found = found_by(chosen, seed=seed, progress=progress)
        kept = without_implied(found)
    if output is None:
        screen.out("\n\n".join(map(str, kept)))
    else:
        write(kept, found.certificates, output)
    proved = sum(rule.name in found.certificates for rule in kept)
    click.echo(f"{len(kept)} rules, {proved} of them proved for all sizes", err=True)
    return 0


@rules.command(short_help="Print rules as two small graphs.")
@click.argument("names", nargs=-1)
@click.option("--folder", type=_FOLDER, help="A database other than the one that is shipped.")
@click.pass_obj
def show(screen: Screen, names: tuple[str, ...], folder: Path | None) -> int:
    """Print all rules, or those of some numbers, or those that contain an operator."""
    from mirage_py.axioms.substitutions.database import FOLDER, all_rules
    from mirage_py.axioms.substitutions.expression import nodes

    known = all_rules(folder or FOLDER)
    wanted = [
        rule
        for rule in known
        if not names
        or rule.name in names
        or any(x.op in names for x in nodes(*rule.left, *rule.right))
    ]
    if not wanted:
        raise click.BadParameter(f"no rule {', '.join(names)}")
    screen.out("\n\n".join(map(str, wanted)))
    return 0


@rules.command(short_help="Replay the proofs of all rules.")
@click.option("--folder", type=_FOLDER, help="A database other than the one that is shipped.")
@click.pass_obj
def verify(screen: Screen, folder: Path | None) -> int:
    """Replay the certificate of each proved rule, and run the field test on all rules.

    Exits with 4 if one does not hold.
    """
    from mirage_py.axioms.substitutions.database import FOLDER, all_rules, certificates, fault_of
    from mirage_py.axioms.substitutions.rule import PROVED
    from mirage_py.search.substitutions.instances import differs

    known, proofs = all_rules(folder or FOLDER), certificates(folder or FOLDER)
    wrong = 0
    for rule in known:
        fault = fault_of(rule, proofs) if rule.status == PROVED else ""
        if not fault and differs(rule.left, rule.right):
            fault = "its sides differ at random sizes"
        if fault:
            wrong += 1
            screen.out(f"rule {rule.name}: {fault}")
    proved = sum(rule.status == PROVED for rule in known)
    screen.out(f"{len(known)} rules, {proved} proved for all sizes, {wrong} refused")
    return NOT_PROVED if wrong else 0


@rules.command(short_help="Write the rules as JSON.")
@click.option("--folder", type=_FOLDER, help="A database other than the one that is shipped.")
@click.pass_obj
def export(screen: Screen, folder: Path | None) -> int:
    """Print one JSON document: each rule's text, status, directions, weights and certificate."""
    from mirage_py.axioms.substitutions.database import FOLDER, all_rules, certificates

    proofs = certificates(folder or FOLDER)
    rows = [
        {
            "name": rule.name,
            "status": rule.status,
            "text": str(rule),
            "forward": rule.applies(forward=True),
            "backward": rule.applies(forward=False),
            "weights": list(rule.weights),
            "certificate": proofs.get(rule.name),
        }
        for rule in all_rules(folder or FOLDER)
    ]
    screen.document({"schema": 1, "rules": rows})
    return 0
