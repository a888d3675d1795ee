"""``mirage-py`` itself: the options before the command, and where each command lives."""

from __future__ import annotations

import difflib
import importlib

import click

from mirage_py import __version__
from mirage_py.cli.shell.screen import Screen

# In the order of a first session. A command's file has the command's name, and so has its function,
# with "_" for "-".
COMMANDS = (
    "superoptimize",
    "optimize-graph",
    "verify",
    "show",
    "explain",
    "rerun",
    "report",
    "bench",
    "farm",
    "calibrate",
    "cache",
    "rules",
    "doctor",
)


class LazyGroup(click.Group):
    """A group that imports a command's file when somebody asks for the command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            if not ctx.resilient_parsing:
                near = difflib.get_close_matches(cmd_name, COMMANDS, 1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}."
                raise click.UsageError(f"No such command '{cmd_name}': {hint}", ctx)
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(f"mirage_py.cli.commands.{name}"), name)
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="mirage-py", message="%(prog)s %(version)s")
@click.option("-v", "--verbose", is_flag=True, help="Print stages, dropped candidates, tracebacks.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="Color of the output; auto heeds NO_COLOR and FORCE_COLOR.  [default: auto]",
)
@click.pass_context
def mirage_py(ctx: click.Context, verbose: bool, quiet: bool, color: str) -> None:
    """A superoptimizer for tensor programs: math in, verified and fast GPU kernels out.

    Results go to stdout, progress and errors to stderr.

    \b
    Exit codes:
      0  done                          4  verification failed
      1  internal error                5  unsupported operator
      2  bad usage or bad input        6  no candidate compiled or launched
      3  no improvement (only with     130  interrupted
         --require-speedup)
    """  # noqa: D301  \b is click's mark for lines that stay as they are
    ctx.obj = Screen(color=color, verbose=verbose, quiet=quiet)
