"""The ``relunorm`` command: parse, call one library function, render.

Exit codes: 0 done, 1 the check the user asked for failed, 2 bad usage or bad input, 3 undecided or
not finished within the time given, 130 interrupted (what was found is written first).
One file per command; heavy packages are imported inside them, so that ``--help`` stays light.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

import relunorm
from relunorm.cli import options
from relunorm.cli.models.compare import compare
from relunorm.cli.models.export import export
from relunorm.cli.models.info import convert, fingerprint, info
from relunorm.cli.models.normalize import normalize
from relunorm.cli.models.verify import verify
from relunorm.cli.output import EPILOGS, Command, Console, emit, examples, printable, showing
from relunorm.cli.questions.certify import certify
from relunorm.cli.questions.check import check
from relunorm.cli.questions.lipschitz import lipschitz
from relunorm.cli.questions.maximize import maximize
from relunorm.cli.questions.regions import region, regions
from relunorm.cli.questions.sensitivity import sensitivity
from relunorm.cli.report import report
from relunorm.cli.training.diagnose import diagnose, geometry
from relunorm.cli.training.dying import dying
from relunorm.cli.training.fit import fit
from relunorm.cli.training.papers import papers
from relunorm.cli.training.sweep import sweep
from relunorm.clock import Interrupts
from relunorm.errors import RelunormError, TableNote, optional_packages

app = typer.Typer(
    name="relunorm",
    help="Exact answers about ReLU networks: what they compute, what in them does nothing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"relunorm {relunorm.__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Exact answers about ReLU networks: what they compute, what in them does nothing."""


@examples(
    "relunorm warm-up",
    "relunorm warm-up --json",
)
def warm_up(json: options.Json = False) -> None:
    """Compile the search kernels now, so that no later command has to.

    They are kept beside the package, or in the user's cache (~/.cache/relunorm) where that cannot
    be written; RELUNORM_CACHE_DIR names another folder. Run it once after installing, or while
    building an image.
    """
    from relunorm.kernels import warm_up as run

    with showing("warm-up", json) as show:
        taken = run(show)
    document = {"schema": "relunorm.warm-up/1", "cpu_seconds": taken}

    def render(console: Console) -> None:
        for name, seconds in taken.items():
            console.print(f"{name}: {seconds:.1f} CPU s", markup=False)
        console.print(f"in all {sum(taken.values()):.1f} CPU s", markup=False)

    emit(document, json, render)


for _command in (
    report, info, convert, normalize, export, compare, check, certify, sensitivity, fingerprint,
    verify, regions, region, lipschitz, maximize, geometry, papers, fit, diagnose, sweep, warm_up,
):  # fmt: skip
    app.command(cls=Command, epilog=EPILOGS[_command])(_command)

app.add_typer(dying)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; the package's own errors become one paragraph on stderr."""
    with Interrupts() as interrupts:
        try:
            with optional_packages(), warnings.catch_warnings():
                warnings.simplefilter("once", TableNote)
                warnings.showwarning = partial(_note, warnings.showwarning)
                app(arguments, prog_name="relunorm")
        except (RelunormError, OSError) as error:
            typer.echo(f"relunorm: {printable(_describe(error))}", err=True)
            sys.exit(130 if interrupts.seen else 2)
        except (Exception, KeyboardInterrupt) as error:
            # an import that is interrupted may end in an error of another name
            if not interrupts.seen and not isinstance(error, KeyboardInterrupt):
                raise
            _stop_interrupted("")
        except SystemExit as stop:
            if interrupts.seen:
                lost = stop.__context__ is not None and isinstance(
                    stop.__context__.__cause__, KeyboardInterrupt
                )  # else a function caught it to keep what it had found
                _stop_interrupted("" if lost else "; what was found until then is kept")
            raise


def _note(others: Callable[..., None], message: Warning | str, *where: Any) -> None:
    """Show a note on a table as a line, without the code it stands in."""
    if isinstance(message, TableNote):
        typer.echo(f"relunorm: note: {printable(str(message))}", err=True)
    else:
        others(message, *where)


def _stop_interrupted(what: str) -> None:
    typer.echo(f"relunorm: interrupted{what}", err=True)
    sys.exit(130)


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
