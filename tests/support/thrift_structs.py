"""Bare Thrift structs by Apache Thrift, whose Python protocols are the oracle."""

import random

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer


class SkipBytes:
    """Skips strings without reading them as UTF-8, which Apache's Python does, but no other does.

    A negative id is that of no field; Apache's Python takes it as an index from the end.
    """

    def skip(self, kind, *depth):
        if kind == TType.STRING:
            self.readBinary()
        else:
            super().skip(kind, *depth)

    def readFieldBegin(self):
        name, kind, id = super().readFieldBegin()
        return name, kind, 32767 if id < 0 else id


class BinaryProtocol(SkipBytes, TBinaryProtocol):
    pass


class CompactProtocol(SkipBytes, TCompactProtocol):
    pass


PROTOCOLS = {"binary": BinaryProtocol, "compact": CompactProtocol}

IDL = """
enum Color { RED = 1, BLUE = 5, NEGATIVE = -3 }
typedef i64 Id
typedef list<string> Texts
struct Item { 1: required string name; 2: i32 count; 3: optional Color color }
union Payment { 1: i64 cash; 2: string card; 3: Item goods }
exception Refused { 1: string why; 2: i32 code }
struct Order {
    1: required Id id
    2: optional string customer
    3: binary raw
    4: Color color
    5: list<Item> items
    6: map<string, list<i32>> counts
    7: Payment payment
    8: set<i16> sizes
    9: byte small
    10: bool paid
    11: double amount
    12: Texts tags
    13: list<bool> flags
    14: map<i32, Item> by_number
    15: list<list<double>> table
    40: list<Color> colors
    41: Refused refused
    42: map<Color, binary> pictures
}
"""


def spec(*fields):
    """Return a thrift_spec as the compiler of Apache Thrift writes it."""
    slots = [None] * (max(field[0] for field in fields) + 1)
    for id, kind, name, detail in fields:
        slots[id] = (id, kind, name, detail, None)
    return tuple(slots)


TEXT = (TType.STRING, "UTF8", False)
ITEM = spec(
    (1, TType.STRING, "name", "UTF8"),
    (2, TType.I32, "count", None),
    (3, TType.I32, "color", None),
)


class Item:
    thrift_spec = ITEM

    def __init__(self, **values):
        for field in self.thrift_spec:
            if field is not None:
                setattr(self, field[2], values.get(field[2]))

    def read(self, protocol):
        protocol.readStruct(self, self.thrift_spec)

    def write(self, protocol):
        protocol.writeStruct(self, self.thrift_spec)


class Payment(Item):
    thrift_spec = spec(
        (1, TType.I64, "cash", None),
        (2, TType.STRING, "card", "UTF8"),
        (3, TType.STRUCT, "goods", [Item, ITEM]),
    )


class Refused(Item):
    thrift_spec = spec((1, TType.STRING, "why", "UTF8"), (2, TType.I32, "code", None))


ITEMS = (TType.STRUCT, [Item, ITEM], False)
INTEGERS = (TType.I32, None, False)


class Order(Item):
    thrift_spec = spec(
        (1, TType.I64, "id", None),
        (2, TType.STRING, "customer", "UTF8"),
        (3, TType.STRING, "raw", "BINARY"),
        (4, TType.I32, "color", None),
        (5, TType.LIST, "items", ITEMS),
        (6, TType.MAP, "counts", (TType.STRING, "UTF8", TType.LIST, INTEGERS, False)),
        (7, TType.STRUCT, "payment", [Payment, Payment.thrift_spec]),
        (8, TType.SET, "sizes", (TType.I16, None, False)),
        (9, TType.BYTE, "small", None),
        (10, TType.BOOL, "paid", None),
        (11, TType.DOUBLE, "amount", None),
        (12, TType.LIST, "tags", TEXT),
        (13, TType.LIST, "flags", (TType.BOOL, None, False)),
        (14, TType.MAP, "by_number", (TType.I32, None, TType.STRUCT, [Item, ITEM], False)),
        (15, TType.LIST, "table", (TType.LIST, (TType.DOUBLE, None, False), False)),
        (40, TType.LIST, "colors", INTEGERS),
        (41, TType.STRUCT, "refused", [Refused, Refused.thrift_spec]),
        (42, TType.MAP, "pictures", (TType.I32, None, TType.STRING, "BINARY", False)),
    )


def encode(struct, protocol):
    """Return the bytes of a struct, as TSerializer of Apache Thrift writes them."""
    buffer = TMemoryBuffer()
    struct.write(PROTOCOLS[protocol](buffer))
    return buffer.getvalue()


def read(raw, protocol, kind=Order):
    """Return the struct in bytes; raise an error of Apache Thrift, or ValueError if bytes follow.

    Its readers stop at nothing: a size is believed. So they get a limit.
    """
    buffer = TMemoryBuffer(raw)
    struct = kind()
    limits = {"string_length_limit": len(raw), "container_length_limit": len(raw)}
    struct.read(PROTOCOLS[protocol](buffer, **limits))
    if buffer.cstringio_buf.read(1):
        raise ValueError("bytes follow")
    return struct


def name_color(number):
    return {1: "RED", 5: "BLUE", -3: "NEGATIVE"}.get(number, str(number))


def list_values(struct):
    """Return what a decoder must make of a struct of Apache Thrift: dicts, lists and pairs."""
    values = {field[2]: getattr(struct, field[2]) for field in struct.thrift_spec if field}
    for name, value in values.items():
        if value is None:
            continue
        if name == "color":
            values[name] = name_color(value)
        elif name == "colors":
            values[name] = [name_color(number) for number in value]
        elif name == "pictures":
            values[name] = {name_color(number): octets for number, octets in value.items()}
        elif name == "items":
            values[name] = [list_values(item) for item in value]
        elif name == "by_number":
            values[name] = {number: list_values(item) for number, item in value.items()}
        elif name == "sizes":
            values[name] = sorted(value)
        elif isinstance(value, Item):
            values[name] = list_values(value)
    return values


def make_item(chance: random.Random):
    color = chance.choice([None, 1, 5, -3, 77])
    return Item(name=chance.choice(["", "rug", "Büro", "x" * 200]), count=None, color=color)


def make_order(chance: random.Random):
    """Return a random order. Each field but the id may be missing."""

    def number(bits):
        return chance.randrange(-(1 << bits - 1), 1 << bits - 1) >> chance.randrange(bits)

    values = {
        "customer": chance.choice(["", "Zoë", "k" * 130]),
        "raw": chance.randbytes(chance.randrange(5)),
        "color": chance.choice([1, 5, -3, 0, 2**31 - 1, -(2**31)]),
        "items": [make_item(chance) for _ in range(chance.randrange(20))],
        "counts": {str(i): [number(32)] * i for i in range(chance.randrange(3))},
        "payment": chance.choice(
            [Payment(cash=number(64)), Payment(card="1"), Payment(goods=make_item(chance))]
        ),
        "sizes": {number(16) for _ in range(chance.randrange(4))},
        "small": number(8),
        "paid": chance.random() < 0.5,
        "amount": chance.choice([0.5, -1e300, float("inf")]),
        "tags": ["a", "", "é"][: chance.randrange(4)],
        "flags": [True, False, True][: chance.randrange(4)],
        "by_number": {number(32): make_item(chance) for _ in range(chance.randrange(3))},
        "table": [[0.25] * i for i in range(chance.randrange(3))],
        "colors": [1, 9, 5][: chance.randrange(4)],
        "refused": Refused(why="no", code=number(32)),
        "pictures": {1: b"\xff", 8: b""},
    }
    kept = {name: value for name, value in values.items() if chance.random() < 0.7}
    return Order(id=number(64), **kept)
