"""Compares many small streams with the slow reference in one scan.

A scan of many buffers walks over each buffer on its own, as a scan of that buffer alone does.
Only the inner formats are opened for all buffers at once. One scan of many mutations therefore
checks as much as one scan for each of them.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np

import wirescan
from wirescan import FrameError, FrameTable
from wirescan.testing import laws
from wirescan.testing.laws import ProtocolPackage

STREAMS_PER_SCAN = 400
LIMITS = wirescan.Limits()


def sample_positions(length: int, stride: int) -> range:
    """Return positions in `length` bytes, `stride` apart, and at least one of them.

    The first one depends on the length, so that streams of different lengths are changed at
    different positions.
    """
    step = max(min(stride, length), 1)
    return range(length % step, length, step)


def replace_bytes(
    raw: bytes, values: Callable[[int], set[int]], stride: int = 1
) -> Iterator[bytes]:
    """Streams that differ from `raw` in one byte.

    values: returns the new bytes for an old byte.
    stride: distance between the changed positions, as in `sample_positions`.
    """
    for position in sample_positions(len(raw), stride):
        old = raw[position]
        for new in sorted(values(old) - {old}):
            yield raw[:position] + bytes([new]) + raw[position + 1 :]


def agree_with_the_reference(
    packages: list[ProtocolPackage],
    streams: Iterable[bytes],
    check: bool = True,
    *,
    outermost: Callable[[bytes], tuple] | None = None,
) -> None:
    """Assert `laws.agrees_with_the_reference` for each of many streams.

    packages: their formats have the same outermost format and the same `expected` function.
    outermost: returns the rows, fault and position of the stop for a scan without a search after
        faults. It saves time where the function `expected` computes inner rows too.
    """
    assert len({(package.expected, package.formats[0]) for package in packages}) == 1
    streams = iter(streams)
    compared = 0
    while group := list(islice(streams, STREAMS_PER_SCAN)):
        compare_group(packages, group, check, outermost)
        compared += len(group)
    assert compared, "there is nothing to compare"


def compare_group(
    packages: list[ProtocolPackage],
    streams: list[bytes],
    check: bool,
    outermost: Callable[[bytes], tuple] | None,
) -> None:
    resync = True
    expected = [packages[0].expected(raw, check, resync) for raw in streams]
    stops = [(fault, position) for _, fault, position in expected]
    for package in packages:
        table = wirescan.scan(streams, package.formats[-1], errors="mark", check=check)
        levels = laws.list_tables(table)
        assert [level.name for level in levels] == list(package.formats)
        assert [stop[:2] for stop in levels[0].stops] == stops
        want_rows, want_bytes = merge_truths([rows for rows, _, _ in expected], package.formats)
        found_rows = laws.list_levels(table)
        for depth, level in enumerate(levels, 1):
            found = laws.normalize_level(found_rows[:depth], len(streams))
            if found != laws.normalize_level(want_rows[:depth], len(streams)):
                compare_one_by_one(package, streams, check)
            assert laws.list_frames(level) == want_bytes[depth - 1], level.name
    for raw, (rows, fault, position) in zip(streams, expected):
        want = [row for row, _ in rows[packages[0].formats[0]]]
        if any(row["fault"] for row in want):  # without a fault there is no search
            want, fault, position = find_outermost_truth(packages[0], raw, check, outermost)
        compare_without_search(packages[0], raw, check, want, fault, position)


def merge_truths(
    truths: list[dict[str, list]], formats: tuple[str, ...]
) -> tuple[list[list[dict]], list[list[bytes]]]:
    """Return the rows of each format and their bytes, numbered as in one table of all streams.

    Stream i is buffer i. Rows in a decompressed buffer have the number of streams as their buffer.
    Windows of Lumberjack are numbered over all streams. A truth has their count as "windows".
    """
    rows: list[list[dict]] = [[] for _ in formats]
    frames: list[list[bytes]] = [[] for _ in formats]
    windows = 0
    for stream, truth in enumerate(truths):
        firsts = [len(level) for level in rows]
        for depth, name in enumerate(formats):
            for row, data in truth[name]:
                row = dict(row)
                row["buffer"] = len(truths) if row["buffer"] else stream
                if depth:
                    row["parent"] += firsts[depth - 1]
                if row.get("enclosing", -1) >= 0:
                    row["enclosing"] += firsts[depth]
                if "window" in row:
                    row["window"] += windows
                rows[depth].append(row)
                frames[depth].append(bytes(data[row["start"] : row["start"] + row["size"]]))
        windows += truth.get("windows", 0)
    return rows, frames


def compare_one_by_one(package: ProtocolPackage, streams: list[bytes], check: bool) -> None:
    """Raise an error that shows the stream that differs."""
    for raw in streams:
        try:
            laws.agrees_with_the_reference(package, raw, check=check)
        except AssertionError as error:
            raise AssertionError(f"{raw!r} differs from the reference: {error}") from error
    raise AssertionError("the streams agree with the reference one by one, but not in one scan")


def find_outermost_truth(
    package: ProtocolPackage, raw: bytes, check: bool, outermost: Callable[[bytes], tuple] | None
) -> tuple:
    """Return (rows, fault, position of the stop) of the outermost format without a search."""
    if outermost is not None:
        return outermost(raw)
    resync = False
    truth, fault, position = package.expected(raw, check, resync)
    return [row for row, _ in truth[package.formats[0]]], fault, position


def compare_without_search(
    package: ProtocolPackage, raw: bytes, check: bool, want: list[dict], fault: int, position: int
) -> None:
    """A scan that ends at the first fault agrees with the reference."""
    scan = wirescan.formats()[package.formats[0]].parser.scan
    rows, bad, *stop = scan(raw, check=check, resync=False, limits=LIMITS)
    assert laws.convert_rows(rows) == want, raw
    assert bad == sum(row["fault"] != 0 for row in want), raw
    assert stop == [fault, position], raw


def end_well(package: ProtocolPackage, streams: Iterable[bytes], check: bool = True) -> None:
    """Assert `laws.ends_well` for each of many streams."""
    streams = iter(streams)
    compared = 0
    while group := list(islice(streams, STREAMS_PER_SCAN)):
        for errors in ("mark", "skip"):
            table = wirescan.scan(group, package.formats[-1], errors=errors, check=check)
            for level in laws.list_tables(table):
                laws.places_are_in_their_frames(level)
                rows_are_bounded(level, len(group))
        for raw in group:
            end_well_in_strict_mode(package, raw, check)
        compared += len(group)
    assert compared, "there is nothing to scan"


def rows_are_bounded(table: FrameTable, streams: int) -> None:
    """A stream of n bytes, decompressed bytes included, has at most 2 * n + 1 rows."""
    rows_of_streams = np.zeros(streams, np.int64)
    bytes_of_streams = np.zeros(streams, np.int64)
    outermost = np.arange(len(table))
    for level in reversed(laws.list_tables(table)[1:]):
        outermost = level["parent"][outermost]
    stream = laws.list_tables(table)[0]["buffer"][outermost]
    np.add.at(rows_of_streams, stream, 1)
    bytes_of_streams += [len(buffer) for buffer in table.buffers[:streams]]
    for buffer, first in zip(*np.unique(table["buffer"], return_index=True)):
        if buffer >= streams:
            bytes_of_streams[stream[first]] += len(table.buffers[buffer])
    assert (rows_of_streams <= 2 * bytes_of_streams + 1).all()


def end_well_in_strict_mode(package: ProtocolPackage, raw: bytes, check: bool) -> None:
    try:
        table = wirescan.scan(raw, package.formats[-1], check=check)
    except FrameError as error:
        assert 0 <= error.offset <= len(raw), raw
        assert str(error), raw
        return
    for level in laws.list_tables(table):
        laws.places_are_in_their_frames(level)
        assert len(level) <= 2 * sum(map(len, level.buffers)) + 1, raw
