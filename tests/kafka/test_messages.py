"""Messages of magic 0 and 1: their records equal those of the reference and of the slow kernel."""

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.cases import steady
from tests.reference.kafka import RECORD, list_records
from tests.strategies.kafka import TIME, correct_checksums
from tests.support.kafka_bytes import PLAIN, make_wrapper
from wirescan import FrameError, Limits, kafka
from wirescan.core.loop import BYPASS_BYTES
from wirescan.kafka.encode.records import encode_batch, encode_message_set
from wirescan.kafka.record_batches.scan import child_spans, open_messages, open_records


def make_message(magic, key=b"key", value=b"value", rest=b"", offset=5, attributes=0):
    """Return a message with a correct checksum.

    key, value: bytes, or a size that is written without bytes. rest: bytes after the value.
    """
    body = struct.pack(">bb", magic, attributes) + struct.pack(">q", TIME) * magic
    for field in (key, value):
        size, data = (field, b"") if isinstance(field, int) else (len(field), field)
        body += struct.pack(">i", size) + data
    body += rest
    return correct_checksums(struct.pack(">qiI", offset, 4 + len(body), 0) + body)


def damage_checksum(message):
    """Return a message whose checksum does not match."""
    return message[:12] + bytes([message[12] ^ 1]) + message[13:]


FIELDS = st.binary(max_size=40) | st.sampled_from([-1, -2, -(2**31), 1, 9, 2**31 - 1])
ENTRIES = st.one_of(
    st.builds(
        make_message,
        st.integers(0, 1),
        FIELDS,
        FIELDS,
        st.just(b"") | st.binary(max_size=9),
        st.integers(-(2**63), 2**63 - 1),
        st.sampled_from([0, 8, 0x10]),
    ),
    st.builds(make_message, st.integers(0, 1)),
    st.builds(damage_checksum, st.builds(make_message, st.integers(0, 1))),
    st.just(make_wrapper(encode_message_set(PLAIN))),
    st.just(encode_batch(PLAIN)),
)


def read_slowly(batches, *, check=True, verify=False):
    """Return the rows of the records of uncompressed batches by the kernel for one record."""
    opened, counts, packed = child_spans(batches.rows, batches.buffers)
    assert not len(packed)
    rows, _, fault = open_records(
        batches.rows,
        batches.buffers,
        opened,
        counts,
        check,
        Limits(),
        verify=verify,
        path="plain",
    )
    assert not fault
    return rows


def list_rows(table):
    """Return the rows as dicts. `start` and `buffer` of decompressed bytes are None."""
    rows = [dict(zip(RECORD, row)) for row in table.rows[list(RECORD)].tolist()]
    return [row | dict(start=None, buffer=None) if row["buffer"] else row for row in rows]


@steady
@given(entries=st.lists(ENTRIES, max_size=6), cut=st.integers(0, 60), check=st.booleans())
def test_records_equal_those_of_the_reference(entries, cut, check):
    data = b"".join(entries)
    data = data[: max(len(data) - cut, 0)] if cut < 30 else data
    batches = kafka.scan(data, errors="mark", check=check)
    expected = []
    for number, values in enumerate(batches.rows.tolist()):
        batch = dict(zip(batches.dtype.names, values))
        expected += [
            row | dict(start=None, buffer=None) if row["buffer"] else row
            for row in list_records(data, batch, check, number)
        ]
    assert list_rows(kafka.records(batches, errors="mark", check=check)) == expected


@steady
@given(messages=st.lists(st.builds(make_message, st.integers(0, 1), FIELDS, FIELDS), max_size=9))
def test_plain_messages_equal_those_of_the_slow_kernel(messages):
    batches = kafka.scan(b"".join(messages), errors="mark", check=False)
    for check in (False, True):
        records = kafka.records(batches, errors="mark", check=check)
        assert records.rows.tobytes() == read_slowly(batches, verify=check).tobytes()
        assert records.checked is check


@steady
@given(
    column=st.sampled_from(kafka.BATCH.names),
    value=st.integers(-9, 99) | st.integers(-(2**63), 2**63 - 1),
    number=st.integers(0, 2),
)
def test_changed_rows_give_the_records_of_the_slow_kernel(column, value, number):
    batches = kafka.scan(make_message(0) + make_message(1) + make_message(1, -1, -1))
    rows = batches.rows.copy()
    rows[column][number] = np.array(value).astype(rows[column].dtype)
    opened = open_messages(rows, batches.buffers, Limits())
    if opened is not None:
        changed = replace(batches, rows=rows)
        assert opened[0].tobytes() == read_slowly(changed).tobytes()


@pytest.mark.parametrize(
    "entry",
    [
        damage_checksum(make_message(1)),
        make_message(1, rest=b"x"),
        make_message(0, value=9),
        make_message(0, key=2**31 - 1),
        make_wrapper(encode_message_set(PLAIN)),
        encode_batch(PLAIN),
    ],
)
def test_only_intact_plain_messages_are_opened_together(entry):
    intact = make_message(0) + make_message(1, -1, -1) + make_message(1, b"", -2)
    batches = kafka.scan(intact)
    rows, bad, fault = open_messages(batches.rows, batches.buffers, Limits(), verify=True)
    assert (bad, fault, len(rows)) == (0, 0, 3)
    assert rows["key_size"].tolist() == [3, -1, 0]
    assert rows["value_size"].tolist() == [5, -1, -1]
    for data in (entry, intact + entry, entry + intact):
        batches = kafka.scan(data, errors="mark", check=False)
        assert open_messages(batches.rows, batches.buffers, Limits(), verify=True) is None


def test_more_rows_than_the_caches_hold():
    message = make_message(1, b"", b"")
    count = BYPASS_BYTES // kafka.RECORD.itemsize + 1
    batches = kafka.scan(message * count)
    rows = kafka.records(batches).rows
    assert len(rows) == count
    assert rows.tobytes() == read_slowly(batches).tobytes()


def test_the_limit_on_rows_counts_messages():
    batches = kafka.scan(make_message(1) * 3)
    with pytest.raises(FrameError, match="LIMIT"):
        kafka.records(batches, limits=Limits(rows=2))


def test_rows_of_another_dtype_are_refused():
    with pytest.raises(TypeError, match=r"kafka\.batches"):
        open_messages(np.zeros(1, kafka.RECORD), (b"",), Limits())


def test_rows_cannot_be_made_writable():
    batches = kafka.scan(make_message(1))
    for table in (batches, kafka.records(batches), kafka.scan(b"")):
        with pytest.raises(ValueError, match="read-only"):
            table.rows["start"] = 1
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            table.rows.flags.writeable = True
