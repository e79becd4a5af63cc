"""Spark reads segments that are stored in chunks."""

import json

from tests.support.paths import AIVEN_STORAGE
from wirescan.spark import read


def test_records_of_aiven_storage(spark):
    path = str(AIVEN_STORAGE / "compressed")
    columns = ["topic", "partition", "offset"]
    table = read(spark, path, format="kafka.records", columns=columns)
    rows = table.where("offset >= 240 and offset < 243").collect()
    assert [tuple(row) for row in rows] == [("orders", 0, offset) for offset in (240, 241, 242)]
    expected = json.loads((AIVEN_STORAGE / "expected.json").read_text())
    assert table.count() >= expected["compressed"]["read_uncommitted"]["records"]
