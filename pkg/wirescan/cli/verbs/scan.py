"""`wirescan scan`: prints frames one by one, as text, JSON lines or an Arrow stream."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import click

from wirescan.cli.common_options import (
    check_option,
    columns_option,
    errors_option,
    limits_option,
    parse_names,
    paths_argument,
)
from wirescan.cli.completion import complete_encodings, complete_file
from wirescan.cli.exit_codes import DAMAGE
from wirescan.cli.format_command import (
    DEFAULT_FORMAT,
    FormatCommand,
    find_completed_format,
    format_option,
)
from wirescan.cli.input import is_compressed, is_pipe
from wirescan.cli.output import format_path, open_output
from wirescan.cli.path_arguments import compute_total_size, refuse_input_as_output, resolve_paths
from wirescan.cli.payload_options import decode_option
from wirescan.cli.progress import Progress
from wirescan.cli.support.followed_tables import FollowedTables
from wirescan.cli.support.frame_writers import (
    Rows,
    write_arrow,
    write_csv,
    write_json,
    write_parquet,
    write_template,
    write_text,
)
from wirescan.cli.support.selected_tables import SelectedTables
from wirescan.cli.support.selection import Selection
from wirescan.cli.support.selection_options import selection_options
from wirescan.cli.support.template import Template
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.row_values import (
    RowValues,
    list_all_columns,
    list_bytes_columns,
    list_json_columns,
    list_text_columns,
)
from wirescan.frames.similar_names import hint_at_names
from wirescan.frames.table import FrameTable
from wirescan.frames.value_text import ENCODINGS

if TYPE_CHECKING:
    from wirescan.decoding.payload_columns import PayloadColumns

SUFFIXES = {
    "json": (".json", ".jsonl", ".ndjson"),
    "csv": (".csv",),
    "arrow": (".arrow", ".arrows", ".ipc"),
    "parquet": (".parquet", ".pq"),
    "text": (".txt", ".text"),
}
BINARY_KINDS = ("arrow", "parquet")
# Message -> suffixes of files that `wirescan scan` does not write.
UNWRITABLE = {
    "has commas between its fields: use -o FILE.csv": ".tsv .psv",
    "is not compressed: use a pipe": ".gz .zst .zstd .bz2 .xz .lz4 .zip",
    "is text, JSON lines, CSV, Parquet or an Arrow stream": ".feather .orc .avro .xlsx .xls "
    ".html .xml .yaml .yml .sqlite .db .npy .npz .pkl",
}

HELP = """Print frames one by one: text for people, --json, --csv or --arrow for programs.

\b
Examples:
  wirescan scan orders-0 --limit 20
  wirescan scan orders-0 --format kafka.batches
  wirescan scan orders-0 --json --columns offset,key,value | jq
  wirescan scan orders-0 --json --encoding key=utf8,value=base64
  wirescan scan orders-0 --arrow | duckdb ...       (or -o orders.arrow)
  wirescan scan orders-0 --template '%p %o %k %s\\n'
  wirescan scan orders-0 --json --decode value=json | jq .value.amount
  wirescan scan orders-0 --follow --tail 10
  cat *.log | wirescan scan -

\b
In JSON and CSV, bytes are strings in the notation that --encoding names:
  utf8           the text; a byte that is not UTF-8 is U+FFFD and two hex
                 digits, and so is each of the bytes EF BF BD of a U+FFFD
  base64, hex    that notation
  escape         ASCII with \\n, \\r, \\t, \\\\ and \\xNN
  int, float     a number: big-endian bytes, as Kafka's serializers write
  uuid           its text; the bytes are 16, or the text

Bytes that are no such number or UUID are 0x and hexadecimal digits. Numbers that JSON does not
have are the texts NaN, Infinity and -Infinity, also in columns of numbers.

\b
In a template:
  %o %k %s       offset, key and value, as they are; null is nothing
  %S %K          size of the value and of the key, -1 for null
  %R             size of the value, 4 bytes, big-endian
  %T             time in milliseconds since 1970, -1 for none
  %h             headers: name=value,name=value
  %t %p          topic and partition, by the name of the directory
  %{column} %%   any column, and a percent sign
  \\n \\r \\t \\0 \\xNN \\\\   that byte; no line feed is added
These are the letters of kcat. %v is %s too.

Bad frames are not written with a template, unless %{fault} is in it.

In CSV, null is an empty field, empty text is "", and lists are JSON. Spreadsheets may run a text
that begins with = as a formula.

Times are milliseconds since 1970, and null if there is none. Times of Liftbridge are nanoseconds.
What was not read of a bad frame is null.
Codes, such as those of codecs and errors, have names. In text, times are UTC, unprintable
characters are escaped, and a cell has at most 1,000 characters.

Exit codes: 0 good, 1 damage was found (not with --errors skip), 2 cannot be done.
"""


@click.command(
    cls=FormatCommand,
    reads_connections=True,
    writes_columns=True,
    help=HELP,
    short_help="Print frames one by one: text, JSON lines, CSV or Arrow.",
)
@paths_argument
@format_option(DEFAULT_FORMAT)
@errors_option("mark")
@check_option
@limits_option
@selection_options()
@columns_option()
@decode_option()
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Go on as files grow and appear, until it is interrupted. --tail N shows the last N "
    "frames first.",
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON lines, one per frame.")
@click.option("--csv", "as_csv", is_flag=True, help="Write CSV, with a line of column names.")
@click.option(
    "--template",
    metavar="TEXT",
    help="Write TEXT for each frame, with the letters of kcat: '%o %k %s\\n'. See below.",
)
@click.option("--null", metavar="TEXT", help="With --template: write TEXT for null.")
@click.option("--arrow", "as_arrow", is_flag=True, help="Write an Arrow IPC stream.")
@click.option(
    "--encoding",
    default="utf8",
    metavar="NAME,COLUMN=NAME",
    help="Write bytes in this notation, in all columns or in some. Not for Arrow.",
    shell_complete=lambda context, option, incomplete: complete_encodings(
        find_completed_format(context), incomplete
    ),
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    shell_complete=complete_file,
    help="Write to FILE. The suffixes .jsonl, .csv, .arrow, .parquet and .txt choose the format.",
)
@click.pass_context
def scan(
    context: click.Context,
    *,
    paths: tuple[str, ...],
    format_name: Format,
    errors: str,
    check: bool,
    limits: Limits,
    selection: Selection,
    columns: str | None,
    decode: dict[str, str],
    follow: bool,
    as_json: bool,
    as_csv: bool,
    as_arrow: bool,
    template: str | None,
    null: str | None,
    encoding: str,
    output: str | None,
) -> None:
    """Run `wirescan scan`."""
    flags = {"json": as_json, "csv": as_csv, "arrow": as_arrow, "template": template is not None}
    options = [name for name, is_given in flags.items() if is_given]
    if len(options) > 1:
        raise click.UsageError(f"--{options[0]} and --{options[1]} exclude each other")
    kind = _choose_output_kind(output, options[0] if options else None)
    payloads = _parse_decoders(decode)
    parsed = _parse_template(template, null, format_name, payloads)
    files = selection.select_files(resolve_paths(paths, format_name))
    if output:
        refuse_input_as_output(output, files)
    if follow:
        _check_follow(files, output, selection)
    is_quiet = follow or kind in ("text", "template") and output is None and sys.stdout.isatty()
    progress = Progress(compute_total_size(files), "scanning", quiet=is_quiet)
    with open_output(output, binary=kind in BINARY_KINDS) as out, progress as bar:
        names = parse_names(columns, list_all_columns(format_name))
        encodings = _parse_encodings(encoding, format_name)
        is_growing = follow and files != ["-"]
        make_tables = FollowedTables if is_growing else SelectedTables
        sources = paths if is_growing else files
        tables = make_tables(
            sources, format_name, errors, selection, bar, limits, check=check, flush=out.flush
        )
        writing = _Writing(
            kind=kind,
            format=format_name,
            columns=names,
            encodings=encodings,
            errors=errors,
            template=parsed,
            payloads=payloads,
            is_live=follow,
            names_files=follow or len(files) > 1,
        )
        writing.run(out, tables)
    tables.report()
    context.exit(DAMAGE if tables.damage and errors != "skip" else 0)


@dataclass(frozen=True)
class _Writing:
    """How frames are written.

    Attributes:
        kind: "text", "json", "csv", "template", "arrow" or "parquet".
        format, errors: those of the frames.
        columns: the columns that the user chose; None for those of the kind.
        encodings: how the bytes of each column are written.
        template: of kind "template".
        payloads: the columns that are decoded; None: none is.
        is_live: rows are written as soon as they can be.
        names_files: text names the file before its rows.
    """

    kind: str
    format: Format
    columns: list[str] | None
    encodings: dict[str, str]
    errors: str
    template: Template | None
    payloads: PayloadColumns | None
    is_live: bool
    names_files: bool

    def run(self, out: BinaryIO, tables: Iterable[tuple[FrameTable, str]]) -> None:
        """Write tables until there are no more."""
        if self.kind in BINARY_KINDS:
            self._write_binary(out, tables)
        elif self.template is not None:
            write_template(out, self._infer_types(tables), self.template)
        else:
            self._write_rows(out, tables)

    def _write_rows(self, out: BinaryIO, tables: Iterable[tuple[FrameTable, str]]) -> None:
        is_text = self.kind == "text"
        list_columns = list_text_columns if is_text else list_json_columns
        names = self.columns or list_columns(self.format)
        values: Rows
        if self.payloads is None:
            values = RowValues(self.format, names, self.encodings, self.errors, for_people=is_text)
        else:
            from wirescan.cli.support.decoded_rows import DecodedRows

            values = DecodedRows(
                self.payloads, self.format, names, self.encodings, self.errors, for_people=is_text
            )
            names = values.names
            tables = self._infer_types(tables)
        if is_text:
            write_text(out, tables, values, names, names_files=self.names_files)
        else:
            write_rows = write_json if self.kind == "json" else write_csv
            write_rows(out, tables, values, names)

    def _write_binary(self, out: BinaryIO, tables: Iterable[tuple[FrameTable, str]]) -> None:
        if self.payloads is not None:
            from wirescan.cli.support.decoded_rows import infer_from_nothing
            from wirescan.frames.to_arrow import make_schema

            self.payloads.check(make_schema(self.format, self.columns))
            tables = self._infer_types(tables)
            if not self.payloads.is_fitted:
                infer_from_nothing(self.payloads)
        write = write_arrow if self.kind == "arrow" else write_parquet
        write(out, tables, self.format, self.columns, self.errors, self.payloads)

    def _infer_types(
        self, tables: Iterable[tuple[FrameTable, str]]
    ) -> Iterable[tuple[FrameTable, str]]:
        if self.payloads is None:
            return tables
        from wirescan.cli.support.decoded_rows import infer_types

        return infer_types(self.payloads, tables, is_live=self.is_live)


def _parse_decoders(decode: dict[str, str]) -> PayloadColumns | None:
    """Return the decoders of --decode; None without it. Raises as `PayloadColumns`."""
    if not decode:
        return None
    from wirescan.decoding.payload_columns import PayloadColumns

    return PayloadColumns(decode)


def _check_follow(files: Sequence[str], output: str | None, selection: Selection) -> None:
    """Raise click.UsageError for what --follow cannot do."""
    if output not in (None, "-"):
        raise click.UsageError("--follow writes to standard output: a file of -o has to end")
    if selection.sample is not None:
        raise click.UsageError("--follow excludes --sample: it does not know how many frames come")
    if len(files) > 1 and "-" in files:
        raise click.UsageError("--follow reads files or standard input, and not both")
    for file in files:
        if file != "-" and (is_pipe(file) or is_compressed(file)):
            raise click.UsageError(
                f"--follow needs files that grow, and {format_path(file)} is a pipe or compressed"
            )


def _parse_template(
    text: str | None, null: str | None, format: Format, payloads: PayloadColumns | None
) -> Template | None:
    """Return the template of --template and --null; None without one. Raises click.UsageError."""
    if text is None:
        if null is not None:
            raise click.UsageError("--null needs --template")
        return None
    try:
        return Template(text, format, null or "", payloads)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--template") from None


def _parse_encodings(option: str, format: Format) -> dict[str, str]:
    """Return the encoding of each column of bytes, by the value of --encoding.

    NAME is for all columns, COLUMN=NAME for one. Raises click.UsageError.
    """
    columns = list_bytes_columns(format)
    chosen: dict[str, str] = {}
    default = ENCODINGS[0]
    for item in option.split(","):
        column, _, name = (part.strip() for part in item.rpartition("="))
        if name not in ENCODINGS:
            raise click.UsageError(f"there is no encoding {name!r}{hint_at_names(name, ENCODINGS)}")
        if not column:
            default = name
        elif column in columns:
            chosen[column] = name
        else:
            raise click.UsageError(
                f"there is no column {column!r} with bytes{hint_at_names(column, columns)}"
            )
    return dict.fromkeys(columns, default) | chosen


def _choose_output_kind(output: str | None, option: str | None) -> str:
    """Return the kind of output, by an option or else by the name of the output file.

    Args:
        output: the output file; None or "-" is standard output.
        option: "json", "csv", "arrow" or "template", if the user gave that option.

    Raises:
        click.UsageError: if the name of the file contradicts what is written.
    """
    if output is None or output == "-":
        return option or "text"
    if output.startswith("-"):
        name = format_path(output)
        raise click.UsageError(
            f"-o {name} looks like an option; -o ./{name} is a file with that name"
        )
    suffix = os.path.splitext(output)[1].lower()
    for message, suffixes in UNWRITABLE.items():
        if suffix in suffixes.split():
            raise click.UsageError(f"-o {format_path(output)}: the output {message}")
    named = next((kind for kind, suffixes in SUFFIXES.items() if suffix in suffixes), None)
    is_text = option in ("json", "template") and named == "text"
    if option and named and named != option and not is_text:
        raise click.UsageError(
            f"-o {format_path(output)} is a name for {named}, but --{option} chooses another format"
        )
    return option or named or "text"
