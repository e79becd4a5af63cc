"""Bodies of responses need their requests: the option `requests`, and the error without it."""

import json

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import wirescan
from tests.support.paths import ROOT
from wirescan import kafka
from wirescan.cli.main import main
from wirescan.export.batches import iter_batches
from wirescan.frames.registry import format_of
from wirescan.kafka.protocol.request_option import RequestIds

CONNECTIONS = sorted((ROOT / "tests/corpus/kafka-streams").glob("*/*.requests.bin"))
NAMES = [f"{path.parent.name}/{path.name}" for path in CONNECTIONS]
BODIES = ("ApiVersions", "Metadata", "Fetch", "Produce", "ListOffsets", "SaslHandshake")
FETCHED = next(path for path in CONNECTIONS if path.match("java-4/codec-gzip-0.requests.bin"))


def find_responses(requests):
    return requests.with_name(requests.name.replace("requests", "responses"))


def make_name(name, requests=FETCHED):
    return f"{name}?requests={requests}"


@pytest.mark.parametrize("requests", CONNECTIONS, ids=NAMES)
def test_bodies_are_those_that_are_opened_with_a_table(requests):
    responses = kafka.responses(find_responses(requests), kafka.requests(requests))
    if "sasl-tokens" in requests.name:
        with pytest.raises(ValueError, match="raw tokens"):
            wirescan.scan(find_responses(requests), make_name("kafka.responses", requests))
        return
    known = responses.where(responses["api_key"] >= 0)
    opened = wirescan.scan(find_responses(requests), make_name("kafka.responses", requests))
    assert np.array_equal(opened.rows[responses["api_key"] >= 0], known.rows)
    for name in BODIES:
        body = kafka.body(responses, name)
        format = make_name(body.name, requests)
        if (opened["request"] >= 0).any():
            assert np.array_equal(wirescan.scan(find_responses(requests), format).rows, body.rows)


def test_a_changed_file_of_requests_is_read_again(tmp_path):
    requests, responses = tmp_path / "requests.bin", tmp_path / "responses.bin"
    format = make_name("kafka.metadata_response", requests)
    for count in (3, 5):
        messages = [{"correlation_id": number} for number in range(count)]
        requests.write_bytes(b"".join(kafka.encode_request("Metadata", 1, **m) for m in messages))
        responses.write_bytes(b"".join(kafka.encode_response("Metadata", 1, **m) for m in messages))
        assert len(wirescan.scan(responses, format)) == count


def find_connection(*apis):
    """Return the requests and responses of a connection that has bodies of some APIs."""
    for requests in CONNECTIONS:
        responses = kafka.responses(find_responses(requests), kafka.requests(requests))
        if all(len(kafka.body(responses, api)) for api in apis):
            return requests, responses
    raise AssertionError(f"no connection has {apis}")


@pytest.mark.parametrize("size", [7, 1000])
def test_structs_of_bodies_are_opened_from_chunks(size):
    requests, responses = find_connection("Fetch", "Metadata")
    expected = kafka.body(responses, "Fetch").open("responses").open("partitions")
    name = make_name("kafka.fetch_response.partitions", requests)
    stream = wirescan.stream(name)
    data = find_responses(requests).read_bytes()
    parts = [stream.feed(data[start : start + size]) for start in range(0, len(data), size)]
    parts.append(stream.close())
    indexes = [index for part in parts for index in part["partition_index"].tolist()]
    assert indexes == expected["partition_index"].tolist() and indexes
    batches = iter_batches(
        str(find_responses(requests)), format=name, columns=["topic", "partition_index"]
    )
    table = pa.Table.from_batches(batches)
    assert table["partition_index"].to_pylist() == indexes


def test_the_command_line_has_the_option():
    requests, responses = find_connection("Metadata", "Fetch")
    topics = kafka.body(responses, "Metadata").open("topics")
    command = ["scan", str(find_responses(requests)), "--format", "kafka.metadata_response.topics"]
    result = CliRunner().invoke(main, [*command, "--requests", str(requests), "--json"])
    assert result.exit_code == 0, result.output
    names = [json.loads(line)["name"] for line in result.stdout.splitlines()]
    assert names == [bytes(topic.name).decode() for topic in topics] and names
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert "--requests FILE" in result.output


@pytest.mark.parametrize(
    "name", ["kafka.fetch_response", "kafka.fetch_response.partitions", "kafka.metadata_response"]
)
def test_without_requests_an_error_says_what_is_missing(name):
    path = str(find_responses(FETCHED))
    with pytest.raises(ValueError, match="option requests"):
        wirescan.scan(path, name)
    with pytest.raises(ValueError, match="option requests"):
        list(iter_batches(path, format=name))
    with pytest.raises(ValueError, match="without the requests"):
        kafka.body(kafka.responses(path), "Fetch")


def test_a_stream_without_responses_needs_no_requests():
    assert len(wirescan.scan(b"", "kafka.fetch_response")) == 0
    assert len(kafka.body(kafka.responses(b""), "Fetch")) == 0


def test_responses_of_other_requests_are_not_opened(tmp_path):
    """A response whose request is not in the file has no API."""
    empty = tmp_path / "requests.bin"
    empty.write_bytes(b"")
    opened = wirescan.scan(find_responses(FETCHED), make_name("kafka.responses", empty))
    assert (opened["api_key"] == -1).all() and len(opened)
    assert (
        len(wirescan.scan(find_responses(FETCHED), make_name("kafka.fetch_response", empty))) == 0
    )
    assert (
        len(kafka.body(kafka.responses(find_responses(FETCHED), kafka.requests(b"")), "Fetch")) == 0
    )


def test_files_that_are_no_requests_are_refused(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"no requests of any protocol" * 10)
    with pytest.raises(ValueError, match="has no requests"):
        format_of(make_name("kafka.fetch_response", path)).open(b"")
    with pytest.raises(FileNotFoundError):
        format_of(make_name("kafka.responses", tmp_path / "missing"))


def test_a_repeated_id_is_refused_if_the_apis_differ():
    rows = np.zeros(3, kafka.requests(b"").rows.dtype)
    rows["correlation_id"] = 5, 6, 5
    rows["api_key"] = 1, 2, 1
    assert RequestIds(rows).find(np.array([4, 5, 6, 7])).tolist() == [-1, 0, 1, -1]
    rows["api_version"] = 1, 1, 2
    with pytest.raises(ValueError, match="correlation id 5"):
        RequestIds(rows)
