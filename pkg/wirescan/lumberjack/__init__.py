"""Lumberjack, the protocol of Beats and Logstash, versions 1 and 2.

Start with `formats.py`. There `scan` reads frames. `events` reads the data and JSON frames among
them, including those in compressed frames. `pairs` reads the fields of data frames. `scan.pyx`
draws the bytes. docs/lumberjack.md describes the protocol.

Read:

    formats.py          the formats, and the functions that read them
    scan.pyx            runs the loop with the kernels
    frame.pxd           the kernels of frames and pairs
    rows.pxd            the C structs of the rows
    constants.py        the numbers of the protocol, `Kind` among them
    json_documents.py   the parser of `documents`: events as Arrow columns, with their JSON parsed
    meanings.py         what the columns mean
    files.py            names of files, and where they can be cut
    exchanges.py        windows of events with their acks
    evidence.py         how unlikely a good frame is in bytes of another kind

Write and talk:

    encode.py           encode_window, encode_json, encode_data, encode_compressed, encode_ack;
                        for whole windows encode_batch, encode_batches, encode_data_batches,
                        encode_events
    writer.pyx          the loops of the encoders
    live/               Receiver and Sender without sockets, Server and Client with sockets

This package may import the folders below the protocol packages, and no other protocol package.
"""

from wirescan.frames.lazy import make_lazy_names
from wirescan.lumberjack.constants import Kind
from wirescan.lumberjack.encode import (
    encode_ack,
    encode_batch,
    encode_batches,
    encode_compressed,
    encode_data,
    encode_data_batches,
    encode_events,
    encode_json,
    encode_window,
)
from wirescan.lumberjack.formats import FORMATS, documents, events, pairs, plain, scan, unroll
from wirescan.lumberjack.scan import EVENT, FRAME, PAIR

__all__ = [
    "Bounds",
    "Client",
    "ConversationError",
    "EVENT",
    "FORMATS",
    "FRAME",
    "Kind",
    "PAIR",
    "Reason",
    "Receiver",
    "Sender",
    "Server",
    "Window",
    "documents",
    "encode_ack",
    "encode_batch",
    "encode_batches",
    "encode_compressed",
    "encode_data",
    "encode_data_batches",
    "encode_events",
    "encode_json",
    "encode_window",
    "events",
    "pairs",
    "plain",
    "scan",
    "unroll",
]

# These modules need sockets, threads or another package, so they are imported at first use.
__getattr__, __dir__ = make_lazy_names(
    __name__,
    {
        "Receiver": "live.receiver",
        "Sender": "live.sender",
        "Window": "live.receiver",
        "ConversationError": "live.conversation_errors",
        "Reason": "live.conversation_errors",
        "Server": "live.server",
        "Bounds": "live.server",
        "Client": "live.client",
    },
)
