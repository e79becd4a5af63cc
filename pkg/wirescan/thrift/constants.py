"""The numbers of Thrift and its header transport, by their names. `wirescan.thrift` exports them.

Sources: Apache Thrift, doc/specs: HeaderFormat.md, thrift-binary-protocol.md; of fbthrift
TProtocolTypes.h (protocols), RpcMetadata.thrift (transforms) and TType.h (types).
"""

from enum import IntEnum

__all__ = [
    "ExceptionType",
    "InfoKind",
    "Kind",
    "MessageType",
    "Protocol",
    "Role",
    "Transform",
    "Type",
]


class Kind(IntEnum):
    """The kind of a frame: how a message is wrapped. The first bytes of a frame determine it."""

    HEADER = 1  # length u32, 0x0FFF and a header
    BIG_HEADER = 2  # "BIGF" and a length of 64 bits, then as HEADER
    # As HEADER, with the length twice: Node.js writes it over a framed transport.
    DOUBLE_HEADER = 3
    FRAMED_BINARY = 4  # length u32 and a message
    FRAMED_COMPACT = 5
    UNFRAMED_BINARY = 6  # a message without a length; it must be walked to find its end
    UNFRAMED_COMPACT = 7
    HTTP = 8  # a request or a response
    HTTP_CHUNKED = 9  # a request or a response with a body in chunks
    TTHEADER = 10  # CloudWeGo's similar format, with 0x1000; it is not opened


class MessageType(IntEnum):
    """The type of a message."""

    CALL = 1
    REPLY = 2
    EXCEPTION = 3  # the call failed; an exception that the IDL declares is in a REPLY instead
    ONEWAY = 4  # a call without a reply


class ExceptionType(IntEnum):
    """The type of the exception in a message of the type EXCEPTION (TApplicationException)."""

    UNKNOWN = 0
    UNKNOWN_METHOD = 1
    INVALID_MESSAGE_TYPE = 2
    WRONG_METHOD_NAME = 3
    BAD_SEQUENCE_ID = 4
    MISSING_RESULT = 5
    INTERNAL_ERROR = 6
    PROTOCOL_ERROR = 7
    INVALID_TRANSFORM = 8
    INVALID_PROTOCOL = 9
    UNSUPPORTED_CLIENT_TYPE = 10
    LOADSHEDDING = 11  # this and the following: of fbthrift
    TIMEOUT = 12
    INJECTED_FAILURE = 13


class Protocol(IntEnum):
    """The protocol of a header frame's payload. wirescan opens BINARY and COMPACT."""

    BINARY = 0
    JSON = 1
    COMPACT = 2
    DEBUG = 3
    VIRTUAL = 4
    SIMPLE_JSON = 5
    FROZEN2 = 6
    JSON5 = 7


class Transform(IntEnum):
    """A transform of a payload. Writers apply them in the header's order, readers in reverse."""

    NONE = 0
    ZLIB = 1
    HMAC = 2  # a mac after the payload; the byte after this number is the size of the mac
    SNAPPY = 3  # a raw block
    QLZ = 4  # QuickLZ; wirescan cannot undo it
    ZSTD = 5
    LZ4 = 6  # the size as a varint, and a raw block
    CUSTOM = 7  # by private agreement; wirescan cannot undo it
    ZLIB_LESS = 8  # this and the following: the same codecs at lower and higher levels
    ZSTD_LESS = 9
    LZ4_LESS = 10
    ZLIB_MORE = 11
    ZSTD_MORE = 12
    LZ4_MORE = 13


class InfoKind(IntEnum):
    """The kind of a header."""

    KEYVALUE = 1  # of this frame
    PKEYVALUE = 2  # persistent: of this frame and all later frames of the connection


class Type(IntEnum):
    """The type of a value, by its number in the binary protocol.

    Types of the compact protocol are converted to these numbers.
    """

    BOOL = 2
    BYTE = 3
    DOUBLE = 4
    I16 = 6
    I32 = 8
    U64 = 9
    I64 = 10
    STRING = 11  # or binary
    STRUCT = 12
    MAP = 13
    SET = 14
    LIST = 15
    UUID = 16
    FLOAT = 19  # of fbthrift


class Role(IntEnum):
    """The role of a value in the struct or container that encloses it."""

    FIELD = 0  # of a struct
    ELEMENT = 1  # of a list or a set
    KEY = 2  # of a map
    VALUE = 3
