"""Payloads of confluent_kafka's serializers and the schemas of a real registry.

wirescan decodes what confluent_kafka's deserializers return.
"""

import datetime
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf import descriptor_pb2

import wirescan
from tests.support.command import run
from tests.support.protobuf_messages import Oracle
from wirescan.decoding.payload_columns import decode_table
from wirescan.decoding.proto_text import parse_proto
from wirescan.decoding.protobuf_registry import ProtobufRegistry
from wirescan.decoding.schema_registry import SchemaRegistry
from wirescan.kafka import Record, encode_batch

from .apicurio import Apicurio, add_user

pytestmark = pytest.mark.peers

CURRENCY = {"type": "enum", "name": "Currency", "namespace": "pay", "symbols": ["EUR", "USD"]}
# Refers to it, without its namespace.
MONEY = {
    "type": "record",
    "name": "Money",
    "namespace": "pay",
    "fields": [
        {
            "name": "amount",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "currency", "type": "Currency"},
    ],
}
LINE = {
    "type": "record",
    "name": "Line",
    "namespace": "shop",
    "fields": [{"name": "item", "type": "string"}, {"name": "price", "type": "pay.Money"}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "paid_in", "type": ["null", "pay.Currency"], "default": None},
        {"name": "lines", "type": {"type": "array", "items": "Line"}},
        {"name": "total", "type": ["null", "pay.Money"], "default": None},
    ],
}
PRICE = {"amount": Decimal("1.50"), "currency": "EUR"}
# Three versions of one subject.
FIRST = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {"name": "number", "type": "int"},
        {"name": "page", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "unused", "type": {"type": "map", "values": "bytes"}},
    ],
}
SECOND = {
    **FIRST,
    "fields": [
        {"name": "number", "type": "long"},
        *FIRST["fields"][1:3],
        {"name": "score", "type": "float", "default": 0.5},
        {
            "name": "at",
            "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
            "default": None,
        },
    ],
}
THIRD = {
    **SECOND,
    "fields": [
        SECOND["fields"][4],
        {"name": "path", "type": "string", "aliases": ["page"]},
        SECOND["fields"][0],
        {"name": "score", "type": "double", "default": 0.5},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {"name": "counts", "type": {"type": "map", "values": "int"}, "default": {"none": 0}},
    ],
}
NOON = datetime.datetime(2024, 5, 17, 12, 0, 0, 125_000, datetime.UTC)
VISITS = [
    (FIRST, {"number": -1, "page": "/é", "tags": ["a", ""], "unused": {"x": b"\0"}}),
    (SECOND, {"number": 2**40, "page": "/", "tags": [], "score": 1.5, "at": NOON}),
    (
        THIRD,
        {
            "at": NOON,
            "path": "/b",
            "number": 3,
            "score": 0.1,
            "day": datetime.date(2024, 5, 17),
            "counts": {"k": -7, "": 0},
        },
    ),
    (FIRST, {"number": 4, "page": "", "tags": [], "unused": {}}),
]
PROTOS = {
    "pay/money.proto": """
        syntax = "proto3";
        package pay;
        import "pay/currency.proto";
        message Money { int64 cents = 1; Currency currency = 2; }
    """,
    "pay/currency.proto": """
        syntax = "proto3";
        package pay;
        enum Currency { NONE = 0; EUR = 1; }
    """,
    "shop.proto": """
        syntax = "proto3";
        package shop;
        import "pay/currency.proto";
        import "pay/money.proto";
        import "google/protobuf/timestamp.proto";
        message Customer { string name = 1; }
        message Order {
            int64 number = 1;
            message Address { string city = 1; }
            message Line { string item = 1; pay.Money price = 2; message Note { bool x = 1; } }
            repeated Line lines = 2;
            map<string, int32> counts = 3;
            optional string note = 4;
            pay.Currency paid_in = 5;
            google.protobuf.Timestamp at = 6;
            oneof way { string card = 7; Address home = 8; }
        }
    """,
}
LATER_SHOP = PROTOS["shop.proto"].replace("int64 number = 1;", "int64 number = 1; bool is_new = 9;")
JSON_SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {
            "number": {"type": "integer"},
            "price": {"type": "number"},
            "items": {"type": "array", "items": {"type": "string"}},
        },
    }
)
JSON_ORDERS = [
    {"number": 1, "price": 1.5, "items": ["rug", "é"]},
    {"number": -(2**53), "price": 2.0, "items": []},
]


@pytest.fixture(scope="module")
def registry():
    with Apicurio() as registry:
        yield registry


@pytest.fixture(scope="module")
def client(registry):
    return registry.connect()


def make_context(topic):
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext(topic, MessageField.VALUE)


def make_table(payloads):
    return wirescan.scan(encode_batch([Record(value=raw) for raw in payloads]), "kafka.records")


def decode(text, payloads):
    """Return the values and the reasons of payloads, from a batch of Kafka's records."""
    table = make_table(payloads)
    decoded = decode_table(table, {"value": text}).read_all()
    values = decoded["value"].combine_chunks()
    assert values.is_null().to_pylist() == [
        payload is None or reason is not None
        for payload, reason in zip(payloads, decoded["value_fault"].to_pylist(), strict=True)
    ]
    return values.to_pylist(maps_as_pydicts="strict"), decoded["value_fault"].to_pylist()


def read_id(payload):
    return int.from_bytes(payload[1:5], "big")


# ---------------------------------------------------------------------- Avro


def serialize_avro(client, topic, pairs, references=()):
    """Return payloads of values with their schemas."""
    from confluent_kafka.schema_registry import Schema
    from confluent_kafka.schema_registry.avro import AvroSerializer

    payloads = []
    for schema, value in pairs:
        registered = Schema(json.dumps(schema), "AVRO", list(references))
        payloads.append(AvroSerializer(client, registered)(value, make_context(topic)))
    return payloads


def deserialize_avro(client, payloads, schema=None):
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    text = None if schema is None else json.dumps(schema)
    deserializer = AvroDeserializer(client, text)
    return [deserializer(payload, make_context("read")) for payload in payloads]


@pytest.fixture(scope="module")
def visits(client):
    """Payloads with the ids of three versions of a subject."""
    payloads = serialize_avro(client, "visits", VISITS)
    assert len({read_id(payload) for payload in payloads}) == 3
    return payloads


def test_versions_of_an_avro_schema(registry, client, visits, tmp_path):
    values, reasons = decode(f"avro:registry={add_user(registry.url)}", [*visits, None])
    assert reasons == [None] * 5
    assert values == [*deserialize_avro(client, visits, THIRD), None]
    assert values[0] != values[3] and values[1]["at"] == NOON
    for schema in (FIRST, SECOND):
        kept = [payload for (other, _), payload in zip(VISITS, visits) if other in (FIRST, schema)]
        (tmp_path / "reader.avsc").write_text(json.dumps(schema))
        text = f"avro:{tmp_path}/reader.avsc,registry={add_user(registry.url)}"
        values, reasons = decode(text, kept)
        assert reasons == [None] * len(kept)
        assert values == deserialize_avro(client, kept, schema)


def refer_to(*schemas):
    """Return references to the first versions of schemas that have subjects of their own."""
    from confluent_kafka.schema_registry.schema_registry_client import SchemaReference

    names = [f"{schema['namespace']}.{schema['name']}" for schema in schemas]
    return [SchemaReference(name, f"of {name}/avro", 1) for name in names]


@pytest.fixture(scope="module")
def orders(client):
    """Payloads of a schema that refers to others."""
    from confluent_kafka.schema_registry import Schema

    pairs = ((CURRENCY, []), (MONEY, refer_to(CURRENCY)), (LINE, refer_to(MONEY)))
    for schema, references in pairs:
        subject = refer_to(schema)[0].subject
        client.register_schema(subject, Schema(json.dumps(schema), "AVRO", references))
    values = [
        {"number": 1, "paid_in": "USD", "lines": [{"item": "rug", "price": PRICE}], "total": PRICE},
        {"number": 2, "paid_in": None, "lines": [], "total": None},
    ]
    pairs = [(ORDER, value) for value in values]
    return serialize_avro(client, "orders", pairs, refer_to(LINE, MONEY, CURRENCY))


def test_avro_schemas_that_refer_to_others(registry, client, orders):
    values, reasons = decode(f"avro:registry={add_user(registry.url)}", orders)
    assert reasons == [None] * 2
    assert values == deserialize_avro(client, orders)


# ---------------------------------------------------------------------- Protobuf


def compile_protos(folder, protos):
    """Return the files of .proto texts as descriptors, imported ones first."""
    import grpc_tools
    from grpc_tools import protoc

    for name, text in protos.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    known = Path(grpc_tools.__file__).with_name("_proto")
    arguments = [
        f"-I{folder}",
        f"-I{known}",
        f"--descriptor_set_out={folder}/set",
        "--include_imports",
    ]
    assert protoc.main(["protoc", *arguments, "shop.proto"]) == 0
    files = descriptor_pb2.FileDescriptorSet.FromString((folder / "set").read_bytes()).file
    return [file for file in files if not file.name.startswith("google/")]


class Shop:
    """The messages of PROTOS: serializers, deserializers and expected values."""

    def __init__(self, client, topic, files):
        self._client = client
        self._context = make_context(topic)
        self._files = files

    def _find_class(self, name):
        from google.protobuf import descriptor_pool, message_factory, timestamp_pb2

        pool = descriptor_pool.DescriptorPool()
        pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
        for file in self._files:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))

    def serialize(self, message, **fields):
        from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

        kind = self._find_class(message)
        serializer = ProtobufSerializer(kind, self._client, {"use.deprecated.format": False})
        return serializer(kind(**fields), self._context)

    def deserialize(self, name, payloads):
        """Return what confluent_kafka's deserializer reads. Times are numbers."""
        from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

        deserializer = ProtobufDeserializer(
            self._find_class(name), {"use.deprecated.format": False}, self._client
        )
        messages = [deserializer(payload, self._context) for payload in payloads]
        oracle = Oracle(name, *self._files)
        return sort_pairs(oracle.read(message.SerializeToString()) for message in messages)


def sort_pairs(values):
    """Return messages whose pairs in `counts` are sorted: protobuf writes a map in any order."""
    return [
        value | {"counts": sorted(value["counts"])} if value and "counts" in value else value
        for value in values
    ]


@pytest.fixture(scope="module")
def shop(client, tmp_path_factory):
    return Shop(client, "shop", compile_protos(tmp_path_factory.mktemp("protos"), PROTOS))


@pytest.fixture(scope="module")
def messages(shop):
    """Payloads by the name of their message."""
    money = {"cents": 2**40, "currency": "EUR"}
    return {
        "shop.Order": [
            shop.serialize("shop.Order"),
            shop.serialize(
                "shop.Order",
                number=-1,
                lines=[{"item": "rug", "price": money}, {}],
                counts={"a": 1, "": -2},
                note="",
                paid_in="EUR",
                at={"seconds": 1_700_000_000, "nanos": 5},
                home={"city": "Köln"},
            ),
        ],
        "shop.Order.Line": [shop.serialize("shop.Order.Line", item="é", price=money)],
        "shop.Order.Line.Note": [shop.serialize("shop.Order.Line.Note", x=True)],
        "shop.Customer": [shop.serialize("shop.Customer", name="Ann")],
    }


def decode_messages(text, payloads):
    """Return values as those of `Shop.deserialize`, and the reasons."""
    table = make_table(payloads)
    decoded = decode_table(table, {"value": text}).read_all()
    column = decoded["value"].combine_chunks()
    fields = [column.field(i) for i in range(column.type.num_fields)]
    fields = [
        field.cast(pa.int64()) if pa.types.is_timestamp(field.type) else field for field in fields
    ]
    names = [field.name for field in column.type]
    values = pa.StructArray.from_arrays(fields, names, mask=column.is_null()).to_pylist()
    return sort_pairs(values), decoded["value_fault"].to_pylist()


@pytest.mark.parametrize("name", ["shop.Order", "shop.Order.Line", "shop.Order.Line.Note"])
def test_protobuf_messages_of_a_file_with_imports(name, registry, shop, messages):
    others = [
        payload for other, payloads in messages.items() if other != name for payload in payloads
    ]
    payloads = messages[name]
    text = f"protobuf:registry={add_user(registry.url)},message={name}"
    values, reasons = decode_messages(text, [*payloads, *others])
    count = len(payloads)
    assert values == [*shop.deserialize(name, payloads), *[None] * len(others)]
    assert reasons[:count] == [None] * count
    assert all(reason.endswith(f", not {name}") for reason in reasons[count:])


def test_versions_of_a_protobuf_schema(registry, client, shop, messages, tmp_path):
    files = compile_protos(tmp_path, PROTOS | {"shop.proto": LATER_SHOP})
    later = Shop(client, "shop", files)
    new = later.serialize("shop.Order", number=9, is_new=True)
    payloads = [*messages["shop.Order"], new]
    assert len({read_id(payload) for payload in payloads}) == 2
    values, reasons = decode_messages(f"protobuf:registry={add_user(registry.url)}", payloads)
    assert reasons == [None] * 3
    assert values == later.deserialize("shop.Order", payloads)
    assert [value["is_new"] for value in values] == [False, False, True]


def test_imports_that_confluent_does_not_register(registry, client, tmp_path):
    from confluent_kafka.schema_registry.confluent.type import decimal_pb2
    from google.type import date_pb2, money_pb2

    text = """
        syntax = "proto3";
        import "confluent/type/decimal.proto";
        import "google/type/date.proto";
        import "google/type/money.proto";
        message Bill {
            confluent.type.Decimal sum = 1; google.type.Date day = 2; google.type.Money paid = 3;
        }
    """
    file = descriptor_pb2.FileDescriptorProto.FromString(parse_proto(text))
    file.name = "bill.proto"
    known = [
        descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        for module in (decimal_pb2, date_pb2, money_pb2)
    ]
    bills = Shop(client, "bills", [*known, file])
    fields = {
        "sum": {"value": b"\x01\x00", "precision": 3, "scale": 1},
        "day": {"year": 2024, "month": 5, "day": 17},
        "paid": {"currency_code": "EUR", "units": 3, "nanos": 5},
    }
    payload = bills.serialize("Bill", **fields)
    assert decode_messages(f"protobuf:registry={add_user(registry.url)}", [payload]) == (
        [fields],
        [None],
    )


@pytest.mark.parametrize("name", ["shop.Order", "shop.Order.Line.Note", "shop.Customer"])
def test_the_texts_of_proto_files(name, registry, client, shop, messages, tmp_path):
    """Clients of Java register texts. Apicurio's descriptors of them are not bytes."""
    from confluent_kafka.schema_registry import Schema
    from confluent_kafka.schema_registry.schema_registry_client import SchemaReference

    known = {}
    for path in ("pay/currency.proto", "pay/money.proto", "shop.proto"):
        references = [
            SchemaReference(other, subject, 1)
            for other, subject in known.items()
            if f'import "{other}"' in PROTOS[path]
        ]
        known[path] = f"text of {path}"
        number = client.register_schema(known[path], Schema(PROTOS[path], "PROTOBUF", references))
    payloads = [b"\0" + number.to_bytes(4, "big") + payload[5:] for payload in messages[name]]
    expected = shop.deserialize(name, messages[name])
    url = add_user(registry.url)
    assert decode_messages(f"protobuf:registry={url}", payloads) == (
        expected,
        [None] * len(expected),
    )
    ProtobufRegistry(url).save([number], str(tmp_path))
    values, _ = decode_messages(f"protobuf:registry={tmp_path}", payloads)
    assert values == expected


# ---------------------------------------------------------------------- JSON


def serialize_json(client):
    from confluent_kafka.schema_registry.json_schema import JSONSerializer

    serializer = JSONSerializer(JSON_SCHEMA, client)
    return [serializer(order, make_context("json")) for order in JSON_ORDERS]


def test_json_with_a_schema(registry, client):
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer

    payloads = serialize_json(client)
    deserializer = JSONDeserializer(JSON_SCHEMA, schema_registry_client=client)
    expected = [deserializer(payload, make_context("json")) for payload in payloads]
    values, reasons = decode("json:header=confluent", [*payloads, None, payloads[0][5:]])
    assert values == [*expected, None, None]
    assert reasons == [None, None, None, "it does not begin with Confluent's header"]


# ---------------------------------------------------------------------- refused payloads, errors


def test_ids_that_do_not_exist_and_schemas_of_other_kinds(registry, client, visits, messages):
    payloads = [
        visits[2],
        b"\0\0\1\x86\x9f",
        b"\0\x7f\xff\xff\xff",
        b"\0\xff\xff\xff\xff",
        b"\0\0\0\0\0",
        b"\0\0\0\0",
        b"{}",
        messages["shop.Customer"][0],
        serialize_json(client)[0],
    ]
    values, reasons = decode(f"avro:registry={add_user(registry.url)}", payloads)
    assert values == [*deserialize_avro(client, visits[2:3]), *[None] * 8]
    header = "it does not begin with Confluent's header"
    kinds = [
        f"schema {read_id(payload)} of the registry: it is not an Avro schema"
        for payload in payloads[7:]
    ]
    unknown = [f"the registry has no schema {n}" for n in (99999, 2**31 - 1, 2**32 - 1, 0)]
    assert reasons == [None, *unknown, header, header, *kinds]
    line = messages["shop.Order.Line"][0]
    avro = visits[0][:5] + b"\0"
    _, reasons = decode(f"protobuf:registry={add_user(registry.url)}", [line, avro, avro])
    refused = f"schema {read_id(avro)} of the registry: it is not a Protobuf schema"
    assert reasons == [None, refused, refused]


def test_users(registry, visits, monkeypatch):
    for url in (registry.url, add_user(registry.url, "another")):
        with pytest.raises(ConnectionError, match="status 401 for .*WIRESCAN_REGISTRY_USER"):
            decode(f"avro:registry={url}", visits)
    monkeypatch.setenv("WIRESCAN_REGISTRY_USER", "alice")
    monkeypatch.setenv("WIRESCAN_REGISTRY_PASSWORD", "al:ice's secret@home")
    assert decode(f"avro:registry={registry.url}", visits)[1] == [None] * 4


def test_https(registry, visits, monkeypatch):
    text = f"avro:registry={add_user(registry.secure_url)}"
    with pytest.raises(ConnectionError, match="certificate verify failed"):
        decode(text, visits)
    monkeypatch.setenv("SSL_CERT_FILE", str(registry.authority))
    assert decode(text, visits)[1] == [None] * 4


@pytest.mark.parametrize("path", ["", "/apis/ccompat/v1", "/apis/registry/v3"])
def test_a_path_without_a_registry_is_an_error(path, registry, visits):
    url = add_user(registry.url).replace("/apis/ccompat/v7", path)
    with pytest.raises(ConnectionError, match="the URL must have the path of its interface"):
        decode(f"avro:registry={url}", visits)


def test_a_registry_that_is_stopped(client, visits, tmp_path):
    with Apicurio() as registry:
        url = add_user(registry.url)
        payloads = serialize_avro(registry.connect(), "visits", VISITS[:1])
        expected = decode(f"avro:registry={url}", payloads)
        schemas = SchemaRegistry(url)
        schemas.find(read_id(payloads[0]))
        registry.end()
        with pytest.raises(ConnectionError, match=r"schema registry 127.0.0.1: .*refused"):
            decode(f"avro:registry={url}", payloads)
        with pytest.raises(ConnectionError, match=r"schema registry 127.0.0.1: .*refused"):
            schemas.find(read_id(payloads[0]) + 1)
        assert json.loads(schemas.find(read_id(payloads[0])).text) == FIRST
    assert expected[1] == [None]
    (tmp_path / "0.log").write_bytes(encode_batch(payloads))
    decoder = f"value=avro:registry={url}"
    result = run("convert", tmp_path / "0.log", tmp_path / "out", "--decode", decoder)
    assert result.exit_code != 0
    assert "schema registry 127.0.0.1: Connection refused" in result.output
    assert "Traceback" not in result.output and "secret" not in result.output


# ---------------------------------------------------------------------- directories, the command


def test_a_directory_of_the_schemas(registry, visits, orders, messages, tmp_path):
    """Schemas that wirescan saves have the same values without the registry."""
    url = add_user(registry.url)
    for number, payloads in enumerate((visits, orders)):
        folder = tmp_path / f"avro{number}"
        SchemaRegistry(url).save({read_id(payload) for payload in payloads}, str(folder))
        assert decode(f"avro:registry={folder}", payloads) == decode(
            f"avro:registry={url}", payloads
        )
    folder = tmp_path / "protobuf"
    payloads = messages["shop.Order"]
    ProtobufRegistry(url).save([read_id(payloads[0])], str(folder))
    text = f"protobuf:registry={folder},message=shop.Order"
    assert decode_messages(text, payloads) == decode_messages(
        text.replace(str(folder), url), payloads
    )


def test_a_directory_that_others_write(client, visits, tmp_path):
    for number in {read_id(payload) for payload in visits}:
        (tmp_path / f"{number}.avsc").write_text(client.get_schema(number).schema_str)
    values, reasons = decode(f"avro:registry={tmp_path}", visits)
    assert reasons == [None] * 4
    assert values == deserialize_avro(client, visits, THIRD)


def test_the_command_converts(registry, client, visits, messages, shop, tmp_path):
    folder = tmp_path / "visits-0"
    folder.mkdir()
    values = [*visits, b"\0\0\0\x30\x39", None]
    keys = [*messages["shop.Customer"] * 5, b"?"]
    records = [Record(i, 1000, key, value) for i, (key, value) in enumerate(zip(keys, values))]
    (folder / "00000000000000000000.log").write_bytes(encode_batch(records))
    url = add_user(registry.url)
    result = run(
        *("convert", folder, tmp_path / "out"),
        *("--decode", f"value=avro:registry={url}"),
        *("--decode", f"key=protobuf:registry={url}"),
    )
    assert result.exit_code == 0, result.output
    table = pq.read_table(tmp_path / "out")
    expected = deserialize_avro(client, visits, THIRD)
    assert table["value"].to_pylist(maps_as_pydicts="strict") == [*expected, None, None]
    refused = "the registry has no schema 12345"
    assert table["value_fault"].to_pylist() == [None] * 4 + [refused, None]
    assert table["key"].to_pylist() == [{"name": "Ann"}] * 5 + [None]
