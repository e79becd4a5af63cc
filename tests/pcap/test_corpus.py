"""Captures of real programs: their bytes are those that a proxy recorded at the same time."""

import pytest

import wirescan
from tests.support.captures import FORMATS, check_frames, list_captures, read_streams
from tests.support.command import run
from wirescan import pcap
from wirescan.reading.chunked import iter_tables

CAPTURES = {capture.name: capture for capture in list_captures()}
KAFKA = CAPTURES["kafka"].path
every_capture = pytest.mark.parametrize("name", CAPTURES)


@every_capture
def test_streams_are_the_recorded_bytes(name):
    capture = CAPTURES[name]
    assert read_streams(capture.path) == capture.connections
    flows = wirescan.scan(capture.path, "pcap.flows")
    assert set(flows["kind"].tolist()) == {pcap.FlowState.COMPLETE}
    assert (flows["handshake"] > 0).all()


@every_capture
def test_frames_are_those_of_the_recorded_bytes(name):
    check_frames(CAPTURES[name])


@every_capture
def test_pieces_of_the_file_give_the_frames_of_the_whole(name):
    capture = CAPTURES[name]
    path = str(capture.path)
    for format in FORMATS[capture.protocol]:
        whole = wirescan.scan(path, format)
        tables = iter_tables(path, format=f"{format}?capture=true", piece=100)
        found = [value for table in tables if len(table) for value in table["time"].tolist()]
        assert sorted(found) == sorted(whole["time"].tolist())


def test_bodies_of_responses_need_no_other_file():
    topics = wirescan.scan(KAFKA, "kafka.metadata_response.topics").to_arrow()
    assert len(topics) > 0
    assert {"time", "client", "server"} <= {*topics.column_names}


@pytest.mark.parametrize("name", ["lumberjack", "lumberjack-impaired"])
def test_events_have_the_times_of_their_frames(name):
    path = CAPTURES[name].path
    frames = wirescan.scan(path, "lumberjack.frames")
    events = wirescan.scan(path, "lumberjack.events")
    assert events["time"].tolist() == frames["time"][events["parent"]].tolist()
    assert len(set(events["time"].tolist())) > 1
    assert set(events["direction"].tolist()) == {pcap.Direction.TO_SERVER}


def test_a_converted_capture_has_no_tail(tmp_path):
    options = ("--format", "kafka.requests", "--engine", "local")
    result = run("convert", KAFKA, tmp_path / "out.parquet", *options)
    assert result.exit_code == 0, result.stderr
    report = [line.split() for line in result.stdout.splitlines()]
    assert ["tail", "0"] in report


def test_the_command_reads_captures():
    result = run("scan", KAFKA, "--format", "kafka.requests", "--columns", "client,api_key")
    assert result.exit_code == 0, result.stderr
    client, _ = next(iter(CAPTURES["kafka"].connections))
    assert client in result.stdout
    result = run("scan", KAFKA, "--format", "kafka.redpanda_batches")
    assert result.exit_code != 0
    assert "kafka.redpanda_batches are not sent over connections" in result.stderr
