"""Arguments and options that several commands share, and how errors become exit codes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from wirescan.cli.completion import complete_file, complete_list
from wirescan.cli.foreign_files import HEAD, describe_foreign_file, detect_compression
from wirescan.cli.input import is_pipe as is_pipe
from wirescan.cli.input import read_first_contents
from wirescan.cli.output import format_path, print_message
from wirescan.cli.support.format_choice import choose_format, hint_at_format
from wirescan.core.fault import Fault
from wirescan.files.file_pattern import include_left_out
from wirescan.files.source import SIDECAR, URL, expand, get_size, read_range
from wirescan.files.translated import find_translator
from wirescan.frames.escape import make_visible
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.options import Folders, FormatOption, list_format_options
from wirescan.frames.registry import (
    CAPTURE_FORMAT,
    format_of,
    formats,
    load_common_options,
    make_spec,
)
from wirescan.frames.similar_names import hint_at_names
from wirescan.frames.table import FrameTable
from wirescan.frames.value_text import format_count
from wirescan.reading.captures import choose_captured

# Exit codes of the commands.
DAMAGE = 1
FAILED = 2
INTERRUPTED = 130
CLOSED_PIPE = 141

# The defaults of --format: of verbs that read all frames, and of verbs that read outermost ones.
DEFAULT_FORMAT = "kafka.records"
DEFAULT_OUTERMOST_FORMAT = "kafka.batches"
FOUND = "wirescan.format_found"  # in `meta` of a context: the format was found in the files
SMALLEST_LIMIT = 16  # bytes
LARGEST_FRAME = (1 << 32) - 1
LARGEST_PAYLOAD = (1 << 31) - 1
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")  # codecs of Parquet
DEFAULT_COMPRESSION = COMPRESSIONS[0]
# The help of --columns and --compression, in commands that refuse them without --as parquet.
PARQUET_COLUMNS = "Parquet: write these columns, in this order. An unknown name lists all columns."
PARQUET_COMPRESSION = f"Parquet: the compression codec. The default is {DEFAULT_COMPRESSION}."
# Tails to report.
TAIL_NAMES: dict[int, str] = {Fault.SHORT: "cut frame", Fault.FILLER: "overflow filler"}
NAMED_FILES = 5  # empty files that a message names
Command = Callable[..., Any]


class Failure(click.ClickException):
    """The command cannot be done: one line on standard error, and exit code 2."""

    exit_code = FAILED

    def show(self, file: Any = None) -> None:
        """Print the message."""
        print_message(f"wirescan: {self.message}")


class Damage(Failure):
    """Damage that ends the command: one line on standard error, and exit code 1."""

    exit_code = DAMAGE


paths_argument = click.argument(
    "paths",
    nargs=-1,
    required=True,
    metavar="PATH...",
    shell_complete=complete_file,
)
check_option = click.option("--check/--no-check", default=True, help="Verify checksums, or do not.")


def columns_option(
    help: str = "Write these columns, in this order. An unknown name lists all columns.",
    list_columns: Callable[[click.Context], Sequence[str]] | None = None,
) -> Callable[[Command], Command]:
    """Return a decorator that adds --columns. `parse_names` reads the value.

    list_columns: returns the columns that the shell offers. None, the default: those of --format.
    """
    list_offered = list_columns or list_columns_of_format
    return click.option(
        "--columns",
        metavar="A,B",
        help=help,
        shell_complete=lambda context, _, incomplete: complete_list(
            list_offered(context), incomplete
        ),
    )


def compression_option(
    help: str = f"The compression codec of Parquet. The default is {DEFAULT_COMPRESSION}.",
) -> Callable[[Command], Command]:
    """Return a decorator that adds --compression.

    The option has no default, so that a command can refuse it for output that is not Parquet.
    """
    return click.option("--compression", type=click.Choice(COMPRESSIONS), help=help)


def json_option(help: str = "Print the report as one JSON object.") -> Callable[[Command], Command]:
    """Return a decorator that adds --json, whose value is `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def count_option(
    name: str,
    *,
    default: int | None,
    help: str,
    smallest: int = 1,
    largest: int | None = None,
) -> Callable[[Command], Command]:
    """Return a decorator that adds an option with a number from `smallest` to `largest`."""
    number = click.IntRange(smallest, largest)
    return click.option(name, type=number, default=default, metavar="N", help=help)


def seconds_option(
    name: str, default: float, help: str, *, smallest: float
) -> Callable[[Command], Command]:
    """Return a decorator that adds an option with a time of at least `smallest` seconds."""
    number = click.FloatRange(smallest)
    return click.option(name, type=number, default=default, metavar="SECONDS", help=help)


def max_frame_option(
    default: int = Limits().frame,
    help: str = "Maximum bytes in one frame. A longer frame is a fault.",
) -> Callable[[Command], Command]:
    """Return a decorator that adds --max-frame."""
    return count_option(
        "--max-frame", default=default, help=help, smallest=SMALLEST_LIMIT, largest=LARGEST_FRAME
    )


def max_inflated_option(default: int = Limits().inflated) -> Callable[[Command], Command]:
    """Return a decorator that adds --max-inflated."""
    return count_option(
        "--max-inflated",
        default=default,
        help="Maximum bytes in the decompressed payload of one frame.",
        smallest=SMALLEST_LIMIT,
        largest=LARGEST_PAYLOAD,
    )


def format_option(default: str) -> Callable[[Command], Command]:
    """Return a decorator that adds --format, whose value is a `Format`, to a FormatCommand.

    default: the format to read if no other format is found in the files. If it is inside others,
        such as records, the command reads what is inside the frames that are found.
    """
    return click.option(
        "--format",
        "format_name",
        cls=_FormatChoice,
        default_format=default,
        metavar="NAME",
        show_default="found in the files",
        callback=lambda context, option, name: None if name is None else _parse_format(name),
        shell_complete=complete_format,
        help="The format of the frames. `wirescan formats` lists the names, and `wirescan detect` "
        "says why a file has a format.",
    )


def complete_format(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the names of formats that begin with a text, for the shell."""
    return [
        CompletionItem(name, help=format.about)
        for name, format in formats().items()
        if name.startswith(incomplete)
    ]


def list_columns_of_format(context: click.Context) -> Sequence[str]:
    """Return the columns of --format, or of the command's default format."""
    return find_completed_format(context).all_columns


def find_completed_format(context: click.Context) -> Format:
    """Return the format of a line that is completed: --format, or the command's default format."""
    name = context.params.get("format_name")
    if isinstance(name, Format):
        return name
    option = next(each for each in context.command.params if isinstance(each, _FormatChoice))
    return formats()[option.default_format]


class _FormatChoice(click.Option):
    """The option --format, and the format to read if the files do not say which one they have."""

    def __init__(self, *arguments: Any, default_format: str, **attributes: Any):
        super().__init__(*arguments, **attributes)
        self.default_format = default_format


class FormatCommand(click.Command):
    """A command with --format, and with the options that the formats declare.

    The formats are imported when the options are asked for, and not with the verb. Without
    --format, the format is found in the files.

    Args:
        writes_columns: the command also has the options that only add columns.
        path_names: the names of the parameters with the paths of the files.
        reads_pipes: the command may read standard input.
        reads_connections: without --format, captures are read in the format of their connections.
        reads_exchanges: ... and as exchanges, if the protocol has some.
    """

    def __init__(
        self,
        *arguments: Any,
        writes_columns: bool = False,
        path_names: tuple[str, ...] = ("paths",),
        reads_pipes: bool = True,
        reads_connections: bool = False,
        reads_exchanges: bool = False,
        **attributes: Any,
    ):
        super().__init__(*arguments, **attributes)
        self._writes_columns = writes_columns
        self._path_names = path_names
        self._reads_pipes = reads_pipes
        self._reads_connections = reads_connections
        self._reads_exchanges = reads_exchanges

    def get_params(self, context: click.Context) -> list[click.Parameter]:
        """Return the parameters. The options of the formats follow --format."""
        params = super().get_params(context)
        after_format = 1 + [param.name for param in params].index("format_name")
        return [*params[:after_format], *self._declared_options, *params[after_format:]]

    def invoke(self, context: click.Context) -> Any:
        """Run the command with the format that the options describe."""
        given = {
            option: (name, context.params.pop(str(option.name)))
            for option, name in self._declared_options.items()
        }
        given = {option: value for option, value in given.items() if value[1] is not None}
        if context.params["format_name"] is None:
            names = {name for name, _ in given.values()}
            context.params["format_name"] = self._choose_format(context, names)
            context.meta[FOUND] = True
        for option, (name, value) in given.items():
            spec = make_spec(context.params["format_name"].spec, **{name: value})
            try:
                context.params["format_name"] = format_of(spec)
            except OSError as error:
                raise Failure(describe_error(error, value)) from None
            except ValueError as error:
                text = f"{error}{_hint_at_choice(context)}"
                raise click.BadParameter(text, context, param_hint=option.opts[0]) from None
        context.params["format_name"] = self._find_captures(context)
        _require_requests(context.params["format_name"])
        return super().invoke(context)

    def _find_captures(self, context: click.Context) -> Format:
        """Return the format of the files: that of captures if the first path is a capture."""
        format: Format = context.params["format_name"]
        paths = [
            path
            for path in self._list_paths(context)
            if self._reads_pipes or not (path == "-" or is_pipe(path))
        ]
        try:
            return choose_captured(format, paths, read_first_contents)
        except ValueError as error:
            raise Failure(str(error)) from None

    def _choose_format(self, context: click.Context, options: set[str]) -> Format:
        """Return the format of the files. options: the names of options that it has to accept."""
        option = next(param for param in self.params if isinstance(param, _FormatChoice))
        default = format_of(option.default_format)
        paths = self._list_paths(context)
        # A growing capture is read as packets: see `GrowingFiles`.
        is_growing = context.params.get("follow", False) and paths != ["-"]
        chosen = choose_format(
            paths,
            default,
            reads_pipes=self._reads_pipes,
            reads_connections=self._reads_connections and not is_growing,
            reads_exchanges=self._reads_exchanges,
            opens_frames=context.params.get("deep", False),
        )
        if not options:
            return chosen
        levels = [item for item in formats().values() if item.outermost is chosen.outermost]
        accepting = [
            item
            for item in (chosen, *levels)
            if options <= {accepted.name for accepted in (*item.accepts, *load_common_options())}
        ]
        return accepting[0] if accepting else chosen

    def _list_paths(self, context: click.Context) -> list[str]:
        paths: list[str] = []
        for name in self._path_names:
            value = context.params[name]
            paths += [value] if isinstance(value, str) else value
        return paths

    @cached_property
    def _declared_options(self) -> dict[click.Option, str]:
        """Options of the command, and the names of the options of a format that they set."""
        return {
            _make_option(option): option.name
            for option in list_format_options(formats().values(), load_common_options())
            if self._writes_columns or not option.adds_columns
        }


def _hint_at_choice(context: click.Context) -> str:
    """Return the end of a message about an option of a format, where a capture shows no format."""
    if FOUND not in context.meta:
        return ""
    if context.params["format_name"].outermost.name != CAPTURE_FORMAT:
        return ""
    return ". The connections of the capture show no single format: choose one with --format"


def _make_option(option: FormatOption) -> click.Option:
    """Return the option of the command line for an option that a format declares."""
    # A command may have a parameter of the same name.
    names = ["--" + option.name.replace("_", "-"), f"of_format_{option.name}"]
    if option.value_type is bool:
        return click.Option(names, is_flag=True, flag_value="true", default=None, help=option.help)
    if option.value_type is Path:
        return click.Option(names, metavar="FILE", help=option.help, shell_complete=complete_file)
    metavar = "DIRS" if option.value_type is Folders else "TEXT"
    return click.Option(names, metavar=metavar, help=option.help)


def limits_option(command: Command) -> Command:
    """Add the options that make one `Limits`, and pass it to the command as `limits`."""

    @max_frame_option()
    @max_inflated_option()
    @count_option(
        "--max-row-bytes",
        default=None,
        help="Maximum bytes of memory for the rows that are made at once. The default is 256 MiB, "
        "or 3 times the bytes that hold the frames, if that is more.",
    )
    @count_option(
        "--max-expansion",
        default=Limits().expansion,
        help="Maximum decompressed bytes per byte of a file; a row counts as 512 bytes. Small "
        "files may have N times 512 KiB. 0 means no maximum.",
        smallest=0,
    )
    @wraps(command)
    def run(
        *arguments: Any,
        max_frame: int,
        max_inflated: int,
        max_row_bytes: int | None,
        max_expansion: int,
        **options: Any,
    ) -> Any:
        limits = Limits(
            frame=max_frame,
            inflated=max_inflated,
            row_bytes=max_row_bytes,
            expansion=max_expansion or None,
        )
        return command(*arguments, limits=limits, **options)

    return run


def errors_option(default: str) -> Callable[[Command], Command]:
    """Return a decorator that adds --errors, whose value is one of the three modes."""
    return click.option(
        "--errors",
        type=click.Choice(["strict", "mark", "skip"]),
        default=default,
        help="On damage: stop (strict), keep the bad frames as rows (mark), or drop them (skip).",
    )


def _require_requests(format: Format) -> None:
    """Raise click.BadParameter for frames that can only be opened with those of a request."""
    requests = format.outermost.requests
    if format.within is not None and requests is not None:
        raise click.BadParameter(
            f"{format.name} can be read only together with its {requests}: give the file that has "
            "them with --requests FILE",
            param_hint="--format",
        )


def _parse_format(name: str) -> Format:
    """Return a format by its name. Raises click.BadParameter."""
    try:
        format = format_of(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return format


def resolve_paths(
    paths: Sequence[str],
    format: Format,
    report_failure: Callable[[str], None] | None = None,
    *,
    all_files: bool = False,
) -> list[str]:
    """Return the files of PATH arguments, in order; "-" is standard input.

    Several arguments may come from a shell's `*`. Then files that a format never reads, such as
    indexes, are skipped with a message.

    Args:
        paths: files, directories, globs, URLs or "-".
        format: the format that the files are read as.
        report_failure: takes the message about a path that cannot be read. Without it, the first
            such path raises.
        all_files: read also the files that `FilePattern` leaves out, as those of Kafka's own
            topics.

    Raises:
        Failure: if a path cannot be read, if no file is left, or if "-" is given twice.
    """
    top = format.outermost
    if all_files:
        storage = replace(top.storage, files=include_left_out(top.storage.files))
        top = replace(top, storage=storage)
    fail = report_failure or _raise_failure
    selected = list(paths)
    if len(paths) > 1:
        # The user named the folder that all paths share. Only what follows can come from a shell.
        shared = len(os.path.commonprefix(paths).rpartition("/")[0])
        selected = [path for path in paths if not _is_ignored(path, shared, top)]
    files: list[str] = []
    for path in selected:
        if path == "-":
            files.append(path)
            continue
        try:
            for file in _list_readable_files(path, top, fail):
                files.append(file)  # one by one: a later file of the path may raise
        except (OSError, ValueError) as error:
            message = describe_error(error, path)
            if isinstance(error, FileNotFoundError) and os.path.isdir(path):
                message += hint_at_format([path], top)
            fail(message)
    if skipped := len(paths) - len(selected):
        count = format_count(skipped, "file")
        print_message(f"wirescan: skipped {count} without frames, such as indexes")
    if not files and report_failure is None:
        raise Failure(f"none of the given files holds {top.name}")
    context = click.get_current_context(silent=True)
    is_found = context is not None and FOUND in context.meta
    hint = "" if is_found else hint_at_format(files, top)
    if hint:
        print_message(f"wirescan: the files are read as {top.name}{hint}")
    if files.count("-") > 1:
        raise Failure("standard input (-) can be given only once")
    return files


def _raise_failure(message: str) -> None:
    raise Failure(message) from None


def _is_ignored(path: str, shared: int, format: Format) -> bool:
    """Return whether a path names a file that a format never reads.

    shared: the number of characters that it shares with the other paths, up to a slash.
    """
    ignore = format.storage.ignore
    is_named = path.endswith(SIDECAR) or (
        ignore is not None and re.search(ignore, path[shared:]) is not None
    )
    return is_named and path != "-" and not os.path.isdir(path)


def _list_readable_files(path: str, format: Format, fail: Callable[[str], None]) -> Iterator[str]:
    """Yield the files of a path; `fail` takes messages about those without frames.

    Raises OSError and ValueError for a path that cannot be read.
    """
    text_format = None if format.parser.scan is None else format  # lines of text need no scan
    for file in expand(path, files=format.storage.files, ignore=format.storage.ignore):
        get_size(file)
        message = describe_foreign_file(read_head(file), file, text_format)
        if message is None:
            yield file
        else:
            fail(message)


def read_head(path: str) -> bytes:
    """Return the first HEAD bytes of a file or object, which identify its kind.

    The result is empty for standard input, a pipe or a device. Raises OSError.
    """
    if find_translator(path) is not None:
        return b""  # the name says what it is, so no chunk is fetched for that
    if path == "-" or not URL.match(path) and not os.path.isfile(path):
        return b""
    return bytes(read_range(path, 0, HEAD))


def is_compressed(path: str) -> bool:
    """Return whether a file is decompressed when it is read. Raises OSError."""
    return detect_compression(read_head(path)) is not None


def compute_total_size(files: Iterable[str]) -> int | None:
    """Return the bytes in all files together; None if one of them is standard input."""
    files = list(files)
    return None if "-" in files else sum(get_size(path) for path in files)


def describe_tail(last: FrameTable, path: str) -> str:
    """Return how a file ends, as one line; an empty string for an ordinary end.

    An end after a whole frame or in zeros is ordinary.

    Args:
        last: the last table of the file's outermost frames.
        path: the path of the file, for the message.
    """
    name = TAIL_NAMES.get(last.stop.fault)
    if name is None:
        return ""
    at = find_end(last)
    alone = ", with no frame before it" if at == 0 else ""
    count = format_count(len(last.tail), "byte")
    return f"tail: {count}, {name} at byte {at} of {format_path(path)}{alone}"


def find_end(last: FrameTable) -> int:
    """Return the byte after a file's last frame; `last` is as for `describe_tail`."""
    return last.origins[0] + last.stop.offset


def is_empty(last: FrameTable) -> bool:
    """Return whether a file holds no byte other than zero; `last` is as for `describe_tail`."""
    return find_end(last) == 0 and (not len(last.tail) or last.stop.fault == Fault.ZEROS)


class FileEnds:
    """Collects how files end, for messages at the end of a command.

    Attributes:
        is_damaged: whether an end is damage. A cut frame is not: a broker that dies leaves one at
            the end of the newest segment. It is damage if no frame precedes it.
    """

    def __init__(self) -> None:
        self.is_damaged = False
        self._tails: list[str] = []
        self._empty: list[str] = []

    def add(self, last: FrameTable, path: str) -> None:
        """Note how a file ends; the arguments are those of `describe_tail`."""
        if tail := describe_tail(last, path):
            self._tails.append(tail)
            self.is_damaged |= find_end(last) == 0
        if is_empty(last):
            self._empty.append(format_path(path))

    def report(self) -> None:
        """Print the empty files, and the tails that are not ordinary ends, to standard error."""
        if self._empty:
            names = ", ".join(self._empty[:NAMED_FILES])
            unnamed = len(self._empty) - NAMED_FILES
            unnamed_files = f" and {format_count(unnamed, 'more file')}" if unnamed > 0 else ""
            print_message(f"wirescan: empty: {names}{unnamed_files}")
        for tail in self._tails:
            print_message(f"wirescan: {tail}")


def describe_error(error: BaseException, path: str | None = None) -> str:
    """Return an error as one line for people; `path` replaces the file name of an OSError."""
    if isinstance(error, OSError) and error.strerror:
        path = path or (os.fsdecode(error.filename) if error.filename else None)
        reason = error.strerror[:1].lower() + error.strerror[1:]
        return f"{format_path(path)}: {reason}" if path else reason
    return make_visible(" ".join(str(error).split())) or type(error).__name__


def parse_names(value: str | None, columns: Iterable[str]) -> list[str] | None:
    """Return the column names in the value of --columns; None if it is not given.

    Raises click.UsageError for a name that is not in `columns`, for no name and for a repeated one.
    """
    if value is None:
        return None
    names = [name.strip() for name in value.split(",") if name.strip()]
    columns = list(columns)
    for name in names:
        if name not in columns:
            raise click.UsageError(f"there is no column {name!r}{hint_at_names(name, columns)}")
    if not names:
        raise click.UsageError("--columns needs at least one name")
    if len(set(names)) < len(names):
        raise click.UsageError("--columns names a column twice")
    return names
