"""The column `control` of Kafka's records in Spark."""

import pytest

import wirescan
from tests.spark.frames import load_frames
from tests.support.paths import ORDERS
from wirescan.spark import read

pytestmark = pytest.mark.spark
SEGMENT = str(ORDERS / f"{24800:020}.log")


def test_control_records_have_names_in_spark(spark):
    table = wirescan.scan(SEGMENT, "kafka.records").to_arrow(["offset", "control"])
    expected = [row for row in table.to_pylist() if row["control"] is not None]
    assert {row["control"] for row in expected} == {"ABORT", "COMMIT"}
    frame = read(spark, SEGMENT, columns=["offset", "control"])
    rows = frame.where("control is not null").orderBy("offset").collect()
    assert [row.asDict() for row in rows] == expected


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_spark_filters_by_the_names(spark, pushdown):
    table = wirescan.scan(SEGMENT, "kafka.records")
    expected = wirescan.where(table, "control == COMMIT")["offset"].tolist()
    options = {"format": "kafka.records", "columns": "offset,control", "pushdown": pushdown}
    frame = load_frames(spark, SEGMENT, **options).where("control = 'COMMIT'")
    assert sorted(row.offset for row in frame.collect()) == expected
