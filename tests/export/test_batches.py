"""Record batches of formats that are read as tables."""

import pyarrow as pa
import pytest

import wirescan
from tests.support.paths import CORPUS
from wirescan import FrameError
from wirescan.export.batches import iter_batches
from wirescan.frames.to_arrow import make_schema, to_batch

RECORDED = {
    "lumberjack.events": CORPUS / "lumberjack" / "recorded" / "filebeat.sent.bin",
    "nats.messages": CORPUS / "nats" / "recorded" / "nats-py.client.bin",
    "thrift.frames": CORPUS / "thrift" / "header-compact-zlib.requests.theader",
    "thrift.messages": CORPUS / "thrift" / "header-compact-zlib.requests.theader",
}
SIZE = 3000  # bytes in a batch, about


def read(raw, format, errors, workers):
    """Return the batches before an error, and the error."""
    batches = []
    options = {"binary": "view", "batch_bytes": SIZE, "errors": errors}
    try:
        batches.extend(iter_batches(raw, format=format, workers=workers, **options))
    except FrameError as error:
        return batches, (str(error), error.offset)
    return batches, None


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
