"""Write Thrift bytes: messages, and the frames that carry them, one by one or from columns.

    header frame    length u32 | 0x0FFF | flags u16 | seq u32 | words u16
                    | header of 4 * words bytes | payload | mac
    big             "BIGF" | length u64 | 0x0FFF ..., the rest as above
    header          protocol | transforms | transform* | infos* | zeros
    infos           1, or 2 where they are persistent | pairs | (size | key | size | value)*
    framed          length u32 | message
    binary          0x8001 | 0 u8 | type u8 | size u32 | name | seqid i32 | arguments
    ... not strict  size u32 | name | type u8 | seqid i32 | arguments
    compact         0x82 | type << 5 | version u8 | seqid | size | name | arguments

Everything is big-endian. Numbers without a width are varints. A length counts the bytes after it.
A frame has a mac with the transform HMAC. HMAC is the last transform in the list, and the byte
after it is the size of the mac. The mac covers everything after the length, with 0 in that byte.
Sources of the format: Apache Thrift, doc/specs: HeaderFormat.md, thrift-binary-protocol.md and
thrift-compact-protocol.md; of fbthrift THeader.cpp and CompactProtocol-inl.h.

Writers differ, so options select the bytes of each:

- Apache's Python, Go, Ruby and Node.js write padding "0-3". Apache's C++, fbthrift and Envoy write
  "1-4".
- fbthrift's Python and Go write persistent infos first. Apache's readers lose the infos after them.
- fbthrift has version 2 of the compact protocol, Apache version 1.

Readers have limits too. The strictest are headers below 65,536 bytes (Apache's C++ and Ruby),
strings of infos up to 32,767 bytes (Envoy), and the protocols BINARY and COMPACT. The transforms
that readers accept are ZLIB (Apache), and ZSTD and LZ4 (fbthrift). SNAPPY and HMAC are of old
versions of fbthrift. Few readers accept these, and few accept big frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from wirescan.core.arguments import Bounded, check_integer, convert_columns, list_pairs, to_bytes
from wirescan.core.pairs import Pairs
from wirescan.core.strings import ByteStrings
from wirescan.core.varint import encode_varint
from wirescan.frames.codecs import compress
from wirescan.thrift.constants import InfoKind, MessageType, Protocol, Transform
from wirescan.thrift.hmac import make_signer
from wirescan.thrift.writer import (
    MAX_HEADER,
    MAX_LENGTH,
    MAX_MESSAGE,
    write_framed,
    write_frames,
    write_messages,
)

__all__ = [
    "encode_frame",
    "encode_framed",
    "encode_framed_messages",
    "encode_frames",
    "encode_message",
    "encode_messages",
]

U8, U16 = (0, 255), (0, 65535)
BITS32 = (-1 << 31, (1 << 32) - 1)  # signed or unsigned: readers differ
TYPES = (MessageType.CALL.value, MessageType.ONEWAY.value)
PADDINGS = {"0-3": 0, "1-4": 1}  # the minimum number of zeros
ORDERS = ("normal", "persistent")
PROTOCOLS = {"binary": Protocol.BINARY, "compact": Protocol.COMPACT}
FIXED = 10  # bytes from 0x0FFF to the header
MAX_TRANSFORMS = 255
# The codec of each transform, and its level where the caller gives none.
CODECS: dict[int, tuple[str, int | None]] = {
    Transform.ZLIB: ("zlib", None),
    Transform.ZLIB_LESS: ("zlib", 1),
    Transform.ZLIB_MORE: ("zlib", 9),
    Transform.ZSTD: ("zstd", None),
    Transform.ZSTD_LESS: ("zstd", 1),
    Transform.ZSTD_MORE: ("zstd", 19),
    Transform.LZ4: ("lz4-block", None),
    Transform.LZ4_LESS: ("lz4-block", None),
    Transform.LZ4_MORE: ("lz4-block", None),
    Transform.SNAPPY: ("snappy", None),
}
KNOWN = {*CODECS, Transform.NONE, Transform.HMAC}
LEVELS = ("zlib", "zstd")  # codecs with levels


class _Transforms(NamedTuple):
    """The transforms of frames, prepared for writing.

    prefix: the header before its infos. transform: applies the transforms to a payload, or None
    where nothing changes it. sign: makes a mac, or None without HMAC.
    """

    prefix: bytes
    transform: Callable[[bytes], bytes] | None
    sign: Callable[[Any], bytes] | None


def encode_frame(
    payload: Any,
    *,
    protocol_id: SupportsIndex = Protocol.BINARY,
    flags: SupportsIndex = 0,
    seq: SupportsIndex = 0,
    transforms: Iterable[SupportsIndex] = (),
    infos: Any = (),
    persistent: Any = (),
    key: Any = None,
    hash: Any = "sha256",
    padding: str = "0-3",
    infos_order: str = "normal",
    big: bool = False,
    level: SupportsIndex | None = None,
) -> bytes:
    """Return a header frame around a payload.

    Args:
        payload: a message, bytes-like. Its content is not checked.
        protocol_id: a `Protocol`, or another number up to 255.
        flags: 16 bits.
        seq: 32 bits, signed or unsigned.
        transforms: numbers of `Transform`, applied to the payload in this order; at most 255. All
            but QLZ and CUSTOM are known.
        infos: headers of this frame: a mapping, or pairs (key, value) in order, of bytes or str. A
            key may occur twice; readers take the last value.
        persistent: headers of this frame and of all that follow on the connection; as `infos`.
        key: a secret, bytes-like. It is needed with the transform HMAC, and only then. Wherever
            HMAC is in `transforms`, it is written last.
        hash: hashlib's name of the hash for HMAC, or a constructor of its kind.
        padding: "0-3" or "1-4" zeros at the header's end.
        infos_order: which block is first, "normal" or "persistent".
        big: write a BIGF frame, whatever its size.
        level: of zlib, 0 to 9, or of zstd, -131072 to 22. None: as the transform's name says.

    Raises:
        TypeError: an argument of another type.
        ValueError: an argument that the format cannot hold. A header has at most 262,140 bytes, and
            a frame that is not big has at most 1,073,741,823 after its length.
    """
    prepared = _prepare_transforms(protocol_id, transforms, key, hash, level)
    normal_block = _encode_block(InfoKind.KEYVALUE, infos)
    persistent_block = _encode_block(InfoKind.PKEYVALUE, persistent)
    blocks = _sort_blocks(normal_block, persistent_block, infos_order)
    header = b"".join((prepared.prefix, *blocks))
    minimum = _parse_padding(padding)
    header += bytes(minimum + -(len(header) + minimum) % 4)
    if len(header) > MAX_HEADER:
        raise ValueError(f"a header has at most {MAX_HEADER} bytes, not {len(header)}")
    payload = to_bytes(payload, "payload")
    if prepared.transform is not None:
        payload = prepared.transform(payload)
    mac_size = 0 if prepared.sign is None else len(prepared.sign(b""))
    length = FIXED + len(header) + len(payload) + mac_size
    if length > MAX_LENGTH and not big:
        raise ValueError(
            f"a frame has at most {MAX_LENGTH} bytes after its length, not {length}; set big=True"
        )
    before = b"BIGF" + length.to_bytes(8, "big") if big else length.to_bytes(4, "big")
    fixed = b"\x0f\xff%b%b%b" % (
        check_integer(flags, "flags", U16).to_bytes(2, "big"),
        (check_integer(seq, "seq", BITS32) & 0xFFFFFFFF).to_bytes(4, "big"),
        (len(header) // 4).to_bytes(2, "big"),
    )
    if prepared.sign is None:
        return b"".join((before, fixed, header, payload))
    mac = prepared.sign(b"".join((fixed, header, payload)))
    # The last byte of the prefix is the size of the mac. It is 0 while the mac is made.
    signed_header = prepared.prefix[:-1] + bytes([len(mac)]) + header[len(prepared.prefix) :]
    return b"".join((before, fixed, signed_header, payload, mac))


def encode_frames(
    payloads: Any,
    *,
    protocol_id: SupportsIndex = Protocol.BINARY,
    flags: Any = 0,
    seq: Any = 0,
    transforms: Iterable[SupportsIndex] = (),
    infos: Any = (),
    persistent: Any = (),
    key: Any = None,
    hash: Any = "sha256",
    padding: str = "0-3",
    infos_order: str = "normal",
    big: bool = False,
    level: SupportsIndex | None = None,
) -> tuple[bytes, np.ndarray]:
    """Return header frames, as `encode_frame` writes them, from columns: (data, offsets).

    Args:
        payloads: a column without nulls, or one bytes-like object for all frames. A column is a
            place of a table as (table, "payload"); an Arrow array or chunked array of binary or
            string, or their large and view types; a numpy array of dtype S or of objects; (offsets,
            data), as `encode_messages` gives reversed; or a list of bytes. See
            `wirescan.core.strings.ByteStrings`.
        protocol_id: one for all frames, as in `encode_frame`.
        flags: an array of integers or of Arrow integers, whose nulls are 0, or one integer for all.
        seq: as `flags`.
        transforms: for all frames, as in `encode_frame`.
        infos: a mapping or list of (key, column). A value may also be one value for all frames. A
            null omits the pair. Or (counts, keys, values): an array with the number of pairs of
            each frame, and columns of all keys and values, without nulls. Or an Arrow array of map
            or list<struct<key, value>>.
        persistent: as `infos`.
        key: for all frames, as in `encode_frame`.
        hash: for all frames, as in `encode_frame`.
        padding: for all frames, as in `encode_frame`.
        infos_order: for all frames, as in `encode_frame`.
        big: for all frames, as in `encode_frame`.
        level: for all frames, as in `encode_frame`.

    Returns:
        data: the frames without gaps. `thrift.scan` reads it. offsets: n + 1 numbers of int64;
        frame i is data[offsets[i]:offsets[i + 1]].

    Raises:
        TypeError: an argument of another type.
        ValueError: columns of unequal length; none of payloads, flags and seq says how many frames
            exist; offsets or views outside their data; a number outside its bounds; or a frame
            that the format cannot hold, by its number.
    """
    prepared = _prepare_transforms(protocol_id, transforms, key, hash, level)
    columns, _ = convert_columns(
        {"payload": payloads, "flags": Bounded(flags, U16), "seq": Bounded(seq, BITS32)}
    )
    strings = columns["payload"]
    normal_part = _make_header_part(InfoKind.KEYVALUE, infos, strings)
    persistent_part = _make_header_part(InfoKind.PKEYVALUE, persistent, strings)
    parts = _sort_blocks(normal_part, persistent_part, infos_order)
    if (transform := prepared.transform) is not None:
        values = (strings[i] for i in range(len(strings)))
        strings = ByteStrings([None if value is None else transform(value) for value in values])
    return write_frames(
        strings,
        np.atleast_1d(columns["flags"]),
        np.atleast_1d(columns["seq"]),
        [prepared.prefix, *(part for part in parts if part)],
        padding=bool(_parse_padding(padding)),
        big=bool(big),
        sign=prepared.sign,
    )


def encode_framed(message: Any) -> bytes:
    """Return a message after its length, as the framed transport writes it, without a header.

    message: bytes-like. Its content is not checked.

    Raises TypeError for another type, ValueError for more than 1,073,741,823 bytes.
    """
    data = to_bytes(message, "message")
    if len(data) > MAX_LENGTH:
        raise ValueError(f"a framed message has at most {MAX_LENGTH} bytes, not {len(data)}")
    return len(data).to_bytes(4, "big") + data


def encode_framed_messages(messages: Any) -> tuple[bytes, np.ndarray]:
    """Return framed messages, as `encode_framed` writes them, from a column: (data, offsets).

    messages: a column as `encode_frames` takes it. offsets: n + 1 numbers of int64; frame i is
    data[offsets[i]:offsets[i + 1]]. Raises as `encode_frames`.
    """
    return write_framed(convert_columns({"message": messages})[0]["message"])


def encode_message(
    method: Any,
    message_type: SupportsIndex,
    seqid: SupportsIndex,
    arguments: Any = b"\0",
    *,
    service: Any = None,
    protocol: str | int = "binary",
    version: SupportsIndex | None = None,
    strict: bool = True,
) -> bytes:
    """Return a message, as it is in a frame or on a transport without frames.

    Args:
        method: bytes-like or str.
        message_type: a `MessageType`.
        seqid: 32 bits, signed or unsigned.
        arguments: the struct after the message's begin, bytes-like. Its content is not checked.
            A single zero byte has no fields.
        service: of a multiplexed call, bytes-like or str without a colon. Replies have none.
        protocol: "binary" or "compact", or a `Protocol`.
        version: of the compact protocol: 1 (Apache, the default) or 2 (fbthrift). It determines how
            doubles in `arguments` are written.
        strict: write the version word, as all current writers do. Readers need an option for
            messages without it. The compact protocol is always strict.

    Raises:
        TypeError: an argument of another type.
        ValueError: an argument that the format cannot hold.
    """
    compact = _choose_version(protocol, version, strict=strict)
    name = to_bytes(method, "method")
    if service is not None:
        prefix = to_bytes(service, "service")
        if b":" in prefix:
            raise ValueError(f"a service must not hold a colon: {prefix!r:.80}")
        name = prefix + b":" + name
    type_number = check_integer(message_type, "message_type", TYPES)
    seqid = check_integer(seqid, "seqid", BITS32) & 0xFFFFFFFF
    arguments = to_bytes(arguments, "arguments")
    if compact:
        first = bytes((0x82, type_number << 5 | compact))
        begin = first + encode_varint(seqid) + encode_varint(len(name)) + name
    else:
        sized_name = len(name).to_bytes(4, "big") + name
        if strict:
            begin = bytes((0x80, 1, 0, type_number)) + sized_name
        else:
            begin = sized_name + bytes((type_number,))
        begin += seqid.to_bytes(4, "big")
    size = len(begin) + len(arguments)
    if size > MAX_MESSAGE:
        raise ValueError(f"a message has at most {MAX_MESSAGE} bytes, not {size}")
    return begin + arguments


def encode_messages(
    methods: Any,
    types: Any,
    seqids: Any,
    arguments: Any = b"\0",
    *,
    service: Any = None,
    protocol: str | int = "binary",
    version: SupportsIndex | None = None,
    strict: bool = True,
) -> tuple[bytes, np.ndarray]:
    """Return messages, as `encode_message` writes them, from columns: (data, offsets).

    Args:
        methods: a column as `encode_frames` takes it, or one for all messages.
        types: an array of integers or of Arrow integers, or one integer for all messages.
        seqids: as `types`.
        arguments: as `methods`.
        service: as `methods`. A null is no service.
        protocol: for all messages, as in `encode_message`.
        version: for all messages, as in `encode_message`.
        strict: for all messages, as in `encode_message`.

    Returns:
        data: the messages without gaps. offsets: n + 1 numbers of int64; message i is
        data[offsets[i]:offsets[i + 1]]. `encode_frames` and `encode_framed_messages` take them in
        the other order, as (offsets, data).

    Raises:
        TypeError, ValueError: as `encode_frames`.
    """
    compact = _choose_version(protocol, version, strict=strict)
    columns, _ = convert_columns(
        {
            "method": methods,
            "type": Bounded(types, TYPES),
            "seqid": Bounded(seqids, BITS32),
            "arguments": arguments,
            "service": service,
        }
    )
    return write_messages(
        columns["method"],
        columns["service"],
        np.atleast_1d(columns["type"]),
        np.atleast_1d(columns["seqid"]),
        columns["arguments"],
        compact,
        strict=bool(strict),
    )


def _prepare_transforms(
    protocol_id: SupportsIndex,
    transforms: Iterable[SupportsIndex],
    key: Any,
    hash: Any,
    level: SupportsIndex | None,
) -> _Transforms:
    if not isinstance(transforms, Iterable):
        raise TypeError(
            f"transforms must be an iterable of integers, not {type(transforms).__name__}"
        )
    ids = [check_integer(id, "a transform", U16) for id in transforms]
    if unknown := {*ids} - KNOWN:
        raise ValueError(f"transform {min(unknown)} is not known; see wirescan.thrift.Transform")
    if len(ids) > MAX_TRANSFORMS or ids.count(Transform.HMAC) > 1:
        raise ValueError(f"at most {MAX_TRANSFORMS} transforms are possible, and HMAC once")
    if (key is None) == (Transform.HMAC in ids):
        raise ValueError("the transform HMAC needs a key; without HMAC, key must be None")
    steps: list[tuple[str, SupportsIndex | None]] = [CODECS[id] for id in ids if id in CODECS]
    if level is not None:
        if not any(codec in LEVELS for codec, _ in steps):
            raise ValueError("level needs a zlib or zstd transform, and transforms have neither")
        steps = [(codec, level if codec in LEVELS else None) for codec, _ in steps]

    def transform(payload: bytes) -> bytes:
        for codec, step_level in steps:
            payload = compress(codec, payload, step_level)
        return payload

    ids.sort(key=Transform.HMAC.__eq__)
    protocol = encode_varint(check_integer(protocol_id, "protocol_id", U8))
    prefix = protocol + encode_varint(len(ids)) + bytes(ids)
    if key is None:
        return _Transforms(prefix, transform if steps else None, None)
    sign = make_signer(to_bytes(key, "key"), hash)
    return _Transforms(prefix + b"\0", transform if steps else None, sign)


def _parse_padding(padding: str) -> int:
    if padding not in tuple(PADDINGS):
        raise ValueError(f"padding must be {' or '.join(map(repr, PADDINGS))}, not {padding!r:.80}")
    return PADDINGS[padding]


def _sort_blocks(normal: Any, persistent: Any, order: str) -> tuple[Any, Any]:
    if order not in ORDERS:
        raise ValueError(f"infos_order must be {' or '.join(map(repr, ORDERS))}, not {order!r:.80}")
    return (normal, persistent) if order == "normal" else (persistent, normal)


def _encode_block(kind: InfoKind, infos: Any) -> bytes:
    """Return the info block of some pairs, or b"" without pairs."""
    pairs = list_pairs(() if infos is None else infos)
    if not pairs:
        return b""
    parts = [encode_varint(kind), encode_varint(len(pairs))]
    for name, value in pairs:
        data = to_bytes(value, f"info {name!r:.80}")
        parts += encode_varint(len(name)), name, encode_varint(len(data)), data
    return b"".join(parts)


def _make_header_part(
    kind: InfoKind, infos: Any, payloads: ByteStrings
) -> bytes | tuple[int, Pairs]:
    """Return the info block that is the same in all frames, or (kind, pairs of each frame)."""
    if _is_constant(infos):
        return _encode_block(kind, infos)
    _, pairs = convert_columns({"payload": payloads}, infos)
    assert pairs is not None  # only an empty mapping or list gives None, and that is constant
    return int(kind), pairs


def _is_constant(infos: Any) -> bool:
    """Whether infos are the same for all frames: none, or pairs of one value each."""
    if infos is None or isinstance(infos, tuple) and not infos:
        return True
    if not isinstance(infos, (Mapping, list)):
        return False
    single = (bytes, bytearray, memoryview, str)
    return all(isinstance(value, single) for _, value in list_pairs(infos))


def _choose_version(protocol: str | int, version: SupportsIndex | None, *, strict: bool) -> int:
    """Return the version of the compact protocol, or 0 for the binary protocol."""
    number = PROTOCOLS.get(protocol, protocol) if isinstance(protocol, str) else protocol
    if number not in (*PROTOCOLS.values(),):
        raise ValueError(f"protocol must be 'binary' or 'compact', not {protocol!r:.80}")
    if number == Protocol.COMPACT:
        if not strict:
            raise ValueError("the compact protocol is always strict")
        return 1 if version is None else check_integer(version, "version", (1, 2))
    if version is not None:
        raise ValueError("version needs the compact protocol")
    return 0
