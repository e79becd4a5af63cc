"""Liftbridge, streams over NATS: its envelopes, messages and acks, and its commit log.

Start with `formats.py`: `scan` reads envelopes. `messages`, `acks` and `internal` read the payloads
in them. `headers` reads the headers of messages. `entries` reads the records of replication and of
log files. `scan.pyx` shows the wire format.

Read:

    formats.py          the formats, and the functions that read them
    scan.pyx            runs the loop with the kernels
    envelope.pxd        the kernels of envelopes and of records of the log
    proto.pyx           the wire format of Protocol Buffers
    rows.pxd            the C structs of the rows
    payload_sources.py  sources of payloads, as spans of buffers
    payload_spans.pyx   computes the spans
    constants.py        Kind, AckError, AckPolicy
    meanings.py         what the columns mean
    files.py            names of segments, and where they can be cut
    exchanges.py        published messages with their acks
    evidence.py         how unlikely a good record of a log is in bytes of another kind

Write and talk:

    encode.py           encode_envelope, encode_message, encode_ack, encode_internal,
                        encode_replication_response, encode_entry;
                        for columns encode_messages, encode_acks, encode_entries
    writer.pyx          the loops of the encoders
    log/                CommitLog, open_log, gaps: a partition directory
    live/               Publisher and Subscriber without sockets, Client over nats-py

The package imports the layers below the protocol packages, and `nats`.
"""

from wirescan.frames.lazy import make_lazy_names
from wirescan.liftbridge.constants import AckError, AckPolicy, Kind
from wirescan.liftbridge.encode import (
    encode_ack,
    encode_acks,
    encode_entries,
    encode_entry,
    encode_envelope,
    encode_internal,
    encode_message,
    encode_messages,
    encode_replication_response,
)
from wirescan.liftbridge.formats import FORMATS, acks, entries, headers, internal, messages, scan
from wirescan.liftbridge.scan import ACK, ENTRY, ENVELOPE, HEADER, INTERNAL, MESSAGE

__all__ = [
    "ACK",
    "AckError",
    "AckPolicy",
    "Client",
    "CommitLog",
    "ENTRY",
    "ENVELOPE",
    "FORMATS",
    "HEADER",
    "INTERNAL",
    "Kind",
    "MESSAGE",
    "Outcome",
    "PublishError",
    "Publisher",
    "Receipt",
    "Subscriber",
    "acks",
    "encode_ack",
    "encode_acks",
    "encode_entries",
    "encode_entry",
    "encode_envelope",
    "encode_internal",
    "encode_message",
    "encode_messages",
    "encode_replication_response",
    "entries",
    "gaps",
    "headers",
    "internal",
    "messages",
    "open_log",
    "scan",
]

# These names are imported at their first use: they need sockets, threads or another package.
__getattr__, __dir__ = make_lazy_names(
    __name__,
    {
        "CommitLog": "log.commit_log",
        "open_log": "log.commit_log",
        "gaps": "log.commit_log",
        "Publisher": "live.publisher",
        "PublishError": "live.publisher",
        "Outcome": "live.publisher",
        "Receipt": "live.publisher",
        "Subscriber": "live.subscriber",
        "Client": "live.client",
    },
)
