"""`wirescan.scan` of nested formats, whose checksums are verified when the frames are opened."""

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

import wirescan
from tests.laws.cases import steady
from tests.strategies import kafka as strategies
from tests.strategies import shared as st
from tests.support.paths import ORDERS
from wirescan import FrameError, Limits, kafka
from wirescan.frames.registry import format_of
from wirescan.kafka import Record, encode_batch

MODES = ("strict", "mark", "skip")


def open_in_steps(source, **options):
    """Return the records of a source, whose checksums the scan verifies."""
    return format_of("kafka.records").open(source, check=True, limits=Limits(), **options)


def describe(read, source, errors):
    """Return everything about a table, or about the error that reading raises."""
    try:
        table = read(source, errors=errors)
    except FrameError as error:
        return str(error), error.fault, error.offset, error.source
    batches = table.outer
    return (
        table.rows.tobytes(),
        (table.stops, table.checked, table.errors),
        batches.rows.tobytes(),
        (batches.stops, batches.checked, batches.errors),
    )


def scan(source, errors):
    return wirescan.scan(source, "kafka.records", errors=errors, workers=1)


@steady
@given(strategies.logs(), st.sampled_from(MODES))
def test_any_log_gives_the_table_of_a_scan_that_verifies(raw, errors):
    assert describe(scan, raw, errors) == describe(open_in_steps, raw, errors)


@pytest.mark.parametrize("errors", MODES)
def test_a_flipped_bit_anywhere_is_reported_as_by_a_scan(errors):
    good = encode_batch([Record(0, 5, b"k", b"v"), Record(1, 6)]) + encode_batch([Record(2)])
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 4
        assert describe(scan, bytes(bad), errors) == describe(open_in_steps, bytes(bad), errors)


def test_the_checksums_of_an_intact_log_are_verified_once(monkeypatch):
    batches = format_of("kafka.batches")
    checks = []

    def scan_and_note(buffer, *, check, **options):
        checks.append(check)
        return batches.parser.scan(buffer, check=check, **options)

    parser = replace(batches.parser, scan=scan_and_note)
    monkeypatch.setattr("wirescan.kafka.batch_formats.BATCHES", replace(batches, parser=parser))
    data = encode_batch([Record(0, value=b"v")])
    assert len(scan(data, "strict")) == 1
    assert checks == [False]
    with pytest.raises(FrameError, match="BAD_CHECKSUM"):
        scan(data[:-1] + b"?", "strict")
    assert checks[:3] == [False, False, True]


def test_a_file_object_is_read_once():
    data = encode_batch([Record(0, value=b"v")])
    damaged = io.BytesIO(data + data[:-1] + b"?")
    assert wirescan.scan(damaged, "kafka.records", errors="skip")["value_size"].tolist() == [1]
    table = wirescan.scan([io.BytesIO(data), data], "kafka.records")
    assert np.array_equal(table["buffer"], [0, 1])


def test_a_directory_is_read_by_the_names_of_segments(tmp_path):
    (tmp_path / f"{0:020}.log").write_bytes(encode_batch([Record(0)]))
    (tmp_path / f"{0:020}.index").write_bytes(b"no segment")
    assert len(wirescan.scan(tmp_path, "kafka.records")) == 1
    expected = kafka.records(kafka.scan(ORDERS))
    found = wirescan.scan(ORDERS, "kafka.records")
    assert np.array_equal(found.rows, expected.rows)


def test_digits_of_other_scripts_name_no_segment(tmp_path):
    for name in (f"{0:020}.log", f"{0:019}\N{ARABIC-INDIC DIGIT FIVE}.log"):
        (tmp_path / name).write_bytes(encode_batch([Record(0)]))
    assert len(wirescan.scan(tmp_path, "kafka.records")) == 1
    assert len(kafka.open_log(tmp_path)) == 1


def test_an_error_names_the_file(tmp_path):
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(encode_batch([Record(0)])[:-1] + b"?")
    with pytest.raises(FrameError) as caught:
        wirescan.scan(path, "kafka.records")
    assert caught.value.source == str(path)
