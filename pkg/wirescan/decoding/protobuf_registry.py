"""Protobuf schemas by their ids: those of a server, and those in a directory.

A server is asked for a descriptor, `GET /schemas/ids/ID?format=serialized`. If it has none, it is
asked for the schema as it was registered: the text of a .proto file, or the descriptor in base64
that clients of Python register. An answer has one file and the names of the imported ones, which
are asked for too. A directory has a FileDescriptorSet ID.desc for each id.

Confluent's registry has descriptors of all schemas. For `format=serialized`, Apicurio Registry 3.3
answers with status 500 or with bytes that it has decoded as UTF-8, and Karapace with text.

Source: docs.confluent.io, "Schema Registry API Reference".
"""

from __future__ import annotations

import base64
from typing import Any

from wirescan.core.varint import encode_varint
from wirescan.decoding.proto_text import parse_proto
from wirescan.decoding.schema_registry import HINTS, SchemaRegistry, StatusError, parse_answer

FILE_TAG = b"\x0a"  # of a file in a FileDescriptorSet


class ProtobufRegistry(SchemaRegistry):
    """The Protobuf schemas of a server or directory.

    The text of a `FoundSchema` is a FileDescriptorSet in base64. The schema is its last file.
    """

    _language = "Protobuf"
    _extension = ".desc"

    def _read_content(self, raw: bytes) -> str:
        return base64.b64encode(raw).decode()

    def _write_content(self, text: str) -> bytes:
        return base64.b64decode(text)

    def _read_answer(self, answer: dict[str, Any]) -> str:
        references = self._fetch_references(answer)
        files = [set_file_name(_decode_file(text), name) for name, text in references.items()]
        files.append(set_file_name(_decode_file(answer["schema"]), ""))
        framed = [FILE_TAG + encode_varint(len(file)) + file for file in files]
        return base64.b64encode(b"".join(framed)).decode()

    def _ask(self, path: str) -> dict[str, Any] | None:
        try:
            raw = self._get(path, "format=serialized")
        except StatusError as error:
            if error.status in HINTS:
                raise
            return super()._ask(path)
        if raw is None:
            return None
        answer = parse_answer(raw, self._language)
        return answer if _is_base64(answer["schema"]) else super()._ask(path)


def set_file_name(raw: bytes, name: str) -> bytes:
    """Return a FileDescriptorProto with another name; "" stands for one that no import has.

    The last value of a field counts, so the name is appended.
    """
    octets = (name or "the schema of the registry").encode()
    return raw + b"\x0a" + encode_varint(len(octets)) + octets


def _decode_file(text: str) -> bytes:
    """Return a FileDescriptorProto of base64 or of the text of a .proto file.

    Raises ValueError for other text.
    """
    return base64.b64decode(text) if _is_base64(text) else parse_proto(text)


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error, and for characters that are not in ASCII
        return False
    return True
