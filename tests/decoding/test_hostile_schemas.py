"""Hostile schemas and slow registries: payloads are refused, and nothing else happens."""

import json
import socket
import threading
import time

import pyarrow as pa
import pytest

from tests.support.slowness import SLOWNESS
from wirescan.decoding.avro_values import AvroDecoder
from wirescan.decoding.decoder import LONGEST_REASON
from wirescan.decoding.payload_columns import PayloadColumns
from wirescan.decoding.schema_registry import SchemaRegistry

NUMBER = 2


def frame(value: bytes, number: int = NUMBER) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + value


def nest_records(depth: int) -> list:
    records = [{"type": "record", "name": "R0", "fields": [{"name": "f", "type": "int"}]}]
    for i in range(1, depth):
        fields = [{"name": "f", "type": f"R{i - 1}"}]
        records.append({"type": "record", "name": f"R{i}", "fields": fields})
    return records


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "fixed", "name": "F", "size": 1e999}',
        '{"type": "fixed", "name": "F", "size": true}',
        '{"type": "fixed", "name": "F", "size": 1025}',
        r'{"type": "fixed", "name": "\ud800", "size": 1}',
        r'{"type": "fixed", "name": "\u001b[31m", "size": 0}',
        r'{"type": "enum", "name": "E", "symbols": ["\ud800"]}',
        '"' + "x" * 100_000 + '"',
        json.dumps(
            {
                "type": "record",
                "name": "W",
                "fields": [
                    {"name": "x", "type": nest_records(2000)},
                    {"name": "y", "type": "R1999"},
                ],
            }
        ),
    ],
    ids=["infinite", "flag", "large", "surrogate", "escape", "symbol", "long", "deep"],
)
def test_a_hostile_schema_of_a_registry_refuses_its_payloads(schema, tmp_path):
    (tmp_path / f"{NUMBER}.avsc").write_text(schema)
    reader = '{"type": "record", "name": "W", "fields": [{"name": "x", "type": "string"}]}'
    decoder = AvroDecoder(reader, registry=SchemaRegistry(str(tmp_path)))
    values, reasons = decoder.decode(pa.array([frame(b"\x02x"), frame(b"\x02x")]))
    assert values.null_count == 2
    for reason in reasons.to_pylist():
        assert reason.isprintable()
        assert 0 < len(reason) <= 4 * LONGEST_REASON


def test_a_server_that_sends_its_headers_slowly_is_left():
    server = socket.create_server(("127.0.0.1", 0))
    stopped = threading.Event()

    def answer():
        connection, _ = server.accept()
        with connection:
            try:
                connection.sendall(b"HTTP/1.0 200 OK\r\nX: ")
                while not stopped.wait(0.05):
                    connection.sendall(b"x")
            except OSError:
                return

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        registry = SchemaRegistry(f"http://127.0.0.1:{server.getsockname()[1]}", seconds=0.2)
        begun = time.monotonic()
        with pytest.raises(OSError, match="schema registry"):
            registry.find(1)
        assert time.monotonic() - begun < 5 * SLOWNESS
    finally:
        stopped.set()
        thread.join()
        server.close()


def test_types_come_from_later_batches_if_the_first_payloads_are_bad(tmp_path):
    (tmp_path / "1.avsc").write_text('"string"')
    payloads = [b"junk", frame(b"\x02x", 1)]
    batches = [pa.record_batch({"v": pa.array([payload])}) for payload in payloads]
    columns = PayloadColumns({"v": f"avro:registry={tmp_path}"})
    decoded = pa.Table.from_batches(columns.decode_all(batches))
    assert decoded["v"].to_pylist() == [None, "x"]
    assert [reason is None for reason in decoded["v_fault"].to_pylist()] == [False, True]


@pytest.mark.parametrize("decoder", ["avro:registry=", "json"])
def test_columns_whose_payloads_never_share_a_batch(decoder, tmp_path):
    (tmp_path / "1.avsc").write_text('"string"')
    is_json = decoder == "json"
    payload = b'{"a": "x"}' if is_json else frame(b"\x02x", 1)
    notation = decoder if is_json else decoder + str(tmp_path)
    nothing = pa.array([None], pa.binary())
    batches = [
        pa.record_batch({"a": pa.array([payload]), "b": nothing}),
        pa.record_batch({"a": nothing, "b": pa.array([payload])}),
    ]
    columns = PayloadColumns({"a": notation, "b": notation})
    decoded = pa.Table.from_batches(columns.decode_all(batches))
    value = {"a": "x"} if is_json else "x"
    assert decoded["a"].to_pylist() == [value, None]
    assert decoded["b"].to_pylist() == [None, value]
