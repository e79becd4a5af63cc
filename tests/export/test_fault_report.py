"""The table of faults says of each bad frame what the exception would have said."""

import random

import numpy as np
import pyarrow as pa
import pytest

import wirescan
from tests.support.paths import CORPUS
from wirescan.export import fault_report as faults
from wirescan.frames.errors import make_frame_error
from wirescan.frames.lookup import find_bad_frames
from wirescan.frames.registry import format_of

FILES = {
    "kafka.batches": max(
        (CORPUS / "kafka" / "live-0").glob("*.log"), key=lambda path: path.stat().st_size
    ),
    "kafka.requests": sorted((CORPUS / "kafka-streams").rglob("*.requests.bin"))[0],
    "lumberjack.frames": sorted((CORPUS / "lumberjack").rglob("*.bin"))[0],
    "nats.messages": sorted((CORPUS / "nats").rglob("*.bin"))[0],
    "liftbridge.entries": max(
        (CORPUS / "liftbridge").rglob("*.log"), key=lambda path: path.stat().st_size
    ),
    "thrift.frames": sorted((CORPUS / "thrift").rglob("*.theader"))[0],
}
FORMATS = [name for name, format in wirescan.formats().items() if format.outermost.name in FILES]


def list_errors(table):
    """What `make_frame_error` tells of the outermost bad frame around each bad one, row by row."""
    out = set()
    for frames, _ in find_bad_frames(table):
        for i in range(len(frames)):
            bad, at, level, row = frames, i, frames, i
            while level.outer is not None:
                row, level = int(level["parent"][row]), level.outer
                if level["fault"][row]:
                    bad, at = level, row
            error = make_frame_error(bad, at)
            out.add((error.offset, int(bad["size"][at]), bad.name, error.fault.name, error.near))
    return out


@pytest.mark.parametrize("name", FORMATS)
def test_it_is_what_the_exception_says(name):
    data = FILES[format_of(name).outermost.name].read_bytes()[:60_000]
    draw, met = random.Random(name), 0
    for check in (True, False):
        for _ in range(15):
            bad = bytearray(data)
            for _ in range(draw.randrange(1, 40)):
                bad[draw.randrange(len(bad))] = draw.randrange(256)
            table = wirescan.scan(bytes(bad), name, errors="mark", check=check)
            batch = faults.to_batch(table, "a file")
            rows = batch.to_pylist()
            assert batch.schema == faults.SCHEMA
            shown = [
                tuple(row[name] for name in ("start", "size", "format", "fault", "near"))
                for row in rows
            ]
            assert set(shown) == list_errors(table)
            starts = batch["start"].to_pylist()
            assert starts == sorted(starts) and {row["file"] for row in rows} <= {"a file"}
            met += len(rows)
    assert met or name not in FILES and name != "kafka.records"


def test_good_tables_report_no_fault():
    table = wirescan.scan(FILES["kafka.batches"], "kafka.records", errors="mark")
    batch = faults.to_batch(table, "x")
    assert len(batch) == 0 and batch.schema == faults.SCHEMA
    assert len(faults.to_batch(table[:0], "x")) == 0


def test_names_that_are_no_text_and_faults_that_are_not_ours():
    rows = np.zeros(3, format_of("thrift.frames").dtype)
    rows["parent"], rows["size"], rows["fault"], rows["start"] = (
        -1,
        (2, 40, 0),
        (77, 4, 0),
        (9, 0, 0),
    )
    table = wirescan.FrameTable((memoryview(b"0123456789"),), rows, (), format_of("thrift.frames"))
    batch = faults.to_batch(table, "\udcff.bin")
    assert batch["file"].to_pylist() == ["\\udcff.bin"] * 2
    assert batch["near"].to_pylist() == [b"0123456789", b"9"]  # what there is of them
    assert (
        batch["fault"].to_pylist() == ["BAD_CHECKSUM", "77"]
        and "unknown" in batch["meaning"][1].as_py()
    )
    assert pa.Table.from_batches([batch]).equals(pa.Table.from_batches([batch], faults.SCHEMA))
