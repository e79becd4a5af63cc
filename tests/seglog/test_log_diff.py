"""Two copies of a log, compared by offset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.strategies.kafka import correct_checksums
from tests.support.command import parse_lines, run
from tests.support.paths import KAFKA_CORPUS
from wirescan import kafka
from wirescan.kafka import Record, encode_batch
from wirescan.seglog import log_diff

TIME = 1_700_000_000_000
ORDERS = KAFKA_CORPUS / "orders-0"


def make_records(offsets, **changed) -> list[Record]:
    return [
        Record(offset, TIME + offset, b"key", b"value %d" % offset, ((b"h", b"x"),))._replace(
            **changed.get(f"at{offset}", {})
        )
        for offset in offsets
    ]


def write(path: Path, *batches: bytes) -> Path:
    path.write_bytes(b"".join(batches))
    return path


def compare(left: Path, right: Path, *options: str) -> tuple[int, list[dict]]:
    result = run("diff", left, right, "--json", *options)
    return result.exit_code, parse_lines(result)[:-1]


def test_a_log_is_equal_to_itself(monkeypatch):
    opened = []
    monkeypatch.setattr(
        "wirescan.seglog.log_diff.open_nested", lambda *_, **__: opened.append(1) or iter(())
    )
    result = run("diff", ORDERS, ORDERS)
    assert (result.exit_code, result.stdout) == (0, "equal\n")
    assert opened == []  # equal batches are not opened


@pytest.mark.parametrize("change", ["missing", "joined", "changed"])
def test_equal_batches_after_a_difference_are_not_opened(change, tmp_path, monkeypatch):
    """Where one log has another number of batches, the next equal batches are found again."""
    opened = []

    def count_opened(frames, *arguments, **options):
        opened.append(len(frames))
        return open_nested(frames, *arguments, **options)

    open_nested = log_diff.open_nested
    monkeypatch.setattr(log_diff, "open_nested", count_opened)
    batches = [encode_batch(make_records(range(at, at + 5))) for at in range(0, 2500, 5)]
    left = write(tmp_path / "a.log", *batches)
    middle = {
        "missing": [],
        "joined": [encode_batch(make_records(range(500, 510)))],
        "changed": [encode_batch(make_records(range(500, 505), at502={"key": b"x"})), batches[101]],
    }
    right = write(tmp_path / "b.log", *batches[:100], *middle[change], *batches[102:])
    _, lines = compare(left, right)
    assert [(line["kind"], line["first"], line["last"]) for line in lines] == {
        "missing": [("missing in B", 500, 509)],
        "joined": [],
        "changed": [("different", 502, 502)],
    }[change]
    assert sum(opened) <= 2 * log_diff.GROUP


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_batches_segments_and_codecs_may_differ(codec, tmp_path):
    records = kafka.records(kafka.scan(ORDERS))[:3000]
    rows = [
        Record(
            record.offset,
            record.timestamp,
            None if record.key is None else bytes(record.key),
            None if record.value is None else bytes(record.value),
            tuple(
                (bytes(key), None if value is None else bytes(value))
                for key, value in record.headers
            ),
        )
        for record in records
    ]
    left = tmp_path / "left"
    right = tmp_path / "right"
    for folder, step in ((left, 170), (right, 230)):
        folder.mkdir()
        for base in range(0, len(rows), 4 * step):
            batches = [
                encode_batch(rows[at : at + step], codec=codec if folder == left else "none")
                for at in range(base, min(base + 4 * step, len(rows)), step)
            ]
            write(folder / f"{base:020}.log", *batches)
    assert compare(left, right) == (0, [])
    assert compare(left, right, "--exact")[0] == 1


def test_missing_and_different_records(tmp_path):
    left = write(tmp_path / "a.log", encode_batch(make_records([0, 1, 2, 5, 6, 7, 8, 9])))
    changed = {
        "at6": {"value": b"other"},
        "at7": {"key": None, "timestamp": TIME},
        "at8": {"headers": ((b"h", b"y"),)},
    }
    right_rows = make_records([1, 2, 3, 4, 6, 7, 8, 9, 12], **changed)
    right = write(tmp_path / "b.log", encode_batch(right_rows[:4]), encode_batch(right_rows[4:]))
    code, lines = compare(left, right)
    assert code == 1
    assert [(line["kind"], line["first"], line["last"], line["records"]) for line in lines] == [
        ("missing in B", 0, 0, 1),
        ("missing in A", 3, 4, 2),
        ("missing in B", 5, 5, 1),
        ("different", 6, 8, 3),
        ("missing in A", 12, 12, 1),
    ]
    assert lines[3]["examples"] == [
        {"offset": 6, "A": {"value": "value 6"}, "B": {"value": "other"}},
        {
            "offset": 7,
            "A": {"timestamp": TIME + 7, "key": "key"},
            "B": {"timestamp": TIME, "key": None},
        },
        {"offset": 8, "A": {"headers": [["h", "x"]]}, "B": {"headers": [["h", "y"]]}},
    ]
    assert len(compare(left, right, "--examples", "1")[1][3]["examples"]) == 1
    text = run("diff", left, right).stdout
    assert "offsets 6 to 8: 3 records different\n  offset 6\n    A: value 'value 6'\n" in text


def test_one_log_ends_before_the_other(tmp_path):
    batches = [encode_batch(make_records(range(at, at + 10))) for at in range(0, 1000, 10)]
    left = write(tmp_path / "a.log", *batches[:60])
    right = write(tmp_path / "b.log", *batches[10:])
    _, lines = compare(left, right)
    assert [(line["kind"], line["first"], line["last"], line["records"]) for line in lines] == [
        ("missing in B", 0, 99, 100),
        ("missing in A", 600, 999, 400),
    ]


def test_every_byte_of_a_value_counts(tmp_path):
    for at in range(7):
        value = bytearray(b"value 3")
        value[at] ^= 1
        left = write(tmp_path / "a.log", encode_batch(make_records(range(6))))
        rows = make_records(range(6), at3={"value": bytes(value)})
        right = write(tmp_path / "b.log", encode_batch(rows))
        _, lines = compare(left, right)
        assert [(line["first"], line["last"]) for line in lines] == [(3, 3)]


def test_leader_epochs_are_compared_only_exactly(tmp_path):
    rows = make_records(range(5))
    left = write(tmp_path / "a.log", encode_batch(rows, leader_epoch=1))
    right = write(tmp_path / "b.log", encode_batch(rows, leader_epoch=2))
    assert compare(left, right) == (0, [])
    code, (line,) = compare(left, right, "--exact")
    assert code == 1
    assert line["examples"] == [{"offset": 0, "A": {"leader_epoch": 1}, "B": {"leader_epoch": 2}}]


def test_a_damaged_log_cannot_be_compared(tmp_path):
    data = bytearray(encode_batch(make_records(range(5))))
    data[-1] ^= 1
    left = write(tmp_path / "a.log", bytes(data))
    result = run("diff", left, left)
    assert result.exit_code == 2
    assert "BAD_CHECKSUM" in result.stderr
    twice = write(tmp_path / "b.log", encode_batch(make_records(range(5))) * 2)
    assert "do not rise" in run("diff", twice, twice).stderr
    assert run("diff", tmp_path / "none", twice).exit_code == 2


def test_a_cut_frame_at_the_end_of_a_file_is_named(tmp_path):
    batches = [encode_batch(make_records(range(first, first + 5))) for first in (0, 5)]
    left = write(tmp_path / "a.log", batches[0], batches[1][:-3])
    right = write(tmp_path / "b.log", batches[0])
    result = run("diff", left, right)
    assert (result.exit_code, result.stdout) == (0, "equal\n")
    size = len(batches[1]) - 3
    assert f"tail: {size} bytes, cut frame at byte {len(batches[0])} of {left}" in result.stderr
    text = write(tmp_path / "c.log", b"text")
    result = run("diff", left, text)
    assert result.exit_code == 2
    assert f"of {text}, with no frame before it" in result.stderr


def test_damage_inside_an_intact_batch_names_its_file(tmp_path):
    good = encode_batch(make_records(range(5)))
    data = bytearray(good)
    data[61] = 0  # the length of the first record
    left = write(tmp_path / "a.log", good)
    right = write(tmp_path / "b.log", correct_checksums(data))
    result = run("diff", left, right)
    assert result.exit_code == 2
    assert f"of {right}, row 0" in result.stderr


def encode_disordered(*deltas: int, value: bytes = b"v") -> bytes:
    """Encode a batch from offset 0 whose records have these offset deltas, as no broker writes."""
    body = b"".join(
        bytes([14, 0, 0, 2 * delta, 1, 2, *value, 0]) for delta in deltas
    )  # length, attributes, timestamp, offset, null key, value, headers
    batch = bytearray(encode_batch([Record(0, TIME, None, value)])[:61] + body)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27] = max(deltas).to_bytes(4, "big")
    batch[57:61] = len(deltas).to_bytes(4, "big")
    return correct_checksums(batch)


@pytest.mark.parametrize(
    ("deltas", "meaning"),
    [
        ((2, 1, 0), "offset 1 follows offset 2"),  # it never ended
        ((0, 1, 1, 2), "offset 1 follows offset 1"),  # such logs were equal
    ],
)
def test_records_out_of_order_inside_a_batch_are_an_error(deltas, meaning, tmp_path):
    left = write(tmp_path / "a.log", encode_disordered(*deltas))
    right = write(tmp_path / "b.log", encode_disordered(*sorted(set(deltas)), value=b"w"))
    for pair in ((left, right), (right, left)):
        result = run("diff", *pair)
        assert result.exit_code == 2
        assert str(left) in result.stderr and meaning in result.stderr
    assert compare(left, left) == (0, [])


def test_batches_that_overlap_are_an_error(tmp_path):
    """The second batch begins with offset 1 again: its records 1 and 2 were not compared."""
    rows = make_records([1, 2, 3], at1={"value": b"other"})
    left = write(tmp_path / "a.log", encode_batch(make_records(range(3))), encode_batch(rows))
    right = write(tmp_path / "b.log", encode_batch(make_records(range(4))))
    for options in ((), ("--exact",)):
        result = run("diff", left, right, *options)
        assert result.exit_code == 2
        assert "offset 1 follows offset" in result.stderr


def test_batches_that_expand_to_too_much_are_not_opened(tmp_path):
    """Each log has a value of 1 MiB of zeros in a batch of about 1 KiB."""
    logs = []
    for name, time in (("a.log", TIME), ("b.log", TIME + 1)):
        records = [Record(0, time, None, bytes(1 << 20))]
        logs.append(write(tmp_path / name, encode_batch(records, codec="gzip")))
    result = run("diff", *logs, "--max-expansion", "1")  # 512 KiB, for small files
    assert result.exit_code == 2
    assert f"of {logs[0]}" in result.stderr and "larger expansion" in result.stderr
    assert compare(*logs)[0] == 1


def test_liftbridge_logs_are_compared(tmp_path):
    folder = KAFKA_CORPUS.parent / "liftbridge/single/logs"
    same = run("diff", folder / "rolled-0", folder / "rolled-0", "--format", "liftbridge.entries")
    assert same.exit_code == 0
    other = run(
        "diff", folder / "rolled-0", folder / "orders-0", "--format", "liftbridge.entries", "--json"
    )
    assert other.exit_code == 1
    assert json.loads(other.stdout.splitlines()[-1])["equal"] is False
