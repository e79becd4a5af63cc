"""The table of messages in kafka/messages.py beside the definitions that Kafka is generated from.

Kafka's jars hold them as common/message/NAME.json, with comments: fields with their versions, the versions in which
each may be null or is tagged, structs inside structs or, by name, in commonStructs. A version is looked up in the
newest line that has it. The line before may not know a tag that came without a new version, but agrees in all else.
"""
import json
import re
import zipfile
from functools import cache
from typing import Any, NamedTuple

import pytest

from wirescan.kafka.schema import API, MESSAGE, NEVER

from .broker import LINES, jars

pytestmark = pytest.mark.peers

JARS = ("kafka-clients", "kafka-group-coordinator", "kafka-transaction-coordinator")
NUMBERS = ("bool", "int8", "int16", "int32", "int64")
PRIMITIVE = (*NUMBERS, "string", "bytes", "records", "uuid")


class Field(NamedTuple):
    """A field in one version of a message; `type` as in messages.py, `default` of a number."""
    name: str
    type: str
    nullable: bool
    tag: int | None
    default: int | None
    fields: tuple["Field", ...]


@cache
def definitions(line: str) -> dict[str, Any]:
    """Every message definition in the jars of a line, by its name."""
    found = {}
    for jar in JARS:
        path, = jars(line).glob(f"{jar}-[0-9]*.jar")
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.startswith("common/message/") and name.endswith(".json"):
                    text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                    message = json.loads(text)
                    found[message["name"]] = message
    return found


def span(text: str | None) -> range:
    """0-12, 3+, 8, none: as a range."""
    if text in (None, "none"):
        return range(0)
    first, _, last = text.partition("-")
    return range(int(first[:-1]), 1 << 15) if first.endswith("+") else range(int(first), int(last or first) + 1)


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def fields_of(message: dict, version: int) -> tuple[Field, ...]:
    flexible = span(message.get("flexibleVersions"))
    common = {struct["name"]: struct["fields"] for struct in message.get("commonStructs", ())}

    def fields(given: list[dict]) -> tuple[Field, ...]:
        return tuple(field(one) for one in given if version in span(one.get("versions", one.get("taggedVersions"))))

    def field(one: dict) -> Field:
        if one["type"] == "[]string" and version not in flexible:  # the same bytes as structs of one field
            one = one | {"type": "[]struct", "fields": [{"name": "name", "type": "string", "versions": "0+"}]}
        element = one["type"].removeprefix("[]")
        is_struct = element not in PRIMITIVE
        kind = ("[]" if one["type"] != element else "struct") if is_struct else one["type"]
        return Field(snake(one["name"]), kind, version in span(one.get("nullableVersions")),
                     one["tag"] if version in span(one.get("taggedVersions")) else None,
                     number(one.get("default", 0)) if kind in NUMBERS else None,
                     fields(one.get("fields") or common[element]) if is_struct else ())

    return fields(message["fields"])


def number(default: int | bool | str) -> int:
    if str(default).lower() in ("true", "false"):
        return str(default).lower() == "true"
    return int(str(default), 0)


def ours_of(message, version: int) -> tuple[Field, ...]:
    def fields(given) -> tuple[Field, ...]:
        return tuple(Field(one.name, one.type, version >= one.nullable, one.tag,
                           one.default if one.type in NUMBERS else None, fields(one.fields))
                     for one in given if version in one.versions)
    return fields(message.fields)


def in_tag_order(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """Fields as they follow on the wire: those without a tag, then the tagged ones by number."""
    ordered = sorted(fields, key=lambda one: -1 if one.tag is None else one.tag)
    return tuple(one._replace(fields=in_tag_order(one.fields)) for one in ordered)


def untagged(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(one._replace(fields=untagged(one.fields)) for one in fields if one.tag is None)


def tags(fields: tuple[Field, ...], path: str = "") -> dict[tuple[str, int], Field]:
    """The tagged fields, those in structs too, by path and tag."""
    found = {}
    for one in fields:
        if one.tag is not None:
            found[path, one.tag] = one._replace(fields=())
        found |= tags(one.fields, f"{path}/{one.name}")
    return found


def in_lines(name: str, side: str) -> dict[str, dict]:
    """The definitions of a message, the newest line first."""
    lines = ("3.9",) if side == "key" else LINES[::-1]  # later a key's version is the number of its type
    found = {line: definitions(line).get(name + side.title()) for line in lines}
    return {line: message for line, message in found.items() if message is not None}


@pytest.mark.parametrize("message", MESSAGE, ids=" ".join)
def test_message(message):
    ours = MESSAGE[message]
    theirs = in_lines(*message)
    known = {version for one in theirs.values() for version in span(one["validVersions"])}
    assert set(ours.versions) == known
    for one in theirs.values():
        assert ours.flexible == min(span(one.get("flexibleVersions")), default=NEVER)
    for version in ours.versions:
        its = ours_of(ours, version)
        newest, *older = [fields_of(one, version) for one in theirs.values() if version in span(one["validVersions"])]
        assert in_tag_order(its) == in_tag_order(newest), version
        for fields in older:
            assert untagged(its) == untagged(fields), version
            assert tags(fields).items() <= tags(its).items(), version


def test_apis():
    """The table of APIs: the same ones, by key and name, the newest version and the first flexible one."""
    theirs = {}
    for line in LINES:
        for message in definitions(line).values():
            if message["type"] == "request":
                key, versions = message["apiKey"], span(message["validVersions"])
                known = theirs.get(key, (None, -1, NEVER))
                theirs[key] = (message["name"].removesuffix("Request"), max([known[1], *versions]),
                               min([known[2], *span(message.get("flexibleVersions"))[:1]]))
    assert {api.key: (api.name, api.newest, api.flexible) for api in API.values()} == theirs
