"""`Allowance`: what the bytes of one file may expand to, and what large ordinary files need."""

import copy
import pickle
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.hostile import (
    HOSTILE,
    ROW_MAKERS,
    make_wrong_lumberjack,
    make_wrong_thrift,
    make_zstd_batches,
    measure_table,
)
from tests.support.slowness import SLOWNESS
from wirescan import ExpansionError, FrameError, Limits, formats, kafka, thrift
from wirescan.cli.main import main
from wirescan.core.fault import Fault
from wirescan.export.parquet import convert
from wirescan.frames.codecs import compress
from wirescan.reading.allowance import FIRST_BYTES, PAIR_COST, ROW_COST, ROWS_PER_BYTE, Allowance
from wirescan.reading.chunked import iter_tables
from wirescan.reading.growing import GrowingFiles
from wirescan.reading.nested_groups import INFLATED, ROW_BYTES

LOG = f"{0:020}.log"
MILLION = 1_000_000
MOST_SECONDS = 10  # of the processor: it takes about 1 where nobody else uses the machine
DEFAULT = 512 * FIRST_BYTES  # the allowance of a small file, in bytes


@pytest.fixture
def hostile_log(tmp_path):
    """A log of 45 KB whose batches hold 2.5 million records."""
    path = tmp_path / LOG
    path.write_bytes(make_zstd_batches(500, 5000))
    return str(path)


def read_all(path, format, **options):
    """Return (the rows, the bytes) that a file gave, and whether its allowance ended the reading.

    The bytes are those that its tables held beside the file, one table after another.
    """
    rows = 0
    held = 0
    try:
        for table in iter_tables(path, format=format, errors="mark", **options):
            rows += len(table)
            held += measure_table(table, bytes(table.outermost.buffers[0]))
    except ExpansionError:
        return rows, held, True
    except FrameError as error:
        assert error.fault == Fault.LIMIT
    return rows, held, False


READABLE = [name for name in HOSTILE if name.partition(",")[0] in formats()]


@pytest.mark.parametrize("size", [20_000, pytest.param(MILLION, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", READABLE)
def test_hostile_bytes_expand_to_little(name, size, tmp_path):
    path = tmp_path / LOG
    path.write_bytes(HOSTILE[name][0](size))
    begun = time.process_time()
    rows, held, _ = read_all(str(path), name.partition(",")[0])
    assert time.process_time() - begun < MOST_SECONDS * SLOWNESS
    assert rows <= DEFAULT // ROW_COST
    assert held <= 2 * DEFAULT + INFLATED + ROW_BYTES


@pytest.mark.parametrize("name", ["kafka.records, rows", "thrift.fields, rows"])
@pytest.mark.parametrize(
    "errors", ["mark", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("strict", "skip"))]
)
def test_the_error_names_the_position_and_the_limit(name, errors, tmp_path):
    path = tmp_path / LOG
    path.write_bytes(HOSTILE[name][0](100_000))
    with pytest.raises(ExpansionError, match=r"larger expansion.*--max-expansion") as caught:
        list(iter_tables(str(path), format=name.partition(",")[0], errors=errors))
    error = caught.value
    assert error.fault == Fault.LIMIT
    assert str(path) in str(error) and f"at byte {error.offset} of" in str(error)
    assert path.read_bytes()[error.offset :].startswith(error.near)
    assert str(pickle.loads(pickle.dumps(error))) == str(copy.copy(error)) == str(error)


def test_the_position_is_that_of_the_first_frame_that_was_not_returned(hostile_log):
    size = kafka.scan(make_zstd_batches(1, 5000))["size"][0]
    records = 0
    with pytest.raises(ExpansionError) as caught:
        for table in iter_tables(hostile_log, format="kafka.records"):
            records += len(table)
    assert caught.value.offset == records // 5000 * size


@pytest.mark.parametrize("name", ROW_MAKERS)
def test_limits_raise_and_remove_it(name, tmp_path):
    path = tmp_path / LOG
    path.write_bytes(ROW_MAKERS[name]())
    rows, _, ended = read_all(str(path), name, limits=Limits(expansion=1))
    assert rows == 0 and ended
    for expansion in (512, None):
        rows, _, ended = read_all(str(path), name, limits=Limits(expansion=expansion))
        assert rows >= 10_000 and not ended


def test_expansion_is_a_positive_number_or_none():
    with pytest.raises(ValueError, match="limit expansion=0"):
        Limits(expansion=0)
    with pytest.raises(TypeError):
        Limits(expansion="1")


def test_the_allowance_grows_with_the_bytes_read():
    allowance = Allowance(Limits(expansion=10))
    assert allowance.total == 10 * FIRST_BYTES
    allowance.count_read(2 * FIRST_BYTES)
    assert allowance.total == 10 * FIRST_BYTES
    assert list(allowance.count_chunks([b"ab", b"c"])) == [b"ab", b"c"]
    assert allowance.total == 10 * (FIRST_BYTES + 3)


def test_a_row_for_each_byte_is_never_too_much():
    allowance = Allowance(Limits(expansion=10))
    assert allowance.row_total == 10 * FIRST_BYTES
    allowance.count_read(FIRST_BYTES)
    assert allowance.row_total == ROW_COST * FIRST_BYTES
    allowance.count_read(FIRST_BYTES + 3)
    assert allowance.row_total == ROW_COST * (2 * FIRST_BYTES + 3) + 10 * ROWS_PER_BYTE * 3


def test_lists_of_single_bytes_are_read(tmp_path):
    """Each byte of the file is a row of thrift.fields."""
    arguments = b"\x0f\0\1\x03" + (10_000).to_bytes(4, "big") + bytes(10_000) + b"\0"
    message = thrift.encode_message("m", thrift.MessageType.CALL, 1, arguments)
    path = tmp_path / "calls"
    path.write_bytes(bytes(thrift.encode_framed(message)) * 200)
    rows, _, ended = read_all(str(path), "thrift.fields")
    assert rows >= 2_000_000 and not ended


def test_logs_of_equal_small_records_are_read(tmp_path):
    batch = make_zstd_batches(1, 400)  # two records for each byte
    path = tmp_path / LOG
    path.write_bytes(batch * (2 * MILLION // len(batch)))
    rows, _, ended = read_all(str(path), "kafka.records")
    assert rows > 4 * MILLION and not ended


def test_damaged_payloads_count():
    """Their bytes are decompressed up to the damage."""
    batches = kafka.scan(make_zstd_batches(40, 5000), check=False)
    rows = kafka.records(batches).rows.copy()
    rows["fault"] = Fault.BAD_COMPRESSION
    rows["size"] = 1 << 15
    refused = replace(kafka.records(batches), rows=rows[:10])
    allowance = Allowance(Limits(expansion=512))
    with pytest.raises(ExpansionError):
        allowance.spend_nested(refused, batches)


def test_formats_inside_the_same_frames_are_counted_apart():
    batches = kafka.scan(make_zstd_batches(100, 5000))
    records = kafka.records(batches)
    headers = kafka.headers(records)
    allowance = Allowance(Limits(expansion=500))
    allowance.spend_nested(records, batches)
    allowance.spend_nested(headers, batches)
    with pytest.raises(ExpansionError):
        allowance.spend_nested(records, batches)


def test_pairs_in_lists_count():
    data = kafka.encode_batch([{"value": b"", "headers": [(b"", b"")] * 1000}], codec="zstd")
    batches = kafka.scan(bytes(data))
    records = kafka.records(batches)
    needed = -(-(PAIR_COST * 1000 + ROW_COST) // FIRST_BYTES)
    assert needed == 1
    allowance = Allowance(Limits(expansion=1))
    for _ in range(FIRST_BYTES // (PAIR_COST * 1000 + ROW_COST)):
        allowance.spend_nested(records, batches)
    with pytest.raises(ExpansionError):
        allowance.spend_nested(records, batches)


def test_refused_payloads_count(tmp_path):
    payload = compress("zstd", bytes(3 << 19))  # 1.5 MiB, above the ratio
    batch = bytearray(kafka.encode_batch([b""], codec="zstd"))[:61] + payload
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    path = tmp_path / LOG
    path.write_bytes(bytes(batch) * 600)
    assert read_all(str(path), "kafka.records", check=False)[2]


@pytest.mark.parametrize(
    ("format", "make"),
    [("lumberjack.events", make_wrong_lumberjack), ("thrift.plain", make_wrong_thrift)],
)
def test_streams_with_wrong_checksums_count(format, make, tmp_path):
    """All of a stream is decompressed until its checksum shows that it is damaged."""
    path = tmp_path / "sent.bin"
    path.write_bytes(make(1_000_000) * 400)
    assert read_all(str(path), format)[2]
    path.write_bytes(make(1000) * 400)
    rows, _, ended = read_all(str(path), format)
    assert (rows, ended) == (400, False)


def test_frames_of_another_key_do_not_count(tmp_path):
    """Their mac is verified before they are decompressed."""
    message = thrift.encode_message("m", 1, 1, bytes(100_000))
    transforms = [thrift.Transform.ZLIB, thrift.Transform.HMAC]
    frame = thrift.encode_frame(message, transforms=transforms, key=b"key")
    frames = thrift.scan(frame * 20_000)
    plain = thrift.plain(frames[:10], key=b"other", errors="mark")
    assert set(plain["fault"].tolist()) == {Fault.BAD_CHECKSUM}
    allowance = Allowance(Limits())
    for _ in range(20_000 // 10):
        allowance.spend_nested(plain, frames[:10])


# ---- ordinary logs


def compressible_log(size: int) -> bytes:
    """Batches of JSON lines that differ in one number: zstd makes them 200 times smaller."""
    fields = ",".join(f'"field {i}":"the value number {i}"' for i in range(30))
    lines = [f'{{"number":{i},{fields}}}'.encode() for i in range(5000)]
    batch = bytes(kafka.encode_batch(lines, codec="zstd"))
    return batch * (size // len(batch))


@pytest.mark.parametrize("size", [MILLION, pytest.param(5 * MILLION, marks=pytest.mark.slow)])
def test_compressible_logs_pass(size, tmp_path):
    path = tmp_path / LOG
    path.write_bytes(compressible_log(size))
    inflated = 0
    for table in iter_tables(str(path), format="kafka.records"):
        inflated += int(table["size"].sum())
    assert inflated > 150 * size


def test_logs_of_any_size_pass():
    """Counted, not read: a log of 40 GB in which a byte becomes 400 bytes, in pieces of 8 MiB."""
    allowance = Allowance(Limits())
    piece = 8 << 20
    for _ in range((40 << 30) // piece):
        allowance.count_read(piece)
    assert allowance.total > 400 * (40 << 30)


# ---- every way to read a file


VERBS = {
    "scan": ["scan", "--json"],
    "stat": ["stat", "--deep", "--format", "kafka.batches"],
    "verify": ["verify"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_end_with_an_error(verb, hostile_log):
    name, *options = VERBS[verb]
    done = CliRunner().invoke(main, [name, hostile_log, *options])
    assert done.exit_code == 1 and "--max-expansion" in done.stderr
    assert "(LIMIT)" in done.stderr


def test_the_option_raises_the_limit(tmp_path):
    path = tmp_path / LOG
    path.write_bytes(make_zstd_batches(2, 5000))
    command = ["stat", str(path), "--deep", "--max-expansion"]
    assert CliRunner().invoke(main, [*command, "1"]).exit_code == 1
    assert CliRunner().invoke(main, [*command, "20"]).exit_code == 0
    assert CliRunner().invoke(main, [*command, "0"]).exit_code == 0


def test_parquet_ends_with_an_error(hostile_log, tmp_path):
    with pytest.raises(ExpansionError):
        convert(hostile_log, tmp_path / "out", "kafka.records", errors="mark")
    assert not (tmp_path / "out").exists()


def test_growing_files_end_with_an_error(hostile_log):
    growing = GrowingFiles([hostile_log], "kafka.records", errors="mark")
    [[part]] = growing.plan_tasks({}, growing.find_latest({}))
    with pytest.raises(ExpansionError):
        list(growing.read_tables(part))


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_files_that_are_compressed_as_a_whole_count_as_stored(codec, tmp_path):
    path = tmp_path / "conversation"
    noise = random.Random(1).randbytes(4000)  # without it zstd's ratio is above another limit
    data = b"+OK\r\n" * 600_000 + b"PUB a 4000\r\n" + noise + b"\r\n"
    path.write_bytes(compress(codec, data))
    options = ["stat", str(path), "--format", "nats.messages"]
    done = CliRunner().invoke(main, options)
    assert done.exit_code == 1 and "--max-expansion" in done.stderr
    assert CliRunner().invoke(main, [*options, "--max-expansion", "0"]).exit_code == 0


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_convert_bounds_the_contents_of_a_compressed_file(codec, tmp_path):
    path = tmp_path / "conversation"
    noise = random.Random(1).randbytes(4000)
    message = b"PUB a 1004000\r\n" + bytes(1_000_000) + noise + b"\r\n"
    path.write_bytes(compress(codec, message * 3))
    out = str(tmp_path / "out.parquet")
    command = ["convert", str(path), out, "--format", "nats.messages", "--max-expansion"]
    done = CliRunner().invoke(main, [*command, "5"])
    assert done.exit_code == 1 and "--max-expansion" in done.stderr
    assert not Path(out).exists()
    assert CliRunner().invoke(main, [*command, "6"]).exit_code == 0
