"""Every format on a cluster of processes: wirescan comes to the executors as the guide says, and the rows are those of
the local engine."""
import shutil
import subprocess
import sys
import time
import venv
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from cluster import Cluster, Driver, bare_python, both_there
from venv_pack import pack

import wirescan
from wirescan import arrow
from wirescan.arrow import to_batch
from wirescan.partition import plan
from wirescan.pieces import iter_tables
from wirescan.spark import map_frames, read
from wirescan.spark.partitions import map_partitions
from wirescan.spark.ranges import ranges

pytestmark = pytest.mark.spark

CORPUS = Path(__file__).parents[1] / "corpus"
PACKAGE = Path(wirescan.__file__).parent
NEEDED = ("numpy", "crc32c", "cramjam", "python-snappy", "pyarrow")     # pyspark itself comes from Spark
SOURCES = {                 # outermost format -> what holds it, damage too, and bytes for one task
    "kafka.batches": (["kafka", "kafka/fetched/*.bin", "kafka-hostile/*.bin"], 500_000),
    "kafka.requests": (["kafka-streams/*/*.requests.bin"], 100_000),
    "kafka.responses": (["kafka-streams/*/*.responses.bin"], 200_000),
    "lumberjack.frames": (["lumberjack/recorded/*.bin"], 10_000),
    "nats.messages": (["nats/recorded/*.bin", "liftbridge/*/*.bin"], 100_000),
    "liftbridge.entries": (["liftbridge/*/logs"], 10_000),
    "thrift.frames": (["thrift/*.theader", "thrift-go/*.theader"], 50_000),
}


def source_of(name):
    """The paths for a format, and the bytes for one task."""
    globs, size = SOURCES[wirescan.formats()[name].outermost.name]
    return [str(CORPUS / one) for one in globs], size


def whole_files(name):
    return plan(source_of(name)[0], 1 << 40, name)


def local(name):
    """The rows as the local engine reads them, one file after the other."""
    batches = [batch for one in whole_files(name) for batch in arrow.iter_batches(
        one.path, one.start, one.stop, format=name, types="spark", errors="mark", tail=one.last)]
    return pa.Table.from_batches(batches, arrow.schema(name, types="spark"))


def by_read(spark, name):
    paths, size = source_of(name)
    frame = read(spark, paths, name, errors="mark", bytes_per_partition=size)
    return frame.rdd.getNumPartitions(), frame.toArrow()


def by_source(spark, name):
    paths, size = source_of(name)
    options = {"format": name, "errors": "mark", "bytesPerPartition": size}
    frame = spark.read.format("wirescan").options(**options).load(paths)
    return frame.rdd.getNumPartitions(), frame.toArrow()


def in_the_tasks(spark):
    """The files that wirescan and numpy are imported from in some tasks, of every executor."""
    def told(batches):
        import numpy
        import pyarrow
        import wirescan
        time.sleep(0.5)
        for _ in batches:
            yield pyarrow.record_batch([[wirescan.__file__], [numpy.__file__]], ["wirescan", "numpy"])
    both_there(spark)
    return spark.range(0, 4, 1, 4).mapInArrow(told, "wirescan string, numpy string").toArrow().to_pydict()


def values_mapped(spark, values):
    """The frames in the values of a column, by a shuffle in the order of the values."""
    frame = spark.createDataFrame(list(enumerate(values)), "id int, value binary").repartition(4)
    return map_frames(frame, "value", keep=["id"]).orderBy("id", "offset").toArrow()


def counted_in_the_tasks(spark, name):
    """What a function of the user's makes of the tables of each task."""
    def count(tables):
        for table in tables:
            yield {"rows": [len(table)], "bytes": [int(table["size"].sum())]}
    paths, size = source_of(name)
    parts = ranges(spark, paths, name, errors="mark", bytes_per_partition=size)
    return map_partitions(parts, count, "rows long, bytes long").groupBy().sum("rows", "bytes").collect()


def streamed(spark, source, folder):
    """The records of a partition, as a stream that ends with what is there."""
    options = {"format": "kafka.records", "bytesPerPartition": 200_000}
    frame = spark.readStream.format("wirescan").options(**options).load(source)
    sink = frame.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    sink.trigger(availableNow=True).start(f"{folder}/rows").awaitTermination()
    return spark.read.parquet(f"{folder}/rows").orderBy("offset").toArrow()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def archived(cluster):
    """A driver whose executors have all but wirescan installed; that comes as an archive of the installed package."""
    python, archive = bare_python(cluster.folder / "bare"), cluster.folder / "wirescan.zip"
    missing = subprocess.run([python, "-Ec", "import numpy, wirescan"], capture_output=True, text=True)
    assert "No module named 'wirescan'" in missing.stderr
    subprocess.run([sys.executable, "-m", "zipfile", "-c", archive, *PACKAGE.iterdir()], check=True)
    with Driver(cluster, python, {"spark.archives": f"{archive}#wirescan"}) as driver:
        yield driver


@pytest.fixture
def packed(cluster):
    """A driver whose executors get a whole environment, packed. It lies at the same place beside the driver, which
    plans the data source with the same interpreter."""
    venv.create(cluster.folder / "environment", symlinks=True)
    packages = next(cluster.folder.glob("environment/lib/python*/site-packages"))
    for name in NEEDED:
        for file in distribution(name).files:
            if ".." not in file.parts and file.suffix != ".pyc":
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), packages / file)
    shutil.copytree(PACKAGE, packages / "wirescan")
    archive = cluster.folder / "environment.tar.gz"
    pack(prefix=str(cluster.folder / "environment"), output=str(archive), compress_level=1)
    with Driver(cluster, "./environment/bin/python", {"spark.archives": f"{archive}#environment"}) as driver:
        yield driver


def test_an_environment_that_was_packed(cluster, packed, tmp_path):
    for paths in packed(in_the_tasks).values():
        assert unpacked(cluster, paths) == {("worker-0", "environment"), ("worker-1", "environment")}
    for name in ("kafka.records", "lumberjack.events", "liftbridge.messages", "thrift.fields"):
        for way in (by_read, by_source):
            check(packed, name, way)
    # A stream is planned by an interpreter that sees no archives: wirescan has to be installed where that is.
    source = str(CORPUS / "kafka" / "orders-0")
    want = to_batch(wirescan.scan(source, "kafka.records"), types="spark")
    found = packed(streamed, source, str(tmp_path))
    assert found.cast(want.schema).equals(pa.table(want.take(np.argsort(want["offset"].to_numpy()))))


def test_an_archive_of_the_package(cluster, archived):
    found = archived(in_the_tasks)
    assert unpacked(cluster, found["wirescan"]) == {("worker-0", "wirescan"), ("worker-1", "wirescan")}
    assert all(Path(path).is_relative_to(cluster.folder / "bare") for path in found["numpy"])


def unpacked(cluster, paths):
    """The workers that paths belong to, and the folders of executors in which they are: worker/job/number/folder."""
    found = {Path(path).relative_to(cluster.folder).parts for path in paths}
    return {(parts[0], parts[3]) for parts in found}


def test_values_of_a_column(archived):
    values = [path.read_bytes() for path in sorted((CORPUS / "kafka" / "orders-0").glob("*.log"))]
    parts = [to_batch(wirescan.scan(value, "kafka.records"), types="spark") for value in values]
    found = archived(values_mapped, values)
    assert found["id"].to_pylist() == [number for number, part in enumerate(parts) for _ in range(len(part))]
    assert found.drop(["id"]).cast(parts[0].schema).equals(pa.Table.from_batches(parts))


@pytest.mark.parametrize("name", ["kafka.records", "thrift.messages"])
def test_own_functions(archived, name):
    tables = [table for one in whole_files(name) for table in iter_tables(
        one.path, one.start, one.stop, format=name, errors="mark", tail=one.last)]
    want = sum(map(len, tables)), sum(int(table["size"].sum()) for table in tables)
    assert archived(counted_in_the_tasks, name) == [want]


@pytest.mark.parametrize("way", [by_read, by_source])
@pytest.mark.parametrize("name", wirescan.formats())
def test_rows_are_those_of_the_local_engine(archived, name, way):
    check(archived, name, way)


def check(driver, name, way):
    """The same rows as here, in the same order, out of several tasks."""
    want = local(name)
    tasks, found = driver(way, name)
    assert tasks > 1
    assert found.cast(want.schema).equals(want)
