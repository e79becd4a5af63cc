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

The module of a decoder is imported when a text asks for it, because few programs decode payloads.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from wirescan.decoding.decoder import Decoder
from wirescan.frames.registry import PAYLOAD_DECODERS
from wirescan.frames.similar_names import hint_at_names

# Names of decoders -> modules whose `make_decoder` takes the text after the name and the colon.
MODULES = {
    "json": "wirescan.decoding.json_values",
    "msgpack": "wirescan.decoding.msgpack_values",
    "avro": "wirescan.decoding.avro_values",
    "protobuf": "wirescan.decoding.protobuf_values",
    **PAYLOAD_DECODERS,
}
PLAIN_NAMES = ("short", "int", "long", "float", "double", "uuid", "string")  # of `plain_values.py`


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


def _module_maker(module: str) -> Callable[[str], Decoder]:
    return lambda argument: import_module(module).make_decoder(argument)


def _plain_maker(name: str) -> Callable[[str], Decoder]:
    def make(argument: str) -> Decoder:
        if argument:
            raise ValueError(f"decoder {name!r} takes nothing after its name, not {argument!r}")
        return import_module("wirescan.decoding.plain_values").make_plain_decoder(name)

    return make


MAKERS: dict[str, Callable[[str], Decoder]] = {
    **{name: _module_maker(module) for name, module in MODULES.items()},
    **{name: _plain_maker(name) for name in PLAIN_NAMES},
}
