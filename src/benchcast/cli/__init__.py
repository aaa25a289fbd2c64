"""The command line: parse, call, print. Heavy imports wait inside the commands, so `--help` is instant."""

from __future__ import annotations

import io
import os
import sys

import click

from benchcast import __version__
from benchcast.cli.arguments import Sections
from benchcast.cli.collect import collect, features
from benchcast.cli.compare import compare
from benchcast.cli.demo import demo
from benchcast.cli.explain import explain
from benchcast.cli.extrapolate import extrapolate
from benchcast.cli.fit import fit
from benchcast.cli.gate import gate
from benchcast.cli.importing import import_group, remove, rename
from benchcast.cli.init import datasets, init
from benchcast.cli.output import say
from benchcast.cli.predict import predict
from benchcast.cli.proxies import proxies
from benchcast.cli.report import report
from benchcast.cli.select import contamination, select
from benchcast.cli.status import bpb, status
from benchcast.cli.verify import verify
from benchcast.cli.watch import watch
from benchcast.errors import BenchcastError
from benchcast.messages import visible


@click.group(cls=Sections, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__)
def cli() -> None:
    """Forecast what a language model will score on a benchmark from its token losses.

    \b
    benchcast demo                                  see it all on the embedded study
    benchcast init study --texts texts.jsonl        start a study of your own
    benchcast status study                          what is there, and what to run next
    """


cli.add_sections(
    {
        "Start": (demo, datasets, init, status, bpb),
        "Bring in losses, scores and features": (import_group, collect, features, remove, rename),
        "Fit and compare": (fit, compare, explain, report),
        "Forecast": (predict, extrapolate, gate, watch, verify, proxies),
        "Texts": (select, contamination),
    }
)
cli.add_command(contamination, "twins")  # its name before; not listed


def main() -> None:
    """Run the command line of the package."""
    run(cli, "benchcast")


def run(group: click.Group, name: str) -> None:
    """Run a command; a user's mistake is one line and exit status 1, a bug keeps its traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for names with letters that the terminal's encoding lacks
    try:
        group.main(prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        _tell(error)
        sys.exit(1)
    except click.exceptions.Exit as leave:
        sys.exit(leave.exit_code)
    except BrokenPipeError:  # the reader went away, as in `benchcast compare … | head`
        sys.stderr.close()
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        say("stopped; run the same command again to go on", err=True)
        sys.exit(130)
    except BenchcastError as error:
        say(f"error: {visible(str(error))}", err=True)
        sys.exit(1)
    except OSError as error:
        if not error.filename and isinstance(sys.stdout, io.TextIOWrapper):
            # Errors of our own files name them, so the output failed: drop it, or leaving fails on it again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        where = error.filename or "the output cannot be written"
        say(f"error: {error.strerror or error}: {visible(str(where))}", err=True)
        sys.exit(1)


def _tell(error: click.ClickException) -> None:
    """Print a mistake in the command itself on one line; for a group without a command, print its help."""
    said = error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None and said == context.get_help():
        say(said, err=True)
        return
    line = " ".join(said.split()).rstrip(".")
    where = f"; see `{context.command_path} --help`" if context is not None else ""
    say(f"error: {line[:1].lower()}{line[1:]}{where}", err=True)
