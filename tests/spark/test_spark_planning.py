"""Plans whose first pass runs in tasks: the same as those made by the driver alone."""
import os

import pytest

from conftest import segment
from wirescan import lumberjack, nats, sidecar
from wirescan.partition import tasks
from wirescan.spark import planning, ranges, read
from wirescan.spark.reading import Reading

pytestmark = pytest.mark.spark

CAPTURES = {
    "nats.messages": ("nats", lambda i: nats.encode_pub("orders", b"p" * (i % 900))),
    "lumberjack.events": ("lumberjack", lambda i: lumberjack.encode_batch([{"message": "m" * (i % 500)}])),
}


@pytest.fixture
def walked(monkeypatch):
    """The driver walks over nothing but what it is told of; the files that tasks walk over instead."""
    files, in_tasks = [], planning._in_tasks
    monkeypatch.setattr(planning, "WALKED_BYTES", 0)
    monkeypatch.setattr(planning, "_in_tasks", lambda spark, given, starts: (
        files.extend(file.path for file in given) or in_tasks(spark, given, starts)))
    return files


def captures(folder, format, count=5):
    folder.mkdir()
    ending, frame = CAPTURES[format]
    for number in range(count):
        (folder / f"{number}.{ending}").write_bytes(b"".join(map(frame, range(300 + 100 * number))))
    return sorted(str(path) for path in folder.iterdir())


@pytest.mark.parametrize("format", CAPTURES)
def test_the_tasks_find_what_the_driver_finds(spark, tmp_path, walked, format):
    paths = captures(tmp_path / "captures", format)
    for size in (30_000, 100_000):
        found = ranges(spark, tmp_path / "captures", format, bytes_per_partition=size).plan
        assert found == tasks(tmp_path / "captures", size, format) and len(found) > 3
    assert set(walked) == set(paths)
    walked.clear()
    whole = sum(map(os.path.getsize, paths))
    one = ranges(spark, paths, format, bytes_per_partition=whole).plan
    assert len(one) == 1 and walked == []               # nothing is to be cut


def test_what_is_little_is_walked_over_by_the_driver(spark, tmp_path, walked, monkeypatch):
    captures(tmp_path / "captures", "nats.messages")
    monkeypatch.setattr(planning, "WALKED_BYTES", 1 << 30)
    found = ranges(spark, tmp_path / "captures", "nats.messages", bytes_per_partition=30_000).plan
    assert found == tasks(tmp_path / "captures", 30_000, "nats.messages") and walked == []
    monkeypatch.setattr(planning, "WALKED_FILES", 3)
    again = ranges(spark, tmp_path / "captures", "nats.messages", bytes_per_partition=30_000).plan
    assert again == found and len(walked) == 5


def test_sidecars_are_written_in_tasks_and_used(spark, tmp_path, walked, monkeypatch):
    paths = captures(tmp_path / "captures", "nats.messages", 3)
    assert planning.index(spark, str(tmp_path / "captures"), "nats.messages") == 3
    assert walked == paths and all(sidecar.read(path, "nats.messages") == [0] for path in paths)
    walked.clear()
    more = tmp_path / "captures" / "more.nats"
    more.write_bytes(b"".join(map(CAPTURES["nats.messages"][1], range(600))))
    ranges(spark, tmp_path / "captures", "nats.messages", bytes_per_partition=30_000).plan
    assert walked == [str(more)]                        # the others' sidecars tell
    assert planning.index(spark, str(tmp_path / "captures"), "nats.messages") == 4


def test_segments_with_an_index_are_not_walked_over(spark, tmp_path, walked):
    names = [f"{base:020}.log" for base in (0, 600)]
    paths = [segment(tmp_path / name, base=int(name[:20])) for name in names]
    (tmp_path / f"{0:020}.index").touch()
    found = ranges(spark, paths, bytes_per_partition=2_000).plan
    assert found == tasks(paths, 2_000) and len(found) > 8 and walked == paths[1:]


def test_the_rows_of_such_a_plan(spark, tmp_path, walked, monkeypatch):
    paths = captures(tmp_path / "captures", "nats.messages", 3)
    reading = Reading("nats.messages", ("_file", "_start"))
    cut = planning.cutter(spark, "nats.messages")
    found = reading.plan(paths, 30_000, cut)
    assert walked == [path for path in paths if any(one.path == path and one.start for one in found.slices)]
    whole = sorted(map(tuple, read(spark, paths, "nats.messages", ["_file", "_start"]).collect()))
    monkeypatch.setattr(Reading, "plan", lambda *given: found)
    assert sorted(map(tuple, read(spark, paths, "nats.messages", ["_file", "_start"]).collect())) == whole
    assert len(whole) == 1200


def test_a_file_that_is_gone_when_it_is_walked_over(spark, tmp_path, walked):
    from pyspark.errors import PythonException
    paths = captures(tmp_path / "captures", "nats.messages", 2)
    cut = planning.cutter(spark, "nats.messages")
    files = planning.files_of(paths, "nats.messages")
    os.unlink(paths[1])
    with pytest.raises(PythonException, match=f"FileNotFoundError.*{paths[1]}"):
        cut(files, 1_000)
    with pytest.raises(ValueError, match="no format"):
        ranges(spark, paths, "nats.nothing")
    with pytest.raises(FileNotFoundError):
        ranges(spark, paths, "nats.messages")
