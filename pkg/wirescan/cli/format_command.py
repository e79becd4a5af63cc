"""A verb with --format and the options that formats declare: `FormatCommand`.

Without --format, the format is found in the files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from wirescan.cli.completion import complete_file
from wirescan.cli.exit_codes import Failure, describe_error
from wirescan.cli.input import is_pipe, read_first_contents
from wirescan.cli.support.format_choice import choose_format
from wirescan.frames.format import Format
from wirescan.frames.options import Folders, FormatOption, list_format_options
from wirescan.frames.registry import (
    CAPTURE_FORMAT,
    format_of,
    formats,
    load_common_options,
    make_spec,
)
from wirescan.reading.captures import choose_captured

# The defaults of --format: of verbs that read all frames, and of verbs that read outermost ones.
DEFAULT_FORMAT = "kafka.records"
DEFAULT_OUTERMOST_FORMAT = "kafka.batches"
FOUND = "wirescan.format_found"  # in `meta` of a context: the format was found in the files
Command = Callable[..., Any]  # the function of a verb, which decorators of options wrap


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


class _FormatChoice(click.Option):
    """The option --format, and the format to read if the files do not say which one they have."""

    def __init__(self, *arguments: Any, default_format: str, **attributes: Any):
        super().__init__(*arguments, **attributes)
        self.default_format = default_format


def _parse_format(name: str) -> Format:
    """Return a format by its name. Raises click.BadParameter."""
    try:
        format = format_of(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return format


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


def _require_requests(format: Format) -> None:
    """Raise click.BadParameter for frames that can only be opened with those of a request."""
    requests = format.outermost.requests
    if format.within is not None and requests is not None:
        raise click.BadParameter(
            f"{format.name} can be read only together with its {requests}: give the file that has "
            "them with --requests FILE",
            param_hint="--format",
        )
