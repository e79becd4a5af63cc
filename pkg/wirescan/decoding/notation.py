"""The texts that name decoders, such as "json" or "int".

text                      payloads                                              class
json                      JSON objects; types are inferred from a sample        JsonDecoder
json:FILE                 JSON objects; FILE has their names and types          JsonDecoder
json:header=confluent     JSON objects after Confluent's header                 JsonDecoder
json:FILE,header=confluent    ... FILE has their names and types                JsonDecoder
msgpack                   MessagePack maps; types are inferred from a sample    MsgpackDecoder
msgpack:FILE              MessagePack maps; FILE has their names and types      MsgpackDecoder
avro:FILE                 Avro, each a value of the schema in FILE              AvroDecoder
avro:registry=WHERE       Avro after Confluent's header                         AvroDecoder
avro:FILE,registry=WHERE  ... resolved to the schema in FILE                    AvroDecoder
protobuf:FILE,message=M   Protobuf, each a message M of FILE                    ProtobufDecoder
protobuf:registry=WHERE   Protobuf after Confluent's header                     ProtobufDecoder
thrift:FILE,struct=NAME   Thrift, each a struct of the IDL in FILE              ThriftDecoder
short int long            big-endian integers                                   NumberDecoder
float double              big-endian IEEE 754 numbers                           NumberDecoder
uuid                      UUIDs in hexadecimal digits with hyphens              UuidDecoder
string                    UTF-8                                                 StringDecoder

WHERE is the URL of a schema registry, or a directory of files ID.avsc (Avro) or ID.desc (Protobuf).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module

from wirescan.decoding.avro_values import AvroDecoder, read_schema_file
from wirescan.decoding.decoder import Decoder
from wirescan.decoding.json_values import JsonDecoder, read_json_schema
from wirescan.decoding.msgpack_values import MsgpackDecoder
from wirescan.decoding.plain_values import NUMBERS, NumberDecoder, StringDecoder, UuidDecoder
from wirescan.decoding.protobuf_values import make_protobuf_decoder
from wirescan.decoding.schema_registry import SchemaRegistry
from wirescan.frames.registry import PAYLOAD_DECODERS
from wirescan.frames.similar_names import hint_at_names

REGISTRY = "registry="


def parse_decoder(text: str) -> Decoder:
    """Return the decoder that a text names: see the module's table.

    Raises ValueError for a text that names none, and for a schema that cannot be used. Raises
    OSError for a schema that cannot be read, and ImportError for a package that is not installed.
    """
    name, colon, argument = text.partition(":")
    make = MAKERS.get(name)
    if make is None:
        raise ValueError(f"there is no decoder {name!r}{hint_at_names(name, MAKERS)}")
    if colon and not argument:
        raise ValueError(f"decoder {text!r}: nothing follows the colon")
    return make(argument)


def _make_json(argument: str) -> Decoder:
    path = argument
    match = re.fullmatch("(?:(.*),)?header=([a-z]*)", argument)
    if match is not None:
        path = match[1] or ""
        if match[2] != "confluent":
            raise ValueError(f"decoder 'json': header is confluent, not {match[2]!r}")
    schema = read_json_schema(path) if path else None
    return JsonDecoder(schema, has_header=match is not None)


def _make_msgpack(path: str) -> Decoder:
    if not path:
        return MsgpackDecoder()
    try:
        return MsgpackDecoder(read_json_schema(path, "msgpack"))
    except ValueError as error:
        raise ValueError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def _make_avro(argument: str) -> Decoder:
    path, found, location = f",{argument}".rpartition(f",{REGISTRY}")
    path = (path if found else location).removeprefix(",")
    if found and not location or not found and not path:
        raise ValueError("decoder 'avro' needs a schema: avro:FILE or avro:registry=WHERE")
    registry = SchemaRegistry(location) if found else None
    if not path:
        return AvroDecoder(registry=registry)
    try:
        return AvroDecoder(read_schema_file(path), registry=registry)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _make_plain(name: str, argument: str) -> Decoder:
    if argument:
        raise ValueError(f"decoder {name!r} takes nothing after its name, not {argument!r}")
    if name in NUMBERS:
        return NumberDecoder(NUMBERS[name])
    return UuidDecoder() if name == "uuid" else StringDecoder()


def _plain_maker(name: str) -> Callable[[str], Decoder]:
    return lambda argument: _make_plain(name, argument)


def _protocol_maker(module: str) -> Callable[[str], Decoder]:
    """Return a function that calls `make_decoder` of a module of a protocol package."""
    return lambda argument: import_module(module).make_decoder(argument)


MAKERS: dict[str, Callable[[str], Decoder]] = {
    "json": _make_json,
    "msgpack": _make_msgpack,
    "avro": _make_avro,
    "protobuf": make_protobuf_decoder,
    **{name: _protocol_maker(module) for name, module in PAYLOAD_DECODERS.items()},
    **{name: _plain_maker(name) for name in (*NUMBERS, "uuid", "string")},
}
