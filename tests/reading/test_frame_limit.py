"""The frame limit of the caller decides where files are cut, on every path to the boundaries."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import wirescan
from wirescan import kafka, liftbridge, lumberjack, nats, thrift
from wirescan.cli.main import main
from wirescan.export import parquet
from wirescan.files import boundary_index as sidecar
from wirescan.frames import registry
from wirescan.frames.limits import Limits
from wirescan.reading.chunked import iter_tables
from wirescan.reading.filters import check_filters, prune_file
from wirescan.reading.growing import GrowingFiles
from wirescan.reading.splits import find_starts, plan, plan_tasks

LARGE = 50_000  # bytes in the payload of the large frame
DEFAULT_LIMIT = Limits().frame
START = {"files": {}}
FRAMES = {
    "kafka.batches": lambda i, size: kafka.encode_batch([bytes(size)], base_offset=i),
    "kafka.requests": lambda i, size: kafka.encode_request(
        "Metadata",
        0,
        {"topics": [{"name": "t" * min(size, 20_000)}] * -(-size // 20_000)},
        correlation_id=i,
    ),
    "lumberjack.frames": lambda i, size: lumberjack.encode_batch([{"message": "m" * size}]),
    "nats.messages": lambda i, size: nats.encode_pub("orders", bytes(size)),
    "liftbridge.entries": lambda i, size: liftbridge.encode_entry(i, i, 0, b"key", bytes(size)),
    "thrift.frames": lambda i, size: thrift.encode_frame(
        thrift.encode_message("add", 1, i, b"\0"), infos={b"n": bytes(size)}
    ),
    "thrift.frames?non_strict=true": lambda i, size: thrift.encode_frame(
        thrift.encode_message("add", 1, i, b"\0"), infos={b"n": bytes(size)}
    ),
}


@pytest.fixture
def capture(tmp_path):
    """Return a function that writes 20 small frames, a large one and 400 small ones.

    It returns the path, the position of the large frame, and the size of the largest frame.
    """

    def write(format, name="capture"):
        frame = FRAMES[format]
        frames = [bytes(frame(i, LARGE if i == 20 else 90)) for i in range(421)]
        path = tmp_path / name
        path.write_bytes(b"".join(frames))
        rows = wirescan.scan(str(path), format).rows
        large = rows[rows["size"].argmax()]
        return str(path), int(large["start"]), int(large["size"])

    return write


def note_limits(monkeypatch):
    """Return a list that gets the limits of each later call of `boundaries` of nats.messages."""
    calls = []
    top = registry.format_of("nats.messages")

    def note_call(*arguments, limits):
        calls.append(limits)
        return top.storage.boundaries(*arguments, limits=limits)

    storage = replace(top.storage, boundaries=note_call)
    monkeypatch.setitem(registry.load_formats(), "nats.messages", replace(top, storage=storage))
    return calls


@pytest.mark.parametrize("format", FRAMES)
def test_boundaries_stop_before_a_frame_above_the_limit(capture, format):
    path, at, largest = capture(format)
    boundaries = registry.format_of(format).storage.boundaries
    whole = boundaries(path, 1_000, limits=Limits(frame=largest))
    assert max(whole) > at
    assert whole == boundaries(path, 1_000)
    cut = boundaries(path, 1_000, limits=Limits(frame=largest - 1))
    assert max(cut) <= at
    assert cut == whole[: len(cut)]
    grown = boundaries(path, 1_000, cut[-2], limits=Limits(frame=largest - 1))
    assert grown[0] == cut[-2]
    assert max(grown) <= at


@pytest.mark.parametrize("format", FRAMES)
def test_plans_stop_before_a_frame_above_the_limit(capture, format):
    path, at, largest = capture(format)
    for limits, is_cut in ((Limits(frame=largest), True), (Limits(frame=largest - 1), False)):
        starts = find_starts(path, 1_000, format, limits)
        by_plan = [part.start for part in plan(path, format, 1_000, limits=limits)]
        by_tasks = [part.start for part in plan_tasks(path, format, 2_000, limits=limits).slices]
        for found in (starts, by_plan):
            assert (max(found) > at) == is_cut
        assert (max(by_tasks) > at) == is_cut


@pytest.mark.parametrize("format", FRAMES)
def test_sidecars_stop_before_a_frame_above_the_limit(capture, monkeypatch, format):
    monkeypatch.setattr(sidecar, "STEP", 2_000)
    path, at, largest = capture(format)
    small, enough = Limits(frame=largest - 1), Limits(frame=largest)
    assert max(sidecar.write(path, format, limits=small)) <= at
    whole = sidecar.write(path, format, limits=enough)
    assert max(whole) > at
    assert sidecar.find_indexed_boundaries(path, 2_000, format, limits=enough) == whole
    # The large frame is at one of the starts, so it is verified.
    written = Path(sidecar.make_sidecar_path(path))
    fields = json.loads(written.read_bytes())
    fields["starts"] = [0, at]
    written.write_text(json.dumps(fields))
    assert sidecar.find_indexed_boundaries(path, 2_000, format, limits=enough) == [0, at]
    assert sidecar.find_indexed_boundaries(path, 2_000, format, limits=small) is None


def test_the_new_part_of_an_indexed_file_is_scanned_with_the_limits(capture, monkeypatch):
    monkeypatch.setattr(sidecar, "STEP", 2_000)
    path, at, largest = capture("nats.messages")
    whole = Path(path).read_bytes()
    os.truncate(path, at)
    sidecar.write(path, "nats.messages")
    Path(path).write_bytes(whole)
    assert max(sidecar.read(path, "nats.messages", limits=Limits(frame=largest))) > at
    assert max(sidecar.read(path, "nats.messages", limits=Limits(frame=largest - 1))) <= at


@pytest.mark.parametrize("format", FRAMES)
def test_parts_of_growing_files_stop_before_a_frame_above_the_limit(capture, format):
    path, at, largest = capture(format)
    plain = GrowingFiles([path], format, size=1_000)
    end = plain.find_latest(START)
    for frame, is_cut in ((largest, True), (largest - 1, False)):
        growing = GrowingFiles(
            [path], format, errors="skip", size=1_000, limits=Limits(frame=frame)
        )
        parts = [part for task in growing.plan_tasks(START, end) for part in task]
        assert (max(part.start for part in parts) > at) == is_cut
        assert parts[-1].stop == os.path.getsize(path)


def test_exports_and_the_end_of_a_file_use_the_limits(capture, monkeypatch, tmp_path):
    path, _, largest = capture("nats.messages", "capture.nats")
    calls = note_limits(monkeypatch)
    limits = Limits(frame=largest + 1)
    parquet.convert(path, tmp_path / "out", "nats.messages", size=20_000, limits=limits)
    assert calls
    assert set(calls) == {limits}
    calls.clear()
    arguments = ["convert", path, str(tmp_path / "more"), "--format", "nats.messages"]
    with open(path, "ab") as file:
        file.write(b"PUB a 100\r\n")
    result = CliRunner().invoke(main, [*arguments, "--max-frame", str(largest + 1)])
    assert result.exit_code == 0, result.stderr
    assert calls
    assert set(calls) == {limits}


def test_a_segment_is_pruned_by_batches_within_the_limit(tmp_path):
    path = tmp_path / f"{0:020}.log"
    batches = [kafka.encode_batch([bytes(LARGE)], base_offset=i) for i in range(9)]
    path.write_bytes(b"".join(batches))
    size = len(batches[0])
    entries = [(i, i * size) for i in range(1, 9)]
    path.with_suffix(".index").write_bytes(
        b"".join(n.to_bytes(4, "big") for entry in entries for n in entry)
    )
    filters = check_filters([("offset", ">=", 4), ("offset", "<", 6)], "kafka.records")
    for frame, pruned in ((size, (4 * size, 6 * size)), (size - 1, (0, 9 * size))):
        limits = Limits(frame=frame)
        assert prune_file(str(path), "kafka.records", filters, "strict", limits) == pruned
    with pytest.raises(wirescan.FrameError, match="byte 0"):
        next(
            iter_tables(
                str(path), format="kafka.records", filters=filters, limits=Limits(frame=size - 1)
            )
        )
    planned = plan_tasks(str(path), "kafka.records", filters=filters, limits=Limits(frame=size - 1))
    assert [(part.start, part.stop) for part in planned.slices] == [(0, 9 * size)]


@pytest.mark.slow
def test_the_command_index_takes_the_limit(tmp_path):
    """A Thrift frame of 101 MiB is legal, and above the default."""
    small = bytes(FRAMES["thrift.frames"](0, 60_000))
    message = thrift.encode_message("add", 1, 1, bytes(101 << 20))
    large = bytes(thrift.encode_frame(message))
    assert len(large) > DEFAULT_LIMIT
    path = tmp_path / "calls.theader"
    path.write_bytes(small + large + 50 * small)
    arguments = ["index", str(path), "--format", "thrift.messages"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0
    assert ": 1 start in " in result.stdout
    assert "--max-frame" in result.stderr
    result = CliRunner().invoke(main, [*arguments, "--max-frame", str(len(large))])
    assert result.exit_code == 0
    assert result.stderr == ""
    starts = sidecar.read(path, "thrift.messages")
    assert starts[1] == len(small) + len(large)
    assert len(starts) > 3


@pytest.mark.parametrize("format", ["kafka.batches", "kafka.requests"])
def test_a_frame_that_states_more_than_the_limit_is_bad_before_it_has_arrived(format):
    frame = bytes(FRAMES[format](0, LARGE))
    stream = wirescan.stream(format, limits=Limits(frame=len(frame) - 1))
    with pytest.raises(wirescan.FrameError, match="BAD_LENGTH"):
        stream.feed(frame[:100])
    stream = wirescan.stream(format, limits=Limits(frame=len(frame)))
    assert len(stream.feed(frame[:100])) == 0
    assert len(stream.feed(frame[100:])) == 1
