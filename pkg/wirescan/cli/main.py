"""`main`, the command `wirescan`. Each verb is a module of `verbs/`, imported when it is used.

Data goes to standard output, messages go to standard error. Exit codes: 0 good, 1 damage was found,
2 the command cannot be done (no such file, wrong usage), 130 interrupted, 141 the reader of the
output closed it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from wirescan.frames.optional_packages import name_package

with name_package("click", "the command wirescan", "'wirescan[cli]'"):
    import click
    from click.shell_completion import add_completion_class

from wirescan import FrameError
from wirescan.cli.completion import BashWords, FishWords, ZshWords
from wirescan.cli.exit_codes import CLOSED_PIPE, INTERRUPTED, Damage, Failure, describe_error
from wirescan.cli.foreign_files import CompressionError
from wirescan.cli.output import print_message
from wirescan.frames.similar_names import hint_at_names

VERBS = (
    "formats",
    "scan",
    "stat",
    "verify",
    "report",
    "detect",
    "exchanges",
    "topics",
    "diff",
    "cut",
    "salvage",
    "index",
    "convert",
    "metadata",
    "fetch",
    "produce",
    "receive",
    "send",
    "manual",
)

# Verb -> its module in `verbs`, where the name of the verb is that of another module.
MODULES = {"produce": "produce_records"}

# Package -> the extra of wirescan that installs it.
EXTRAS = {
    "pyarrow": "cli",
    "rich": "cli",
    "pyspark": "spark",
    "pandas": "spark",
    "scramp": "sasl",
    "nats": "nats",
    "thriftpy2": "thrift",
    "google": "protobuf",
}

HELP = """Read framed bytes as tables: Kafka log segments and the other formats that
`wirescan formats` lists.

\b
Examples:
  wirescan stat    /var/lib/kafka/orders-0           what is in it
  wirescan scan    orders-0/*.log --limit 20         the records, as text
  wirescan scan    orders-0 --json | jq .key         ... as JSON lines
  wirescan verify  orders-0                          is anything damaged?
  wirescan detect  capture.bin                       which format does it have?
  wirescan exchanges rpc.pcap                        requests, responses and latencies
  wirescan report  orders-0 -o report.html           one page of counts and damage
  wirescan index   rpc                               note where frames begin
  wirescan convert orders-0 orders.parquet           to Parquet
  wirescan convert orders-0 out --engine spark       ... with Spark
  wirescan metadata 127.0.0.1:9092                   brokers and topics of a live cluster
  wirescan fetch   127.0.0.1:9092 orders --to copy   a topic of a live cluster
  wirescan produce 127.0.0.1:9092 orders orders-0    write segments or lines to a topic
  wirescan salvage orders-0 --to repaired            the intact batches of a damaged log
  wirescan cut     orders-0 --offset 5:90 -o a.log   a part, as a valid segment
  wirescan diff    orders-0 backup/orders-0          compare two copies by offset
  wirescan topics  /var/lib/kafka                    a broker's directory at a glance
  wirescan receive lumberjack --to events            what Beats and Logstash send
  wirescan send    lumberjack 127.0.0.1:5044 events  ... and files to a receiver

A PATH is a file, a directory, a glob, a URL (s3://...) or - for standard input.

Exit codes: 0 good, 1 damage was found, 2 cannot be done, 130 interrupted.
"""


@contextmanager
def report_errors() -> Iterator[None]:
    """Print every error as one line and exit with its code.

    click itself handles only some errors; the others would end in a traceback.
    """
    try:
        try:
            yield
            sys.stdout.flush()
        except BrokenPipeError:
            drop_output()
            raise click.exceptions.Exit(CLOSED_PIPE) from None
        except (FrameError, CompressionError) as error:
            raise Damage(str(error)) from None
        except ModuleNotFoundError as error:
            raise Failure(describe_missing_package(error)) from None
        except (OSError, EOFError, ValueError, MemoryError, ImportError) as error:
            raise Failure(describe_error(error)) from None
    except KeyboardInterrupt:
        click.echo(err=True)  # ends the line of the terminal's ^C
        print_message("wirescan: interrupted")
        raise click.exceptions.Exit(INTERRUPTED) from None
    except click.ClickException as error:
        drop_output()
        with suppress(OSError):  # standard error may be full
            error.show()
        raise click.exceptions.Exit(error.exit_code) from None


def describe_missing_package(error: ModuleNotFoundError) -> str:
    """Return which package is not installed, and the extra that installs it."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    if extra is None:
        return describe_error(error)
    return f"{package} is not installed: pip install 'wirescan[{extra}]'"


def drop_output() -> None:
    """Discard buffered output that cannot be written, so that Python does not report it at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def replace_closed_streams() -> None:
    """Open a stream for each standard stream that the caller closed.

    Otherwise the next file would get its number. As with a closed stream, reading or writing data
    is an error; messages are lost.
    """
    # Standard streams stay open until the process ends.
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


class Verbs(click.Group):
    """The group of all verbs: imports a verb when it is used, and reports every error."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the command."""
        replace_closed_streams()
        for shell in (BashWords, FishWords, ZshWords):
            add_completion_class(shell)
        return super().main(*arguments, **options)

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """Parse the arguments; --help and --version print here."""
        with report_errors():
            return super().make_context(*arguments, **options)

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of all verbs."""
        return list(VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import a verb and return its command; None for an unknown name."""
        if name not in VERBS:
            return None
        module = import_module(f"wirescan.cli.verbs.{MODULES.get(name, name)}")
        verb: click.Command = getattr(module, name)
        return verb

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb that the first argument names, and the other arguments."""
        name = args[0]
        is_unknown = name not in VERBS and not name.startswith("-")
        if is_unknown and not context.resilient_parsing:  # a shell completes the line
            context.fail(f"there is no command {name!r}{hint_at_names(name, VERBS)}")
        return super().resolve_command(context, args)

    def invoke(self, context: click.Context) -> Any:
        """Run the verb."""
        with report_errors():
            return super().invoke(context)


def print_versions(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Print the versions and exit, if `--version` is given."""
    if not value or context.resilient_parsing:
        return
    from wirescan.cli.versions import make_version_lines

    for line in make_version_lines():
        click.echo(line)
    context.exit()


@click.group(
    cls=Verbs,
    help=HELP,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.option(
    "--version",
    "-V",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=print_versions,
    help="Show the versions of wirescan and of the packages it uses, and exit.",
)
def main() -> None:
    """Run the command `wirescan`."""
