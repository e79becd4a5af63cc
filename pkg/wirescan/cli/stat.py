"""`wirescan stat`: what is in it? Counts, sizes, rates, codecs, offsets and faults."""
from __future__ import annotations

from typing import Any

import click

from wirescan.catalog import Format, format_of
from wirescan.cli.common import DAMAGE, check_option, collect, format_option, paths_argument, tail_of, total_size
from wirescan.cli.output import bytes_of, colour, counted, dump, name_of, number_of, say
from wirescan.cli.pieces import chunks
from wirescan.cli.progress import Progress
from wirescan.cli.tally import Tally, count
from wirescan.pieces import opened, outermost

QUANTILES = ("min", "median", "p95", "max")
DEEP = {"kafka.batches": "kafka.records", "lumberjack.frames": "lumberjack.events",
        "nats.messages": "liftbridge.envelopes", "thrift.frames": "thrift.messages"}
LABEL = 14                      # characters of the first column


@click.command(short_help="What is in it? Counts, sizes, rates, codecs, offsets.")
@paths_argument
@format_option("kafka.batches")
@check_option
@click.option("--deep", is_flag=True,
              help="Open the records as well: sizes of keys and values, nulls, headers; or events, envelopes, "
                   "messages.")
@click.option("--total", is_flag=True, help="The total only.")
@click.option("--json", "as_json", is_flag=True, help='One JSON object: {"files": [...], "total": {...}}.')
@click.pass_context
def stat(context: click.Context, paths: tuple[str, ...], format_name: Format, check: bool, deep: bool,
         total: bool, as_json: bool) -> None:
    """What is in it? Counts, sizes, rates, codecs, offsets and faults, for each file and in total.

    \b
    Examples:
      wirescan stat orders-0
      wirescan stat --deep --total /var/lib/kafka/*-*
      wirescan stat orders-0 --json | jq .total.codecs

    Read from the headers of the batches, without inflating anything. Compressed wrappers of magic 0 and 1 do
    not say how many records they hold; --deep opens them. So it does with compressed frames of Lumberjack, whose
    events are counted only then; with messages of NATS, to tell what Liftbridge takes their payloads for; and with
    frames of Thrift, to tell calls from replies.

    Exit codes: 0 good, 1 damage was met, 2 cannot be done.
    """
    files = collect(paths, format_name)
    top = format_name.outermost
    if deep and top.name not in DEEP:
        raise click.UsageError(f"--deep opens records, events, envelopes or messages, and {top.name} holds none")
    inner = format_of(DEEP[top.name]) if deep else None
    whole, each, ends = Tally(), [], []
    with Progress(total_size(files), "counting") as progress:
        for path in files:
            here = Tally()
            here.turn(path)
            whole.turn(path)
            for piece in outermost(chunks(path, progress), top, errors="mark", check=check):
                groups = opened(piece, inner, errors="mark", check=check) if inner else ()
                count([here, whole], piece, groups)
            for tally in (here, whole):
                tally.end(piece.origins[0] + len(piece.buffers[0]), piece.stop.fault, len(piece.tail))
            ends.append(tail_of(piece, path))
            each.append({"file": path, **here.summary()})
            if not as_json and not total:
                _show(name_of(path), here.summary())
    if as_json:
        click.echo(dump({"files": [] if total else each, "total": whole.summary()}))
    elif total or len(files) > 1:
        _show(f"total of {counted(len(files), 'file')}", whole.summary())
    for tail, _ in ends:
        if tail:
            say(f"wirescan: {tail}")
    context.exit(DAMAGE if whole.faults or any(bad for _, bad in ends) else 0)


def _show(title: str, found: dict[str, Any]) -> None:
    lines = [("frames",
              f"{found['frames']:,}, {bytes_of(found['frame_bytes'])} of {bytes_of(found['bytes'])}")]
    lines += [("frame size", _sizes(found["frame_size"]))]
    lines += [(label, ", ".join(f"{name}: {number:,}" for name, number in found.get(label, {}).items()))
              for label in ("kinds", "envelopes", "messages")]
    if "events" in found:
        lines += [("events", f"{found['events']:,}"), ("event size", _sizes(found["event_size"])),
                  ("pairs", f"{found['pairs']:,}" if found["pairs"] else "")]
    if "records" in found:
        lines += _records(found)
    lines += _times(found.get("time"))
    if found.get("offsets") and found["offsets"]["first"] is not None:
        lines += _offsets(found["offsets"], found.get("unopened_frames", 0))
    lines += [("codecs", ", ".join(_codec(name, one) for name, one in found.get("codecs", {}).items()))]
    lines += [("magic", ", ".join(f"{name}: {number:,}" for name, number in found.get("magic", {}).items()))]
    special = [f"{found[name + '_frames']:,} {name}" for name in ("control", "transactional")
               if found.get(name + "_frames")]
    lines += [("of these", ", ".join(special))]
    lines += [("tail", ", ".join(f"{name}: {counted(size, 'byte')}" for name, size in found["tail"].items()))]
    faults = [colour(f"{name}: {one['frames']:,} ({counted(one['bytes'], 'byte')})", fg="red")
              for name, one in found["faults"].items()]
    lines += [("faults", ", ".join(faults) or "none")]
    click.echo(colour(title, bold=True))
    for label, text in lines:
        if text:
            click.echo(f"  {label:<{LABEL}}{text}")


def _records(found: dict[str, Any]) -> list[tuple[str, str]]:
    unopened = found["unopened_frames"]
    text = f"{found['records_at_least']:,}" if not unopened else (
        f"at least {found['records_at_least']:,}; "
        f"{counted(unopened, 'compressed wrapper')} not opened (--deep)")
    lines = [("records", text), ("  per frame", _numbers(found["records_per_frame"]))]
    inside = found.get("inside")
    if inside:
        lines += [("key size", _sizes(inside["key_size"])), ("value size", _sizes(inside["value_size"])),
                  ("nulls", f"{inside['null_keys']:,} keys, {inside['null_values']:,} values (tombstones)"),
                  ("headers", f"{inside['headers']:,}")]
    return lines


def _times(time: dict[str, Any] | None) -> list[tuple[str, str]]:
    if not time:
        return []
    lines = [("time", f"{time['first_utc']} to {time['last_utc']}")]
    rates = [f"{number_of(time['records_per_second'])} records/s"] if "records_per_second" in time else []
    rates += [f"{bytes_of(time['bytes_per_second'])}/s"] if "bytes_per_second" in time else []
    return [*lines, ("rate", ", ".join(rates))]


def _offsets(offsets: dict[str, Any], unopened: int) -> list[tuple[str, str]]:
    told = [f"{counted(offsets['gaps'], 'gap')} ({offsets['missing']:,} missing)" if offsets["gaps"] else
            "gaps are not known" if unopened else "no gaps"]
    if offsets["missing_inside_frames"]:
        told.append(f"{offsets['missing_inside_frames']:,} missing inside frames (compacted)")
    if offsets["out_of_order"]:
        told.append(f"{offsets['out_of_order']:,} frames out of order")
    least = " or less" if unopened else ""
    return [("offsets", f"{offsets['first']:,}{least} to {offsets['last']:,}, {', '.join(told)}")]


def _codec(name: str, one: dict[str, int]) -> str:
    known = name != "none" and "inflated_bytes" in one
    inflated = f" from {bytes_of(one['inflated_bytes'])}" if known else ""
    return f"{name}: {one.get('frames', 0):,} ({bytes_of(one.get('bytes', 0))}{inflated})"


def _sizes(sizes: dict[str, int] | None) -> str:
    return "" if sizes is None else ", ".join(f"{name} {bytes_of(sizes[name])}" for name in QUANTILES)


def _numbers(numbers: dict[str, int] | None) -> str:
    return "" if numbers is None else ", ".join(f"{name} {numbers[name]:,}" for name in QUANTILES)
