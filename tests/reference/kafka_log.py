"""A slow reader of a partition directory. It reads every batch of every segment, and no index.

A segment is a pair (base offset, bytes). Its batches are the rows of `kafka.scan` with
errors="mark", which has its own reference decoder. A place is (number of the segment, position in
the segment).
"""

from functools import lru_cache

from wirescan import kafka

DATA, ABORT, COMMIT = "data", "abort", "commit"


@lru_cache(64)  # tests look up many offsets in the same bytes
def list_batches(raw):
    """Return the batches of a segment: pairs (row as a dict, records).

    The records are pairs (offset, timestamp). They are None where they cannot be read.
    """
    table = kafka.scan(raw, errors="mark")
    records = kafka.records(table, errors="mark")
    records_of = [[] for _ in range(len(table))]
    for parent, fault, *pair in records.rows[["parent", "fault", "offset", "timestamp"]].tolist():
        records_of[parent].append(None if fault else tuple(pair))
    return [
        (dict(zip(table.dtype.names, row)), None if None in pairs else pairs)
        for row, pairs in zip(table.rows.tolist(), records_of)
    ]


def find(segments, offset):
    """Return the place of the batch with an offset, or else of the next batch.

    If damage may hide that batch, the result is the place of the damage.
    """
    first = max((n for n, (base, _) in enumerate(segments) if base <= offset), default=0)
    for number in range(first, len(segments)):
        end, is_damaged = 0, False  # `end` is the end of the last good batch
        for row, _ in list_batches(segments[number][1]):
            if row["fault"]:
                is_damaged = True
                continue
            if row["last_offset"] >= offset:
                return number, row["start"] if row["base_offset"] <= offset else end
            end = row["start"] + row["size"]
            is_damaged = False
        if is_damaged or is_torn(segments, number, end):
            return number, end
    return None


def is_torn(segments, number, end):
    """Is a segment damaged behind its last batch?

    Bytes behind the last batch are allowed at the end of the log, or if they are zeros.
    """
    return number < len(segments) - 1 and any(segments[number][1][end:])


def find_time(segments, timestamp):
    """Return (place, record) for the first record at a time or later, or None.

    The record is (offset, timestamp). It is None where damage may hide the record.
    """
    for number, (_, raw) in enumerate(segments):
        end, is_damaged = 0, False  # `end` is the end of the last good batch
        for row, records in list_batches(raw):
            if row["fault"]:
                is_damaged = True
                continue
            if row["max_timestamp"] >= timestamp:
                if records is None:
                    return (number, end), None
                late = [record for record in records if record[1] >= timestamp]
                if late:
                    return (number, end), None if is_damaged else late[0]
            end = row["start"] + row["size"]
            is_damaged = False
        if is_damaged or is_torn(segments, number, end):
            return (number, end), None
    return None


def list_committed(steps):
    """Return the numbers of the steps that a reader of committed data gets.

    A step is (producer, kind). The producer is None outside transactions. The kind is DATA, or the
    marker ABORT or COMMIT.
    """
    numbers = []
    for number, (producer, kind) in enumerate(steps):
        if producer is None:
            numbers.append(number)
        elif kind == DATA:
            later_steps = steps[number:]
            marker = next(
                (later for other, later in later_steps if other == producer and later != DATA),
                None,
            )
            if marker is None:
                break  # the transaction is open, so the reader stops here
            if marker == COMMIT:
                numbers.append(number)
    return numbers


def list_aborted(steps, offsets):
    """Return the aborted transactions: (producer, first offset, offset of the marker), sorted.

    `offsets` has the offset of each step.
    """
    first_offsets, transactions = {}, []
    for (producer, kind), offset in zip(steps, offsets, strict=True):
        if producer is not None and kind == DATA:
            first_offsets.setdefault(producer, offset)
        elif producer is not None:
            first = first_offsets.pop(producer, None)
            if first is not None and kind == ABORT:
                transactions.append((producer, first, offset))
    return sorted(transactions)


def list_open(steps, offsets):
    """Return the transactions without a marker: (producer, first offset), sorted."""
    first_offsets = {}
    for (producer, kind), offset in zip(steps, offsets, strict=True):
        if producer is not None and kind == DATA:
            first_offsets.setdefault(producer, offset)
        elif producer is not None:
            first_offsets.pop(producer, None)
    return sorted(first_offsets.items())
