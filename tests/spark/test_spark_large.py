"""10 GiB of segments are planned and read while the memory of the driver stays as it was for one.

The segments are one file, made of the corpus's batches, under ten names. It has 1 GiB in the nightly run, else 64 MiB.
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

pytestmark = pytest.mark.spark

ORDERS = Path(__file__).parents[1] / "corpus" / "kafka" / "orders-0"
NAMES = 10                  # of the file
IN_SEGMENT = 8              # slices, about
MB = 1000                   # of what /proc tells, kB


@pytest.fixture
def large(tmp_path, size):
    """A partition directory; (path, records in each segment, the sum of their offsets)."""
    batches = wirescan.scan(ORDERS, "kafka.batches")
    plain = batches.where((batches["codec"] == 0) & (batches["record_count"] > 0))
    one = b"".join(plain.frame(i) for i in range(len(plain)))
    starts, counts = np.cumsum([0, *plain["size"][:-1]]), plain["last_offset"] - plain["base_offset"] + 1
    copies = size // len(one)
    bases = (np.cumsum([0, *counts[:-1]]) + np.arange(copies)[:, None] * counts.sum()).astype(">i8")
    directory = tmp_path / "orders-0"
    directory.mkdir()
    first = directory / f"{0:020}.log"
    with open(first, "wb") as file:
        for base in bases:
            copy = np.frombuffer(one, np.uint8).copy()
            copy[starts[:, None] + np.arange(8)] = base.view(np.uint8).reshape(-1, 8)    # no checksum covers them
            file.write(copy)
    for number in range(1, NAMES):
        os.link(first, directory / f"{number * copies * int(counts.sum()):020}.log")
    records = wirescan.scan(one, "kafka.records")
    within = records["offset"] - records.outer["base_offset"][records["parent"]]
    offsets = bases.astype(np.int64)[:, records["parent"]] + within
    yield directory, offsets.size, int(offsets.sum())
    shutil.rmtree(directory)                # pytest keeps what the last runs left


@pytest.mark.parametrize("size, worker_limit", [
    (64 << 20, 300 * MB), pytest.param(1 << 30, 1000 * MB, marks=pytest.mark.nightly)], ids=["64 MiB", "1 GiB"])
def test_memory_is_flat(large, size, worker_limit, capsys):
    directory, records, total = large
    command = [sys.executable, __file__, str(directory), str(size // IN_SEGMENT)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=550)
    assert child.returncode == 0, child.stderr[-3000:]
    told = json.loads(child.stdout.splitlines()[-1])
    with capsys.disabled():
        print(f" [{told}]", end="")
    assert told["one"] == [records, total] and told["all"] == [NAMES * records, NAMES * total]
    assert told["bytes"] == NAMES * os.path.getsize(directory / f"{0:020}.log") > 0.99 * NAMES * size
    assert told["tasks"] >= 20 and told["skew"] < 1.3
    before, after = told["memory before"], told["memory after"]
    assert after["driver"] - before["driver"] < 100 * MB
    assert after["jvm"] < 1500 * MB                                     # of a heap of 1 GiB
    assert max(told["workers"]) < worker_limit


def peak(process="self"):
    """The most memory that a process has had so far, in kB."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0])


def main(directory, slice_bytes):
    """What the child does: it reads the first segment, then all of them, in slices of about that size."""
    import pyarrow as pa
    from pyspark.sql import functions as f

    from wirescan.spark import ranges, read, session
    spark = session("large", "local[2]", spark_driver_memory="1g", spark_ui_enabled=False)
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()

    def counted(path):
        frame = read(spark, path, columns=["offset"], bytes_per_partition=slice_bytes)
        return list(frame.agg(f.count("offset"), f.sum("offset")).first())

    def memory():
        return {"driver": peak(), "jvm": peak(jvm)}

    def workers(batches):
        time.sleep(0.5)                     # so that each has one
        yield from (pa.RecordBatch.from_pydict({"peak": [peak()]}) for _ in batches)

    told = {"one": counted(f"{directory}/{0:020}.log"), "memory before": memory()}
    begun = time.perf_counter()
    planned = ranges(spark, directory, bytes_per_partition=slice_bytes).plan
    told |= {"planned in": time.perf_counter() - begun, "tasks": len(planned), "bytes": planned.bytes,
             "skew": planned.skew}
    begun = time.perf_counter()
    told |= {"all": counted(directory), "read in": time.perf_counter() - begun, "memory after": memory()}
    told["workers"] = [row.peak for row in spark.range(2, numPartitions=2).mapInArrow(workers, "peak bigint").collect()]
    spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
