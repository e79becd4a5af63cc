"""Boundaries of NATS captures, whose frames must be walked; and the walk itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.nats import make_hmsg, make_line, make_msg, make_pub
from tests.support.examples import read_example_count
from wirescan import nats
from wirescan.files import boundaries as walk
from wirescan.files import source
from wirescan.files.source import expand
from wirescan.frames.limits import Limits
from wirescan.nats.files import FILES, find_boundaries
from wirescan.nats.scan import scan_stream
from wirescan.reading.chunked import iter_tables

FRAMES = [
    make_line(b"PING"),
    make_msg(b"PING\r\nPONG\r\n"),
    make_line(b"SUB", b"a", 1),
    make_hmsg(b"MSG a 1 2\r\n"),
    make_pub(bytes(300)),
    make_msg(),
]


def slow_boundaries(frames, size):
    """Return frame starts. Each is the first that is at least `size` bytes after the previous."""
    out = [0]
    at = 0
    for frame in frames:
        if at - out[-1] >= size:
            out.append(at)
        at += len(frame)
    return out


@settings(max_examples=read_example_count(40), deadline=None)
@given(
    st.lists(st.sampled_from(FRAMES), max_size=30),
    st.integers(1, 700),
    st.sampled_from((1, 7, 64, 8 << 20)),
    st.sampled_from(
        (b"", b"MSG a 1 50\r\nhalf", b"\xff\xff\xff\r\nPING\r\n", b"MSG a 1 1\r\nxxxx\r\nPING\r\n")
    ),
)
def test_boundaries_are_starts_of_frames(tmp_path_factory, frames, size, piece, tail):
    path = tmp_path_factory.getbasetemp() / "cuts.nats"
    path.write_bytes(b"".join(frames) + tail)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "PIECE", piece)
        boundaries = find_boundaries(str(path), size)
    assert boundaries == slow_boundaries(frames, size)
    bounds = [*boundaries, path.stat().st_size]
    tables = [
        table
        for start, stop in zip(bounds, bounds[1:])
        for table in iter_tables(str(path), start, stop, format="nats.messages", errors="mark")
    ]
    whole = nats.scan(path, errors="mark")
    assert sum(map(len, tables)) == len(whole)
    assert [int(at) for table in tables for at in table.positions] == whole["start"].tolist()


def test_a_frame_larger_than_a_piece(tmp_path, monkeypatch):
    frames = [make_pub(bytes(size)) for size in (10, 100_000, 10, 50_000, 10)]
    path = tmp_path / "large.nats"
    path.write_bytes(b"".join(frames))
    reads = []
    read_some = source.read_some
    monkeypatch.setattr(walk, "PIECE", 100)
    monkeypatch.setattr(source, "read_some", lambda *args: reads.append(args) or read_some(*args))
    starts = np.concatenate(
        [starts for starts, _ in walk.walk(str(path), scan_stream, limits=Limits())]
    )
    assert starts.tolist() == np.cumsum([0, *map(len, frames[:-1])]).tolist()
    assert len(reads) < 40  # the held bytes double, so each byte is read only a few times


def test_a_frame_above_the_limit_ends_the_walk(tmp_path):
    path = tmp_path / "vast.nats"
    with open(path, "wb") as file:
        file.write(make_line(b"PING") * 10 + b"PUB a 999999999\r\n")
        file.truncate(1 << 34)
    assert find_boundaries(str(path), 20)[-1] <= 60
    assert len(find_boundaries(str(path), 20)) == 3


def test_a_file_that_shrinks(tmp_path, monkeypatch):
    path = tmp_path / "short.nats"
    path.write_bytes(make_line(b"PING") * 10)
    monkeypatch.setattr(walk, "get_size", lambda path: 1000)
    starts = [starts.tolist() for starts, _ in walk.walk(str(path), scan_stream, limits=Limits())]
    assert starts == [list(range(0, 60, 6))]


def test_files_of_a_directory(tmp_path):
    for name in ("a.nats", "_b.nats", ".c.nats", "d.nats.gz", "e.txt"):
        (tmp_path / name).write_bytes(make_line(b"PING"))
    assert expand(tmp_path, files=FILES) == [str(tmp_path / "a.nats")]
