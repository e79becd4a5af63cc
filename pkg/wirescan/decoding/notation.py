"""The texts that name decoders, such as "json" or "int".

text                      payloads                                              class
json                      JSON objects; types are inferred from a sample        JsonDecoder
json:FILE                 JSON objects; FILE has their names and types          JsonDecoder
short int long            big-endian integers                                   NumberDecoder
float double              big-endian IEEE 754 numbers                           NumberDecoder
uuid                      UUIDs in hexadecimal digits with hyphens              UuidDecoder
string                    UTF-8                                                 StringDecoder
"""

from __future__ import annotations

from collections.abc import Callable

from wirescan.decoding.decoder import Decoder
from wirescan.decoding.json_values import JsonDecoder, read_json_schema
from wirescan.decoding.plain_values import NUMBERS, NumberDecoder, StringDecoder, UuidDecoder


def parse_decoder(text: str) -> Decoder:
    """Return the decoder that a text names: see the module's table.

    Raises ValueError for a text that names none, and for a schema that cannot be used. Raises
    OSError for a schema that cannot be read, and ImportError for a package that is not installed.
    """
    name, colon, argument = text.partition(":")
    make = MAKERS.get(name)
    if make is None:
        raise ValueError(f"there is no decoder {name!r}; there are {', '.join(MAKERS)}")
    if colon and not argument:
        raise ValueError(f"decoder {text!r}: nothing follows the colon")
    return make(argument)


def _make_json(path: str) -> Decoder:
    return JsonDecoder(read_json_schema(path)) if path else JsonDecoder()


def _make_plain(name: str, argument: str) -> Decoder:
    if argument:
        raise ValueError(f"decoder {name!r} takes nothing after its name, not {argument!r}")
    if name in NUMBERS:
        return NumberDecoder(NUMBERS[name])
    return UuidDecoder() if name == "uuid" else StringDecoder()


def _plain_maker(name: str) -> Callable[[str], Decoder]:
    return lambda argument: _make_plain(name, argument)


MAKERS: dict[str, Callable[[str], Decoder]] = {
    "json": _make_json,
    **{name: _plain_maker(name) for name in (*NUMBERS, "uuid", "string")},
}
