"""Counts over tables of frames as they go by: what `wirescan stat` tells of a file, and of all together.

What is counted follows from the columns that a format has; memory grows with the number of different sizes
only.
"""
from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from wirescan.cli.offsets import LOGS, Offsets, first_offsets, learn
from wirescan.cli.output import fault_name, time_of
from wirescan.cli.rows import named, names_of, outer_of
from wirescan.core.fault import Fault
from wirescan.kafka.encode import APPEND, DELETE_HORIZON, TIMESTAMP_TYPES
from wirescan.errors import damage
from wirescan.table import FrameTable

OTHER_TIME = DELETE_HORIZON | TIMESTAMP_TYPES[APPEND]
NANOSECONDS = 1_000_000         # in a millisecond
TAILS = {Fault.SHORT: "cut", Fault.ZEROS: "zeros", Fault.FILLER: "filler"}


class Sizes:
    """How often each size was seen: exact quantiles in little memory."""

    def __init__(self) -> None:
        self._seen: Counter[int] = Counter()

    def add(self, values: np.ndarray) -> None:
        sizes, counts = np.unique(values, return_counts=True)
        self._seen.update(dict(zip(sizes.tolist(), counts.tolist())))

    def summary(self) -> dict[str, int] | None:
        """min, median (of an even number the lower), p95, max and total; None where nothing was seen."""
        if not self._seen:
            return None
        sizes = np.array(sorted(self._seen), np.int64)
        counts = np.array([self._seen[size] for size in sizes.tolist()], np.int64)
        reach = np.cumsum(counts)
        rank = [-(-int(reach[-1]) * part // 100) for part in (50, 95)]
        median, p95 = sizes[np.searchsorted(reach, rank)].tolist()
        return {"min": int(sizes[0]), "median": median, "p95": p95, "max": int(sizes[-1]),
                "total": int((sizes * counts).sum())}


class Tally:
    """Counts of one file, or of several: `frames` for each piece, `records` for what was opened from it,
    `end` at the end of each file; then `summary`."""

    def __init__(self) -> None:
        self.faults: Counter[int] = Counter()
        self._count: Counter[str] = Counter()
        self._tails: Counter[str] = Counter()
        self._fault_bytes: Counter[int] = Counter()
        self._by_codec: dict[int, Counter[str]] = {}
        self._magic: Counter[int] = Counter()
        self._kinds: Counter[str] = Counter()
        self._envelopes: Counter[str] = Counter()
        self._messages: Counter[str] = Counter()
        self._sizes_inside = Sizes()
        self._sizes, self._per_frame, self._keys, self._values = Sizes(), Sizes(), Sizes(), Sizes()
        self._offsets = Offsets()
        self._times: list[int] = []
        self._has: set[str] = set()
        self._deep = self._ordered = False

    def turn(self, path: str) -> None:
        """What follows is in another file."""
        self._offsets.turn(path)

    def frames(self, table: FrameTable) -> None:
        """Count the frames of a piece."""
        good = self._good(table)
        self._bad(table.where(table.bad))
        self._count["frames"] += len(good)
        self._count["frame_bytes"] += int(good["size"].sum(dtype=np.int64))
        self._sizes.add(good["size"])
        self._has |= set(names_of(table.dtype))
        self._time(good)
        if "record_count" in self._has:
            known = good["record_count"][good["record_count"] >= 0]
            self._count["claimed"] += int(known.sum(dtype=np.int64))
            self._count["unopened"] += len(good) - len(known)
            self._per_frame.add(known)
        if "codec" in self._has:
            for number in np.unique(good["codec"]).tolist():
                of_codec = good["codec"] == number
                counter = self._by_codec.setdefault(number, Counter())
                counter["frames"] += int(of_codec.sum())
                counter["bytes"] += int(good["size"][of_codec].sum(dtype=np.int64))
        if "magic" in self._has:
            self._magic.update(good["magic"].tolist())
        if table.format is not None:
            self._kinds.update(_kinds(good))
        for name in ("is_control", "is_transactional"):
            if name in self._has:
                self._count[name] += int(good[name].sum(dtype=np.int64))

    def offsets(self, table: FrameTable, first: np.ndarray) -> None:
        """Follow the offsets of a piece; see `Offsets.follow`."""
        self._ordered = True
        _, disorder = self._offsets.follow(table, first)
        self._count["out_of_order"] += len(disorder)

    def records(self, table: FrameTable) -> None:
        """Count the records, events, envelopes or messages of some frames."""
        for bad, _ in damage(table):
            self._bad(bad.where(outer_of(bad)["fault"][bad["parent"]] == 0))        # else the frame around it is bad
        good = self._good(table)
        if "json_size" in names_of(table.dtype):
            self._events(good)
            return
        if "header_size" in names_of(table.dtype):
            self._envelopes.update(_kinds(good))
            return
        if "seqid" in names_of(table.dtype):
            self._messages.update(_kinds(good))
            return
        self._deep = True
        self._count["records"] += len(good)
        self._time(good)
        for name, sizes in (("key", self._keys), ("value", self._values)):
            size = good[name + "_size"]
            self._count["null_" + name] += int((size < 0).sum())
            sizes.add(size[size >= 0])
        self._count["headers"] += int(good["header_count"].sum(dtype=np.int64))
        codec = outer_of(table)["codec"][good["parent"]]
        for number in np.unique(codec).tolist():
            counter = self._by_codec.setdefault(number, Counter())
            counter["records"] += int((codec == number).sum())
            counter["inflated_bytes"] += int(good["size"][codec == number].sum(dtype=np.int64))

    def _events(self, good: FrameTable) -> None:
        self._has.add("json_size")
        self._count["events"] += len(good)
        self._count["pairs"] += int(good["count"].sum(dtype=np.int64))
        self._sizes_inside.add(good["size"])

    def end(self, size: int, fault: int, left: int) -> None:
        """A file ended: its bytes, why the scan stopped, and how many bytes are left there."""
        self._count["files"] += 1
        self._count["bytes"] += size
        if fault:
            self._tails[TAILS.get(Fault(fault), fault_name(fault))] += left

    def summary(self) -> dict[str, Any]:
        """Everything counted, as JSON holds it. Times are milliseconds since 1970."""
        count, out = self._count, dict[str, Any]()
        out |= {"files": count["files"], "bytes": count["bytes"], "frames": count["frames"],
                "frame_bytes": count["frame_bytes"], "frame_size": self._sizes.summary()}
        records = None
        if "record_count" in self._has:
            records = count["records"] if self._deep else None if count["unopened"] else count["claimed"]
            out |= {"records": records, "records_at_least": records or count["claimed"] + count["unopened"],
                    "unopened_frames": 0 if self._deep else count["unopened"],
                    "records_per_frame": self._per_frame.summary()}
        if self._times:
            out["time"] = self._time_range(records)
        if self._ordered:
            offsets = self._offsets
            out["offsets"] = {"first": offsets.first, "last": offsets.last, "gaps": offsets.gaps,
                              "missing": offsets.missing, "missing_inside_frames": offsets.lacking,
                              "out_of_order": count["out_of_order"]}
        if self._by_codec:
            out["codecs"] = {named("codec", number): dict(self._by_codec[number])
                             for number in sorted(self._by_codec)}
        if self._magic:
            out["magic"] = {str(number): self._magic[number] for number in sorted(self._magic)}
        out |= {name.removeprefix("is_") + "_frames": count[name]
                for name in ("is_control", "is_transactional") if name in self._has}
        if self._kinds:
            out["kinds"] = dict(sorted(self._kinds.items()))
        if self._envelopes:
            out["envelopes"] = dict(sorted(self._envelopes.items()))
        if self._messages:
            out["messages"] = dict(sorted(self._messages.items()))
        if "json_size" in self._has:
            out |= {"events": count["events"], "event_size": self._sizes_inside.summary(), "pairs": count["pairs"]}
        if self._deep:
            out["inside"] = {"key_size": self._keys.summary(), "value_size": self._values.summary(),
                             "null_keys": count["null_key"], "null_values": count["null_value"],
                             "headers": count["headers"]}
        out["faults"] = {fault_name(number): {"frames": frames, "bytes": self._fault_bytes[number]}
                         for number, frames in sorted(self.faults.items())}
        out["tail"] = dict(self._tails)
        return out

    @staticmethod
    def _good(table: FrameTable) -> FrameTable:
        return table.where(~table.bad) if table.bad.any() else table

    def _bad(self, bad: FrameTable) -> None:
        for number, size in zip(bad["fault"].tolist(), bad["size"].tolist()):
            self.faults[number] += 1
            self._fault_bytes[number] += size

    def _time(self, good: FrameTable) -> None:
        found = [good[name][self._is_time(good, name)] for name in good.format.times]
        found += [good[name][good[name] != 0] // NANOSECONDS for name in good.format.nanoseconds]
        values = np.concatenate(found) if found else np.empty(0)
        if len(values):
            both = [*self._times, int(values.min()), int(values.max())]
            self._times = [min(both), max(both)]

    @staticmethod
    def _is_time(good: FrameTable, name: str) -> np.ndarray:
        there: np.ndarray = good[name] != -1
        if name == "base_timestamp":            # of magic 2 it may be a delete horizon, or no record's time
            there &= (good["magic"] != 2) | (good["attributes"] & OTHER_TIME == 0)
        return there

    def _time_range(self, records: int | None) -> dict[str, Any]:
        first, last = self._times
        seconds = (last - first) / 1000
        rates = {} if seconds <= 0 else {"bytes_per_second": self._count["frame_bytes"] / seconds}
        if rates and records is not None:
            rates["records_per_second"] = records / seconds
        return {"first": first, "last": last, "first_utc": time_of(first), "last_utc": time_of(last),
                "seconds": seconds, **rates}


def _kinds(good: FrameTable) -> dict[str, int]:
    """How many frames there are of each kind that has a name."""
    counts = np.bincount(good["kind"], minlength=256)
    return {name: int(counts[kind]) for kind, name in good.format.kinds.items() if counts[kind]}


def count(tallies: list[Tally], table: FrameTable, opened: Any) -> None:
    """Count a piece, and the records that `opened` yields from it, in several tallies."""
    ordered = table.name in LOGS
    first, at = first_offsets(table) if ordered else np.empty(0), 0
    for records in opened:
        for tally in tallies:
            tally.records(records)
        if ordered:
            learn(first, records, at)
        at += len(outer_of(records))
    for tally in tallies:
        tally.frames(table)
        if ordered:
            tally.offsets(table, first)
