"""A conversation with a real redis-server, as it was on the wire.

RESP_CONVERSATION names another folder with the files of a newer recording.
"""

import os
from pathlib import Path

import pytest
from generators import PACKAGE, join_values, read_values

import wirescan
import wirescan_resp as resp
from wirescan.testing import laws
from wirescan_resp import Kind

FOLDER = Path(os.environ.get("RESP_CONVERSATION", Path(__file__).with_name("conversation")))
NAMES = ("requests", "replies")


def read(name):
    return (FOLDER / f"{name}.resp").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_conversation_keeps_the_laws(name):
    raw = read(name)
    laws.keeps_every_law(PACKAGE, raw, [100, 500])
    laws.streams_agree(PACKAGE, raw, list(range(1, len(raw))))
    values = resp.values(resp.scan(raw))
    assert join_values(read_values(values)) == raw


def test_every_command_has_a_reply():
    requests = wirescan.scan(FOLDER / "requests.resp", "resp.frames")
    replies = wirescan.scan(FOLDER / "replies.resp", "resp.frames")
    assert len(requests) == len(replies)
    names = [bytes(row.name) for row in requests]
    by_name = dict(zip(names, replies))
    assert by_name[b"PING"].kind == Kind.SIMPLE_STRING
    assert by_name[b"INCRBY"].integer == -(2**63)
    assert bytes(by_name[b"NONSENSE"].name) == b"ERR"
    assert by_name[b"RPUSH"].integer == 50
    assert (by_name[b"BLPOP"].kind, by_name[b"BLPOP"].value) == (Kind.ARRAY, None)
    lists = [row for name, row in zip(names, replies) if name == b"LRANGE"]
    assert [row.count for row in lists] == [50, 0]


def test_nested_replies():
    requests = resp.scan(read("requests"))
    replies = resp.scan(read("replies"))
    names = [bytes(row.name) for row in requests]
    answers = dict(zip(names, read_values(resp.values(replies))))
    assert answers[b"XRANGE"] == [
        [b"1-1", [b"temperature", b"20", b"unit", b"C"]],
        [b"1-2", [b"temperature", b"21"]],
    ]
    assert answers[b"EVAL"] == [1, [2, [3, b"deep"]], None, resp.Text(b"MINE no", is_error=True)]
    assert answers[b"EXEC"] == [-(2**63) + 1, 50]


@pytest.mark.parametrize("name", NAMES)
def test_hiredis_reads_the_same(name):
    hiredis = pytest.importorskip("hiredis")
    reader = hiredis.Reader(replyError=lambda text: resp.Text(text.encode(), is_error=True))
    reader.feed(read(name))
    theirs = []
    while (value := reader.gets()) is not False:
        theirs.append(value)
    ours = read_values(resp.values(resp.scan(read(name))))

    def simplify(value):
        """Return the value as hiredis gives it: simple strings are bytes, nulls are None."""
        if isinstance(value, list):
            return [simplify(element) for element in value]
        if isinstance(value, resp.Text) and not value.is_error:
            return value.text
        return None if isinstance(value, resp.NullArray) else value

    assert theirs == [simplify(value) for value in ours]
