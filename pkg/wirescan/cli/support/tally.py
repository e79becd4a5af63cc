"""Counts over tables of frames, piece by piece: what `wirescan stat` reports.

`SummaryColumns` of a format decides what is counted. Memory grows only with the number of different
sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from wirescan.cli.support.latencies import Latencies, measure_exchanges
from wirescan.cli.support.log_offsets import Offsets, fill_first_offsets
from wirescan.cli.support.quantiles import Quantiles
from wirescan.core.fault import Fault
from wirescan.frames.columns import UNITS
from wirescan.frames.format import Format
from wirescan.frames.lookup import find_bad_frames
from wirescan.frames.registry import formats
from wirescan.frames.row_values import get_outer_table
from wirescan.frames.table import FrameTable
from wirescan.frames.value_text import format_time
from wirescan.seglog.frame_offsets import find_first_offsets

TAILS: dict[int, str] = {Fault.SHORT: "cut", Fault.ZEROS: "zeros", Fault.FILLER: "filler"}


class Tally:
    """Counts of one or several files.

    Call `start_file`, then `count_frames` for each piece and `count_nested` for the frames opened
    from it, then `end_file`; `make_summary` returns the counts.

    Args:
        format: the outermost format of the files.
    """

    def __init__(self, format: Format) -> None:
        self._format = format
        # By number and name: formats inside one another may use a number for different faults.
        self.faults: Counter[tuple[int, str]] = Counter()
        self._count: Counter[str] = Counter()
        self._tails: Counter[str] = Counter()
        self._fault_bytes: Counter[tuple[int, str]] = Counter()
        self._by_codec: dict[int, Counter[str]] = {}
        self._by_value: dict[str, Counter[int]] = {}
        self._kinds: Counter[str] = Counter()
        self._latencies = Latencies()
        self._frame_sizes = Quantiles()
        self._records_per_frame = Quantiles()
        self._offsets = Offsets(format)
        self._times: list[int] = []
        self._has_offsets = False
        # Of the frames inside, whose format is None until they are counted:
        self._inner: Format | None = None
        self._opened = 0
        self._opened_kinds: Counter[str] = Counter()
        self._opened_sizes = Quantiles()
        self._list_entries: Counter[str] = Counter()
        self._place_sizes: dict[str, Quantiles] = {}
        self._nulls: Counter[str] = Counter()

    def start_file(self, path: str) -> None:
        """Announce that the next pieces are those of another file."""
        self._offsets.start_file(path)

    def count_frames(self, table: FrameTable) -> None:
        """Count the frames of a piece."""
        good = _select_good_rows(table)
        self._count_faults(table.where(table.bad))
        self._count["frames"] += len(good)
        sizes = measure_frames(good)
        self._count["frame_bytes"] += int(sizes.sum(dtype=np.int64))
        self._frame_sizes.add(sizes)
        self._extend_time_range(good)
        self._kinds.update(_count_kinds(good))
        counted = self._format.display.record_count
        if counted is not None:
            stated = good[counted][good[counted] >= 0]
            self._count["claimed"] += int(stated.sum(dtype=np.int64))
            self._count["unopened"] += len(good) - len(stated)
            self._records_per_frame.add(stated)
        columns = self._format.display.summary
        if columns.codec is not None:
            self._count_by_codec(good[columns.codec], good["size"], "frames", "bytes")
        if columns.latency is not None and len(good):  # the last table may be that of the blocks
            self._latencies.add(good)
        for name in columns.values:
            self._by_value.setdefault(name, Counter()).update(good[name].tolist())
        for name in columns.flags:
            self._count[name] += int(good[name].sum(dtype=np.int64))

    def _count_by_codec(
        self, codecs: np.ndarray, sizes: np.ndarray, number_name: str, size_name: str
    ) -> None:
        """Count frames and their bytes for each codec.

        Args:
            codecs: the codec of each frame.
            sizes: the bytes of each frame.
            number_name: the name of the number of frames in the summary.
            size_name: the name of their bytes.
        """
        for number in np.unique(codecs).tolist():
            of_codec = codecs == number
            counter = self._by_codec.setdefault(number, Counter())
            counter[number_name] += int(of_codec.sum())
            counter[size_name] += int(sizes[of_codec].sum(dtype=np.int64))

    def follow_offsets(self, table: FrameTable, first: np.ndarray) -> None:
        """Follow the offsets of a piece; see `Offsets.follow`."""
        self._has_offsets = True
        _, disorder = self._offsets.follow(table, first)
        self._count["out_of_order"] += len(disorder)

    def count_nested(self, table: FrameTable) -> None:
        """Count the frames inside some outermost frames; `table` has the counted format."""
        for bad, _ in find_bad_frames(table):
            # Where the enclosing frame is bad, its fault is counted instead.
            self._count_faults(bad.where(get_outer_table(bad)["fault"][bad["parent"]] == 0))
        good = _select_good_rows(table)
        format = table.format
        columns = format.display.summary
        self._inner = format
        self._opened += len(good)
        self._extend_time_range(good)
        if columns.by_kind:
            self._opened_kinds.update(_count_kinds(good))
        if columns.sizes:
            self._opened_sizes.add(good["size"])
        for name in columns.places:
            size = good[name + "_size"]
            self._nulls[name] += int((size < 0).sum())
            self._place_sizes.setdefault(name, Quantiles()).add(size[size >= 0])
        for name, column in format.lists.items():
            self._list_entries[name] += int(good[column].sum(dtype=np.int64))
        codec = self._format.display.summary.codec
        if codec is not None:
            codecs = get_outer_table(good)[codec][good["parent"]]
            counted_as = str(format.display.counted_as)
            self._count_by_codec(codecs, good["size"], counted_as, "inflated_bytes")

    def end_file(self, size: int, fault: int, remaining: int) -> None:
        """Count a file that ended.

        Args:
            size: its bytes.
            fault: why the scan stopped.
            remaining: bytes after the last frame.
        """
        self._count["files"] += 1
        self._count["bytes"] += size
        if fault:
            name = TAILS.get(fault) or self._format.describe_fault(fault).name
            self._tails[name] += remaining

    def make_summary(self) -> dict[str, Any]:
        """Return all counts as values for JSON; times are milliseconds since 1970."""
        count = self._count
        out: dict[str, Any] = {
            "files": count["files"],
            "bytes": count["bytes"],
            "frames": count["frames"],
            "frame_bytes": count["frame_bytes"],
            "frame_size": self._frame_sizes.make_summary(),
        }
        records = self._count_records()
        if self._format.display.record_count is not None:
            out |= self._summarize_records(records)
        if self._times:
            out["time"] = self._summarize_times(records)
        if self._has_offsets:
            out["offsets"] = self._summarize_offsets()
        out |= self._summarize_kinds()
        if self._format.display.summary.latency is not None:
            out["latency"] = self._latencies.make_summary()
        out |= self._summarize_opened()
        out["faults"] = {
            fault[1]: {"frames": frames, "bytes": self._fault_bytes[fault]}
            for fault, frames in sorted(self.faults.items())
        }
        out["tail"] = dict(self._tails)
        return out

    def _count_records(self) -> int | None:
        """Return the number of records; None if it is not known."""
        if self._format.display.record_count is None:
            return None
        if self._inner is not None:
            return self._opened
        return None if self._count["unopened"] else self._count["claimed"]

    def _summarize_records(self, records: int | None) -> dict[str, Any]:
        count = self._count
        claimed = count["claimed"] + count["unopened"]
        return {
            "records": records,
            "records_at_least": claimed if records is None else records,
            "unopened_frames": count["unopened"] if self._inner is None else 0,
            "records_per_frame": self._records_per_frame.make_summary(),
        }

    def _summarize_opened(self) -> dict[str, Any]:
        """Return the counts of the frames inside the outermost ones.

        If the outermost frames state how many there are, `_summarize_records` has their number.
        """
        inner = self._inner
        if inner is None or inner.display.summary.by_kind:
            return {}
        out: dict[str, Any] = {}
        is_stated = self._format.display.record_count is not None
        if not is_stated:
            out[str(inner.display.counted_as)] = self._opened
        if inner.display.summary.sizes:
            out[make_size_name(inner)] = self._opened_sizes.make_summary()
        lists = {name: self._list_entries[name] for name in inner.lists}
        if not is_stated:
            out |= lists
        if not is_stated and not inner.display.summary.places:
            return out
        places = inner.display.summary.places
        inside: dict[str, Any] = {
            f"{name}_size": self._place_sizes[name].make_summary() for name in places
        }
        inside |= {f"null_{name}s": self._nulls[name] for name in places}
        out["inside"] = inside | lists if is_stated else inside
        return out

    def _summarize_offsets(self) -> dict[str, Any]:
        offsets = self._offsets
        return {
            "first": offsets.first,
            "last": offsets.last,
            "gaps": offsets.gaps,
            "missing": offsets.missing,
            "missing_inside_frames": offsets.missing_inside,
            "out_of_order": self._count["out_of_order"],
        }

    def _summarize_kinds(self) -> dict[str, Any]:
        """Return the counts of codecs, values, flags and kinds that occurred."""
        out: dict[str, Any] = {}
        columns = self._format.display.summary
        if columns.codec is not None and self._by_codec:
            column = self._format.get_column(columns.codec)
            out["codecs"] = {
                column.name_number(number): dict(self._by_codec[number])
                for number in sorted(self._by_codec)
            }
        for name, counter in self._by_value.items():
            if counter:
                column = self._format.get_column(name)
                out[name] = {
                    column.name_number(number): counter[number] for number in sorted(counter)
                }
        out |= {make_flag_name(name): self._count[name] for name in columns.flags}
        if self._kinds:
            out["kinds"] = dict(sorted(self._kinds.items()))
        if self._inner is not None and self._opened_kinds:
            name = make_kinds_name(self._format, self._inner)
            out[name] = dict(sorted(self._opened_kinds.items()))
        return out

    def _count_faults(self, bad: FrameTable) -> None:
        for number, size in zip(bad["fault"].tolist(), bad["size"].tolist()):
            fault = number, bad.describe_fault(number).name
            self.faults[fault] += 1
            self._fault_bytes[fault] += size

    def _extend_time_range(self, good: FrameTable) -> None:
        """Extend the range of times by those in the columns of good rows."""
        columns = [
            good[name][has_time(good, name)] // (UNITS[column.unit] // UNITS["ms"])
            for name, column in good.format.columns.items()
            if column.unit is not None
        ]
        values = np.concatenate(columns) if columns else np.empty(0)
        if len(values):
            ends = [*self._times, int(values.min()), int(values.max())]
            self._times = [min(ends), max(ends)]

    def _summarize_times(self, records: int | None) -> dict[str, Any]:
        first, last = self._times
        seconds = (last - first) / UNITS["ms"]
        rates = {} if seconds <= 0 else {"bytes_per_second": self._count["frame_bytes"] / seconds}
        if rates and records is not None:
            rates["records_per_second"] = records / seconds
        return {
            "first": first,
            "last": last,
            "first_utc": format_time(first),
            "last_utc": format_time(last),
            "seconds": seconds,
            **rates,
        }


def measure_frames(table: FrameTable) -> np.ndarray:
    """Return the bytes of each frame, or of each exchange: integers."""
    if table.format.display.summary.latency is not None:
        return measure_exchanges(table)
    sizes: np.ndarray = table["size"]
    return sizes


def find_counted_format(outer: Format) -> Format | None:
    """Return the format whose frames a summary counts inside those of `outer`, if there is one."""
    for format in formats().values():
        if format.display.counted_as is not None and format.within == outer.name:
            return format
    return None


def make_flag_name(column: str) -> str:
    """Return the name in a summary of the frames that have a flag."""
    return column.removeprefix("is_") + "_frames"


def make_kinds_name(outer: Format, inner: Format) -> str:
    """Return the name in a summary of the counts by kind of the counted frames inside others.

    If the frames of `outer` state the number of these frames, that number has the plain name.
    """
    name = str(inner.display.counted_as)
    return name if outer.display.record_count is None else f"{name}_by_kind"


def make_size_name(inner: Format) -> str:
    """Return the name in a summary of the sizes of the counted frames inside others."""
    return str(inner.display.counted_as).removesuffix("s") + "_size"


def _select_good_rows(table: FrameTable) -> FrameTable:
    return table.where(~table.bad) if table.bad.any() else table


def has_time(good: FrameTable, name: str) -> np.ndarray:
    """Return a bool array: which rows have a time in a column."""
    if good.format.display.has_time is not None:
        return good.format.display.has_time(good, name)
    has_time: np.ndarray = good[name] != good.format.get_column(name).no_time
    return has_time


def _count_kinds(good: FrameTable) -> dict[str, int]:
    """Return the number of frames of each named kind that occurs."""
    counts = np.bincount(good["kind"], minlength=256)
    names = good.format.get_column("kind").number_names
    return {name: int(counts[kind]) for kind, name in names.items() if counts[kind]}


def count_piece(tallies: list[Tally], table: FrameTable, opened: Iterable[FrameTable]) -> None:
    """Count a piece in several tallies, together with the frames inside it.

    Args:
        tallies: where to count.
        table: the outermost frames of the piece.
        opened: tables of the frames inside `table`, in order.
    """
    first = find_first_offsets(table)
    at = 0
    for inner in opened:
        for tally in tallies:
            tally.count_nested(inner)
        fill_first_offsets(first, inner, at)
        at += len(get_outer_table(inner))
    for tally in tallies:
        tally.count_frames(table)
        if table.format.storage.log is not None:
            tally.follow_offsets(table, first)
