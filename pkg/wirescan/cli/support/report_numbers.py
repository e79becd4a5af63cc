"""The numbers of `wirescan report`, gathered while the frames are read once.

Memory is bounded: each map, histogram and list has a largest size. report_page.py renders them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wirescan.cli.output import name_path
from wirescan.cli.support.finding_printer import Line
from wirescan.cli.support.latencies import SHOWN_GROUPS
from wirescan.cli.support.report_sample import CodecSample, WhatIf
from wirescan.cli.support.tally import (
    Tally,
    count_piece,
    find_counted_format,
    has_time,
    measure_frames,
)
from wirescan.cli.support.verifier import Verifier
from wirescan.core.fault import Fault
from wirescan.core.gather import Places
from wirescan.export.sketches import FrequentValues
from wirescan.frames.columns import UNITS
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.reading.allowance import Allowance
from wirescan.reading.nested_groups import open_nested

MAX_FILES = 200  # files that have a map and counts of their own
MAX_FAULTS = 500  # faults that a report lists
MAX_FINDINGS = 200  # findings of `wirescan verify` that a report lists
MAX_DIRECTORIES = 200  # directories that a report lists
MAX_LATENCIES = 200  # APIs, methods or subjects whose latencies a report lists
MAX_KEYS = 20  # keys that a report lists
NEAR = 64  # bytes that are shown from the start of a fault
KEY_BYTES = 64  # bytes of a key that are shown
MAP_BUCKETS = 512  # buckets in the map of a file
TIME_BUCKETS = 256  # buckets of the rate over time
SIZE_BUCKETS = 65  # one for each number of bits of a size

GOOD = "good"
NO_CODEC = "none"  # the name of the codec of frames that are not compressed
NOT_COMPRESSED = "not compressed"
BAD_CHECKSUM = "bad checksum"
OTHER_DAMAGE = "other damage"
NO_FRAME = "no frame"  # bytes between damage and the next frame
TAILS: dict[int, str] = {Fault.SHORT: "cut tail", Fault.ZEROS: "zeros", Fault.FILLER: "filler"}


@dataclass(frozen=True)
class ListedFault:
    """A fault of an outermost frame: `position` and `size` are bytes in the file."""

    file: str
    fault: str
    position: int
    size: int
    near: str  # the first bytes, as hexadecimal digits


@dataclass(frozen=True)
class FileMap:
    """What covers a file.

    Bucket i is `width` bytes from byte `i * width` on. `buckets` has the category that covers most
    of each bucket, as its place in `bytes`. `bytes` has the exact bytes of each category.
    """

    file: str
    width: int
    buckets: list[int]
    bytes: dict[str, int]


@dataclass(frozen=True)
class TimeBucket:
    """The records from `start` (milliseconds since 1970) until the start of the next bucket."""

    start: int
    records: int


@dataclass(frozen=True)
class SizeBucket:
    """The number of good frames of `low` to `high` bytes."""

    low: int
    high: int
    frames: int


@dataclass(frozen=True)
class FrequentKey:
    """A key, and its number of records: at least `count`, at most `count` + `error`."""

    key: str  # the first bytes, as hexadecimal digits
    count: int
    error: int


@dataclass
class DirectoryCounts:
    """The files, bytes and records in a directory; for a partition that is its share."""

    directory: str
    files: int = 0
    bytes: int = 0
    records: int = 0


@dataclass
class ReportData:
    """What a report shows. Each list is bounded, and a number has the true total.

    counted: what the counts over time and of directories are of: "records", or "frames" where
        frames do not state their records, or "exchanges".
    has_maps: whether the frames have positions in the files. Those of captures have not.
    key_column: the column of the frequent keys.
    """

    format: str
    deep: bool
    counted: str = "records"
    key_column: str = "key"
    has_maps: bool = True
    total: dict[str, Any] = field(default_factory=dict)
    files: list[dict[str, Any]] = field(default_factory=list)
    file_count: int = 0
    maps: list[FileMap] = field(default_factory=list)
    time_width: int = 0  # milliseconds in a bucket of `rate`
    rate: list[TimeBucket] = field(default_factory=list)
    sizes: list[SizeBucket] = field(default_factory=list)
    latency_count: int = 0  # groups in `total["latency"]`, where the largest ones are listed
    findings: list[dict[str, Any]] = field(default_factory=list)
    finding_count: int = 0
    verified: dict[str, Any] = field(default_factory=dict)  # the summary of `wirescan verify`
    codecs: dict[str, dict[str, int]] = field(default_factory=dict)
    what_if: list[WhatIf] = field(default_factory=list)
    keys: list[FrequentKey] = field(default_factory=list)
    key_total: int = 0  # records with a key
    directories: list[DirectoryCounts] = field(default_factory=list)
    directory_count: int = 0
    faults: list[ListedFault] = field(default_factory=list)
    fault_count: int = 0


class ByteMap:
    """Which category covers most bytes of each bucket of a file, whose size need not be known.

    Buckets begin with a width of one byte. When the file outgrows them, the width doubles, and
    pairs of buckets become one.
    """

    def __init__(self) -> None:
        self._width = 1
        self._bytes: dict[str, np.ndarray] = {}  # category -> i8 bytes in each bucket

    def add(self, category: str, starts: np.ndarray, sizes: np.ndarray) -> None:
        """Count ranges of a file that a category covers.

        Args:
            category: its name.
            starts: i8 array, byte positions in the file.
            sizes: i8 array, bytes.
        """
        starts = starts[sizes > 0]
        stops = starts + sizes[sizes > 0]
        if not len(starts):
            return
        self._grow(int(stops.max()))
        width = self._width
        first = starts // width
        last = (stops - 1) // width
        is_split = last > first
        covered = self._bytes.setdefault(category, np.zeros(MAP_BUCKETS, np.int64))
        # The first and the last bucket of a range are covered in part, those between as a whole.
        np.add.at(covered, first, np.minimum(stops, (first + 1) * width) - starts)
        np.add.at(covered, last[is_split], (stops - last * width)[is_split])
        steps = np.zeros(MAP_BUCKETS + 1, np.int64)
        np.add.at(steps, first[is_split] + 1, 1)
        np.add.at(steps, last[is_split], -1)
        covered += width * np.cumsum(steps)[:MAP_BUCKETS]

    def _grow(self, stop: int) -> None:
        while stop > MAP_BUCKETS * self._width:
            self._width *= 2
            for name, covered in self._bytes.items():
                halves = covered.reshape(-1, 2).sum(axis=1)
                self._bytes[name] = np.concatenate([halves, np.zeros_like(halves)])

    def make_map(self, file: str) -> FileMap:
        """Return the map of the bytes that were added."""
        names = sorted(self._bytes)
        if not names:
            return FileMap(file, self._width, [], {})
        covered = np.stack([self._bytes[name] for name in names])
        used = covered[:, : int(np.flatnonzero(covered.sum(axis=0))[-1]) + 1]
        totals = {name: int(row.sum()) for name, row in zip(names, covered)}
        return FileMap(file, self._width, used.argmax(axis=0).tolist(), totals)


class RecordRate:
    """Records over time, in at most `TIME_BUCKETS` buckets whose width is a power of two.

    The width doubles when the range of times outgrows the buckets.
    """

    def __init__(self) -> None:
        self._shift = 0  # log2 of the width in milliseconds
        self._records: Counter[int] = Counter()

    @property
    def width(self) -> int:
        """Milliseconds in a bucket."""
        return 1 << self._shift

    def add(self, times: np.ndarray, records: np.ndarray) -> None:
        """Count records at times (i8 array, milliseconds since 1970)."""
        if not len(times):
            return
        ends = [*self._records, *[int(end) >> self._shift for end in (times.min(), times.max())]]
        low, high = min(ends), max(ends)
        widening = 0
        while (high >> widening) - (low >> widening) >= TIME_BUCKETS:
            widening += 1
        self._shift += widening
        merged: Counter[int] = Counter()
        for number, count in self._records.items():
            merged[number >> widening] += count
        numbers, where = np.unique(times >> self._shift, return_inverse=True)
        counts = np.zeros(len(numbers), np.int64)
        np.add.at(counts, where, records)
        merged.update(dict(zip(numbers.tolist(), counts.tolist())))
        self._records = merged

    def list_buckets(self) -> list[TimeBucket]:
        """Return the buckets from the first to the last one with records."""
        if not self._records:
            return []
        numbers = range(min(self._records), max(self._records) + 1)
        return [TimeBucket(number << self._shift, self._records[number]) for number in numbers]


class ReportNumbers:
    """Gathers the numbers of a report.

    Call `start_file`, then `add_piece` for each piece, then `end_file`; at last `finish`.

    Args:
        format: the outermost format of the files.
        fail: takes messages about files beside a log that cannot be read.
        check: checksums are verified.
        deep: also read what is inside the frames.
        limits: for reading.
    """

    def __init__(
        self,
        format: Format,
        fail: Callable[[str], None],
        *,
        check: bool,
        deep: bool,
        limits: Limits,
    ) -> None:
        self.total = Tally(format)
        self._format = format
        self._inner = find_counted_format(format) if deep else None
        counted = "frames" if format.display.record_count is None else "records"
        if format.display.summary.latency is not None:
            counted = "exchanges"
        has_maps = format.make_reader is None
        self._data = ReportData(format.name, deep, counted, has_maps=has_maps)
        if self._inner is not None and self._inner.display.grouped_by is not None:
            self._data.key_column = self._inner.display.grouped_by
        self._options: dict[str, Any] = {"errors": "mark", "check": check, "limits": limits}
        self._verifier = Verifier(
            format,
            fail,
            check=check,
            deep=deep,
            log_only=False,
            as_json=True,
            limits=limits,
            write=self._add_finding,
        )
        self._rate = RecordRate()
        self._sizes = np.zeros(SIZE_BUCKETS, np.int64)
        self._keys = FrequentValues()
        self._sample = CodecSample()
        self._directories: dict[str, DirectoryCounts] = {}

    @property
    def damage(self) -> int:
        """The number of findings that are damage."""
        return self._verifier.damage

    @property
    def allowance(self) -> Allowance:
        """What the file in progress may expand to. Read the file with it."""
        return self._verifier.allowance

    def start_file(self, path: str) -> None:
        """Announce that the next pieces are those of another file."""
        # Frames are opened twice, here and by the verifier, so each has an allowance.
        self._allowance = Allowance(self._options["limits"])
        self._path = path
        self._tally = Tally(self._format)
        self._map = ByteMap()
        for tally in (self._tally, self.total):
            tally.start_file(path)
        self._verifier.start_file(path)

    def add_piece(self, piece: FrameTable) -> None:
        """Count the next outermost frames of the file, and with `deep` what is inside them."""
        opened: Iterable[FrameTable] = ()
        if self._inner is not None:
            self._allowance.copy_read(self._verifier.allowance)
            nested = open_nested(piece, self._inner, allowance=self._allowance, **self._options)
            opened = map(self._count_inside, nested)  # one group is opened at a time
        count_piece([self._tally, self.total], piece, opened)
        self._verifier.verify_frames(piece)
        if self._data.has_maps:
            self._map_piece(piece)
        self._list_faults(piece)
        good = piece.where(~piece.bad)
        records = _count_records(good)
        self._sizes += np.bincount(np.frexp(measure_frames(good))[1], minlength=SIZE_BUCKETS)
        directory = os.path.dirname(self._path)
        if directory not in self._directories:
            self._directories[directory] = DirectoryCounts(directory)
        self._directories[directory].records += int(records.sum())
        self._count_rate(good, records)

    def end_file(self, last: FrameTable) -> None:
        """Count a file that ended; `last` is the last piece of it."""
        size = last.origins[0] + len(last.buffers[0])
        fault = last.stop.fault
        for tally in (self._tally, self.total):
            tally.end_file(size, fault, len(last.tail))
        self._verifier.end_file(last)
        remaining = np.array([len(last.tail)], np.int64)
        category = TAILS.get(fault, OTHER_DAMAGE)
        self._map.add(category, size - remaining, remaining)
        counts = self._directories[os.path.dirname(self._path)]
        counts.files += 1
        counts.bytes += size
        data = self._data
        data.file_count += 1
        if len(data.files) < MAX_FILES:
            summary = self._tally.make_summary()
            _keep_largest_groups(summary, SHOWN_GROUPS)
            data.files.append({"file": name_path(self._path), **summary})
            if data.has_maps:
                data.maps.append(self._map.make_map(self._path))

    def finish(self) -> ReportData:
        """Return the numbers of all files."""
        data = self._data
        self._verifier.end_log()
        self._verifier.print_summary()
        data.total = self.total.make_summary()
        data.latency_count = len(data.total.get("latency", {}))
        _keep_largest_groups(data.total, MAX_LATENCIES)
        data.codecs = data.total.get("codecs", {})
        data.time_width = self._rate.width
        data.rate = self._rate.list_buckets()
        data.sizes = _list_sizes(self._sizes)
        data.what_if = self._sample.list_results()
        data.key_total = self._keys.total
        data.keys = [
            FrequentKey(value.hex(), count, self._keys.error)
            for value, count in self._keys.list_values()[:MAX_KEYS]
        ]
        by_size = sorted(self._directories.values(), key=lambda counts: -counts.bytes)
        data.directories = by_size[:MAX_DIRECTORIES]
        data.directory_count = len(by_size)
        return data

    def _add_finding(self, line: Line) -> None:
        """Keep a line of `wirescan verify --json`."""
        assert isinstance(line, dict)  # the verifier writes JSON
        if line["kind"] == "summary":
            self._data.verified = line
        elif line["kind"] != "file":
            self._data.finding_count += 1
            if len(self._data.findings) < MAX_FINDINGS:
                self._data.findings.append(line)

    def _map_piece(self, piece: FrameTable) -> None:
        """Add the frames of a piece to the map of the file."""
        positions = piece.positions
        sizes = piece["size"].astype(np.int64)
        faults = piece["fault"]
        columns = self._format.display.summary
        is_good = faults == 0
        special = columns.flags[0] if columns.flags else None
        is_gap = faults >= Fault.BAD_LENGTH
        parts = {
            BAD_CHECKSUM: faults == Fault.BAD_CHECKSUM,
            NO_FRAME: is_gap,
            OTHER_DAMAGE: ~is_good & ~is_gap & (faults != Fault.BAD_CHECKSUM),
        }
        if special is not None:
            parts[special.removeprefix("is_")] = is_good & (piece[special] != 0)
            is_good = is_good & (piece[special] == 0)
        if columns.codec is None:
            parts[GOOD] = is_good
        else:
            codecs = piece[columns.codec]
            names = self._format.get_column(columns.codec)
            for number in np.unique(codecs[is_good]).tolist():
                name = names.name_number(number)
                label = NOT_COMPRESSED if name == NO_CODEC else name
                parts[f"{GOOD}, {label}"] = is_good & (codecs == number)
        for category, rows in parts.items():
            self._map.add(category, positions[rows], sizes[rows])

    def _count_rate(self, good: FrameTable, records: np.ndarray) -> None:
        """Count the records of good frames by the last time that each frame has."""
        timed = [(n, column.unit) for n, column in self._format.columns.items() if column.unit]
        is_counted = np.zeros(len(good), bool)
        for name, unit in reversed(timed) if len(good) else ():
            rows = has_time(good, name) & ~is_counted
            is_counted |= rows
            times = good[name][rows] // (UNITS[unit] // UNITS["ms"])
            self._rate.add(times, records[rows])

    def _count_inside(self, inner: FrameTable) -> FrameTable:
        """Count the keys of opened frames, and take a sample of their bytes."""
        name = inner.format.display.grouped_by
        if name in inner.places:
            good = inner.where(~inner.bad & (inner[f"{name}_size"] >= 0))
            if len(good):
                offsets, block = Places(good, str(name)).gather(large=True)
                self._keys.add(offsets, np.asarray(block, np.uint8), KEY_BYTES)
        if self._format.display.summary.codec is not None:
            self._sample.add(inner)
        return inner

    def _list_faults(self, piece: FrameTable) -> None:
        """List the faults of a piece, until `MAX_FAULTS` are listed."""
        bad = piece.where(piece.bad)
        faults = self._data.faults
        self._data.fault_count += len(bad)
        listed = bad[: MAX_FAULTS - len(faults)]
        for row, position in zip(listed.rows, listed.positions.tolist()):
            buffer, start, size = int(row["buffer"]), int(row["start"]), int(row["size"])
            near = bytes(piece.buffers[buffer][start : start + min(size, NEAR)])
            name = bad.describe_fault(int(row["fault"])).name
            faults.append(ListedFault(self._path, name, position, size, near.hex()))


def _keep_largest_groups(summary: dict[str, Any], most: int) -> None:
    """Remove the latencies of all groups but the largest ones from a summary of a `Tally`."""
    if "latency" in summary:
        summary["latency"] = dict(list(summary["latency"].items())[:most])


def _count_records(good: FrameTable) -> np.ndarray:
    """Return the records in each good frame (i8): 1 where the frame does not state it."""
    counted = good.format.display.record_count
    if counted is None:
        return np.ones(len(good), np.int64)
    stated = good[counted].astype(np.int64)
    return np.where(stated < 0, 1, stated)


def _list_sizes(counts: np.ndarray) -> list[SizeBucket]:
    """Return the buckets from the first to the last one with frames."""
    bits = np.flatnonzero(counts)
    if not len(bits):
        return []
    return [
        SizeBucket((1 << n) >> 1, (1 << n) - 1, int(counts[n]))
        for n in range(int(bits[0]), int(bits[-1]) + 1)
    ]
