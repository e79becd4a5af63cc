"""Kafka records: all ways to read them give the same rows, and the kernels keep to what callers give them."""
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import golden
import laws
import wirescan
from golden import TIME, batch, record, varint
from rooms import ROOMS
from strategies import kafka as strategies
from test_laws import steady
from wirescan import Limits, kafka
from wirescan.kafka.encode import Record, encode_batch
from wirescan.kafka.scan import PATHS, open_records
from wirescan.core.loop import HEAD, spans


def by_every_path(raw, check=True):
    """The rows of the uncompressed batches of some bytes, which all paths have to agree on."""
    batches = kafka.scan(raw, errors="mark", check=check)
    batches = batches[batches["codec"] == 0]
    counts = batches["record_count"].astype(np.int32)
    read = [open_records(batches.rows, batches.buffers, spans(batches.rows), counts, check, Limits(), path=path)
            for path in PATHS]
    for (rows, bad, fault), path in zip(read, PATHS):
        assert rows.tobytes() == read[0][0].tobytes(), path
        assert (bad, fault) == (np.count_nonzero(rows["fault"]), 0), path
    return read[0][0]


def test_the_fast_paths_are_there():
    assert PATHS[:2] == ("plain", "portable")
    with pytest.raises(ValueError, match="portable"):
        open_records(np.empty(0, kafka.BATCH), (), np.empty(0, HEAD), np.empty(0, np.int32), True,
                     Limits(), path="fast")


@steady
@given(st.data(), st.booleans())
def test_paths_agree_on_any_bytes(data, check):
    by_every_path(data.draw(ROOMS["kafka"].damaged | strategies.logs()), check)


def test_paths_agree_on_every_length_of_varints():
    """Lengths, timestamps and offsets of one byte to the most there can be, in any order, near the batch's end too."""
    chance = random.Random(1)
    sizes = [-1, 0, 1, 62, 63, 64, 65, 8190, 8191, 8192, 8193, 1 << 20]
    deltas = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 1 << 20, 1 << 27, 2**31 - 1, -2**31]
    times = [*deltas, 2**34, 2**41, 2**48, 2**55, 2**62, -2**63 + 1]
    for options in ({}, {"timestamp_type": "append", "max_timestamp": 7}):
        for _ in range(150):
            rows = []
            for _ in range(chance.choice((1, 1, 2, 3, 10, 40))):
                key, value = (None if size < 0 else bytes(size) for size in chance.choices(sizes[:-1], k=2))
                if not chance.randrange(40):
                    value = bytes(1 << 20)
                headers = [(b"h", None)] * (not chance.randrange(5)) * chance.randrange(1, 3)
                time = TIME + chance.choice(times) % 2**62
                rows.append(Record(2**32 + chance.choice(deltas), time, key, value, headers))
            raw = encode_batch(rows, base_offset=2**32, last_offset=2**32, base_timestamp=TIME, **options)
            found = by_every_path(raw)
            assert not found["fault"].any()
            assert found["offset"].tolist() == [row.offset for row in rows]
            assert found["timestamp"].tolist() == [7 if options else row.timestamp for row in rows]
            assert found["header_count"].tolist() == [len(row.headers) for row in rows]


def test_paths_agree_on_tiny_batches():
    for count in range(4):
        raw = encode_batch([Record(i, 0, None, None) for i in range(count)])
        assert len(by_every_path(raw)) == len(by_every_path(raw * 2 + encode_batch([]))) // 2 == count
    smallest = b"\x0c\0\0\0\1\1\0"                          # seven bytes: all null, no headers
    for cut in range(len(smallest) + 1):
        for count in (0, 1, 2, 3, 1000):
            by_every_path(batch(smallest[:cut], count))
            by_every_path(batch(smallest * 2 + smallest[:cut], count) + encode_batch([]))


NO_HEADERS = dict(header_count=0, header_key_length=b"", header_key=b"", header_value_length=b"", header_value=b"",
                  second_key_length=b"", second_value_length=b"")


def test_paths_agree_on_odd_varints():
    """Varints that are longer than they have to be, or out of range, in each place of a record."""
    forms = [varint(n, size) for n in (0, 1, -1, 3, 5) for size in range(1, 12)]
    forms += [varint(n) for n in (2**31 - 1, 2**31, -2**31, -2**31 - 1, 2**62)] + [b"\xff" * n for n in (1, 4, 5, 10)]
    for name in [*golden.NUMBERS[:5], "length"]:
        for form in forms:
            changed = {name.replace(" ", "_"): form}
            odd = record(**changed)
            plain = record(**NO_HEADERS | changed)
            for payload, count in ((odd, 1), (plain, 1), (plain * 3, 3), (odd + plain * 2, 3), (plain + odd, 2)):
                by_every_path(batch(payload, count))
                by_every_path(batch(payload, count) + batch(record() * 4, 4))


def test_rows_that_the_caller_gives():
    raw = encode_batch(golden.RECORDS) * 3
    batches = kafka.scan(raw)
    room = np.empty(9, kafka.RECORD)
    table = kafka.records(batches, into=room)
    assert table.rows.base is room or np.shares_memory(table.rows, room)
    assert table.rows.tobytes() == kafka.records(batches).rows.tobytes()
    with pytest.raises(ValueError, match="room for 8 rows"):
        kafka.records(batches, into=np.empty(8, kafka.RECORD))
    for unfit in (np.empty(9, kafka.BATCH), np.empty(18, kafka.RECORD)[::2], np.empty((3, 3), kafka.RECORD),
                  bytearray(576)):
        with pytest.raises(TypeError, match="into"):
            kafka.records(batches, into=unfit)


@pytest.mark.parametrize("column, value", [
    ("start", -1), ("start", 1 << 40), ("size", 2**32 - 1), ("buffer", 9), ("body", 2**32 - 1), ("start", 2**63 - 1)])
def test_rows_that_lie_are_refused(column, value):
    """Rows may come from anywhere: none may lead a kernel out of its buffers."""
    for codec in ("none", "gzip"):
        batches = kafka.scan(encode_batch(golden.RECORDS, codec=codec))
        rows = batches.rows.copy()
        rows[column] = value
        forged = wirescan.FrameTable(batches.buffers, rows, batches.stops, batches.format)
        for check in (True, False):
            try:
                table = kafka.records(forged, errors="mark", check=check)
            except ValueError:
                continue
            assert column == "body" and table.bad.all()


@pytest.mark.parametrize("column, value", [
    ("headers_at", 2**32 - 1), ("start", -1), ("start", -2**40), ("buffer", 3), ("parent", -5),
    ("header_count", 2**31 - 1)])
def test_records_that_lie_are_refused(column, value):
    records = kafka.records(kafka.scan(encode_batch(golden.RECORDS)))
    rows = records.rows.copy()
    rows[column] = value
    forged = wirescan.FrameTable(records.buffers, rows, (), records.format, records.outer)
    try:
        table = kafka.headers(forged, errors="mark")
    except ValueError:
        return
    laws.places_lie_in_their_frames(table)


def test_varints_that_fill_a_word_or_more():
    """Long deltas beside long keys: what does not fit into one word is read by all paths alike."""
    for timestamp in (2**6, 2**13, 2**20, 2**27, 2**34, 2**41, 2**48, 2**62):
        for offset in (1, 2**6, 2**13, 2**20, 2**27):
            for size in (1, 2**6, 2**13):
                key = bytes(range(1, 256)) * (size // 255 + 1)
                rows = [Record(0, 0, b"", b""), Record(offset, timestamp, key, b"v"),
                        Record(offset + 1, 0, b"k", bytes(100))]
                table = kafka.scan(encode_batch(rows) + encode_batch(rows))
                said = [(row.offset, row.timestamp, bytes(row.key), bytes(row.value)) for row in kafka.records(table)]
                assert said == [row[:4] for row in rows] * 2
