"""Conversations of Kafka in TLS, and what the frames of their captures must be."""

from __future__ import annotations

from pathlib import Path

from tests.support.paths import CORPUS
from tests.support.tls_connections import CLIENT, SERVER, record_tls

STREAMS = CORPUS / "kafka-streams" / "java-4"
PAIRS = [
    (path.read_bytes(), Path(str(path).replace("requests", "responses")).read_bytes())
    for path in sorted(STREAMS.glob("*.requests*"))[:3]
]


def record_pair(directory, pair=PAIRS[0], **options):
    """Record the requests and responses of a Kafka connection in TLS."""
    return record_tls(directory, [(CLIENT, pair[0]), (SERVER, pair[1])], **options)


def describe(table):
    """Return what is stable of frames: times, positions, sizes and faults."""
    names = ("connection", "time", "time_end", "size", "fault")
    return sorted(zip(table.positions.tolist(), *(table[name].tolist() for name in names)))
