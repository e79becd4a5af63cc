"""The laws for the format of an external package.

tests/test_outside.py builds the package and runs this file.
"""

import json
import pickle
import subprocess
import sys

import netstrings
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import wirescan
from tests.laws import laws
from tests.laws.cases import cuts, limit_cuts, steady
from tests.laws.laws import ProtocolPackage
from wirescan.cli.main import main
from wirescan.export.parquet import convert
from wirescan.frames.errors import MODES
from wirescan.reading.splits import plan

HEAD = dict(start=0, size=0, body=0, parent=-1, buffer=0, kind=0, fault=0)
ROW = HEAD | dict(text_at=0, text_size=0, content=0)
TRUNCATED, SHORT, BAD_LENGTH, NOT_A_FRAME = 1, 128, 160, 161
LEADING_ZERO, LONG_SIZE = 64, 192


def encode(texts):
    return b"".join(b"%d:%b," % (len(text), text) for text in texts)


def parse_netstring(raw, at):
    """Return (row, None) for the netstring at `at`, or (None, fault) where the scan stops."""
    digits = raw[at : at + 9]
    digits = digits[: len(digits) - len(digits.lstrip(b"0123456789"))]
    if at + len(digits) == len(raw):
        return None, SHORT
    following = raw[at + len(digits)]
    if len(digits) == 9 and chr(following).isdigit():
        return None, LONG_SIZE
    if not digits or following != ord(":"):
        return None, NOT_A_FRAME
    body = len(digits) + 1
    text = int(digits)
    if at + body + text + 1 > len(raw):
        return None, SHORT
    row = ROW | dict(start=at, size=body + text + 1, body=body)
    if raw[at + body + text] != ord(","):
        return row | dict(fault=TRUNCATED), None
    if len(digits) > 1 and digits[:1] == b"0":
        return row | dict(fault=LEADING_ZERO), None
    content = raw[at + body : at + body + text]
    kind = (1 if content.isascii() else 2) if content else 0
    return row | dict(text_at=body, text_size=text, content=kind), None


def is_intact(raw, at):
    row, _ = parse_netstring(raw, at)
    return row is not None and not row["fault"]


def expect_tables(raw, check, resync):
    """Return the rows, the fault and the position of the stop that a scan must have."""
    rows = []
    at = 0
    while at < len(raw):
        row, fault = parse_netstring(raw, at)
        next_intact = next((i for i in range(at + 1, len(raw)) if is_intact(raw, i)), None)
        if row is None:
            if fault == SHORT and next_intact is not None:
                fault = BAD_LENGTH  # an intact netstring follows, so this one is not cut
            if fault == SHORT or not resync:
                return {"netstrings": [(row, raw) for row in rows]}, fault, at
            stop = len(raw) if next_intact is None else next_intact
            row = ROW | dict(start=at, size=stop - at, fault=fault)
        elif (
            row["fault"]
            and resync
            and next_intact
            and at + row["size"] < len(raw)
            and not is_intact(raw, at + row["size"])
        ):
            row["size"] = next_intact - at
            row["body"] = min(row["body"], row["size"])
        rows.append(row)
        at += row["size"]
    return {"netstrings": [(row, raw) for row in rows]}, 0, at


texts = st.lists(st.binary(max_size=20) | st.just(bytes(1000)), max_size=6)
good = texts.map(encode)


def replace_bytes(pair):
    """Return bytes with replacements from a list of (position, byte)."""
    raw, changes = pair
    replaced = {at % max(len(raw), 1): byte for at, byte in changes}
    return bytes(replaced.get(i, byte) for i, byte in enumerate(raw))


changes = st.lists(st.tuples(st.integers(0, 2000), st.sampled_from(b"0123456789:,x\0\xff")))
damaged = st.tuples(good, changes).map(replace_bytes)
PACKAGE = ProtocolPackage(
    formats=("netstrings",),
    good=good,
    tails=st.sampled_from((b"", b"1", b"12:", b"5:hell", b"3:abc")),
    damaged=damaged | st.text("0123456789:,ab", max_size=60).map(str.encode),
    written=texts.map(lambda texts: (encode(texts), texts)),
    values=lambda table: [bytes(row.text) for row in table],
    expected=expect_tables,
    children={},
)


def test_the_format_is_registered_and_read():
    assert wirescan.formats()["netstrings"] is netstrings.NETSTRINGS
    table = wirescan.scan(b"5:hello,0:,", "netstrings")
    assert [bytes(row.text) for row in table] == [b"hello", b""]
    assert table["text_at"].tolist() == [2, 2]
    with pytest.raises(wirescan.FrameError) as caught:
        netstrings.scan(b"2:ok,5:hello!")
    assert (caught.value.fault, caught.value.offset, caught.value.row) == (TRUNCATED, 5, 1)


def run_python(*arguments):
    """Run Python in a new process, which has not imported netstrings."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)


def test_the_command_finds_the_format_of_an_installed_package(tmp_path):
    path = tmp_path / "names.txt"
    path.write_bytes(b"5:hello,0:,")
    assert "netstrings" in run_python("-m", "wirescan", "formats").stdout
    done = run_python("-m", "wirescan", "scan", "--format", "netstrings", str(path))
    assert done.stdout.split() == ["_start", "size", "text", "0", "8", "hello", "8", "3"], done


def test_a_pickled_table_finds_its_format_in_a_new_process():
    table = wirescan.scan(b"5:hello,", "netstrings")
    program = f"import pickle; print(pickle.loads({pickle.dumps(table)!r})[0].text.tobytes())"
    assert run_python("-c", program).stdout.strip() == "b'hello'"


def test_a_file_is_planned_and_converted(tmp_path):
    """A format without `boundaries` gives one slice per file."""
    path = tmp_path / "names.txt"
    path.write_bytes(b"5:hello,0:," * 1000)
    assert [len(piece) for piece in plan(path, "netstrings", 100)] == [11000]
    result = convert(path, tmp_path / "out", format="netstrings", size=100)
    assert (result.frames, result.bytes, result.faults) == (2000, 11000, 0)


def test_the_command_reads_the_declarations(tmp_path):
    path = tmp_path / "names.txt"
    path.write_bytes(b"5:hello,0:," * 1000)
    result = CliRunner().invoke(main, ["stat", "--format", "netstrings", "--json", str(path)])
    total = json.loads(result.stdout)["total"]
    assert (total["frames"], total["frame_bytes"], total["body"]) == (2000, 11000, {"2": 2000})
    result = CliRunner().invoke(main, ["scan", "--format", "netstrings", "--limit", "1", str(path)])
    assert result.stdout.split() == ["_start", "size", "text", "0", "8", "hello"]


@steady
@given(
    st.data(), cuts, st.sampled_from(MODES), st.lists(st.booleans(), min_size=1), st.integers(0, 9)
)
def test_netstrings_keep_the_laws(data, cuts, errors, mask, cut):
    raw = data.draw(PACKAGE.good) + data.draw(PACKAGE.tails)
    laws.streams_agree(PACKAGE, raw, limit_cuts(cuts, raw), errors)
    laws.streams_agree(PACKAGE, raw[:300], list(range(1, len(raw[:300]))), errors)
    laws.writes_read_back(PACKAGE, *data.draw(PACKAGE.written))
    raw = data.draw(PACKAGE.damaged)
    laws.agrees_with_the_reference(PACKAGE, raw)
    laws.covers_every_byte(PACKAGE, raw)
    laws.modes_agree(PACKAGE, raw)
    laws.streams_lose_nothing(PACKAGE, raw, limit_cuts(cuts, raw))
    laws.parts_keep_their_meaning(PACKAGE, raw, mask, cut)
