"""Thrift: frames of the header transport (THeader) and of the older transports, and their messages.

Start with `formats.py`: `scan` reads frames, `infos` reads their headers, `messages` reads calls
and replies, `fields` reads the fields of their structs, with or without an IDL. `scan.pyx` draws
the wire. The other parts:

    constants.py         Kind, MessageType, ExceptionType, Protocol, Transform, InfoKind, Type, Role
    effective_headers.py resolve: the headers in force for each frame, including persistent ones
    call_pairs.py        pair: calls with their replies
    call_text.py         call_text: messages as text; struct_tree.pyx reads their structs, and
                         idl_calls.py names their fields
    encode.py            encode_frame, encode_framed, encode_message; for columns encode_frames,
                         encode_framed_messages, encode_messages
    struct_values.py     ThriftDecoder: payloads that are bare structs, as columns;
                         struct_schema.py compiles a struct of an IDL for struct_reader.pyx
    format_options.py    options after the name of a format: non_strict, idl, idl_include
    live/                ClientChannel and ServerChannel without sockets;
                         HeaderTransport for Apache Thrift

The package imports only folders below the protocol packages, and no other protocol package.
"""

from wirescan.frames.lazy import make_lazy_names
from wirescan.thrift.call_text import call_text
from wirescan.thrift.constants import (
    ExceptionType,
    InfoKind,
    Kind,
    MessageType,
    Protocol,
    Role,
    Transform,
    Type,
)
from wirescan.thrift.encode import (
    encode_frame,
    encode_framed,
    encode_framed_messages,
    encode_frames,
    encode_message,
    encode_messages,
)
from wirescan.thrift.formats import FORMATS, KINDS, fields, infos, messages, plain, scan
from wirescan.thrift.scan import FIELD, FRAME, INFO, MESSAGE, PLAIN
from wirescan.thrift.transforms import transform_ids

__all__ = [
    "Call",
    "ClientChannel",
    "ConversationError",
    "ExceptionType",
    "FIELD",
    "FORMATS",
    "FRAME",
    "HeaderTransport",
    "HeaderTransportFactory",
    "INFO",
    "InfoKind",
    "KINDS",
    "Kind",
    "MESSAGE",
    "MessageType",
    "PLAIN",
    "Protocol",
    "Reply",
    "Role",
    "Sent",
    "ServerChannel",
    "Transform",
    "TransportError",
    "Type",
    "call_text",
    "encode_frame",
    "encode_framed",
    "encode_framed_messages",
    "encode_frames",
    "encode_message",
    "encode_messages",
    "fields",
    "infos",
    "messages",
    "pair",
    "plain",
    "resolve",
    "scan",
    "transform_ids",
]

# These names are imported on first use: they need sockets, threads or another package.
__getattr__, __dir__ = make_lazy_names(
    __name__,
    {
        "resolve": "effective_headers",
        "pair": "call_pairs",
        "ClientChannel": "live.channel",
        "ServerChannel": "live.channel",
        "Call": "live.channel",
        "Reply": "live.channel",
        "Sent": "live.channel",
        "ConversationError": "live.persistent_headers",
        "HeaderTransport": "live.apache_transport",
        "HeaderTransportFactory": "live.apache_transport",
        "TransportError": "live.apache_transport",
    },
)
