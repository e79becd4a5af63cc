"""Many small streams against the slow reference, read by one scan.

A scan of many buffers walks over each buffer on its own, as a scan of that buffer alone does.
Only the inner formats are opened for all buffers at once. One scan of many mutations therefore
checks as much as one scan for each of them.
"""
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np

import laws
import wirescan
from laws import Room
from wirescan import FrameError, FrameTable

STREAMS_PER_SCAN = 400
LIMITS = wirescan.Limits()


def replace_bytes(raw: bytes, values: Callable[[int], set[int]]) -> Iterator[bytes]:
    """Streams that differ from `raw` in one byte; `values` gives the new bytes for an old one."""
    for position, old in enumerate(raw):
        for new in sorted(values(old) - {old}):
            yield raw[:position] + bytes([new]) + raw[position + 1:]


def agree_with_the_reference(rooms: list[Room], streams: Iterable[bytes], check: bool = True, *,
                             outermost: Callable[[bytes], tuple] | None = None) -> None:
    """What `laws.agrees_with_the_reference` asserts, for each of many streams.

    rooms: formats that begin with the same outermost one and share one `expected` function.
    outermost: gives the rows, the fault and the position of the stop for a scan without a search
    after faults. It saves time where the function `expected` computes inner rows too.
    """
    assert len({(room.expected, room.formats[0]) for room in rooms}) == 1
    streams = iter(streams)
    compared = 0
    while some := list(islice(streams, STREAMS_PER_SCAN)):
        compare(rooms, some, check, outermost)
        compared += len(some)
    assert compared, "there is nothing to compare"


def compare(rooms: list[Room], streams: list[bytes], check: bool,
            outermost: Callable[[bytes], tuple] | None) -> None:
    expected = [rooms[0].expected(raw, check, True) for raw in streams]
    stops = [tuple(one[1:]) for one in expected]
    for room in rooms:
        table = wirescan.scan(streams, room.formats[-1], errors="mark", check=check)
        levels = laws.tables_of(table)
        assert [one.name for one in levels] == list(room.formats)
        assert [stop[:2] for stop in levels[0].stops] == stops
        want_rows, want_bytes = together([one[0] for one in expected], room.formats)
        found_rows = laws.levels_of(table)
        for depth, level in enumerate(levels, 1):
            found = laws.settled(found_rows[:depth], len(streams))
            if found != laws.settled(want_rows[:depth], len(streams)):
                compare_one_by_one(room, streams, check)
            assert laws.frames_of(level) == want_bytes[depth - 1], level.name
    for raw, truth in zip(streams, expected):
        if any(row["fault"] for row, _ in truth[0][rooms[0].formats[0]]):
            truth = outermost_truth(rooms[0], raw, check, outermost)
        else:                               # without a fault there is no search
            truth = [row for row, _ in truth[0][rooms[0].formats[0]]], *truth[1:]
        compare_without_search(rooms[0], raw, check, *truth)


def together(truths: list[dict[str, list]],
             formats: tuple[str, ...]) -> tuple[list[list[dict]], list[list[bytes]]]:
    """The rows of each format and their bytes, numbered as in one table of all streams.

    Stream i is buffer i. Rows in a decompressed buffer have the number of streams as their buffer.
    Windows of Lumberjack are counted over all streams; a truth has their number as "windows".
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
                frames[depth].append(bytes(data[row["start"]:row["start"] + row["size"]]))
        windows += truth.get("windows", 0)
    return rows, frames


def compare_one_by_one(room: Room, streams: list[bytes], check: bool) -> None:
    """Shows the stream that differs."""
    for raw in streams:
        try:
            laws.agrees_with_the_reference(room, raw, check)
        except AssertionError as error:
            raise AssertionError(f"{raw!r} differs from the reference: {error}") from error
    raise AssertionError("the streams agree with the reference one by one, but not in one scan")


def outermost_truth(room: Room, raw: bytes, check: bool,
                    outermost: Callable[[bytes], tuple] | None) -> tuple:
    """(rows, fault, position of the stop) of the outermost format for a scan without a search."""
    if outermost is not None:
        return outermost(raw)
    truth, fault, position = room.expected(raw, check, False)
    return [row for row, _ in truth[room.formats[0]]], fault, position


def compare_without_search(room: Room, raw: bytes, check: bool, want: list[dict], fault: int,
                           position: int) -> None:
    """A scan that ends at the first fault agrees with the reference."""
    rows, bad, *stop = wirescan.formats()[room.formats[0]].scan(raw, check, False, LIMITS)
    assert laws.plain_rows(rows) == want, raw
    assert (bad, *stop) == (sum(row["fault"] != 0 for row in want), fault, position), raw


def end_well(room: Room, streams: Iterable[bytes], check: bool = True) -> None:
    """What `laws.ends_well` asserts, for each of many streams."""
    streams = iter(streams)
    compared = 0
    while some := list(islice(streams, STREAMS_PER_SCAN)):
        for errors in ("mark", "skip"):
            table = wirescan.scan(some, room.formats[-1], errors=errors, check=check)
            for level in laws.tables_of(table):
                laws.places_lie_in_their_frames(level)
                rows_are_bounded(level, len(some))
        for raw in some:
            end_well_in_strict_mode(room, raw, check)
        compared += len(some)
    assert compared, "there is nothing to scan"


def rows_are_bounded(table: FrameTable, streams: int) -> None:
    """A stream has at most two rows for each of its bytes, decompressed ones included, and one more."""
    rows_of_streams = np.zeros(streams, np.int64)
    bytes_of_streams = np.zeros(streams, np.int64)
    outermost = np.arange(len(table))
    for level in reversed(laws.tables_of(table)[1:]):
        outermost = level["parent"][outermost]
    stream = laws.tables_of(table)[0]["buffer"][outermost]
    np.add.at(rows_of_streams, stream, 1)
    bytes_of_streams += [len(buffer) for buffer in table.buffers[:streams]]
    for buffer, first in zip(*np.unique(table["buffer"], return_index=True)):
        if buffer >= streams:
            bytes_of_streams[stream[first]] += len(table.buffers[buffer])
    assert (rows_of_streams <= 2 * bytes_of_streams + 1).all()


def end_well_in_strict_mode(room: Room, raw: bytes, check: bool) -> None:
    try:
        table = wirescan.scan(raw, room.formats[-1], check=check)
    except FrameError as error:
        assert 0 <= error.offset <= len(raw) and str(error), raw
        return
    for level in laws.tables_of(table):
        laws.places_lie_in_their_frames(level)
        assert len(level) <= 2 * sum(map(len, level.buffers)) + 1, raw
