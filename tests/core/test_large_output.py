"""Large output has huge pages or used memory, because a fault takes longer than a write."""

import mmap
from pathlib import Path

import pyarrow as pa
import pytest

from wirescan import kafka, liftbridge, thrift

resource = pytest.importorskip("resource", reason="the system does not count page faults")

SIZE = 32 << 20  # bytes of output, about
SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")
VALUES = pa.array([bytes(1000)] * (SIZE // 1000), pa.large_binary())


def has_huge_pages():
    return SWITCH.exists() and "[never]" not in SWITCH.read_text()


@pytest.mark.skipif(not has_huge_pages(), reason="memory has no huge pages")
@pytest.mark.parametrize(
    "encode",
    [
        kafka.encode_batches,
        kafka.encode_message_sets,
        liftbridge.encode_messages,
        thrift.encode_framed_messages,
    ],
)
def test_encoders_fault_little(encode):
    encode(VALUES)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    result = encode(VALUES)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    data = result[0] if isinstance(result, tuple) else result
    assert len(data) > SIZE * 0.99
    assert faults < SIZE / mmap.PAGESIZE / 4
