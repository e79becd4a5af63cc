"""The examples of docs/payloads.md run, and its table lists the decoders."""

import contextlib
import json
import re
import shlex

import pyarrow.parquet as pq
import pytest

from tests.support.command import run
from tests.support.fake_registry import serve_schemas
from tests.support.paths import ORDERS, ROOT
from tests.support.protobuf_messages import make_order_files
from wirescan.decoding.notation import MAKERS
from wirescan.kafka import encode_batch

PAGE = (ROOT / "docs/payloads.md").read_text()


def find_blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("block", find_blocks("python"))
def test_the_python_runs(block, tmp_path):
    code = block.replace("/var/lib/kafka/orders-0", str(ORDERS))
    with serve_schemas({1: "string"}) as (address, _), contextlib.chdir(tmp_path):
        code = code.replace("127.0.0.1:8081", address)
        exec(compile(code, "docs/payloads.md", "exec"), {"__name__": "__main__"})


def test_the_commands_run(tmp_path):
    commands = [line for block in find_blocks("sh") for line in block.splitlines()]
    assert len(commands) == 6
    schema = {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "long"}]}
    (tmp_path / "schemas").mkdir()
    for path in ("order.avsc", "schemas/1.avsc"):
        (tmp_path / path).write_text(json.dumps(schema))
    (tmp_path / "descriptors").mkdir()
    for path in ("orders.desc", "descriptors/1.desc"):
        (tmp_path / path).write_bytes(make_order_files())
    payloads = (b"\0\0\0\0\1\x0e", b"\x08\7", b"\0\0\0\0\1\0\x08\7")
    for i, payload in enumerate(payloads):
        (tmp_path / f"orders-{i}").mkdir()
        (tmp_path / f"orders-{i}" / f"{0:020}.log").write_bytes(encode_batch([payload]))
    with serve_schemas({1: schema}) as (address, _), contextlib.chdir(tmp_path):
        for command in commands:
            command = command.replace("/var/lib/kafka/orders-0", str(ORDERS))
            words = shlex.split(command.replace("127.0.0.1:8081", address))
            result = run(*words[1:], "--overwrite")
            assert result.exit_code == 0, result.output
            table = pq.read_table(words[3])
            assert table["value"].null_count < len(table)


def test_the_printed_payloads_are_those_of_the_page(tmp_path):
    block = find_blocks("text")[0]
    command, _, output = block.partition("\n")
    (tmp_path / "orders-0").mkdir()
    payloads = [b'{"number": 7, "item": "rug"}', b'{"number":', None, b"{}"]
    (tmp_path / "orders-0" / f"{0:020}.log").write_bytes(
        encode_batch([{"value": payload} for payload in payloads])
    )
    with contextlib.chdir(tmp_path):
        result = run(*shlex.split(command)[2:])
    assert command.startswith("$ wirescan scan ")
    assert result.stdout == output


def test_the_table_lists_the_decoders():
    table = PAGE.partition("| text | payload |")[2].partition("\n\n")[0]
    texts = re.findall(
        r"`([^`]+)`", " ".join(line.split("|")[1] for line in table.splitlines()[2:])
    )
    assert {text.partition(":")[0] for text in texts} == set(MAKERS)
