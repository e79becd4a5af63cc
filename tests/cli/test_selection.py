"""The options that select frames: the same frames in each verb, and little is read for them."""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from tests.strategies.kafka_log import make_segments
from tests.support.command import parse_lines, run
from tests.support.paths import CORPUS, ORDERS
from wirescan import kafka
from wirescan.cli.support import row_choice
from wirescan.cli.support.row_choice import draw_numbers
from wirescan.cli.support.selection_options import make_selection
from wirescan.frames.registry import format_of
from wirescan.kafka import Record, encode_batch

TIME = 1_700_000_000_000
LIFTBRIDGE = sorted(
    {path.parent for path in (CORPUS / "liftbridge").glob("**/*.log") if "raft" not in path.name}
)


def read_rows(*arguments: object) -> list[dict]:
    result = run("scan", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return parse_lines(result)


def read_offsets(*arguments: object) -> list[int]:
    return [row["offset"] for row in read_rows(*arguments, "--columns", "offset")]


def read_converted(tmp_path: Path, *arguments: object) -> list[int]:
    out = tmp_path / "out"
    result = run("convert", *arguments, out, "--overwrite", "--columns", "offset", "--no-query")
    assert result.exit_code == 0, result.output
    return pq.read_table(out)["offset"].to_pylist()


def read_stat(*arguments: object) -> dict:
    result = run("stat", *arguments, "--json", "--total")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["total"]


def refuse(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    return result.stderr


@pytest.fixture(scope="module")
def orders() -> list[dict]:
    """All records of the corpus's partition, as JSON has them."""
    return read_rows(ORDERS, "--columns", "_file,offset,timestamp,key,codec,size")


# ---- which frames


CASES = {
    "--offset 26000:26005": lambda row: 26_000 <= row["offset"] < 26_005,
    "--offset 27700:": lambda row: row["offset"] >= 27_700,
    "--offset :3": lambda row: row["offset"] < 3,
    "--offset 15336": lambda row: row["offset"] == 15_336,
    "--offset 4000:9000": lambda row: 4_000 <= row["offset"] < 9_000,
    "--offset 1479": lambda row: row["offset"] == 1_479,  # the last one of a segment
    "--offset 1479:1481": lambda row: row["offset"] in (1_479, 1_480),
    "--offset :1481": lambda row: row["offset"] < 1_481,
    "--offset 5:5": lambda row: False,
    "--offset 99999:": lambda row: False,
    "--since 2023-11-14T22:13:43": lambda row: row["timestamp"] >= 1_700_000_023_000,
    "--until 2023-11-14T22:13:20.5": lambda row: row["timestamp"] < 1_700_000_000_500,
    "--since 2023-11-14T22:13:40Z --until 2023-11-14T23:13:41+01:00": lambda row: (
        1_700_000_020_000 <= row["timestamp"] < 1_700_000_021_000
    ),
    "--key customer-0411": lambda row: row["key"] == "customer-0411",
    "--key customer-0411 --key customer-0134": lambda row: (
        row["key"] in ("customer-0411", "customer-0134")
    ),
    "--partition 0": lambda row: True,
    "--partition 7,0 --key customer-0411": lambda row: row["key"] == "customer-0411",
    "--where codec==zstd --where offset<10000": lambda row: (
        row["codec"] == "zstd" and row["offset"] < 10_000
    ),
}


@pytest.mark.parametrize("options", CASES)
def test_scan_and_convert_select_the_same_records(options, orders, tmp_path):
    expected = [row["offset"] for row in orders if CASES[options](row)]
    assert read_offsets(ORDERS, *options.split()) == expected
    assert read_converted(tmp_path, ORDERS, *options.split()) == expected
    # All segments as one file have no names or indexes to prune with.
    whole = tmp_path / "topic-0" / "whole.bin"
    whole.parent.mkdir()
    whole.write_bytes(b"".join(path.read_bytes() for path in sorted(ORDERS.glob("*.log"))))
    assert read_offsets(whole, *options.split()) == expected


def test_a_condition_of_all_kinds(orders):
    text = 'key ~ "1$" and not (codec in (zstd, none) or size < 120) or offset == 5'
    expected = [
        row["offset"]
        for row in orders
        if (row["key"] or "").endswith("1")
        and not (row["codec"] in ("zstd", "none") or row["size"] < 120)
        or row["offset"] == 5
    ]
    assert 100 < len(expected) < 1500
    assert read_offsets(ORDERS, "--where", text) == expected
    path = str(sorted(ORDERS.glob("*.log"))[2])
    assert {row["_file"] for row in read_rows(ORDERS, "--where", f'_file == "{path}"')} == {path}


@pytest.mark.parametrize("folder", LIFTBRIDGE, ids=lambda path: path.parent.name)
def test_liftbridge_has_the_same_options(folder):
    rows = read_rows(folder, "--format", "liftbridge.entries")
    offsets = [row["offset"] for row in rows]
    middle = offsets[len(offsets) // 2]
    options = ("--format", "liftbridge.entries")
    assert read_offsets(folder, *options, "--offset", f"{middle}:") == [
        offset for offset in offsets if offset >= middle
    ]
    moment = sorted(row["timestamp"] for row in rows)[len(rows) // 2]
    text = np.datetime_as_string(np.datetime64(moment, "ns")) + "Z"
    assert read_offsets(folder, *options, "--since", text) == [
        row["offset"] for row in rows if row["timestamp"] >= moment
    ]
    assert read_offsets(folder, *options, "--tail", 2) == offsets[-2:]
    number = re.fullmatch(r"(?:.*-)?([0-9]+)", folder.name)
    if number:
        assert read_offsets(folder, *options, "--partition", number[1]) == offsets


def test_an_age_counts_from_now(tmp_path):
    now = int(time.time() * 1000)
    hours = [50, 3, 1, 0]
    records = [Record(i, now - 3_600_000 * hour, None, b"v") for i, hour in enumerate(hours)]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(encode_batch(records))
    assert read_offsets(path, "--since", "2h") == [2, 3]
    assert read_offsets(path, "--since", "2.5d", "--until", "120m") == [0, 1]
    assert read_offsets(path, "--until", "2d") == [0]
    assert read_offsets(path, "--since", "1w") == [0, 1, 2, 3]


# ---- limit, tail, sample


def test_limit_and_tail(orders, tmp_path):
    offsets = [row["offset"] for row in orders]
    for count in (0, 1, 7, 5_000):
        assert read_offsets(ORDERS, "--limit", count) == offsets[:count]
        assert read_offsets(ORDERS, "--tail", count) == offsets[len(offsets) - count :]
        assert read_converted(tmp_path, ORDERS, "--limit", count) == offsets[:count]
        assert read_converted(tmp_path, ORDERS, "--tail", count) == offsets[len(offsets) - count :]
    assert read_offsets(ORDERS, "--tail", 10**6) == offsets
    rare = ("--key", "customer-0411")
    keys = [row["offset"] for row in orders if row["key"] == "customer-0411"]
    assert len(keys) > 5
    assert read_offsets(ORDERS, *rare, "--limit", 3) == keys[:3]
    assert read_offsets(ORDERS, *rare, "--tail", 3) == keys[-3:]
    assert read_converted(tmp_path, ORDERS, *rare, "--limit", 3) == keys[:3]
    assert read_converted(tmp_path, ORDERS, *rare, "--tail", 3) == keys[-3:]
    assert read_offsets(ORDERS, "--offset", ":20000", "--tail", 2) == [19_998, 19_999]


@pytest.mark.parametrize("errors", ["mark", "skip"])
def test_convert_counts_the_rows_of_damaged_files_as_it_reads_them(tmp_path, errors):
    """A damaged record has an offset that the header of its batch excludes."""
    draw = random.Random(errors)
    path = tmp_path / "00000000000000000000.log"
    moved = 0
    for _ in range(12):
        batches = [
            bytearray(encode_batch([Record(i, TIME, b"k", b"v") for i in range(n, n + 10)]))
            for n in range(0, 200, 10)
        ]
        for batch in draw.sample(batches, 6):
            batch[64 + 9 * draw.randrange(10)] ^= draw.randrange(16, 64)  # the offset of a record
        path.write_bytes(b"".join(batches))
        condition = ("--where", "offset >= 165", "--errors", errors)
        expected = read_damaged(tmp_path, path, *condition)
        moved += len(expected) != 35
        for count in (1, 7, 45):
            chosen = read_damaged(tmp_path, path, *condition, "--tail", count)
            assert chosen == expected[-count:]
        numbers = read_damaged(tmp_path, path, *condition, "--sample", 10**6)
        assert numbers == expected
    assert moved


def read_damaged(tmp_path: Path, *arguments: object) -> list[int]:
    """Convert without checksums, so that headers may say what is not true of the records."""
    out = tmp_path / "out"
    result = run(
        "convert", *arguments, out, "--overwrite", "--columns", "offset", "--no-query", "--no-check"
    )
    assert result.exit_code in (0, 1), result.output
    return pq.read_table(out)["offset"].to_pylist()


@pytest.mark.parametrize("piece", [1, 20_000, 8 << 20])
def test_the_tail_does_not_depend_on_where_files_are_cut(monkeypatch, orders, piece):
    monkeypatch.setattr(row_choice, "TAIL_PART", piece)
    offsets = [row["offset"] for row in orders]
    for count in (1, 40, 3_000):
        assert read_offsets(ORDERS, "--tail", count) == offsets[-count:]


def test_a_sample_of_a_fraction(orders, tmp_path):
    offsets = [row["offset"] for row in orders]
    sample = read_offsets(ORDERS, "--sample", "0.1")
    mean, deviation = 0.1 * len(offsets), (0.09 * len(offsets)) ** 0.5
    assert abs(len(sample) - mean) < 6 * deviation
    assert sample == sorted(sample)
    assert set(sample) < set(offsets)
    assert read_offsets(ORDERS, "--sample", ".1", "--seed", 0) == sample
    assert read_converted(tmp_path, ORDERS, "--sample", "0.1") == sample
    assert read_offsets(ORDERS, "--sample", "0.1", "--limit", 5) == sample[:5]
    assert len({*sample} & {*read_offsets(ORDERS, "--sample", "0.1", "--seed", 1)}) < mean / 2
    assert read_offsets(ORDERS, "--sample", "1.0") == offsets


def test_a_sample_of_a_number(orders, tmp_path):
    offsets = [row["offset"] for row in orders]
    sample = read_offsets(ORDERS, "--sample", 50)
    assert len(sample) == 50
    assert sample == sorted(set(sample) & set(offsets))
    assert read_offsets(ORDERS, "--sample", 50) == sample
    assert read_converted(tmp_path, ORDERS, "--sample", 50) == sample
    assert read_offsets(ORDERS, "--sample", 50, "--seed", 3) != sample
    assert read_offsets(ORDERS, "--sample", 50, "--limit", 2) == sample[:2]
    assert read_offsets(ORDERS, "--sample", 10**6) == offsets
    keys = [row["offset"] for row in orders if row["key"] == "customer-0411"]
    some = read_offsets(ORDERS, "--key", "customer-0411", "--sample", 4)
    assert len(some) == 4
    assert set(some) <= set(keys)


def test_each_set_of_numbers_is_equally_likely():
    random_numbers = np.random.default_rng(1)
    for total, count in ((5, 2), (6, 4), (7, 0), (3, 9)):
        sets = [tuple(draw_numbers(random_numbers, total, count)) for _ in range(2000)]
        assert {len(numbers) for numbers in sets} == {min(total, count)}
        assert all(list(numbers) == sorted(set(numbers)) for numbers in sets)
        counts = np.bincount([n for numbers in sets for n in numbers], minlength=total)
        expected = 2000 * min(total, count) / total
        assert (abs(counts - expected) <= 6 * max(expected, 1) ** 0.5).all()


# ---- stat and verify


def test_stat_selects_batches(tmp_path):
    rows = kafka.scan(ORDERS).rows
    assert (
        read_stat(ORDERS, "--offset", "26000:26500")["frames"]
        == ((rows["last_offset"] >= 26_000) & (rows["base_offset"] < 26_500)).sum()
    )
    late = rows["max_timestamp"] >= 1_700_000_023_000
    assert read_stat(ORDERS, "--since", "2023-11-14T22:13:43")["frames"] == late.sum()
    is_zstd = rows["codec"] == 4
    total = read_stat(ORDERS, "--where", "codec == zstd", "--deep")
    assert total["frames"] == is_zstd.sum()
    assert total["records"] == rows["record_count"][is_zstd].sum()
    assert list(total["codecs"]) == ["zstd"]
    for option in ("--limit", "--tail", "--sample"):
        assert read_stat(ORDERS, option, 7)["frames"] == 7
    assert read_stat(ORDERS, "--limit", 7)["offsets"]["first"] == 0
    assert read_stat(ORDERS, "--tail", 7)["offsets"]["last"] == 27_707
    assert read_stat(ORDERS, "--limit", 0)["frames"] == 0
    assert read_stat(ORDERS, "--partition", 0) == read_stat(ORDERS)
    assert "kafka.batches has no keys" in refuse("stat", ORDERS, "--key", "a")


def test_verify_selects_files_by_their_names(tmp_path):
    partitions = [tmp_path / f"orders-{number}" for number in range(3)]
    for folder in partitions:
        shutil.copytree(ORDERS, folder)
    segment = partitions[1] / "00000000000000008160.log"
    segment.write_bytes(segment.read_bytes()[:-200])  # damages one segment of one partition
    assert run("verify", tmp_path).exit_code == 1
    assert run("verify", tmp_path, "--partition", "0,2").exit_code == 0
    assert run("verify", tmp_path, "--partition", "1").exit_code == 1
    result = run("verify", tmp_path, "--partition", 0, "--offset", "8000:9000", "--json")
    assert result.exit_code == 0, result.output
    files = [Path(line["file"]).name for line in parse_lines(result) if line["kind"] == "file"]
    assert files == ["00000000000000004160.log", "00000000000000008160.log"]
    damaged = run("verify", partitions[1], "--offset", "12400:12500")
    assert damaged.exit_code == 1
    assert run("verify", partitions[1], "--offset", "8160:8161").exit_code == 0


def test_partitions_are_the_names_of_directories(tmp_path):
    for name in ("orders-0", "orders-1", "pay-1", "12"):
        folder = tmp_path / name
        folder.mkdir()
        number = int(name.rpartition("-")[2])
        batch = encode_batch([Record(number, TIME, None, name.encode())])
        (folder / "00000000000000000000.log").write_bytes(batch)
    assert read_offsets(tmp_path, "--partition", 1) == [1, 1]
    assert read_offsets(tmp_path, "--partition", "0, 12") == [12, 0]
    message = refuse("scan", tmp_path, "--partition", 5)
    assert message == (
        "wirescan: no file is of partition 5; by the names of directories there are 0, 1, 12\n"
    )


# ---- how much is read


@pytest.fixture(scope="module")
def large_log(tmp_path_factory) -> Path:
    """Three segments of 12 MiB with indexes; 10 records in a batch of 60 KiB."""
    folder = tmp_path_factory.mktemp("large") / "topic-0"
    draw = random.Random(1)
    value = draw.randbytes(6_000)
    segments = []
    offset = 0
    for _ in range(3):
        base = offset
        batches = []
        for _ in range(200):
            records = [Record(offset + i, TIME + offset + i, b"k", value) for i in range(10)]
            batches.append(encode_batch(records))
            offset += 10
        segments.append((base, batches))
    make_segments(folder, segments)
    return folder


def count_read(*arguments: object) -> tuple[Result, int]:
    """Run the command; return also the bytes that this process read meanwhile."""

    def read_counter() -> int:
        text = Path("/proc/self/io").read_text()
        return int(re.search(r"rchar: (\d+)", text)[1])

    run(*arguments)  # imports what it needs
    before = read_counter()
    result = run(*arguments)
    return result, read_counter() - before


LITTLE = 1 << 20


@pytest.mark.parametrize(
    "options, count, most",
    [
        ("--offset 5990:5995", 5, LITTLE),
        ("--offset 5995:", 5, LITTLE),
        ("--offset 3000:3001", 1, LITTLE),
        ("--offset :5", 5, LITTLE),
        (f"--where timestamp>={TIME + 5995}", 5, LITTLE),
        ("--since 2023-11-14T22:13:25.995", 5, LITTLE),
        ("--where offset>=5990 --key k --limit 3", 3, LITTLE),
        ("--offset :3500 --tail 5", 5, 4 * LITTLE),  # the last pieces, counted and read
        ("--tail 5", 5, 4 * LITTLE),
    ],
)
def test_little_is_read_of_a_large_log(large_log, options, count, most):
    size = sum(path.stat().st_size for path in large_log.glob("*.log"))
    assert size > 34 << 20
    result, bytes_read = count_read(
        "scan", large_log, "--json", "--columns", "offset", *options.split()
    )
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == count
    assert bytes_read < most, bytes_read


def test_little_is_read_by_stat_and_convert(large_log, tmp_path):
    result, bytes_read = count_read("stat", large_log, "--offset", "5995:", "--json")
    assert json.loads(result.stdout)["total"]["frames"] == 1
    assert bytes_read < LITTLE
    arguments = ("convert", large_log, tmp_path / "out", "--overwrite", "--offset", "5995:")
    result, bytes_read = count_read(*arguments, "--json")
    assert json.loads(result.stdout)["records"] == 5
    assert bytes_read < LITTLE
    _, everything = count_read("scan", large_log, "--json", "--columns", "offset")
    assert everything > 34 << 20  # the counter counts


def test_a_log_without_indexes_has_the_same_rows(large_log, tmp_path):
    copy = tmp_path / "topic-0"
    copy.mkdir()
    for path in large_log.glob("*.log"):
        shutil.copy(path, copy)
    for options in (["--offset", "2995:3005"], ["--since", "2023-11-14T22:13:25.995"]):
        assert read_offsets(copy, *options) == read_offsets(large_log, *options)


# ---- damage


@pytest.fixture
def damaged(tmp_path) -> Path:
    """Ten batches of ten records. The batch with the offsets 30 to 39 is damaged."""
    path = tmp_path / "00000000000000000000.log"
    batches = [
        encode_batch(
            [Record(10 * i + j, TIME + 10 * i + j, b"key-%d" % j, b"v" * 50) for j in range(10)],
            codec="zstd",
        )
        for i in range(10)
    ]
    batches[3] = batches[3][:-1] + bytes([batches[3][-1] ^ 1])
    path.write_bytes(b"".join(batches))
    return path


def test_damage_in_what_is_read_is_reported(damaged, tmp_path):
    around = ("--offset", "25:45")
    wanted = [*range(25, 30), *range(40, 45)]
    for options in ((), ("--where", 'key starts_with "key"')):
        result = run("scan", damaged, *around, *options, "--json", "--columns", "offset")
        assert result.exit_code == 1
        assert "1 bad frame" in result.stderr
        assert [row["offset"] for row in parse_lines(result)] == wanted
    skipped = run("scan", damaged, *around, "--errors", "skip", "--json", "--columns", "offset")
    assert skipped.exit_code == 0
    assert "1 bad frame (dropped)" in skipped.stderr
    strict = run("scan", damaged, *around, "--errors", "strict", "--json", "--columns", "offset")
    assert strict.exit_code == 1
    assert [row["offset"] for row in parse_lines(strict)] == list(range(25, 30))
    assert run("convert", damaged, tmp_path / "out", *around).exit_code == 1
    assert run("stat", damaged, *around).exit_code == 1
    # Nothing is reported after the last selected frame.
    result = run("scan", damaged, "--key", "key-1", "--limit", 3, "--json", "--columns", "offset")
    assert (result.exit_code, result.stderr) == (0, "")
    assert run("scan", damaged, "--where", "fault != null", "--json").exit_code == 1


def test_a_bad_frame_can_be_selected_by_its_fault(damaged):
    result = run("scan", damaged, "--where", "fault == BAD_CRC or fault != null", "--json")
    if result.exit_code == 2:  # the name of the fault is another one
        result = run("scan", damaged, "--where", "fault != null", "--json")
    rows = parse_lines(result)
    assert len(rows) == 1
    assert rows[0]["fault"]


# ---- what cannot be done


def test_input_that_is_read_once(tmp_path):
    raw = (ORDERS / "00000000000000000000.log").read_bytes()
    rows = run("scan", "-", "--offset", "100:103", "--json", "--columns", "offset", input=raw)
    assert [row["offset"] for row in parse_lines(rows)] == [100, 101, 102]
    sample = run("scan", "-", "--sample", "0.01", "--json", "--columns", "offset", input=raw)
    assert 1 < len(parse_lines(sample)) < 60
    packed = tmp_path / "00000000000000000000.log"
    packed.write_bytes(gzip.compress(raw))
    assert read_offsets(packed, "--offset", "100:103") == [100, 101, 102]
    for source, options in (("-", ["--tail", 3]), ("-", ["--sample", 3]), (packed, ["--tail", 3])):
        result = run("scan", source, *options, input=raw)
        assert result.exit_code == 2
        assert "use --sample FRACTION or --limit" in result.stderr
    # convert reads a copy.
    out = tmp_path / "out"
    result = run("convert", packed, "-", out, "--tail", 3, "--no-query", input=raw)
    assert result.exit_code == 0, result.output
    assert pq.read_table(out)["offset"].to_pylist() == [1477, 1478, 1479]


REFUSED = {
    "--offset a": "'a' is not A:B",
    "--offset :": "':' is not A:B",
    "--offset 5:b": "'5:b' is not A:B",
    "--offset -5:": "'-5:' is not A:B",
    "--since yesterday": "yesterday is not a date or time of ISO 8601, or an age such as 2h",
    "--until 5": "5 is not a date",
    "--partition x": "'x' is not N or N,M",
    "--sample 0": "'0' is neither a fraction",
    "--sample 1.5": "'1.5' is neither a fraction",
    "--sample 9999999": "a number of frames from 1 to 1,000,000",
    "--tail 5 --limit 5": "--tail excludes --limit and --sample",
    "--tail 5 --sample 5": "--tail excludes --limit and --sample",
    "--tail -1": "is not in the range",
    "--seed -1": "is not in the range",
    "--where offset==": "at character 9 of the expression: expected a value",
    "--where ofset==1": "did you mean offset?",
    "--offset 5 --format nats.messages": "nats.messages has no offsets",
    "--since 2h --format nats.messages": "nats.messages has no times",
    "--key a --format nats.messages": "nats.messages has no keys",
    "--since 2h --format liftbridge.acks": "has several times (reception_timestamp, commit_times",
}


@pytest.mark.parametrize("options", REFUSED)
@pytest.mark.parametrize("verb", ["scan", "convert"])
def test_a_bad_option_is_refused(verb, options, tmp_path):
    arguments = [ORDERS] if verb == "scan" else [ORDERS, tmp_path / "out"]
    message = " ".join(refuse(verb, *arguments, *options.split()).split())
    assert REFUSED[options] in message
    assert not (tmp_path / "out").exists()


def test_spark_cannot_choose_rows_by_number(tmp_path):
    for option in ("--limit", "--tail", "--sample"):
        message = refuse("convert", ORDERS, tmp_path / "out", "--engine", "spark", option, 5)
        assert "--limit, --tail and --sample need --engine local" in message


def test_a_key_that_is_not_utf8_is_its_bytes():
    (condition,) = make_selection(format_of("kafka.records"), key=["\udcff"]).conditions
    assert condition.value == (b"\xff",)


def test_a_file_that_is_given_twice_is_read_twice():
    path = ORDERS / "00000000000000000000.log"
    assert read_offsets(path, path, "--offset", "5:7") == [5, 6, 5, 6]
