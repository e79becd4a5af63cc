"""Plans whose first pass runs in tasks equal those of the driver alone."""

import os

import pytest

from tests.spark.records import write_segment
from wirescan import lumberjack, nats
from wirescan.files import boundary_index as sidecar
from wirescan.frames.limits import Limits
from wirescan.reading.splits import plan_tasks
from wirescan.spark import plan as planning
from wirescan.spark import ranges, read
from wirescan.spark.run import Reading

pytestmark = pytest.mark.spark

CAPTURES = {
    "nats.messages": ("nats", lambda i: nats.encode_pub("orders", b"p" * (i % 900))),
    "lumberjack.events": (
        "lumberjack",
        lambda i: lumberjack.encode_batch([{"message": "m" * (i % 500)}]),
    ),
}


@pytest.fixture
def walked(monkeypatch):
    """Return the list of files that tasks scan. The limit makes the driver scan none itself."""
    paths = []
    in_tasks = planning._find_starts_in_tasks

    def record_files(spark, files, starts):
        paths.extend(file.path for file in files)
        return in_tasks(spark, files, starts)

    monkeypatch.setattr(planning, "WALKED_BYTES", 0)
    monkeypatch.setattr(planning, "_find_starts_in_tasks", record_files)
    return paths


def write_captures(folder, format, count=5):
    """Write files of frames. Return their paths."""
    folder.mkdir()
    ending, frame = CAPTURES[format]
    for number in range(count):
        (folder / f"{number}.{ending}").write_bytes(b"".join(map(frame, range(300 + 100 * number))))
    return sorted(str(path) for path in folder.iterdir())


@pytest.mark.parametrize("format", CAPTURES)
def test_tasks_make_the_plan_of_the_driver(spark, tmp_path, walked, format):
    folder = tmp_path / "captures"
    paths = write_captures(folder, format)
    for size in (30_000, 100_000):
        plan = ranges(spark, folder, format, bytes_per_partition=size).plan
        assert plan == plan_tasks(folder, format, size)
        assert len(plan) > 3
    assert set(walked) == set(paths)


@pytest.mark.parametrize("format", CAPTURES)
def test_files_in_one_partition_are_not_scanned(spark, tmp_path, walked, format):
    paths = write_captures(tmp_path / "captures", format)
    size = sum(map(os.path.getsize, paths))
    assert len(ranges(spark, paths, format, bytes_per_partition=size).plan) == 1
    assert walked == []


def test_small_files_are_scanned_by_the_driver(spark, tmp_path, walked, monkeypatch):
    folder = tmp_path / "captures"
    write_captures(folder, "nats.messages")
    expected = plan_tasks(folder, "nats.messages", 30_000)
    monkeypatch.setattr(planning, "WALKED_BYTES", 1 << 30)
    assert ranges(spark, folder, "nats.messages", bytes_per_partition=30_000).plan == expected
    assert walked == []
    monkeypatch.setattr(planning, "WALKED_FILES", 3)
    assert ranges(spark, folder, "nats.messages", bytes_per_partition=30_000).plan == expected
    assert len(walked) == 5


def test_sidecars_are_written_in_tasks_and_used(spark, tmp_path, walked, monkeypatch):
    folder = tmp_path / "captures"
    paths = write_captures(folder, "nats.messages", 3)
    assert planning.index(spark, str(folder), "nats.messages") == 3
    assert walked == paths
    assert all(sidecar.read(path, "nats.messages") == [0] for path in paths)
    walked.clear()
    more = folder / "more.nats"
    more.write_bytes(b"".join(map(CAPTURES["nats.messages"][1], range(600))))
    ranges(spark, folder, "nats.messages", bytes_per_partition=30_000).plan
    assert walked == [str(more)]  # the other files have sidecars
    assert planning.index(spark, str(folder), "nats.messages") == 4


@pytest.mark.parametrize("in_tasks", [False, True])
def test_plans_use_the_limits_of_the_caller(spark, tmp_path, monkeypatch, walked, in_tasks):
    """No cut follows a frame above the limit, whether the driver or a task looks for cuts."""
    if not in_tasks:
        monkeypatch.setattr(planning, "WALKED_BYTES", 1 << 30)
    small = nats.encode_pub("orders", b"p" * 90)
    large = nats.encode_pub("orders", b"p" * 50_000)
    path = tmp_path / "capture.nats"
    path.write_bytes(small + large + 20_000 * small)
    for frame, is_cut in ((len(large), True), (len(large) - 1, False)):
        limits = Limits(frame=frame)
        plan = ranges(
            spark, str(path), "nats.messages", limits=limits, bytes_per_partition=200_000
        ).plan
        assert (len(plan) > 3) == is_cut
        assert bool(walked) == in_tasks


def test_indexes_that_tasks_write_use_the_limits_of_the_caller(spark, tmp_path):
    small = nats.encode_pub("orders", b"p" * 90)
    large = nats.encode_pub("orders", b"p" * 50_000)
    path = tmp_path / "capture.nats"
    path.write_bytes(small + large + 20_000 * small)
    for frame, is_cut in ((len(large), True), (len(large) - 1, False)):
        planning.index(spark, str(path), "nats.messages", limits=Limits(frame=frame))
        assert (sidecar.read(path, "nats.messages") != [0]) == is_cut


def test_segments_with_an_index_are_not_scanned(spark, tmp_path, walked):
    names = [f"{base:020}.log" for base in (0, 600)]
    paths = [write_segment(tmp_path / name, base=int(name[:20])) for name in names]
    (tmp_path / f"{0:020}.index").touch()
    plan = ranges(spark, paths, bytes_per_partition=2_000).plan
    assert plan == plan_tasks(paths, "kafka.records", 2_000)
    assert len(plan) > 8
    assert walked == paths[1:]


def test_rows_of_a_plan_made_in_tasks(spark, tmp_path, walked, monkeypatch):
    paths = write_captures(tmp_path / "captures", "nats.messages", 3)
    columns = ["_file", "_start"]
    cut = planning.make_cutter(spark, "nats.messages", Limits())
    plan = Reading("nats.messages", tuple(columns)).plan(paths, 30_000, cut)
    cut_files = {part.path for part in plan.slices if part.start}
    assert walked == [path for path in paths if path in cut_files]
    whole = sorted(map(tuple, read(spark, paths, "nats.messages", columns).collect()))
    monkeypatch.setattr(Reading, "plan", lambda *arguments: plan)
    rows = sorted(map(tuple, read(spark, paths, "nats.messages", columns).collect()))
    assert rows == whole
    assert len(whole) == 1200


def test_a_file_that_is_removed_before_it_is_scanned(spark, tmp_path, walked):
    from pyspark.errors import PythonException

    paths = write_captures(tmp_path / "captures", "nats.messages", 2)
    cut = planning.make_cutter(spark, "nats.messages", Limits())
    files = planning.list_source_files(paths, "nats.messages")
    os.unlink(paths[1])
    with pytest.raises(PythonException, match=f"FileNotFoundError.*{paths[1]}"):
        cut(files, 1_000)
    with pytest.raises(ValueError, match="no format"):
        ranges(spark, paths, "nats.nothing")
    with pytest.raises(FileNotFoundError, match=paths[1]):
        ranges(spark, paths, "nats.messages")
