"""One Spark session for all, and files of record batches made here."""
import os
from pathlib import Path

import pytest
from home import make_spark_home

import wirescan
from wirescan import kafka

CORPUS = Path(__file__).parents[1] / "corpus" / "kafka"
ORDERS = CORPUS / "orders-0"
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"       # tests are short: compile little


@pytest.fixture(scope="session", autouse=True)
def spark_home(tmp_path_factory):
    """SPARK_HOME of all tests, unless it is set: a pyspark whose Python processes start quickly."""
    if "SPARK_HOME" in os.environ:
        yield
        return
    os.environ["SPARK_HOME"] = str(make_spark_home(tmp_path_factory.mktemp("spark-home")))
    yield
    del os.environ["SPARK_HOME"]


@pytest.fixture(scope="session")
def spark():
    """A local session with two threads, in which a task that fails is tried once more; its JVM is to start soon."""
    from wirescan.spark import session
    spark = session("tests", os.environ.get("SPARK_REMOTE", "local[2,2]"), **{
        "spark.sql.shuffle.partitions": 2, "spark.driver.extraJavaOptions": JAVA_OPTIONS})
    yield spark
    spark.stop()


def batch(base, count=20, codec="none", **options):
    """A record batch: nulls and empties among keys and values, and none, one or two headers a record."""
    records = [kafka.Record(
        timestamp=1_700_000_000_000 + base + i, key=None if i % 5 == 0 else b"key %d" % (base + i),
        value=None if i % 7 == 3 else b"" if i % 7 == 4 else b"value %d " % (base + i) * (i % 13),
        headers=[("h%d" % n, None if n else b"x" * i) for n in range(i % 3)]) for i in range(count)]
    return kafka.encode_batch(records, base_offset=base, codec=codec, **options)


def segment(path, batches=30, base=0):
    """A file of batches of all codecs. Returns its path as str."""
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    path.write_bytes(b"".join(batch(base + 20 * i, codec=codecs[i % 5]) for i in range(batches)))
    return str(path)


@pytest.fixture
def log(tmp_path):
    """A partition directory of three segments, 1800 records."""
    directory = tmp_path / "topic-0"
    directory.mkdir()
    for base in (0, 600, 1200):
        segment(directory / f"{base:020}.log", base=base)
    (directory / "leader-epoch-checkpoint").write_text("0\n0\n")
    return str(directory)


@pytest.fixture
def damaged(tmp_path):
    """A file of ten batches of which the fourth has a flipped bit; (path, where that batch begins)."""
    parts = [batch(20 * i) for i in range(10)]
    parts[3] = parts[3][:-1] + bytes([parts[3][-1] ^ 1])
    path = tmp_path / "damaged.log"
    path.write_bytes(b"".join(parts))
    return str(path), sum(map(len, parts[:3]))


@pytest.fixture
def cut(tmp_path):
    """A file that ends inside its second batch; (path, bytes behind the first)."""
    whole, part = batch(0), batch(20)[:-5]
    path = tmp_path / "cut.log"
    path.write_bytes(whole + part)
    return str(path), len(part)


def expected(source, errors="strict"):
    """What wirescan reads itself, without Spark: (offset, timestamp, key, value, headers, fault) in order."""
    table = wirescan.scan(source, "kafka.records", errors=errors)
    headers = {}
    for header in kafka.headers(table, errors=errors):
        headers.setdefault(header.parent, []).append(tuple(None if x is None else bytes(x) for x in header))
    return [(r.offset, r.timestamp, _bytes(r.key), _bytes(r.value), headers.get(i, []), r.fault)
            for i, r in enumerate(table)]


def collected(frame):
    """The rows of a DataFrame with the default columns, in the shape of `expected`, by offset."""
    from pyspark.sql import functions as F
    rows = frame.withColumn("timestamp", F.unix_millis("timestamp")).orderBy("offset").collect()
    return [(r.offset, r.timestamp, r.key, r.value, [tuple(h) for h in r.headers], r.fault) for r in rows]


def _bytes(view):
    return None if view is None else bytes(view)
