"""One Spark session for all tests, a cluster, and files of record batches."""

import os

import pytest
from pyspark.sql.datasource import DataSourceReader

from tests.spark.records import JAVA_OPTIONS, make_batch, write_segment

# Spark pushes filters down since 4.1.
collect_ignore = [] if hasattr(DataSourceReader, "pushFilters") else ["test_filters.py"]


@pytest.fixture(scope="session")
def spark():
    """A local session with two threads. A task that fails is tried once more."""
    from wirescan.spark import session

    spark = session(
        "tests",
        os.environ.get("SPARK_REMOTE", "local[2,2]"),
        **{"spark.sql.shuffle.partitions": 2, "spark.driver.extraJavaOptions": JAVA_OPTIONS},
    )
    yield spark
    spark.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster of two workers."""
    from tests.spark.cluster import Cluster

    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def log(tmp_path):
    """A partition directory of three segments, 1800 records."""
    directory = tmp_path / "topic-0"
    directory.mkdir()
    for base in (0, 600, 1200):
        write_segment(directory / f"{base:020}.log", base=base)
    (directory / "leader-epoch-checkpoint").write_text("0\n0\n")
    return str(directory)


@pytest.fixture
def damaged(tmp_path):
    """A file of ten batches. One bit of the fourth is flipped. (path, position of that batch)"""
    batches = [make_batch(20 * i) for i in range(10)]
    batches[3] = batches[3][:-1] + bytes([batches[3][-1] ^ 1])
    path = tmp_path / "damaged.log"
    path.write_bytes(b"".join(batches))
    return str(path), sum(map(len, batches[:3]))


@pytest.fixture
def cut(tmp_path):
    """A file that ends inside its second batch. (path, number of bytes after the first batch)"""
    tail = make_batch(20)[:-5]
    path = tmp_path / "cut.log"
    path.write_bytes(make_batch(0) + tail)
    return str(path), len(tail)
