"""`wirescan stat`: prints counts, sizes, rates, codecs, offsets and faults of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from wirescan.cli.common_options import check_option, json_option, limits_option, paths_argument
from wirescan.cli.exit_codes import DAMAGE
from wirescan.cli.file_ends import FileEnds
from wirescan.cli.format_command import DEFAULT_OUTERMOST_FORMAT, FormatCommand, format_option
from wirescan.cli.input import read_part
from wirescan.cli.output import colour, dump_json, format_path, name_path
from wirescan.cli.path_arguments import compute_total_size, resolve_paths
from wirescan.cli.progress import Progress
from wirescan.cli.support.bad_blocks import BadBlocks
from wirescan.cli.support.latencies import SHOWN_GROUPS, list_cells
from wirescan.cli.support.row_choice import plan_parts
from wirescan.cli.support.selection import Selection
from wirescan.cli.support.selection_options import selection_options
from wirescan.cli.support.tally import (
    Tally,
    count_piece,
    find_counted_format,
    make_flag_name,
    make_kinds_name,
    make_size_name,
)
from wirescan.core.fault import Fault
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import formats
from wirescan.frames.value_text import format_bytes, format_count, format_number
from wirescan.reading.allowance import Allowance
from wirescan.reading.chunked import scan_outermost
from wirescan.reading.nested_groups import open_nested

QUANTILES = ("min", "median", "p95", "max")
LABEL_WIDTH = 14  # characters of the first column
UNCOMPRESSED = 0  # in a column of codecs; see `wirescan.frames.summary_columns.SummaryColumns`
Lines = list[tuple[str, str]]  # label, text

HELP = """Print what is in files: counts, sizes, rates, codecs, offsets and faults, for each file
and in total.

\b
Examples:
  wirescan stat orders-0
  wirescan stat --deep --total /var/lib/kafka/*-*
  wirescan stat orders-0 --since 2h --where 'codec == none'
  wirescan stat orders-0 --json | jq .total.codecs

The counts come from the headers of the batches, and nothing is decompressed. --deep opens the
frames too. Only then are these counted: the records in compressed wrappers of magic 0 and 1, which
do not state their number; the events in compressed frames of Lumberjack; the Liftbridge envelopes
in messages of NATS; calls and replies in frames of Thrift.

Without --format, exchanges are counted in captures of packets: requests with their responses, and
the times between them. With --deep, captures of Lumberjack, NATS and Thrift are read as frames.

The options that select, such as --offset and --where, select outermost frames, such as batches. Bad
frames count whatever the conditions are. Gaps in the offsets are those between selected frames.

Exit codes: 0 good, 1 damage was found, 2 cannot be done.
"""


@click.command(
    cls=FormatCommand,
    reads_connections=True,
    reads_exchanges=True,
    help=HELP,
    short_help="Print what is in files: counts, sizes, rates, offsets.",
)
@paths_argument
@format_option(DEFAULT_OUTERMOST_FORMAT)
@check_option
@limits_option
@selection_options(outermost=True)
@click.option(
    "--deep",
    is_flag=True,
    help="Also count what is inside the frames: records with the sizes of keys and values, nulls "
    "and headers; or events, envelopes, messages.",
)
@click.option("--total", is_flag=True, help="Print only the total.")
@json_option('Print one JSON object: {"files": [...], "total": {...}}.')
@click.pass_context
def stat(
    context: click.Context,
    *,
    paths: tuple[str, ...],
    format_name: Format,
    check: bool,
    limits: Limits,
    selection: Selection,
    deep: bool,
    total: bool,
    as_json: bool,
) -> None:
    """Run `wirescan stat`."""
    files = selection.select_files(resolve_paths(paths, format_name))
    top = format_name.outermost
    inner = _find_counted_format(top) if deep else None
    options: dict[str, Any] = {"errors": "mark", "check": check, "limits": limits}
    total_tally = Tally(top)
    summaries: list[dict[str, Any]] = []
    ends = FileEnds()
    bad_blocks = BadBlocks()
    with Progress(compute_total_size(files), "counting") as progress:
        plan = plan_parts(selection, files, "mark", limits, check=check)
        for path, start, stop in plan.parts:
            if plan.chooser.is_done:
                break
            file_tally = Tally(top)
            tallies = [file_tally, total_tally]
            for tally in tallies:
                tally.start_file(path)
            allowance = Allowance(limits)
            options["allowance"] = allowance
            pieces = _CountedChunks(read_part(path, start, stop, progress, allowance))
            tables = scan_outermost(
                pieces, top, offset=start, inspect_blocks=bad_blocks.add, **options
            )
            for piece in tables:
                chosen = plan.chooser.choose(piece, path)
                selected = piece if len(chosen) == len(piece) else piece[chosen]
                opened = open_nested(selected, inner, **options) if inner else ()
                count_piece(tallies, selected, opened)
                if plan.chooser.is_done:
                    break
            # Only the last table of a capture says how the file ends.
            is_cut = top.make_reader is not None and plan.chooser.is_done
            for tally in tallies:
                if is_cut:
                    tally.end_file(pieces.size, Fault.OK, 0)
                else:
                    tally.end_file(pieces.size, piece.stop.fault, len(piece.tail))
            if not is_cut:
                ends.add(piece, path)
            summary = file_tally.make_summary()
            summaries.append({"file": name_path(path), **summary})
            if not as_json and not total:
                _print_summary(format_path(path), summary, top)
    if as_json:
        file_summaries = [] if total else summaries
        click.echo(dump_json({"files": file_summaries, "total": total_tally.make_summary()}))
    elif total or len(files) > 1:
        title = f"total of {format_count(len(files), 'file')}"
        _print_summary(title, total_tally.make_summary(), top)
    ends.report()
    bad_blocks.report()
    is_damaged = total_tally.faults or ends.is_damaged or bad_blocks.is_damaged
    context.exit(DAMAGE if is_damaged else 0)


class _CountedChunks:
    """Iterates over the chunks of a file, and counts their bytes in `size`."""

    def __init__(self, chunks: Iterable[memoryview]):
        self._chunks = chunks
        self.size = 0

    def __iter__(self) -> Iterator[memoryview]:
        for chunk in self._chunks:
            self.size += len(chunk)
            yield chunk


def _find_counted_format(outer: Format) -> Format:
    """Return the format whose frames `--deep` counts in those of `outer`.

    Raises click.UsageError if there is none.
    """
    inner = find_counted_format(outer)
    if inner is not None:
        return inner
    names = ", ".join(
        sorted({name for format in formats().values() if (name := format.display.counted_as)})
    )
    raise click.UsageError(f"--deep opens frames inside others ({names}); {outer.name} holds none")


def _print_summary(title: str, summary: dict[str, Any], top: Format) -> None:
    """Print the counts of `Tally.make_summary` as labelled lines; `top` is the outermost format."""
    inner = find_counted_format(top)
    frame_bytes = format_bytes(summary["frame_bytes"])
    all_bytes = format_bytes(summary["bytes"])
    lines: Lines = [
        ("frames", f"{summary['frames']:,}, {frame_bytes} of {all_bytes}"),
        ("frame size", _format_quantiles(summary["frame_size"])),
        ("kinds", _format_counts(summary, "kinds")),
    ]
    if top.display.record_count is not None:
        lines += _format_records(summary, top)
    if inner is not None:
        lines += _format_opened(summary, top, inner)
    lines += _format_times(summary.get("time"))
    if summary.get("offsets") and summary["offsets"]["first"] is not None:
        lines += _format_offsets(summary["offsets"], summary.get("unopened_frames", 0))
    lines.append(("codecs", _format_codecs(summary, top)))
    lines += [(name, _format_counts(summary, name)) for name in top.display.summary.values]
    lines += _format_latencies(summary.get("latency", {}))
    special = [
        f"{summary[make_flag_name(name)]:,} {name.removeprefix('is_')}"
        for name in top.display.summary.flags
        if summary[make_flag_name(name)]
    ]
    tails = summary["tail"].items()
    faults = [
        colour(f"{name}: {fault['frames']:,} ({format_count(fault['bytes'], 'byte')})", fg="red")
        for name, fault in summary["faults"].items()
    ]
    lines += [
        ("of these", ", ".join(special)),
        ("tail", ", ".join(f"{name}: {format_count(size, 'byte')}" for name, size in tails)),
        ("faults", ", ".join(faults) or "none"),
    ]
    click.echo(colour(title, bold=True))
    for label, text in lines:
        if text:
            click.echo(f"  {label:<{LABEL_WIDTH - 1}} {text}")


def _format_counts(summary: dict[str, Any], name: str) -> str:
    """Return the counts under `name` as text; an empty string if there are none."""
    return ", ".join(f"{key}: {count:,}" for key, count in summary.get(name, {}).items())


def _format_records(summary: dict[str, Any], top: Format) -> Lines:
    """Return the lines about records, whose number the frames state."""
    unopened = summary["unopened_frames"]
    text = f"{summary['records_at_least']:,}"
    if unopened:
        frames = format_count(unopened, top.display.summary.unopened)
        text = f"at least {text}; {frames} not opened (--deep)"
    inner = find_counted_format(top)
    counted = "records" if inner is None else str(inner.display.counted_as)
    return [
        (counted, text),
        ("  per frame", _format_quantiles(summary["records_per_frame"], "{:,}".format)),
    ]


def _format_opened(summary: dict[str, Any], top: Format, inner: Format) -> Lines:
    """Return the lines about the frames of the format `inner`, which are inside those of `top`."""
    counted = str(inner.display.counted_as)
    if inner.display.summary.by_kind:
        name = make_kinds_name(top, inner)
        label = counted if name == counted else "  by kind"
        return [(label, _format_counts(summary, name))]
    lines: Lines = []
    is_stated = "records_at_least" in summary
    inside = summary.get("inside", {})
    if not inside and counted not in summary:
        return []  # the frames were not opened
    if not is_stated:
        lines.append((counted, f"{summary[counted]:,}"))
    if inner.display.summary.sizes:
        sizes = make_size_name(inner)
        lines.append((sizes.replace("_", " "), _format_quantiles(summary[sizes])))
    if inside:
        places = inner.display.summary.places
        lines += [(f"{name} size", _format_quantiles(inside[f"{name}_size"])) for name in places]
        nulls = [f"{inside[f'null_{name}s']:,} {text}" for name, text in places.items()]
        lines.append(("nulls", ", ".join(nulls)))
    if not is_stated:
        lines += [(name, f"{summary[name]:,}" if summary[name] else "") for name in inner.lists]
    elif inside:
        lines += [(name, f"{inside[name]:,}") for name in inner.lists]
    return lines


def _format_latencies(groups: dict[str, Any]) -> Lines:
    """Return a table: a line for each group of exchanges, with the times to the responses."""
    if not groups:
        return []
    rows = list_cells(groups, SHOWN_GROUPS)
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines: Lines = []
    for name, *texts in rows:
        cells = [text.rjust(width) for text, width in zip(texts, widths[1:])]
        label = "" if lines else "latency"
        lines.append((label, "  ".join([name.ljust(widths[0]), *cells])))
    if len(groups) > SHOWN_GROUPS:
        lines.append(("", f"... and {len(groups) - SHOWN_GROUPS:,} more (--json)"))
    return lines


def _format_times(time: dict[str, Any] | None) -> Lines:
    """Return the lines about times and rates."""
    if not time:
        return []
    rates = []
    if "records_per_second" in time:
        rates.append(f"{format_number(time['records_per_second'])} records/s")
    if "bytes_per_second" in time:
        rates.append(f"{format_bytes(time['bytes_per_second'])}/s")
    return [
        ("time", f"{time['first_utc']} to {time['last_utc']}"),
        ("rate", ", ".join(rates)),
    ]


def _format_offsets(offsets: dict[str, Any], unopened: int) -> Lines:
    """Return the line about offsets; `unopened` is the number of wrappers not opened."""
    if offsets["gaps"]:
        gaps = f"{format_count(offsets['gaps'], 'gap')} ({offsets['missing']:,} missing)"
    elif unopened:
        gaps = "gaps are not known"
    else:
        gaps = "no gaps"
    parts = [gaps]
    if offsets["missing_inside_frames"]:
        parts.append(f"{offsets['missing_inside_frames']:,} missing inside frames (compacted)")
    if offsets["out_of_order"]:
        parts.append(f"{offsets['out_of_order']:,} frames out of order")
    least = " or less" if unopened else ""
    return [("offsets", f"{offsets['first']}{least} to {offsets['last']}, {', '.join(parts)}")]


def _format_codecs(summary: dict[str, Any], top: Format) -> str:
    """Return the counts of each codec as text; an empty string if there are none."""
    if "codecs" not in summary or top.display.summary.codec is None:
        return ""
    uncompressed = top.get_column(top.display.summary.codec).name_number(UNCOMPRESSED)
    texts = []
    for name, counts in summary["codecs"].items():
        is_known = name != uncompressed and "inflated_bytes" in counts
        source = f" from {format_bytes(counts['inflated_bytes'])}" if is_known else ""
        frames = counts.get("frames", 0)
        texts.append(f"{name}: {frames:,} ({format_bytes(counts.get('bytes', 0))}{source})")
    return ", ".join(texts)


def _format_quantiles(
    values: dict[str, int] | None, format_value: Callable[[int], str] = format_bytes
) -> str:
    """Return the quantiles of sizes, or of other values, as text; an empty string without any."""
    if values is None:
        return ""
    return ", ".join(f"{name} {format_value(values[name])}" for name in QUANTILES)
