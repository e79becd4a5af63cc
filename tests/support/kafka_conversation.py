"""Compares the messages of a Kafka connection with the reference decoder."""

from collections import defaultdict

from tests.reference import kafka_protocol as reference
from tests.reference.kafka_messages import API
from wirescan import kafka
from wirescan.core.fault import Fault
from wirescan.testing.laws import list_rows, places_are_in_their_frames


def assert_rows_agree(table, want):
    """The rows of a table are those of the reference, and its places are in its frames."""
    assert list_rows(table) == want
    places_are_in_their_frames(table)


def assert_streams_agree(table, want, fault, at, data):
    """The rows and the stop of a scan are those of the reference.

    The scan continues after faults and the reference does not. So where a size is impossible, the
    scan has one more row, which covers the rest.
    """
    if fault >= Fault.BAD_LENGTH:
        rest = table[len(want) :]
        assert table.stop[:2] == (Fault.OK, len(data))
        assert len(rest) == 1
        assert (rest["start"], rest["size"], rest["fault"]) == (at, len(data) - at, fault)
    else:
        assert table.stop[:2] == (fault, at)
    assert_rows_agree(table[: len(want)], want)


def list_tables(table):
    """Return {name: table} for a table and all tables of the frames inside its frames."""
    tables = {table.name: table}
    for open_children in table.format.children.values():
        tables |= list_tables(open_children(table, errors="mark"))
    return tables


def assert_bodies_agree(table, rows, data, direction):
    """The bodies of all messages in a table agree with the reference, at every level."""
    for api, key in API.items():
        levels = defaultdict(list)
        for number, row in enumerate(rows):
            if row["api_key"] == key:
                reference.read_body(data, row, api, direction, number, levels)
        bodies = kafka.body(table, api, errors="mark", credentials=True)
        assert_levels_agree(bodies, levels, api, direction)


def assert_levels_agree(table, levels, api, direction):
    """A body and all structs in its arrays agree with the reference."""
    tables = list_tables(table)
    assert tables.keys() == reference.list_formats(api, direction).keys()
    for name, inner in tables.items():
        assert_rows_agree(inner, levels[name])


def assert_conversation_agrees(up, down):
    """The messages of both directions, their pairs and their bodies agree with the reference.

    The responses are read without their requests, and with them.
    """
    asked, *stop = reference.read_requests(up)
    requests = kafka.requests(up, errors="mark")
    assert_streams_agree(requests, asked, *stop, up)
    answers, *stop = reference.read_responses(down)
    assert_streams_agree(kafka.responses(down, None, errors="mark"), answers, *stop, down)
    answers, *stop = reference.read_responses(down, asked, up)
    responses = kafka.responses(down, requests, errors="mark")
    assert_streams_agree(responses, answers, *stop, down)
    requests, responses = requests[: len(asked)], responses[: len(answers)]
    assert kafka.pair(requests, responses).tolist() == reference.pair(asked, answers)
    assert_bodies_agree(requests, asked, up, "request")
    assert_bodies_agree(responses, answers, down, "response")
