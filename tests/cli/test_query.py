"""The first query of `wirescan convert`, beside counts in Python."""

from collections import Counter
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wirescan.cli.support import query as query_module
from wirescan.cli.support.query import Query, ValueCounts
from wirescan.frames.registry import format_of

RECORDS = format_of("kafka.records")
FIRST_TIME = 1_700_000_000_000_000  # microseconds
TYPES = pa.schema(
    {
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "key": pa.binary(),
        "fault": pa.string(),
    }
)


def write_files(directory, tables):
    """Write tables, each to a file in a directory of its own."""
    for i, table in enumerate(tables):
        (directory / f"_part={i}").mkdir()
        pq.write_table(table, directory / f"_part={i}" / "part.parquet", row_group_size=30)


def make_table(random, rows):
    """Return a table of records with keys of which some are null, and some faults."""
    keys = [random.choice([None, b"", b"\xff", b"%d" % random.randrange(20)]) for _ in range(rows)]
    faults = [random.choice([None, None, None, "BAD_LENGTH"]) for _ in range(rows)]
    columns = {
        "offset": [random.randrange(1000) for _ in range(rows)],
        "timestamp": [FIRST_TIME + random.randrange(10**9) for _ in range(rows)],
        "key": keys,
        "fault": faults,
    }
    return pa.table(columns, TYPES)


def count_in_python(tables):
    """Return what the query answers."""
    rows = [row for table in tables for row in table.to_pylist() if row["fault"] is None]
    offsets = [row["offset"] for row in rows]
    times = [int(row["timestamp"].timestamp() * 1000) for row in rows]
    counts = Counter(row["key"] for row in rows if row["key"] is not None)
    common = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:5]
    return {
        "rows": len(rows),
        "offset": [min(offsets), max(offsets)],
        "timestamp": [min(times), max(times)],
        "commonest": {"column": "key", "values": common},
    }


@pytest.mark.parametrize("seed", range(5))
def test_the_answer_is_that_of_counting_in_python(tmp_path, seed):
    random = Random(seed)
    tables = [make_table(random, rows) for rows in (200, 1, 90)]
    write_files(tmp_path, tables)
    assert Query(TYPES, RECORDS).run_with_arrow(str(tmp_path)) == count_in_python(tables)


def test_rows_without_the_columns_of_the_query_are_counted(tmp_path):
    table = pa.table({"value": [b"a", b"b", None]})
    write_files(tmp_path, [table, table])
    assert Query(table.schema, RECORDS).run_with_arrow(str(tmp_path)) == {"rows": 6}


def test_only_bad_rows_give_no_ends(tmp_path):
    table = pa.table(
        {"offset": [1], "timestamp": [FIRST_TIME], "key": [b"a"], "fault": ["BAD_LENGTH"]}, TYPES
    )
    write_files(tmp_path, [table, table])
    assert Query(TYPES, RECORDS).run_with_arrow(str(tmp_path)) == {
        "rows": 0,
        "offset": [None, None],
        "timestamp": [None, None],
        "commonest": {"column": "key", "values": []},
    }


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [pa.int32(), pa.string(), pa.binary()])
def test_counts_that_are_merged_are_those_of_all_values(monkeypatch, kind, seed):
    monkeypatch.setattr(query_module, "MERGED_VALUES", 10)
    random = Random(seed)
    counts, expected = ValueCounts(), Counter()
    for _ in range(50):
        numbers = [random.choice([None, *range(random.randrange(1, 40))]) for _ in range(20)]
        values = numbers
        if not pa.types.is_integer(kind):
            values = [None if number is None else str(number) for number in numbers]
        array = pa.array(values, kind)
        expected.update(value for value in array.to_pylist() if value is not None)
        counts.add(array)
        assert sum(map(len, counts._counted)) <= 40 + 2 * 20
    ordered = sorted(expected.items(), key=lambda pair: (-pair[1], pair[0]))
    for most in (1, 5, 39, 100):
        assert counts.find_commonest(most) == ordered[:most]


def test_the_lowest_of_equally_common_values_are_chosen():
    counts = ValueCounts()
    counts.add(pa.array([b"z", b"d", b"c", b"\xff", b"b", b"a", b"z", None]))
    expected = [(b"z", 2), (b"a", 1), (b"b", 1), (b"c", 1), (b"d", 1), (b"\xff", 1)]
    for most in range(1, 8):
        assert counts.find_commonest(most) == expected[:most]
    assert ValueCounts().find_commonest(5) == []
