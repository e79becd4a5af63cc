"""Protobuf schemas by their ids: those of a server, and those in a directory.

A server is asked for descriptors, `GET /schemas/ids/ID?format=serialized`, and not for the text of
.proto files. Its answer has one file and the names of the imported ones, which are asked for too.
A directory has a FileDescriptorSet ID.desc for each id.

Source: docs.confluent.io, "Schema Registry API Reference".
"""

from __future__ import annotations

import base64
import binascii
from typing import Any
from urllib.parse import quote

from wirescan.decoding.schema_registry import SchemaRegistry, parse_answer

MOST_REFERENCES = 100  # imported files of one schema
FILE_TAG = b"\x0a"  # of a file in a FileDescriptorSet


class ProtobufRegistry(SchemaRegistry):
    """The Protobuf schemas of a server or directory.

    The text of a `FoundSchema` is a FileDescriptorSet in base64. The schema is its last file.
    """

    _language = "Protobuf"
    _extension = ".desc"
    _query = "format=serialized"

    def _read_content(self, raw: bytes) -> str:
        return base64.b64encode(raw).decode()

    def _read_answer(self, raw: bytes) -> str:
        answer = parse_answer(raw, self._language)
        files: dict[str, bytes] = {}
        self._add_references(answer, files)
        main = set_file_name(_decode_file(answer["schema"]), "")
        framed = [FILE_TAG + _encode_size(len(file)) + file for file in (*files.values(), main)]
        return base64.b64encode(b"".join(framed)).decode()

    def _add_references(self, answer: dict[str, Any], files: dict[str, bytes]) -> None:
        """Add the files that an answer refers to, and those that they refer to."""
        references = answer.get("references") or []
        if not isinstance(references, list):
            raise ValueError("the references are no list")
        for reference in references:
            try:
                name, subject = str(reference["name"]), quote(str(reference["subject"]), safe="")
                version = int(reference["version"])
            except (TypeError, KeyError):
                raise ValueError("a reference has no name, subject and version") from None
            if name in files:
                continue
            if len(files) >= MOST_REFERENCES:
                raise ValueError(f"it refers to more than {MOST_REFERENCES} schemas")
            files[name] = b""  # its own references may name it again
            raw = self._get(f"/subjects/{subject}/versions/{version}")
            if raw is None:
                raise ValueError(f"the registry has no version {version} of {subject}")
            other = parse_answer(raw, self._language)
            self._add_references(other, files)
            files[name] = set_file_name(_decode_file(other["schema"]), name)


def set_file_name(raw: bytes, name: str) -> bytes:
    """Return a FileDescriptorProto with another name; "" stands for one that no import has.

    The last value of a field counts, so the name is appended.
    """
    octets = (name or "the schema of the registry").encode()
    return raw + b"\x0a" + _encode_size(len(octets)) + octets


def _decode_file(text: str) -> bytes:
    """Return a FileDescriptorProto. Raises ValueError for text that is not in base64."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(
            "the registry does not answer format=serialized: give the schemas as a directory of "
            "files ID.desc"
        ) from None


def _encode_size(size: int) -> bytes:
    """Return a varint."""
    octets = bytearray()
    while size > 0x7F:
        octets.append(size & 0x7F | 0x80)
        size >>= 7
    octets.append(size)
    return bytes(octets)
