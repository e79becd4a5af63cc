"""What a few hostile bytes may cost, in memory and in time, under the default limits."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import wirescan
from tests.support.hostile import (
    HOSTILE,
    ROW_MAKERS,
    add_transforms,
    make_layers,
    make_persistent_headers,
    make_zstd_batches,
)
from tests.support.slowness import SLOWNESS
from wirescan import FrameError, Limits, kafka, lumberjack, thrift
from wirescan.cli.main import main
from wirescan.core.fault import Fault
from wirescan.decoding import json_parser as columns
from wirescan.reading.chunked import iter_tables
from wirescan.thrift import MessageType, Transform


class TestRows:
    @pytest.mark.parametrize("name", ROW_MAKERS)
    def test_row_bytes_bounds_all_levels_together(self, name):
        data = ROW_MAKERS[name]()
        table = wirescan.scan(data, name)
        used, level = 0, table
        while level is not None:
            used, level = used + level.rows.nbytes, level.outer
        assert len(wirescan.scan(data, name, limits=Limits(row_bytes=used))) == len(table)
        with pytest.raises(FrameError, match=r"wirescan\.Limits with a larger row_bytes") as caught:
            wirescan.scan(data, name, limits=Limits(row_bytes=used - 1))
        assert caught.value.fault == Fault.LIMIT and caught.value.row == len(table) - 1

    @pytest.mark.parametrize("name", ROW_MAKERS)
    def test_a_default_bounds_rows(self, name, monkeypatch):
        monkeypatch.setattr("wirescan.frames.limits.FREE_ROW_BYTES", 100_000)
        data = ROW_MAKERS[name]()
        with pytest.raises(FrameError, match="LIMIT"):
            wirescan.scan(data, name)
        with pytest.raises(FrameError, match="LIMIT"):
            wirescan.stream(name).feed(data)

    def test_rows_of_a_large_source_may_take_as_much_as_it_has(self, monkeypatch):
        monkeypatch.setattr("wirescan.frames.limits.FREE_ROW_BYTES", 1)
        data = bytes(kafka.encode_batch([b"x" * 60] * 1000))
        assert len(wirescan.scan(data, "kafka.records")) == 1000

    def test_pieces_are_smaller_where_rows_take_too_much_together(self, monkeypatch, tmp_path):
        path = tmp_path / f"{0:020}.log"
        path.write_bytes(make_zstd_batches(8, 1000))
        monkeypatch.setattr("wirescan.frames.limits.FREE_ROW_BYTES", 200_000)
        tables = list(iter_tables(str(path), format="kafka.records"))
        assert len(tables) > 1 and sum(map(len, tables)) == 8000

    def test_rows_that_are_held_together_are_bounded_where_a_call_may_make_more(
        self, monkeypatch, tmp_path
    ):
        path = tmp_path / f"{0:020}.log"
        path.write_bytes(
            make_zstd_batches(8, 1000) + make_zstd_batches(1, 5000)
        )  # the last one is too large
        monkeypatch.setattr("wirescan.reading.nested_groups.ROW_BYTES", 200_000)
        tables = list(iter_tables(str(path), format="kafka.records"))
        assert sum(map(len, tables)) == 13_000
        assert all(table.rows.nbytes <= 200_000 or len(table.outer) == 1 for table in tables)

    def test_groups_grow_again_after_frames_that_need_much(self, monkeypatch, tmp_path):
        path = tmp_path / f"{0:020}.log"
        large = make_zstd_batches(1, 5000)  # alone it is too large for a group, and is read
        path.write_bytes(large + bytes(kafka.encode_batch([b"small"])) * 2000)
        monkeypatch.setattr("wirescan.reading.nested_groups.ROW_BYTES", 200_000)
        tables = list(iter_tables(str(path), format="kafka.records"))
        assert sum(map(len, tables)) == 7000
        assert len(tables) < 100

    def test_into_is_bounded_by_its_own_size(self):
        batches = kafka.scan(kafka.encode_batch([b""] * 1000))
        into = np.empty(1000, kafka.RECORD)
        assert len(kafka.records(batches, limits=Limits(row_bytes=1), into=into)) == 1000


class TestTransforms:
    def test_the_layers_are_what_they_seem(self):
        plain = thrift.plain(thrift.scan(make_layers(8)))
        assert plain.bytes(0, "payload").nbytes > 1_000_000

    def test_more_than_eight_transforms_are_not_undone(self):
        plain = thrift.plain(thrift.scan(make_layers(9, 1000)), errors="mark")
        assert plain["fault"].tolist() == [Fault.TOO_LARGE]

    def test_transforms_that_cost_nothing_do_not_count(self):
        frame = add_transforms(thrift.encode_frame(b"x"), [Transform.NONE] * 20)
        assert bytes(thrift.plain(thrift.scan(frame)).bytes(0, "payload")) == b"x"

    def test_every_layer_counts_against_one_budget(self):
        frames = thrift.scan(make_layers(5) * 2)
        least = Limits(inflated_total=10_001_000)
        assert len(thrift.plain(frames, limits=least)) == 2
        plain = thrift.plain(frames, errors="mark", limits=Limits(inflated_total=9_000_000))
        assert plain["fault"].tolist() == [0, Fault.TOO_LARGE]

    def test_a_channel_undoes_few(self):
        frame = make_layers(8)
        server = thrift.ServerChannel()
        with pytest.raises(thrift.ConversationError, match="TOO_LARGE") as caught:
            server.receive(frame * (65_536 // len(frame)))
        assert len(caught.value.events) == (64 << 20) // 8_000_100


class TestResolve:
    def test_row_bytes_bounds_the_rows(self):
        frames = thrift.scan(make_persistent_headers(20))
        assert len(thrift.resolve(frames)) == 210
        assert len(thrift.resolve(frames, limits=Limits(row_bytes=210 * 160))) == 210
        with pytest.raises(FrameError, match="LIMIT"):
            thrift.resolve(frames, limits=Limits(row_bytes=210 * 160 - 1))

    def test_a_default_bounds_the_rows(self, monkeypatch):
        frames = thrift.scan(make_persistent_headers(100))
        monkeypatch.setattr("wirescan.frames.limits.FREE_ROW_BYTES", 1)
        with pytest.raises(FrameError, match="LIMIT"):
            thrift.resolve(frames)

    def test_few_persistent_headers_hold_for_many_frames(self, monkeypatch):
        frames = thrift.scan(make_persistent_headers(10) + bytes(thrift.encode_frame(b"")) * 100)
        monkeypatch.setattr("wirescan.frames.limits.FREE_ROW_BYTES", 1)
        assert len(thrift.resolve(frames)) == 1055


MISFITS = {
    "a string for a number": (b'{"a":1}', b'{"a":"x"}', {}),
    "deeper": (b'{"a":{"b":[1]}}', b'{"a":{"b":[true]}}', {}),
    "no JSON": (b'{"a":1}', b"{]", {}),
    "a name twice": (b'{"a":1}', b'{"a":1,"a":1}', {}),
    "half a surrogate pair": (b'{"a":"x"}', b'{"a":"\\ud800"}', {}),
    "no double": (b'{"a":1}', b'{"a":1e400}', {}),
    "no time": (b'{"@timestamp":"2026-02-03T04:05:06Z"}', b'{"@timestamp":"x"}', {}),
    "no day": (b'{"@timestamp":"2024-02-29"}', b'{"@timestamp":"2023-02-29"}', {}),
    "a time of 600 years ago": (b'{"@timestamp":"1678-02-03"}', b'{"@timestamp":"1426-02-03"}', {}),
    "too large for its type": (
        b'{"a":-128,"b":"x"}',
        b'{"a":128}',
        {"schema": pa.schema([("a", pa.int8())])},
    ),
    "no integer": (
        b'{"a":1}',
        b'{"a":1.0}',
        {"schema": pa.schema([("a", pa.uint64())]), "others": True},
    ),
}


TIMES = (
    "2020-01-01",
    "2020-01-01T",
    "2020-01-01T00",
    "2020-01-01T00Z",
    "2020-01-01 00:00",
    "2020-01-01T00:00:00z",
    "2020-01-01T00:00:00+01",
    "2020-01-01T00:00:00+0100",
    "2020-01-01T00:00:00-23:59",
    "2020-01-01T00:00:00-25:00",
    "2020-01-01T00:00:00.1",
    "2020-01-01T00:00:00.123456789Z",
    "2020-01-01T00:00:00.1234567890Z",
    "2020-13-01",
    "",
    "2020-02-30",
    "1600-01-01T00:00:00Z",
    "2300-01-01",
    "1969-01-01",
    " 2020-01-01",
    "2020-01-01T24:00:00Z",
    "2020-01-01T23:59:60Z",
    "20200101",
    "2020-01-01T00:00:00.Z",
    "2262-04-11T23:47:16.854775807Z",
    "1577836800",
    "2262-04-11T23:47:16.854775808Z",
    "1677-09-21T00:12:43.145224192Z",
    "1677-09-21",
    "2020-01-01T00:00:00+1",
    "2020-01-01T00:00+00:60",
    "2020-01-01T00+01:0",
    "2020-1-1",
    "1900-02-29",
    "2000-02-29",
    "0000-02-29",
    "9999-12-31",
    "2020-04-31",
    "2262-12-31",
    "1677-01-01",
    "2261-12-31",
    "1678-01-01",
    "2020-01-01t00:00",
    "2020-01-01T00:00:00+24:00",
)


class TestDocuments:
    @pytest.mark.parametrize("name", MISFITS)
    def test_many_refused_documents_take_few_calls_of_the_reader(self, name, monkeypatch):
        good, bad, options = MISFITS[name]
        calls, read = [], columns._read
        monkeypatch.setattr(
            columns, "_read", lambda *arguments: calls.append(1) or read(*arguments)
        )
        frames = lumberjack.scan(
            b"".join(
                lumberjack.encode_json(i, document) for i, document in enumerate([good, bad] * 200)
            )
        )
        table = lumberjack.documents(lumberjack.events(frames), errors="mark", **options)
        assert [why is None for why in table["refused"].to_pylist()] == [True, False] * 200
        assert len(calls) < 10

    def test_a_refused_document_sets_no_type(self):
        texts = [b'{"b":1}', b'{"a":1,"b":"x"}', b'{"a":"x"}', b'{"a":2}']
        frames = lumberjack.scan(b"".join(map(lumberjack.encode_json, range(4), texts)))
        table = lumberjack.documents(lumberjack.events(frames), errors="mark")
        assert [why is None for why in table["refused"].to_pylist()] == [True, False, True, False]

    def test_fields_that_are_not_kept_are_not_looked_at(self):
        texts = [b'{"a":1,"c":1,"c":2}', b'{"a":"x"}', b'{"a":2,"c":"x"}']
        frames = lumberjack.scan(b"".join(map(lumberjack.encode_json, range(3), texts)))
        table = lumberjack.documents(
            lumberjack.events(frames), errors="mark", schema=pa.schema([("a", pa.int64())])
        )
        assert [why is None for why in table["refused"].to_pylist()] == [True, False, True]

    @pytest.mark.parametrize("unit", ["ns", "s"])
    @pytest.mark.parametrize("text", TIMES)
    def test_times_are_those_that_the_reader_takes(self, text, unit):
        """Beside a misfit, so that they are looked at."""
        texts = [b'{"@timestamp":"%s"}' % text.encode()]
        schema = pa.schema([("@timestamp", pa.timestamp(unit, "UTC"))])
        refused = []
        for others in ([], [b'{"@timestamp":1}']):
            frames = lumberjack.scan(
                b"".join(map(lumberjack.encode_json, range(2), texts + others))
            )
            table = lumberjack.documents(lumberjack.events(frames), errors="mark", schema=schema)
            refused.append(table["refused"][0].is_valid)
        assert refused[0] == refused[1]


class TestLimitOfTheCommand:
    @pytest.mark.parametrize("name", ROW_MAKERS)
    def test_it_stops_the_opening(self, name, tmp_path, monkeypatch):
        """With fewer bytes for rows than those of one frame take."""
        monkeypatch.setattr("wirescan.frames.limits.FREE_ROW_BYTES", 50_000)
        path = tmp_path / "data"
        path.write_bytes(ROW_MAKERS[name]())
        everything = CliRunner().invoke(main, ["scan", str(path), "--format", name, "--json"])
        assert everything.exit_code == 1 and "LIMIT" in everything.stderr
        some = CliRunner().invoke(
            main, ["scan", str(path), "--format", name, "--json", "--limit", "5"]
        )
        assert some.exit_code == 0 and len(some.stdout.splitlines()) == 5

    @pytest.mark.parametrize("errors", ["mark", "skip"])
    @pytest.mark.parametrize("limit", [1, 2, 3, 5, 40, 41, 1000])
    def test_the_rows_are_the_first_of_all(self, limit, errors, tmp_path):
        bad = bytearray(kafka.encode_batch([b"x"] * 9))
        bad[-1] ^= 1
        path = tmp_path / f"{0:020}.log"
        path.write_bytes((bytes(kafka.encode_batch([b"1", b"2", b"3"])) + bad * 9) * 15)
        options = ["scan", str(path), "--json", "--errors", errors]
        lines = CliRunner().invoke(main, options).stdout.splitlines()
        assert (
            CliRunner().invoke(main, [*options, "--limit", str(limit)]).stdout.splitlines()
            == lines[:limit]
        )

    @pytest.mark.parametrize(
        "name, data",
        [
            (
                "thrift.fields",
                b"".join(
                    bytes(
                        thrift.encode_framed(
                            thrift.encode_message("m", MessageType.CALL, 1, arguments)
                        )
                    )
                    for arguments in (
                        b"\x0f\0\1\x0c\0\0\0\3" + b"\x08\0\1\0\0\0\7\0" * 3 + b"\x08\0\2\0\0\0\7\0",
                        b"\x0d\0\1\x08\x08\0\0\0\2" + bytes(16) + b"\0",
                        b"\x0d\0\1\x0b\x0f\0\0\0\1" + b"\0\0\0\1k\3\0\0\0\2ab" + b"\0",
                        b"\x0f\0\1\x0c\0\0\0\2" + b"\x08\0\1\0\0\0\7\0" + b"\x08\0\1\0\0",
                    )
                ),
            ),
            (
                "lumberjack.pairs",
                bytes(lumberjack.encode_data(1, [(b"a", b"1"), (b"b", b"2")])) * 3,
            ),
        ],
    )
    def test_rows_before_a_limit_are_those_of_all(self, name, data):
        everything = wirescan.scan(data, name, errors="mark")
        outer = everything.outer
        for count in range(1, len(everything)):
            with pytest.raises(FrameError, match="LIMIT") as caught:
                everything.format.read(outer, errors="mark", limits=Limits(rows=count))
            partial = caught.value.partial
            assert partial.rows.tolist() == everything.rows[:count].tolist()
            assert pickle.loads(pickle.dumps(caught.value)).partial is None

    def test_a_cell_is_cut(self, tmp_path):
        path = tmp_path / f"{0:020}.log"
        path.write_bytes(bytes(kafka.encode_batch([{"key": b"k", "value": b"\0" * 100_000}])))
        text = CliRunner().invoke(main, ["scan", str(path), "--columns", "value,offset"]).stdout
        line = text.splitlines()[1]
        assert len(line) < 1100 and "…" in line and line.endswith("0")


class TestWalks:
    """A message without a length is walked to its end."""

    LONGEST = 1 << 20

    def make_lists(self, count):
        """Messages with a list that ends one byte after the longest frame.

        Its first string reaches over the other messages, and zeros are its other strings.
        """
        frame = bytes.fromhex("0000000d 80010001 00000000 00000000 00")
        size = len(frame) + 24 + 3
        blocks = []
        for i in range(count):
            string = count * size - i * size - len(frame) - 24
            string += -string % 4
            elements = 1 + (self.LONGEST - 24 - string) // 4
            start = bytes.fromhex("80010001 00000000 00000000 0f0001 0b")
            start += elements.to_bytes(4, "big") + string.to_bytes(4, "big")
            blocks.append(frame + start + b"\xff" * 3)
        return b"".join(blocks) + bytes(self.LONGEST + 100)

    def test_walks_that_end_after_the_longest_frame_are_charged(self):
        raw = self.make_lists(2000)
        begun = time.process_time()
        frames = thrift.scan(raw, errors="mark", limits=Limits(frame=self.LONGEST))
        assert time.process_time() - begun < 0.5 * SLOWNESS
        assert len(frames) == 4000
        assert (frames["fault"] == 0).sum() == 2000


# ---- one table for all formats


SMALL = 2000
MILLION = 1_000_000
MOST_SECONDS, MOST_BYTES = (
    2,
    1 << 30,
)  # of the processor and of memory, for a million bytes of anything
SLOWER = 2  # so many times, where others use the machine too


def test_every_protocol_has_hostile_input():
    """`documents` and `ServerChannel` are calls of lumberjack and thrift."""
    protocols = {name.partition(".")[0] for name in wirescan.formats()}
    assert protocols <= {name.partition(".")[0] for name in HOSTILE}


@pytest.mark.parametrize("name", HOSTILE)
def test_few_bytes_cost_little(name):
    make, work, factor = HOSTILE[name]
    data = make(SMALL)
    begun = time.process_time()
    size = work(data)
    assert time.process_time() - begun < SLOWNESS
    assert size <= factor * len(data)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_million_bytes_stay_within_the_limits(name):
    """Under the default limits, in a new process, whose peak of memory is that of the work."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.laws.test_cost", name],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    seconds, size = done.stdout.split()
    assert float(seconds) < SLOWER * MOST_SECONDS * SLOWNESS and int(size) < MOST_BYTES


def read_peak_memory() -> int:
    """The peak of this program's memory. `ru_maxrss` includes the process before it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


if __name__ == "__main__":
    make, work, _ = HOSTILE[sys.argv[1]]
    data = make(MILLION)
    begun = time.process_time()
    try:
        work(data)
    except FrameError as error:
        assert error.fault == Fault.LIMIT, error
    print(time.process_time() - begun, read_peak_memory())
