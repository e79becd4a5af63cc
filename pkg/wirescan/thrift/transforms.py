"""Undo the transforms of payloads, in reverse order, into arenas. `formats.py` calls this module.

    none 0  zlib 1, 8, 11  HMAC 2  snappy 3  zstd 5, 9, 12  lz4 6, 10, 13

HMAC does not change the payload. Its mac is after the payload, and the size of the mac is in the
header, after the transform's number. The mac covers everything after the frame's length and before
the mac, with 0 in place of that size.

Source: Apache Thrift, doc/specs/HeaderFormat.md, "Transform IDs"; fbthrift, RpcMetadata.thrift;
for HMAC, fbthrift's THeader.cpp from before November 2015.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from wirescan.core.fault import Fault
from wirescan.frames.arena import Arena
from wirescan.frames.codecs import CodecError
from wirescan.frames.limits import Limits
from wirescan.frames.table import MAX_BUFFERS, FrameTable, require_rows
from wirescan.thrift.constants import Kind, Transform
from wirescan.thrift.payloads import list_payloads, set_places
from wirescan.thrift.scan import FRAME

CODECS: dict[int, str] = {
    Transform.SNAPPY: "snappy-raw",
    Transform.ZSTD: "zstd",
    Transform.ZSTD_LESS: "zstd",
    Transform.ZSTD_MORE: "zstd",
    Transform.LZ4: "lz4-block",
    Transform.LZ4_LESS: "lz4-block",
    Transform.LZ4_MORE: "lz4-block",
}
ZLIB = (Transform.ZLIB, Transform.ZLIB_LESS, Transform.ZLIB_MORE)
MAGIC_AT: dict[int, int] = {Kind.HEADER: 4, Kind.BIG_HEADER: 12, Kind.DOUBLE_HEADER: 8}
LONGEST_LINE = 4096  # bytes of a chunk's size, with extensions
TRANSFORM_COLUMNS = 4  # columns of a frame for its first transforms
FIXED = 10  # bytes from the magic to the header
# Transforms of one frame. More are TOO_LARGE: undoing each may cost as much as the payload.
MAX_UNDONE = 8
USUAL_RATIO = 4  # first guess of decompressed size to compressed size


def undo_transforms(
    frames: np.ndarray,
    buffers: tuple[memoryview, ...],
    limits: Limits,
    *,
    check: bool,
    sign: Callable[[bytes], bytes] | None = None,
) -> tuple[np.ndarray, tuple[memoryview, ...]]:
    """Return (rows of dtype PLAIN, buffers): the payloads of frames without their transforms.

    Each row of dtype FRAME that has a payload or is bad has one row. The buffers are those given,
    and after them those of the arena. check: verify the checksums of zlib. sign: makes a mac;
    verify the macs of HMAC with it.

    Raises TypeError for rows of another dtype; ValueError where a row points outside its buffer,
    and for more than 65,536 buffers.
    """
    rows, deflated, others = list_payloads(frames, buffers)
    if len(deflated) or len(others):
        wire = deflated["size"].sum(dtype=np.int64) + rows["size"][others].sum(dtype=np.int64)
        arena = Arena(limits, USUAL_RATIO * int(wire))
        places = arena.add_zlib_each(buffers, deflated, check=check)
        set_places(rows, deflated, places, len(buffers))
        for i in others.tolist():
            frame = frames[rows["parent"][i]]
            row = rows[i : i + 1]
            try:
                if sign is not None:
                    _verify(frame, buffers, sign)  # before any other use of the frame
                _undo(frame, row, buffers, arena, limits, check=check)
            except CodecError as error:
                row["fault"] = error.fault
                row["payload_size"] = 0
        buffers = (*buffers, *arena.buffers)
        _refuse_too_many_buffers(len(buffers))
    return rows, buffers


def _refuse_too_many_buffers(count: int) -> None:
    if count > MAX_BUFFERS:
        raise ValueError("a table holds at most 65,536 buffers; open fewer frames at a time")


def _undo(
    frame: np.void,
    row: np.ndarray,
    buffers: tuple[memoryview, ...],
    arena: Arena,
    limits: Limits,
    *,
    check: bool,
) -> None:
    """Undo the transforms of one payload, and set its place in `row`."""
    start = int(row["start"][0])
    size = int(row["size"][0])
    payload = buffers[frame["buffer"]][start : start + size]
    if frame["kind"] == Kind.HTTP_CHUNKED:
        place = arena.add_parts(list(_iter_chunks(payload)))
    else:
        listed, _ = _read_transforms(frame, buffers)
        ids = [id for id in listed if id not in (Transform.NONE, Transform.HMAC)]
        if not ids:
            return
        if len(ids) > MAX_UNDONE:
            raise CodecError(
                Fault.TOO_LARGE, f"{len(ids)} transforms; at most {MAX_UNDONE} are undone"
            )
        if len(ids) > 1:
            payload = _undo_all_but_first(ids[1:], payload, arena, limits, check=check)
        place = _decompress(ids[0], payload, arena, size, check=check)
    number, first, length = place
    _refuse_too_many_buffers(len(buffers) + number + 1)
    row["buffer"] = len(buffers) + number
    row["start"] = first
    row["size"] = length
    row["payload_size"] = length


def _undo_all_but_first(
    ids: list[int], payload: memoryview, arena: Arena, limits: Limits, *, check: bool
) -> memoryview:
    """Return the payload with the transforms `ids` undone; the bytes count against `arena`.

    ids: the transforms of the frame without the one that was applied first.
    """
    if arena.remaining == 0:
        raise CodecError(Fault.TOO_LARGE, "all payloads together are above a limit")
    temporary = Arena(replace(limits, inflated_total=arena.remaining))
    size = len(payload)
    try:
        for id in reversed(ids):
            number, first, length = _decompress(id, payload, temporary, size, check=check)
            payload = temporary.buffers[number][first : first + length]
    finally:
        arena.spend(temporary)
    return payload


def _decompress(
    transform: int, payload: memoryview, arena: Arena, wire: int, *, check: bool
) -> tuple[int, int, int]:
    """Undo one transform; return (buffer, start, size) in the arena.

    wire: the payload's bytes on the wire. The limit on the ratio counts from there. Otherwise the
    ratios of several transforms would multiply.
    """
    if transform not in ZLIB:
        return arena.add(CODECS.get(transform, "none"), payload, wire)
    place, fault = arena.add_zlib(payload, check=check, wire=wire)
    if fault == Fault.TRUNCATED or fault and check:
        raise CodecError(fault, "the zlib stream has no end, or bytes follow it")
    return place


def _read_transforms(frame: np.void, buffers: tuple[memoryview, ...]) -> tuple[list[int], int]:
    """Return (transforms of a good frame, position of the mac's size in it, or 0 without a mac)."""
    start = int(frame["start"])
    data = buffers[frame["buffer"]][start : start + int(frame["payload_at"])]
    ids: list[int] = []
    mac_size_at = 0
    position = MAGIC_AT.get(frame["kind"], 0) + FIXED
    _, position = _read_varint(data, position)  # the protocol
    count, position = _read_varint(data, position)
    for _ in range(count):
        id, position = _read_varint(data, position)
        ids.append(id)
        if id == Transform.HMAC:
            mac_size_at = position
            position += 1
    return ids, mac_size_at


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return (value, position after it). Raises CodecError(TRUNCATED)."""
    value = shift = 0
    while True:
        if position >= len(data):  # only in rows that no scan made
            raise CodecError(Fault.TRUNCATED, "the header ends inside its transforms")
        byte = data[position]
        value |= (byte & 127) << shift
        shift += 7
        position += 1
        if byte < 128:
            return value, position


def _verify(
    frame: np.void, buffers: tuple[memoryview, ...], sign: Callable[[bytes], bytes]
) -> None:
    """Raise CodecError(BAD_CHECKSUM) where the frame has a mac that is not the key's."""
    if frame["kind"] not in MAGIC_AT:
        return
    ids, at = _read_transforms(frame, buffers)
    if Transform.HMAC in ids:
        start = int(frame["start"])
        size = int(frame["size"])
        mac_size = int(frame["mac_size"])
        magic_at = MAGIC_AT[frame["kind"]]
        data = buffers[frame["buffer"]][start : start + size]
        signed = b"".join((data[magic_at:at], b"\0", data[at + 1 : size - mac_size]))
        if not hmac.compare_digest(sign(signed), data[size - mac_size :]):
            raise CodecError(Fault.BAD_CHECKSUM, "the mac is not that of the key")


def _iter_chunks(body: memoryview) -> Iterator[memoryview]:
    """Yield the data of each HTTP chunk. Raises CodecError(BAD_COUNT)."""
    position = 0
    size = 1
    while size:
        line = bytes(body[position : position + LONGEST_LINE]).split(b"\n", 1)[0]
        digits = line.split(b";")[0].strip(b" \t\r")
        # Only rows that no scan made have other digits.
        if not digits or digits.strip(b"0123456789abcdefABCDEF"):
            raise CodecError(Fault.BAD_COUNT, "no size before a chunk")
        size = int(digits, 16)
        position += len(line) + 1
        yield body[position : position + size]
        position += size + 2


def transform_ids(frames: FrameTable) -> tuple[np.ndarray, np.ndarray]:
    """Return every transform of the frames in a table of thrift.frames, as (offsets, ids).

    The columns of a frame have only the first four. A frame with unknown transforms has all of its
    transforms in the result. A row whose header is bad has none.

    Args:
        frames: a table of thrift.frames.

    Returns:
        offsets is int64, ids is uint16. `ids[offsets[i]:offsets[i + 1]]` are the transforms of row
        i in the order of the wire, in which the writer applied them; see `Transform`.

    Raises:
        TypeError: another table.
        ValueError: a row points outside its buffer, or does not fit its header.
    """
    require_rows(frames, FRAME, "transform_ids takes a table of thrift.frames")
    counts = frames["transform_count"].astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ids = np.zeros(int(offsets[-1]), np.uint16)
    for column in range(TRANSFORM_COLUMNS):
        rows = np.flatnonzero(counts > column)
        ids[offsets[rows] + column] = frames[f"transform_{column}"][rows]
    for row in np.flatnonzero(counts > TRANSFORM_COLUMNS).tolist():
        frames.frame(row)  # raises ValueError for a row that points outside its buffer
        try:
            listed, _ = _read_transforms(frames.rows[row], frames.buffers)
        except CodecError:
            listed = []
        if len(listed) != counts[row]:
            raise ValueError(
                f"row {row} of {frames.name}: its header has another number of transforms"
            )
        ids[offsets[row] : offsets[row + 1]] = listed
    return offsets, ids
