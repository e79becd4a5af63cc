"""NATS, the client protocol: what clients send, and what servers send.

Start with `formats.py`: `scan` reads messages, `headers` their header lines, and `options` the JSON
of INFO and CONNECT. `scan.pyx` shows the wire format. The package `liftbridge` reads the payloads
of messages.

    formats.py    the formats, and the functions that read them
    scan.pyx      runs the loop with the kernels
    message.pxd   the kernels of messages and header lines
    rows.pxd      the C structs of the rows
    constants.py  `Kind`: the operations
    meanings.py   what the columns mean
    files.py      names of files, and where they can be cut
    exchanges.py  messages with a reply subject, and the first reply to each
    evidence.py   how unlikely a good message is in bytes of another kind
    encode.py     encode_pub and encode_msg; for columns encode_pubs and encode_msgs
    writer.pyx    the loops of the encoders

The package imports the layers below the protocol packages, and no other protocol package.
"""

from wirescan.nats.constants import Kind
from wirescan.nats.encode import encode_msg, encode_msgs, encode_pub, encode_pubs
from wirescan.nats.formats import FORMATS, headers, options, scan
from wirescan.nats.scan import HEADER, MESSAGE

__all__ = [
    "FORMATS",
    "HEADER",
    "Kind",
    "MESSAGE",
    "encode_msg",
    "encode_msgs",
    "encode_pub",
    "encode_pubs",
    "headers",
    "options",
    "scan",
]
