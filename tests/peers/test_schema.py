"""The messages in kafka/protocol/*_definitions.py are those of Kafka's own definitions.

Kafka's jars have the definitions as common/message/NAME.json and common/metadata/NAME.json, with
comments. They have fields with
their versions, and the versions in which a field may be null or is tagged. Structs are inside
structs, or in commonStructs under a name. A version is compared with the newest line that has it.
The older line may not know a tag that came without a new version, but agrees in all else.
"""

import json
import re
import zipfile
from functools import cache
from typing import Any, NamedTuple

import pytest

from wirescan.kafka.protocol.schema import API, MESSAGE, NEVER, MetadataType

from .broker import LINES, fetch_jars

pytestmark = pytest.mark.peers

JARS = (
    "kafka-clients",
    "kafka-group-coordinator",
    "kafka-transaction-coordinator",
    "kafka-metadata",
)
FOLDERS = ("common/message/", "common/metadata/")
NUMBERS = ("bool", "int8", "int16", "uint16", "int32", "int64", "float64")
PRIMITIVE = (*NUMBERS, "string", "bytes", "records", "uuid")
# (message, its name of a field in 3.9) -> the name in 4.x
RENAMED = {("TxnOffsetCommitRequest", "generation_id"): "generation_id_or_member_epoch"}


class Field(NamedTuple):
    """A field in one version of a message.

    `type` is as in api_definitions.py. Only numbers have a `default`.
    """

    name: str
    type: str
    nullable: bool
    tag: int | None
    default: int | None
    fields: tuple["Field", ...]


@cache
def read_definitions(line: str) -> dict[str, Any]:
    """Every message definition in the jars of a line, by its name."""
    by_name = {}
    for jar in JARS:
        (path,) = fetch_jars(line).glob(f"{jar}-[0-9]*.jar")
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.startswith(FOLDERS) and name.endswith(".json"):
                    text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                    message = json.loads(text)
                    by_name[message["name"]] = message
    return by_name


def parse_versions(text: str | None) -> range:
    """Parse versions like 0-12, 3+, 8 or none as a range."""
    if text in (None, "none"):
        return range(0)
    first, _, last = text.partition("-")
    if first.endswith("+"):
        return range(int(first[:-1]), 1 << 15)
    return range(int(first), int(last or first) + 1)


def to_snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def list_fields(message: dict, version: int) -> tuple[Field, ...]:
    common = {struct["name"]: struct["fields"] for struct in message.get("commonStructs", ())}

    def fields(definitions: list[dict]) -> tuple[Field, ...]:
        return tuple(
            field(definition)
            for definition in definitions
            if version
            in parse_versions(definition.get("versions", definition.get("taggedVersions")))
        )

    def field(definition: dict) -> Field:
        kind = definition["type"]
        element = kind.removeprefix("[]")
        is_struct = element not in PRIMITIVE
        if is_struct:
            kind = "[]" if kind != element else "struct"
        name = to_snake_case(definition["name"])
        return Field(
            RENAMED.get((message["name"], name), name),
            kind,
            version in parse_versions(definition.get("nullableVersions")),
            int(definition["tag"])  # some lines write it as text
            if version in parse_versions(definition.get("taggedVersions"))
            else None,
            parse_number(definition.get("default", 0)) if kind in NUMBERS else None,
            fields(definition.get("fields") or common[element]) if is_struct else (),
        )

    return fields(message["fields"])


def parse_number(default: int | bool | str) -> int:
    if str(default).lower() in ("true", "false"):
        return str(default).lower() == "true"
    return int(str(default), 0)


def list_our_fields(message, version: int) -> tuple[Field, ...]:
    def fields(definitions) -> tuple[Field, ...]:
        return tuple(
            Field(
                definition.name,
                definition.type,
                version >= definition.nullable,
                definition.tag,
                definition.default if definition.type in NUMBERS else None,
                fields(definition.fields) if definition.type in ("struct", "[]") else (),
            )
            for definition in definitions
            if version in definition.versions
        )

    return fields(message.fields)


def sort_by_tag(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """Fields in the order of the bytes: first those without a tag, then the others by tag."""
    ordered = sorted(fields, key=lambda field: -1 if field.tag is None else field.tag)
    return tuple(field._replace(fields=sort_by_tag(field.fields)) for field in ordered)


def list_untagged(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(
        field._replace(fields=list_untagged(field.fields)) for field in fields if field.tag is None
    )


def list_tagged(fields: tuple[Field, ...], path: str = "") -> dict[tuple[str, int], Field]:
    """The tagged fields by path and tag, also those in structs."""
    tagged = {}
    for field in fields:
        if field.tag is not None:
            tagged[path, field.tag] = field._replace(fields=())
        tagged |= list_tagged(field.fields, f"{path}/{field.name}")
    return tagged


def list_definitions(name: str, side: str) -> dict[str, dict]:
    """The definitions of a message, the newest line first."""
    # After 3.9 the version of a key is the number of its type.
    lines = ("3.9",) if side == "key" else LINES[::-1]
    by_line = {line: read_definitions(line).get(name + side.title()) for line in lines}
    return {line: message for line, message in by_line.items() if message is not None}


@pytest.mark.parametrize("message", MESSAGE, ids=" ".join)
def test_fields_are_those_of_kafka(message):
    ours = MESSAGE[message]
    theirs = list_definitions(*message)
    versions = {
        version
        for definition in theirs.values()
        for version in parse_versions(definition["validVersions"])
    }
    assert set(ours.versions) == versions
    for definition in theirs.values():
        assert ours.flexible == min(
            parse_versions(definition.get("flexibleVersions")), default=NEVER
        )
    for version in ours.versions:
        our_fields = list_our_fields(ours, version)
        newest, *older = [
            list_fields(definition, version)
            for definition in theirs.values()
            if version in parse_versions(definition["validVersions"])
        ]
        assert sort_by_tag(our_fields) == sort_by_tag(newest), version
        for fields in older:
            assert list_untagged(our_fields) == list_untagged(fields), version
            assert list_tagged(fields).items() <= list_tagged(our_fields).items(), version


def test_apis_are_those_of_kafka():
    """The table of APIs has Kafka's keys, names, newest versions and first flexible versions."""
    theirs = {}
    for line in LINES:
        for message in read_definitions(line).values():
            if message["type"] == "request":
                key, versions = message["apiKey"], parse_versions(message["validVersions"])
                previous = theirs.get(key, (None, -1, NEVER))
                theirs[key] = (
                    message["name"].removesuffix("Request"),
                    max([previous[1], *versions]),
                    min([previous[2], *parse_versions(message.get("flexibleVersions"))[:1]]),
                )
    assert {api.key: (api.name, api.newest, api.flexible) for api in API.values()} == theirs


def test_types_of_metadata_records_are_those_of_kafka():
    """All types of all lines have a message, and the number and name that Kafka gives them."""
    theirs = {
        message["name"]: message["apiKey"]
        for line in LINES
        for message in read_definitions(line).values()
        if message["type"] == "metadata"
    }
    ours = {name + "Record" for name, side in MESSAGE if side == "record"}
    assert ours == set(theirs)
    names = {to_snake_case(name).upper(): number for name, number in theirs.items()}
    assert {member.name: member.value for member in MetadataType} == names
