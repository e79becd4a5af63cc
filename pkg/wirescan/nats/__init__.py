"""NATS, the client protocol: what clients send, and what servers send.

Start with `formats.py`: `scan` reads messages, `headers` their header lines, and `options` the JSON
of INFO and CONNECT. `scan.pyx` shows the wire format. `encode.py` has encode_pub and encode_msg,
and for columns encode_pubs and encode_msgs. The package `liftbridge` reads the payloads of
messages.

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
