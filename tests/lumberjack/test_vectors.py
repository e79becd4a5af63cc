"""The test vectors of docs/lumberjack.md agree with the tables, the Receiver and the document."""

from __future__ import annotations

import importlib.util
import json
import re
import zlib

import pytest

from tests.support.paths import ROOT
from wirescan import Fault, FrameError, Limits, lumberjack
from wirescan.lumberjack.live.receiver import Receiver
from wirescan.lumberjack.live.sender import Sender

FOLDER = ROOT / "tests/corpus/lumberjack"
DOCUMENT = (ROOT / "docs/lumberjack.md").read_text(encoding="utf-8")
VECTORS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((FOLDER / "vectors").glob("*.json"))
}
every = pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
from_writers = pytest.mark.parametrize(
    "vector",
    [vector for vector in VECTORS.values() if vector["from"] == "writer"],
    ids=lambda vector: vector["name"],
)


def join_frames(vector: dict) -> bytes:
    return bytes.fromhex(vector["stream"])


def make_limits(vector: dict) -> Limits:
    return Limits(inflated=vector["inflated"])


def read_events(frames, vector: dict, errors: str):
    return lumberjack.events(
        frames, errors=errors, limits=make_limits(vector), depth=vector["depth"]
    )


def decode_bytes(text: str | dict[str, str]) -> bytes:
    return bytes.fromhex(text["hex"]) if isinstance(text, dict) else text.encode()


def describe_rows(table, *columns: str) -> list[dict]:
    """Return the rows of a table in the form of a vector."""
    described = []
    for row in table.rows:
        fault = {"fault": Fault(row["fault"]).name} if row["fault"] else {}
        values = {name: int(row[name]) for name in columns}
        described.append({"type": chr(row["kind"]), **fault, **values})
    return described


def list_contents(table) -> list[list[tuple[bytes, bytes]] | bytes]:
    """Return the document or the pairs of each event."""
    contents = [[] if row.json is None else bytes(row.json) for row in table]
    for pair in lumberjack.pairs(table):
        contents[pair.parent].append((bytes(pair.key), bytes(pair.value)))
    return contents


def get_content(event: dict) -> list[tuple[bytes, bytes]] | bytes:
    """Return the document or the pairs of an event of a vector."""
    if "json" in event:
        return decode_bytes(event["json"])
    return [(decode_bytes(key), decode_bytes(value)) for key, value in event["pairs"]]


@every
def test_vectors_have_their_frames(vector):
    table = lumberjack.scan(join_frames(vector), errors="mark")
    rows = describe_rows(table, "start", "size", "version", "sequence", "count", "length")
    size = len(join_frames(vector))
    end = vector["end"]
    fatal = end["why"] not in ("end", "SHORT")
    if fatal:
        rest = rows.pop()
        assert rest["fault"] == end["why"]
        assert rest["start"] == end["offset"]
        assert rest["size"] == size - end["offset"]
    assert rows == vector["frames"]
    assert len(table.tail) == (size - end["offset"] if end["why"] == "SHORT" else 0)
    if fatal:
        with pytest.raises(FrameError) as caught:
            lumberjack.scan(join_frames(vector))
        assert caught.value.fault.name == end["why"]
        assert caught.value.offset == end["offset"]


@every
def test_vectors_have_their_events(vector):
    frames = lumberjack.scan(join_frames(vector), errors="mark")
    marked = read_events(frames, vector, "mark")
    faults = [
        {"fault": Fault(row["fault"]).name, "depth": int(row["depth"]), "frame": int(row["parent"])}
        for row in marked.rows
        if row["fault"]
    ]
    assert faults == vector["faults"]
    good = marked[~marked.bad]
    rows = describe_rows(good, "version", "sequence", "window", "depth", "parent")
    for row in rows:
        row["frame"] = row.pop("parent")
    expected = [dict(event) for event in vector["events"]]
    documents = [get_content(event) for event in expected]
    for event in expected:
        event.pop("json", None)
        event.pop("pairs", None)
    assert rows == expected
    assert list_contents(good) == documents
    skipped = read_events(lumberjack.scan(join_frames(vector), errors="skip"), vector, "skip")
    assert list_contents(skipped) == list_contents(good)


@every
def test_strict_names_the_first_fault(vector):
    if not vector["faults"]:
        assert not read_events(lumberjack.scan(join_frames(vector)), vector, "strict").bad.any()
        return
    first = vector["faults"][0]
    with pytest.raises(FrameError) as caught:
        read_events(lumberjack.scan(join_frames(vector)), vector, "strict")
    wire = [*vector["frames"], {"start": vector["end"]["offset"], "type": ""}][first["frame"]]
    start = wire["start"]
    if wire["type"] == "C" and first["depth"] == 0:
        start += 6  # the payload is bad, not the header
    assert caught.value.fault.name == first["fault"]
    assert caught.value.offset == start


# ---- conversations


def get_reason(error: FrameError) -> str:
    return error.reason.name if getattr(error, "reason", None) else error.fault.name


@from_writers
@pytest.mark.parametrize("step", [None, 1, 7])
@pytest.mark.parametrize("strict", [True, False], ids=["strict", "lenient"])
def test_receivers_follow_the_vectors(vector, strict, step):
    receiver = Receiver(strict=strict, depth=vector["depth"], limits=make_limits(vector))
    data = join_frames(vector)
    windows = []
    step = step or len(data) or 1
    why = vector["strict" if strict else "lenient"]
    if why:
        with pytest.raises(FrameError) as caught:
            for at in range(0, len(data), step):
                receiver.receive(data[at : at + step])
        assert get_reason(caught.value) == why
        return
    for at in range(0, len(data), step):
        windows += receiver.receive(data[at : at + step])
    # Events that no W announced form windows by the chunks in which they arrive.
    all_announced = all(window["announced"] is not None for window in vector["windows"])
    if all_announced or step >= len(data):
        complete = [window for window in vector["windows"] if window["complete"]]
        assert [
            (None if window.count < 0 else window.count, window.version, len(window.events))
            for window in windows
        ] == [(window["announced"], window["version"], window["events"]) for window in complete]
        acks = [receiver.acknowledge(window) for window in windows]
        assert acks == [
            b"%dA" % window["version"] + window["ack"].to_bytes(4, "big") for window in complete
        ]
    rest = receiver.close()
    count = sum(len(window.events) for window in windows)
    if rest is not None:
        count += len(rest.events)
    assert count == len(vector["events"])
    assert (rest is not None) == any(
        not window["complete"] and window["events"] for window in vector["windows"]
    )


@pytest.mark.parametrize(
    "name, version, windows, progress",
    [("acks", 2, (5, 3), [0, 2, 0, 3, 3]), ("acks-version-1", 1, (2, 4), [2, 0, 4])],
)
def test_senders_follow_the_vectors(name, version, windows, progress):
    sender = Sender(version=version)
    for count in windows:
        sender.send([{"n": str(number)} for number in range(count)])
    acks = join_frames(VECTORS[name])
    assert [sender.receive(acks[at : at + 6]) for at in range(0, len(acks), 6)] == progress
    assert sender.unacknowledged == 0


# ---- the document


def test_the_examples_of_the_document_are_vectors():
    examples = re.findall(r"<!-- vector: (\S+) -->\n```\n(.*?)```", DOCUMENT, re.DOTALL)
    assert len(examples) == DOCUMENT.count("<!-- vector:") > 3
    for name, block in examples:
        shown = "".join(line.split("  ")[0] for line in block.splitlines())
        assert shown.replace(" ", "") == VECTORS[name]["stream"], name


def test_the_document_names_every_reason_and_fault():
    named = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)*\b", DOCUMENT))
    for vector in VECTORS.values():
        faults = {event["fault"] for event in vector["faults"]}
        assert {vector["strict"], vector["lenient"], *faults} - {None} <= named


def test_the_document_lists_the_disagreements_of_the_vectors():
    section = DOCUMENT.split("\n## 16")[1].split("\n## 17")[0]
    rows = re.findall(r"^\| (`.*) \|$", section, re.MULTILINE)
    assert len(rows) > 20
    for row in rows:
        streams, _, _, _, strict, lenient = row.split(" | ")
        for name in re.findall(r"`(.*?)`", streams):
            assert (strict if strict.isupper() else None) == VECTORS[name]["strict"], name
            assert (lenient == "closes") == (VECTORS[name]["lenient"] is not None), name


def test_the_script_makes_the_vectors():
    if zlib.compress(b"wirescan" * 20, 9).hex() != "78da2bcf2c4a2d4e4ecc2b1fa4340027af4331":
        pytest.skip("this zlib compresses differently from the zlib that made the vectors")
    spec = importlib.util.spec_from_file_location("make_vectors", FOLDER / "make_vectors.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = {name: module.format_vector(vector) for name, vector in module.VECTORS.items()}
    paths = (FOLDER / "vectors").glob("*.json")
    assert made == {path.stem: path.read_text(encoding="utf-8") for path in paths}
