"""The whole test of an external package: its format keeps the laws and agrees with a slow decoder.

tests/test_outside.py builds the package and runs this file.
"""

import netstrings  # noqa: F401 - registers the format
from hypothesis import strategies as st

from wirescan.testing import check_format

EXAMPLES = (b"5:hello,0:,3:\xff\xfe\xfd,", b"10:0123456789,1:x,")
ROW = dict(start=0, size=0, body=0, parent=-1, buffer=0, kind=0, fault=0)
ROW |= dict(text_at=0, text_size=0, content=0)
TRUNCATED, LEADING_ZERO, SHORT, BAD_LENGTH, NOT_A_FRAME, LONG_SIZE = 1, 64, 128, 160, 161, 192


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


def test_netstrings_keep_the_laws():
    check_format("netstrings", EXAMPLES)


def test_netstrings_agree_with_the_slow_decoder():
    texts = st.lists(st.binary(max_size=20) | st.just(bytes(1000)), max_size=6)
    good = texts.map(lambda texts: b"".join(b"%d:%b," % (len(text), text) for text in texts))
    noise = st.text("0123456789:,ab", max_size=60).map(str.encode)
    damaged = st.tuples(good, noise, good).map(b"".join)
    check_format("netstrings", EXAMPLES, expected=expect_tables, generated=good | noise | damaged)
