"""Payloads to typed columns, beside the deserializers of confluent-kafka, which make objects.

The same orders as JSON, Avro and Protobuf, the last two after Confluent's header. wirescan decodes
a column of payloads into Arrow. The deserializers are called for each payload, and know the schema
after the first call.
"""

from __future__ import annotations

import json
import random
import struct
import warnings
from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bench.report import Report, format_timings
from bench.timing import Contender, interleave, time_call
from wirescan.decoding.avro_values import AvroDecoder
from wirescan.decoding.json_values import JsonDecoder
from wirescan.decoding.plain_values import NUMBERS, NumberDecoder
from wirescan.decoding.protobuf_values import ProtobufDecoder

FULL = {"records": 50_000, "rounds": 5}
QUICK = {"records": 500, "rounds": 2}
BOUND = 5  # times that the deserializers take
PEER = "confluent-kafka"
HEADER = struct.pack(">bI", 0, 1)  # Confluent's: schema 1
TOPIC = "orders"
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
Field = descriptor_pb2.FieldDescriptorProto
FIELDS = {
    "number": Field.TYPE_INT64,
    "item": Field.TYPE_STRING,
    "amount": Field.TYPE_DOUBLE,
    "paid": Field.TYPE_BOOL,
    "note": Field.TYPE_STRING,
    "tags": Field.TYPE_STRING,
}


def run(records: int, rounds: int) -> str:
    """Return the section as markdown. records: payloads of each format."""
    warnings.filterwarnings("ignore", module="authlib")
    report = Report("Payloads to columns")
    orders = make_orders(records)
    for name, make in MAKERS.items():
        payloads, decoder, deserialize = make(orders)
        column = pa.array(payloads, pa.binary())
        check(decoder, column, deserialize, payloads)
        times = interleave(
            [
                Contender(program, time_call(call), records, sum(map(len, payloads)))
                for program, call in (
                    ("wirescan", lambda: decoder.decode(column)),
                    (PEER, lambda: [deserialize(payload) for payload in payloads]),
                )
            ],
            rounds,
        )
        report.at_least(f"{name}: {PEER} takes", BOUND, times.ratio(PEER, "wirescan"))
        report.say(f"### {name}", "", format_timings(times, unit="payload"))
    return report.markdown(["pyarrow", PEER, "fastavro", "protobuf"])


def make_orders(count: int) -> list[dict[str, Any]]:
    """Return orders of varied sizes; half of them have no note."""
    source = random.Random(1)
    return [
        {
            "number": number,
            "item": source.choice(["rug", "lamp", "chair", "table"]),
            "amount": source.randrange(10**6) / 100,
            "paid": source.random() < 0.5,
            "note": None if source.random() < 0.5 else "x" * source.randrange(40),
            "tags": source.sample(["new", "gift", "return", "eu"], source.randrange(4)),
        }
        for number in range(count)
    ]


def check(decoder: Any, column: pa.Array, deserialize: Callable, payloads: list[bytes]) -> None:
    """Raise AssertionError unless both read the same first payloads."""
    decoded = decoder.decode(column.slice(0, 100))
    assert decoded.reasons.null_count == len(decoded.reasons)
    for ours, payload in zip(decoded.values.to_pylist(), payloads):
        theirs = deserialize(payload)
        if isinstance(ours, dict):
            if not isinstance(theirs, dict):
                theirs = {name: getattr(theirs, name) for name in ours}
            theirs["tags"] = list(theirs["tags"])
            theirs["note"] = theirs["note"] or None
            ours["note"] = ours["note"] or None
        assert ours == theirs, (ours, theirs)


def make_json(orders: list[dict[str, Any]]) -> tuple[list[bytes], Any, Callable]:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer

    payloads = [json.dumps(order).encode() for order in orders]
    schema = pa.schema(
        [
            ("number", pa.int64()),
            ("item", pa.string()),
            ("amount", pa.float64()),
            ("paid", pa.bool_()),
            ("note", pa.string()),
            ("tags", pa.list_(pa.string())),
        ]
    )
    read = JSONDeserializer(json.dumps({"type": "object"}), conf={"validate": False})
    context = make_context()
    return payloads, JsonDecoder(schema), lambda payload: read(HEADER + payload, context)


def make_avro(orders: list[dict[str, Any]]) -> tuple[list[bytes], Any, Callable]:
    from confluent_kafka.schema_registry import topic_subject_name_strategy
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    parsed = fastavro.parse_schema(SCHEMA)
    payloads = []
    for order in orders:
        out = BytesIO(HEADER)
        out.seek(0, 2)
        fastavro.schemaless_writer(out, parsed, order)
        payloads.append(out.getvalue())
    text = json.dumps(SCHEMA)
    settings = {"subject.name.strategy": topic_subject_name_strategy}
    read = AvroDeserializer(Registry(text), text, conf=settings)
    context = make_context()
    decoder = AvroDecoder(text, registry=Registry(text))
    return payloads, decoder, lambda payload: read(payload, context)


def make_protobuf(orders: list[dict[str, Any]]) -> tuple[list[bytes], Any, Callable]:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(FIELDS.items(), 1):
        label = Field.LABEL_REPEATED if name == "tags" else Field.LABEL_OPTIONAL
        message.field.add(name=name, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    order_class = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
    payloads = []
    for order in orders:
        given = {name: value for name, value in order.items() if value is not None}
        payloads.append(HEADER + b"\0" + order_class(**given).SerializeToString())
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    read = ProtobufDeserializer(order_class, {"use.deprecated.format": False})
    context = make_context()

    def read_fields(payload: bytes) -> dict[str, Any]:
        found = read(payload, context)
        return {name: getattr(found, name) for name in FIELDS}

    decoder = ProtobufDecoder(descriptors, "Order", has_header=True)
    return payloads, decoder, read_fields


def make_numbers(orders: list[dict[str, Any]]) -> tuple[list[bytes], Any, Callable]:
    from confluent_kafka.serialization import IntegerDeserializer

    payloads = [struct.pack(">i", order["number"]) for order in orders]
    return payloads, NumberDecoder(NUMBERS["int"]), IntegerDeserializer()


MAKERS = {
    "JSON": make_json,
    "Avro": make_avro,
    "Protobuf": make_protobuf,
    "32-bit integers": make_numbers,
}


def make_context() -> Any:
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext(TOPIC, MessageField.VALUE)


class Registry:
    """A registry with one schema, for both sides: no request is measured."""

    def __init__(self, text: str):
        from confluent_kafka.schema_registry import Schema

        self._schema = Schema(text, "AVRO")
        self._text = text

    def get_schema(self, *_: Any, **__: Any) -> Any:
        """Answer the deserializer of confluent-kafka."""
        return self._schema

    def find(self, number: int) -> Any:
        """Answer wirescan's decoder."""
        from wirescan.decoding.schema_registry import FoundSchema

        return FoundSchema(self._text)

    def config(self) -> dict[str, Any]:
        """Return no settings."""
        return {}
