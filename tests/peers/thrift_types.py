"""The types of peer.thrift, for thriftpy2, which reads the file, and for Apache's library.

    PEER.Point, APACHE.Point                            thriftpy2's class, and Apache's class
    build_struct(APACHE.Point, {"x": 1})                an instance from plain values
    list_fields(build_struct(APACHE.Point, {"x": 1}))   its fields on the wire: [[1, "I32", 1]]

Apache's classes are like those of its compiler: subclasses of TBase with a `thrift_spec`. Apache's
Everything has one more field, 30: a UUID, which thriftpy2's IDL does not support.
"""

import uuid
from pathlib import Path
from types import SimpleNamespace

import thriftpy2
from thrift.protocol.TBase import TBase, TExceptionBase
from thrift.Thrift import TType
from thriftpy2.thrift import TType as Type2

PEER = thriftpy2.load(str(Path(__file__).with_name("peer.thrift")), "peer_thrift")
APACHE = SimpleNamespace()
FIELDS = {
    "TApplicationException": [(1, TType.STRING, "message", "UTF8"), (2, TType.I32, "type", None)]
}
NAMES = {
    getattr(TType, name): name
    for name in (
        "BOOL",
        "BYTE",
        "DOUBLE",
        "I16",
        "I32",
        "I64",
        "STRING",
        "STRUCT",
        "MAP",
        "SET",
        "LIST",
        "UUID",
    )
}

UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
LEAF = {"name": "leaf", "children": []}
EVERYTHING = {
    "yes": True,
    "no": False,
    "tiny": -128,
    "small": -32768,
    "plain": -(1 << 31),
    "large": (1 << 63) - 1,
    "real": -0.1,
    "text": "Grüße, ✓ und 𝄞",
    "data": b"\0\xff\r\n\x80\x01\x0f\xff",
    "numbers": list(range(-8, 8)),
    "words": {"one", "two", ""},
    "counts": {"a": 1, "b": -(1 << 63)},
    "point": {"x": 300, "y": -300},
    "points": [{"x": 0, "y": 1}, {}, {"y": 64}],
    "lists": {-1: ["a", "b"], 8192: []},
    "bits": [True, False, True],
    "flags": {1: True, -1: False},
    "smalls": {-1, 0, 32767},
    "reals": [[0.0, float("inf")], [], [1e-310]],
    "places": {"here": {"x": 1, "y": 2}},
    "none": [],
    "nothing": {},
    "tree": {"name": "root", "children": [LEAF, {"name": "branch", "children": [LEAF]}]},
    "uuid": UUID,
    "far": 2,
    "farther": "x" * 130,
    "back": -1,
}


def build_struct(cls: type, values: dict):
    """Build an instance of a class of either library from plain values.

    A nested struct is a dict of its fields.
    """
    struct = cls()
    for _, kind, name, arguments in FIELDS[cls.__name__]:
        if name in values and hasattr(struct, name):
            setattr(struct, name, _build_value(cls, kind, arguments, values[name]))
    return struct


def _build_value(cls: type, kind: int, arguments, value):
    if kind == TType.STRUCT:
        nested = arguments[0]
        if not issubclass(cls, TBase):
            nested = getattr(PEER, nested.__name__)
        return build_struct(nested, value)
    if kind in (TType.LIST, TType.SET):
        return type(value)(_build_value(cls, *arguments[:2], item) for item in value)
    if kind == TType.MAP:
        return {key: _build_value(cls, *arguments[2:4], item) for key, item in value.items()}
    return value


def list_fields(struct) -> list:
    """The fields of a struct of either library in their written order, as values for JSON.

    A field is [id, type, value]. A struct is the list of its fields. A list or set is [type,
    values]. A map is [type of keys, type of values, [key, value] pairs]; an empty map has no types.
    Bytes are Latin-1, and floats have the form of float.hex().
    """
    fields = FIELDS[type(struct).__name__]
    if isinstance(struct, TBase):
        fields = sorted(fields)
    return [
        [number, NAMES[kind], _json_value(kind, arguments, getattr(struct, name))]
        for number, kind, name, arguments in fields
        if getattr(struct, name, None) is not None
    ]


def _json_value(kind: int, arguments, value):
    if kind == TType.STRUCT:
        return list_fields(value)
    if kind in (TType.LIST, TType.SET):
        return [NAMES[arguments[0]], [_json_value(*arguments[:2], item) for item in value]]
    if kind == TType.MAP:
        types = (NAMES[arguments[0]], NAMES[arguments[2]]) if value else (None, None)
        pairs = [
            [_json_value(*arguments[:2], key), _json_value(*arguments[2:4], item)]
            for key, item in value.items()
        ]
        return [*types, pairs]
    if kind == TType.DOUBLE:
        return float(value).hex()
    if kind == TType.STRING:
        octets = value.encode() if isinstance(value, str) else value
        return octets.decode("latin-1")
    return value.bytes.decode("latin-1") if kind == TType.UUID else value


def _argument(kind: int, elements=None) -> tuple:
    """(type, arguments) in Apache's library for a type and its element types in thriftpy2."""
    if kind in (Type2.LIST, Type2.SET):
        return kind, (*_inner(elements), False)
    if kind == Type2.MAP:
        return kind, (*_inner(elements[0]), *_inner(elements[1]), False)
    if kind == Type2.STRUCT:
        return kind, _class(elements)
    if kind in (Type2.STRING, Type2.BINARY):
        return TType.STRING, "UTF8" if kind == Type2.STRING else "BINARY"
    return kind, None


def _inner(element) -> tuple:
    return _argument(*element) if isinstance(element, tuple) else _argument(element)


CLASSES: dict[str, list] = {}


def _class(source: type) -> list:
    """[class, its thrift_spec] in Apache's library for a class of thriftpy2."""
    name = source.__name__
    if name not in CLASSES:
        names = [field[1] for field in source.thrift_spec.values()]
        cls = type(
            name,
            (TExceptionBase if issubclass(source, Exception) else TBase,),
            {"__slots__": (*names, "uuid"), "__init__": _init},
        )
        CLASSES[name] = [cls, None]  # before its fields: a struct may contain itself
        FIELDS[name] = fields = []
        for number, (kind, field, *elements, _) in source.thrift_spec.items():
            kind, arguments = _argument(kind, *elements)
            fields.append((number, kind, field, arguments))
        if name == "Everything":
            fields.append((30, TType.UUID, "uuid", None))
        by_number = {field[0]: (*field, None) for field in fields}
        cls.thrift_spec = tuple(
            by_number.get(number) for number in range(max(by_number, default=-1) + 1)
        )
        CLASSES[name][1] = cls.thrift_spec
        setattr(APACHE, name, cls)
    return CLASSES[name]


def _init(self, **values):
    for name in self.__slots__:
        setattr(self, name, values.get(name))


for _service in PEER.Peer, PEER.More:
    for _method in _service.thrift_services:
        for _part in "args", "result":
            _class(getattr(_service, f"{_method}_{_part}"))
