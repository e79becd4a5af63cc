"""Jobs that a library could also do: our code stays only where it is faster by a third or more.

- a filter on rows, beside pyarrow.compute on Arrow tables of all rows
- Parquet in directories as Hive names them, beside pyarrow.dataset
- a glob over an object store, beside fsspec
- sketches of distinct values, beside datasketches
"""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path

import datasketches
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
from fsspec.implementations.arrow import ArrowFSWrapper
from pyarrow import fs

from bench.report import Report, format_timings
from bench.timing import Contender, interleave, time_call
from bench.workloads import records_and_events
from wirescan.export.batches import iter_batches
from wirescan.export.parquet import convert
from wirescan.export.sketches import compute_fingerprints, make_coupons, make_sketches
from wirescan.files import object_store

FULL = {"plain": 64 << 20, "partitions": 1000, "rounds": 7}
QUICK = {"plain": 4 << 20, "partitions": 20, "rounds": 2}
THIRD = 4 / 3  # the least ratio of a library's time to ours
FORMAT = "kafka.records"
COLUMNS = ["offset", "timestamp", "key", "value"]
DAY = "timestamp_day"


def run(plain: int, partitions: int, rounds: int) -> str:
    """Return the section as markdown.

    plain: bytes of the records before compression. partitions: directories of the object store.
    """
    workload = records_and_events.write_segment(2, "none", plain)
    report = Report("Jobs of libraries")
    with tempfile.TemporaryDirectory() as folder:
        pairs = {
            "a filter on rows": list_filters(workload.path),
            "Parquet as Hive": list_writers(workload.path, Path(folder)),
            "a glob over a store": list_globs(Path(folder), partitions),
            "distinct values": list_counters(workload.path),
        }
        units = {name: workload.records for name in pairs} | {"a glob over a store": partitions}
        for name, (ours, theirs, library) in pairs.items():
            times = interleave(
                [
                    Contender(program, time_call(call), units[name], workload.path.stat().st_size)
                    for program, call in (("wirescan", ours), (library, theirs))
                ],
                rounds,
            )
            report.at_least(f"{name}: {library}", THIRD, times.ratio(library, "wirescan"))
            report.say(f"{name}:", "", format_timings(times, {library: "wirescan"}, unit="unit"))
    return report.markdown(["pyarrow", "fsspec", "datasketches"])


def list_filters(path: Path):
    """One key of many: the rows as Arrow batches."""
    first = next(iter_batches(str(path), format=FORMAT, columns=["key"]))
    key = first.column("key")[len(first) // 2].as_py()
    read = partial(iter_batches, str(path), format=FORMAT, columns=COLUMNS)

    def theirs():
        return sum(batch.filter(pc.equal(batch.column("key"), key)).num_rows for batch in read())

    def ours():
        return sum(batch.num_rows for batch in read(filters=[("key", "==", key)]))

    assert ours() == theirs() > 0
    return ours, theirs, "pyarrow.compute"


def list_writers(path: Path, folder: Path):
    """All rows, in a directory for each day."""
    out = folder / "hive"

    def ours():
        convert(
            str(path),
            str(out),
            FORMAT,
            columns=COLUMNS,
            partition_by="timestamp:day",
            workers=1,
            overwrite=True,
        )

    def theirs():
        shutil.rmtree(out, ignore_errors=True)
        batches = (
            batch.append_column(DAY, pc.strftime(batch.column("timestamp"), "%Y-%m-%d"))
            for batch in iter_batches(str(path), format=FORMAT, columns=COLUMNS, types="spark")
        )
        kinds = pa.schema([(DAY, pa.string())])
        first = next(batches)
        pyarrow.dataset.write_dataset(
            pa.RecordBatchReader.from_batches(first.schema, iter([first, *batches])),
            out,
            format="parquet",
            partitioning=pyarrow.dataset.partitioning(kinds, flavor="hive"),
            file_options=pyarrow.dataset.ParquetFileFormat().make_write_options(compression="zstd"),
            use_threads=False,
        )

    return ours, theirs, "pyarrow.dataset"


def list_globs(folder: Path, partitions: int):
    """The segments of all partitions, through pyarrow's view of a local directory."""
    top = folder / "store"
    for number in range(partitions):
        directory = top / f"orders-{number}"
        directory.mkdir(parents=True)
        for ending in ("log", "index", "timeindex"):
            (directory / f"{0:020}.{ending}").touch()

    def ours():
        url = f"file://{top}/orders-*/*.log"
        return [name for name, _ in object_store.list_objects(url, bool, lambda name: False)]

    def theirs():
        return ArrowFSWrapper(fs.LocalFileSystem()).glob(f"{top}/orders-*/*.log")

    assert len(ours()) == len(theirs()) == partitions
    return ours, theirs, "fsspec"


def list_counters(path: Path):
    """One sketch of all keys. datasketches takes no bytes, so it takes the keys as text."""
    keys = pa.concat_arrays(
        [batch.column("key") for batch in iter_batches(str(path), format=FORMAT, columns=["key"])]
    )
    _, offset_buffer, data = keys.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[: len(keys) + 1]
    values = (offsets.astype(np.int64), np.frombuffer(data, np.uint8))

    def ours():
        coupons = make_coupons(compute_fingerprints(values))
        return make_sketches(coupons, np.array([0, len(keys)]))

    def theirs():
        sketch = datasketches.hll_sketch(12, datasketches.tgt_hll_type.HLL_8)
        for each in keys.cast(pa.string()).to_pylist():
            sketch.update(each)
        return sketch

    return ours, theirs, "datasketches"
