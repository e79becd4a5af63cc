"""The broker-made files in tests/corpus/kafka, as two independent readers read them when they were made.

Needs no broker and no client: expected.json holds digests of the records (see canonical.py).
"""
import json
from pathlib import Path

import pytest

from .canonical import digest, from_wirescan

CORPUS = Path(__file__).parents[1] / "corpus" / "kafka"
EXPECTED = json.loads((CORPUS / "expected.json").read_text())
CONTROL = 0x20


DIRECTORIES = {name: about for name, about in EXPECTED.items() if "segments" in about}
FILES = {name: about for name, about in EXPECTED.items() if "segments" not in about}
FILES |= {f"{name}/{segment}": one for name, about in DIRECTORIES.items()
          for segment, one in about["segments"].items()}


@pytest.mark.parametrize("name", FILES)
def test_file(name):
    from wirescan import kafka

    about = FILES[name]
    batches = kafka.scan(CORPUS / name)
    assert len(batches) == about["batches"]
    assert batches.consumed == about["whole"]
    assert batches.consumed + len(batches.tail) == about["bytes"]
    records = from_wirescan(CORPUS / name)
    assert len(records) == about["records"]
    assert (records[0].offset, records[-1].offset) == (about["first_offset"], about["last_offset"])
    assert digest(records) == about["sha256"]
    if (batches["magic"] == 2).all():
        control = batches["attributes"] & CONTROL != 0
        assert batches["record_count"][control].sum() == about["control_records"]


@pytest.mark.parametrize("name", DIRECTORIES)
def test_directory(name):
    from wirescan import kafka

    about = EXPECTED[name]
    assert len(kafka.open_log(CORPUS / name)) == about["batches"]
    records = from_wirescan(CORPUS / name)
    assert len(records) == about["records"]
    assert digest(records) == about["sha256"]


def test_preallocated_tail():
    from wirescan import kafka
    from wirescan.core.fault import Fault

    name = max(EXPECTED["live-0"]["segments"])
    table = kafka.scan(CORPUS / "live-0" / name)
    assert table.stop.fault == Fault.ZEROS
    assert not any(table.tail) and len(table.tail) > 0
