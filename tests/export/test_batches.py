"""Record batches of formats that are read as tables."""

import threading
import time

import pyarrow as pa
import pytest

import wirescan
from tests.support.paths import CORPUS
from wirescan import FrameError
from wirescan.export import batches
from wirescan.export.batches import iter_batches
from wirescan.frames.to_arrow import make_schema, to_batch
from wirescan.reading.chunked import scan_nested

RECORDED = {
    "lumberjack.events": CORPUS / "lumberjack" / "recorded" / "filebeat.sent.bin",
    "nats.messages": CORPUS / "nats" / "recorded" / "nats-py.client.bin",
    "thrift.frames": CORPUS / "thrift" / "header-compact-zlib.requests.theader",
    "thrift.messages": CORPUS / "thrift" / "header-compact-zlib.requests.theader",
}
SIZE = 3000  # bytes in a batch, about


def read(raw, format, errors, workers):
    """Return the batches before an error, and the error."""
    found = []
    options = {"binary": "view", "batch_bytes": SIZE, "errors": errors}
    try:
        found.extend(iter_batches(raw, format=format, workers=workers, **options))
    except FrameError as error:
        return found, (str(error), error.offset)
    return found, None


@pytest.mark.parametrize("errors", ["strict", "mark", "skip"])
@pytest.mark.parametrize("format", RECORDED)
def test_threads_give_the_batches_of_one(format, errors):
    one = RECORDED[format].read_bytes()
    raw = one * 20
    damaged = bytearray(raw)
    damaged[len(one) * 15] ^= 0xFF
    for data in (raw, bytes(damaged)):
        alone = read(data, format, errors, 1)
        assert len(alone[0]) > 5
        assert (alone[1] is not None) == (data is not raw and errors == "strict")
        for workers in (2, 5):
            assert read(data, format, errors, workers) == alone
    whole = pa.Table.from_batches(read(raw, format, errors, 3)[0], make_schema(format))
    assert whole.combine_chunks().equals(
        pa.Table.from_batches([to_batch(wirescan.scan(raw, format))]).combine_chunks()
    )


@pytest.mark.parametrize(("workers", "most"), [(1, 1), (2, 2), (50, batches.MOST_THREADS)])
def test_threads_make_batches_of_tables(monkeypatch, workers, most):
    """Few threads: one thread reads the frames of all of them, some batches ahead."""
    makers = []
    read_ahead = []
    at_work = threading.Semaphore(most)

    def make(table, **options):
        assert at_work.acquire(blocking=False), "more threads work at the same time"
        makers.append(threading.current_thread())
        time.sleep(0.001)
        at_work.release()
        return to_batch(table, **options)

    def iterate(*arguments, **options):
        for table in scan_nested(*arguments, **options):
            read_ahead.append(table)
            yield table

    monkeypatch.setattr(batches, "to_batch", make)
    monkeypatch.setattr(batches, "scan_nested", iterate)
    monkeypatch.setattr(batches, "can_write_columns", lambda column_scan: False)
    raw = RECORDED["nats.messages"].read_bytes() * 20
    found = iter_batches(raw, format="nats.messages", batch_bytes=SIZE, workers=workers)
    next(found)
    assert len(read_ahead) <= most + 3
    list(found)
    assert (threading.current_thread() in makers) == (workers == 1)
