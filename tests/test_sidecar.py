"""Sidecars: what they say of a file is true, or they are not used."""
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import wirescan
from wirescan import catalog, kafka, liftbridge, lumberjack, nats, sidecar, thrift
from wirescan.cli import main
from wirescan.partition import plan, tasks
from wirescan.pieces import iter_tables

STEP = 2_000
CHUNKS = {
    "kafka.batches": lambda i: kafka.encode_batch([b"value %d" % i] * (i % 7 + 1), base_offset=7 * i),
    "kafka.requests": lambda i: kafka.encode_request("Metadata", 12, {"topics": [{"name": "t" * (i % 9 + 1)}]},
                                                     correlation_id=i),
    "lumberjack.frames": lambda i: lumberjack.encode_batch([{"message": "m" * (i % 50)}] * (i % 4 + 1)),
    "nats.messages": lambda i: nats.encode_pub("orders", b"p" * (i % 90)),
    "liftbridge.entries": lambda i: liftbridge.encode_entry(i, i, 0, b"key", b"value" * (i % 9)),
    "thrift.frames": lambda i: thrift.encode_frame(thrift.encode_message("add", 1, i, b"\0"),
                                                   infos={b"n": b"x" * (i % 30)}),
}


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    monkeypatch.setattr(sidecar, "STEP", STEP)


def capture(path, format="nats.messages", count=400, first=0):
    """Write a file of frames, or more of them behind those that are there."""
    with open(path, "ab") as file:
        file.write(b"".join(CHUNKS[format](i) for i in range(first, first + count)))
    return str(path)


def true_starts(path, format):
    return wirescan.scan(path, format, check=False)["start"].tolist()


def rows_of(slices, format):
    return [(position, fault) for one in slices
            for table in iter_tables(one.path, one.start, one.stop, format=format, errors="mark", tail=one.last)
            for position, fault in zip(table.positions.tolist(), table["fault"].tolist())]


def asked_for_cuts(monkeypatch, format):
    """What the format's own way to find cuts is asked from now on."""
    asked = []
    top = catalog.format_of(format)
    noting = replace(top, cuts=lambda *given: asked.append(given) or top.cuts(*given))
    monkeypatch.setitem(catalog._known(), format, noting)
    return asked


@pytest.mark.parametrize("format", CHUNKS)
def test_what_is_written_is_read_and_true(tmp_path, monkeypatch, format):
    path = capture(tmp_path / "capture", format, 2_000)
    starts = sidecar.write(path, format)
    assert starts == sidecar.read(path, format) and starts[0] == 0
    assert set(starts) <= set(true_starts(path, format))
    assert len(starts) > os.path.getsize(path) / STEP / 2
    asked = asked_for_cuts(monkeypatch, format)
    slices = plan(path, 3 * STEP, format)
    assert len(slices) >= len(starts) // 5 and {one.start for one in slices} <= set(starts)
    shared = tasks(path, 16 * STEP, format)
    assert {one.start for one in shared.slices} <= set(starts) and shared.skew < 1.3
    assert not asked
    plan(path, STEP - 1, format)
    assert asked                                # too coarse: walked over


@pytest.mark.parametrize("format", CHUNKS)
def test_only_what_a_file_grew_by_is_walked_over(tmp_path, monkeypatch, format):
    path = capture(tmp_path / "capture", format)
    before = sidecar.write(path, format)
    capture(path, format, 400, 400)
    asked = asked_for_cuts(monkeypatch, format)
    grown = sidecar.read(path, format)
    assert asked == [(path, STEP, before[-1])]
    assert grown[:len(before)] == before and len(grown) > 1.7 * len(before)
    assert set(grown) <= set(true_starts(path, format))
    assert rows_of(plan(path, 3 * STEP, format), format) == [(at, 0) for at in true_starts(path, format)]


def test_a_little_more_is_not_walked_over(tmp_path, monkeypatch):
    path = capture(tmp_path / "capture")
    starts = sidecar.write(path, "nats.messages")
    capture(path, count=3)
    asked = asked_for_cuts(monkeypatch, "nats.messages")
    assert sidecar.read(path, "nats.messages") == starts and not asked


def test_a_torn_frame_at_the_end_is_whole_later(tmp_path):
    path = tmp_path / "capture"
    whole = b"".join(CHUNKS["nats.messages"](i) for i in range(800))
    for cut in range(20_000, 20_100, 7):
        path.write_bytes(whole[:cut])
        sidecar.write(path, "nats.messages")
        path.write_bytes(whole)
        assert set(sidecar.read(path, "nats.messages")) <= set(true_starts(path, "nats.messages"))


@pytest.mark.parametrize("change", ["first byte", "last byte", "shorter", "other format", "gone"])
def test_a_sidecar_that_does_not_fit_is_not_used(tmp_path, change):
    path = tmp_path / "capture"
    capture(path)
    sidecar.write(path, "nats.messages")
    raw = bytearray(path.read_bytes())
    if change == "shorter":
        raw = raw[:-1]
    elif change.endswith("byte"):
        raw[0 if change == "first byte" else -1] ^= 1
    path.write_bytes(raw + b"and more" * (change == "last byte"))
    if change == "gone":
        os.unlink(sidecar.path_of(path))
    assert sidecar.read(path, "kafka.batches" if change == "other format" else "nats.messages") is None


def test_the_slices_of_a_damaged_file(tmp_path):
    path = tmp_path / "capture"
    capture(path)
    raw = bytearray(path.read_bytes())
    half = next(at for at in true_starts(str(path), "nats.messages") if at > len(raw) // 2)
    raw[half:half + 3] = b"???"
    path.write_bytes(raw)
    starts = sidecar.write(path, "nats.messages")
    assert half - 2 * STEP < starts[-1] <= half
    whole = rows_of(plan(path, len(raw), "nats.messages"), "nats.messages")
    assert rows_of(plan(path, STEP, "nats.messages"), "nats.messages") == whole and whole[-1][1]
    shared = tasks(path, STEP, "nats.messages")
    assert [(one.start, one.stop) for one in shared.uncut] == [(shared.uncut[0].start, len(raw))]
    assert f"not cut: {path}, " in str(shared) and f"from byte {shared.uncut[0].start} on" in str(shared)


def test_any_bytes_as_a_sidecar(tmp_path):
    """Nothing is raised; what is used rises from 0 and lies in the file."""
    path = tmp_path / "any.nats"
    path.write_bytes(b"PUB a 0\r\n\r\n" * 500)
    sidecar.write(path, "nats.messages")
    name = Path(sidecar.path_of(path))
    good = json.loads(name.read_bytes())
    json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
                               lambda inner: st.lists(inner, max_size=3), max_leaves=5)
    changed = st.fixed_dictionaries({}, optional={key: json_values | st.lists(st.integers(-3, 7_000)) for key in good})

    @settings(max_examples=150, deadline=None)
    @given(st.binary(max_size=40) | changed.map(lambda change: json.dumps(good | change).encode())
           | st.just(b"[" * 100_000) | st.just(b'{"version":' + b"1" * 5_000 + b"}"))
    def is_read_or_ignored(raw):
        name.write_bytes(raw)
        found = sidecar.read(path, "nats.messages")
        if found is not None:
            assert found[0] == 0 and found == sorted(set(found)) and found[-1] < path.stat().st_size
            assert all(type(one) is int for one in found)

    is_read_or_ignored()


def test_what_lies_in_the_place_of_a_sidecar(tmp_path):
    path = capture(tmp_path / "capture")
    os.mkfifo(sidecar.path_of(path))
    assert sidecar.read(path, "nats.messages") is None          # and does not wait for a writer
    os.unlink(sidecar.path_of(path))
    os.mkdir(sidecar.path_of(path))
    assert sidecar.read(path, "nats.messages") is None
    with pytest.raises(OSError):
        sidecar.write(path, "nats.messages")
    assert sorted(os.listdir(tmp_path)) == ["capture", "capture.frames.json"]


def test_empty_files_and_formats(tmp_path, monkeypatch):
    path = tmp_path / "empty"
    path.touch()
    assert sidecar.write(path, "nats.messages") == sidecar.read(path, "nats.messages") == [0]
    with pytest.raises(ValueError, match="no format"):
        sidecar.write(path, "nats.nothing")
    with pytest.raises(FileNotFoundError):
        sidecar.write(tmp_path / "none", "nats.messages")
    monkeypatch.setitem(catalog._known(), "nats.messages", replace(catalog.format_of("nats.messages"), cuts=None))
    with pytest.raises(ValueError, match="nothing tells where the frames of nats.messages begin"):
        sidecar.write(path, "nats.messages")
    assert sidecar.read(path, "nats.messages") is None


def test_who_may_read_the_file_may_read_its_sidecar(tmp_path):
    path = capture(tmp_path / "capture")
    for mode in (0o600, 0o644):
        os.chmod(path, mode)
        sidecar.write(path, "nats.messages")
        assert os.stat(sidecar.path_of(path)).st_mode & 0o777 == mode


def test_the_command(tmp_path):
    paths = [capture(tmp_path / name) for name in ("a.nats", "b.nats")]
    with open(paths[1], "r+b") as file:
        file.seek(3 * STEP)
        file.write(b"?" * 5 * STEP)
    done = CliRunner().invoke(main, ["index", str(tmp_path), "--format", "nats.messages"])
    assert done.exit_code == 0
    first = sidecar.read(paths[0], "nats.messages")
    assert f"{paths[0]}.frames.json: {len(first)} starts in {os.path.getsize(paths[0]):,} bytes" in done.stdout
    assert f"{paths[1]}: no frame is known to begin after byte " in done.stderr and done.stderr.count("\n") == 1
    # A shell's * gives sidecars too.
    again = CliRunner().invoke(main, ["index", *map(str, tmp_path.iterdir()), "--format", "nats.messages"])
    assert again.exit_code == 0 and len(os.listdir(tmp_path)) == 4
    for wrong in ([str(tmp_path / "none")], ["-"], [paths[0], "--format", "nats"]):
        assert CliRunner().invoke(main, ["index", *wrong]).exit_code == 2
    os.mkfifo(tmp_path / "pipe")
    done = CliRunner().invoke(main, ["index", str(tmp_path / "pipe")])          # which would wait for ever
    assert done.exit_code == 2 and "only a file can be indexed" in done.stderr


@pytest.mark.peers
def test_sidecars_of_objects(monkeypatch):
    from objects import ObjectStore
    with ObjectStore() as store:
        raw = b"".join(CHUNKS["nats.messages"](i) for i in range(400))
        store.put("captures/a b.nats", raw)
        url = store.url("captures/a%20b.nats")
        starts, asked = sidecar.write(url, "nats.messages"), asked_for_cuts(monkeypatch, "nats.messages")
        assert sidecar.path_of(url).startswith(store.url("captures/a%20b.nats.frames.json").partition("?")[0])
        assert sidecar.read(url, "nats.messages") == starts and len(starts) > 5
        slices = plan(store.url("captures"), 2 * STEP, "nats.messages")
        assert {one.start for one in slices} <= set(starts) and len(slices) > 4 and not asked
        assert sum(map(len, slices)) == len(raw)                # the sidecar itself is not among them
        store.put("captures/a b.nats", raw[1:])
        assert sidecar.read(url, "nats.messages") is None
