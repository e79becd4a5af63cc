"""Recordings of Apache Thrift's Python library and of thriftpy2, in tests/corpus/thrift.

peers/make_thrift.py makes them. Frames cover every byte. Every frame, header, message and field
equals the values that the libraries wrote. Our encoders write the same bytes.
"""

import pytest

import wirescan
from tests.support.thrift_corpus import (
    CASES,
    CORPUS,
    RECORDED_VALUES,
    check_recording,
    read_recording,
    scan_recording,
)
from wirescan import thrift
from wirescan.thrift import Kind, Protocol
from wirescan.thrift.encode import encode_frame, encode_framed, encode_message


def encode_again(messages: wirescan.FrameTable) -> list[bytes]:
    """Encode each message from its columns."""
    encoded = []
    for row in messages:
        dialect = (
            {"protocol": "compact", "version": row.version}
            if row.protocol == Protocol.COMPACT
            else {"protocol": "binary", "strict": bool(row.strict)}
        )
        encoded.append(
            encode_message(
                bytes(row.method),
                row.kind,
                row.seqid,
                bytes(row.arguments),
                service=None if row.service is None else bytes(row.service),
                **dialect,
            )
        )
    return encoded


def frame_bytes(table: wirescan.FrameTable) -> list[bytes]:
    return [bytes(table.frame(i)) for i in range(len(table))]


def test_every_recording_has_a_description():
    recordings = {path.name for path in CORPUS.glob("*.theader")}
    assert recordings == {f"{scene}.{side}.theader" for scene, side in CASES}
    assert len(CASES) == 40
    assert all(RECORDED_VALUES.values())


@pytest.mark.parametrize(("scene", "side"), CASES)
def test_recordings_hold_the_recorded_messages(scene, side):
    check_recording(CORPUS, scene, side, RECORDED_VALUES[scene, side])


@pytest.mark.parametrize(("scene", "side"), CASES)
def test_plain_frames_give_the_same_messages(scene, side):
    frames = scan_recording(read_recording(CORPUS, scene, side), scene)
    direct = thrift.messages(frames)
    from_plain = thrift.messages(thrift.plain(frames))
    assert frame_bytes(direct) == frame_bytes(from_plain)
    assert direct["parent"].tolist() == from_plain["parent"].tolist()


@pytest.mark.parametrize(
    ("scene", "side"), [case for case in CASES if not case[0].endswith("not-strict")]
)
def test_a_stream_in_small_pieces_has_the_same_frames(scene, side):
    data = read_recording(CORPUS, scene, side)
    expected = scan_recording(data)
    for size in range(1, 40, 3):
        stream = wirescan.stream("thrift.frames")
        tables = [stream.feed(data[start : start + size]) for start in range(0, len(data), size)]
        tables.append(stream.close())
        frames = [frame for table in tables for frame in frame_bytes(table)]
        assert frames == frame_bytes(expected)


@pytest.mark.parametrize(("scene", "side"), CASES)
def test_encoders_write_the_same_bytes(scene, side):
    """Every message is equal, and every header frame that is not compressed."""
    frames = scan_recording(read_recording(CORPUS, scene, side), scene)
    messages = thrift.messages(frames)
    infos = thrift.infos(frames)
    encoded = encode_again(messages)
    assert encoded == frame_bytes(messages)
    for parent, message in zip(messages["parent"].tolist(), encoded, strict=True):
        frame = frames[parent]
        kind = frames["kind"][parent]
        if kind in (Kind.FRAMED_BINARY, Kind.FRAMED_COMPACT):
            assert encode_framed(message) == bytes(frames.frame(parent))
        elif kind == Kind.HEADER and not frame.transform_count:
            pairs = [
                (bytes(info.key), bytes(info.value))
                for info in infos.where(infos["parent"] == parent)
            ]
            encoded_frame = encode_frame(
                message,
                protocol_id=frame.protocol_id,
                flags=frame.flags,
                seq=frame.seq,
                infos=pairs,
            )
            assert encoded_frame == bytes(frames.frame(parent))
