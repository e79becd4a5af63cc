"""The files of a broker in tests/corpus/kafka: wirescan reads what two other readers read.

The tests need no broker and no client: expected.json has digests of the records (see canonical.py).
"""

import pytest

from tests.peers.kafka_corpus import CONTROL, DIRECTORIES, EXPECTED
from tests.support.paths import KAFKA_CORPUS

from .canonical import digest, read_with_wirescan

FILES = {name: about for name, about in EXPECTED.items() if "segments" not in about}
FILES |= {
    f"{name}/{segment}": description
    for name, about in DIRECTORIES.items()
    for segment, description in about["segments"].items()
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_holds_the_expected_records(name):
    from wirescan import kafka

    about = FILES[name]
    batches = kafka.scan(KAFKA_CORPUS / name)
    assert len(batches) == about["batches"]
    assert batches.consumed == about["whole"]
    assert batches.consumed + len(batches.tail) == about["bytes"]
    records = read_with_wirescan(KAFKA_CORPUS / name)
    assert len(records) == about["records"]
    assert (records[0].offset, records[-1].offset) == (about["first_offset"], about["last_offset"])
    assert digest(records) == about["sha256"]
    if (batches["magic"] == 2).all():
        control = batches["attributes"] & CONTROL != 0
        assert batches["record_count"][control].sum() == about["control_records"]


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_directory_holds_the_expected_records(name):
    from wirescan import kafka

    about = EXPECTED[name]
    assert len(kafka.open_log(KAFKA_CORPUS / name)) == about["batches"]
    records = read_with_wirescan(KAFKA_CORPUS / name)
    assert len(records) == about["records"]
    assert digest(records) == about["sha256"]


def test_a_preallocated_tail_is_zeros():
    from wirescan import kafka
    from wirescan.core.fault import Fault

    name = max(EXPECTED["live-0"]["segments"])
    table = kafka.scan(KAFKA_CORPUS / "live-0" / name)
    assert table.stop.fault == Fault.ZEROS
    assert not any(table.tail)
    assert len(table.tail) > 0
