"""`wirescan topics`: the log directory of a broker."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.command import parse_lines, run
from tests.support.paths import KAFKA_CORPUS
from wirescan import kafka

NAMES = ("appended-0", "compacted-0", "live-0", "open-0", "orders-0")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in NAMES:
        shutil.copytree(KAFKA_CORPUS / name, tmp_path / "data" / name)
    shutil.copytree(KAFKA_CORPUS / "open-0", tmp_path / "data" / "__consumer_offsets-3")
    (tmp_path / "data" / "orders-1.0123456789abcdef-delete").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("")
    return tmp_path / "data"


def test_offsets_sizes_and_times(data):
    result = run("topics", data, "--json")
    assert result.exit_code == 0, result.stdout
    lines = parse_lines(result)
    assert [(line["topic"], line["partition"]) for line in lines] == [
        *((name[:-2], 0) for name in NAMES),
        ("__consumer_offsets", 3),
    ]
    assert [line["internal"] for line in lines] == [False] * 5 + [True]
    for line in lines[:5]:
        folder = data / f"{line['topic']}-0"
        files = sorted(folder.glob("*.log"))
        batches = kafka.scan(list(map(str, files)))
        assert line["segments"] == len(files)
        assert line["size"] == sum(file.stat().st_size for file in files)
        assert line["first"] == batches["base_offset"][0]
        assert line["last"] == batches["last_offset"][-1]
        assert line["first_time"] == batches["max_timestamp"][0]
        assert line["last_time"] == batches["max_timestamp"][-1]


def test_the_text_has_a_line_for_each_topic(data):
    lines = run("topics", data).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == [
        *(name[:-2] for name in NAMES),
        "__consumer_offsets",
    ]
    assert lines[-1].startswith("6 topics, 6 partitions, ")
    with_partitions = run("topics", data, "--partitions").stdout.splitlines()
    assert [line.split()[0] for line in with_partitions[-3:-1]] == ["__consumer_offsets", "3"]


def test_damage_at_the_end_is_seen_at_once_and_other_damage_by_a_deep_look(data):
    path = data / "orders-0" / f"{4160:020}.log"
    raw = bytearray(path.read_bytes())
    raw[5000] ^= 1
    path.write_bytes(raw)
    assert run("topics", data).exit_code == 0
    deep = run("topics", data, "--deep")
    assert deep.exit_code == 1
    assert f"orders-0: {path.name}: 1 damaged piece" in deep.stdout
    newest = data / "open-0" / f"{0:020}.log"
    newest.write_bytes(newest.read_bytes()[:-5])
    (data / "appended-0" / f"{0:020}.timeindex").unlink()
    (data / "compacted-0" / f"{4900:020}.index").unlink()
    for log in (data / "live-0").glob("*.log"):
        log.unlink()
    problems = {
        line["topic"]: line["problems"] for line in parse_lines(run("topics", data, "--json"))
    }
    assert [text.rpartition(" at byte ")[0] for text in problems["open"]] == [
        f"{newest.name}: damaged or cut"
    ]
    assert problems["compacted"] == [f"{4900:020}.index is missing"]
    assert problems["live"] == ["no segment"]
    assert problems["orders"] == []


def test_few_bytes_are_read(data, monkeypatch):
    """A segment of many MiB is read at its start and at its end alone."""
    from wirescan.kafka.log import data_directory

    batch = kafka.encode_batch([bytes(1000)] * 4)
    folder = data / "large-0"
    folder.mkdir()
    count = 4000
    batches = [number.to_bytes(8, "big") + batch[8:] for number in range(0, 4 * count, 4)]
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    entries = b"".join(
        (4 * number + 3).to_bytes(4, "big") + (number * len(batch)).to_bytes(4, "big")
        for number in range(1, count)
    )
    (folder / f"{0:020}.index").write_bytes(entries)
    scanned = []
    scan = data_directory.scan_batches
    monkeypatch.setattr(
        data_directory,
        "scan_batches",
        lambda bytes, **options: scanned.append(len(bytes)) or scan(bytes, **options),
    )
    summary = data_directory.summarize_partition(str(folder))
    assert (summary.first, summary.last) == (0, 4 * count - 1)
    assert sum(scanned) < 200_000


def test_a_directory_without_partitions(tmp_path):
    result = run("topics", tmp_path)
    assert result.exit_code == 2
    assert "holds no directory named <topic>-<partition>" in result.stderr
    assert run("topics", tmp_path / "none").exit_code == 2


def test_the_end_of_a_large_segment_without_an_index_is_not_known(tmp_path):
    folder = tmp_path / "large-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(kafka.encode_batch([bytes(1000)] * 1500))
    (line,) = parse_lines(run("topics", tmp_path, "--json"))
    assert (line["first"], line["last"], line["problems"]) == (0, None, [])
