"""The NATS messages of real Liftbridge servers, and their logs. Every byte belongs to a frame.

They are in tests/corpus/liftbridge (see make_liftbridge.py), and are also recorded anew. Every
field has the value that Google's library and the server's API read.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import wirescan
from tests.support.paths import CORPUS
from wirescan import Fault, liftbridge
from wirescan.liftbridge import AckError, CommitLog, Kind, gaps
from wirescan.liftbridge.log.index_files import read_index
from wirescan.nats import Kind as Operation

from . import liftbridge_views as views
from .json_lines import read_json_lines
from .make_liftbridge import STREAMS, record

CASES = ("single", "pair")
PAYLOAD = (Operation.PUB, Operation.HPUB, Operation.MSG, Operation.HMSG)
LOGS = [
    f"{name}-{number}"
    for name, options in STREAMS.items()
    for number in range(options.get("partitions", 1))
]


@pytest.fixture(scope="module", params=["recorded", pytest.param("anew", marks=pytest.mark.peers)])
def corpus(request, tmp_path_factory) -> Path:
    """The committed corpus directory, and one that the servers fill now."""
    if request.param == "recorded":
        return CORPUS / "liftbridge"
    directory = tmp_path_factory.mktemp("liftbridge")
    record(directory)
    return directory


def parse_hexadecimal(fields: dict, names=("key", "value", "records")) -> dict:
    """Fields from JSON, with bytes instead of hexadecimal digits."""
    parsed = dict(fields)
    for name in names:
        if name in fields:
            parsed[name] = bytes.fromhex(fields[name])
    if "headers" in fields:
        parsed["headers"] = {
            key: bytes.fromhex(digits) for key, digits in fields["headers"].items()
        }
    return parsed


def scan_messages_with_payload(file: Path, *, whole: bool = True):
    """The NATS messages with a payload. Without `whole` the file may end inside a message."""
    data = file.read_bytes()
    messages = wirescan.scan(data, "nats.messages")
    assert not messages.bad.any()
    assert messages["size"].sum() + len(messages.tail) == len(data)
    if whole:
        assert not len(messages.tail)
    return messages.where(np.isin(messages["kind"], PAYLOAD))


def list_subjects(messages) -> list[str]:
    return [bytes(messages.bytes(i, "subject")).decode() for i in range(len(messages))]


def list_payloads(messages) -> list[bytes]:
    return [bytes(messages.bytes(i, "payload")) for i in range(len(messages))]


@pytest.mark.parametrize("case", CASES)
def test_messages_like_google_and_the_subscriber(corpus, case):
    """The payloads are those of the subscriber.

    Google's library reads the same envelopes and fields.
    """
    rows = scan_messages_with_payload(corpus / case / "tap.server.bin")
    expected = read_json_lines(corpus / case / "tap.jsonl")
    assert list_subjects(rows) == [message["subject"] for message in expected]
    digits = [payload.hex() for payload in list_payloads(rows)]
    assert digits == [message["payload"] for message in expected]

    envelopes = liftbridge.scan(rows, errors="mark")
    assert envelopes["parent"].tolist() == list(range(len(rows)))
    enveloped = [i for i, message in enumerate(expected) if "kind" in message]
    assert not envelopes.bad[enveloped].any()
    assert envelopes["kind"][enveloped].tolist() == [expected[i]["kind"] for i in enveloped]
    # The others are a client's own envelopes, plain payloads and messages of Raft.
    others = np.delete(np.arange(len(expected)), enveloped)
    other_kinds = envelopes["kind"][others][~envelopes.bad[others]]
    assert np.isin(other_kinds, (Kind.PLAIN, Kind.LIFT, Kind.PUBLISH)).all()
    if case == "pair":
        assert {expected[i]["kind"] for i in enveloped} == set(range(15))
        assert not envelopes.bad.any()

    def check_rows(table, view, kind):
        row_of = dict(zip(table["parent"].tolist(), view(table), strict=True))
        for i in enveloped:
            if expected[i]["kind"] == kind:
                assert row_of[i] == parse_hexadecimal(expected[i]["fields"]), i

    check_rows(liftbridge.messages(envelopes, errors="mark"), views.list_messages, Kind.PUBLISH)
    check_rows(liftbridge.acks(envelopes, errors="mark"), views.list_acks, Kind.ACK)
    internal = liftbridge.internal(envelopes, errors="mark")
    # Bad bytes of others have no known kind, so they are bad rows here too.
    assert not set(internal["parent"][internal.bad].tolist()) & set(enveloped)
    internal = internal.where(~internal.bad)
    for row, i in enumerate(internal["parent"].tolist()):
        if i in enveloped:
            fields = parse_hexadecimal(expected[i]["fields"])
            expected_columns = views.list_expected_columns(expected[i]["kind"], fields)
            columns = views.list_internal_columns(internal, row)
            assert {name: columns[name] for name in expected_columns} == expected_columns
            rest = {value for name, value in columns.items() if name not in expected_columns}
            assert rest <= {0, "", b"", -1}
    assert (internal["op"] == -1).tolist() == [
        kind not in (Kind.PROPAGATED_REQUEST, Kind.PROPAGATED_RESPONSE)
        for kind in internal["kind"].tolist()
    ]


@pytest.mark.parametrize("case", CASES)
def test_connections_publish_what_the_subscriber_received(corpus, case):
    """All connections together published the messages that the subscriber to everything received.

    The envelopes are intact.
    """
    published = Counter()
    for file in sorted((corpus / case).glob("*.bin")):
        rows = scan_messages_with_payload(file, whole=False)
        envelopes = liftbridge.scan(rows, errors="mark")
        if not file.name.startswith(("client.", "tap.", "a.streams.server")):
            assert not envelopes.bad.any(), file.name
        if file.name.endswith(".client.bin"):
            assert np.isin(rows["kind"], (Operation.PUB, Operation.HPUB)).all()
            published.update(list_payloads(rows))
        else:
            assert np.isin(rows["kind"], (Operation.MSG, Operation.HMSG)).all()
    assert published == Counter(
        list_payloads(scan_messages_with_payload(corpus / case / "tap.server.bin"))
    )


def test_published_messages_and_their_acks(corpus):
    """A client's messages, with and without a checksum, and their acks.

    The server treats a message as plain if its envelope is bad or absent. The others have the
    stored columns. The acks and refusals are the expected ones.
    """
    rows = scan_messages_with_payload(corpus / "single/client.client.bin")
    published = read_json_lines(corpus / "single/published.jsonl")
    digits = [payload.hex() for payload in list_payloads(rows)]
    assert digits == [message["payload"] for message in published]
    assert list_subjects(rows) == [message["subject"] for message in published]
    has_reply = [rows.bytes(i, "reply") is not None for i in range(len(rows))]
    assert has_reply == [message["reply"] != "" for message in published]

    envelopes = liftbridge.scan(rows, errors="mark")
    plain = envelopes.bad | (envelopes["kind"] != Kind.PUBLISH)
    assert plain.tolist() == [message["plain"] for message in published]
    faults = {Fault.OK, Fault.TRUNCATED, Fault.BAD_VERSION, Fault.BAD_HEADER, Fault.BAD_CHECKSUM}
    assert set(envelopes["fault"].tolist()) == faults
    good_kinds = set(envelopes["kind"][~envelopes.bad].tolist())
    assert good_kinds == {Kind.PUBLISH, Kind.ACK, Kind.LIFT, Kind.PLAIN}
    assert {8, 12} <= set(envelopes["body"].tolist())
    assert (envelopes["crc"] > 0).sum() >= 4
    unchecked = liftbridge.scan(rows, errors="mark", check=False)
    assert Fault.BAD_CHECKSUM not in unchecked["fault"].tolist()

    messages = liftbridge.messages(envelopes, errors="mark")
    row_of = dict(zip(messages["parent"].tolist(), views.list_messages(messages), strict=True))
    server_headers = {"subject", "reply"}
    for i, message in enumerate(published):
        if not message["plain"] and message["stored"] is not None:
            stored = parse_hexadecimal(message["stored"])
            row = row_of[i]
            assert (row["key"], row["value"]) == (stored["key"], stored["value"])
            assert row["headers"].keys() - server_headers == (
                stored["headers"].keys() - server_headers
            )

    acks = liftbridge.acks(
        liftbridge.scan(scan_messages_with_payload(corpus / "single/client.server.bin"))
    )
    expected = {
        f"acks.{i}": message["ack"]
        for i, message in enumerate(published)
        if message["ack"] is not None
    }
    received = views.list_acks(acks)
    assert {ack["ackInbox"]: ack["ackError"] for ack in received} == expected
    assert len(received) == len(expected)
    for ack in received:
        sent = row_of[int(ack["ackInbox"].removeprefix("acks."))]
        assert ack["correlationId"] == sent["correlationId"]
        assert ack["ackPolicy"] == sent["ackPolicy"]
        assert ack["receptionTimestamp"] > 1_700_000_000_000_000_000
        # Only the refusal of a too large message has no commit timestamp.
        assert (ack["commitTimestamp"] == 0) is (ack["ackError"] == AckError.TOO_LARGE)


def test_delivered_messages_are_those_of_the_log(corpus):
    """Three sources have the same messages.

    They are the bytes of the API's Subscribe, the records of the log, and the published messages.
    """
    published = read_json_lines(corpus / "single/published.jsonl")
    subscribed = read_json_lines(corpus / "single/subscribed.jsonl")
    data = [bytes.fromhex(message["bytes"]) for message in subscribed]
    table = liftbridge.messages(liftbridge.scan(data, bare=Kind.PUBLISH))
    all_delivered = views.list_messages(table)
    assert all_delivered == [parse_hexadecimal(message["fields"]) for message in subscribed]

    for name in LOGS + ["__activity-0", "__cursors-0"]:
        stream, _, number = name.rpartition("-")
        delivered = [
            message
            for message in all_delivered
            if (message["stream"], message["partition"]) == (stream, int(number))
        ]
        directory = corpus / "single/logs" / (name + "-live" * (name == "keyed-0"))
        entries = liftbridge.entries(directory)
        assert not entries.bad.any()
        assert not len(entries.tail)
        assert entries["offset"].tolist() == [message["offset"] for message in delivered]
        assert entries["timestamp"].tolist() == [message["timestamp"] for message in delivered]
        assert [bytes(entries.bytes(i, "value") or b"") for i in range(len(entries))] == [
            message["value"] for message in delivered
        ]
        assert [bytes(entries.bytes(i, "key") or b"") for i in range(len(entries))] == [
            message["key"] for message in delivered
        ]
        assert views.list_headers(entries) == [message["headers"] for message in delivered]
        assert (entries["magic"] == 1).all()
        assert len(set(entries["leader_epoch"].tolist())) == 1

        subject = None
        if stream in STREAMS:
            subject = STREAMS[stream]["subject"] + f".{number}" * (number != "0")
        stored = [
            parse_hexadecimal(message["stored"])
            for message in published
            if message["subject"] == subject and message["stored"] is not None
        ]
        if stream == "keyed":
            # Compaction keeps the last message of each key and all messages without a key. It does
            # not change the last segment.
            last = {message["key"]: i for i, message in enumerate(stored)}
            last_segment = int(max(file.stem for file in directory.glob("*.log")))
            remaining = [
                i
                for i, message in enumerate(stored)
                if not message["key"] or last[message["key"]] == i or i >= last_segment
            ]
            assert entries["offset"].tolist() == remaining
            assert len(remaining) < len(stored)
            assert len(gaps(entries))
            stored = [stored[i] for i in remaining]
        elif subject is not None:
            assert entries["offset"].tolist() == list(range(len(stored)))
            assert not len(gaps(entries))
        if subject is not None:
            assert [
                {name: message[name] for name in ("key", "value", "headers")}
                for message in delivered
            ] == stored


def test_indexes_and_checkpoints_match_the_records(corpus):
    """The indexes refer to the records, and the checkpoints describe them.

    The logs are of stopped and of running servers.
    """
    for directory in sorted(corpus.glob("*/logs/*")):
        live = directory.name.endswith("-live")
        log = CommitLog(directory)
        entries = liftbridge.entries(directory)
        assert not len(log.verify())
        files = sorted(directory.glob("*.index"))
        indexed = np.concatenate([read_index(str(index)) for index in files])
        assert len(indexed) == len(entries)
        assert indexed["offset"].tolist() == entries["offset"].tolist()
        assert indexed["timestamp"].tolist() == entries["timestamp"].tolist()
        assert indexed["position"].tolist() == entries["start"].tolist()
        assert indexed["size"].tolist() == entries["size"].tolist()
        preallocated = [file.read_bytes().endswith(bytes(2000)) for file in files]
        assert preallocated == [False] * (len(files) - 1) + [live]
        if not live:
            assert log.high_watermark == entries["offset"][-1] or directory.name == "both-0-b"
        epochs = log.read_leader_epochs()
        assert epochs["leader_epoch"].tolist() == sorted(set(entries["leader_epoch"].tolist()))
        assert epochs["start_offset"][0] in (-1, 0)  # -1: before the first record


def test_rolled_segments_are_found_by_offset(corpus):
    files = sorted((corpus / "single/logs/rolled-0").glob("*.log"))
    assert len(files) >= 3
    for file in files:
        assert liftbridge.entries(file)["offset"][0] == int(file.stem)
    log = CommitLog(corpus / "single/logs/rolled-0")
    for offset in (0, int(files[1].stem)):
        assert log.find(offset).segment.base_offset == offset
    assert log.read(5, 25)["offset"].tolist() == list(range(5, 25))


def test_replication_sends_the_bytes_of_the_log(corpus):
    """The leader's responses hold the bytes of the log. Both servers have the same log."""
    first, second = (
        (corpus / f"pair/logs/both-0-{name}/{0:020}.log").read_bytes() for name in "ab"
    )
    assert first == second
    stored = liftbridge.entries(first)
    frames = {stored["offset"][i].item(): bytes(stored.frame(i)) for i in range(len(stored))}

    envelopes = liftbridge.scan(scan_messages_with_payload(corpus / "pair/tap.server.bin"))
    sent = liftbridge.entries(envelopes)
    assert not sent.bad.any()
    subjects = [pairs["subject"] for pairs in views.list_headers(sent)]
    assert set(subjects) == {b"orders.both", b"orders.other"}
    sent_frames = {
        sent["offset"][i].item(): bytes(sent.frame(i))
        for i, subject in enumerate(subjects)
        if subject == b"orders.both"
    }
    assert sent_frames == frames
    responses = Counter(sent["parent"].tolist())
    assert max(responses.values()) > 1  # several records in one response
    assert set(envelopes["kind"][list(responses)].tolist()) == {Kind.REPLICATION_RESPONSE}
    # Some responses have no records: the follower has all of them.
    assert (envelopes["kind"] == Kind.REPLICATION_RESPONSE).sum() > len(responses)
