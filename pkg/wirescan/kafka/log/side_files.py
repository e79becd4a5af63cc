"""The files beside the segments of a Kafka partition: they must be whole and agree with the log.

`.index`, `.timeindex` and `.txnindex` belong to a segment, `.snapshot` files to the log. They also
state how far a log has reached, where the end of its segments is lost.

The files may be objects in a store. In the layout of Aiven's plugin they are parts of the .indexes
of a segment, which its .rsm-manifest describes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from wirescan.core.fault import Fault
from wirescan.files.source import (
    URL,
    exists,
    get_file_name,
    get_size,
    get_stored_stamp,
    make_sibling_path,
)
from wirescan.files.translated import find_translator
from wirescan.frames.errors import FrameError
from wirescan.frames.logs import OFFSET_END, Finding, LogState, Reach, SideFiles
from wirescan.frames.table import FrameTable
from wirescan.kafka.files import (
    SEGMENTS,
    is_aiven,
    list_snapshots,
    list_tiered_snapshots,
    parse_directory_name,
)
from wirescan.kafka.log import index_files
from wirescan.kafka.log.transactions import (
    ABORT,
    DATA,
    STEP,
    find_transactions,
    list_transaction_steps,
)
from wirescan.seglog.index_entries import read_entries

MISSING = "MISSING_FILE"
DISAGREES = "INDEX_MISMATCH"
# The end of a log with more bytes than these must have an entry. A broker adds one every 4 KiB, but
# at most one each time it appends, and a follower may append 1 MiB at a time.
MAX_WITHOUT_ENTRY = 2 << 20
# A broker adds an entry to .timeindex together with one to .index. It adds an entry to .timeindex
# alone only when it stops or closes the segment. So only a few entries of .timeindex are after the
# last one of .index. More of them than this number are damage, if that part of the log is so long
# that restarts of a broker do not explain them.
MAX_TIMES_WITHOUT_OFFSET = 32
INDEX_INTERVAL = 4096  # bytes of the log between two entries: the default of index.interval.bytes
INDEXES = {
    "index": index_files.OFFSET_INDEX,
    "timeindex": index_files.TIME_INDEX,
    "txnindex": index_files.ABORTED_INDEX,
}
# The files that belong to a segment: its indexes, and what Aiven's plugin writes last.
KINDS_OF_SEGMENTS = {*INDEXES, "rsm-manifest"}
# The objects that Aiven's plugin stores beside the chunks of a segment.
AIVEN_OBJECTS = (".indexes", ".rsm-manifest")
# The column of the last log offset that an entry states.
OFFSETS = {"index": "offset", "timeindex": "offset", "txnindex": "last_offset"}
# An index is missing if its log has files with one of these endings.
COMPANIONS = {
    "index": (".index", ".timeindex", ".snapshot"),
    "timeindex": (".timeindex", ".snapshot"),
}
CHECKPOINTS = ("replication-offset-checkpoint", "recovery-point-offset-checkpoint")


def _read(path: str, kind: str) -> tuple[np.ndarray | None, Finding | None]:
    """Return the entries of an index, or what is wrong with it. Raises OSError."""
    try:
        return read_entries(path, INDEXES[kind]), None
    except FrameError as error:
        return None, _report_damage(path, error)
    except FileNotFoundError:
        if not is_aiven(path):
            raise
        return None, _report_no_indexes(path)


def _report_no_indexes(path: str) -> Finding:
    """Return the finding for a segment of Aiven's plugin without the object of its indexes."""
    meaning = "the .indexes of the segment are missing"
    return Finding(make_sibling_path(path, ".indexes"), 0, 0, MISSING, meaning)


def _report_damage(path: str, error: FrameError) -> Finding:
    """Return the finding for a fault in an index or a snapshot."""
    fault = Fault(error.fault)
    meaning = error.meaning.meaning
    ending = os.path.splitext(get_file_name(error.source or ""))[1]
    if is_aiven(path) and ending in AIVEN_OBJECTS:
        path = make_sibling_path(path, ending)
        size, _ = get_stored_stamp(path)
    else:
        size = get_size(path)
    return Finding(path, error.offset, size - error.offset, fault.name, meaning, error.near)


def _make_path(log: LogState, name: str) -> str:
    """Return the path or URL of a file of a log."""
    return f"{log.prefix}{name}{log.options}"


@dataclass(frozen=True)
class Listing:
    """What the checks of all segments of a log need to know of its directory.

    names: of its files; None if it cannot be listed. endings: those of COMPANIONS that its files
    have. newest: the largest base offset of a segment; -1 without one.
    """

    names: frozenset[str] | None
    endings: frozenset[str]
    newest: int


@dataclass
class Memory:
    """What the check of a segment keeps for the next one.

    first_offsets: producer -> first offset of its open transaction. listing: of the directory; None
    before the first segment.
    """

    first_offsets: dict[int, int] = field(default_factory=dict)
    listing: Listing | None = None


def _list_directory(log: LogState) -> Listing:
    """Return the listing of a log, which is made once for all its segments."""
    memory: Memory = log.memory
    if memory.listing is None:
        names = None if log.names is None else frozenset(log.names)
        endings = {ending for endings in COMPANIONS.values() for ending in endings}
        present = {
            ending for ending in endings if any(name.endswith(ending) for name in names or ())
        }
        newest = max(log.bases or (), default=-1)
        memory.listing = Listing(names, frozenset(present), newest)
    return memory.listing


class SegmentIndexes:
    """Compares the indexes of one segment with its batches.

    Call `check_frames` with the batches in their order, then `end`. Both yield findings.

    path: of the segment. log: the state of its log. Raises OSError.
    """

    def __init__(self, path: str, log: LogState):
        self._log = log
        self._listing = _list_directory(log)
        self._paths = {kind: make_sibling_path(path, f".{kind}") for kind in INDEXES}
        self._entries: dict[str, np.ndarray] = {}
        self._broken: list[Finding] = []
        self._existing = {kind for kind in INDEXES if self._exists(kind)}
        for kind in sorted(self._existing):
            entries, finding = _read(self._paths[kind], kind)
            if finding is not None and finding not in self._broken:
                self._broken.append(finding)
            if entries is not None:
                self._entries[kind] = entries
        # Each table of batches searches these arrays. A search in a column of an array of entries
        # copies the column.
        self._positions = self._copy_column("index", "position")
        self._offsets_of_times = self._copy_column("timeindex", "offset")
        # Transactions that an abort marker of the segment ends: arrays of dtype SPAN.
        self._aborted: list[np.ndarray] = []
        self._markers: set[tuple[int, int]] = set()  # (producer, offset) of these markers
        self._last = 0  # position of the last batch
        self._size = 0  # position after the last batch
        self._is_old = self._listing.newest > log.verified[-1]
        self._damaged = False
        self._largest_time = -1  # of the good batches, in milliseconds; -1 for none
        self._wrong_times: set[int] = set()  # reported entries of .timeindex

    def _exists(self, kind: str) -> bool:
        path = self._paths[kind]
        names = self._listing.names
        if names is not None and find_translator(path) is None:
            return get_file_name(path) in names  # without a request for each file
        return exists(path)

    def _copy_column(self, kind: str, column: str) -> np.ndarray:
        """Return a column of an index as an array of its own; empty without readable entries."""
        entries = self._entries.get(kind)
        return np.empty(0, np.int64) if entries is None else entries[column].copy()

    def check_frames(self, table: FrameTable) -> Iterator[Finding]:
        """Compare the next batches with the entries that point at them."""
        self._damaged |= bool(table.bad.any())
        times = table["max_timestamp"][~table.bad]
        self._largest_time = max(self._largest_time, int(times.max(initial=-1)))
        if len(table):
            self._last = int(table.positions[-1])
            self._size = self._last + int(table["size"][-1])
        if "index" in self._entries and len(table):
            yield from self._check_positions(table)
        if "timeindex" in self._entries:
            yield from self._check_times(table)
        self._follow_transactions(table)

    def _check_positions(self, table: FrameTable) -> Iterator[Finding]:
        """Report entries of `.index` that do not point at the batch of their offset."""
        entries = self._entries["index"]
        starts = table.positions
        low, high = np.searchsorted(self._positions, [int(starts[0]), self._size])
        rows = np.searchsorted(starts, entries["position"][low:high], side="right") - 1
        here = entries[low:high]
        is_start = starts[rows] == here["position"]
        # Several batches may be appended at once; the entry then has the last offset of them all.
        wrong = ~is_start | (table["last_offset"][rows] > here["offset"])
        following = rows[1:]
        has_offsets = table["magic"][following] == 2
        next_base = table["base_offset"][following]
        wrong[:-1] |= has_offsets & is_start[1:] & (here["offset"][:-1] >= next_base)
        for number in np.flatnonzero(wrong & ~table.bad[rows]).tolist():
            offset, position = here[number].item()
            meaning = f"offset {offset} is not in the batch at byte {position} of the log"
            yield self._report_entry("index", int(low) + number, meaning)

    def _check_times(self, table: FrameTable) -> Iterator[Finding]:
        """Report entries of `.timeindex` whose batch has another time."""
        entries = self._entries["timeindex"]
        good = np.flatnonzero(~table.bad & (table["magic"] == 2))
        last = table["last_offset"][good]
        if not len(good) or (np.diff(last) <= 0).any():
            return
        first = table["base_offset"]
        low = int(np.searchsorted(self._offsets_of_times, int(first[good[0]])))
        high = int(np.searchsorted(self._offsets_of_times, int(last[-1]), side="right"))
        offsets = self._offsets_of_times[low:high]
        rows = good[np.searchsorted(last, offsets)]
        wrong = first[rows] <= offsets
        wrong &= table["max_timestamp"][rows] != entries["timestamp"][low:high]
        for number in (low + np.flatnonzero(wrong)).tolist():
            self._wrong_times.add(number)
            meaning = f"the batch of offset {int(entries['offset'][number])} has another time"
            yield self._report_entry("timeindex", number, meaning)

    def _report_entry(self, kind: str, number: int, meaning: str) -> Finding:
        """Return the finding for entry `number` of an index, which disagrees with the log."""
        size = INDEXES[kind].entry.itemsize
        meaning = f"the entry does not agree with the log: {meaning}"
        return Finding(self._paths[kind], number * size, size, DISAGREES, meaning)

    def _report_end(self, kind: str, meaning: str, size: int = 0) -> Finding:
        """Return the finding for the `size` bytes after the last entry of an index."""
        used = len(self._entries[kind]) * INDEXES[kind].entry.itemsize
        return Finding(self._paths[kind], used, size, DISAGREES, meaning)

    def _report_missing(self, kind: str, detail: str = "") -> Finding:
        meaning = f"the .{kind} of the segment is missing{detail}"
        return Finding(self._paths[kind], 0, 0, MISSING, meaning)

    def _follow_transactions(self, table: FrameTable) -> None:
        """Collect the transactions that the segment aborts, and those that stay open."""
        steps = list_transaction_steps(table)
        if not len(steps):
            return
        ends = steps[steps["kind"] == ABORT]
        self._markers |= set(ends[["producer_id", "offset"]].tolist())
        first_offsets = self._log.memory.first_offsets
        begun = [
            (producer, first_offsets.pop(producer), DATA)
            for producer in np.unique(steps["producer_id"]).tolist()
            if producer in first_offsets
        ]
        ended = find_transactions(np.concatenate([np.array(begun, STEP), steps]))
        self._aborted.append(ended.aborted)
        first_offsets.update(ended.open[["producer_id", "first_offset"]].tolist())

    def end(self) -> Iterator[Finding]:
        """Report what is wrong with the indexes once the segment was read to its end."""
        yield from self._broken
        for kind in ("index", "timeindex"):
            # A copy of the segments alone has no such files, and old brokers wrote no .timeindex.
            has_companion = not self._listing.endings.isdisjoint(COMPANIONS[kind])
            if kind not in self._existing and has_companion:
                yield self._report_missing(kind)
        entries = self._entries.get("index")
        if entries is not None:
            yield from self._check_end(entries)
        times = self._entries.get("timeindex")
        if times is not None and self._is_old:
            yield from self._check_last_time(times)
        yield from self._check_aborts()

    def _check_end(self, entries: np.ndarray) -> Iterator[Finding]:
        """Report an `.index` that ends before its log, or after it."""
        positions = np.concatenate([[0], entries["position"]])
        unused = self._count_unused("index")
        without_entry = self._size - int(positions[-1])
        widest = int(np.diff(positions).max(initial=0))
        meaning = ""
        if without_entry > max(MAX_WITHOUT_ENTRY, 4 * widest) and self._last > positions[-1]:
            meaning = f"there is no entry for the last {without_entry:,} bytes of the log"
        elif unused and self._is_old:
            meaning = "zeros follow, which a broker cuts off when it begins the next segment"
        elif self._is_old:
            times_after = self._count_times_after(entries)
            are_missing = without_entry > INDEX_INTERVAL * times_after
            if times_after > MAX_TIMES_WITHOUT_OFFSET and are_missing:
                meaning = (
                    f"the .timeindex has {times_after:,} entries after the last entry of this "
                    "index: entries at the end are missing"
                )
        if meaning:
            yield self._report_end("index", meaning, unused)
        too_far = np.flatnonzero(entries["position"] >= self._size)
        if len(too_far) and not self._log.damaged:
            position = int(entries["position"][too_far[0]])
            meaning = f"the log ends at byte {self._size}, before byte {position}"
            yield self._report_entry("index", int(too_far[0]), meaning)

    def _count_unused(self, kind: str) -> int:
        """Return the number of bytes after the last entry of an index."""
        used = len(self._entries[kind]) * INDEXES[kind].entry.itemsize
        return get_size(self._paths[kind]) - used

    def _count_times_after(self, entries: np.ndarray) -> int:
        """Return how many entries of `.timeindex` are after the last one of `.index`."""
        times = self._entries.get("timeindex")
        if times is None:
            return 0
        last = int(entries["offset"][-1]) if len(entries) else -1
        return int(np.count_nonzero(times["offset"] > last))

    def _check_last_time(self, entries: np.ndarray) -> Iterator[Finding]:
        """Report a `.timeindex` of a closed segment that does not end with the largest timestamp.

        A broker adds this entry when it closes the segment. Zeros at the end show that it did not.
        """
        if not len(entries):
            # The entry of timestamp 0 at the first offset is of zeros, as unused space is.
            if self._largest_time > 0:
                meaning = "there is no entry, and a broker writes one when it closes the segment"
                yield self._report_end("timeindex", meaning)
            return
        number = len(entries) - 1
        if self._count_unused("timeindex") > 0 or number in self._wrong_times:
            return
        last = int(entries["timestamp"][number])
        if last < self._largest_time:
            meaning = (
                f"the last entry has the timestamp {last}, but the largest timestamp of the "
                f"segment is {self._largest_time}: entries at the end are missing"
            )
            yield self._report_end("timeindex", meaning)
        elif last > self._largest_time and not self._damaged and not self._log.damaged:
            meaning = f"no batch of the segment has the timestamp {last}"
            yield self._report_entry("timeindex", number, meaning)

    def _check_aborts(self) -> Iterator[Finding]:
        """Report differences between `.txnindex` and the abort markers of the segment."""
        aborted = {
            pair
            for spans in self._aborted
            for pair in spans[["producer_id", "last_offset"]].tolist()
        }
        if "txnindex" not in self._existing:
            if aborted and {"index", "timeindex"} & self._existing:
                ending = "s" * (len(aborted) != 1)
                detail = f", which ends {len(aborted):,} aborted transaction{ending}"
                yield self._report_missing("txnindex", detail)
            return
        if "txnindex" not in self._entries:
            return
        entries = self._entries["txnindex"]
        listed = entries[["producer_id", "last_offset"]].tolist()
        for producer, offset in sorted(aborted - set(listed)):
            transaction = f"the aborted transaction of producer {producer}"
            meaning = f"{transaction} that ends at offset {offset} is missing"
            yield self._report_end("txnindex", meaning)
        if self._damaged or self._log.compacted or self._log.damaged:
            return  # the marker may be lost
        for number, (producer, offset) in enumerate(listed):
            if (producer, offset) not in self._markers:
                meaning = f"offset {offset} is no abort of producer {producer}"
                yield self._report_entry("txnindex", number, meaning)


def check_snapshots(log: LogState) -> Iterator[Finding]:
    """Report damaged and missing producer snapshots of a log. Raises OSError."""
    offsets = list_snapshots(log.names or (), "")
    tiered = list_tiered_snapshots(log.names or (), "")
    for name in (*offsets.values(), *tiered, *_list_aiven_snapshots(log)):
        path = _make_path(log, name)
        try:
            index_files.read_producer_snapshot(path)
        except FrameError as error:
            yield _report_damage(path, error)
        except FileNotFoundError:
            if not is_aiven(path):
                raise
            # The check of the segment has reported that its .indexes are missing.
    # Brokers take one where a segment begins. Old brokers keep only the newest ones.
    for base in log.verified:
        if base not in offsets and any(offset < base for offset in offsets):
            meaning = "the producer snapshot where the segment begins is missing"
            yield Finding(_make_path(log, f"{base:020}.snapshot"), 0, 0, MISSING, meaning)


def _list_aiven_snapshots(log: LogState) -> list[str]:
    """Return the names of the snapshots in the .indexes of Aiven's plugin, for segments with .log.

    The list is empty for other logs.
    """
    names = set(log.names or ())
    stems = [name.removesuffix(".rsm-manifest") for name in names if name.endswith("-manifest")]
    return [
        f"{stem}.snapshot"
        for stem in sorted(stems)
        if f"{stem}.log" in names and is_aiven(_make_path(log, f"{stem}.log"))
    ]


def find_orphans(log: LogState) -> dict[int, list[str]]:
    """Return base offset -> paths of indexes, for segments that do not exist."""
    out: dict[int, list[str]] = {}
    bases = set(log.bases or ())
    for name in sorted(log.names or ()):
        stem, _, kind = name.partition(".")
        segment = SEGMENTS.parse(stem + SEGMENTS.suffix) if kind in KINDS_OF_SEGMENTS else None
        if (
            segment is not None
            and not segment.prefix
            and segment.base < OFFSET_END
            and segment.base not in bases
        ):
            out.setdefault(segment.base, []).append(_make_path(log, name))
    return out


def find_reaches(log: LogState) -> list[Reach]:
    """Return how far the log has reached by its side files, in rising order. Raises OSError."""
    if log.names is None:
        return []
    absent = find_orphans(log)
    snapshots = list_snapshots(log.names, "")
    out = [Reach(offset - 1, _make_path(log, name)) for offset, name in snapshots.items()]
    out += [Reach(base - 1, paths[0]) for base, paths in absent.items()]
    # For older segments, the name of the next segment is safer than their indexes.
    newest = max([*(log.bases or ()), *absent], default=0)
    for kind, column in OFFSETS.items():
        name = f"{newest:020}.{kind}"
        path = _make_path(log, name)
        entries = _read(path, kind)[0] if name in log.names else None
        if entries is not None and kind == "index" and newest not in absent:
            size = get_size(_make_path(log, SEGMENTS.make_path("", newest)))
            entries = entries[entries["position"] >= size]
        if entries is not None and len(entries):
            out.append(Reach(int(entries[column][-1]), path))
    for name in CHECKPOINTS:
        out += _read_checkpoint(log, name)
    return sorted(out)


def _read_checkpoint(log: LogState, name: str) -> list[Reach]:
    """Return how far the log has reached by a checkpoint file of its data directory, if at all."""
    folder = os.path.dirname(log.prefix or "")
    if not URL.match(folder):
        folder = os.path.abspath(folder or ".")
    path = os.path.join(os.path.dirname(folder), name) + log.options
    partition = parse_directory_name(folder)
    try:
        offset = index_files.read_offset_checkpoint(path).get(partition) if partition else None
    except (FrameError, FileNotFoundError):
        return []
    return [] if offset is None else [Reach(offset - 1, path)]


SIDE_FILES = SideFiles(
    SegmentIndexes, check_snapshots, find_orphans, find_reaches, make_memory=Memory
)
