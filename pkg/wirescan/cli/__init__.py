"""The command `wirescan`: one file a verb, loaded when it is used.

Data goes to standard output, messages to standard error. Exit codes: 0 good, 1 damage was met, 2 it cannot be
done (no such file, wrong usage), 130 interrupted, 141 the reader of the output went away.
"""
from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import click

from wirescan import FrameError
from wirescan.cli.common import CLOSED_PIPE, INTERRUPTED, Damage, Failure, problem
from wirescan.cli.output import name_of, say

VERBS = ("formats", "scan", "stat", "verify", "index", "convert", "fetch", "receive", "send")

HELP = """Framed bytes as tables: Kafka log segments and what else `wirescan formats` lists.

\b
Examples:
  wirescan stat    /var/lib/kafka/orders-0           what is in it
  wirescan scan    orders-0/*.log --limit 20         the records, as text
  wirescan scan    orders-0 --json | jq .key         ... as JSON lines
  wirescan verify  orders-0                          is anything damaged?
  wirescan index   rpc --format thrift.messages      notes where frames begin
  wirescan convert orders-0 orders.parquet           to Parquet
  wirescan convert orders-0 out --engine spark       ... with Spark
  wirescan fetch   127.0.0.1:9092 orders --to copy   a topic of a live cluster
  wirescan receive lumberjack --to events            what Beats and Logstash send
  wirescan send    lumberjack 127.0.0.1:5044 events  ... and files to a receiver

A PATH is a file, a directory, a glob, a URL (s3://...) or - for standard input.

Exit codes: 0 good, 1 damage was met, 2 cannot be done, 130 interrupted.
"""


@contextmanager
def answered() -> Iterator[None]:
    """Gives every error its line and its exit code, before click sees it, which lets some through as tracebacks."""
    try:
        try:
            yield
            sys.stdout.flush()
        except BrokenPipeError:
            drop_output()
            raise click.exceptions.Exit(CLOSED_PIPE) from None
        except FrameError as error:
            raise Damage(name_of(str(error))) from None
        except (OSError, EOFError, ValueError, MemoryError, ImportError) as error:
            raise Failure(problem(error)) from None
    except KeyboardInterrupt:
        say("\nwirescan: interrupted")
        raise click.exceptions.Exit(INTERRUPTED) from None
    except click.ClickException as error:
        drop_output()
        with suppress(OSError):                 # standard error may be full
            error.show()
        raise click.exceptions.Exit(error.exit_code) from None


def drop_output() -> None:
    """Where what is left in the buffer has nowhere to go, drop it: Python would complain about it at its exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fill_streams() -> None:
    """Open what the caller closed of the standard streams, so that no file takes its number: to read from or to write
    to it is an error, as it would be without; messages are lost."""
    if sys.stdin is None:
        sys.stdin = open(os.open(os.devnull, os.O_WRONLY))
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = open(os.open(os.devnull, os.O_WRONLY), "w")


class Verbs(click.Group):
    """Loads a verb when it is asked for, and answers every error."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        fill_streams()
        return super().main(*arguments, **options)

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with answered():                        # --help and --version print here
            return super().make_context(*arguments, **options)

    def list_commands(self, context: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        verb: click.Command = getattr(import_module(f"wirescan.cli.{name}"), name)
        return verb

    def invoke(self, context: click.Context) -> Any:
        with answered():
            return super().invoke(context)


def print_versions(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    """Print the versions and exit, if `--version` is given."""
    if not wanted or context.resilient_parsing:
        return
    from wirescan.cli.versions import version_lines

    for line in version_lines():
        click.echo(line)
    context.exit()


@click.group(cls=Verbs, help=HELP,
             context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", "-V", is_flag=True, expose_value=False, is_eager=True, callback=print_versions,
              help="Show the versions of wirescan and what it uses, and exit.")
def main() -> None:
    pass
