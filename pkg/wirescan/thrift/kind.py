"""The numbers that Thrift and its header transport have names for.

The format's sources: Apache Thrift, doc/specs: HeaderFormat.md, thrift-binary-protocol.md; of fbthrift TProtocolTypes.h
(protocols), RpcMetadata.thrift (transforms) and TType.h (types).
"""
from enum import IntEnum

__all__ = ["InfoKind", "Kind", "MessageType", "Protocol", "Role", "Transform", "Type"]


class Kind(IntEnum):
    """What a row of thrift.frames is: how a message is wrapped, told by its first bytes."""

    HEADER = 1                  # length u32, 0x0FFF and a header
    BIG_HEADER = 2              # the same behind "BIGF" and a length of 64 bits
    DOUBLE_HEADER = 3           # the same with its length twice, as Node.js writes it over a framed transport
    FRAMED_BINARY = 4           # length u32 and a message
    FRAMED_COMPACT = 5
    UNFRAMED_BINARY = 6         # a message alone, which has to be walked to find its end
    UNFRAMED_COMPACT = 7
    HTTP = 8                    # a request or a response
    HTTP_CHUNKED = 9            # ... whose body is in chunks
    TTHEADER = 10               # a look-alike of CloudWeGo, with 0x1000; it is not opened


class MessageType(IntEnum):
    """What a message is."""

    CALL = 1
    REPLY = 2
    EXCEPTION = 3               # the call could not be done; an exception that the IDL declares comes in a REPLY
    ONEWAY = 4                  # a call without a reply


class Protocol(IntEnum):
    """How the payload of a header frame is written. wirescan opens BINARY and COMPACT."""

    BINARY = 0
    JSON = 1
    COMPACT = 2
    DEBUG = 3
    VIRTUAL = 4
    SIMPLE_JSON = 5
    FROZEN2 = 6
    JSON5 = 7


class Transform(IntEnum):
    """What was done to a payload, in the order of the header; readers undo it from the last to the first."""

    NONE = 0
    ZLIB = 1
    HMAC = 2                    # a code behind the payload, of the size that a byte behind this number says
    SNAPPY = 3                  # a raw block
    QLZ = 4                     # QuickLZ; not known to wirescan
    ZSTD = 5
    LZ4 = 6                     # the size as a varint, and a raw block
    CUSTOM = 7                  # of private agreement; not known to wirescan
    ZLIB_LESS = 8               # ... and the same at lower and higher levels
    ZSTD_LESS = 9
    LZ4_LESS = 10
    ZLIB_MORE = 11
    ZSTD_MORE = 12
    LZ4_MORE = 13


class InfoKind(IntEnum):
    """What a row of thrift.infos is."""

    KEYVALUE = 1                # of this frame
    PKEYVALUE = 2               # persistent: of all later frames of the connection too


class Type(IntEnum):
    """The type of a value, by its number in the binary protocol; those of the compact protocol are told as these."""

    BOOL = 2
    BYTE = 3
    DOUBLE = 4
    I16 = 6
    I32 = 8
    U64 = 9
    I64 = 10
    STRING = 11                 # or binary
    STRUCT = 12
    MAP = 13
    SET = 14
    LIST = 15
    UUID = 16
    FLOAT = 19                  # of fbthrift


class Role(IntEnum):
    """What a row of thrift.fields is to the value that holds it."""

    FIELD = 0                   # of a struct
    ELEMENT = 1                 # of a list or a set
    KEY = 2                     # of a map
    VALUE = 3
