"""The README's examples run, on the corpus."""
from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from wirescan import scan, thrift
from wirescan.cli import main
from wirescan.kafka import encode_batch
from wirescan.liftbridge import encode_entries, encode_message
from wirescan.lumberjack import encode_batch as encode_window
from wirescan.nats import encode_pub

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests/corpus/kafka/orders-0"
STREAM = ROOT / "tests/corpus/kafka-streams/java-4/group-1"
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def run(code: str, folder: Path) -> None:
    """Run Python code in a folder, with no names but its own."""
    with contextlib.chdir(folder):
        exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})


def run_in_a_process(code: str, folder: Path) -> None:
    """The same for code that starts threads or Spark."""
    result = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def here(code: str, folder: Path) -> str:
    return (code.replace("/var/lib/kafka/orders-0", str(CORPUS)).replace("/data/orders-0", str(CORPUS))
            .replace("/data/*-0", str(folder / "data" / "*-0")).replace("/data/events", str(folder / "data" / "events"))
            .replace("/data/rpc", str(folder / "data" / "rpc"))
            .replace('"out"', repr(str(folder / "out")))
            .replace("/var/lib/kafka/__consumer_offsets-0", str(folder / "__consumer_offsets-0")))


def block(word: str) -> str:
    """The one block of Python in which a word stands."""
    found, = (code for code in blocks("python") if word in code)
    return found


def test_every_block_is_run():
    words = ("polars", "PartitionLog", "kafka.pair", "kafka.encode_batches", "wirescan.stream", "wirescan.spark",
             "kafka.Client", "import lumberjack", "import liftbridge, nats", "import thrift")
    assert sorted(map(block, words)) == sorted(blocks("python"))


def test_reading(tmp_path):
    run(here(block("polars"), tmp_path), tmp_path)


def test_chunks(tmp_path):
    chunks = f"data = open({str(CORPUS / '00000000000000000000.log')!r}, 'rb').read()\n" \
             "chunks = [data[i:i + 1000] for i in range(0, len(data), 1000)]\n"
    run(chunks + block("wirescan.stream"), tmp_path)


def test_directory(tmp_path):
    offsets = tmp_path / "__consumer_offsets-0"
    offsets.mkdir()
    key = struct.pack(">hh5sh6si", 1, 5, b"group", 6, b"orders", 0)
    value = struct.pack(">hqihq", 3, 26_000, -1, 0, 1_750_000_000_000)
    (offsets / "00000000000000000000.log").write_bytes(encode_batch([(0, 0, key, value)]))
    code = here(block("PartitionLog"), tmp_path).replace("\nkafka.body", "\nfound = kafka.body")
    run("from wirescan import kafka\n" + code + "assert found['offset'].tolist() == [26_000]\n", tmp_path)


def test_streams(tmp_path):
    for side in ("requests", "responses"):
        shutil.copy(f"{STREAM}.{side}.bin", tmp_path / f"connection.{side}.bin")
    run("from wirescan import kafka\n" + block("kafka.pair") + "assert len(partitions)\n", tmp_path)


def test_writing(tmp_path):
    run("import numpy; import pyarrow; from wirescan import kafka\nkeys = values = pyarrow.array([b'a', b'b'])\n"
        "times = numpy.arange(2)\n" + block("kafka.encode_batches"), tmp_path)


SERVER = """
import asyncio, threading
from wirescan.lumberjack import Server
taken, started = [], threading.Event()
async def serve():
    global server
    server = Server(lambda windows: taken.extend(sum([list(window.events) for window in windows], [])))
    await server.start("127.0.0.1", 0)
    started.set()
    await server.run()
threading.Thread(target=asyncio.run, args=(serve(),), daemon=True).start()
started.wait()
documents = [b'{"message":"one"}']
"""


def test_lumberjack(tmp_path):
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "1.lumberjack").write_bytes(encode_window([{"message": "one"}] * 3))
    code = block("import lumberjack").replace('"logs", 5044, tls=True', "*server.addresses[0]")
    run_in_a_process(SERVER + code + "assert len(events) == 3 and len(taken) == 2\n", tmp_path)


def test_nats_and_liftbridge(tmp_path):
    raw = encode_pub("orders", encode_message(b"one", key=b"k", headers={"a": b"b"}), reply="inbox")
    (tmp_path / "connection.nats").write_bytes(raw + encode_pub("orders", b"plain"))
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / f"{0:020}.log").write_bytes(encode_entries([19_999, 20_000, 20_003], 0, 1, None, [b"a"] * 3))
    code = block("import liftbridge, nats").replace("/var/lib/liftbridge/streams/orders/0", str(tmp_path / "0"))
    code = code.replace("liftbridge.gaps", "found = liftbridge.gaps")
    run("import pyarrow\nkeys = values = pyarrow.array([b'a', b'b'])\n" + code + "assert len(messages) == 2\n"
        "assert found.tolist() == [[20_001, 20_003]] and len(liftbridge.scan((data, offsets))) == 2\n", tmp_path)


IDL = "service Calc { i32 add(1: i32 left, 2: i32 right) }"


def rpc(folder: Path) -> None:
    """Both directions of a connection: two calls, the second compressed, and the reply to the first."""
    numbers = struct.pack(">bhibhib", 8, 1, 20, 8, 2, 22, 0)
    one, two = (thrift.encode_message("add", 1, seqid, numbers, service="Calc") for seqid in (1, 2))
    (folder / "calls.theader").write_bytes(
        thrift.encode_frame(one, seq=1, persistent={b"client": b"x"})
        + thrift.encode_frame(two, seq=2, transforms=[1], infos={b"trace": b"7"}))
    sum = thrift.encode_message("add", 2, 1, struct.pack(">bhib", 8, 0, 42, 0))
    (folder / "replies.theader").write_bytes(thrift.encode_frame(sum, seq=1))


def test_thrift(tmp_path):
    rpc(tmp_path)
    (tmp_path / "calc.thrift").write_text(IDL)
    code = block("import thrift").replace("\nthrift.resolve", "\nresolved = thrift.resolve")
    code = code.replace("\nthrift.pair", "\nreply = thrift.pair").replace("\nthrift.fields", "\nnames = thrift.fields")
    code = code.replace("\nthrift.encode_frame", "\nagain = thrift.encode_frame")
    run(code + "assert numbers.tolist() == [20, 22] * 2 and names.tolist() == [b'left', b'right'] * 2\n"
        "assert reply.tolist() == [0, -1] and len(resolved) == 3\n"
        "assert bytes(thrift.messages(thrift.scan(again))[0].method) == b'add'\n", tmp_path)


def run_command(words: list[str], folder: Path) -> None:
    """Run the command `wirescan` in a folder and in this process; it must succeed."""
    with contextlib.chdir(folder):
        done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, (words, done.output, done.exception)


def test_receive_and_send(tmp_path):
    lines = [line.split("#")[0].split() for block in blocks("sh") for line in block.splitlines()]
    (_, *receive), = (words for words in lines if words[:2] == ["wirescan", "receive"])
    (_, *send), = (words for words in lines if words[:2] == ["wirescan", "send"])
    here = [sys.executable, "-m", "wirescan"]
    (tmp_path / "sent").write_bytes(encode_window([{"message": "one"}] * 3))
    server = subprocess.Popen([*here, *receive, "--listen", "127.0.0.1:0"], cwd=tmp_path, stderr=subprocess.PIPE,
                              text=True)
    try:
        address = next(line for line in server.stderr if "listening on" in line).split()[-1]
        words = [address if word == "localhost:5044" else "sent" if word == "events" else word for word in send]
        subprocess.run([*here, *words], cwd=tmp_path, check=True, timeout=60)
    finally:
        server.terminate()
        assert server.wait(60) == 0
    assert len(scan(tmp_path / "events", "lumberjack.events")) == 3
    look, = (words for words in lines if words[:2] == ["wirescan", "scan"] and "lumberjack.events" in words)
    run_command(look[1:], tmp_path)


@pytest.mark.spark
def test_spark(tmp_path):
    code = "".join(line for line in block("wirescan.spark").splitlines(True) if "read_topic" not in line)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "orders-0").symlink_to(CORPUS)
    (tmp_path / "data" / "events").mkdir()
    (tmp_path / "data" / "events" / "1.lumberjack").write_bytes(encode_window([{"message": "one"}]))
    (tmp_path / "data" / "rpc").mkdir()
    rpc(tmp_path / "data" / "rpc")
    sets = f"data = open({str(CORPUS / '00000000000000000000.log')!r}, 'rb').read()\n"
    code = code.replace("spark = wirescan.spark.session()", "spark = wirescan.spark.session()\n" + sets
                        + "frames = spark.createDataFrame([(data,)], 'payload binary')\n"
                        "sent = spark.createDataFrame([('orders', b'plain')], 'sent_to string, data binary')")
    run_in_a_process(here(code, tmp_path) + "\nassert df.count() == 27708\n", tmp_path)


def test_command_line(tmp_path):
    lines = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("wirescan ")]
    assert len(commands) == 11
    # tests/peers runs fetch, and the test below what follows it
    commands = [command for command in commands if command.split()[1] not in ("fetch", "receive", "send")
                and "lumberjack" not in command]
    (tmp_path / "orders-0").symlink_to(CORPUS)
    (tmp_path / "rpc").mkdir()
    rpc(tmp_path / "rpc")
    for command in commands:
        command = command.replace("/var/lib/kafka/orders-0", str(CORPUS)).split("|")[0]
        assert not set(command) & set("<>$&;"), "a shell would change this command"
        run_command(shlex.split(command)[1:], tmp_path)
