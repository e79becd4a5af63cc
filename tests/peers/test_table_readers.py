"""Tables that `to_table` writes, read by Spark's own readers of Delta Lake and Iceberg."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import wirescan
from tests.spark.records import ORDERS
from wirescan.spark import to_table

from .spark_session import run_session
from .table_readers import SPARK, Query, read_tables

# It downloads a Spark of 0.5 GB.
pytestmark = [pytest.mark.peers, pytest.mark.nightly]

COLUMNS = ["offset", "timestamp", "key", "value", "headers", "codec"]
FEW = "offset >= 1000 and offset < 1100"
ICEBERG = "local.logs.orders"


@pytest.fixture(scope="session")
def spark():
    yield from run_session()


@pytest.fixture(scope="module")
def expected():
    """The rows of the log, as wirescan reads them without Spark."""
    return sort(wirescan.scan(str(ORDERS), "kafka.records").to_arrow(COLUMNS, binary="binary"))


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    """Rows that Spark's readers return, by the name of the table and by the condition."""
    from pyiceberg.catalog.sql import SqlCatalog

    home = tmp_path_factory.mktemp("tables")
    delta = {name: home / name for name in ("plain", "partitioned", "replaced")}
    options = {"columns": COLUMNS}
    to_table(spark, str(ORDERS), delta["plain"], **options)
    to_table(spark, str(ORDERS), delta["partitioned"], partition_by=["codec"], **options)
    to_table(spark, str(ORDERS), delta["replaced"], **options)
    to_table(spark, str(ORDERS), delta["replaced"], mode="overwrite", **options)
    warehouse = home / "warehouse"
    catalog = SqlCatalog(
        "local", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{warehouse}"
    )
    for _ in range(2):
        to_table(spark, str(ORDERS), "logs.twice", catalog=catalog, **options)
    to_table(spark, str(ORDERS), "logs.orders", catalog=catalog, **options)
    names = {name: f"delta.`{path}`" for name, path in delta.items()}
    names |= {"iceberg": ICEBERG, "iceberg twice": "local.logs.twice"}
    queries = {
        (name, where): Query(table, where, str(home / f"rows-{number}-{len(where)}"))
        for number, (name, table) in enumerate(names.items())
        for where in ("", FEW)
    }
    version = read_tables(list(queries.values()), home / "catalog.db", warehouse)
    assert version == SPARK.partition("==")[2]
    return {key: pq.read_table(query.out) for key, query in queries.items()}


def sort(table):
    """Return the rows in the order of their offsets, in the types of Spark."""
    headers = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    types = [pa.int64(), pa.timestamp("us", "UTC"), pa.binary(), pa.binary(), headers, pa.int32()]
    table = table.select(COLUMNS).cast(pa.schema(zip(COLUMNS, types)))
    return table.sort_by("offset").combine_chunks()


@pytest.mark.parametrize("name", ["plain", "partitioned", "replaced", "iceberg"])
def test_spark_reads_the_rows_of_the_log(tables, expected, name):
    assert len(expected) > 0
    assert sort(tables[name, ""]).to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("name", ["plain", "partitioned", "replaced", "iceberg"])
def test_spark_finds_the_rows_of_a_condition(tables, expected, name):
    """Statistics of the files exclude files, and no rows."""
    offsets = expected["offset"]
    few = expected.filter(pc.and_(pc.greater_equal(offsets, 1000), pc.less(offsets, 1100)))
    assert len(few) > 0
    assert sort(tables[name, FEW]).to_pylist() == few.to_pylist()


def test_spark_reads_what_was_appended(tables, expected):
    offsets = sorted(tables["iceberg twice", ""]["offset"].to_pylist())
    assert offsets == sorted(2 * expected["offset"].to_pylist())
