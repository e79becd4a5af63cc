"""A partition directory, read the slow way: every batch of every segment in turn, no index.

A segment is a pair (base offset, bytes); a batch is what `kafka.scan` under "mark" makes of those, which has a
reference of its own. A place is (number of the segment, position in it).
"""
from functools import lru_cache

from wirescan import kafka

DATA, ABORT, COMMIT = "data", "abort", "commit"


@lru_cache(64)
def batches(raw):
    """(row as a dict, its records as pairs (offset, timestamp), or None where they cannot be read) of a segment.

    Tests look up many offsets in the same bytes, so the last results are kept.
    """
    table = kafka.scan(raw, errors="mark")
    records = kafka.records(table, errors="mark")
    inside = [[] for _ in range(len(table))]
    for parent, fault, *pair in records.rows[["parent", "fault", "offset", "timestamp"]].tolist():
        inside[parent].append(None if fault else tuple(pair))
    return [(dict(zip(table.dtype.names, row)), None if None in found else found)
            for row, found in zip(table.rows.tolist(), inside)]


def find(segments, offset):
    """Where the batch with an offset begins, or the next one, or the damage that may hide it."""
    first = max((n for n, (base, _) in enumerate(segments) if base <= offset), default=0)
    for number in range(first, len(segments)):
        ended, damaged = 0, False
        for row, _ in batches(segments[number][1]):
            if row["fault"]:
                damaged = True
                continue
            if row["last_offset"] >= offset:
                return number, row["start"] if row["base_offset"] <= offset else ended
            ended, damaged = row["start"] + row["size"], False
        if damaged or is_torn(segments, number, ended):
            return number, ended
    return None


def is_torn(segments, number, ended):
    """Bytes left over are a tail only at the end of the log, or where they are zeros."""
    return number < len(segments) - 1 and any(segments[number][1][ended:])


def find_time(segments, timestamp):
    """(place, (offset, timestamp) of the first record at that time or later, or None where damage may hide it)."""
    for number, (_, raw) in enumerate(segments):
        ended, damaged = 0, False
        for row, records in batches(raw):
            if row["fault"]:
                damaged = True
                continue
            if row["max_timestamp"] >= timestamp:
                if records is None:
                    return (number, ended), None
                late = [record for record in records if record[1] >= timestamp]
                if late:
                    return (number, ended), None if damaged else late[0]
            ended, damaged = row["start"] + row["size"], False
        if damaged or is_torn(segments, number, ended):
            return (number, ended), None
    return None


def committed(steps):
    """Which of the steps of a log a reader of committed data sees: their numbers.

    A step is (producer or None, kind): None: not of a transaction; DATA, or the marker ABORT or COMMIT.
    """
    seen = []
    for number, (producer, kind) in enumerate(steps):
        if producer is None:
            seen.append(number)
        elif kind == DATA:
            fate = next((later for other, later in steps[number:] if other == producer and later != DATA), None)
            if fate is None:
                break                       # open: nothing from here on
            if fate == COMMIT:
                seen.append(number)
    return seen


def aborted(steps, offsets):
    """(producer, first offset, offset of the marker) of the aborted transactions, sorted; `offsets`: of each step."""
    begun, found = {}, []
    for (producer, kind), offset in zip(steps, offsets, strict=True):
        if producer is not None and kind == DATA:
            begun.setdefault(producer, offset)
        elif producer is not None:
            first = begun.pop(producer, None)
            if first is not None and kind == ABORT:
                found.append((producer, first, offset))
    return sorted(found)


def still_open(steps, offsets):
    """(producer, first offset) of the transactions without a marker, sorted."""
    begun = {}
    for (producer, kind), offset in zip(steps, offsets, strict=True):
        if producer is not None and kind == DATA:
            begun.setdefault(producer, offset)
        elif producer is not None:
            begun.pop(producer, None)
    return sorted(begun.items())
