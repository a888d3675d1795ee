"""``mirage-py calibrate``: a ranker of plans, learned from what was tuned on this machine."""

from __future__ import annotations

import click

from mirage_py.cli.commands.bench import suite_code
from mirage_py.cli.shell.screen import Screen, stdout_to_stderr
from mirage_py.errors import InputError
from mirage_py.targets import ALL_TARGETS
from mirage_py.targets import target as target_named

# Of fewer programs a ranker learns those programs.
_LEAST = 5


@click.command(short_help="Learn from what was tuned here in which order to try plans.")
@click.option(
    "--target",
    type=click.Choice([t.name for t in ALL_TARGETS]),
    help="Whose measurements.  [default: this machine's GPU]",
)
@click.pass_obj
def calibrate(screen: Screen, target: str | None) -> None:
    """Learn from what was tuned here in which order to try plans.

    Every tuning on a GPU leaves the times of its plans in the cache. What is learned from them
    comes before what the package brings. Needs LightGBM: pip install -e '.[bench]'.
    """
    from mirage_py.runtime.env.environment import detect_target
    from mirage_py.runtime.tune.measurements import measurements_of, ranker_of

    chosen = target_named(target) if target else detect_target()
    if chosen is None:
        raise InputError("there is no NVIDIA GPU here", repair="say whose measurements: --target")
    learn = suite_code("benchmarks.calibration.learn")
    name, path = chosen.name, measurements_of(chosen.name)
    with stdout_to_stderr():
        groups = learn.groups_of([learn.read(path)] if path.exists() else [], chosen)
        if len(groups) < _LEAST:
            raise InputError(
                f"of {len(groups)} programs there are measurements on {name}",
                why=f"a ranker of fewer than {_LEAST} would know those alone",
                repair="tune more: mirage-py superoptimize SPEC, or mirage-py bench",
            )
        command = f"mirage-py calibrate --target {name}"
        rankings = learn.held_out_rankings(groups)
        learn.write_weights(learn.train(groups), ranker_of(name), command)
    screen.out(learn.report(rankings))
    screen.out(f"learned from {sum(len(g.us) for g in groups)} plans: {ranker_of(name)}")
