"""A format of another package in captures: netstrings that carry other netstrings.

tests/test_outside.py builds the package and runs this file.
"""

import struct
from dataclasses import replace

import netstrings
import numpy as np
import pytest

import wirescan
from wirescan import Column, FrameError, Storage, pcap, register
from wirescan.core.loop import HEAD
from wirescan.frames.conversation import CarriedFormat, Conversation
from wirescan.frames.evidence import weigh_equally
from wirescan.reading.chunked import iter_tables

PORT = 4001
COLUMNS = np.dtype([("records_at", "u4"), ("records_size", "i4"), ("length", "u4")])
LISTS = [b"1:%d,5:hello," % n + b"30:%030d," % n for n in range(3)]


def find_lists(asked, answers, *, limits):
    """Return a row for each good netstring: its text is the place `records`."""
    assert asked is answers  # netstrings of both sides are one format
    chosen = np.flatnonzero(~answers.bad)
    rows = np.zeros(len(chosen), [*HEAD.descr, *COLUMNS.descr])
    for name in ("start", "size", "buffer", "parent"):
        rows[name] = answers.rows[name][chosen]
    for end in ("_at", "_size"):
        rows["records" + end] = answers.rows["text" + end][chosen]
    rows["length"] = answers.rows["text_size"][chosen]
    return rows


def declare(name, carried):
    return replace(
        netstrings.NETSTRINGS,
        name=name,
        storage=Storage(weigh=weigh_equally(20)),
        conversation=Conversation(ports=(PORT,)),
        carried=carried,
    )


CARRIED = CarriedFormat(
    "sent.lists",
    "netstrings with netstrings inside, from captures",
    "netstrings",
    COLUMNS,
    find_lists,
    inherited=("length",),
    columns={"length": Column()},
    meanings={"records": "the netstrings inside", "length": "bytes of them"},
)
register(declare("sent.netstrings", CARRIED))


def make_capture():
    """Return a capture in which both sides send netstrings, each in packets of 40 bytes."""
    packets = []
    sequences = [1, 1]
    for number, text in enumerate(LISTS):
        side = number % 2
        data = b"%d:%b," % (len(text), text)
        for at in range(0, len(data), 40):
            payload = data[at : at + 40]
            ports = ((40_000, PORT), (PORT, 40_000))[side]
            segment = struct.pack(">HHIIBBHHH", *ports, sequences[side], 0, 80, 24, 9999, 0, 0)
            segment += payload
            head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(segment), 1, 0, 64, 6, 0)
            addresses = [bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])][:: -1 if side else 1]
            packets.append(
                (
                    10**9 + len(packets),
                    bytes(12) + b"\x08\x00" + head + b"".join(addresses) + segment,
                )
            )
            sequences[side] += len(payload)
    return pcap.encode_pcap(packets, nanoseconds=True)


def test_frames_of_both_sides_are_read():
    table = wirescan.scan(make_capture(), "sent.netstrings")
    assert [bytes(row.text) for row in table] == [LISTS[0], LISTS[2], LISTS[1]]
    assert table["client"].to_pylist() == ["10.0.0.1:40000"] * 3


def test_the_carried_format_is_read_in_one_step():
    lists = wirescan.scan(make_capture(), "sent.lists")
    assert lists["length"].tolist() == [len(LISTS[n]) for n in (0, 2, 1)]
    table = wirescan.scan(make_capture(), "netstrings")
    expected = [bytes(row.text) for n in (0, 2, 1) for row in netstrings.scan(LISTS[n])]
    assert [bytes(row.text) for row in table] == expected
    assert table["length"].tolist() == [len(LISTS[n]) for n in (0, 0, 0, 2, 2, 2, 1, 1, 1)]
    assert set(table["client"].to_pylist()) == {"10.0.0.1:40000"}


@pytest.mark.parametrize("piece", [50, 300])
def test_pieces_have_the_carried_frames_of_the_whole(tmp_path, piece):
    path = tmp_path / "capture.pcap"
    path.write_bytes(make_capture())
    tables = iter_tables(str(path), format="sent.lists", piece=piece)
    found = [length for table in tables if len(table) for length in table["length"].tolist()]
    assert sorted(found) == sorted(map(len, LISTS))


def test_two_formats_cannot_carry_the_same_one():
    carried = replace(CARRIED, name="other.lists")
    with pytest.raises(ValueError, match="netstrings are carried by sent.netstrings"):
        register(declare("other.netstrings", carried))
    assert "other.netstrings" not in wirescan.formats()


def test_damage_is_a_bad_row():
    raw = make_capture().replace(b",", b";")
    assert wirescan.scan(raw, "sent.lists", errors="mark").bad.any()
    with pytest.raises(FrameError):
        wirescan.scan(raw, "sent.lists")
