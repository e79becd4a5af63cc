"""The records that `wirescan produce` writes: from lines of text, JSON lines and segments.

A reader has the method `read(path, progress)`, which yields `RecordBlock`s, and counts what it
reads.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from wirescan.cli.exit_codes import Damage, Failure
from wirescan.cli.file_ends import describe_tail
from wirescan.cli.format_command import DEFAULT_FORMAT
from wirescan.cli.input import is_pipe, read_input, read_part
from wirescan.cli.output import format_path, print_message
from wirescan.cli.support.line_blocks import iter_line_blocks
from wirescan.cli.support.row_choice import RowChooser
from wirescan.cli.support.selection import FilePart, Selection, parse_partition
from wirescan.files.source import read_ahead
from wirescan.frames.errors import make_frame_error
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.frames.value_text import decode, show_bytes
from wirescan.kafka.log.transactions import (
    STEP,
    committed,
    find_transactions,
    list_transaction_steps,
)
from wirescan.reading.chunked import scan_outermost
from wirescan.reading.filters import check_filters
from wirescan.reading.nested_groups import open_nested

PIECE = 4 << 20  # bytes read at a time
SHOWN_BYTES = 40  # of a bad line
TIME_END = 1 << 63  # milliseconds; times are below
PARTITION_END = 1 << 31
NANOSECONDS = 1_000_000  # in a millisecond
Headers = list[tuple[bytes, bytes | None]]


@dataclass(frozen=True)
class RecordBlock:
    """Records that are written together.

    Attributes:
        count: how many.
        columns: the arguments of `Client.send` with the records.
        partition: a number, or an array with one for each record; None lets a partitioner choose.
        log: the directory of the segment; None for lines.
        offsets: the offset of each record in its segment; None for lines.
    """

    count: int
    columns: Mapping[str, Any]
    partition: Any = None
    log: str | None = None
    offsets: np.ndarray | None = None


class LineRecord(NamedTuple):
    """A record that a line describes. A time or a partition of None is not given."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None = None
    partition: int | None = None


@dataclass
class ReadCounts:
    """What a reader has read so far.

    Attributes:
        bytes: all bytes of the files.
        faults: bad frames or lines that were dropped.
        excluded: batches that are not written because of transactions: markers, and
            data of transactions that were aborted or have no end.
    """

    bytes: int = 0
    faults: int = 0
    excluded: int = 0


@dataclass
class LineReader:
    """Reads a record from each line. Empty lines are ignored.

    Args:
        parse: returns the record of a line, or None for no record; raises ValueError.
        errors: "strict" raises Damage for a bad line, after the records before it; "skip" drops it.
    """

    parse: Callable[[bytes], LineRecord | None]
    errors: str
    counts: ReadCounts = field(default_factory=ReadCounts)

    def read(self, path: str, progress: Callable[[int], None]) -> Iterator[RecordBlock]:
        """Yield the records of a file. Raises Damage for a bad line, OSError."""
        pieces = read_input(path, _count(self.counts, progress), PIECE)
        for lines in iter_line_blocks(path, pieces):
            records: list[LineRecord] = []
            error = None
            for number, line in lines:
                try:
                    record = self.parse(line) if line else None
                except (ValueError, RecursionError) as reason:
                    if self.errors == "strict":
                        shown = show_bytes(line[:SHOWN_BYTES])
                        error = f"{format_path(path)}: line {number:,}: {reason}: {shown}"
                        break
                    self.counts.faults += 1
                    continue
                if record is not None:
                    records.append(record)
            for _, run in groupby(records, lambda record: record.partition is None):
                yield make_block(list(run))
            if error is not None:
                raise Damage(error)


def make_block(records: Sequence[LineRecord]) -> RecordBlock:
    """Return records as one block. All of them have a partition, or none has."""
    now = time.time_ns() // NANOSECONDS
    headers = [header for record in records for header in record.headers]
    columns: dict[str, Any] = {
        "keys": [record.key for record in records],
        "values": [record.value for record in records],
        "timestamps": np.array(
            [now if record.timestamp is None else record.timestamp for record in records], np.int64
        ),
    }
    if headers:
        counts = np.array([len(record.headers) for record in records])
        columns["headers"] = (
            counts,
            [name for name, _ in headers],
            [value for _, value in headers],
        )
    partition = None
    if records[0].partition is not None:
        partition = np.array([record.partition for record in records])
    return RecordBlock(len(records), columns, partition)


def parse_text_line(line: bytes, key_separator: bytes | None, headers: Headers) -> LineRecord:
    """Return the record of a line of text.

    key_separator: ends the key. A line without it has no key. None: no line has one.
    headers: of the record.
    """
    if key_separator is not None and key_separator in line:
        key, _, value = line.partition(key_separator)
        return LineRecord(key, value, headers)
    return LineRecord(None, line, headers)


def parse_json_line(line: bytes, encodings: Mapping[str, str]) -> LineRecord | None:
    """Return the record of a line of `wirescan scan --json`; None for a control record.

    encodings: of the columns "key", "value" and "headers".

    Raises ValueError for any other line.
    """
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("a record is a JSON object")
    if fields.get("fault") is not None:
        raise ValueError("the frame was bad")
    if "value" not in fields:
        raise ValueError('there is no "value"; null has to be written')
    if fields.get("is_control") is True:
        return None
    pairs = fields.get("headers") or []
    if not isinstance(pairs, list) or not all(isinstance(pair, dict) for pair in pairs):
        raise ValueError('"headers" is no list of objects')
    headers = []
    for pair in pairs:
        name = _decode(pair, "key", encodings["headers"])
        if name is None:
            raise ValueError("a header has no key")
        headers.append((name, _decode(pair, "value", encodings["headers"])))
    return LineRecord(
        _decode(fields, "key", encodings["key"]),
        _decode(fields, "value", encodings["value"]),
        headers,
        _get_number(fields, "timestamp", TIME_END),
        _get_number(fields, "partition", PARTITION_END),
    )


def _decode(fields: Mapping[str, Any], name: str, encoding: str) -> bytes | None:
    """Return the bytes of a field. Raises ValueError for anything but text and null."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f'"{name}" is neither text nor null')
    try:
        return decode(value, encoding)
    except ValueError:
        raise ValueError(f'"{name}" is no text in {encoding}') from None


def _get_number(fields: Mapping[str, Any], name: str, end: int) -> int | None:
    """Return a field; None if it is null or missing. Raises ValueError if it is out of range."""
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < end:
        raise ValueError(f'"{name}" is no number from 0 to {end - 1}')
    return value


class RestoreReader:
    """Reads the records of segments, in order, without those of transactions that did not commit.

    The files of a log are read twice: the end of a transaction may be in a later file.

    Args:
        files: all files of the logs. Those that are read are in the attribute `files`.
        errors: "strict" raises an error for a bad frame, after the records before it; "skip" drops
            it.
        keeps_partitions: write each record to the partition that its directory is named after.
        selection: the records to read.
        next_offsets: log -> the offset to begin at. Other logs are read from their start.
        most: records in a block, at most; None: no bound.

    Attributes:
        files: the files that may hold selected records, in order.
        counts: what was read.
    """

    def __init__(
        self,
        files: Sequence[str],
        errors: str,
        *,
        keeps_partitions: bool,
        selection: Selection,
        next_offsets: Mapping[str, int],
        most: int | None = None,
    ):
        self._format: Format = format_of(DEFAULT_FORMAT)
        self._errors = errors
        self._keeps_partitions = keeps_partitions
        self._selection = selection
        self._chooser = RowChooser(selection, "skip")
        self._next_offsets = next_offsets
        self._most = most
        self.counts = ReadCounts()
        self._logs: dict[str, list[str]] = {}  # directory -> its files
        self._excluded: dict[str, np.ndarray] = {}  # directory -> transactions
        for path in files:
            self._logs.setdefault(get_directory(path), []).append(path)
        unfinished = {path for log in self._logs for path in self._select_unfinished(log)}
        self.files = [path for path in selection.select_files(files) if path in unfinished]
        for path in self.files:
            if keeps_partitions and parse_partition(path) is None:
                raise Failure(
                    f"{format_path(path)} is in no directory named TOPIC-N: choose with "
                    "--partition or --partitioner"
                )

    def read(self, path: str, progress: Callable[[int], None]) -> Iterator[RecordBlock]:
        """Yield the records of a file.

        Raises:
            FrameError: for a bad frame.
            Failure: for transactions in standard input or a pipe, which cannot be read twice.
            OSError: if the file cannot be read.
        """
        log = get_directory(path)
        selection = self._select_rest(log)
        part = None if self._chooser.is_done else selection.find_part(path, Limits())
        if part is None:
            return
        options: dict[str, Any] = {"errors": "mark", "source": path}
        if log not in self._excluded:
            self._excluded[log] = self._find_excluded(self._logs[log])
        pieces = self._read_pieces(part, _count(self.counts, progress))
        for table in scan_outermost(pieces, self._format.outermost, offset=part.start, **options):
            if is_stream(path) and len(list_transaction_steps(table)):
                raise Failure(f"{format_path(path)} holds transactions: write it to a file first")
            frames = selection.prune(table, path)
            batches = committed(frames, self._excluded[log])
            self.counts.excluded += len(frames) - len(batches)
            for records in open_nested(batches, self._format, **options):
                yield from self._apply_mode(records, path)
                if self._chooser.is_done:
                    return
        if part.stop is None and (tail := describe_tail(table, path)):
            print_message(f"wirescan: {tail}, dropped")

    def _select_rest(self, log: str) -> Selection:
        """Return the selection of the records of a log that earlier runs did not write."""
        next_offset = self._next_offsets.get(log, 0)
        if not next_offset:
            return self._selection
        condition = check_filters([("offset", ">=", next_offset)], self._format)
        return replace(self._selection, conditions=(*self._selection.conditions, *condition))

    def _select_unfinished(self, log: str) -> list[str]:
        """Return the files of a log that may hold records to write, by their names."""
        return replace(self._select_rest(log), partitions=None).select_files(self._logs[log])

    def _read_pieces(self, part: FilePart, advance: Callable[[int], None]) -> Iterator[memoryview]:
        """Yield the bytes of a part of a file."""
        if (part.start, part.stop) == (0, None):
            return read_input(part.path, advance, PIECE)
        return read_part(part.path, part.start, part.stop, advance)

    def _find_excluded(self, paths: Iterable[str]) -> np.ndarray:
        """Return the transactions of a log that were aborted or have no end."""
        steps = [
            list_transaction_steps(table)
            for path in read_ahead(paths)
            if not is_stream(path)
            for table in scan_outermost(
                read_input(path, size=PIECE), self._format.outermost, errors="mark", check=False
            )
        ]
        found = find_transactions(np.concatenate([np.empty(0, STEP), *steps]))
        return np.concatenate([found.aborted, found.open])

    def _apply_mode(self, records: FrameTable, path: str) -> Iterator[RecordBlock]:
        """Yield the selected good records of a table, and raise or count the others."""
        error = None
        if self._errors == "strict" and records.bad.any():
            row = int(records.bad.argmax())
            error = make_frame_error(records, row)
            error.source = path
            records = records[:row]
        self.counts.faults += int(np.count_nonzero(records.bad))
        log = get_directory(path)
        if next_offset := self._next_offsets.get(log, 0):
            records = records.where(records["offset"] >= next_offset)
        records = records[self._chooser.choose(records, path)]
        partition = parse_partition(path) if self._keeps_partitions else None
        step = self._most or max(len(records), 1)
        for first in range(0, len(records), step):
            block = records[first : first + step]
            yield RecordBlock(len(block), _make_columns(block), partition, log, block["offset"])
        if error is not None and not self._chooser.is_done:
            raise error


def _make_columns(records: FrameTable) -> dict[str, Any]:
    """Return the columns of a table of records as arguments of `Client.send`."""
    columns: dict[str, Any] = {
        "keys": (records, "key"),
        "values": (records, "value"),
        "timestamps": records["timestamp"],
    }
    if records["header_count"].any():
        headers = records.open("headers")
        columns["headers"] = (records["header_count"], (headers, "key"), (headers, "value"))
    return columns


def is_stream(path: str) -> bool:
    """Return whether a path can be read only once."""
    return path == "-" or is_pipe(path)


def get_directory(path: str) -> str:
    """Return the directory of a file, whose files are one log."""
    return path if path == "-" else os.path.dirname(os.path.abspath(path))


def _count(counts: ReadCounts, progress: Callable[[int], None]) -> Callable[[int], None]:
    """Return a function that counts bytes, and passes them on."""

    def advance(count: int) -> None:
        counts.bytes += count
        progress(count)

    return advance
