"""Protobuf after Confluent's header, schema registries, and the texts that name the decoder."""

import base64
import json
import pickle
import socket

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf import descriptor_pb2

from tests.support.avro_bytes import frame
from tests.support.command import run
from tests.support.fake_registry import USER, serve_schemas
from tests.support.protobuf_messages import (
    add_field,
    make_class,
    make_order_files,
    pack_files,
    sized,
    tag,
)
from tests.support.varint import make_varint
from wirescan.core.strings import ByteStrings
from wirescan.decoding.notation import parse_decoder
from wirescan.decoding.protobuf_headers import split_headers
from wirescan.decoding.protobuf_registry import ProtobufRegistry
from wirescan.decoding.protobuf_values import ProtobufDecoder
from wirescan.decoding.schema_registry import MOST_REFERENCES
from wirescan.kafka import Record, encode_batch

NO_FILES = "it is not a FileDescriptorSet, which protoc writes"
OTHER = "its header has message indexes"


def make_shop(*, has_notes=False, dependency=""):
    """Return a file with the messages Customer, Order and Order.Line, in proto3."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    customer = file.message_type.add(name="Customer")
    add_field(customer, "name", 1, "string")
    order = file.message_type.add(name="Order")
    add_field(order, "number", 1, "int64")
    add_field(order.nested_type.add(name="Address"), "city", 1, "string")
    line = order.nested_type.add(name="Line")
    add_field(line, "item", 1, "string")
    add_field(order, "lines", 2, "message .shop.Order.Line", "repeated")
    if has_notes:
        add_field(order, "note", 3, "string")
    if dependency:
        file.dependency.append(dependency)
        add_field(order, "price", 4, "message .money.Money")
    return file


def make_money():
    file = descriptor_pb2.FileDescriptorProto(
        name="m/money.proto", package="money", syntax="proto3"
    )
    add_field(file.message_type.add(name="Money"), "cents", 1, "int64")
    return file


def make_header(number, *path):
    """Return Confluent's header. path: the message indexes; none for the single 0."""
    indexes = b"\0" if not path else b"".join(make_varint(2 * n) for n in (len(path), *path))
    return frame(number, indexes)


def answer(file, references=()):
    """Return a registry's answer with a file."""
    schema = base64.b64encode(file.SerializeToString()).decode()
    content = {"schema": schema, "schemaType": "PROTOBUF", "references": list(references)}
    return json.dumps(content).encode()


def write_files(folder, files):
    for number, raw in files.items():
        (folder / f"{number}.desc").write_bytes(raw)
    return str(folder)


def decode(decoder, payloads):
    values, reasons = decoder.decode(pa.array(payloads, pa.binary()))
    values.validate(full=True)
    return values.to_pylist(), reasons.to_pylist()


NUMBER = tag(1, 0) + b"\7"
ORDER = make_class("shop.Order", make_shop())(number=7).SerializeToString()


# ---------------------------------------------------------------------- headers


def test_sizes_of_headers():
    payloads = {
        b"": -1,
        None: -1,
        b"\0\0\0\0\1": -1,
        b"\1\0\0\0\1\0": -1,
        b"\0\0\0\0\1\0": 6,
        b"\0\0\0\0\1\0abc": 6,
        b"\0\0\0\0\1\2\0": 7,
        b"\0\0\0\0\1\2": -1,
        b"\0\0\0\0\1\4\2\4a": 8,
        b"\0\0\0\0\1\4\x80\x01\4": 9,
        b"\0\0\0\0\1\4\x80": -1,
        b"\0\0\0\0\1\1\0": -1,  # a negative number of indexes
        b"\0\0\0\0\1" + make_varint(64) + bytes(32): 38,
        b"\0\0\0\0\1" + make_varint(66) + bytes(33): -1,
        b"\0\0\0\0\1" + b"\xff" * 20: -1,
    }
    sizes, _ = split_headers(ByteStrings(pa.array(list(payloads), pa.binary())))
    assert sizes.tolist() == list(payloads.values())


def test_runs_of_headers():
    first, second = b"\0\0\0\0\1\0", b"\0\0\0\0\2\0"
    payloads = [first, first + b"a", second, first, b"", None, b"x", second]
    _, runs = split_headers(ByteStrings(pa.array(payloads, pa.binary())))
    assert runs.tolist() == [1, 1, 2, 3, 4, 4, 4, 5]


@pytest.mark.parametrize(
    "name, path, raw",
    [
        ("shop.Order", (1,), NUMBER),
        ("shop.Order.Line", (1, 1), sized(1, b"rug")),
        ("shop.Customer", (0,), sized(1, b"Ann")),
        ("shop.Customer", (), sized(1, b"Ann")),
    ],
)
def test_the_indexes_must_be_those_of_the_message(name, path, raw):
    decoder = ProtobufDecoder(pack_files(make_shop()), name, has_header=True)
    payloads = [
        make_header(1, *path) + raw,
        make_header(2, *path) + raw,
        make_header(1, 1, 0) + raw,
        make_header(1, 7) + raw,
        raw,
        None,
    ]
    values, reasons = decode(decoder, payloads)
    expected, _ = decode(ProtobufDecoder(pack_files(make_shop()), name), [raw])
    assert values == [*expected * 2, None, None, None, None]
    assert reasons[:2] == [None, None]
    shown = ".".join(map(str, path or (0,)))
    assert reasons[2:4] == [f"{OTHER} 1.0, not {shown}", f"{OTHER} 7, not {shown}"]
    assert reasons[4:] == ["it does not begin with Confluent's header", None]


def test_the_first_header_names_the_message():
    decoder = ProtobufDecoder(pack_files(make_money(), make_shop()), has_header=True)
    with pytest.raises(ValueError, match="call fit"):
        decoder.decode(pa.array([], pa.binary()))
    sample = [None, b"x", make_header(5, 9), make_header(5, 1) + NUMBER, make_header(5)]
    decoder.fit(pa.array(sample, pa.binary()))
    assert decoder.type.field(0).name == "number"
    values, reasons = decode(decoder, sample)
    assert values[3] == {"number": 7, "lines": []}
    assert [reason is None for reason in reasons] == [True, False, False, True, False]
    with pytest.raises(ValueError, match="name the message"):
        ProtobufDecoder(pack_files(make_shop()), has_header=True).fit(pa.array([b"x"]))


def test_sliced_and_repeated_payloads_keep_their_headers():
    decoder = ProtobufDecoder(pack_files(make_shop()), "shop.Order", has_header=True)
    payloads = [b"x", make_header(1, 1) + NUMBER, make_header(1) + NUMBER] * 50
    whole, reasons = decode(decoder, payloads)
    for start in range(4):
        array = pa.array(payloads, pa.binary_view()).slice(start, 60)
        values, other = decoder.decode(array)
        assert values.to_pylist() == whole[start : start + 60]
        assert other.to_pylist() == reasons[start : start + 60]


# ---------------------------------------------------------------------- registries


def test_a_directory_has_the_schemas(tmp_path):
    files = {
        1: pack_files(make_shop()),
        2: pack_files(make_money(), make_shop(has_notes=True, dependency="m/money.proto")),
        3: make_order_files(),
        4: b"junk",
        5: pack_files(make_money()),
    }
    decoder = parse_decoder(f"protobuf:registry={write_files(tmp_path, files)}")
    price = sized(4, tag(1, 0) + b"\5")
    payloads = {
        make_header(1, 1) + NUMBER: None,
        make_header(2, 1) + NUMBER + sized(3, b"n") + price: None,
        make_header(3) + NUMBER: None,  # another file, and the same name
        make_header(2) + NUMBER: "it is a message shop.Customer, not shop.Order",
        make_header(2, 9): "schema 2 has no message with the indexes 9",
        make_header(4): f"schema 4 of the registry: {NO_FILES}",
        make_header(5): "it is a message money.Money, not shop.Order",
        make_header(6): "the registry has no schema 6",
    }
    decoder.fit(pa.array(list(payloads)[:2], pa.binary()))
    values, reasons = decode(decoder, list(payloads))
    assert reasons == list(payloads.values())
    missing = {"lines": [], "note": "", "price": None}
    assert values[0] == values[2] == {"number": 7, **missing}
    assert values[1] == {"number": 7, "lines": [], "note": "n", "price": {"cents": 5}}


def test_a_server_is_asked_for_descriptors_and_references():
    reference = {"name": "m/money.proto", "subject": "the money/s", "version": 3}
    money = make_money()
    money.name = "unnamed.proto"  # a registry names files as it likes
    shop = make_shop(dependency="m/money.proto")
    shop.name = ""
    answers = {
        "/schemas/ids/1": answer(shop, [reference]),
        "/subjects/the%20money%2Fs/versions/3": answer(money),
    }
    with serve_schemas(answers, asks_user=True) as (address, asked):
        user = USER.replace(":", "%3A").replace("%3A", ":", 1)
        decoder = parse_decoder(f"protobuf:registry=http://{user}@{address}")
        payloads = [make_header(1, 1) + NUMBER + sized(4, b""), make_header(2, 1)] * 3
        decoder.fit(pa.array(payloads, pa.binary()))
        for _ in range(2):
            values, reasons = decode(decoder, payloads)
        assert values[::2] == [{"number": 7, "lines": [], "price": {"cents": 0}}] * 3
        assert reasons[1::2] == ["the registry has no schema 2"] * 3
        query = "?format=serialized"
        assert sorted(asked) == [
            f"/schemas/ids/1{query}",
            f"/schemas/ids/2{query}",
            f"/subjects/the%20money%2Fs/versions/3{query}",
        ]


LOSSY = json.dumps({"schema": "\n\x05Money\ufffd\x01", "schemaType": "PROTOBUF"}).encode()


@pytest.mark.parametrize("serialized", [500, 422, LOSSY], ids=["500", "422", "decoded as UTF-8"])
def test_descriptors_that_a_client_registered(serialized):
    """Apicurio Registry cannot serialize what the clients of Python register as base64."""
    query = "?format=serialized"
    paths = ("/schemas/ids/1", "/subjects/money/versions/2")
    reference = {"name": "m/money.proto", "subject": "money", "version": 2}
    answers = {
        paths[0]: answer(make_shop(dependency="m/money.proto"), [reference]),
        paths[1]: answer(make_money()),
    }
    failing = {path + query: serialized for path in paths}
    with serve_schemas(answers | failing) as (address, asked):
        decoder = parse_decoder(f"protobuf:registry=http://{address}")
        payloads = [make_header(1, 1) + NUMBER + sized(4, tag(1, 0) + b"\5")]
        decoder.fit(pa.array(payloads, pa.binary()))
        values, _ = decode(decoder, payloads)
    assert values == [{"number": 7, "lines": [], "price": {"cents": 5}}]
    assert asked == [paths[0] + query, paths[0], paths[1] + query, paths[1]]


SHOP_TEXT = """
    syntax = "proto3";
    package shop;
    import "m/money.proto";
    message Customer { string name = 1; }
    message Order {
        map<string, int32> counts = 3;
        int64 number = 1;
        message Line { string item = 1; }
        money.Money price = 4;
    }
"""


@pytest.mark.parametrize("money", ["text", "descriptor"])
def test_texts_of_proto_files(money):
    """The entry of a map is not counted in the indexes of the text."""
    text = 'syntax = "proto3"; package money; message Money { int64 cents = 1; }'
    reference = {"name": "m/money.proto", "subject": "money", "version": 2}
    shop = {"schema": SHOP_TEXT, "schemaType": "PROTOBUF", "references": [reference]}
    answers = {
        "/schemas/ids/1": json.dumps(shop).encode(),
        "/subjects/money/versions/2": json.dumps(
            {"schema": text, "schemaType": "PROTOBUF"}
        ).encode()
        if money == "text"
        else answer(make_money()),
    }
    with serve_schemas(answers) as (address, _):
        decoder = parse_decoder(f"protobuf:registry=http://{address}")
        payloads = [
            make_header(1, 1) + NUMBER + sized(4, tag(1, 0) + b"\5"),
            make_header(1, 1, 0) + sized(1, b"rug"),
        ]
        decoder.fit(pa.array(payloads, pa.binary()))
        values, reasons = decode(decoder, payloads)
    assert values == [{"counts": [], "number": 7, "price": {"cents": 5}}, None]
    assert reasons == [None, "it is a message shop.Order.Line, not shop.Order"]


KNOWN_TEXT = """
    syntax = "proto3";
    import "confluent/meta.proto";
    import "confluent/types/decimal.proto";
    import "confluent/type/variant.proto";
    import "google/protobuf/duration.proto";
    message Order {
        option (confluent.message_meta).doc = "an order";
        confluent.type.Decimal price = 1 [(confluent.field_meta) = { params: { key: "a" } }];
        confluent.type.Variant more = 2;
        google.protobuf.Duration time = 3;
    }
"""


def test_files_that_no_registry_has():
    content = {"schema": KNOWN_TEXT, "schemaType": "PROTOBUF"}
    with serve_schemas({1: json.dumps(content).encode()}) as (address, asked):
        decoder = parse_decoder(f"protobuf:registry=http://{address}")
        price = sized(1, sized(1, b"\x05") + tag(2, 0) + b"\2" + tag(3, 0) + b"\1")
        payloads = [make_header(1) + price + sized(2, sized(2, b"v"))]
        decoder.fit(pa.array(payloads, pa.binary()))
        values, _ = decode(decoder, payloads)
        assert {path.partition("?")[0] for path in asked} == {"/schemas/ids/1"}
    price = {"value": b"\x05", "precision": 2, "scale": 1}
    assert values == [{"price": price, "more": {"metadata": b"", "value": b"v"}, "time": None}]


@pytest.mark.parametrize(
    "name, reason",
    [
        ("google/type/nothing.proto", "pip install googleapis-common-protos, or call protoc"),
        ("google/protobuf/nothing.proto", "google/protobuf/nothing.proto: call protoc"),
        ("google/protobuf/../../os.proto", "os.proto: call protoc"),
        ("confluent/other.proto", "confluent/other.proto: call protoc"),
    ],
)
def test_files_that_nobody_has(name, reason):
    shop = make_shop()
    shop.dependency.append(name)
    with pytest.raises(ValueError, match=reason):
        ProtobufDecoder(pack_files(shop), "shop.Order")


def test_schemas_are_saved_with_their_imports(tmp_path):
    reference = {"name": "m/money.proto", "subject": "money", "version": 2}
    answers = {
        "/schemas/ids/1": answer(make_shop(dependency="m/money.proto"), [reference]),
        "/subjects/money/versions/2": answer(make_money()),
    }
    with serve_schemas(answers) as (address, _):
        ProtobufRegistry(f"http://{address}").save([1], str(tmp_path))
    decoder = parse_decoder(f"protobuf:registry={tmp_path}")
    payloads = [make_header(1, 1) + NUMBER + sized(4, tag(1, 0) + b"\5")]
    decoder.fit(pa.array(payloads, pa.binary()))
    assert decode(decoder, payloads)[0] == [{"number": 7, "lines": [], "price": {"cents": 5}}]


def make_reference(number):
    return {"name": f"{number}", "subject": f"{number}", "version": 1}


BAD_ANSWERS = {
    "text": (json.dumps({"schema": 'syntax = "no";', "schemaType": "PROTOBUF"}), "syntax of the"),
    "imports": (
        json.dumps({"schema": 'import "a.proto";', "schemaType": "PROTOBUF"}),
        "lacks the imported file a.proto",
    ),
    "junk": (json.dumps({"schema": "/////w==", "schemaType": "PROTOBUF"}), "not a FileDesc"),
    "avro": (json.dumps({"schema": '"int"'}), "not a Protobuf schema"),
    "no schema": ("{}", "the answer has no schema"),
    "no JSON": ("{", ""),
    "references": (answer(make_shop(), [3]).decode(), "a reference has no name"),
    "version": (answer(make_shop(), [make_reference(1) | {"version": "x"}]).decode(), ""),
    "lost": (answer(make_shop(), [make_reference(5)]).decode(), "has no version 1 of 5"),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_bad_answers_refuse_the_payloads(name):
    body, message = BAD_ANSWERS[name]
    answers = {"/schemas/ids/1": body.encode(), "/schemas/ids/2": answer(make_shop())}
    with serve_schemas(answers) as (address, _):
        decoder = ProtobufDecoder(registry=ProtobufRegistry(f"http://{address}"))
        payloads = [make_header(1, 1) + NUMBER, make_header(2, 1) + NUMBER]
        decoder.fit(pa.array(payloads, pa.binary()))
        values, reasons = decode(decoder, payloads)
        assert values == [None, {"number": 7, "lines": []}]
        assert reasons[0].startswith("schema 1 of the registry: ")
        assert message in reasons[0]
        with pytest.raises(ValueError, match="give a file"):
            ProtobufDecoder(registry=ProtobufRegistry(f"http://{address}")).fit(
                pa.array(payloads[:1], pa.binary())
            )


def test_endless_references_are_bounded():
    """Each schema refers to the next one, and to itself."""
    answers = {"/schemas/ids/1": answer(make_shop(), [make_reference(0)])}
    for i in range(1000):
        references = [make_reference(i), make_reference(i + 1)]
        answers[f"/subjects/{i}/versions/1"] = answer(make_money(), references)
    with serve_schemas(answers) as (address, asked):
        decoder = ProtobufDecoder(
            pack_files(make_shop()), "shop.Order", registry=ProtobufRegistry(f"http://{address}")
        )
        _, reasons = decode(decoder, [make_header(1, 1)])
        assert reasons == [
            f"schema 1 of the registry: it refers to more than {MOST_REFERENCES} schemas"
        ]
        assert len(asked) == MOST_REFERENCES + 1


def test_a_server_that_does_not_answer_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    decoder = parse_decoder(f"protobuf:registry=http://{address}")
    with pytest.raises(OSError, match="schema registry"):
        decoder.fit(pa.array([make_header(1)], pa.binary()))


# ---------------------------------------------------------------------- decoders


def test_decoders_are_pickled(tmp_path):
    shop = pack_files(make_shop())
    registry = ProtobufRegistry(write_files(tmp_path, {1: shop}))
    payload = make_header(1, 1) + NUMBER
    decoders = [
        ProtobufDecoder(shop, "shop.Order", has_header=True),
        ProtobufDecoder(shop, has_header=True),
        ProtobufDecoder(registry=registry),
    ]
    for decoder in decoders:
        unfitted = pickle.loads(pickle.dumps(decoder))
        for each in (decoder, unfitted):
            each.fit(pa.array([payload], pa.binary()))
        expected = ([{"number": 7, "lines": []}], [None])
        for each in (decoder, unfitted, pickle.loads(pickle.dumps(decoder))):
            assert decode(each, [payload]) == expected


BAD_TEXTS = {
    "protobuf": "needs a schema: protobuf:FILE,message=NAME",
    "protobuf:": "nothing follows the colon",
    "protobuf:message=shop.Order": "needs a schema",
    "protobuf:{file}": "name the message: message=NAME; the messages are shop.Customer, shop",
    "protobuf:{file},mesage=shop.Order": "no option 'mesage'; did you mean message",
    "protobuf:{file},message=shop.Ordr": "no message 'shop.Ordr'; did you mean shop.Order",
    "protobuf:{file},message=Q": "there is no message 'Q'; the messages are shop.Customer",
    "protobuf:{file},message=": "option message has no value",
    "protobuf:{file},message=a,message=b": "is given twice",
    "protobuf:{file},message=shop.Order,header=avro": "header is confluent, not 'avro'",
    "protobuff:{file}": "there is no decoder 'protobuff'; did you mean protobuf",
    "protobuf:{junk},message=shop.Order": "junk.desc: it is not a FileDescriptorSet",
    "protobuf:registry=ftp://a": "a registry is http",
}


@pytest.mark.parametrize("text", BAD_TEXTS)
def test_bad_texts_are_refused(text, tmp_path):
    (tmp_path / "shop.desc").write_bytes(pack_files(make_shop()))
    (tmp_path / "junk.desc").write_bytes(b"junk")
    with pytest.raises(ValueError) as error:
        parse_decoder(text.format(file=tmp_path / "shop.desc", junk=tmp_path / "junk.desc"))
    assert BAD_TEXTS[text] in str(error.value)


def test_missing_files_are_errors(tmp_path):
    with pytest.raises(FileNotFoundError):
        parse_decoder(f"protobuf:{tmp_path}/a.desc,message=a")
    with pytest.raises(FileNotFoundError):
        parse_decoder(f"protobuf:registry={tmp_path}/a")
    with pytest.raises(ValueError, match="needs a FileDescriptorSet or a registry"):
        ProtobufDecoder()


@pytest.mark.parametrize(
    "text, has_header",
    [
        ("shop,v1.desc,message=shop.Order", False),
        ("shop,v1.desc,message=shop.Order,header=confluent", True),
        ("shop,v1.desc,header=confluent", True),
        ("shop,v1.desc,message=shop.Order,registry=schemas", True),
        ("registry=schemas", True),
        ("registry=schemas,message=shop.Order", True),
    ],
)
def test_the_command_converts(text, has_header, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop,v1.desc").write_bytes(pack_files(make_shop()))
    (tmp_path / "schemas").mkdir()
    write_files(tmp_path / "schemas", {1: pack_files(make_shop())})
    header = make_header(1, 1) if has_header else b""
    kind = make_class("shop.Order", make_shop())
    values = [
        header + kind(number=i, lines=[{"item": "rug"}] * i).SerializeToString() for i in range(5)
    ]
    records = [Record(i, 1000, None, value) for i, value in enumerate([*values, None, b"\xff"])]
    (tmp_path / "0.log").write_bytes(encode_batch(records))
    result = run("convert", "0.log", "out", "--decode", f"value=protobuf:{text}")
    assert result.exit_code == 0, result.output
    table = pq.read_table(tmp_path / "out")
    expected = [{"number": i, "lines": [{"item": "rug"}] * i} for i in range(5)]
    assert table["value"].to_pylist() == [*expected, None, None]
    assert table["value_fault"].is_valid().to_pylist() == [False] * 6 + [True]


def test_the_command_names_what_is_wrong(tmp_path):
    (tmp_path / "shop.desc").write_bytes(pack_files(make_shop()))
    (tmp_path / "0.log").write_bytes(encode_batch([b""]))
    decoder = f"value=protobuf:{tmp_path}/shop.desc,message=shop.Odrer"
    result = run("convert", str(tmp_path / "0.log"), str(tmp_path / "out"), "--decode", decoder)
    assert result.exit_code != 0
    assert "did you mean shop.Order?" in result.output
