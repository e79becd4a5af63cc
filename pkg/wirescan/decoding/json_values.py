"""JSON objects as structs. The types of the members are given, or inferred from a sample."""

from __future__ import annotations

import json
import re
from typing import Any

from wirescan.core.strings import ByteStrings
from wirescan.decoding.decoder import Decoded, Decoder, make_reasons
from wirescan.decoding.json_parser import check_types, make_structs, parse_documents
from wirescan.decoding.schema_registry import NO_HEADER, strip_headers
from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa
    from pyarrow import compute

SAMPLE_ROWS = 4096  # payloads whose types are inferred
TIME_WITH_ZONE = re.compile(r"timestamp\[(s|ms|us|ns), *([^\]]+)\]")


class JsonDecoder(Decoder):
    """Decodes JSON objects into structs.

    With a schema, members outside of it are ignored. Without one, the types are those of the first
    4,096 payloads of the sample. If no payload of the sample has a member, the values are the
    objects' own text.

    A payload is refused if it is not one JSON object in UTF-8, if a value does not fit its type, if
    an object has the name of a column twice, if it is nested more than 50 levels deep, or if it has
    more than 8,192 members. Names that are ignored may occur twice.

    schema: the members and their types.
    has_header: payloads begin with Confluent's header, as those of serializers for JSON Schema.
        Their ids are not looked up.

    Raises TypeError and ValueError for a schema that cannot be used.
    """

    def __init__(self, schema: pa.Schema | None = None, *, has_header: bool = False):
        self._has_header = has_header
        self._types = None
        if schema is not None:
            if not len(schema):
                raise ValueError("a schema for JSON has at least one member")
            self._set_types(check_types(schema))

    def fit(self, sample: pa.Array) -> None:
        """Infer the types of the members, if no schema was given.

        Raises ValueError if the sample has more than 1,000 different members.
        """
        if self.type is None:
            documents = sample.slice(0, SAMPLE_ROWS)
            if self._has_header:
                documents = strip_headers(documents)
            parsed = parse_documents(ByteStrings(documents), pa.schema([]), _ignore, infers=True)
            self._set_types(parsed.schema)

    def _set_types(self, types: pa.Schema) -> None:
        self._types = types
        self.type = pa.struct(types) if len(types) else pa.string()

    def decode(self, payloads: pa.Array) -> Decoded:
        """Return the objects as structs."""
        if self._types is None:
            raise ValueError("the types of JSON are not known: give a schema, or call fit first")
        refused: dict[int, str] = {}
        documents = strip_headers(payloads) if self._has_header else payloads
        parsed = parse_documents(
            ByteStrings(documents), self._types, refused.__setitem__, infers=False
        )
        absent = documents.is_null().to_numpy(zero_copy_only=False).copy()
        absent[list(refused)] = True
        if self._has_header:
            is_valid = payloads.is_valid().to_numpy(zero_copy_only=False)
            lacks_header = is_valid & documents.is_null().to_numpy(zero_copy_only=False)
            refused |= dict.fromkeys(lacks_header.nonzero()[0].tolist(), NO_HEADER)
        reasons = make_reasons(refused, len(payloads))
        if not len(self._types):
            objects = documents.cast(pa.large_binary())
            none = pa.scalar(None, objects.type)
            accepted = compute.if_else(pa.array(absent), none, objects)
            return Decoded(accepted.cast(pa.large_string()).cast(pa.string()), reasons)
        return Decoded(make_structs(parsed, absent).combine_chunks(), reasons)


def read_json_schema(path: str, decoder: str = "json") -> pa.Schema:
    """Return the schema in a JSON file: an object of names and types.

    decoder: the name of the decoder that needs it, for messages.

    A type is the name of an Arrow type, such as "int64", "string" or "timestamp[ms, UTC]"; an
    object of names and types, for an object; or a list of one type, for an array.

    Raises OSError, and ValueError for other content.
    """
    with open(path, "rb") as file:
        raw = file.read()
    try:
        content = json.loads(raw)
        if not isinstance(content, dict):
            raise ValueError("it must be an object of names and types")
        return pa.schema(_parse_type(content))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a schema for decoder {decoder!r}: {error}") from None


def _parse_type(content: Any) -> pa.DataType:
    if isinstance(content, dict):
        return pa.struct([(name, _parse_type(kind)) for name, kind in content.items()])
    if isinstance(content, list) and len(content) == 1:
        return pa.list_(_parse_type(content[0]))
    if not isinstance(content, str):
        raise ValueError(f"a type is a name, an object or a list of one type, not {content!r:.80}")
    if match := TIME_WITH_ZONE.fullmatch(content):
        return pa.timestamp(*match.groups())
    return pa.type_for_alias(content)


def _ignore(row: int, reason: str) -> None:
    """Ignore a payload of the sample that is refused."""


def make_decoder(argument: str) -> JsonDecoder:
    """Return the decoder for the text after "json:", which is empty if the name stands alone.

    Raises ValueError for another text, and what `read_json_schema` and `JsonDecoder` raise.
    """
    path = argument
    match = re.fullmatch("(?:(.*),)?header=([a-z]*)", argument)
    if match is not None:
        path = match[1] or ""
        if match[2] != "confluent":
            raise ValueError(f"decoder 'json': header is confluent, not {match[2]!r}")
    schema = read_json_schema(path) if path else None
    return JsonDecoder(schema, has_header=match is not None)
