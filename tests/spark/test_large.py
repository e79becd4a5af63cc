"""The driver plans and reads ten segments with the memory of one segment.

The segments are one file with ten names, made of the corpus's batches. The file has 1 GiB in the
nightly run, and 64 MiB otherwise.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import wirescan
from tests.support.paths import ORDERS

pytestmark = pytest.mark.spark

NAMES = 10  # of the file
SLICES_IN_SEGMENT = 8  # about
MB = 1000  # in kB, the unit of /proc


@pytest.fixture
def large(tmp_path, size):
    """A partition directory: (path, records in each segment, the sum of their offsets)."""
    batches = wirescan.scan(ORDERS, "kafka.batches")
    plain = batches.where((batches["codec"] == 0) & (batches["record_count"] > 0))
    block = b"".join(plain.frame(i) for i in range(len(plain)))
    starts = np.cumsum([0, *plain["size"][:-1]])
    counts = plain["last_offset"] - plain["base_offset"] + 1
    copies = size // len(block)
    bases = (np.cumsum([0, *counts[:-1]]) + np.arange(copies)[:, None] * counts.sum()).astype(">i8")
    directory = tmp_path / "orders-0"
    directory.mkdir()
    first = directory / f"{0:020}.log"
    with open(first, "wb") as file:
        for base in bases:
            copy = np.frombuffer(block, np.uint8).copy()
            # No checksum covers the base offset of a batch.
            copy[starts[:, None] + np.arange(8)] = base.view(np.uint8).reshape(-1, 8)
            file.write(copy)
    for number in range(1, NAMES):
        os.link(first, directory / f"{number * copies * int(counts.sum()):020}.log")
    records = wirescan.scan(block, "kafka.records")
    within = records["offset"] - records.outer["base_offset"][records["parent"]]
    offsets = bases.astype(np.int64)[:, records["parent"]] + within
    yield directory, offsets.size, int(offsets.sum())
    shutil.rmtree(directory)  # pytest would keep it


@pytest.mark.parametrize(
    "size, worker_limit",
    [(64 << 20, 300 * MB), pytest.param(1 << 30, 1000 * MB, marks=pytest.mark.nightly)],
    ids=["64 MiB", "1 GiB"],
)
def test_memory_is_flat(large, size, worker_limit, capsys):
    directory, records, total = large
    arguments = [str(directory), str(size // SLICES_IN_SEGMENT)]
    command = [sys.executable, "-m", "tests.spark.test_large", *arguments]
    child = subprocess.run(command, capture_output=True, text=True, timeout=550)
    assert child.returncode == 0, child.stderr[-3000:]
    report = json.loads(child.stdout.splitlines()[-1])
    with capsys.disabled():
        print(f" [{report}]", end="")
    assert report["one"] == [records, total]
    assert report["all"] == [NAMES * records, NAMES * total]
    assert report["bytes"] == NAMES * os.path.getsize(directory / f"{0:020}.log")
    assert report["bytes"] > 0.99 * NAMES * size
    assert report["tasks"] >= 20
    assert report["skew"] < 1.3
    before, after = report["memory before"], report["memory after"]
    assert after["driver"] - before["driver"] < 100 * MB
    assert after["jvm"] < 1500 * MB  # its heap has 1 GiB
    assert max(report["workers"]) < worker_limit


def read_peak_memory(process="self"):
    """Return the peak memory of a process, in kB."""
    status = Path(f"/proc/{process}/status").read_text()
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return int(lines["VmHWM"].split()[0])


def main(directory, slice_bytes):
    """Read the first segment, then all segments, and print a report. Runs in the child."""
    import pyarrow as pa
    from pyspark.sql import functions as f

    from wirescan.spark import ranges, read, session

    spark = session("large", "local[2]", spark_driver_memory="1g", spark_ui_enabled=False)
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()

    def count(path):
        frame = read(spark, path, columns=["offset"], bytes_per_partition=slice_bytes)
        return list(frame.agg(f.count("offset"), f.sum("offset")).first())

    def memory():
        return {"driver": read_peak_memory(), "jvm": read_peak_memory(jvm)}

    def report_peak(batches):
        time.sleep(0.5)  # a slow task gives the other worker the other task
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"peak": [read_peak_memory()]})

    report = {"one": count(f"{directory}/{0:020}.log"), "memory before": memory()}
    start = time.perf_counter()
    plan = ranges(spark, directory, bytes_per_partition=slice_bytes).plan
    report |= {
        "planned in": time.perf_counter() - start,
        "tasks": len(plan),
        "bytes": plan.bytes,
        "skew": plan.skew,
    }
    start = time.perf_counter()
    report |= {
        "all": count(directory),
        "read in": time.perf_counter() - start,
        "memory after": memory(),
    }
    peaks = spark.range(2, numPartitions=2).mapInArrow(report_peak, "peak bigint").collect()
    report["workers"] = [row.peak for row in peaks]
    spark.stop()
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
