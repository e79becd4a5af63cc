"""Payloads as they were before their transforms: these are undone in reverse order, into arenas.

    none 0  zlib 1, 8, 11  HMAC 2  snappy 3  zstd 5, 9, 12  lz4 6, 10, 13

HMAC is no transform of the payload: its code stands behind that, and its size in the header behind its number. It
covers all that follows the frame's length, up to itself, with that size as zero.

Source: Apache Thrift, doc/specs/HeaderFormat.md, "Transform IDs"; fbthrift, RpcMetadata.thrift, and for HMAC its
THeader.cpp of before November 2015.
"""
from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from wirescan.codecs import Arena, CodecError
from wirescan.core.fault import Fault
from wirescan.limits import Limits
from wirescan.thrift.kind import Kind, Transform
from wirescan.thrift.payloads import payloads, settle

CODECS = {Transform.SNAPPY: "snappy-raw", Transform.ZSTD: "zstd", Transform.ZSTD_LESS: "zstd",
          Transform.ZSTD_MORE: "zstd", Transform.LZ4: "lz4-block", Transform.LZ4_LESS: "lz4-block",
          Transform.LZ4_MORE: "lz4-block"}
ZLIB = (Transform.ZLIB, Transform.ZLIB_LESS, Transform.ZLIB_MORE)
MAGIC_AT = {Kind.HEADER: 4, Kind.BIG_HEADER: 12, Kind.DOUBLE_HEADER: 8}
LONGEST_LINE = 4096         # of a chunk's size, with extensions
FIXED = 10                  # bytes from the magic to the header
LAST_BUFFER = 0xffff        # `buffer` of a row is u2
USUAL_RATIO = 4             # of what payloads inflate to, to what they are: a first guess


def undone(frames: np.ndarray, buffers: tuple[memoryview, ...], check: bool, limits: Limits,
           sign: Callable[[bytes], bytes] | None = None) -> tuple[np.ndarray, tuple[memoryview, ...]]:
    """(rows of dtype PLAIN, buffers): of each row of dtype FRAME that has a payload or is bad; behind the buffers given
    those of the arena. sign: verify codes of HMAC with it.

    Raises TypeError for other rows, ValueError where a row points outside its buffer, and where there would be more
    than 65,536 buffers."""
    rows, deflated, others = payloads(frames, buffers)
    if len(deflated) or len(others):
        spread = deflated["size"].sum(dtype=np.int64) + rows["size"][others].sum(dtype=np.int64)
        arena = Arena(limits, USUAL_RATIO * int(spread))
        settle(rows, deflated, arena.add_zlib_each(buffers, deflated, check), len(buffers))
        for i in others.tolist():
            frame, row = frames[rows["parent"][i]], rows[i:i + 1]
            try:
                if sign is not None:
                    _verify(frame, buffers, sign)           # before anything that it says is believed
                _undo(frame, row, buffers, arena, check, limits)
            except CodecError as error:
                row["fault"], row["payload_size"] = error.fault, 0
        buffers = (*buffers, *arena.buffers)
    return rows, buffers


def _undo(frame: np.void, row: np.ndarray, buffers: tuple[memoryview, ...], arena: Arena, check: bool,
          limits: Limits) -> None:
    start, size = int(row["start"][0]), int(row["size"][0])
    payload = buffers[frame["buffer"]][start:start + size]
    if frame["kind"] == Kind.HTTP_CHUNKED:
        place = arena.add_parts(list(_chunks(payload)))
    else:
        ids = [one for one in _header(frame, buffers)[0] if one not in (Transform.NONE, Transform.HMAC)]
        if not ids:
            return                                  # it is plain already
        between = Arena(replace(limits, inflated_total=limits.inflated))           # what is inflated more than once
        for one in reversed(ids[1:]):
            number, first, length = _inflated(one, payload, between, check, size)
            payload = between.buffers[number][first:first + length]
        place = _inflated(ids[0], payload, arena, check, size)
    if len(buffers) + place[0] > LAST_BUFFER:
        raise ValueError("a table holds at most 65,536 buffers; open fewer frames at a time")
    row["buffer"], row["start"], row["size"] = len(buffers) + place[0], place[1], place[2]
    row["payload_size"] = place[2]


def _inflated(transform: int, payload: memoryview, arena: Arena, check: bool, wire: int) -> tuple[int, int, int]:
    # The ratio counts from the wire, else that of each transform would multiply it.
    if transform not in ZLIB:
        return arena.add(CODECS.get(transform, "none"), payload, wire)
    place, fault = arena.add_zlib(payload, check, wire)
    if fault == Fault.TRUNCATED or fault and check:
        raise CodecError(fault, "the zlib stream has no end, or something follows it")
    return place


def _header(frame: np.void, buffers: tuple[memoryview, ...]) -> tuple[list[int], int]:
    """The transforms of a good frame, and where in it the size of its code stands (0: nowhere)."""
    data = buffers[frame["buffer"]][int(frame["start"]):int(frame["start"]) + int(frame["payload_at"])]
    at, ids, signed = MAGIC_AT.get(frame["kind"], 0) + FIXED, [], 0
    _, at = _varint(data, at)
    count, at = _varint(data, at)
    for _ in range(count):
        one, at = _varint(data, at)
        ids.append(one)
        if one == Transform.HMAC:
            signed, at = at, at + 1
    return ids, signed


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):                         # such a row is not from a scan
            raise CodecError(Fault.TRUNCATED, "the header ends inside its transforms")
        value, shift, at = value | (data[at] & 127) << shift, shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def _verify(frame: np.void, buffers: tuple[memoryview, ...], sign: Callable[[bytes], bytes]) -> None:
    ids, at = _header(frame, buffers) if frame["kind"] in MAGIC_AT else ([], 0)
    if Transform.HMAC in ids:
        start, size, code = int(frame["start"]), int(frame["size"]), int(frame["mac_size"])
        data = buffers[frame["buffer"]][start:start + size]
        signed = b"".join((data[MAGIC_AT[frame["kind"]]:at], b"\0", data[at + 1:size - code]))
        if not hmac.compare_digest(sign(signed), data[size - code:]):
            raise CodecError(Fault.BAD_CHECKSUM, "the code is not that of the key")


def _chunks(body: memoryview) -> Iterator[memoryview]:
    at, size = 0, 1
    while size:
        line = bytes(body[at:at + LONGEST_LINE]).split(b"\n", 1)[0]
        digits = line.split(b";")[0].strip(b" \t\r")
        if not digits or digits.strip(b"0123456789abcdefABCDEF"):       # such a row is not from a scan
            raise CodecError(Fault.BAD_COUNT, "no size before a chunk")
        size, at = int(digits, 16), at + len(line) + 1
        yield body[at:at + size]
        at += size + 2
