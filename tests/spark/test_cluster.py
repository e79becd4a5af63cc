"""Every format on a cluster of processes.

The executors get wirescan as the guide says. The rows are those of the local engine.
"""

import atexit
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from venv_pack import pack

import wirescan
from tests.spark.cluster import Driver, make_bare_python, wait_for_executors
from tests.spark.records import ORDERS
from tests.strategies.kafka_redpanda import make_batch as make_redpanda_batch
from tests.support.chosen_formats import list_chosen_formats
from tests.support.paths import CORPUS
from wirescan import kafka
from wirescan.export.batches import iter_batches
from wirescan.frames import to_arrow
from wirescan.frames.to_arrow import to_batch
from wirescan.kafka import RedpandaType
from wirescan.reading.chunked import iter_tables
from wirescan.reading.splits import plan
from wirescan.spark import map_frames, read
from wirescan.spark.partition_mapping import map_partitions
from wirescan.spark.ranges import ranges

pytestmark = pytest.mark.spark

PACKAGE = Path(wirescan.__file__).parent
# The packages of an executor. Spark has pyspark itself.
PACKAGES = ("numpy", "crc32c", "cramjam", "python-snappy", "pyarrow")
TASKS = 3  # about, for the responses of one connection
# outermost format -> its files, some of them damaged, and the bytes for one task
SOURCES = {
    "kafka.batches": (["kafka", "kafka/fetched/*.bin", "kafka-hostile/*.bin"], 500_000),
    "kafka.kbak_segments": ([f"kafka-backup/{name}" for name in ("none", "zstd", "lz4")], 1000),
    "kafka.connect_backup_records": (["kafka-connect-backup"], 5000),
    "kafka.requests": (["kafka-streams/*/*.requests.bin"], 100_000),
    "kafka.responses": (["kafka-streams/*/*.responses.bin"], 200_000),
    "lumberjack.frames": (["lumberjack/recorded/*.bin"], 10_000),
    "nats.messages": (["nats/recorded/*.bin", "liftbridge/*/*.bin"], 100_000),
    "liftbridge.entries": (["liftbridge/*/logs"], 10_000),
    **dict.fromkeys(
        (
            *("pcap.blocks", "pcap.flows", "pcap.streams", "pcap.tls", "kafka.record_sets"),
            *(name for name in wirescan.formats() if name.endswith(".exchanges")),
        ),
        (["pcap/*.pcap*"], 10_000),
    ),
    "thrift.frames": (["thrift/*.theader", "thrift-go/*.theader"], 50_000),
}


@cache
def add_requests(name):
    """Return a format with the requests that it needs, and the responses of the same connection.

    The connection is the one with the most rows. Other formats need none.
    """
    format = wirescan.formats()[name]
    if format.within is None or format.outermost.requests is None:
        return name, None
    found = []
    for requests in sorted(CORPUS.glob("kafka-streams/*/*.requests.bin")):
        if "sasl-tokens" in requests.name:
            continue
        responses = requests.with_name(requests.name.replace("requests", "responses"))
        spec = f"{name}?requests={requests}"
        if len(wirescan.scan(responses, "kafka.responses", errors="mark")) > TASKS:
            rows = len(wirescan.scan(responses, spec, errors="mark"))
            found.append((rows, spec, str(responses)))
    _, spec, responses = max(found)
    return spec, responses


@cache
def write_redpanda_segments():
    """Write segments of Redpanda with the batches of Kafka's segments, and return their directory.

    The first batch of each has a type of Redpanda's own, and a byte of the last segment is changed.
    The corpus has none: Redpanda's own files may not be stored with the tests. The process of the
    driver writes segments too, with the same bytes.
    """
    scratch = tempfile.mkdtemp(prefix="wirescan-redpanda-")
    atexit.register(shutil.rmtree, scratch)
    directory = Path(scratch, "kafka", "orders", "0_7")
    directory.mkdir(parents=True)
    for path in sorted(ORDERS.glob("*.log")):
        batches = kafka.scan(path)
        kinds = [RedpandaType.RAFT_CONFIGURATION, *[RedpandaType.RAFT_DATA] * (len(batches) - 1)]
        data = b"".join(
            make_redpanda_batch(bytes(batches.frame(row)), kind) for row, kind in enumerate(kinds)
        )
        segment = directory / f"{batches['base_offset'][0]}-1-v1.log"
        segment.write_bytes(data)
    segment.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    return str(directory)


def find_source(name):
    """Return the paths for a format, and the bytes for one task."""
    if name.startswith("kafka.redpanda_"):
        return [write_redpanda_segments()], 100_000
    _, responses = add_requests(name)
    if responses is not None:
        return [responses], max(Path(responses).stat().st_size // TASKS, 1)
    globs, size = SOURCES[wirescan.formats()[name].outermost.name]
    return [str(CORPUS / pattern) for pattern in globs], size


def list_files(name):
    paths, _ = find_source(name)
    return plan(paths, add_requests(name)[0], 1 << 40)


def read_locally(name):
    """Read the rows with the local engine, one file after the other."""
    spec, _ = add_requests(name)
    options = {"format": spec, "types": "spark", "errors": "mark"}
    batches = []
    for file in list_files(name):
        batches += iter_batches(file.path, file.start, file.stop, tail=file.last, **options)
    return pa.Table.from_batches(batches, to_arrow.make_schema(spec, types="spark"))


def read_with_function(spark, name):
    paths, size = find_source(name)
    spec, _ = add_requests(name)
    frame = read(spark, paths, spec, errors="mark", bytes_per_partition=size)
    return frame.rdd.getNumPartitions(), frame.toArrow()


def read_with_source(spark, name):
    paths, size = find_source(name)
    spec, _ = add_requests(name)
    options = {"format": spec, "errors": "mark", "bytesPerPartition": size}
    frame = spark.read.format("wirescan").options(**options).load(paths)
    return frame.rdd.getNumPartitions(), frame.toArrow()


def list_imported_files(spark):
    """Return the files of wirescan and numpy in some tasks, of every executor."""

    def report_files(batches):
        import numpy
        import pyarrow

        import wirescan

        time.sleep(0.5)
        for _ in batches:
            files = [[wirescan.__file__], [numpy.__file__]]
            yield pyarrow.record_batch(files, ["wirescan", "numpy"])

    wait_for_executors(spark)
    frame = spark.range(0, 4, 1, 4).mapInArrow(report_files, "wirescan string, numpy string")
    return frame.toArrow().to_pydict()


def map_values(spark, values):
    """Return the frames in the values of a column. A shuffle keeps the order of the values."""
    frame = spark.createDataFrame(list(enumerate(values)), "id int, value binary").repartition(4)
    return map_frames(frame, "value", keep=["id"]).orderBy("id", "offset").toArrow()


def count_in_tasks(spark, name):
    """Return the sums of a user's function over the tables of each task."""

    def count(tables):
        for table in tables:
            yield {"rows": [len(table)], "bytes": [int(table["size"].sum())]}

    paths, size = find_source(name)
    parts = ranges(spark, paths, name, errors="mark", bytes_per_partition=size)
    counts = map_partitions(parts, count, "rows long, bytes long")
    return counts.groupBy().sum("rows", "bytes").collect()


def read_stream(spark, source, folder):
    """Return the records of a partition, read by a stream that ends at the end of the files."""
    options = {"format": "kafka.records", "bytesPerPartition": 200_000}
    frame = spark.readStream.format("wirescan").options(**options).load(source)
    sink = frame.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    sink.trigger(availableNow=True).start(f"{folder}/rows").awaitTermination()
    return spark.read.parquet(f"{folder}/rows").orderBy("offset").toArrow()


@pytest.fixture(scope="module")
def archived(cluster):
    """A driver whose executors lack only wirescan. It comes as an archive of the package."""
    python = make_bare_python(cluster.folder / "bare")
    archive = cluster.folder / "wirescan.zip"
    missing = subprocess.run(
        [python, "-Ec", "import numpy, wirescan"], capture_output=True, text=True
    )
    assert "No module named 'wirescan'" in missing.stderr
    subprocess.run([sys.executable, "-m", "zipfile", "-c", archive, *PACKAGE.iterdir()], check=True)
    with Driver(cluster, python, {"spark.archives": f"{archive}#wirescan"}) as driver:
        yield driver


@pytest.fixture
def packed(cluster):
    """A driver whose executors get a packed environment.

    The driver has it at the same relative path, because its interpreter plans the data source.
    """
    venv.create(cluster.folder / "environment", symlinks=True)
    packages = next(cluster.folder.glob("environment/lib/python*/site-packages"))
    for name in PACKAGES:
        for file in distribution(name).files:
            if ".." not in file.parts and file.suffix != ".pyc":
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), packages / file)
    shutil.copytree(PACKAGE, packages / "wirescan")
    archive = cluster.folder / "environment.tar.gz"
    pack(prefix=str(cluster.folder / "environment"), output=str(archive), compress_level=1)
    config = {"spark.archives": f"{archive}#environment"}
    with Driver(cluster, "./environment/bin/python", config) as driver:
        yield driver


@pytest.mark.nightly
def test_workers_use_the_packed_environment(cluster, packed, tmp_path):
    for paths in packed(list_imported_files).values():
        folders = {("worker-0", "environment"), ("worker-1", "environment")}
        assert list_workers_and_folders(cluster, paths) == folders
    for name in ("kafka.records", "lumberjack.events", "liftbridge.messages", "thrift.fields"):
        for way in (read_with_function, read_with_source):
            check_rows(packed, name, way)
    # The interpreter that plans a stream sees no archives. It needs an installed wirescan.
    source = str(CORPUS / "kafka" / "orders-0")
    batch = to_batch(wirescan.scan(source, "kafka.records"), types="spark")
    expected = pa.table(batch.take(np.argsort(batch["offset"].to_numpy())))
    rows = packed(read_stream, source, str(tmp_path))
    assert rows.cast(expected.schema).equals(expected)


def list_ways():
    """Return each format with each way to read it. One of the two ways runs only at night."""
    ways = (read_with_function, read_with_source)
    return [
        pytest.param(name, way, marks=[pytest.mark.nightly] if (number + other) % 2 else [])
        for number, name in enumerate(list_chosen_formats())
        for other, way in enumerate(ways)
    ]


def test_an_archive_of_the_package(cluster, archived):
    files = archived(list_imported_files)
    folders = {("worker-0", "wirescan"), ("worker-1", "wirescan")}
    assert list_workers_and_folders(cluster, files["wirescan"]) == folders
    assert all(Path(path).is_relative_to(cluster.folder / "bare") for path in files["numpy"])


def list_workers_and_folders(cluster, paths):
    """Return the workers and folders of paths worker/job/number/folder."""
    parts = [Path(path).relative_to(cluster.folder).parts for path in paths]
    return {(worker, folder) for worker, _, _, folder, *_ in parts}


def test_values_of_a_column(archived):
    values = [path.read_bytes() for path in sorted((CORPUS / "kafka" / "orders-0").glob("*.log"))]
    batches = [to_batch(wirescan.scan(value, "kafka.records"), types="spark") for value in values]
    rows = archived(map_values, values)
    ids = [number for number, batch in enumerate(batches) for _ in range(len(batch))]
    assert rows["id"].to_pylist() == ids
    assert rows.drop(["id"]).cast(batches[0].schema).equals(pa.Table.from_batches(batches))


@pytest.mark.parametrize("name", ["kafka.records", "thrift.messages"])
def test_users_functions_run_on_workers(archived, name):
    rows = size = 0
    for file in list_files(name):
        for table in iter_tables(
            file.path, file.start, file.stop, format=name, errors="mark", tail=file.last
        ):
            rows += len(table)
            size += int(table["size"].sum())
    assert archived(count_in_tasks, name) == [(rows, size)]


@pytest.mark.parametrize("name, way", list_ways())
def test_rows_are_those_of_the_local_engine(archived, name, way):
    check_rows(archived, name, way)


def check_rows(driver, name, way):
    """Several tasks read the rows of the local engine, in the same order."""
    expected = read_locally(name)
    tasks, rows = driver(way, name)
    assert tasks > 1
    assert rows.cast(expected.schema).equals(expected)
