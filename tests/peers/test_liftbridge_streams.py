"""What NATS carries for real Liftbridge servers and what they keep, in tests/corpus/liftbridge (see make_liftbridge.py)
and anew: every byte is accounted for, and every field is the one that Google's library and the server's API give."""
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import wirescan
from wirescan import Fault, liftbridge
from wirescan.liftbridge import AckError, CommitLog, Kind, gaps
from wirescan.liftbridge.index import read_index
from wirescan.nats import Kind as Operation

from . import liftbridge_views as views
from .make_liftbridge import CORPUS, STREAMS, record

CASES = ("single", "pair")
PAYLOAD = (Operation.PUB, Operation.HPUB, Operation.MSG, Operation.HMSG)
LOGS = [f"{name}-{number}" for name, options in STREAMS.items() for number in range(options.get("partitions", 1))]


@pytest.fixture(scope="module", params=["recorded", pytest.param("anew", marks=pytest.mark.peers)])
def corpus(request, tmp_path_factory) -> Path:
    """The directory that is kept, and one that the servers have just filled."""
    if request.param == "recorded":
        return CORPUS
    directory = tmp_path_factory.mktemp("liftbridge")
    record(directory)
    return directory


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def unwritten(fields: dict, names=("key", "value", "records")) -> dict:
    """Fields as they were before JSON: bytes, not their digits."""
    return {name: {key: bytes.fromhex(one) for key, one in value.items()} if name == "headers" else
            bytes.fromhex(value) if name in names else value for name, value in fields.items()}


def carrying(file: Path, *, whole: bool = True):
    """The NATS messages in a file that have a payload; a server's connection may end inside one."""
    data = file.read_bytes()
    messages = wirescan.scan(data, "nats.messages")
    assert not messages.bad.any() and messages["size"].sum() + len(messages.tail) == len(data)
    assert not whole or not len(messages.tail)
    return messages.where(np.isin(messages["kind"], PAYLOAD))


def payloads(messages) -> list[bytes]:
    return [bytes(messages.bytes(i, "payload")) for i in range(len(messages))]


@pytest.mark.parametrize("case", CASES)
def test_everything_that_passed(corpus, case):
    """Each payload as the subscriber was given it; each envelope and each field in it as Google's library reads it."""
    rows, expected = carrying(corpus / case / "tap.server.bin"), lines(corpus / case / "tap.jsonl")
    assert [bytes(rows.bytes(i, "subject")).decode() for i in range(len(rows))] == [one["subject"] for one in expected]
    assert [payload.hex() for payload in payloads(rows)] == [one["payload"] for one in expected]

    envelopes = liftbridge.scan(rows, errors="mark")
    assert envelopes["parent"].tolist() == list(range(len(rows)))
    known = [i for i, one in enumerate(expected) if "kind" in one]
    assert not envelopes.bad[known].any()
    assert envelopes["kind"][known].tolist() == [expected[i]["kind"] for i in known]
    others = np.delete(np.arange(len(expected)), known)  # a client's own; a plain payload; Raft's
    assert np.isin(envelopes["kind"][others][~envelopes.bad[others]], (Kind.PLAIN, Kind.LIFT, Kind.PUBLISH)).all()
    if case == "pair":
        assert {expected[i]["kind"] for i in known} == set(range(15)) and not envelopes.bad.any()

    def checked(table, read, kinds):
        found = {parent: one for parent, one in zip(table["parent"].tolist(), read(table), strict=True)}
        for i in known:
            if expected[i]["kind"] in kinds:
                assert found[i] == unwritten(expected[i]["fields"]), i

    checked(liftbridge.messages(envelopes, errors="mark"), views.messages, (Kind.PUBLISH,))
    checked(liftbridge.acks(envelopes, errors="mark"), views.acks, (Kind.ACK,))
    internal = liftbridge.internal(envelopes, errors="mark")
    for row, i in enumerate(internal["parent"].tolist()):
        if i in known:
            told = views.told(expected[i]["kind"], unwritten(expected[i]["fields"]))
            found = views.internal(internal, row)
            assert {name: found[name] for name in told} == told
            assert {value for name, value in found.items() if name not in told} <= {0, "", b"", -1}
    assert (internal["op"] == -1).tolist() == [
        kind not in (Kind.PROPAGATED_REQUEST, Kind.PROPAGATED_RESPONSE) for kind in internal["kind"].tolist()]


@pytest.mark.parametrize("case", CASES)
def test_connections_of_the_servers(corpus, case):
    """What all connections have published is what the subscriber to everything was given, and is good."""
    published = Counter()
    for file in sorted((corpus / case).glob("*.bin")):
        rows = carrying(file, whole=False)
        envelopes = liftbridge.scan(rows, errors="mark")
        assert file.name.startswith(("client.", "tap.", "a.streams.server")) or not envelopes.bad.any(), file.name
        if file.name.endswith(".client.bin"):
            assert np.isin(rows["kind"], (Operation.PUB, Operation.HPUB)).all()
            published.update(payloads(rows))
        else:
            assert np.isin(rows["kind"], (Operation.MSG, Operation.HMSG)).all()
    assert published == Counter(payloads(carrying(corpus / case / "tap.server.bin")))


def test_published_and_acknowledged(corpus):
    """Of a client's messages, with and without a checksum: what the server takes for plain has a bad envelope or none,
    all else the columns that are stored; acks and refusals are those due."""
    rows, told = carrying(corpus / "single/client.client.bin"), lines(corpus / "single/published.jsonl")
    assert [payload.hex() for payload in payloads(rows)] == [one["payload"] for one in told]
    assert [bytes(rows.bytes(i, "subject")).decode() for i in range(len(rows))] == [one["subject"] for one in told]
    assert [rows.bytes(i, "reply") is not None for i in range(len(rows))] == [one["reply"] != "" for one in told]

    envelopes = liftbridge.scan(rows, errors="mark")
    plain = envelopes.bad | (envelopes["kind"] != Kind.PUBLISH)
    assert plain.tolist() == [one["plain"] for one in told]
    assert sorted(Counter(envelopes["fault"].tolist())) == sorted(
        [Fault.OK, Fault.TRUNCATED, Fault.BAD_VERSION, Fault.BAD_HEADER, Fault.BAD_CHECKSUM])
    assert {Kind.PUBLISH, Kind.ACK, Kind.LIFT, Kind.PLAIN} == set(envelopes["kind"][~envelopes.bad].tolist())
    assert {8, 12} <= set(envelopes["body"].tolist()) and (envelopes["crc"] > 0).sum() >= 4
    assert not liftbridge.scan(rows, errors="mark", check=False)["fault"].tolist().count(Fault.BAD_CHECKSUM)

    messages = liftbridge.messages(envelopes, errors="mark")
    read = dict(zip(messages["parent"].tolist(), views.messages(messages), strict=True))
    for i, one in enumerate(told):
        if not one["plain"] and one["stored"] is not None:
            stored = unwritten(one["stored"])
            assert (read[i]["key"], read[i]["value"]) == (stored["key"], stored["value"])
            assert read[i]["headers"].keys() - {"subject", "reply"} == stored["headers"].keys() - {"subject", "reply"}

    acks = liftbridge.acks(liftbridge.scan(carrying(corpus / "single/client.server.bin")))
    due = {f"acks.{i}": one["ack"] for i, one in enumerate(told) if one["ack"] is not None}
    found = views.acks(acks)
    assert {ack["ackInbox"]: ack["ackError"] for ack in found} == due and len(found) == len(due)
    for ack in found:
        sent = read[int(ack["ackInbox"].removeprefix("acks."))]
        assert (ack["correlationId"], ack["ackPolicy"]) == (sent["correlationId"], sent["ackPolicy"])
        assert ack["receptionTimestamp"] > 1_700_000_000_000_000_000
        assert (ack["commitTimestamp"] == 0) is (ack["ackError"] == AckError.TOO_LARGE)  # which only it leaves out


def test_delivered_and_kept(corpus):
    """The bytes that the API's Subscribe gave, as bare messages; the records of the log; what was published: the same.
    """
    told, given = lines(corpus / "single/published.jsonl"), lines(corpus / "single/subscribed.jsonl")
    table = liftbridge.messages(liftbridge.scan([bytes.fromhex(one["bytes"]) for one in given], bare=Kind.PUBLISH))
    read = views.messages(table)
    assert read == [unwritten(one["fields"]) for one in given]

    for name in LOGS + ["__activity-0", "__cursors-0"]:
        stream, _, number = name.rpartition("-")
        delivered = [message for message in read if (message["stream"], message["partition"]) == (stream, int(number))]
        directory = corpus / "single/logs" / (name + "-live" * (name == "keyed-0"))
        entries = liftbridge.entries(directory)
        assert not entries.bad.any() and not len(entries.tail)
        assert entries["offset"].tolist() == [message["offset"] for message in delivered]
        assert entries["timestamp"].tolist() == [message["timestamp"] for message in delivered]
        assert [bytes(entries.bytes(i, "value") or b"") for i in range(len(entries))] == [
            message["value"] for message in delivered]
        assert [bytes(entries.bytes(i, "key") or b"") for i in range(len(entries))] == [
            message["key"] for message in delivered]
        assert views.headers(entries) == [message["headers"] for message in delivered]
        assert (entries["magic"] == 1).all() and len(set(entries["leader_epoch"].tolist())) == 1

        subject = STREAMS[stream]["subject"] + f".{number}" * (number != "0") if stream in STREAMS else None
        stored = [unwritten(one["stored"]) for one in told if one["subject"] == subject and one["stored"] is not None]
        if stream == "keyed":  # of each key the last, and all without one, but in the last segment, which has all
            last = {one["key"]: i for i, one in enumerate(stored)}
            begin = int(max(file.stem for file in directory.glob("*.log")))
            kept = [i for i, one in enumerate(stored) if not one["key"] or last[one["key"]] == i or i >= begin]
            assert entries["offset"].tolist() == kept and len(kept) < len(stored) and len(gaps(entries))
            stored = [stored[i] for i in kept]
        elif subject is not None:
            assert entries["offset"].tolist() == list(range(len(stored))) and not len(gaps(entries))
        if subject is not None:
            assert [{name: message[name] for name in ("key", "value", "headers")} for message in delivered] == stored


def test_files_beside_the_records(corpus):
    """Indexes point at the records, where the server has ended and where it has not; checkpoints tell of them."""
    for directory in sorted((corpus).glob("*/logs/*")):
        live = directory.name.endswith("-live")
        log, entries = CommitLog(directory), liftbridge.entries(directory)
        assert not len(log.verify())
        assert sum(len(read_index(str(index))) for index in directory.glob("*.index")) == len(entries)
        indexed = np.concatenate([read_index(str(index)) for index in sorted(directory.glob("*.index"))])
        assert indexed["offset"].tolist() == entries["offset"].tolist()
        assert indexed["timestamp"].tolist() == entries["timestamp"].tolist()
        assert indexed["position"].tolist() == entries["start"].tolist()
        assert indexed["size"].tolist() == entries["size"].tolist()
        files = sorted(directory.glob("*.index"))
        assert [file.read_bytes().endswith(bytes(2000)) for file in files] == [False] * (len(files) - 1) + [live]
        if not live:
            assert log.high_watermark == entries["offset"][-1] or directory.name == "both-0-b"
        epochs = log.leader_epochs()
        assert epochs["leader_epoch"].tolist() == sorted(set(entries["leader_epoch"].tolist()))
        assert epochs["start_offset"][0] in (-1, 0)  # -1: before the first record


def test_rolled_segments(corpus):
    files = sorted((corpus / "single/logs/rolled-0").glob("*.log"))
    assert len(files) >= 3
    for file in files:
        assert liftbridge.entries(file)["offset"][0] == int(file.stem)
    log = CommitLog(corpus / "single/logs/rolled-0")
    assert [log.find(offset).segment.base_offset for offset in (0, int(files[1].stem))] == [0, int(files[1].stem)]
    assert log.read(5, 25)["offset"].tolist() == list(range(5, 25))


def test_replication(corpus):
    """What the leader sent of its log is what both servers have in theirs, byte for byte."""
    first, second = ((corpus / f"pair/logs/both-0-{name}/{0:020}.log").read_bytes() for name in "ab")
    assert first == second
    kept = liftbridge.entries(first)
    frames = {kept["offset"][i].item(): bytes(kept.frame(i)) for i in range(len(kept))}

    envelopes = liftbridge.scan(carrying(corpus / "pair/tap.server.bin"))
    sent = liftbridge.entries(envelopes)
    assert not sent.bad.any()
    subjects = [pairs["subject"] for pairs in views.headers(sent)]
    of = {subject: [i for i, one in enumerate(subjects) if one == subject] for subject in set(subjects)}
    assert set(of) == {b"orders.both", b"orders.other"}
    assert {sent["offset"][i].item(): bytes(sent.frame(i)) for i in of[b"orders.both"]} == frames
    responses = Counter(sent["parent"].tolist())
    assert max(responses.values()) > 1  # several records in one response
    assert set(envelopes["kind"][list(responses)].tolist()) == {Kind.REPLICATION_RESPONSE}
    assert (envelopes["kind"] == Kind.REPLICATION_RESPONSE).sum() > len(responses)  # some say: no more
