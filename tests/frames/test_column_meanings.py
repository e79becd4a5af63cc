"""Every public column of every format has a meaning, which the command and the reference print."""

import json

import pytest
from click.testing import CliRunner

from wirescan.cli.main import main
from wirescan.frames.column_meanings import explain_column
from wirescan.frames.columns import list_columns, list_places
from wirescan.frames.registry import PROTOCOLS, format_of, formats
from wirescan.kafka.protocol.field_meanings import FIELD_MEANINGS
from wirescan.kafka.protocol.schema import MESSAGE

OWN = [name for name in formats() if name.partition(".")[0] in PROTOCOLS]


@pytest.mark.parametrize("name", OWN)
def test_every_column_has_a_meaning(name):
    format = format_of(name)
    described = [each for each in format.all_columns if format.describe_column(each) is not None]
    assert [each for each in described if not explain_column(format, each)] == []


@pytest.mark.parametrize("name", OWN)
def test_meanings_are_of_columns_that_exist(name):
    format = format_of(name)
    # A table of thrift.fields has the column `name` only with an IDL.
    known = {*list_columns(format.dtype), *list_places(format.dtype), *format.columns, "name"}
    assert set(format.meanings) <= known
    assert all(text and not text.endswith(".") for text in format.meanings.values())


def list_fields(level):
    """Return (path, field) of all fields of a level of a message and of the levels in it."""
    fields = [(level.path, name) for name in format_of(f"kafka.{level.path}").meanings]
    return fields + [field for inner in level.arrays for field in list_fields(inner)]


def test_every_entry_of_the_table_of_fields_is_used():
    fields = [field for message in MESSAGE.values() for field in list_fields(message.level)]
    own = {f"{path}.{name}" for path, name in fields} & set(FIELD_MEANINGS)
    shared = {name for path, name in fields if f"{path}.{name}" not in own}
    assert set(FIELD_MEANINGS) <= own | shared


def test_places_and_counts_follow_from_their_names():
    format = format_of("kafka.fetch_response")
    assert explain_column(format, "responses_size") == "bytes in `responses`, -1 for null"
    assert explain_column(format, "responses_count").startswith("number of entries in `responses`")
    assert explain_column(format, "no_such_column") == ""


def test_a_meaning_of_one_format_precedes_the_shared_one():
    request = format_of("kafka.fetch_request.partitions")
    response = format_of("kafka.fetch_response.partitions")
    assert "follower" in explain_column(request, "high_watermark")
    assert "in-sync" in explain_column(response, "high_watermark")


def test_the_command_prints_meanings():
    result = CliRunner().invoke(main, ["formats", "--json"])
    described = {item["name"]: item for item in map(json.loads, result.output.splitlines())}
    assert described["kafka.fetch_request"]["meanings"]["min_bytes"] == (
        "bytes that the broker waits for before it answers"
    )
