"""Lazy sources give the rows that an engine finds in the whole table, and read less."""

import datetime
import gc
import pickle
import random
import shutil
from fractions import Fraction
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wirescan
from tests.support.examples import read_example_count
from tests.support.paths import ORDERS
from wirescan import FrameError
from wirescan.export.lazy_sources import arrow_expressions, file_scan
from wirescan.export.lazy_sources.arrow_dataset import FrameDataset
from wirescan.export.lazy_sources.arrow_expressions import decode_expression
from wirescan.export.lazy_sources.conditions import list_filters
from wirescan.export.lazy_sources.polars_predicates import decode_predicate
from wirescan.frames import to_arrow
from wirescan.frames.registry import format_of
from wirescan.kafka import Record, encode_batch
from wirescan.reading import chunks
from wirescan.reading.filters import apply_filters, check_filters

RECORDS = format_of("kafka.records")
COLUMNS = [
    "_file",
    "_start",
    "offset",
    "timestamp",
    "key",
    "value",
    "headers",
    "is_control",
    "codec",
    "fault",
    "_fault",
]
UTC = datetime.timezone.utc
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)


def make_log(first: int) -> bytes:
    """Return batches with null keys, empty values, records without time, and damage."""
    good = encode_batch(
        [
            Record(first, 1_000, b"k1", b"", [("h", b"1")]),
            Record(first + 1, None, None, b"value"),
            Record(first + 2, 3_000, b"", None),
        ]
    )
    later = encode_batch([Record(first + 9, 9_000, b"k2", b"\xff\x00")], codec="gzip")
    damaged = later[:-1] + bytes([later[-1] ^ 255])
    return good + damaged + later


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    for first in (0, 100, 200):
        (folder / f"{first:020}.log").write_bytes(make_log(first))
    return folder


def make_scan(source, columns=COLUMNS, errors="mark", format="kafka.records"):
    return wirescan.scan_polars(source, format=format, columns=columns, errors=errors)


def make_dataset(source, columns=COLUMNS, errors="mark", format="kafka.records"):
    return wirescan.dataset(source, format=format, columns=columns, errors=errors)


@pytest.fixture
def bytes_read(monkeypatch):
    """A list of the sizes of the chunks that are read."""
    sizes = []
    read = chunks.read_chunk

    def read_and_count(*arguments, **options):
        chunk = read(*arguments, **options)
        sizes.append(len(chunk))
        return chunk

    monkeypatch.setattr(chunks, "read_chunk", read_and_count)
    return sizes


@pytest.fixture
def calls(monkeypatch):
    """A list of the columns and filters that files are read with."""
    out = []
    iter_batches = file_scan.iter_batches

    def record_call(path, **options):
        out.append((list(options["columns"]), list(options["filters"])))
        return iter_batches(path, **options)

    monkeypatch.setattr(file_scan, "iter_batches", record_call)
    return out


# --- the same rows as without pushdown

NUMBERS = st.integers(-2, 12) | st.sampled_from([101, 205, 2**62, -(2**63)])
TIMES = st.sampled_from([0, 999, 1_000, 3_000, 8_999, 9_000]).map(
    lambda ms: EPOCH + datetime.timedelta(milliseconds=ms, microseconds=0)
)
BYTES = st.sampled_from([b"", b"k", b"k1", b"k2", b"value", b"\xff", b"zz"])
FAULTS = st.sampled_from(["BAD_CHECKSUM", "BAD_LENGTH", "NO_SUCH_FAULT"])
VALUES = {
    "offset": NUMBERS,
    "_start": NUMBERS,
    "timestamp": TIMES,
    "key": BYTES,
    "value": BYTES,
    "codec": st.integers(0, 4),
    "_fault": FAULTS,
}
ORDERS_OF_VALUES = ["==", "!=", "<", "<=", ">", ">="]


def make_tests():
    comparisons = st.sampled_from(sorted(VALUES)).flatmap(
        lambda column: st.tuples(
            st.just(column), st.sampled_from(ORDERS_OF_VALUES), VALUES[column]
        ).filter(lambda test: column != "_fault" or test[1] in ("==", "!="))
    )
    sets = st.sampled_from(sorted(VALUES)).flatmap(
        lambda column: st.tuples(
            st.just(column), st.just("in"), st.lists(VALUES[column], min_size=1, max_size=3)
        )
    )
    # In polars these are false and not null for a null.
    missing = st.tuples(st.just("timestamp"), st.just("eq_missing"), TIMES) | st.tuples(
        st.just("key"), st.just("in_missing"), st.lists(BYTES, min_size=1, max_size=2)
    )
    nulls = st.tuples(st.sampled_from(COLUMNS), st.sampled_from(["is_null", "is_not_null"]))
    parts = st.tuples(
        st.sampled_from(["key", "value"]), st.sampled_from(["starts_with", "ends_with"]), BYTES
    )
    flags = st.tuples(st.just("is_control"), st.just("flag"))
    leaves = comparisons | sets | missing | nulls | parts | flags
    return st.recursive(
        leaves,
        lambda inner: (
            st.tuples(st.just("and"), inner, inner)
            | st.tuples(st.just("or"), inner, inner)
            | st.tuples(st.just("not"), inner)
        ),
        max_leaves=5,
    )


COMPARE = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def to_polars(test):
    if test[0] == "and":
        return to_polars(test[1]) & to_polars(test[2])
    if test[0] == "or":
        return to_polars(test[1]) | to_polars(test[2])
    if test[0] == "not":
        return ~to_polars(test[1])
    column, op, *value = test
    field = pl.col(column)
    if op in COMPARE:
        return COMPARE[op](field, value[0])
    return {
        "in": lambda: field.is_in(
            pl.Series(value[0], dtype=pl.Datetime("ms", "UTC")).implode()
            if column == "timestamp"
            else value[0]
        ),
        "eq_missing": lambda: field.eq_missing(*value),
        "in_missing": lambda: field.is_in(*value, nulls_equal=True),
        "is_null": field.is_null,
        "is_not_null": field.is_not_null,
        "starts_with": lambda: field.bin.starts_with(*value),
        "ends_with": lambda: field.bin.ends_with(*value),
        "flag": lambda: field,
    }[op]()


def to_arrow_expression(test):
    if test[0] == "and":
        return to_arrow_expression(test[1]) & to_arrow_expression(test[2])
    if test[0] == "or":
        return to_arrow_expression(test[1]) | to_arrow_expression(test[2])
    if test[0] == "not":
        return ~to_arrow_expression(test[1])
    column, op, *value = test
    field = pc.field(column)
    op = {"eq_missing": "==", "in_missing": "in"}.get(op, op)
    if op in COMPARE:
        if column == "timestamp":
            value = [pa.scalar(value[0], pa.timestamp("ms", "UTC"))]
        return COMPARE[op](field, value[0])
    return {
        "in": lambda: field.isin(
            pa.array(value[0], pa.timestamp("ms", "UTC") if column == "timestamp" else None)
        ),
        "is_null": field.is_null,
        "is_not_null": field.is_valid,
        "starts_with": lambda: pc.starts_with(field, *value),
        "ends_with": lambda: pc.ends_with(field, *value),
        "flag": lambda: field,
    }[op]()


PROPERTY = settings(
    deadline=None,
    max_examples=5 * read_example_count(10),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@PROPERTY
@given(test=make_tests(), errors=st.sampled_from(["mark", "skip"]))
def test_polars_finds_the_rows_of_the_whole_table(logs, test, errors):
    lazy = make_scan(logs, errors=errors)
    condition = to_polars(test)
    whole = lazy.collect()
    assert lazy.filter(condition).collect().equals(whole.filter(condition))


@PROPERTY
@given(test=make_tests(), errors=st.sampled_from(["mark", "skip"]))
def test_pyarrow_finds_the_rows_of_the_whole_table(logs, test, errors):
    source = make_dataset(logs, errors=errors)
    condition = to_arrow_expression(test)
    found = source.to_table(filter=condition)
    assert found.to_pylist() == source.to_table().filter(condition).to_pylist()
    assert source.count_rows(condition) == len(found)


@PROPERTY
@given(test=make_tests())
def test_filters_exclude_no_row_that_passes(logs, test):
    """Without the engine's own filter after it, so that the translation itself is tested."""
    path = str(logs / f"{100:020}.log")
    table = wirescan.scan(path, "kafka.records", errors="mark")
    rows = to_arrow.to_batch(table, COLUMNS, binary="binary", file=path)
    kept = {
        "polars": list_filters(decode_predicate(to_polars(test)), RECORDS),
        "arrow": list_filters(decode_expression(to_arrow_expression(test)), RECORDS),
    }
    passing = {
        "polars": pl.from_arrow(rows).filter(to_polars(test))["_start", "offset"].rows(),
        "arrow": pa.table(rows).filter(to_arrow_expression(test)),
    }
    passing["arrow"] = [tuple(row.values()) for row in passing["arrow"].to_pylist()]
    passing["arrow"] = [(row[1], row[2]) for row in passing["arrow"]]
    for engine, filters in kept.items():
        filtered = apply_filters(table, check_filters(filters, RECORDS), path)
        pairs = to_arrow.to_batch(filtered, ["_start", "offset"]).to_pylist()
        assert set(passing[engine]) <= {tuple(pair.values()) for pair in pairs}


SQL = [
    '"offset" >= 100 and "offset" < 203',
    '"offset" in (1, 2, 109)',
    '"offset" = 1 or "offset" = 209',
    '"offset" not in (1, 2)',
    '"offset" between 2 and 101',
    "key = 'k1'::blob",
    "key is null",
    "key is not null and value is null",
    "not is_control",
    "\"timestamp\" >= '1970-01-01 00:00:03+00'::timestamptz",
    "\"timestamp\" < '1970-01-01 00:00:03.0005+00'::timestamptz",
    "_fault = 'BAD_CHECKSUM'",
    "_fault is null and codec = 1",
    "_file like '%100.log'",
    "octet_length(value) > 1",
    "len(headers) > 0",
]


@pytest.mark.parametrize("condition", SQL)
def test_duckdb_finds_the_rows_of_the_whole_table(logs, condition):
    lazy = make_dataset(logs)
    whole = lazy.to_table()
    connection = duckdb.connect()
    connection.register("lazy", lazy)
    connection.register("whole", whole)
    query = f'from {{}} select _file, "offset", key, value where {condition}'
    expected = connection.execute(query.format("whole")).fetchall()
    assert connection.execute(query.format("lazy")).fetchall() == expected
    assert 0 < len(expected) < len(whole)


# --- what is pushed down


@pytest.mark.parametrize(
    ("predicate", "filters"),
    [
        (pl.col("offset") > 5, [("offset", ">", 5)]),
        (pl.lit(7) >= pl.col("offset"), [("offset", "<=", 7)]),
        (pl.col("offset").is_between(1, 3, "left"), [("offset", ">=", 1), ("offset", "<", 3)]),
        (pl.col("offset").is_in([1, 2]), [("offset", "in", [1, 2])]),
        (~pl.col("offset").is_in([1, 2]), [("offset", "not in", [1, 2])]),
        ((pl.col("offset") == 1) | (pl.col("offset") == 2), [("offset", "in", [1, 2])]),
        (pl.col("key") == b"a", [("key", "==", b"a")]),
        (pl.col("key").is_null(), [("key", "is_null", None)]),
        (~pl.col("is_control"), [("is_control", "!=", True)]),
        (pl.col("value").bin.starts_with(b"a"), [("value", "starts_with", b"a")]),
        (
            pl.col("_file").str.contains("a", literal=True),
            [("_file", "contains", "a")],
        ),
        (pl.col("timestamp") > EPOCH, [("timestamp", ">", 0)]),
        (pl.col("offset").eq_missing(3), [("offset", "==", 3)]),
        # Nulls pass these two.
        (~pl.col("offset").eq_missing(3), []),
        (~pl.col("key").is_in([b"a"], nulls_equal=True), []),
        # A part that cannot be expressed does not hide the others.
        ((pl.col("offset") > 5) & (pl.col("offset") % 2 == 0), [("offset", ">", 5)]),
        # Not pushed: an expression, a pattern, an unknown fault, and other columns joined by "or".
        (pl.col("offset") % 2 == 0, []),
        (pl.col("_file").str.contains("a|b"), []),
        (pl.col("fault") == "NO_SUCH_FAULT", []),
        ((pl.col("offset") == 1) | (pl.col("codec") == 2), []),
    ],
)
def test_polars_pushes(logs, calls, predicate, filters):
    make_scan(logs).filter(predicate).select("offset").collect()
    assert [pushed for _, pushed in calls] == [filters] * 3


@pytest.mark.parametrize(
    ("condition", "filters"),
    [
        ('"offset" > 5', [("offset", ">", 5)]),
        ('"offset" in (1, 5, 7)', [("offset", "in", [1, 5, 7])]),
        ('"offset" = 3 or "offset" = 5', [("offset", "in", [3, 5])]),
        ("key = 'a'::blob", [("key", "==", b"a")]),
        ("\"timestamp\" > '1970-01-01 00:00:00+00'::timestamptz", [("timestamp", ">", 0)]),
        ('"offset" % 2 = 0 and codec = 1', [("codec", "==", 1)]),
    ],
)
def test_duckdb_pushes(logs, calls, condition, filters):
    connection = duckdb.connect()
    connection.register("lazy", make_dataset(logs))
    connection.execute(f"from lazy select is_control where {condition}").fetchall()
    assert [pushed for _, pushed in calls] == [filters] * 3


def test_an_inverted_set_of_pyarrow_is_not_pushed(logs, calls):
    """Its nulls pass, and those of the filter "not in" do not."""
    found = make_dataset(logs).to_table(filter=~pc.field("key").isin([b"k1"]))
    assert [pushed for _, pushed in calls] == [[]] * 3
    assert None in found["key"].to_pylist()


def test_times_are_pushed_in_the_unit_of_the_column(logs, calls):
    source = make_dataset(logs)
    for value, unit in ((3_000_000, "us"), (2_999_999_999, "ns")):
        condition = pc.field("timestamp") >= pa.scalar(value, pa.timestamp(unit, "UTC"))
        assert source.count_rows(condition) == 6
    filters = [pushed for _, pushed in calls[::3]]
    assert filters == [
        [("timestamp", ">=", 3000)],
        [("timestamp", ">=", Fraction(2_999_999_999, 10**6))],
    ]


@pytest.mark.parametrize("value", [3_000, 5])
def test_times_without_a_zone_are_refused_by_pyarrow(logs, value):
    """The columns have a zone. A pushed time could leave no row for pyarrow to compare."""
    time = pa.scalar(value, pa.timestamp("ms"))
    for source in (make_dataset(logs), pa.dataset.dataset(make_dataset(logs).to_table())):
        with pytest.raises(pa.ArrowInvalid, match="without timezone"):
            source.to_table(filter=pc.field("timestamp") == time)


def test_nothing_is_pushed_if_pyarrow_has_another_layout(logs, calls, monkeypatch):
    expected = make_dataset(logs).to_table(["key"], filter=pc.field("offset") > 100)
    monkeypatch.setattr(arrow_expressions, "METADATA", "-- other --\n")
    arrow_expressions._is_layout_known.cache_clear()
    calls.clear()
    try:
        found = make_dataset(logs).to_table(["key"], filter=pc.field("offset") > 100)
    finally:
        monkeypatch.undo()
        arrow_expressions._is_layout_known.cache_clear()
    assert calls == [(COLUMNS, [])] * 3
    assert found.equals(expected)


# --- columns


def test_only_the_columns_of_a_query_are_read(calls):
    make_scan(ORDERS).select(pl.col("value").bin.size().sum()).collect()
    assert {tuple(columns) for columns, _ in calls} == {("value",)}
    calls.clear()
    make_scan(ORDERS).filter(pl.col("codec") == 0).select("key").collect()
    assert {frozenset(columns) for columns, _ in calls} == {frozenset(("codec", "key"))}
    calls.clear()
    frames = make_dataset(ORDERS)  # noqa: F841 - duckdb finds it by its name
    assert duckdb.execute("select sum(octet_length(value)) from frames").fetchall() == [
        (3_973_704,)
    ]
    assert {tuple(columns) for columns, _ in calls} == {("value",)}
    calls.clear()
    make_dataset(ORDERS).count_rows()
    assert {tuple(columns) for columns, _ in calls} == {()}


def test_pyarrow_projects_names_twice_and_expressions(logs):
    source = make_dataset(logs)
    whole = source.to_table()
    assert source.to_table(["key", "offset", "key"]).equals(whole.select(["key", "offset", "key"]))
    doubled = source.to_table({"twice": pc.field("offset") * 2}, filter=pc.field("codec") == 0)
    offsets = whole.filter(pc.field("codec") == 0)["offset"]
    assert doubled.to_pydict() == {"twice": pc.multiply(offsets, 2).to_pylist()}


# --- less of the files


def test_a_limit_stops_early(bytes_read, tmp_path):
    long = tmp_path / "long.log"
    long.write_bytes(b"".join(path.read_bytes() for path in sorted(ORDERS.glob("*.log"))))
    for source in (ORDERS, long):
        assert make_scan(source, errors="strict").head(5).collect().height == 5
        # polars may ask for one batch more before it stops.
        assert 0 < sum(bytes_read) <= 2 * file_scan.LIMITED_BYTES < long.stat().st_size / 4
        bytes_read.clear()
        assert make_dataset(source, errors="strict").head(5).num_rows == 5
        assert 0 < sum(bytes_read) <= file_scan.LIMITED_BYTES
        bytes_read.clear()


def test_a_limit_counts_before_a_filter_after_it():
    lazy = make_scan(ORDERS)
    assert lazy.head(5).filter(pl.col("offset") > 3).select("offset").collect().rows() == [(4,)]
    first_two = lazy.filter(pl.col("offset") > 3).head(2).select("offset").collect()
    assert first_two.rows() == [(4,), (5,)]


def test_a_condition_on_offsets_or_times_reads_less(bytes_read):
    size = sum(path.stat().st_size for path in ORDERS.glob("*.log"))
    assert make_scan(ORDERS, errors="strict").select("key").collect().height == 27_708
    # A thread of polars may still end a read of an earlier test.
    assert sum(bytes_read) >= size
    bytes_read.clear()
    lazy = make_scan(ORDERS, errors="strict").filter(pl.col("offset").is_between(9000, 9009))
    assert lazy.collect().height == 10
    assert 0 < sum(bytes_read) < size / 20
    bytes_read.clear()
    frames = make_dataset(ORDERS, errors="strict")
    assert frames.count_rows(pc.field("offset") == 27_000) == 1
    assert 0 < sum(bytes_read) < size / 20
    bytes_read.clear()
    query = 'select count(*) from frames where "offset" >= 27000'
    assert duckdb.execute(query).fetchall() == [(708,)]
    assert 0 < sum(bytes_read) < size / 20
    bytes_read.clear()
    latest = datetime.datetime(2026, 1, 1, tzinfo=UTC)  # the times of the corpus are mixed
    query = 'select count(*) from frames where "timestamp" >= $1'
    ((count,),) = duckdb.execute(query, [latest]).fetchall()
    assert 0 < count < 2000
    assert 0 < sum(bytes_read) < size


# --- views of byte strings

VIEW = pa.binary_view()
MAPS = Path("/proc/self/maps")


@pytest.fixture
def given(monkeypatch):
    """A list of the first column of each batch that polars gets."""
    columns = []
    from_arrow = pl.from_arrow

    def take(batch):
        columns.append(batch.column(0))
        return from_arrow(batch)

    monkeypatch.setattr(pl, "from_arrow", take)
    return columns


def write_segment(path, sizes):
    """Write records whose keys and values have sizes, in batches of 100 records."""
    records = [Record(i, i, b"k" * key, b"v" * value) for i, (key, value) in enumerate(sizes)]
    whole = b"".join(encode_batch(records[i : i + 100]) for i in range(0, len(records), 100))
    path.write_bytes(whole)


def check_views(folder, columns, monkeypatch, *, mapped=False):
    """Compare batches that may have views with copies. Return the types of the last column."""
    monkeypatch.setattr(file_scan, "BATCH_BYTES", 10_000)
    monkeypatch.setattr(file_scan, "LIMITED_BYTES", 10_000)
    arguments = (str(folder / "*.log"), "kafka.records", columns, "strict")
    options = {"check": True, "limits": wirescan.Limits(), "mapped": mapped}
    scan = file_scan.FileScan.from_arguments(*arguments, **options)
    batches = list(scan.read_batches(columns, views=True))
    copied = pa.Table.from_batches(scan.read_batches(columns))
    assert pa.Table.from_batches([batch.cast(copied.schema) for batch in batches]) == copied
    assert len(batches) > 5
    return [str(batch.schema.field(columns[-1]).type) for batch in batches]


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        (["value"], "binary_view"),  # nine tenths of the bytes
        (["key", "value"], "binary_view"),
        (["key"], "binary"),  # a tenth
    ],
)
def test_byte_strings_of_a_query_are_copied_if_they_are_few_of_the_bytes(
    columns, kind, tmp_path, monkeypatch
):
    write_segment(tmp_path / "0.log", [(20, 200)] * 1000)
    assert set(check_views(tmp_path, columns, monkeypatch)) == {kind}


def test_views_end_where_they_would_keep_too_many_bytes(tmp_path, monkeypatch):
    """A file of large values that ends in small values, and another one of large values.

    5,000 small values have a tenth of the bytes. So after about 1,600 of them, all values have less
    than a quarter.
    """
    write_segment(tmp_path / "0.log", [(20, 200)] * 500 + [(200, 20)] * 5000)
    write_segment(tmp_path / "1.log", [(20, 200)] * 500)
    types = check_views(tmp_path, ["value"], monkeypatch)
    change = types.index("binary")
    assert 0.3 < change / len(types) < 0.6
    assert types == ["binary_view"] * change + ["binary"] * (len(types) - change)


def test_batches_that_share_a_buffer_keep_it_together(tmp_path, monkeypatch):
    """A mapped file is one buffer, of which each batch shows a tenth."""
    write_segment(tmp_path / "0.log", [(20, 200)] * 500)
    types = check_views(tmp_path, ["value"], monkeypatch, mapped=True)
    assert set(types) == {"binary_view"}


def test_values_inside_of_views_keep_no_bytes(tmp_path, monkeypatch):
    """A view of at most 12 bytes has them itself, but others of its batch may keep the file's."""
    write_segment(tmp_path / "0.log", [(12, 12)] * 2000 + [(13, 13)])
    assert set(check_views(tmp_path, ["value"], monkeypatch)) == {"binary"}


def test_nested_byte_strings_are_views_too(tmp_path, monkeypatch):
    """Headers are lists of pairs of byte strings."""
    kinds = {}
    for size in (4, 400):
        folder = tmp_path / str(size)
        folder.mkdir()
        records = [Record(i, i, b"k" * 200, None, [("h", b"w" * size)]) for i in range(500)]
        (folder / "0.log").write_bytes(b"".join(encode_batch([record]) for record in records))
        (kinds[size],) = set(check_views(folder, ["headers"], monkeypatch))
    assert kinds[400] == "list<item: struct<key: binary_view, value: binary_view>>"
    assert kinds[4] == "list<item: struct<key: binary, value: binary>>"


def test_polars_takes_views_of_lists(tmp_path, given):
    records = [Record(i, i, None, None, [("h", b"w" * 400)]) for i in range(200)]
    (tmp_path / "0.log").write_bytes(encode_batch(records))
    frame = make_scan(tmp_path / "0.log", columns=["headers"]).collect()
    assert frame["headers"].to_list() == [[{"key": b"h", "value": b"w" * 400}]] * 200
    assert given[-1].type == pa.list_(pa.struct([("key", VIEW), ("value", VIEW)]))


@pytest.fixture
def kinds(monkeypatch):
    """A list of what byte strings are in the batches of each file that is read."""
    found = []
    iter_batches = file_scan.iter_batches

    def record_kind(path, **options):
        found.append(options["binary"])
        return iter_batches(path, **options)

    monkeypatch.setattr(file_scan, "iter_batches", record_kind)
    return found


def test_only_queries_of_all_rows_have_views(tmp_path, kinds):
    """Few rows of a query would keep the bytes of all rows in memory."""
    write_segment(tmp_path / "0.log", [(20, 200)] * 1000)
    scan = make_scan(tmp_path / "0.log", columns=["offset", "value"])
    for query, expected in [
        (scan, ["view", "view"]),  # the first part decides on views
        (scan.select("offset"), ["view"]),  # no byte strings, and so no views
        (scan.filter(pl.col("offset") > 5), ["binary"]),
        (scan.head(5), ["binary"]),
    ]:
        kinds.clear()
        query.collect()
        assert kinds == expected


def test_the_first_part_of_a_file_may_expand_more_than_the_file(tmp_path):
    """The first part decides on views. Its own limit refuses no query."""
    small = encode_batch([Record(0, 0, None, bytes(100_000))] * 40, codec="gzip")
    noise = random.Random(1).randbytes(60 * 90_000)
    values = [noise[i : i + 90_000] for i in range(0, len(noise), 90_000)]
    large = b"".join(encode_batch([Record(i, i, None, v)]) for i, v in enumerate(values, 40))
    (tmp_path / "0.log").write_bytes(small + large)
    limits = wirescan.Limits(expansion=4)
    scan = wirescan.scan_polars(tmp_path / "0.log", format="kafka.records", limits=limits)
    assert len(scan.collect()) == 100


def test_skipped_bytes_are_not_kept_in_memory(tmp_path, kinds):
    """The bytes between frames would not be counted."""
    write_segment(tmp_path / "0.log", [(20, 200)] * 1000)
    make_scan(tmp_path / "0.log", columns=["value"], errors="skip").collect()
    assert kinds == ["binary"]


def test_polars_takes_views_of_copied_bytes(tmp_path, given, kinds):
    """polars would make views of offsets on one thread."""
    write_segment(tmp_path / "0.log", [(20, 200)] * 1000)
    frame = make_scan(tmp_path / "0.log", columns=["key"]).collect()
    assert frame["key"].to_list() == [b"k" * 20] * 1000
    assert kinds == ["view", "binary"]  # the first part decides
    keys = given[-1]
    _, views, *copied = keys.buffers()
    assert keys.type == VIEW
    assert views.size == 1000 * 16
    assert sum(buffer.size for buffer in copied) < 2 * 1000 * 20


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_rows_are_counted_without_a_column(tmp_path, engine):
    """polars asks for no column where a query needs only the number of the rows."""
    write_segment(tmp_path / "0.log", [(1, 1)] * 250)
    scan = make_scan(tmp_path / "0.log").with_row_index().select("index")
    assert scan.collect(engine=engine)["index"].to_list() == list(range(250))
    assert len(scan.head(7).collect(engine=engine)) == 7


@pytest.mark.skipif(not MAPS.exists(), reason="the system does not list what is mapped")
def test_a_result_keeps_its_mapped_segment(tmp_path):
    path = tmp_path / "0.log"
    write_segment(path, [(20, 200)] * 1000)
    scan = wirescan.scan_polars(path, format="kafka.records", mapped=True)
    frame = scan.collect()
    path.unlink()
    del scan
    gc.collect()
    assert str(path) in MAPS.read_text()
    assert frame["value"].to_list() == [b"v" * 200] * 1000
    del frame
    gc.collect()
    assert str(path) not in MAPS.read_text()


# --- batches


def test_batches_have_at_most_the_rows_that_are_asked_for(logs):
    sizes = [len(batch) for batch in make_dataset(logs).to_batches(batch_size=2)]
    assert max(sizes) == 2
    assert sum(sizes) == make_dataset(logs).count_rows()
    with pytest.raises(ValueError, match="at least 1 row"):
        make_dataset(logs).scanner(batch_size=0)


def test_the_dataset_has_every_public_method_of_pyarrow():
    """Those of pyarrow would read a C++ object that does not exist."""
    names = [name for name in vars(pyarrow.dataset.Dataset) if not name.startswith("_")]
    assert names
    assert set(names) <= set(vars(FrameDataset))


def test_methods_of_the_dataset(logs):
    source = make_dataset(logs)
    whole = source.to_table()
    assert source.schema == whole.schema
    assert pa.Table.from_batches(source.to_batches()).equals(whole.combine_chunks())
    assert source.scanner().to_reader().read_all().equals(whole)
    assert source.scanner().projected_schema == source.scanner().dataset_schema == whole.schema
    assert source.take([0, 2]).equals(whole.take([0, 2]))
    assert source.scanner(["key"]).take([1]).equals(whole.select(["key"]).take([1]))
    assert source.head(4).equals(whole.slice(0, 4))
    assert source.head(0).num_rows == 0
    by_start = source.sort_by([("_start", "descending")]).to_table()
    assert by_start["_start"].to_pylist() == sorted(whole["_start"].to_pylist(), reverse=True)
    late = source.filter(pc.field("offset") > 100)
    assert late.count_rows() == whole.filter(pc.field("offset") > 100).num_rows
    both = late.filter(pc.field("codec") == 1)
    assert both.to_table().equals(late.to_table(filter=pc.field("codec") == 1))
    assert pickle.loads(pickle.dumps(source)).to_table().equals(whole)
    assert "kafka.records" in repr(source)
    assert source.partition_expression.equals(pc.scalar(value=True))
    for name in ("get_fragments", "join", "join_asof", "replace_schema"):
        with pytest.raises(NotImplementedError, match=name):
            getattr(source, name)(*[None] * (name == "replace_schema"))


# --- sources, formats and errors


def test_sources_are_files_globs_and_directories(logs):
    by_file = [logs / f"{first:020}.log" for first in (0, 100, 200)]
    whole = make_dataset(logs).to_table()
    for source in (str(logs / "*.log"), by_file, [str(by_file[0]), str(logs / "*[12]00.log")]):
        assert make_dataset(source).to_table().equals(whole)
        assert make_scan(source).collect().equals(pl.from_arrow(whole))
    assert whole["_file"].unique().to_pylist() == list(map(str, by_file))


def test_mapped_files_have_the_same_rows(bytes_read):
    """Files are mapped, and read in small parts only for a query that wants few rows."""
    source = str(ORDERS / "*.log")
    copied = wirescan.scan_polars(source, format="kafka.records").collect()
    before = len(bytes_read)
    mapped = wirescan.scan_polars(source, format="kafka.records", mapped=True)
    frames = wirescan.dataset(source, format="kafka.records", mapped=True)  # noqa: F841
    counted = duckdb.execute("select count(*) from frames").fetchone()
    assert mapped.collect().equals(copied)
    assert counted == (len(copied),)
    assert len(bytes_read) == before + 1  # the first part, which decides on views
    assert mapped.head(5).collect().equals(copied.head(5))
    assert len(bytes_read) > before


def test_files_are_listed_when_a_query_runs(logs, tmp_path):
    lazy = make_scan(tmp_path)
    shutil.copy(logs / f"{0:020}.log", tmp_path)
    one = lazy.collect().height
    shutil.copy(logs / f"{100:020}.log", tmp_path)
    assert lazy.collect().height == 2 * one


@pytest.mark.parametrize("columns", [None, ["base_offset", "codec", "record_count"]])
def test_other_formats(columns):
    table = wirescan.scan(ORDERS, "kafka.batches")
    expected = to_arrow.to_batch(table, columns, binary="binary")
    found = make_dataset(ORDERS, columns, "strict", "kafka.batches").to_table()
    assert found.combine_chunks().to_batches()[0].equals(expected)
    frame = make_scan(ORDERS, columns, "strict", "kafka.batches").collect(engine="streaming")
    assert frame.equals(pl.from_arrow(expected))


# polars 2 raises the exception of a source, and polars 1 its own with the text.
POLARS_ERRORS = (FrameError, FileNotFoundError, pl.exceptions.ComputeError)


def test_damage_raises_frame_errors(logs):
    with pytest.raises(POLARS_ERRORS, match="BAD_CHECKSUM.*00000000.log"):
        make_scan(logs, errors="strict").collect()
    with pytest.raises(FrameError, match="BAD_CHECKSUM"):
        make_dataset(logs, errors="strict").to_table()
    frames = make_dataset(logs, errors="strict")  # noqa: F841 - duckdb finds it by its name
    with pytest.raises(duckdb.Error, match="BAD_CHECKSUM"):
        duckdb.execute("select count(*) from frames").fetchall()


def test_damage_is_marked_or_skipped(logs):
    marked = make_scan(logs).collect()
    assert marked["_fault"].drop_nulls().to_list() == ["BAD_CHECKSUM"] * 3
    skipped = make_scan(logs, errors="skip").collect()
    assert skipped.equals(marked.filter(pl.col("_fault").is_null()))


def test_arguments_are_checked_before_a_query(tmp_path):
    for make in (make_scan, make_dataset):
        with pytest.raises(ValueError, match="nothing"):
            make(tmp_path, ["nothing"])
        with pytest.raises(ValueError, match="named once"):
            make(tmp_path, ["key", "key"])
        with pytest.raises(TypeError, match="list of names"):
            make(tmp_path, "key")
        with pytest.raises(ValueError, match="errors must be"):
            make(tmp_path, errors="lenient")
        with pytest.raises(ValueError, match="kafka.nothing"):
            make(tmp_path, format="kafka.nothing")
    with pytest.raises(POLARS_ERRORS, match="No such file"):
        make_scan(tmp_path / "nothing.log").collect()
