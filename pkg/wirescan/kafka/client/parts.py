"""From what was asked of a topic to ranges of offsets, and from answers to parts: tables of records."""
from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from wirescan.errors import apply
from wirescan.kafka.client.cluster import Cluster, TopicPartition
from wirescan.kafka.client.effects import Operation
from wirescan.kafka.client.fetching import Piece, Range
from wirescan.kafka.client.offsets import list_offsets
from wirescan.kafka.scan import verify_batches
from wirescan.kafka.transactions import committed
from wirescan.limits import Limits
from wirescan.table import FrameTable

AHEAD = 2                   # parts that wait to be taken, for each partition that is read
Bound = int | str | Mapping[int, int | str]


class Part(NamedTuple):
    """Some records of a partition, in the order of their offsets.

    records: a table of kafka.records, perhaps empty; None where only batches were asked for. next_offset: where the
    next part begins. batches: a table of kafka.batches, those of the records; the first may begin before and the last
    end behind what was asked for."""
    topic: str
    partition: int
    records: FrameTable | None
    next_offset: int
    batches: FrameTable

    @property
    def pieces(self) -> list[memoryview]:
        """The bytes of the batches, as they came; those that lie side by side in one piece. Bad ones are left out."""
        rows = self.batches.rows[~self.batches.bad]
        if not len(rows):
            return []
        start, stop, buffer = rows["start"], rows["start"] + rows["size"], rows["buffer"]
        first = np.flatnonzero(np.concatenate([[True], (start[1:] != stop[:-1]) | (buffer[1:] != buffer[:-1])]))
        last = np.append(first[1:], len(rows)) - 1
        return [self.batches.buffers[number][begin:end] for number, begin, end
                in zip(buffer[first].tolist(), start[first].tolist(), stop[last].tolist())]


class Decoding(NamedTuple):
    """How pieces become parts; as the arguments of `kafka.fetch`."""
    isolation: str = "read_uncommitted"
    records: bool = True
    errors: str = "strict"
    check: bool = True
    limits: Limits = Limits()

    def part(self, piece: Piece) -> Part:
        """A piece as a part. Raises as `kafka.scan` and `kafka.records`."""
        from wirescan.kafka import records, scan
        start, stop = piece.range.start, piece.range.stop
        options: dict[str, Any] = {"errors": self.errors, "check": self.check, "limits": self.limits}
        batches = piece.batches
        if self.check and not batches.checked and not (self.records and self.errors == "strict"):
            # Else the checksums are verified as the records are read. But that does not look for the next good batch.
            batches = scan(piece.fetched.table, **options)
        over = np.flatnonzero(~batches.bad & (batches["last_offset"] >= stop - 1))
        found = batches = batches[:over[0] + 1] if len(over) else batches
        rows = batches.rows
        # The first offset in a wrapper of magic 0 or 1 is not known, but its last one is.
        keep = batches.bad | ((rows["last_offset"] >= start) & ~((rows["magic"] == 2) & (rows["base_offset"] >= stop)))
        if self.records:
            keep &= batches.bad | (rows["is_control"] == 0)
        if self.isolation == "read_committed":
            batches = committed(batches.where(keep | (rows["is_control"] != 0)), piece.fetched.aborted)
        elif not keep.all():
            batches = batches.where(keep)
        if self.check and not found.checked and len(batches) < len(found):
            # `records` does not meet those, and it may be their damage that they were left out for.
            _verify(found.where(~np.isin(found["start"], batches["start"])))
        table = None
        if self.records:
            table = records(batches, **options)
            rows = batches.rows
            if ((rows["base_offset"] < start) | (rows["last_offset"] >= stop) | (rows["record_count"] < 0)).any():
                offset = table["offset"]
                inside = table.bad | ((offset >= start) & (offset < stop))
                table = table if inside.all() else table.where(inside)
        return Part(piece.range.topic, piece.range.partition, table, min(piece.next_offset, stop), batches)


def _verify(batches: FrameTable) -> None:
    """Raises FrameError for the first batch whose checksum is wrong."""
    rows = batches.rows.copy()
    rows["fault"] = verify_batches(rows, batches.buffers)
    apply(replace(batches, rows=rows), "strict", np.count_nonzero(rows["fault"]))


def plan(cluster: Cluster, topic: str, partitions: Iterable[int] | None, start: Bound, stop: Bound,
         start_time: int | None, stop_time: int | None, isolation: str) -> Operation[list[Range]]:
    """The ranges of offsets that the arguments of `kafka.fetch` stand for, one for each partition."""
    if start_time is not None and start != "earliest" or stop_time is not None and stop != "latest":
        raise ValueError("a range begins, and ends, at offsets or at times: not at both")
    if isinstance(partitions, (str, bytes)):
        raise TypeError(f"partitions are numbers, not {type(partitions).__name__}")
    numbers = sorted((yield from cluster.topic(topic)).partitions if partitions is None
                     else set(map(operator.index, partitions)))
    for bounds in (start, stop):
        if isinstance(bounds, Mapping) and (others := bounds.keys() - set(numbers)):
            raise ValueError(f"bounds of partitions of {topic} that are not read: {', '.join(map(repr, others))}")
    known: dict[tuple[int, int | str], int] = {}

    def look_up(bounds: dict[int, int | str], at_time: bool) -> Operation[None]:
        wanted: dict[TopicPartition, int | str] = {
            (topic, number): bound for number, bound in bounds.items() if at_time or isinstance(bound, str)}
        if wanted:
            found = yield from list_offsets(cluster, wanted, isolation)
            known.update({(number, wanted[name, number]): one.offset for (name, number), one in found.items()})

    starts = {number: _bound(start, number, "earliest") if start_time is None else start_time for number in numbers}
    stops = {number: _bound(stop, number, "latest") if stop_time is None else stop_time for number in numbers}
    yield from look_up(starts, start_time is not None)
    begins = [known.pop((number, starts[number]), starts[number]) for number in numbers]
    yield from look_up(stops, stop_time is not None)
    ends = [known.pop((number, stops[number]), stops[number]) for number in numbers]
    if -1 in begins + ends:                     # no record of that time or a later one: the end
        yield from look_up(dict.fromkeys(numbers, "latest"), False)
    end_of = [known.get((number, "latest"), -1) for number in numbers]
    # An offset that a broker told is one that the log reaches.
    reaches = [isinstance(stops[number], str) or stop_time is not None for number in numbers]
    return [Range(topic, number, *(end if one == -1 else int(one) for one in pair), told)
            for number, pair, end, told in zip(numbers, zip(begins, ends), end_of, reaches)]


def _bound(bound: Bound, partition: int, usual: str) -> int | str:
    one = bound.get(partition, usual) if isinstance(bound, Mapping) else bound
    if isinstance(one, str) and one not in ("earliest", "latest"):
        raise ValueError(f"a range begins or ends at an offset, or 'earliest' or 'latest', not at {one!r}")
    if not isinstance(one, str) and (not hasattr(one, "__index__") or one < 0):
        raise ValueError(f"no offset of a log: {one!r}")
    return one
