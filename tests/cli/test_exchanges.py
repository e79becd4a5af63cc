"""The command on exchanges of captures: `wirescan exchanges`, and latencies in `wirescan stat`."""

import json
from collections import defaultdict
from random import Random

import numpy as np
import pytest

import wirescan
from tests.support.captured_conversations import INFO, acknowledge, converse, publish
from tests.support.command import parse_lines, run
from tests.support.paths import CORPUS
from wirescan import liftbridge, nats, thrift
from wirescan.cli.support import latencies
from wirescan.cli.support.latencies import Latencies, round_times
from wirescan.cli.support.quantiles import Quantiles
from wirescan.reading.captures import find_exchanges

CAPTURES = CORPUS / "pcap"


@pytest.mark.parametrize("name", ["thrift.exchanges", "thrift.messages", "thrift.frames"])
def test_any_format_of_the_protocol_names_its_exchanges(name):
    result = run("exchanges", CAPTURES / "thrift.pcapng", "--format", name, "--json")
    assert result.exit_code == 0
    rows = parse_lines(result)
    table = wirescan.scan(CAPTURES / "thrift.pcapng", "thrift.exchanges")
    assert [row["method"] for row in rows] == [
        value.decode() for value in table["method"].to_pylist()
    ]
    assert [row["latency"] for row in rows] == table.to_arrow(["latency"])["latency"].to_pylist()
    assert None in [row["latency"] for row in rows]  # of the one-way call


def test_exchanges_are_selected_and_have_chosen_columns():
    result = run(
        "exchanges",
        CAPTURES / "kafka.pcap",
        *("--format", "kafka.exchanges", "--where", "api_key == metadata"),
        *("--columns", "api_key,response_size", "--json"),
    )
    assert result.exit_code == 0, result.stderr
    rows = parse_lines(result)
    assert len(rows) == 4
    assert {tuple(row) for row in rows} == {("api_key", "response_size")}
    assert {row["api_key"] for row in rows} == {"metadata"}


def test_liftbridge_has_exchanges_of_its_own():
    result = run("exchanges", CAPTURES / "nats.pcapng", "--format", "liftbridge.acks")
    assert result.exit_code == 0
    assert result.stdout == ""  # nobody asked
    found = {
        name: find_exchanges(wirescan.formats()[name]).name
        for name in ("liftbridge.acks", "liftbridge.exchanges", "nats.messages", "nats.headers")
    }
    assert found == {
        "liftbridge.acks": "liftbridge.exchanges",
        "liftbridge.exchanges": "liftbridge.exchanges",
        "nats.messages": "nats.exchanges",
        "nats.headers": "nats.exchanges",
    }


def test_formats_without_exchanges_are_refused():
    result = run("exchanges", CAPTURES / "kafka.pcap", "--format", "pcap.packets")
    assert result.exit_code == 2
    assert "pcap.packets has no exchanges" in result.stderr


def test_a_file_that_is_missing_is_named(tmp_path):
    result = run("exchanges", tmp_path / "missing.pcap")
    assert result.exit_code == 2
    assert "missing.pcap: no such file or directory" in result.stderr


def test_other_files_are_refused():
    path = CORPUS / "kafka" / "orders-0" / "00000000000000000000.log"
    result = run("exchanges", path, "--format", "kafka.requests")
    assert result.exit_code == 2
    assert "is no capture of packets" in result.stderr


@pytest.mark.parametrize("capture", ["kafka.pcap", "thrift.pcapng", "nats.pcapng"])
def test_the_connections_choose_the_exchanges(capture):
    result = run("exchanges", CAPTURES / capture)
    assert result.exit_code == 0, result.stderr
    name = f"{capture.partition('.')[0]}.exchanges"
    assert f"is read as {name}" in result.stderr
    result = run("stat", CAPTURES / capture)
    assert f"is read as {name}" in result.stderr
    assert ("latency" in result.stdout) == (capture != "nats.pcapng")  # nobody asked


@pytest.mark.parametrize("protocol", ["kafka", "thrift", "nats", "liftbridge", "lumberjack"])
def test_every_format_of_a_protocol_has_its_exchanges(protocol):
    for name, format in wirescan.formats().items():
        if name.split(".")[0] == protocol:
            assert find_exchanges(format).name == f"{protocol}.exchanges"


def test_latencies_are_those_of_each_api():
    path = CAPTURES / "kafka.pcap"
    result = run("stat", path, "--format", "kafka.exchanges", "--json")
    found = json.loads(result.stdout)["total"]["latency"]
    table = wirescan.scan(path, "kafka.exchanges")
    names = [
        table.format.get_column("api_key").name_number(key) for key in table["api_key"].tolist()
    ]
    assert {name: group["exchanges"] for name, group in found.items()} == {
        name: names.count(name) for name in names
    }
    for name, group in found.items():
        times = sorted(table["latency"][np.array(names) == name].tolist())
        assert group["answered"] == len(times)
        assert group["ns"]["max"] == pytest.approx(times[-1], rel=0.01)
        assert group["ns"]["median"] == pytest.approx(times[(len(times) - 1) // 2], rel=0.01)


def test_latencies_are_printed_as_a_table():
    result = run("stat", CAPTURES / "thrift.pcapng", "--format", "thrift.exchanges")
    lines = result.stdout.splitlines()
    head = next(i for i, line in enumerate(lines) if line.split()[:1] == ["latency"])
    assert lines[head].split() == [
        *("latency", "exchanges", "answered", "errors", "min", "median", "p95", "p99", "max")
    ]
    rows = [line.split() for line in lines[head + 1 : head + 8]]
    assert [row[:3] for row in rows if row[0] == "add"] == [["add", "2", "2"]]
    assert [row for row in rows if row[0] == "tell"] == [["tell", "1", "0", "0", *"-----"]]
    assert len({len(line) for line in lines[head : head + 8]}) == 1


@pytest.mark.parametrize(
    "name, turns, errors",
    [
        (
            "nats.exchanges",
            [
                (1, INFO),
                *((0, nats.encode_pub("a", b"", reply=f"in.{n}")) for n in range(4)),
                (1, nats.encode_msg("in.0", "9", b"", status=503)),
                (1, nats.encode_msg("in.1", "9", b"", status=100)),
                (1, nats.encode_msg("in.2", "9", b"good")),
            ],
            {"a": 1},
        ),
        (
            "liftbridge.exchanges",
            [
                (1, INFO),
                *((0, publish(b"v", name)) for name in ("one", "two")),
                (1, acknowledge(1, "one")),
                (1, acknowledge(0, "two", ack_error=liftbridge.AckError.TOO_LARGE)),
            ],
            {"events": 1},
        ),
    ],
)
def test_responses_that_are_errors_are_counted(name, turns, errors, tmp_path):
    path = tmp_path / "capture.pcap"
    path.write_bytes(converse(*turns).to_pcap())
    found = json.loads(run("stat", path, "--format", name, "--json").stdout)["total"]["latency"]
    assert {group: counts["errors"] for group, counts in found.items()} == errors


@pytest.mark.parametrize(
    "capture, column, is_error",
    [
        ("kafka.pcap", "error_code", lambda code: code != 0),
        ("thrift.pcapng", "reply_type", lambda kind: kind == thrift.MessageType.EXCEPTION),
    ],
)
def test_errors_of_calls_and_apis_are_counted(capture, column, is_error):
    total = json.loads(run("stat", CAPTURES / capture, "--json").stdout)["total"]
    table = wirescan.scan(CAPTURES / capture, f"{capture.partition('.')[0]}.exchanges")
    errors = sum(group["errors"] for group in total["latency"].values())
    assert errors == is_error(table[column]).sum() > 0
    assert total["frame_bytes"] == (table["request_size"] + table["response_size"]).sum()


def test_names_of_groups_are_bounded(tmp_path):
    path = tmp_path / "capture.pcap"
    subjects = ["s" * 5000 + end for end in "abc"]
    turns = [(0, nats.encode_pub(subject, b"", reply="in")) for subject in subjects]
    path.write_bytes(converse((1, INFO), *turns).to_pcap())
    counted = Latencies()
    counted.add(wirescan.scan(path, "nats.exchanges"))
    (name,) = counted.make_summary()
    assert name == "s" * latencies.LONGEST_NAME + "..."


def test_windows_are_one_group():
    result = run("stat", CAPTURES / "lumberjack.pcap", "--format", "lumberjack.exchanges", "--json")
    found = json.loads(result.stdout)["total"]["latency"]
    assert list(found) == ["all"]
    assert found["all"]["exchanges"] == 3


@pytest.mark.parametrize("time", [0, 1, 99, 999, 1000, 1004, 1005, 123_456, 999_499, 10**18 - 1])
def test_times_have_three_digits(time):
    rounded = int(round_times(np.array([time]))[0])
    assert rounded == pytest.approx(time, rel=0.005)
    assert len(str(rounded).rstrip("0")) <= 3


def test_groups_are_bounded(monkeypatch, tmp_path):
    monkeypatch.setattr(latencies, "MOST_GROUPS", 2)
    path = tmp_path / "capture.pcap"
    turns = [(0, nats.encode_pub(f"s{n}", b"", reply="in")) for n in (1, 2, 3, 4, 1)]
    path.write_bytes(converse((1, INFO), *turns).to_pcap())
    counted = Latencies()
    counted.add(wirescan.scan(path, "nats.exchanges"))
    summary = counted.make_summary()
    assert {name: group["exchanges"] for name, group in summary.items()} == {
        "s1": 2,
        "s2": 1,
        "(others)": 2,
    }
    assert summary["s1"]["answered"] == 0 and summary["s1"]["ns"] is None


def compute_summary(table, most):
    """Return the summary of `Latencies` for NATS exchanges, computed from one after another.

    most: the number of groups before the others.
    """
    subjects = [value.decode() for value in table["subject"].to_pylist()]
    null = table.format.get_column("latency").null
    groups = defaultdict(list)
    # Groups begin in the order of the sizes and the bytes of subjects.
    for row in sorted(range(len(table)), key=lambda row: (len(subjects[row]), subjects[row])):
        name = subjects[row]
        is_known = name in groups or len(groups) < most
        groups[name if is_known else latencies.OTHERS].append(row)
    summary = {}
    for name, rows in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        times = sorted(int(time) for time in table["latency"][rows] if time != null)
        times = [int(round_times(np.array([time]))[0]) for time in times]
        ranks = {key: -(-len(times) * part // 100) for key, part in latencies.PERCENTS.items()}
        is_answered = table["response_size"][rows] > 0
        summary[name] = {
            "exchanges": len(rows),
            "answered": is_answered.sum(),
            "errors": (table["status"][rows][is_answered] == 503).sum(),
            "ns": {
                "min": times[0],
                **{key: times[rank - 1] for key, rank in ranks.items()},
                "max": times[-1],
                "total": sum(times),
            }
            if times
            else None,
        }
    return summary


def converse_at_random(random, subjects, count):
    """Return NATS exchanges with some of the subjects, of which some have no response."""
    turns = [(1, INFO)]
    for number in range(count):
        reply = f"in.{number}"
        turns.append((0, nats.encode_pub(random.choice(subjects), b"", reply=reply)))
        turns += [(1, b"PING\r\n")] * random.randrange(4)  # the packets of others take time
        if random.random() < 0.6:
            turns.append((1, nats.encode_msg(reply, "9", b"good")))
        elif random.random() < 0.5:
            turns.append((1, nats.encode_msg(reply, "9", b"", status=503)))
    return wirescan.scan(converse(*turns).to_pcap(), "nats.exchanges")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("most", [1, 5, 1000])
def test_latencies_are_those_of_single_exchanges(seed, most, monkeypatch):
    monkeypatch.setattr(latencies, "MOST_GROUPS", most)
    random = Random(seed)
    subjects = [f"s{number}" for number in range(random.choice([1, 4, 6, 30]))]
    table = converse_at_random(random, [*subjects, latencies.OTHERS], 80)
    counted = Latencies()
    counted.add(table)
    summary = counted.make_summary()
    assert summary == compute_summary(table, most)
    assert list(summary) == list(compute_summary(table, most))


@pytest.mark.parametrize("seed", range(10))
def test_latencies_of_parts_of_a_table_are_those_of_all(seed):
    random = Random(seed)
    table = converse_at_random(random, [f"s{number}" for number in range(9)], 80)
    counted = Latencies()
    start = 0
    while start < len(table):
        stop = start + random.randrange(30)
        counted.add(table[start:stop])
        start = stop
    assert counted.make_summary() == compute_summary(table, latencies.MOST_GROUPS)


def test_many_groups_take_few_calls(monkeypatch):
    """A group that is one of the others costs no call of its own."""
    monkeypatch.setattr(latencies, "MOST_GROUPS", 4)
    rounded = []
    monkeypatch.setattr(
        latencies, "round_times", lambda times: rounded.append(len(times)) or round_times(times)
    )
    counts = []
    add_counts = Quantiles.add_counts
    monkeypatch.setattr(
        Quantiles,
        "add_counts",
        lambda self, *arguments: counts.append(1) or add_counts(self, *arguments),
    )
    turns = [
        turn
        for number in range(100)
        for turn in (
            (0, nats.encode_pub(f"s{number}", b"", reply=f"in.{number}")),
            (1, nats.encode_msg(f"in.{number}", "9", b"")),
        )
    ]
    counted = Latencies()
    counted.add(wirescan.scan(converse((1, INFO), *turns).to_pcap(), "nats.exchanges"))
    assert rounded == [100]
    assert len(counts) == len(counted.make_summary()) == 5


@pytest.mark.parametrize(
    "capture, condition",
    [
        ("kafka.pcap", "latency > 20000000"),
        ("kafka.pcap", "api_key == metadata and error_code == 0"),
        ("kafka.pcap", 'client == "127.0.0.1:33608"'),
        ("kafka.pcap", "time >= 2026-11-27T01:21:40.6"),
        ("kafka.pcap", "latency > 1000000000"),
        ("thrift.pcapng", 'method == "add"'),
        ("nats.pcapng", "latency is null"),
    ],
)
def test_stat_counts_the_exchanges_that_pass_a_condition(capture, condition):
    rows = parse_lines(run("exchanges", CAPTURES / capture, "--where", condition, "--json"))
    result = run("stat", CAPTURES / capture, "--where", condition, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["total"]["frames"] == len(rows)


@pytest.mark.parametrize("name", ["kafka.requests", "kafka.responses"])
@pytest.mark.parametrize("option", [(), ("--sample", 100), ("--tail", 100)])
def test_stat_selects_captured_frames_by_their_columns(name, option):
    select = ("--format", name, "--where", "api_key == metadata", *option)
    result = run("stat", CAPTURES / "kafka.pcap", *select, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["total"]["frames"] == 4


@pytest.mark.parametrize(
    "verb, name",
    [
        ("exchanges", "kafka.exchanges"),
        ("scan", "kafka.requests"),
        ("scan", "kafka.metadata_request.topics"),
        ("scan", "pcap.flows"),
    ],
)
def test_frames_of_captures_are_selected_by_the_time_of_their_first_packet(verb, name):
    since = "2026-11-27T01:21:40.6"
    until = "2026-11-27T01:21:40.8"
    path = CAPTURES / "kafka.pcap"
    arguments = [verb, path, "--format", name, "--columns", "time", "--json"]
    result = run(*arguments, "--since", since, "--until", until)
    assert result.exit_code == 0, result.stderr
    moments = [int(np.datetime64(text, "ns").astype(np.int64)) for text in (since, until)]
    rows = parse_lines(run(*arguments))
    expected = [row for row in rows if moments[0] <= row["time"] < moments[1]]
    assert parse_lines(result) == expected
    assert 0 < len(expected) < len(rows)


@pytest.mark.parametrize("verb", ["scan", "verify"])
def test_batches_of_captures_are_selected_by_their_timestamps(verb):
    path = CORPUS / "pcap" / "kafka.pcap"
    times = wirescan.scan(str(path), "kafka.batches")["max_timestamp"]
    middle = int(np.sort(times)[len(times) // 2])
    expected = np.count_nonzero(times >= middle)
    assert expected > 0
    moment = f"{np.datetime64(middle, 'ms')}Z"
    result = run(verb, path, "--format", "kafka.batches", "--since", moment, "--json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0, result.output
    assert (len(lines) if verb == "scan" else lines[-1]["selected"]) == expected
    later = f"{np.datetime64(int(times.max()) + 1, 'ms')}Z"
    assert run("scan", path, "--format", "kafka.batches", "--since", later, "--json").stdout == ""


@pytest.mark.parametrize("paths", [["kafka.pcap", "nats.pcapng"], ["header.pcap"]])
def test_captures_that_show_no_single_protocol_need_a_format(paths, tmp_path):
    (tmp_path / "header.pcap").write_bytes((CAPTURES / "kafka.pcap").read_bytes()[:24])
    for path in ("kafka.pcap", "nats.pcapng"):
        (tmp_path / path).write_bytes((CAPTURES / path).read_bytes())
    result = run("exchanges", *(tmp_path / path for path in paths))
    assert result.exit_code == 2
    message = " ".join(result.stderr.split())
    assert (
        "the connections of the capture do not show one protocol with exchanges: choose one with "
        "--format kafka.exchanges, lumberjack.exchanges, "
    ) in message


@pytest.mark.parametrize("name", ["kafka.requests", "kafka.exchanges", "pcap.flows"])
@pytest.mark.parametrize("option", [("--limit", 1), ("--limit", 3), ("--sample", 3)])
def test_stat_of_a_capture_ends_after_the_chosen_frames(name, option):
    path = CAPTURES / "kafka.pcap"
    result = run("stat", path, "--format", name, *option, "--json")
    assert result.exit_code == 0, result.stderr
    total = json.loads(result.stdout)["total"]
    assert (total["frames"], total["bytes"]) == (option[1], path.stat().st_size)


def test_stat_goes_on_with_the_next_capture():
    path = CAPTURES / "kafka.pcap"
    result = run("stat", path, path, "--format", "kafka.requests", "--limit", 15, "--json")
    assert result.exit_code == 0, result.stderr
    assert [file["frames"] for file in json.loads(result.stdout)["files"]] == [14, 1]


@pytest.mark.parametrize("options", [(), ("--format", "kafka.exchanges")])
def test_exchanges_of_a_growing_capture_are_refused(options):
    result = run("exchanges", CAPTURES / "kafka.pcap", "--follow", *options)
    assert result.exit_code == 2
    assert "Pipe the capture into `wirescan exchanges -`" in " ".join(result.stderr.split())
