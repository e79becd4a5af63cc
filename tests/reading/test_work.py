"""Plans divide estimated work, and not bytes: codecs, small records, compressed frames."""

import os
from pathlib import Path

import numpy as np
import pytest

import wirescan
from wirescan import kafka, lumberjack
from wirescan.files.source import File
from wirescan.frames.registry import format_of
from wirescan.reading import splits, work
from wirescan.reading.chunked import iter_tables
from wirescan.reading.splits import plan_tasks

BATCHES = format_of("kafka.batches")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def write_segment(path, codec, batches=40, records=50, base=0):
    value = b'{"user": 17, "status": "shipped", "amount": 3.5}'
    raw = b"".join(
        kafka.encode_batch(
            [b"%d" % (base + number) + value for number in range(records)],
            base_offset=base + i * records,
            codec=codec,
        )
        for i in range(batches)
    )
    path.write_bytes(raw)
    return str(path)


@pytest.fixture
def mixed(tmp_path):
    """A directory of segments: the plain ones first, then those of each codec."""
    base = 0
    for number in range(20):
        codec = CODECS[number // 4]
        batches = 40 if codec == "none" else 200
        write_segment(tmp_path / f"{base:020}.log", codec, batches, base=base)
        base += batches * 50
    return tmp_path


def test_a_byte_of_a_compressed_segment_is_more_work(tmp_path):
    def estimate(name, *arguments, **options):
        return BATCHES.storage.estimate_work(
            memoryview(Path(write_segment(tmp_path / name, *arguments, **options)).read_bytes())
        )

    plain, *compressed = [estimate(f"{codec}.log", codec) for codec in CODECS]
    assert 1 < plain < 10
    assert all(density > 1.5 * plain for density in compressed)
    assert estimate("large.log", "none", records=1) < 10 * plain


@pytest.mark.parametrize("head", [b"", b"\xff" * 200, bytes(200), b"x" * 30])
def test_other_bytes_have_no_estimate(head):
    assert BATCHES.storage.estimate_work(memoryview(head)) is None


def test_a_count_that_cannot_be_is_bounded():
    batch = bytearray(kafka.encode_batch([b"x"]))
    batch[57:61] = (2**31 - 1).to_bytes(4, "big")
    assert BATCHES.storage.estimate_work(memoryview(batch)) <= 201 * 2


def test_compressed_frames_of_lumberjack_are_more_work():
    estimate = format_of("lumberjack.frames").storage.estimate_work
    events = [{"message": "m" * 50}] * 20
    plain = estimate(memoryview(bytes(lumberjack.encode_batch(events))))
    compressed = estimate(memoryview(bytes(lumberjack.encode_batch(events, level=6))))
    assert compressed > 3 * plain > 0
    assert estimate(memoryview(b"")) is None
    assert estimate(memoryview(b"HTTP")) is None


@pytest.mark.parametrize("tasks", [4, 10, 25])
def test_tasks_of_mixed_codecs_have_the_same_work(mixed, tasks):
    """By the estimate of each file. By bytes, the largest task would have twice the mean."""
    total = sum(path.stat().st_size for path in mixed.iterdir())
    plan = plan_tasks(mixed, "kafka.records", -(-total // tasks))
    assert abs(len(plan) - tasks) <= 1
    assert plan.skew < 1.3
    works = np.array(
        [
            sum(
                len(part)
                * BATCHES.storage.estimate_work(memoryview(Path(part.path).read_bytes()[:65536]))
                for part in task
            )
            for task in plan
        ]
    )
    assert works.max() < 1.3 * works.mean()
    sizes = np.array([sum(map(len, task)) for task in plan])
    assert sizes.max() > 1.3 * sizes.mean()
    offsets = [
        offset
        for part in plan.slices
        for table in iter_tables(
            part.path, part.start, part.stop, format="kafka.records", tail=part.last
        )
        for offset in table["offset"].tolist()
    ]
    assert offsets == wirescan.scan(mixed, "kafka.records")["offset"].tolist()


def test_more_rounds_only_if_the_tasks_are_worth_it(mixed, monkeypatch):
    arguments = (mixed, "kafka.records", 1 << 30)
    assert len(plan_tasks(*arguments, slots=1, rounds=4)) == 1
    monkeypatch.setattr(splits, "SMALLEST_TASK", 1 << 10)
    assert len(plan_tasks(*arguments, slots=1, rounds=4)) == 1  # less than a second of work
    monkeypatch.setattr(splits, "TASK_WORK", 1e6)
    assert len(plan_tasks(*arguments, slots=1, rounds=4)) == 4
    assert len(plan_tasks(*arguments, slots=2, rounds=2)) == 4
    assert len(plan_tasks(*arguments, slots=1, rounds=1)) == 1


def test_only_the_largest_files_are_looked_at(tmp_path, monkeypatch):
    large = write_segment(tmp_path / "large.log", "zstd", 60)
    small = write_segment(tmp_path / "small.log", "none", 1)
    other = tmp_path / "other"
    other.mkdir()
    far = write_segment(other / "far.log", "none", 1)
    monkeypatch.setattr(work, "SAMPLED_FILES", 1)
    files = [File(path, os.path.getsize(path)) for path in (small, large, far)]
    densities = work.estimate_densities(files, BATCHES)
    assert densities[small] == densities[large] > work.DEFAULT_WORK
    assert densities[far] == work.DEFAULT_WORK


def test_a_file_that_is_gone_counts_as_any_other(tmp_path):
    files = [File(str(tmp_path / "gone.log"), 5)]
    assert work.estimate_densities(files, BATCHES) == {files[0].path: work.DEFAULT_WORK}
    assert work.estimate_densities(files, format_of("nats.messages")) == {}
