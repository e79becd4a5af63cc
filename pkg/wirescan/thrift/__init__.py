"""Thrift: frames of the header transport (THeader) and of the older transports, and their messages.

Start with `formats.py`: `scan` reads frames, `infos` reads their headers, `messages` reads calls
and replies, `fields` reads the fields of their structs, with or without an IDL. `scan.pyx` draws
the wire.

Formats:

    formats.py            the formats, and the functions that read them
    format_options.py     options after the name of a format: non_strict, idl, idl_include
    constants.py          Kind, MessageType, ExceptionType, Protocol, Transform, InfoKind, Type,
                          Role
    meanings.py           what the columns mean
    files.py              names of files, and where they can be cut
    exchanges.py          calls with their replies, in captures
    evidence.py           how unlikely a good frame is in bytes of another kind

Kernels:

    scan.pyx              runs the loop with the kernels
    frame.pxd             frames of any kind
    http.pxd              Thrift over HTTP/1
    message.pxd           the begin of a message in both protocols
    walk.pxd              a struct without its schema
    struct_fields.pyx     the rows of thrift.fields
    payloads.pyx          payloads of frames, before and after their transforms are undone
    rows.pxd              the C structs of the rows

Headers, transforms and calls:

    effective_headers.py  resolve: the headers in force for each frame, including persistent ones
    transforms.py         undoes the transforms of payloads
    hmac.py               the macs of the old transform HMAC
    call_pairs.py         pair: calls with their replies
    call_text.py          call_text: messages as text
    struct_tree.pyx       one struct as a tree of Python values, for call_text.py

IDL and payloads:

    idl.py                the names of fields
    idl_calls.py          the structs of methods
    idl_types.py          what is in structs and containers, and numbers for them
    idl_parser.py         parses an IDL with thriftpy2
    struct_values.py      ThriftDecoder: payloads that are bare structs, as columns
    struct_schema.py      structs of an IDL as Arrow types, and as programs
    struct_reader.pyx     the kernel of struct_values.py

Write and talk:

    encode.py             encode_frame, encode_framed, encode_message; for columns encode_frames,
                          encode_framed_messages, encode_messages
    writer.pyx            the loops of the encoders
    live/                 ClientChannel and ServerChannel without sockets; HeaderTransport for
                          Apache Thrift
    transport.py          the old name of the module of HeaderTransport

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
