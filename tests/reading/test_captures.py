"""Functions that read files recognize captures of packets by their first bytes."""

import os
import pickle
import shutil
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import wirescan
from tests.support.command import run
from tests.support.paths import CORPUS, ORDERS
from tests.support.simulated_capture import Connection, SimulatedCapture
from wirescan import ExpansionError, Fault, FrameError, Limits, kafka, pcap
from wirescan.core import parallel
from wirescan.core.parallel import FixedWorkers
from wirescan.export import parquet
from wirescan.export.batches import iter_batches
from wirescan.frames.registry import format_of
from wirescan.pcap.extraction.captured_frames import CapturedFrames
from wirescan.reading.captures import choose_source_format
from wirescan.reading.chunked import iter_tables, scan_outermost
from wirescan.reading.growing import GrowingFiles

KAFKA = CORPUS / "pcap" / "kafka.pcap"
NAME = "kafka.requests"
CAPTURED = "kafka.requests?capture=true"
NOT_SENT = (
    "kafka.pcap is a capture of packets: kafka.redpanda_batches are not sent over connections"
)
EXPECTED = wirescan.scan(KAFKA, NAME).to_arrow()


def read_batches(source, **options):
    return pa.Table.from_batches(iter_batches(source, format=NAME, **options))


def read_parquet(source, folder, **options):
    parquet.convert(source, folder / "out", NAME, **options)
    return pq.read_table(folder / "out")


def read_polars(source):
    return wirescan.scan_polars(source, format=NAME).collect().to_arrow()


def read_dataset(source):
    return wirescan.dataset(source, format=NAME).to_table()


def list_rows(table):
    """Return rows that do not depend on how an export writes times."""
    names = ["client", "api_key", "correlation_id", "direction"]
    columns = [table[name].cast(pa.large_string()).to_pylist() for name in names]
    return sorted(zip(*columns))


def test_record_batches():
    assert read_batches(str(KAFKA)).cast(EXPECTED.schema) == EXPECTED
    assert read_batches(KAFKA.read_bytes()).cast(EXPECTED.schema) == EXPECTED
    assert sum(map(len, iter_tables(str(KAFKA), format=NAME))) == len(EXPECTED)


@pytest.mark.parametrize("read", [read_polars, read_dataset, read_batches])
def test_lazy_sources_and_batches(read):
    table = read(str(KAFKA))
    assert {"time", "client", "direction"} <= {*table.column_names}
    assert list_rows(table) == list_rows(EXPECTED)


def test_conditions_of_lazy_sources_name_columns_of_captures():
    import polars

    client = EXPECTED["client"][0].as_py()
    frame = wirescan.scan_polars(KAFKA, format=NAME).filter(polars.col("client") == client)
    assert len(frame.collect()) == EXPECTED["client"].to_pylist().count(client)


@pytest.mark.parametrize("kind", ["file", "list", "directory", "glob"])
def test_parquet(kind, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    shutil.copy(KAFKA, folder)
    (folder / "readme.txt").write_text("about")
    path = str(folder / KAFKA.name)
    sources = {"file": path, "list": [path], "directory": folder, "glob": f"{folder}/*.pcap"}
    assert list_rows(read_parquet(sources[kind], tmp_path)) == list_rows(EXPECTED)


def test_formats_that_are_not_sent_are_refused(tmp_path):
    for read in (
        lambda: list(iter_batches(str(KAFKA), format="kafka.redpanda_records")),
        lambda: parquet.convert(KAFKA, tmp_path / "out", "kafka.redpanda_records"),
        lambda: wirescan.scan_polars(KAFKA, format="kafka.redpanda_records"),
        lambda: wirescan.dataset([KAFKA], format="kafka.redpanda_records"),
    ):
        with pytest.raises(ValueError, match=NOT_SENT):
            read()


def test_a_part_of_a_file_has_the_format_that_is_named():
    with pytest.raises(FrameError):
        list(iter_batches(str(KAFKA), 0, KAFKA.stat().st_size, format=NAME))


def test_which_sources_are_looked_at(tmp_path):
    assert choose_source_format(NAME, KAFKA) == CAPTURED
    assert choose_source_format(NAME, f"file://{KAFKA}") == CAPTURED
    assert choose_source_format(CAPTURED, KAFKA) == CAPTURED
    assert choose_source_format("pcap.packets", KAFKA) == "pcap.packets"
    # The first file decides.
    assert choose_source_format(NAME, [ORDERS / "00000000000000000000.log", KAFKA]) == NAME
    # A file that does not exist yet, and an empty list.
    assert choose_source_format(NAME, tmp_path / "none") == NAME
    assert choose_source_format(NAME, f"{tmp_path}/*.pcap") == NAME
    assert choose_source_format(NAME, []) == NAME
    # A URL with another name is not asked for, so the store does not matter.
    assert choose_source_format(NAME, "s3://no-bucket/orders.log") == NAME


def test_a_capture_beside_files_of_the_format_changes_nothing(tmp_path):
    shutil.copy(KAFKA, tmp_path)
    assert choose_source_format(NAME, tmp_path) == CAPTURED
    shutil.copy(ORDERS / "00000000000000000000.log", tmp_path)
    assert choose_source_format("kafka.records", tmp_path) == "kafka.records"


def test_a_pipe_loses_no_bytes(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = KAFKA.read_bytes()
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    assert choose_source_format(NAME, pipe) == NAME
    writer.start()
    assert pipe.read_bytes() == data
    writer.join()


def test_objects_are_looked_at_if_they_are_named_as_captures(monkeypatch):
    asked = []

    def read_range(path, start, stop):
        asked.append(path)
        return memoryview(KAFKA.read_bytes())[start:stop]

    monkeypatch.setattr("wirescan.reading.captures.read_range", read_range)
    assert choose_source_format(NAME, "s3://bucket/a.pcap") == CAPTURED
    assert choose_source_format(NAME, "s3://bucket/a.bin") == NAME
    assert asked == ["s3://bucket/a.pcap"]


def test_a_growing_capture_is_refused():
    with pytest.raises(ValueError, match="are not read as it grows"):
        GrowingFiles([str(KAFKA)], CAPTURED)
    result = run("scan", "--follow", KAFKA, "--format", NAME)
    assert result.exit_code == 2
    assert "kafka.requests of a capture are not read as it grows" in result.stderr


def test_duckdb_reads_a_dataset():
    import duckdb

    frames = wirescan.dataset(KAFKA, format=NAME)
    assert frames is not None
    assert duckdb.sql("SELECT count(DISTINCT client) FROM frames").fetchall() == [(4,)]


SENT = [format for format in wirescan.formats().values() if format.conversation is not None]
HEADS = [
    pcap.encode_pcap([(0, bytes(60))], nanoseconds=nanoseconds) for nanoseconds in (False, True)
] + [
    b"\xa1\xb2\xc3\xd4\0\2\0\4" + bytes(80),
    b"\xa1\xb2\x3c\x4d\0\2\0\4" + bytes(80),
    pcap.encode_pcapng([]),
]


@pytest.mark.parametrize(
    "format",
    [*SENT, wirescan.formats()["kafka.batches"]],
    ids=lambda format: format.name,
)
def test_direct_calls_say_that_the_source_is_a_capture(format):
    for data in HEADS:
        with pytest.raises(FrameError, match="the source is a capture of packets") as caught:
            format.read(data)
        hint = f'use wirescan.scan(source, "{format.name}")'
        assert hint in str(caught.value)
        # In the other modes, the bytes are damage as any other ones.
        assert not len(format.read(data, errors="skip"))
        again = pickle.loads(pickle.dumps(caught.value))
        assert str(again) == str(caught.value)


def test_a_direct_call_names_the_file():
    with pytest.raises(FrameError) as caught:
        kafka.requests(KAFKA)
    assert str(caught.value).startswith(
        'the source is a capture of packets: use wirescan.scan(source, "kafka.requests") '
        f"(BAD_LENGTH) at byte 0 of {KAFKA}, row 0: "
    )


def test_damage_later_is_no_capture():
    frames = kafka.encode_request("ApiVersions", 0)
    with pytest.raises(FrameError) as caught:
        kafka.requests(frames + KAFKA.read_bytes())
    assert "capture" not in str(caught.value)


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
@pytest.mark.parametrize("name", ["kafka.requests", "kafka.exchanges", "pcap.packets"])
def test_errors_of_compressed_captures_say_so(codec, name, tmp_path):
    raw = (CORPUS / "pcap" / "kafka.pcap").read_bytes()
    path = tmp_path / "capture"
    path.write_bytes(pa.Codec(codec).compress(raw, asbytes=True))
    hint = f"the source is compressed with {codec}: decompress it first"
    with pytest.raises(FrameError, match=hint):
        wirescan.scan(path, name)
    with pytest.raises(FrameError, match=hint):
        for _ in iter_batches(path, format=name):
            pass
    with pytest.raises(FrameError, match=hint):
        wirescan.stream(name).feed(path.read_bytes())
    assert wirescan.scan(path, "kafka.requests", errors="mark").bad.all()


@pytest.mark.parametrize("where", [None, "correlation_id > 2"])
def test_pieces_are_read_of_a_path_as_of_its_text(where):
    options = {"format": NAME, "where": where}
    batches = [list(iter_batches(source, **options)) for source in (KAFKA, str(KAFKA))]
    assert batches[0] == batches[1]
    assert sum(len(batch) for batch in batches[0]) > 0
    tables = [list(iter_tables(source, **options)) for source in (KAFKA, str(KAFKA))]
    assert [len(table) for table in tables[0]] == [len(table) for table in tables[1]]


def test_an_empty_file_beside_captures_is_read_as_one(tmp_path):
    """tcpdump has just made the next file of a rotation."""
    shutil.copy(KAFKA, tmp_path / "1.pcap")
    (tmp_path / "2.pcap").write_bytes(b"")
    expected = wirescan.scan(KAFKA, NAME)
    for source in (tmp_path, tmp_path / "*.pcap", [b"", KAFKA.read_bytes()]):
        assert wirescan.scan(source, NAME)["time"].tolist() == expected["time"].tolist()
    assert len(wirescan.scan(tmp_path / "2.pcap", NAME)) == 0


def read_in_pieces(raw, format, workers, errors):
    """Return the frames of each table, and the text of the error that ends them."""
    frames = []
    with FixedWorkers(workers):
        try:
            for table in iter_tables(raw, format=format, piece=500, errors=errors):
                frames.append((len(table), table.to_arrow().to_pylist()))
        except FrameError as error:
            return frames, str(error)
    return frames, None


def count_before_limit(path, workers):
    """Return how many records are read before they are more than the bytes that were read allow."""
    count = 0
    options = {"piece": 100_000, "limits": Limits(expansion=200)}
    with FixedWorkers(workers), pytest.raises(ExpansionError) as caught:
        for table in iter_tables(path, format="kafka.records?capture=true", **options):
            count += len(table)
    assert caught.value.source == path
    return count


def make_request(values, codec):
    batch = bytes(kafka.encode_batch([{"value": value} for value in values], codec=codec))
    topics = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
    return bytes(kafka.encode_request("Produce", 8, {"topic_data": topics}))


def test_bytes_that_are_read_ahead_do_not_allow_more(tmp_path):
    """The first MiB has a fixed allowance, so the bytes that expand come after it."""
    capture = SimulatedCapture()
    connection = Connection((bytes([10, 0, 0, 1]), 40_000), (bytes([10, 0, 0, 2]), 9092))
    capture.connect(connection)
    for request, count in (
        (make_request([bytes(60_000)], "none"), 30),
        (make_request([bytes(200_000)] * 2, "gzip"), 2000),
    ):
        for _ in range(count):
            capture.send(connection, 0, request, size=60_000)
    path = tmp_path / "large.pcap"
    path.write_bytes(capture.to_pcap())
    counts = [count_before_limit(str(path), workers) for workers in (1, 2)]
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("errors", ["strict", "mark"])
@pytest.mark.parametrize("format", [CAPTURED, "kafka.responses?capture=true"])
def test_pieces_that_are_read_ahead_have_the_same_frames(format, errors):
    """Damage in the middle ends the frames at the same place under "strict"."""
    raw = bytearray(KAFKA.read_bytes())
    for damage in (b"", bytes(400)):
        middle = len(raw) // 2
        raw[middle : middle + len(damage)] = damage
        one, several = (read_in_pieces(bytes(raw), format, workers, errors) for workers in (1, 2))
        assert one == several
        assert len(one[0]) > 1
        assert (one[1] is not None) == (errors == "strict" and bool(damage))


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_that_was_read_ahead_comes_in_its_turn_and_names_the_file(workers, monkeypatch):
    fed = []
    feed = CapturedFrames.feed

    def fail_at_last(reader, table):
        fed.append(table)
        if len(fed) == 4:
            raise FrameError(Fault.LOST, 7, 0, b"")
        return feed(reader, table)

    monkeypatch.setattr(CapturedFrames, "feed", fail_at_last)
    count = 0
    with FixedWorkers(workers), pytest.raises(FrameError) as caught:
        for _ in iter_tables(str(KAFKA), format=CAPTURED, piece=500):
            count += 1
    assert (caught.value.fault, caught.value.source) == (Fault.LOST, str(KAFKA))
    assert count > 0


def test_frames_of_a_stream_are_not_held_back():
    """Each table comes before the next chunk is asked for, with any number of threads."""
    raw = KAFKA.read_bytes()

    def receive(asked):
        for start in range(0, len(raw), 2000):
            asked.append(start)
            yield raw[start : start + 2000]

    def note_chunks(workers):
        asked = []
        with FixedWorkers(workers):
            return [asked[-1] for _ in scan_outermost(receive(asked), format_of(CAPTURED))]

    one = note_chunks(1)
    assert note_chunks(2) == one
    assert len(set(one)) > 5


@pytest.mark.parametrize("read", [read_batches, read_parquet], ids=["batches", "parquet"])
@pytest.mark.parametrize("workers", [1, 2])
def test_one_worker_reads_captures_without_another_thread(read, workers, monkeypatch, tmp_path):
    threads = set()
    feed = CapturedFrames.feed

    def note_thread(reader, table):
        threads.add(threading.current_thread().name)
        return feed(reader, table)

    monkeypatch.setattr(CapturedFrames, "feed", note_thread)
    monkeypatch.setattr(parallel, "count_cores", lambda: 2)
    monkeypatch.delenv(parallel.WORKERS_VARIABLE, raising=False)
    arguments = (tmp_path,) if read is read_parquet else ()
    read(str(KAFKA), *arguments, workers=workers)
    assert any(name.startswith("wirescan") for name in threads) == (workers == 2)
