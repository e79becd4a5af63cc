"""Sidecars with the starts of frames: a sidecar that is not correct is not used."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

import wirescan
from tests.support.examples import read_example_count
from wirescan import Storage, kafka, liftbridge, lumberjack, nats, thrift
from wirescan.cli.main import main
from wirescan.files import boundary_index as sidecar
from wirescan.frames import registry
from wirescan.reading.chunked import iter_tables
from wirescan.reading.splits import plan, plan_tasks

STEP = 2_000
CHUNKS = {
    "kafka.batches": lambda i: kafka.encode_batch(
        [b"value %d" % i] * (i % 7 + 1), base_offset=7 * i
    ),
    "kafka.requests": lambda i: kafka.encode_request(
        "Metadata", 12, {"topics": [{"name": "t" * (i % 9 + 1)}]}, correlation_id=i
    ),
    "lumberjack.frames": lambda i: lumberjack.encode_batch(
        [{"message": "m" * (i % 50)}] * (i % 4 + 1)
    ),
    "nats.messages": lambda i: nats.encode_pub("orders", b"p" * (i % 90)),
    "liftbridge.entries": lambda i: liftbridge.encode_entry(i, i, 0, b"key", b"value" * (i % 9)),
    "thrift.frames": lambda i: thrift.encode_frame(
        thrift.encode_message("add", 1, i, b"\0"), infos={b"n": b"x" * (i % 30)}
    ),
}


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    monkeypatch.setattr(sidecar, "STEP", STEP)


def append_capture(path, format="nats.messages", count=400, first=0):
    """Append frames to a file, which is created if needed."""
    with open(path, "ab") as file:
        file.write(b"".join(CHUNKS[format](i) for i in range(first, first + count)))
    return str(path)


def list_starts(path, format):
    return wirescan.scan(path, format, check=False)["start"].tolist()


def list_rows_of_slices(slices, format):
    return [
        (position, fault)
        for piece in slices
        for table in iter_tables(
            piece.path, piece.start, piece.stop, format=format, errors="mark", tail=piece.last
        )
        for position, fault in zip(table.positions.tolist(), table["fault"].tolist())
    ]


def record_boundary_calls(monkeypatch, format):
    """Return a list that gets the arguments of each later call of the format's `boundaries`."""
    calls = []
    top = registry.format_of(format)

    def note_call(*arguments, limits):
        calls.append(arguments)
        return top.storage.boundaries(*arguments, limits=limits)

    storage = replace(top.storage, boundaries=note_call)
    monkeypatch.setitem(registry.load_formats(), format, replace(top, storage=storage))
    return calls


@pytest.mark.parametrize("format", CHUNKS)
def test_a_written_sidecar_is_read_and_correct(tmp_path, monkeypatch, format):
    path = append_capture(tmp_path / "capture", format, 2_000)
    starts = sidecar.write(path, format)
    assert starts == sidecar.read(path, format)
    assert starts[0] == 0
    assert set(starts) <= set(list_starts(path, format))
    assert len(starts) > os.path.getsize(path) / STEP / 2
    calls = record_boundary_calls(monkeypatch, format)
    slices = plan(path, format, 3 * STEP)
    assert len(slices) >= len(starts) // 5
    assert {piece.start for piece in slices} <= set(starts)
    shared = plan_tasks(path, format, 16 * STEP)
    assert {piece.start for piece in shared.slices} <= set(starts)
    assert shared.skew < 1.3
    assert not calls
    plan(path, format, STEP - 1)
    assert calls  # the sidecar is too coarse, so the file is scanned


@pytest.mark.parametrize("format", CHUNKS)
def test_only_the_new_part_of_a_grown_file_is_scanned(tmp_path, monkeypatch, format):
    path = append_capture(tmp_path / "capture", format)
    before = sidecar.write(path, format)
    append_capture(path, format, 400, 400)
    calls = record_boundary_calls(monkeypatch, format)
    grown = sidecar.read(path, format)
    assert calls == [(path, STEP, before[-1])]
    assert grown[: len(before)] == before
    assert len(grown) > 1.7 * len(before)
    assert set(grown) <= set(list_starts(path, format))
    good_rows = [(start, 0) for start in list_starts(path, format)]
    assert list_rows_of_slices(plan(path, format, 3 * STEP), format) == good_rows


def test_a_small_new_part_is_not_scanned(tmp_path, monkeypatch):
    path = append_capture(tmp_path / "capture")
    starts = sidecar.write(path, "nats.messages")
    append_capture(path, count=3)
    calls = record_boundary_calls(monkeypatch, "nats.messages")
    assert sidecar.read(path, "nats.messages") == starts
    assert not calls


def test_a_torn_frame_at_the_end_is_completed_later(tmp_path):
    path = tmp_path / "capture"
    whole = b"".join(CHUNKS["nats.messages"](i) for i in range(800))
    for cut in range(20_000, 20_100, 7):
        path.write_bytes(whole[:cut])
        sidecar.write(path, "nats.messages")
        path.write_bytes(whole)
        assert set(sidecar.read(path, "nats.messages")) <= set(list_starts(path, "nats.messages"))


@pytest.mark.parametrize("change", ["first byte", "last byte", "shorter", "other format", "gone"])
def test_a_sidecar_that_does_not_fit_is_not_used(tmp_path, change):
    path = tmp_path / "capture"
    append_capture(path)
    sidecar.write(path, "nats.messages")
    raw = bytearray(path.read_bytes())
    if change == "shorter":
        raw = raw[:-1]
    elif change.endswith("byte"):
        raw[0 if change == "first byte" else -1] ^= 1
    before = path.stat()
    path.write_bytes(raw + b"and more" * (change == "last byte"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    if change == "gone":
        os.unlink(sidecar.make_sidecar_path(path))
    format = "kafka.batches" if change == "other format" else "nats.messages"
    assert sidecar.read(path, format) is None


def test_a_file_edited_in_its_middle(tmp_path):
    """The file keeps its size, its start and its end. Frames between them change."""
    path = tmp_path / "capture"
    frames = [CHUNKS["nats.messages"](i) for i in range(400)]
    path.write_bytes(b"".join(frames))
    noted = sidecar.write(path, "nats.messages")
    path.write_bytes(b"".join([*frames[:100], *reversed(frames[100:300]), *frames[300:]]))
    os.utime(path, ns=(0, 0))
    assert sidecar.read(path, "nats.messages") is None
    true = set(list_starts(str(path), "nats.messages"))
    assert not set(noted) <= true
    assert {piece.start for piece in plan(str(path), "nats.messages", 2 * STEP)} <= true


@pytest.mark.parametrize("format", CHUNKS)
@pytest.mark.parametrize("grown", [False, True])
def test_a_sidecar_with_wrong_starts_is_not_used(tmp_path, format, grown):
    """No slice begins inside a frame, even if the sidecar has such starts."""
    path = append_capture(tmp_path / "capture", format, 2_000)
    noted = sidecar.write(path, format)
    assert sidecar.find_indexed_boundaries(path, 2 * STEP, format)[1:]
    name = Path(sidecar.make_sidecar_path(path))
    fields = json.loads(name.read_bytes())
    fields["starts"] = [at + 2 if at else 0 for at in noted]
    name.write_text(json.dumps(fields))
    assert sidecar.find_indexed_boundaries(path, 2 * STEP, format) is None
    if grown:
        append_capture(path, format, 400, 2_000)
        assert sidecar.read(path, format) is None  # a scan would begin inside a frame
    true = list_starts(path, format)
    slices = plan(path, format, 2 * STEP)
    assert len(slices) > 4
    assert {piece.start for piece in slices} <= set(true)
    assert list_rows_of_slices(slices, format) == [(at, 0) for at in true]


def test_the_frame_at_a_start_is_verified(tmp_path):
    """The checksum of the frame at a start is verified, for a large frame too."""
    path = tmp_path / "capture"
    large = kafka.encode_batch([bytes(200_000)])
    path.write_bytes(
        kafka.encode_batch([b"first"] * 400) + large + kafka.encode_batch([b"last"] * 4)
    )
    starts = sidecar.write(path, "kafka.records")
    at = list_starts(str(path), "kafka.batches")[1]
    assert at in starts
    assert sidecar.find_indexed_boundaries(path, STEP, "kafka.records") == starts
    stamp = path.stat()
    raw = bytearray(path.read_bytes())
    raw[at + len(large) // 2] ^= 1
    path.write_bytes(raw)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert sidecar.read(path, "kafka.records") == starts
    assert sidecar.find_indexed_boundaries(path, STEP, "kafka.records") is None


def test_a_sidecar_too_large_for_its_file_is_not_read(tmp_path, monkeypatch):
    path = append_capture(tmp_path / "capture")
    starts = sidecar.write(path, "nats.messages")
    name = sidecar.make_sidecar_path(path)
    with open(name, "ab") as file:
        file.write(b" " * (sidecar.HEADER_BYTES // 2))
    assert sidecar.read(path, "nats.messages") == starts
    os.truncate(name, 40 << 30)  # sparse
    monkeypatch.setattr(sidecar, "read_range", lambda *arguments: pytest.fail("a read"))
    assert sidecar.read(path, "nats.messages") is None


def test_the_largest_sidecar_of_a_file_is_read(tmp_path, monkeypatch):
    """The starts are as dense as possible, so the sidecar has as many digits as possible."""
    monkeypatch.setattr(sidecar, "STEP", 1)
    monkeypatch.setattr(sidecar, "MAX_STARTS", 1 << 12)
    path = tmp_path / "capture"
    path.write_bytes(b"+OK\r\n" * 3_000)
    starts = sidecar.write(path, "nats.messages")
    assert len(starts) == 3_000
    assert sidecar.read(path, "nats.messages") == starts
    monkeypatch.setattr(sidecar, "MAX_STARTS", 1 << 8)  # now the file is large for this limit
    starts = sidecar.write(path, "nats.messages")
    assert 200 < len(starts) <= 257
    assert sidecar.read(path, "nats.messages") == starts


def test_a_sidecar_of_another_version_is_not_used(tmp_path):
    path = append_capture(tmp_path / "capture")
    starts = sidecar.write(path, "nats.messages")
    name = Path(sidecar.make_sidecar_path(path))
    fields = json.loads(name.read_bytes())
    for version in (1, 3):
        name.write_text(json.dumps(fields | {"version": version}))
        assert sidecar.read(path, "nats.messages") is None
    del fields["time"]  # version 1 had no time
    name.write_text(json.dumps(fields | {"version": 1}))
    assert sidecar.read(path, "nats.messages") is None
    assert sidecar.write(path, "nats.messages") == starts == sidecar.read(path, "nats.messages")


def test_the_slices_of_a_damaged_file(tmp_path):
    path = tmp_path / "capture"
    append_capture(path)
    raw = bytearray(path.read_bytes())
    half = next(at for at in list_starts(str(path), "nats.messages") if at > len(raw) // 2)
    raw[half : half + 3] = b"???"
    path.write_bytes(raw)
    starts = sidecar.write(path, "nats.messages")
    assert half - 2 * STEP < starts[-1] <= half
    whole = list_rows_of_slices(plan(path, "nats.messages", len(raw)), "nats.messages")
    assert list_rows_of_slices(plan(path, "nats.messages", STEP), "nats.messages") == whole
    assert whole[-1][1]
    shared = plan_tasks(path, "nats.messages", STEP)
    (uncut,) = shared.uncut
    assert uncut.stop == len(raw)
    assert f"not cut: {path}, " in str(shared)
    assert f"from byte {uncut.start} on" in str(shared)


@pytest.mark.hypothesis  # its generated function is inside it
def test_any_bytes_as_a_sidecar(tmp_path):
    """No error is raised. Starts that are used rise from 0 and are inside the file."""
    path = tmp_path / "any.nats"
    path.write_bytes(b"PUB a 0\r\n\r\n" * 500)
    sidecar.write(path, "nats.messages")
    name = Path(sidecar.make_sidecar_path(path))
    good = json.loads(name.read_bytes())
    json_values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    )
    changed = st.fixed_dictionaries(
        {}, optional={key: json_values | st.lists(st.integers(-3, 7_000)) for key in good}
    )

    @settings(max_examples=read_example_count(30), deadline=None)
    @given(
        st.binary(max_size=40)
        | changed.map(lambda change: json.dumps(good | change).encode())
        | st.just(b"[" * 100_000)
        | st.just(b'{"version":' + b"1" * 5_000 + b"}")
    )
    def is_read_or_ignored(raw):
        name.write_bytes(raw)
        starts = sidecar.read(path, "nats.messages")
        if starts is not None:
            assert starts[0] == 0
            assert starts == sorted(set(starts))
            assert starts[-1] < path.stat().st_size
            assert all(type(start) is int for start in starts)

    is_read_or_ignored()


def test_a_sidecar_with_a_negative_size_is_not_used(tmp_path):
    path = tmp_path / "any.nats"
    path.write_bytes(b"PUB a 0\r\n\r\n" * 500)
    sidecar.write(path, "nats.messages")
    name = Path(sidecar.make_sidecar_path(path))
    fields = json.loads(name.read_bytes())
    # A range that ends before it begins has no bytes, so its checksum is the one of empty bytes.
    wrong_fields = {"size": -1, "first": crc32c(b""), "last": crc32c(b""), "starts": [0]}
    name.write_text(json.dumps(fields | wrong_fields))
    assert sidecar.read(path, "nats.messages") is None


def test_a_pipe_or_directory_in_the_place_of_a_sidecar(tmp_path):
    path = append_capture(tmp_path / "capture")
    os.mkfifo(sidecar.make_sidecar_path(path))
    assert sidecar.read(path, "nats.messages") is None  # the call does not wait for a writer
    os.unlink(sidecar.make_sidecar_path(path))
    os.mkdir(sidecar.make_sidecar_path(path))
    assert sidecar.read(path, "nats.messages") is None
    with pytest.raises(OSError, match="Is a directory"):
        sidecar.write(path, "nats.messages")
    assert sorted(os.listdir(tmp_path)) == ["capture", "capture.frames.json"]


def test_empty_files_and_formats(tmp_path, monkeypatch):
    path = tmp_path / "empty"
    path.touch()
    assert sidecar.write(path, "nats.messages") == sidecar.read(path, "nats.messages") == [0]
    with pytest.raises(ValueError, match="no format"):
        sidecar.write(path, "nats.nothing")
    with pytest.raises(FileNotFoundError, match="No such file.*none"):
        sidecar.write(tmp_path / "none", "nats.messages")
    monkeypatch.setitem(
        registry.load_formats(),
        "nats.messages",
        replace(registry.format_of("nats.messages"), storage=Storage()),
    )
    with pytest.raises(ValueError, match="nats.messages declares no frame boundaries"):
        sidecar.write(path, "nats.messages")
    assert sidecar.read(path, "nats.messages") is None


def test_a_sidecar_has_the_permissions_of_its_file(tmp_path):
    path = append_capture(tmp_path / "capture")
    for mode in (0o600, 0o644):
        os.chmod(path, mode)
        sidecar.write(path, "nats.messages")
        assert os.stat(sidecar.make_sidecar_path(path)).st_mode & 0o777 == mode


def test_the_command_index_writes_indexes(tmp_path):
    paths = [append_capture(tmp_path / name) for name in ("a.nats", "b.nats")]
    with open(paths[1], "r+b") as file:
        file.seek(3 * STEP)
        file.write(b"?" * 5 * STEP)
    result = CliRunner().invoke(main, ["index", str(tmp_path), "--format", "nats.messages"])
    assert result.exit_code == 0
    first = sidecar.read(paths[0], "nats.messages")
    size = os.path.getsize(paths[0])
    assert f"{paths[0]}.frames.json: {len(first)} starts in {size:,} bytes" in result.stdout
    last = sidecar.read(paths[1], "nats.messages")[-1]
    message = f"{paths[1]}: no frame is known to begin after byte {last}: the rest"
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    # A glob of a shell includes sidecars.
    again = CliRunner().invoke(
        main, ["index", *map(str, tmp_path.iterdir()), "--format", "nats.messages"]
    )
    assert again.exit_code == 0
    assert len(os.listdir(tmp_path)) == 4
    for wrong in ([str(tmp_path / "none")], ["-"], [paths[0], "--format", "nats"]):
        assert CliRunner().invoke(main, ["index", *wrong]).exit_code == 2
    os.mkfifo(tmp_path / "pipe")
    result = CliRunner().invoke(
        main, ["index", str(tmp_path / "pipe")]
    )  # which would wait for ever
    assert result.exit_code == 2
    assert "only a file can be indexed" in result.stderr


def test_sidecars_in_a_separate_directory(tmp_path, monkeypatch):
    data, indexes = tmp_path / "data", tmp_path / "indexes"
    data.mkdir()
    path = append_capture(data / "a.nats")
    result = CliRunner().invoke(
        main, ["index", str(path), "--format", "nats.messages", "--to", str(indexes)]
    )
    assert result.exit_code == 0
    assert os.listdir(data) == ["a.nats"]
    index_path = f"{indexes}{path}.frames.json"
    assert result.stdout.startswith(f"wrote {index_path}: ")
    assert os.path.isfile(index_path)
    assert sidecar.read(path, "nats.messages") is None
    monkeypatch.setenv("WIRESCAN_INDEX_DIR", str(indexes))
    starts = registry.format_of("nats.messages").storage.boundaries(str(path), STEP)
    assert sidecar.read(path, "nats.messages") == starts
    index_path = sidecar.make_sidecar_path("s3://bucket/a/b.nats?region=eu", "/x")
    assert index_path == "/x/s3/bucket/a/b.nats.frames.json"


def test_a_sidecar_in_the_directory_of_a_broker_causes_a_warning(tmp_path):
    path = append_capture(tmp_path / f"{0:020}.log", "kafka.batches")
    assert CliRunner().invoke(main, ["index", str(path)]).stderr == ""
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n0\n")
    result = CliRunner().invoke(main, ["index", str(path)])
    assert result.exit_code == 0
    assert f"{tmp_path} belongs to a broker" in result.stderr
    assert "--to" in result.stderr
    assert CliRunner().invoke(main, ["index", str(path), "--to", str(tmp_path / "x")]).stderr == ""


@pytest.mark.peers
def test_objects_have_sidecars(monkeypatch):
    from tests.support.object_store import ObjectStore

    with ObjectStore() as store:
        raw = b"".join(CHUNKS["nats.messages"](i) for i in range(400))
        store.put("captures/a b.nats", raw)
        url = store.url("captures/a%20b.nats")
        starts = sidecar.write(url, "nats.messages")
        calls = record_boundary_calls(monkeypatch, "nats.messages")
        index_url = store.url("captures/a%20b.nats.frames.json").partition("?")[0]
        assert sidecar.make_sidecar_path(url).startswith(index_url)
        assert sidecar.read(url, "nats.messages") == starts
        assert len(starts) > 5
        slices = plan(store.url("captures"), "nats.messages", 2 * STEP)
        assert {piece.start for piece in slices} <= set(starts)
        assert len(slices) > 4
        assert not calls
        assert sum(map(len, slices)) == len(raw)  # without the sidecar itself
        store.put("captures/a b.nats", raw[1:])
        assert sidecar.read(url, "nats.messages") is None
