"""The laws for a format that is not of this package. test_outside.py builds the room and runs this file."""
import netstrings
import pytest
from hypothesis import given
from hypothesis import strategies as st

import laws
import wirescan
from laws import Room
from test_laws import at_most, cuts, steady
from wirescan.errors import MODES
from wirescan.parquet import convert
from wirescan.partition import plan

HEAD = dict(start=0, size=0, body=0, parent=-1, buffer=0, kind=0, fault=0, text_at=0, text_size=0)
TRUNCATED, SHORT, BAD_LENGTH, NOT_A_FRAME = 1, 128, 160, 161


def encode(texts):
    return b"".join(b"%d:%b," % (len(text), text) for text in texts)


def first(raw, at):
    """(row, stop fault) of the netstring at `at`, one of them None."""
    digits = raw[at:at + 9]
    digits = digits[:len(digits) - len(digits.lstrip(b"0123456789"))]
    if at + len(digits) == len(raw):
        return None, SHORT
    if not digits or raw[at + len(digits)] != ord(":") or digits[:1] == b"0" and int(digits):
        return None, NOT_A_FRAME
    body, text = len(digits) + 1, int(digits)
    if at + body + text + 1 > len(raw):
        return None, SHORT
    row = HEAD | dict(start=at, size=body + text + 1, body=body)
    if raw[at + body + text] != ord(","):
        return row | dict(fault=TRUNCATED), None
    return row | dict(text_at=body, text_size=text), None


def intact(raw, at):
    row, _ = first(raw, at)
    return row is not None and not row["fault"]


def expect(raw, check, resync):
    rows, at = [], 0
    while at < len(raw):
        row, fault = first(raw, at)
        found = next((i for i in range(at + 1, len(raw)) if intact(raw, i)), None)
        if row is None:
            if fault == SHORT and found is not None:
                fault = BAD_LENGTH              # intact ones follow, so it was not cut
            if fault == SHORT or not resync:
                return {"netstrings": [(row, raw) for row in rows]}, fault, at
            row = HEAD | dict(start=at, size=(len(raw) if found is None else found) - at, fault=fault)
        elif row["fault"] and resync and found and at + row["size"] < len(raw) and not intact(raw, at + row["size"]):
            row["size"] = found - at
        rows.append(row)
        at += row["size"]
    return {"netstrings": [(row, raw) for row in rows]}, 0, at


texts = st.lists(st.binary(max_size=20) | st.just(bytes(1000)), max_size=6)
good = texts.map(encode)
damaged = st.tuples(good, st.lists(st.tuples(st.integers(0, 2000), st.sampled_from(b"0123456789:,x\0\xff")))).map(
    lambda pair: bytes(dict((at % max(len(pair[0]), 1), byte) for at, byte in pair[1]).get(i, byte)
                       for i, byte in enumerate(pair[0])))
ROOM = Room(
    formats=("netstrings",), good=good, tails=st.sampled_from((b"", b"1", b"12:", b"5:hell", b"3:abc")),
    damaged=damaged | st.text("0123456789:,ab", max_size=60).map(str.encode),
    written=texts.map(lambda texts: (encode(texts), texts)),
    values=lambda table: [bytes(row.text) for row in table], expected=expect, children={})


def test_it_is_a_format_like_any_other():
    assert wirescan.formats()["netstrings"] is netstrings.NETSTRINGS
    table = wirescan.scan(b"5:hello,0:,", "netstrings")
    assert [bytes(row.text) for row in table] == [b"hello", b""] and table["text_at"].tolist() == [2, 2]
    with pytest.raises(wirescan.FrameError) as caught:
        netstrings.scan(b"2:ok,5:hello!")
    assert (caught.value.fault, caught.value.offset, caught.value.row) == (TRUNCATED, 5, 1)


def test_it_is_planned_and_converted(tmp_path):
    """Without cuts of its own, a file is one slice."""
    path = tmp_path / "names.txt"
    path.write_bytes(b"5:hello,0:," * 1000)
    assert [len(one) for one in plan(path, 100, "netstrings")] == [11000]
    done = convert(path, tmp_path / "out", format="netstrings", size=100)
    assert (done.frames, done.bytes, done.faults) == (2000, 11000, 0)


@steady
@given(st.data(), cuts, st.sampled_from(MODES), st.lists(st.booleans(), min_size=1), st.integers(0, 9))
def test_the_laws(data, cuts, errors, mask, cut):
    raw = data.draw(ROOM.good) + data.draw(ROOM.tails)
    laws.streams_agree(ROOM, raw, at_most(cuts, raw), errors)
    laws.streams_agree(ROOM, raw[:300], list(range(1, len(raw[:300]))), errors)
    laws.writes_read_back(ROOM, *data.draw(ROOM.written))
    raw = data.draw(ROOM.damaged)
    laws.agrees_with_the_reference(ROOM, raw)
    laws.covers_every_byte(ROOM, raw)
    laws.modes_agree(ROOM, raw)
    laws.streams_lose_nothing(ROOM, raw, at_most(cuts, raw))
    laws.parts_keep_their_meaning(ROOM, raw, mask, cut)
