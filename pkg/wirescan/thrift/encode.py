"""Write Thrift bytes: messages, and the frames that carry them, one by one or out of columns.

    header frame    length u32 | 0x0FFF | flags u16 | seq u32 | words u16 | header, of 4 * words bytes | payload | mac
    big             "BIGF" | length u64 | 0x0FFF ..., all else as above
    header          protocol | transforms | transform* | infos* | zeros
    infos           1, or 2 where they are persistent | pairs | (size | key | size | value)*
    framed          length u32 | message
    binary          0x8001 | 0 u8 | type u8 | size u32 | name | seqid i32 | arguments
    ... not strict  size u32 | name | type u8 | seqid i32 | arguments
    compact         0x82 | type << 5 | version u8 | seqid | size | name | arguments

Everything is big-endian; numbers without a width are varints. A length counts what follows it. The mac is there with
the transform HMAC, which is the last in the list, with a byte behind it that says how large the mac is; it is made of
all that follows the length, with 0 in that byte. The format's sources: Apache Thrift, doc/specs: HeaderFormat.md,
thrift-binary-protocol.md and thrift-compact-protocol.md; of fbthrift THeader.cpp and CompactProtocol-inl.h.

Writers differ, and where a reader or a test wants the bytes of one of them: Apache's Python, Go, Ruby and Node.js write
padding "0-3", Apache's C++, fbthrift and Envoy "1-4"; fbthrift's Python and Go write persistent infos first, and
Apache's readers lose what stands behind those; fbthrift has version 2 of the compact protocol, Apache version 1. No
reader takes more than all of these: headers below 65,536 bytes (Apache's C++ and Ruby), strings of infos of up to
32,767 (Envoy), the protocols BINARY and COMPACT, the transforms ZLIB (Apache), ZSTD and LZ4 (fbthrift); SNAPPY and HMAC
are of old versions of that, and so few take them as take big frames.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, SupportsIndex

import numpy as np

from wirescan.codecs import compress
from wirescan.core.columns import Bounded, columns_of, integer, octets, pairs_of
from wirescan.core.pairs import Pairs
from wirescan.core.strings import ByteStrings
from wirescan.thrift.kind import InfoKind, MessageType, Protocol, Transform
from wirescan.thrift.mac import signer
from wirescan.thrift.write import (
    MOST_HEADER, MOST_LENGTH, MOST_MESSAGE, write_framed, write_frames, write_messages)

__all__ = [
    "encode_frame", "encode_framed", "encode_framed_messages", "encode_frames", "encode_message", "encode_messages"]

U8, U16 = (0, 255), (0, 65535)
BITS32 = (-1 << 31, (1 << 32) - 1)      # signed or not, as readers see it
TYPES = (MessageType.CALL.value, MessageType.ONEWAY.value)
PADDINGS = {"0-3": 0, "1-4": 1}         # how many zeros there are at least
ORDERS = ("normal", "persistent")
PROTOCOLS = {"binary": Protocol.BINARY, "compact": Protocol.COMPACT}
CODECS: dict[int, tuple[str, int | None]] = {       # and the level where none is given
    Transform.ZLIB: ("zlib", None), Transform.ZLIB_LESS: ("zlib", 1), Transform.ZLIB_MORE: ("zlib", 9),
    Transform.ZSTD: ("zstd", None), Transform.ZSTD_LESS: ("zstd", 1), Transform.ZSTD_MORE: ("zstd", 19),
    Transform.LZ4: ("lz4-block", None), Transform.LZ4_LESS: ("lz4-block", None),
    Transform.LZ4_MORE: ("lz4-block", None), Transform.SNAPPY: ("snappy", None)}
KNOWN = {*CODECS, Transform.NONE, Transform.HMAC}
LEVELS = ("zlib", "zstd")               # codecs that have them


def encode_frame(
    payload: Any, *, protocol_id: SupportsIndex = Protocol.BINARY, flags: SupportsIndex = 0, seq: SupportsIndex = 0,
    transforms: Iterable[SupportsIndex] = (), infos: Any = (), persistent: Any = (), key: Any = None,
    hash: Any = "sha256", padding: str = "0-3", infos_order: str = "normal", big: bool = False,
    level: SupportsIndex | None = None,
) -> bytes:
    """A header frame around a payload: a message, bytes-like, which is not looked at.

    protocol_id: a `Protocol`, or another number up to 255. flags: of 16 bits. seq: of 32, signed or not.
    transforms: of `Transform`, done to the payload in this order; at most 255. All are known here but QLZ and CUSTOM.
    infos, persistent: a mapping, or (key, value) in order, of bytes or str; keys may come twice, and readers take the
        last one. infos are of this frame, persistent of all that follow on the connection as well.
    key, hash: with the transform HMAC, and only then: a secret, bytes-like, and what hashlib calls the hash, or a
        constructor of its kind. Wherever HMAC stands in the list, it is written last.
    padding: "0-3" or "1-4" zeros at the header's end. infos_order: which block is the first, "normal" or "persistent".
    big: as a BIGF frame, whatever its size. level: of zlib, 0 to 9, or zstd, -131072 to 22; None: what a transform's
        name says.

    Raises TypeError for an argument of another type, ValueError for one that the format cannot hold: a header has at
    most 262,140 bytes, and a frame that is not big 1,073,741,823 behind its length.
    """
    prefix, transform, sign = _transforms(protocol_id, transforms, key, hash, level)
    header = b"".join((prefix, *_ordered(_block(InfoKind.KEYVALUE, infos), _block(InfoKind.PKEYVALUE, persistent),
                                         infos_order)))
    least = _padding(padding)
    header += bytes(least + -(len(header) + least) % 4)
    if len(header) > MOST_HEADER:
        raise ValueError(f"a header of {len(header)} bytes, and at most {MOST_HEADER} are possible")
    payload = octets(payload, "payload")
    if transform is not None:
        payload = transform(payload)
    length = 10 + len(header) + len(payload) + (0 if sign is None else len(sign(b"")))
    if length > MOST_LENGTH and not big:
        raise ValueError(f"a frame of {length} bytes behind its length, and at most {MOST_LENGTH} are possible")
    before = b"BIGF" + length.to_bytes(8, "big") if big else length.to_bytes(4, "big")
    fixed = b"\x0f\xff%b%b%b" % (
        integer(flags, "flags", U16).to_bytes(2, "big"), (integer(seq, "seq", BITS32) & 0xFFFFFFFF).to_bytes(4, "big"),
        (len(header) // 4).to_bytes(2, "big"))
    if sign is None:
        return b"".join((before, fixed, header, payload))
    mac = sign(b"".join((fixed, header, payload)))
    return b"".join((before, fixed, prefix[:-1], bytes([len(mac)]), header[len(prefix):], payload, mac))


def encode_frames(
    payloads: Any, *, protocol_id: SupportsIndex = Protocol.BINARY, flags: Any = 0, seq: Any = 0,
    transforms: Iterable[SupportsIndex] = (), infos: Any = (), persistent: Any = (), key: Any = None,
    hash: Any = "sha256", padding: str = "0-3", infos_order: str = "normal", big: bool = False,
    level: SupportsIndex | None = None,
) -> tuple[bytes, np.ndarray]:
    """(data, offsets): header frames, as `encode_frame` writes them, one behind another: frame i is
    data[offsets[i]:offsets[i + 1]], with n + 1 offsets of int64. `thrift.scan` takes data.

    payloads: a column, without nulls, or one bytes-like object for all frames. A column is a place of a table as
        (table, "payload"); an Arrow array or chunked array of binary or string, or their large and view types; a numpy
        array of dtype S or of objects; (offsets, data), as `encode_messages` gives; or a list of bytes. See
        `wirescan.core.strings.ByteStrings`.
    flags, seq: an array of integers, or of Arrow integers, whose nulls are 0, or one integer for all.
    infos, persistent: a mapping or list of (key, column), where the value may be one for all frames, and a null leaves
        its pair out; or (counts, keys, values): an array of integers, how many each frame has, and all keys and values
        in columns, without nulls; or an Arrow array of map or list<struct<key, value>>.
    All else is the same for all frames, as in `encode_frame`.

    Raises TypeError for an argument of another type; ValueError for columns of unequal length, where none of payloads,
    flags and seq says how many frames there are, for offsets or views that point outside their data, a number out of
    its bounds, and, by its number, for a frame that the format cannot hold.
    """
    prefix, transform, sign = _transforms(protocol_id, transforms, key, hash, level)
    columns, _ = columns_of({"payload": payloads, "flags": Bounded(flags, U16), "seq": Bounded(seq, BITS32)})
    strings = columns["payload"]
    blocks = _ordered(_part(InfoKind.KEYVALUE, infos, strings), _part(InfoKind.PKEYVALUE, persistent, strings),
                      infos_order)
    if transform is not None:
        strings = ByteStrings([None if one is None else transform(one) for one in strings])
    return write_frames(strings, np.atleast_1d(columns["flags"]), np.atleast_1d(columns["seq"]),
                        [prefix, *(block for block in blocks if block)], bool(_padding(padding)), bool(big), sign)


def encode_framed(message: Any) -> bytes:
    """A message behind its length, as the framed transport has it, without a header: bytes-like, not looked at.

    Raises TypeError for another type, ValueError for more than 1,073,741,823 bytes.
    """
    message = octets(message, "message")
    if len(message) > MOST_LENGTH:
        raise ValueError(f"a message of {len(message)} bytes, and at most {MOST_LENGTH} are possible in a frame")
    return len(message).to_bytes(4, "big") + message


def encode_framed_messages(messages: Any) -> tuple[bytes, np.ndarray]:
    """(data, offsets): messages behind their lengths, one behind another, with n + 1 offsets of int64. messages: a
    column as `encode_frames` takes it. Raises as that does."""
    return write_framed(columns_of({"message": messages})[0]["message"])


def encode_message(
    method: Any, message_type: SupportsIndex, seqid: SupportsIndex, arguments: Any = b"\0", *, service: Any = None,
    protocol: str | int = "binary", version: SupportsIndex | None = None, strict: bool = True,
) -> bytes:
    """A message, as it lies in a frame, or on a transport without frames.

    method: bytes-like or str. message_type: a `MessageType`. seqid: of 32 bits, signed or not. arguments: the struct
    behind the message's begin, bytes-like, which is not looked at; b"\\0" has no fields. service: of a multiplexed
    call, bytes-like or str without a colon; replies have none.
    protocol: "binary" or "compact", or as a `Protocol`. version: of the compact protocol, 1 (Apache, and by default) or
    2 (fbthrift); it tells how doubles in `arguments` are written. strict: with the version, as all writers have it by
    now; readers have to be told where it is not there. The compact protocol always is.

    Raises TypeError for an argument of another type, ValueError for one that the format cannot hold.
    """
    compact, name = _compact(protocol, version, strict), octets(method, "method")
    if service is not None:
        if b":" in (prefix := octets(service, "service")):
            raise ValueError(f"a service must not hold a colon: {prefix!r:.80}")
        name = prefix + b":" + name
    number, seqid = integer(message_type, "message_type", TYPES), integer(seqid, "seqid", BITS32) & 0xFFFFFFFF
    arguments = octets(arguments, "arguments")
    if compact:
        parts = [bytes((0x82, number << 5 | compact)), _varint(seqid), _varint(len(name)), name, arguments]
    elif strict:
        parts = [bytes((0x80, 1, 0, number)), len(name).to_bytes(4, "big"), name, seqid.to_bytes(4, "big"), arguments]
    else:
        parts = [len(name).to_bytes(4, "big"), name, bytes((number,)), seqid.to_bytes(4, "big"), arguments]
    if (size := sum(map(len, parts))) > MOST_MESSAGE:
        raise ValueError(f"a message of {size} bytes, and at most {MOST_MESSAGE} are possible")
    return b"".join(parts)


def encode_messages(
    methods: Any, types: Any, seqids: Any, arguments: Any = b"\0", *, service: Any = None,
    protocol: str | int = "binary", version: SupportsIndex | None = None, strict: bool = True,
) -> tuple[bytes, np.ndarray]:
    """(data, offsets): messages, as `encode_message` writes them, one behind another: message i is
    data[offsets[i]:offsets[i + 1]], with n + 1 offsets of int64. `encode_frames` and `encode_framed_messages`
    take it turned round, as (offsets, data).

    methods, arguments, service: columns as `encode_frames` takes them, or one for all; a null is no service. types,
    seqids: an array of integers, or of Arrow integers, or one integer for all. All else is as in `encode_message`.
    Raises as `encode_frames`.
    """
    compact = _compact(protocol, version, strict)
    columns, _ = columns_of({"method": methods, "type": Bounded(types, TYPES), "seqid": Bounded(seqids, BITS32),
                             "arguments": arguments, "service": service})
    return write_messages(columns["method"], columns["service"], np.atleast_1d(columns["type"]),
                          np.atleast_1d(columns["seqid"]), columns["arguments"], compact, bool(strict))


def _transforms(
    protocol_id: SupportsIndex, transforms: Iterable[SupportsIndex], key: Any, hash: Any, level: SupportsIndex | None
) -> tuple[bytes, Callable[[bytes], bytes] | None, Callable[[Any], bytes] | None]:
    """The header up to its infos, what is done to a payload, and what makes a mac of bytes."""
    if not isinstance(transforms, Iterable):
        raise TypeError(f"transforms must be an iterable of integers, not {type(transforms).__name__}")
    ids = [integer(one, "a transform", U16) for one in transforms]
    if unknown := {*ids} - KNOWN:
        raise ValueError(f"transform {min(unknown)} is not known here")
    if len(ids) > 255 or ids.count(Transform.HMAC) > 1:
        raise ValueError("at most 255 transforms are possible, and HMAC once")
    if (key is None) == (Transform.HMAC in ids):
        raise ValueError("the transform HMAC needs a key, and nothing else does")
    steps = [CODECS[one] for one in ids if one in CODECS]
    if level is not None:
        if not any(codec in LEVELS for codec, _ in steps):
            raise ValueError("a level is one of zlib or zstd, and neither is among the transforms")
        steps = [(codec, level if codec in LEVELS else None) for codec, _ in steps]

    def transform(payload: bytes) -> bytes:
        for codec, one in steps:
            payload = compress(codec, payload, one)
        return payload

    ids.sort(key=Transform.HMAC.__eq__)
    prefix = _varint(integer(protocol_id, "protocol_id", U8)) + _varint(len(ids)) + bytes(ids)
    if key is None:
        return prefix, transform if steps else None, None
    return prefix + b"\0", transform if steps else None, signer(octets(key, "key"), hash)


def _padding(given: str) -> int:
    if given not in tuple(PADDINGS):
        raise ValueError(f"padding must be {' or '.join(map(repr, PADDINGS))}, not {given!r:.80}")
    return PADDINGS[given]


def _ordered(normal: Any, persistent: Any, order: str) -> tuple[Any, Any]:
    if order not in ORDERS:
        raise ValueError(f"infos_order must be {' or '.join(map(repr, ORDERS))}, not {order!r:.80}")
    return (normal, persistent) if order == "normal" else (persistent, normal)


def _block(kind: InfoKind, given: Any) -> bytes:
    """The block of these pairs; of none of them, nothing."""
    pairs = pairs_of(() if given is None else given)
    parts = [_varint(kind), _varint(len(pairs))] if pairs else []
    for name, value in pairs:
        data = octets(value, f"info {name!r:.80}")
        parts += _varint(len(name)), name, _varint(len(data)), data
    return b"".join(parts)


def _part(kind: InfoKind, given: Any, payloads: ByteStrings) -> bytes | tuple[int, Pairs]:
    """The block that is the same in all frames, or what the block of each is made of."""
    if given is None or isinstance(given, tuple) and not given or isinstance(given, (Mapping, list)) and all(
            isinstance(value, (bytes, bytearray, memoryview, str)) for _, value in pairs_of(given)):
        return _block(kind, given)
    return int(kind), columns_of({"payload": payloads}, given)[1]


def _compact(protocol: str | int, version: SupportsIndex | None, strict: bool) -> int:
    """The version of the compact protocol; 0: the binary one."""
    number = PROTOCOLS.get(protocol, protocol) if isinstance(protocol, str) else protocol
    if number not in (*PROTOCOLS.values(),):
        raise ValueError(f"protocol must be 'binary' or 'compact', not {protocol!r:.80}")
    if number == Protocol.COMPACT:
        if not strict:
            raise ValueError("the compact protocol is always strict")
        return 1 if version is None else integer(version, "version", (1, 2))
    if version is not None:
        raise ValueError("a version is one of the compact protocol")
    return 0


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
