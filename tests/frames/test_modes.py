"""A mode that was given once is kept by everything that is opened from the table."""

import dataclasses
import io
import pickle

import numpy as np
import pytest

import wirescan
from wirescan import FrameError, kafka, liftbridge, lumberjack, nats
from wirescan.core.checksum import crc32c
from wirescan.frames.errors import MODES, resolve_mode
from wirescan.frames.registry import format_of
from wirescan.frames.table import join, make_empty
from wirescan.kafka import Record, encode_batch
from wirescan.testing.mutations import flip_bit

GOOD = encode_batch([Record(i, 0, b"k", b"v", [("a", b"1")]) for i in range(3)])
BAD = flip_bit(GOOD)
NESTED = [format for format in wirescan.formats().values() if format.within is not None]


def make_bad_header():
    """Return a good batch whose record has a header with a key that is null, which is a fault."""
    raw = bytearray(encode_batch([Record(0, 0, None, b"w", [("", b"1")])]))
    raw[raw.index(b"\x00\x021", 61)] = 1
    raw[17:21] = crc32c(bytes(raw[21:])).to_bytes(4, "big")
    return bytes(raw)


# ---- every function


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("format", NESTED, ids=lambda format: format.name)
def test_every_function_that_opens_a_table_keeps_its_mode(format, mode):
    outer = dataclasses.replace(make_empty(format_of(format.within)), errors=mode)
    for read in (format.read, format.inside):
        assert read(outer).errors == mode
        assert read(outer, errors="skip").errors == "skip"
    for name, read in format.children.items():
        inner = dataclasses.replace(make_empty(format), errors=mode)
        assert read(inner).errors == mode, name
        assert inner.open(name).errors == mode, name
        assert inner.open(name, errors="mark").errors == "mark", name


def test_every_function_takes_a_mode():
    for format in NESTED:
        with pytest.raises(ValueError, match="errors must be one of strict, mark, skip, not 'no'"):
            format.read(make_empty(format_of(format.within)), errors="no")


def test_a_mode_is_resolved():
    table = kafka.scan(BAD, errors="mark")
    assert [resolve_mode(mode, table) for mode in (None, *MODES)] == ["mark", *MODES]
    file = io.TextIOWrapper(io.BytesIO(), errors="ignore")
    assert resolve_mode(None, GOOD) == resolve_mode(None, file) == "strict"
    with pytest.raises(TypeError, match="limits must be"):
        resolve_mode(None, table, 3)


# ---- damage


@pytest.mark.parametrize("copied", [False, True], ids=["table", "pickle"])
def test_marked_damage_stays_marked(copied):
    batches = wirescan.scan(GOOD + BAD + GOOD, "kafka.batches", errors="mark")
    if copied:
        batches = pickle.loads(pickle.dumps(batches))
    records = kafka.records(batches)
    assert records.errors == "mark" and records.bad.tolist() == [False] * 3 + [True] + [False] * 3
    for table in (records, records[2:], join([records, records]), records.where(records.bad)):
        assert kafka.headers(table).bad.any()
    with pytest.raises(FrameError, match="BAD_CHECKSUM"):
        kafka.records(batches, errors="strict")
    assert len(kafka.records(batches, errors="skip")) == 6


def test_skipped_damage_stays_skipped():
    records = kafka.records(kafka.scan(GOOD + make_bad_header() + BAD, errors="skip"))
    headers = kafka.headers(records)
    assert len(records) == 4 and len(headers) == 3 and headers.errors == "skip"
    with pytest.raises(FrameError, match="BAD_NULL"):
        kafka.headers(records, errors="strict")


def test_the_default_for_bytes_is_strict():
    for read in (kafka.scan, lambda raw: wirescan.scan(raw, "kafka.records")):
        with pytest.raises(FrameError, match="BAD_CHECKSUM"):
            read(GOOD + BAD)
    unchecked = kafka.scan(GOOD + BAD, check=False)
    with pytest.raises(FrameError, match="BAD_CHECKSUM"):
        kafka.records(unchecked)


def test_the_first_fault_of_the_wire_is_raised_before_a_later_one():
    """Frames before a bad one are opened strictly, though they were read again as marked."""
    raw = make_bad_header() + BAD
    for options in ({}, {"errors": None}, {"errors": "strict"}):
        with pytest.raises(FrameError, match="BAD_NULL"):
            format_of("kafka.headers").open(raw, **options)


def test_record_sets_in_a_table_are_scanned_in_its_mode():
    topic = {"topic": "t", "partitions": [{"partition_index": 0, "records": GOOD + BAD + GOOD}]}
    request = kafka.encode_request("Fetch", 11, {}, correlation_id=1)
    response = kafka.encode_response("Fetch", 11, {"responses": [topic]}, correlation_id=1)
    requests = kafka.requests(request)
    responses = kafka.responses(response, requests, errors="mark")
    fetched = kafka.body(responses, "Fetch")
    partitions = fetched.open("responses").open("partitions")
    for batches in (kafka.scan(partitions), wirescan.scan(partitions, "kafka.batches")):
        assert batches.bad.tolist() == [False, True, False]  # it found the batch after the bad one
        assert kafka.records(batches).errors == "mark"
    assert len(kafka.scan(partitions, errors="skip")) == 2
    with pytest.raises(FrameError, match="BAD_CHECKSUM"):
        kafka.scan(partitions, errors="strict")


def test_envelopes_in_a_table_are_read_in_its_mode():
    good = liftbridge.encode_message(b"one")
    raw = nats.encode_pub("orders", good) + nats.encode_pub("orders", flip_bit(good[:5]))
    raw += nats.encode_pub("orders", liftbridge.encode_message(b"two")[:6])
    table = nats.scan(raw, errors="mark")
    envelopes = liftbridge.scan(table)
    assert envelopes.errors == "mark" and envelopes.bad.any()
    assert liftbridge.messages(envelopes).errors == "mark"
    with pytest.raises(FrameError):
        liftbridge.scan(table, errors="strict")


def test_events_are_read_in_the_mode_of_their_frames():
    raw = bytearray(lumberjack.encode_batch([{"message": "one" * 99}] * 2, level=6))
    raw[-1] ^= 1  # Adler-32
    frames = lumberjack.scan(bytes(raw), errors="mark")
    assert np.count_nonzero(lumberjack.events(frames).bad) == 1
    assert lumberjack.plain(frames).errors == "mark"
    with pytest.raises(FrameError):
        lumberjack.events(frames, errors="strict")
