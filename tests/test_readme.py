"""The examples of the README and of the pages in docs/ run with the corpus."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.strategies.kafka_redpanda import make_batch as make_redpanda_batch
from tests.support.readme import ROOT, find_block, find_blocks
from wirescan import scan, thrift
from wirescan.cli.main import main
from wirescan.frames.columns import RESERVED, UNITS, list_computed
from wirescan.frames.registry import format_of
from wirescan.kafka import encode_batch
from wirescan.liftbridge import encode_entries, encode_message
from wirescan.lumberjack import encode_batch as encode_window
from wirescan.nats import encode_pub

CORPUS = ROOT / "tests/corpus/kafka/orders-0"
METADATA = ROOT / "tests/corpus/kafka-metadata/4"
STREAM = ROOT / "tests/corpus/kafka-streams/java-4/group-1"
GROUP_STREAM = ROOT / "tests/corpus/kafka-streams/java-4/group-2"  # to the group's coordinator


def run(code: str, folder: Path) -> None:
    """Run Python code in a folder, in an empty namespace."""
    with contextlib.chdir(folder):
        exec(compile(code, "docs", "exec"), {"__name__": "__main__"})


def run_in_a_process(code: str, folder: Path) -> None:
    """Run Python code in a child process, for code that starts threads or Spark."""
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


def use_local_paths(code: str, folder: Path) -> str:
    """Replace the paths of the examples by the corpus and by paths in a folder."""
    return (
        code.replace("/var/lib/kafka/orders-0", str(CORPUS))
        .replace("/data/orders-0", str(CORPUS))
        .replace("/data/*-0", str(folder / "data" / "*-0"))
        .replace("/data/events", str(folder / "data" / "events"))
        .replace("/data/rpc", str(folder / "data" / "rpc"))
        .replace('"out"', repr(str(folder / "out")))
        .replace("/var/lib/kafka/__consumer_offsets-0", str(folder / "__consumer_offsets-0"))
    )


def test_every_block_is_run():
    words = (
        "polars.DataFrame",
        "wirescan.where",
        "wirescan.detect",
        "scan_polars",
        "duckdb.execute",
        "records.to_table",
        "to_polars()",
        "duckdb.sql",
        "to_pandas(",
        "floor_temporal",
        "createOrReplaceTempView",
        "PartitionLog",
        "kafka.ControlType",
        "kafka.metadata_records(records)",
        "kafka.scan_redpanda(",
        "read_redpanda_manifest",
        "kafka.pair",
        "kafka.encode_batches",
        "wirescan.stream",
        "groupBy",
        "wirescan.spark.faults",
        "kafka.Client",
        "import lumberjack",
        "import nats",
        "import liftbridge, nats",
        "import thrift",
    )
    assert sorted(map(find_block, words)) == sorted(find_blocks("python"))


@pytest.mark.parametrize("name", ["kafka.batches", "kafka.records", "kafka.metadata_records"])
def test_tables_of_columns_list_the_columns_of_the_format(name):
    page = (ROOT / "docs/kafka.md").read_text()
    _, _, after = page.partition(f"<!-- columns: {name} -->\n")
    table, _, _ = after.partition("\n\n")
    header, _, *lines = [
        [cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.splitlines()
    ]
    assert header == ["column", "dtype", "unit", "null", "meaning"]
    format = format_of(name)
    own = [name for name in format.dtype.names if name != RESERVED]
    assert [line[0] for line in lines] == [*own, *list_computed(format.dtype, format.columns)]
    for column, dtype, unit, null, _ in lines:
        declared = format.get_column(column)
        assert np.dtype(dtype) == format.describe_column(column).dtype, column
        assert declared.null in (None, int(null or 0)), column
        assert (unit == "offset") == declared.is_offset, column
        assert (unit if unit in UNITS else None) == declared.unit, column


def test_null_values_of_the_tables_of_columns():
    """A message of magic 0 without key, a wrapper, a tombstone with a key size of -2."""
    from wirescan import kafka

    tombstone = bytearray(kafka.encode_batch([kafka.Record(10, 5, None, None)]))
    tombstone[65] = 3  # the size of the key, -2 as a zigzag varint
    raw = (
        kafka.encode_message_set([kafka.Record(0, None, None, b"")], magic=0)
        + kafka.encode_message_set(
            [kafka.Record(5, 7, None, b"v"), kafka.Record(6, 8, b"k", b"v")], magic=1, codec="gzip"
        )
        + bytes(tombstone)
    )
    batches = scan(raw, "kafka.batches", check=False)
    assert batches["parent"].tolist() == [-1] * 3
    assert batches["base_offset"].tolist() == batches["last_offset"].tolist() == [0, 6, 10]
    assert batches["record_count"].tolist() == [1, -1, 1]
    assert batches["max_timestamp"].tolist() == [-1, 8, 5]
    for column in ("producer_id", "producer_epoch", "base_sequence", "leader_epoch"):
        assert batches[column].tolist() == [-1] * 3
    records = kafka.records(batches, check=False)
    assert records["offset"].tolist() == [0, 5, 6, 10]
    assert records["timestamp"].tolist() == [-1, 7, 8, 5]
    assert records["key_size"].tolist() == [-1, -1, 1, -1]
    assert records["value_size"].tolist() == [0, 1, 1, -1]
    assert records["header_count"].tolist() == [0] * 4


def test_the_example_of_reading_runs(tmp_path):
    run(use_local_paths(find_block("polars.DataFrame"), tmp_path), tmp_path)


def test_the_examples_of_lazy_sources_agree(tmp_path):
    result = """
import json
rows = customers
if hasattr(rows, "to_pylist"):
    rows = [tuple(row.values()) for row in rows.to_pylist()]
elif hasattr(rows, "rows"):
    rows = rows.rows()
rows = sorted((key.decode() if key else "", count, size or 0) for key, count, size in rows)
with open("customers.json", "w") as file:
    json.dump(rows, file)
"""
    results = []
    for word in ("scan_polars", "duckdb.execute", "records.to_table"):
        run(use_local_paths(find_block(word), tmp_path) + result, tmp_path)
        results.append((tmp_path / "customers.json").read_text())
    assert len(set(results)) == 1
    assert len(results[0]) > 1000


# Writes the variable `hourly` of an example: [[key, hour, records, bytes], ...], sorted.
WRITE_HOURLY = """
import json, datetime
names = ["key", "hour", "records", "bytes"]
if hasattr(hourly, "collect"):  # Spark; its rows have local times without a zone
    rows = [list(row) for row in hourly.collect()]
elif hasattr(hourly, "rows"):  # polars
    rows = [list(row) for row in hourly.rows()]
elif hasattr(hourly, "reset_index"):  # pandas
    flat = hourly.reset_index()[names]
    flat["key"] = flat["key"].where(flat["key"].notna(), None)
    rows = flat.values.tolist()
else:
    table = hourly if hasattr(hourly, "append_column") else hourly.to_arrow_table()
    rows = [list(row.values()) for row in table.to_pylist()]
assert len(rows) > 800
assert [row[3] or 0 for row in rows] == sorted((row[3] or 0 for row in rows), reverse=True)
rows = [
    [(bytes(key).decode() if key else repr(key)), int(hour.timestamp()), int(count), int(size or 0)]
    for key, hour, count, size in rows
]
with open("hourly.json", "w") as file:
    json.dump(sorted(rows), file)
"""


def run_hourly(word: str, folder: Path) -> str:
    """Run the example that has a word, and return its result as JSON."""
    code = use_local_paths(find_block(word), folder)
    if "spark" in code:
        run_in_a_process(code + WRITE_HOURLY, folder)
    else:
        run(code + WRITE_HOURLY, folder)
    return (folder / "hourly.json").read_text()


def test_the_examples_of_data_frames_agree(tmp_path):
    words = ("to_polars()", "duckdb.sql", "to_pandas(", "floor_temporal")
    results = [run_hourly(word, tmp_path) for word in words]
    assert len(set(results)) == 1
    records = scan(CORPUS, "kafka.records")
    rows = json.loads(results[0])
    assert sum(count for _, _, count, _ in rows) == len(records)
    assert sum(size for *_, size in rows) == records["value_size"].clip(0).sum()
    assert len({hour for _, hour, *_ in rows}) == 3


@pytest.mark.spark
def test_the_example_of_data_frames_in_spark_agrees(tmp_path):
    assert run_hourly("createOrReplaceTempView", tmp_path) == run_hourly("to_polars()", tmp_path)


def test_a_table_prints_as_the_page_shows():
    page = (ROOT / "docs/dataframes.md").read_text()
    printed = page.partition("<!-- printed -->\n```\n")[2].partition("\n```")[0]
    assert repr(scan(CORPUS, "kafka.records").head(3)) == printed


def test_offset_is_a_word_of_sql():
    """The page says which names need quotes in DuckDB."""
    import duckdb

    records = scan(CORPUS, "kafka.records").head(3)
    with pytest.raises(duckdb.ParserException):
        duckdb.sql("SELECT offset FROM records")
    rows = duckdb.sql('SELECT "offset", epoch_ms("timestamp") FROM records').fetchall()
    assert rows == list(zip(records["offset"].tolist(), records["timestamp"].tolist()))


def test_the_example_of_chunks_runs(tmp_path):
    chunks = (
        f"data = open({str(CORPUS / '00000000000000000000.log')!r}, 'rb').read()\n"
        "chunks = [data[i:i + 1000] for i in range(0, len(data), 1000)]\n"
    )
    run(chunks + find_block("wirescan.stream"), tmp_path)


def test_the_example_of_a_directory_runs(tmp_path):
    offsets = tmp_path / "__consumer_offsets-0"
    offsets.mkdir()
    key = struct.pack(">hh5sh6si", 1, 5, b"group", 6, b"orders", 0)
    value = struct.pack(">hqihq", 3, 26_000, -1, 0, 1_750_000_000_000)
    (offsets / "00000000000000000000.log").write_bytes(encode_batch([(0, 0, key, value)]))
    code = use_local_paths(find_block("PartitionLog"), tmp_path)
    code = code.replace("\nkafka.body", "\ncommits = kafka.body")
    code += "assert commits['offset'].tolist() == [26_000]\n"
    run("from wirescan import kafka\n" + code, tmp_path)


def test_the_example_of_control_records_runs(tmp_path):
    code = use_local_paths(find_block("kafka.ControlType"), tmp_path)
    code += "assert (len(markers), len(aborted)) == (8, 4)\n"
    run("import wirescan\nfrom wirescan import kafka\n" + code, tmp_path)


def test_the_example_of_the_metadata_log_runs():
    code = find_block("kafka.metadata_records(records)")
    code = code.replace("/var/lib/kafka/__cluster_metadata-0", str(METADATA))
    code += "assert len(topics) == 2 and len(partitions) == 5 and len(brokers) == 2\n"
    run("from wirescan import kafka\n" + code, ROOT)


@pytest.mark.parametrize("stream, table", [(STREAM, "partitions"), (GROUP_STREAM, "commits")])
def test_the_example_of_streams_runs(tmp_path, stream, table):
    for side in ("requests", "responses"):
        shutil.copy(f"{stream}.{side}.bin", tmp_path / f"connection.{side}.bin")
    example = "from wirescan import kafka\n" + find_block("kafka.pair")
    run(f"{example}assert len({table})\n", tmp_path)


def test_the_example_of_writing_runs(tmp_path):
    columns = (
        "import numpy\n"
        "import pyarrow\n"
        "from wirescan import kafka\n"
        "keys = values = pyarrow.array([b'a', b'b'])\n"
        "times = numpy.arange(2)\n"
    )
    run(columns + find_block("kafka.encode_batches"), tmp_path)


SERVER = """
import asyncio, threading
from wirescan.lumberjack import Server
stored = []
started = threading.Event()

def store(windows):
    for window in windows:
        stored.extend(window.events)

async def serve():
    global server
    server = Server(store)
    await server.start("127.0.0.1", 0)
    started.set()
    await server.run()
threading.Thread(target=asyncio.run, args=(serve(),), daemon=True).start()
started.wait()
documents = [b'{"message":"one"}']
"""


def test_the_example_of_lumberjack_runs(tmp_path):
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "1.lumberjack").write_bytes(encode_window([{"message": "one"}] * 3))
    code = find_block("import lumberjack").replace('"logs", 5044, tls=True', "*server.addresses[0]")
    check = "assert len(events) == 3\nassert len(stored) == 2\n"
    run_in_a_process(SERVER + code + check, tmp_path)


def write_connection(folder: Path) -> None:
    """Write the bytes of a connection of NATS: a message of Liftbridge, and two others."""
    message = encode_message(b"one", key=b"k", headers={"a": b"b"})
    raw = encode_pub("orders", message, reply="inbox") + encode_pub("orders", b"plain")
    raw += encode_pub("bills", b"marked", headers={"a": "b", "c": "d"})
    (folder / "connection.nats").write_bytes(raw)


def test_the_example_of_nats_runs(tmp_path):
    write_connection(tmp_path)
    columns = "import pyarrow\nsubjects = payloads = pyarrow.array([b'a', b'b'])\n"
    checks = (
        "assert (len(messages), len(published), len(lines)) == (3, 2, 2)\n"
        "assert bytes(nats.scan(again)[0].subject) == b'orders'\n"
        "assert len(nats.scan(data)) == 2\n"
    )
    run(columns + find_block("import nats") + checks, tmp_path)


def test_the_example_of_liftbridge_runs(tmp_path):
    write_connection(tmp_path)
    (tmp_path / "0").mkdir()
    entries = encode_entries([19_999, 20_000, 20_003], 0, 1, None, [b"a"] * 3)
    (tmp_path / "0" / f"{0:020}.log").write_bytes(entries)
    code = find_block("import liftbridge, nats")
    code = code.replace("/var/lib/liftbridge/streams/orders/0", str(tmp_path / "0"))
    code = code.replace("liftbridge.gaps", "gaps = liftbridge.gaps")
    columns = "import pyarrow\nkeys = values = pyarrow.array([b'a', b'b'])\n"
    checks = (
        "assert len(messages) == 3\n"
        "assert gaps.tolist() == [[20_001, 20_003]]\n"
        "assert len(liftbridge.scan((data, offsets))) == 2\n"
    )
    run(columns + code + checks, tmp_path)


IDL = "service Calc { i32 add(1: i32 left, 2: i32 right) }"
LIVE_VERBS = ("fetch", "metadata", "produce", "receive", "send")  # they need a server


def write_rpc(folder: Path) -> None:
    """Write two files with both directions of a connection.

    They have two calls, of which the second is compressed, and the reply to the first one.
    """
    numbers = struct.pack(">bhibhib", 8, 1, 20, 8, 2, 22, 0)
    plain_call = thrift.encode_message("add", 1, 1, numbers, service="Calc")
    compressed_call = thrift.encode_message("add", 1, 2, numbers, service="Calc")
    (folder / "calls.theader").write_bytes(
        thrift.encode_frame(plain_call, seq=1, persistent={b"client": b"x"})
        + thrift.encode_frame(compressed_call, seq=2, transforms=[1], infos={b"trace": b"7"})
    )
    reply = thrift.encode_message("add", 2, 1, struct.pack(">bhib", 8, 0, 42, 0))
    (folder / "replies.theader").write_bytes(thrift.encode_frame(reply, seq=1))


def write_redpanda_segments(folder: Path, name: str = "0-1-v1.log") -> None:
    """Write a segment of Redpanda: a configuration and three records, from log offset 0 on."""
    directory = folder / "kafka" / "orders" / "3_21"
    directory.mkdir(parents=True)
    internal = make_redpanda_batch(encode_batch([b"nodes"]), kind=2)
    records = [{"offset": offset, "value": b"v"} for offset in (1, 2, 3)]
    (directory / name).write_bytes(internal + make_redpanda_batch(encode_batch(records)))


def test_the_examples_of_redpanda_run(tmp_path):
    write_redpanda_segments(tmp_path / "data")
    check = "assert offsets.tolist() == [0, 1, 2]\n"
    run("from wirescan import kafka\n" + find_block("kafka.scan_redpanda(") + check, tmp_path)


def test_the_example_of_redpandas_manifests_runs(tmp_path):
    write_redpanda_segments(tmp_path / "bucket" / "0a0b0c0d", "0-3-200-1-v1.log")
    sizes = dict(base_offset=0, committed_offset=3, size_bytes=200, delta_offset=0)
    segment = sizes | dict(is_compacted=False, sname_format=3)
    manifest = dict(namespace="kafka", topic="orders", partition=3, revision=21, last_offset=3)
    directory = tmp_path / "bucket/10000000/meta/kafka/orders/3_21"
    directory.mkdir(parents=True)
    text = json.dumps(manifest | dict(segments={"0-1-v1.log": segment}))
    (directory / "manifest.bin").write_text(text)
    check = "assert kafka.records(log)['offset'].tolist() == [0, 1, 2]\n"
    code = "from wirescan import kafka\n" + find_block("read_redpanda_manifest")
    run(code + check, tmp_path)


def test_the_example_of_thrift_runs(tmp_path):
    write_rpc(tmp_path)
    (tmp_path / "calc.thrift").write_text(IDL)
    code = find_block("import thrift")
    code = code.replace("\nthrift.resolve", "\nresolved = thrift.resolve")
    code = code.replace("\nthrift.pair", "\nreply = thrift.pair")
    code = code.replace("\nthrift.fields", "\nnames = thrift.fields")
    code = code.replace("\nthrift.encode_frame", "\nagain = thrift.encode_frame")
    checks = (
        "assert numbers.tolist() == [20, 22] * 2\n"
        "assert names.tolist() == [b'left', b'right'] * 2\n"
        "assert reply.tolist() == [0, -1]\n"
        "assert len(resolved) == 3\n"
        "assert bytes(thrift.messages(thrift.scan(again))[0].method) == b'add'\n"
    )
    run(code + checks, tmp_path)


def run_command(words: list[str], folder: Path) -> None:
    """Run the command `wirescan` in a folder and in this process; it must succeed."""
    with contextlib.chdir(folder):
        result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, (words, result.output, result.exception)


def test_the_commands_receive_and_send_run(tmp_path):
    lines = [
        line.split("#")[0].split() for block in find_blocks("sh") for line in block.splitlines()
    ]
    ((_, *receive),) = (words for words in lines if words[:2] == ["wirescan", "receive"])
    ((_, *send),) = (words for words in lines if words[:2] == ["wirescan", "send"])
    command = [sys.executable, "-m", "wirescan"]
    (tmp_path / "sent").write_bytes(encode_window([{"message": "one"}] * 3))
    server = subprocess.Popen(
        [*command, *receive, "--listen", "127.0.0.1:0"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = next(line for line in server.stderr if "listening on" in line).split()[-1]
        replaced = {"localhost:5044": address, "events": "sent"}
        words = [replaced.get(word, word) for word in send]
        subprocess.run([*command, *words], cwd=tmp_path, check=True, timeout=60)
    finally:
        server.terminate()
        assert server.wait(60) == 0
    assert len(scan(tmp_path / "events", "lumberjack.events")) == 3
    assert ["wirescan", "scan", "events"] in lines
    run_command(["scan", "events"], tmp_path)


@pytest.mark.spark
def test_the_examples_of_spark_run(tmp_path):
    check = "\nassert df.count() == 27708\n"
    examples = [find_block(word) + check for word in ("groupBy", "wirescan.spark.faults")]
    lines = "".join(examples).splitlines(keepends=True)
    code = "".join(line for line in lines if "read_topic" not in line)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "orders-0").symlink_to(CORPUS)
    (tmp_path / "data" / "events").mkdir()
    (tmp_path / "data" / "events" / "1.lumberjack").write_bytes(encode_window([{"message": "one"}]))
    (tmp_path / "data" / "rpc").mkdir()
    write_rpc(tmp_path / "data" / "rpc")
    sets = f"data = open({str(CORPUS / '00000000000000000000.log')!r}, 'rb').read()\n"
    code = code.replace(
        "spark = wirescan.spark.session()",
        "spark = wirescan.spark.session()\n"
        + sets
        + "frames = spark.createDataFrame([(data,)], 'payload binary')\n"
        "sent = spark.createDataFrame([('orders', b'plain')], 'sent_to string, data binary')",
    )
    run_in_a_process(use_local_paths(code, tmp_path), tmp_path)


def test_the_commands_of_the_documents_run(tmp_path):
    lines = [
        line.split("#")[0].strip() for block in find_blocks("sh") for line in block.splitlines()
    ]
    commands = [line for line in lines if line.startswith("wirescan ")]
    assert len(commands) == 58
    commands = [command for command in commands if "kafka://" not in command]
    # tests/peers runs fetch, metadata, produce and diff with topics.
    # test_the_commands_receive_and_send_run runs the other two.
    commands = [
        command
        for command in commands
        if command.split()[1] not in LIVE_VERBS and "lumberjack" not in command
    ]
    (tmp_path / "orders-0").symlink_to(CORPUS)
    (tmp_path / "__cluster_metadata-0").symlink_to(METADATA)
    window = encode_window([{"message": "one"}])
    for folder in ("rpc", "events", "captures"):
        (tmp_path / folder).mkdir()
    (tmp_path / "events" / "1.lumberjack").write_bytes(window)
    (tmp_path / "captures" / "1.bin").write_bytes(window)
    (tmp_path / "capture.bin").write_bytes(window)
    write_rpc(tmp_path / "rpc")
    write_rpc(tmp_path)
    write_connection(tmp_path)
    write_redpanda_segments(tmp_path / "data")
    shutil.copy(ROOT / "tests/corpus/pcap/kafka.pcap", tmp_path)
    for side in ("requests", "responses"):
        shutil.copy(f"{STREAM}.{side}.bin", tmp_path / f"connection.{side}.bin")
    (tmp_path / "calc.thrift").write_text(IDL)
    (tmp_path / "old.theader").write_bytes(struct.pack(">i3sBiB", 3, b"add", 1, 7, 0))
    for command in commands:
        command = command.replace("/var/lib/kafka/orders-0", str(CORPUS)).split("|")[0]
        command = command.replace("/var/lib/kafka", str(CORPUS.parent))
        assert not set(command) & set("<>$&;"), "a shell would change this command"
        run_command(shlex.split(command)[1:], tmp_path)


def test_conditions_in_python_run(tmp_path, capsys):
    run(use_local_paths(find_block("wirescan.where"), tmp_path), tmp_path)
    assert "15335" in capsys.readouterr().out


def test_the_example_of_detection_runs(tmp_path, capsys):
    run(use_local_paths(find_block("wirescan.detect"), tmp_path), tmp_path)
    assert capsys.readouterr().out.startswith("certain kafka.batches kafka.records\n")


def test_the_picture_shows_the_ratios_of_the_table():
    ratios = pytest.importorskip("bench.ratios", reason="the sdist has no benchmarks")
    readme = (ROOT / "README.md").read_text()
    assert "](bench/ratios.svg)" in readme
    picture = ratios.draw(ratios.read_ratios(readme))
    assert (ROOT / "bench/ratios.svg").read_text() == picture, "run python -m bench.ratios"
