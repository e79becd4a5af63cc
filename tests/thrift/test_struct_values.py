"""Bare structs as columns, beside Apache Thrift and thriftpy2: values, hostile bytes, notation."""

import pickle
import random
import struct
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import thriftpy2
from thriftpy2.protocol import TBinaryProtocolFactory, TCompactProtocolFactory
from thriftpy2.utils import serialize

from tests.support.command import run
from tests.support.slowness import SLOWNESS
from tests.support.thrift_structs import (
    IDL,
    PROTOCOLS,
    Item,
    Order,
    encode,
    list_values,
    make_order,
    read,
)
from wirescan.decoding.notation import parse_decoder
from wirescan.kafka import encode_batch
from wirescan.thrift.struct_values import ThriftDecoder

FACTORIES = {"binary": TBinaryProtocolFactory, "compact": TCompactProtocolFactory}


@pytest.fixture(scope="module")
def idl(tmp_path_factory):
    path = tmp_path_factory.mktemp("idl") / "order.thrift"
    path.write_text(IDL)
    return str(path)


def decode(decoder, payloads):
    """Return (values, reasons) as lists. Sets are sorted, because Thrift's have no order."""
    values, reasons = decoder.decode(pa.array(payloads, pa.binary()))
    values.validate(full=True)
    assert len(values) == len(reasons) == len(payloads)
    listed = values.to_pylist(maps_as_pydicts="lossy")
    for value in listed:
        if value and value.get("sizes"):
            value["sizes"] = sorted(set(value["sizes"]))
    return listed, reasons.to_pylist()


def write_idl(path, text):
    path.write_text(text)
    return str(path)


def binary_field(kind, id, value):
    return struct.pack(">bh", kind, id) + value


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_values_are_those_of_apache_thrift(idl, protocol):
    chance = random.Random(protocol)
    orders = [make_order(chance) for _ in range(500)]
    payloads = [encode(order, protocol) for order in orders]
    values, reasons = decode(ThriftDecoder(idl, "Order", protocol=protocol), [*payloads, None])
    assert reasons == [None] * 501
    assert values == [*map(list_values, orders), None]


@pytest.mark.parametrize("count", [2, 16, 17, 1000])
def test_the_last_entry_of_a_key_counts(count, tmp_path):
    path = write_idl(tmp_path / "maps.thrift", "struct M { 1: map<i32, list<i16>> m }")
    entries = [(i % (count // 2), i) for i in range(count)]
    pairs = b"".join(struct.pack(">ibih", key, 6, 1, value) for key, value in entries)
    raw = binary_field(13, 1, struct.pack(">bbi", 8, 15, count) + pairs) + b"\0"
    values, reasons = ThriftDecoder(path, "M").decode(pa.array([raw], pa.binary()))
    assert reasons.to_pylist() == [None]
    (value,) = values.to_pylist(maps_as_pydicts="strict")
    assert value == {"m": {key: [value] for key, value in entries}}


def test_maps_whose_keys_are_structs_have_all_entries(tmp_path):
    text = "struct K { 1: i32 a } struct M { 1: map<K, bool> m }"
    path = write_idl(tmp_path / "keys.thrift", text)
    pair = binary_field(8, 1, struct.pack(">i", 7)) + b"\0\1"
    raw = binary_field(13, 1, struct.pack(">bbi", 12, 2, 2) + pair * 2) + b"\0"
    values, reasons = ThriftDecoder(path, "M").decode(pa.array([raw], pa.binary()))
    assert reasons.to_pylist() == [None]
    assert values.to_pylist() == [{"m": [({"a": 7}, True)] * 2}]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_values_are_those_that_thriftpy2_writes(idl, protocol):
    module = thriftpy2.load(idl, module_name=f"{protocol}_thrift")
    order = module.Order(
        id=-7,
        items=[module.Item(name="rug", color=5)],
        counts={"a": [1, -1]},
        payment=module.Payment(card="4711"),
        raw=b"\xff\x00",
        flags=[True, False],
        amount=0.1,
        sizes={3},
    )
    raw = serialize(order, FACTORIES[protocol]())
    for source in (idl, module):
        values, reasons = decode(ThriftDecoder(source, "Order", protocol=protocol), [raw])
        assert reasons == [None]
        assert values == [list_values(read(raw, protocol))]
    assert values[0]["items"] == [{"name": "rug", "count": None, "color": "BLUE"}]
    assert values[0]["payment"] == {"cash": None, "card": "4711", "goods": None}


def test_types(idl):
    kind = ThriftDecoder(idl, "Order").type
    item = pa.struct([("name", pa.string()), ("count", pa.int32()), ("color", pa.string())])
    expected = {
        "id": pa.int64(),
        "raw": pa.binary(),
        "color": pa.string(),
        "items": pa.list_(item),
        "counts": pa.map_(pa.string(), pa.list_(pa.int32())),
        "sizes": pa.list_(pa.int16()),
        "small": pa.int8(),
        "paid": pa.bool_(),
        "amount": pa.float64(),
        "table": pa.list_(pa.list_(pa.float64())),
        "pictures": pa.map_(pa.string(), pa.binary()),
    }
    assert {name: kind.field(name).type for name in expected} == expected
    assert [field.name for field in ThriftDecoder(idl, "Payment").type] == ["cash", "card", "goods"]
    assert [field.name for field in ThriftDecoder(idl, "Refused").type] == ["why", "code"]


def assert_accepted_only_as_apache_reads(idl, protocol, payloads):
    """Assert it of each payload, and return how many are accepted."""
    values, reasons = decode(ThriftDecoder(idl, "Order", protocol=protocol), payloads)
    for raw, value, reason in zip(payloads, values, reasons):
        assert (value is None) == (reason is not None)
        if value is not None:
            expected = list_values(read(raw, protocol))
            assert repr(value) == repr(expected), raw  # NaN is not equal to itself
    return reasons.count(None)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_cut_structs_are_refused(idl, protocol):
    raw = encode(make_order(random.Random(5)), protocol)
    values, reasons = decode(
        ThriftDecoder(idl, "Order", protocol=protocol), [raw[:end] for end in range(len(raw))]
    )
    assert values == [None] * len(raw)
    assert None not in reasons


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_changed_bytes_are_accepted_only_as_what_apache_thrift_reads(idl, protocol):
    chance = random.Random(protocol)
    for _ in range(4):
        raw = encode(make_order(chance), protocol)
        payloads = [
            raw[:at] + bytes([value]) + raw[at + 1 :]
            for at in range(min(len(raw), 250))
            for value in {0, 1, 127, 128, 255, raw[at] ^ 1, raw[at] ^ 0x10}
        ]
        assert 0 < assert_accepted_only_as_apache_reads(idl, protocol, payloads) < len(payloads)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_random_bytes(idl, protocol):
    chance = random.Random(1)
    payloads = [chance.randbytes(chance.randrange(40)) for _ in range(3000)]
    assert_accepted_only_as_apache_reads(idl, protocol, payloads)


ID = binary_field(10, 1, bytes(8))
HOSTILE = {
    "nothing": (b"", "it ends inside its struct"),
    "no end": (ID, "it ends inside its struct"),
    "more": (ID + b"\0\0", "bytes follow the struct"),
    "no id": (b"\0", "a required field is missing"),
    "another type of the id": (
        binary_field(8, 1, bytes(4)) + b"\0",
        "a required field is missing",
    ),
    "no id inside": (
        ID + binary_field(12, 7, binary_field(12, 3, b"\0") + b"\0") + b"\0",
        "a required field is missing",
    ),
    "no such type": (
        ID + binary_field(77, 9, b"") + b"\0",
        "a field or an element has a type that does not exist",
    ),
    "elements of another type": (
        ID + binary_field(15, 12, b"\x08" + struct.pack(">ii", 1, 1)) + b"\0",
        "an element has another type than in the IDL",
    ),
    "four billion elements": (
        ID + binary_field(15, 5, b"\x0c\xff\xff\xff\xff") + b"\0",
        "a list, set or map has more elements than bytes follow",
    ),
    "two billion elements": (
        ID + binary_field(13, 6, b"\x0b\x0f\x7f\xff\xff\xff") + b"\0",
        "a list, set or map has more elements than bytes follow",
    ),
    "a long string": (
        ID + binary_field(11, 2, b"\x7f\xff\xff\xff") + b"\0",
        "it ends inside its struct",
    ),
    "a negative string": (
        ID + binary_field(11, 2, b"\xff\xff\xff\xff") + b"\0",
        "it ends inside its struct",
    ),
    "no text": (
        ID + binary_field(11, 2, b"\0\0\0\2\xff\xfe") + b"\0",
        "a string is not UTF-8",
    ),
    "deep": (ID + binary_field(12, 99, b"") * 100_000, "its values are nested too deeply"),
    "deep lists": (
        ID + binary_field(15, 99, b"\x0f\0\0\0\1" * 100_000),
        "a list, set or map has more elements than bytes follow",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_null_with_a_reason(idl, name):
    raw, reason = HOSTILE[name]
    good = encode(Order(id=1, tags=["a"]), "binary")
    start = time.process_time()
    values, reasons = decode(ThriftDecoder(idl, "Order"), [good, raw, None, good])
    assert time.process_time() - start < 2 * SLOWNESS
    assert reasons[0] is reasons[2] is reasons[3] is None
    if name != "deep lists":
        assert reasons[1] == reason
    assert reasons[1] and values[1] is None and values[2] is None
    assert values[0] == values[3] == list_values(read(good, "binary"))


def test_numbers_outside_their_range_are_refused(idl):
    decoder = ThriftDecoder(idl, "Order", protocol="compact")
    start = encode(Order(id=1), "compact")[:-1]
    large = start + b"\x7a\x14\x80\x80\x04\0"  # a set of one i16, 32768
    assert decode(decoder, [large])[1] == ["a number is outside its range"]
    endless = start + b"\x25" + b"\xff" * 20
    assert decode(decoder, [endless])[1][0] is not None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_other_fields_are_skipped(idl, protocol, tmp_path):
    """Fields that the IDL does not have, and those that have another type there."""
    later = write_idl(
        tmp_path / "later.thrift",
        "enum Color { RED = 1 } struct Item { 1: required string name } "
        "struct Order { 1: required i64 id; 12: list<string> tags; 9: list<i32> small; "
        "5: map<i32, Item> items; 10: string paid }",
    )
    chance = random.Random(protocol)
    orders = [make_order(chance) for _ in range(100)]
    payloads = [encode(order, protocol) for order in orders]
    values, reasons = decode(ThriftDecoder(later, "Order", protocol=protocol), payloads)
    assert reasons == [None] * 100
    nothing = {"small": None, "items": None, "paid": None}
    assert values == [{"id": o.id, "tags": o.tags, **nothing} for o in orders]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_last_of_a_repeated_field_counts(idl, protocol):
    first = Order(id=1, items=[Item(name="a"), Item(name="b")], tags=["x"], amount=0.5)
    last = Order(id=2, items=[Item(name="c")], tags=[], paid=True)
    raw = encode(first, protocol)[:-1] + encode(last, protocol)
    if protocol == "compact":
        # The second id is a difference from the last field of the first order: 11, then 1.
        raw = encode(first, protocol)[:-1] + b"\x06\x02" + encode(last, protocol)[1:]
    values, reasons = decode(ThriftDecoder(idl, "Order", protocol=protocol), [raw] * 2)
    assert reasons == [None] * 2
    assert values == [list_values(read(raw, protocol))] * 2
    assert values[0]["items"] == [{"name": "c", "count": None, "color": None}]
    assert (values[0]["id"], values[0]["tags"], values[0]["amount"]) == (2, [], 0.5)


def test_nulls_of_wide_structs_are_bounded(tmp_path):
    """A byte can stand for a struct of many fields, so values are counted."""
    fields = " ".join(f"{i}: string f{i}" for i in range(1, 4001))
    path = write_idl(
        tmp_path / "wide.thrift",
        f"struct Wide {{ {fields} }} struct Order {{ 1: list<Wide> all; 2: Wide again }}",
    )
    many = binary_field(15, 1, b"\x0c\0\0\x20\0" + bytes(8192)) + b"\0"
    again = binary_field(12, 2, b"\0") * 20_000 + b"\0"
    # To remove an empty list, the columns of its elements are visited.
    empty = binary_field(15, 1, b"\x0c\0\0\0\0") * 20_000 + b"\0"
    start = time.process_time()
    values, reasons = decode(ThriftDecoder(path, "Order"), [many, again, empty] * 2)
    assert time.process_time() - start < 20 * SLOWNESS
    assert values == [None] * 6
    assert reasons == ["it has too many values for its size"] * 6


def test_structs_of_included_files(tmp_path):
    write_idl(tmp_path / "shared.thrift", "struct Inner { 1: i32 a }")
    path = write_idl(
        tmp_path / "outer.thrift", 'include "shared.thrift"\nstruct Outer { 1: shared.Inner b }'
    )
    inner = b"\x08\0\1\0\0\0\5\0"
    assert decode(ThriftDecoder(path, "shared.Inner"), [inner])[0] == [{"a": 5}]
    outer = b"\x0c\0\1" + inner + b"\0"
    assert decode(ThriftDecoder(path, "Outer"), [outer])[0] == [{"b": {"a": 5}}]


def test_convert_decodes_structs(idl, tmp_path):
    good = encode(Order(id=4, customer="Zoë", items=[Item(name="rug")]), "compact")
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(encode_batch([good, good[:4]]))
    text = f"value=thrift:{idl},struct=Order,protocol=compact"
    result = run("convert", path, tmp_path / "out.parquet", "--decode", text)
    assert result.exit_code == 0, result.output
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["value"].to_pylist()[0]["items"] == [{"name": "rug", "count": None, "color": None}]
    assert table["value"].to_pylist()[1] is None
    assert table["value_fault"].to_pylist() == [None, "it ends inside its struct"]
    result = run("convert", path, tmp_path / "no", "--decode", f"value=thrift:{idl},struct=No")
    assert result.exit_code == 2
    assert "has no struct 'No'" in result.output


def test_no_payloads_and_pickles(idl):
    decoder = parse_decoder(f"thrift:{idl},struct=Order,protocol=compact")
    assert decode(decoder, []) == ([], [])
    raw = encode(Order(id=3), "compact")
    expected = decode(decoder, [raw])
    copy = pickle.loads(pickle.dumps(decoder))
    assert copy.type == decoder.type
    assert decode(copy, [raw]) == expected


@pytest.mark.parametrize(
    "text",
    [
        "struct Node { 1: i32 a; 2: optional Node inner }",
        "struct Node { 1: list<Node> inner }",
        "struct Node { 1: map<string, list<Node>> inner }",
        "struct Other { 1: i32 a }",
        "service Node { void run() }",
        "struct Node {",
        "const list<i32> x = [8, 9]\nstruct Node { 1: x a }",
        "service x {}\nstruct Node { 1: list<x> a }",
        "struct Node { 65537: i32 a }",
        "struct Node { 99999999999: i32 a }",
        "struct Node { 1: " + "list<" * 70 + "i32" + ">" * 70 + " a }",
    ],
)
def test_structs_that_have_no_column(text, tmp_path):
    path = write_idl(tmp_path / "node.thrift", text)
    with pytest.raises(ValueError, match="node.thrift"):
        parse_decoder(f"thrift:{path},struct=Node")


def test_numbers_of_an_enum_that_cannot_be_written_are_no_names(tmp_path):
    text = "enum E { A = 4294967301, B = -1 }\nstruct S { 1: E a }"
    decoder = ThriftDecoder(write_idl(tmp_path / "s.thrift", text), "S")
    payloads = [binary_field(8, 1, struct.pack(">i", number)) + b"\0" for number in (5, -1)]
    assert decode(decoder, payloads) == ([{"a": "5"}, {"a": "B"}], [None, None])


def test_structs_that_grow_without_bound_are_refused(tmp_path):
    text = "struct S0 { 1: i32 a }\n" + "".join(
        f"struct S{i} {{ 1: S{i - 1} a; 2: S{i - 1} b }}\n" for i in range(1, 40)
    )
    path = write_idl(tmp_path / "grow.thrift", text)
    with pytest.raises(ValueError, match="too many fields"):
        ThriftDecoder(path, "S39")


@pytest.mark.parametrize(
    "text, message",
    [
        ("thrift", "needs an IDL and a struct"),
        ("thrift:{idl}", "needs an IDL and a struct"),
        ("thrift:struct=Order", "needs an IDL and a struct"),
        ("thrift:{idl},struct=", "is no option"),
        ("thrift:{idl},struct=Order,struct=Item", "is no option"),
        ("thrift:{idl},struct=Order,mode=x", "is no option"),
        ("thrift:{idl},struct=Order,protocol=json", "binary or compact"),
        ("thrift:{idl},struct=Ordr", "its structs are: Item, Order, Payment, Refused"),
        ("thrift:{idl},struct=Color", "has no struct 'Color'"),
    ],
)
def test_texts_that_name_no_decoder(idl, text, message):
    with pytest.raises(ValueError, match=message):
        parse_decoder(text.format(idl=idl))


def test_the_path_may_contain_commas(tmp_path):
    path = write_idl(tmp_path / "a,b.thrift", "struct S { 1: i32 a }")
    assert parse_decoder(f"thrift:{path},struct=S").type == pa.struct([("a", pa.int32())])
    with pytest.raises(OSError):
        parse_decoder("thrift:nowhere.thrift,struct=S")
