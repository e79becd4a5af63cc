"""The test vectors of docs/lumberjack.md: what they say is what the tables and the Receiver say, and what the document
shows."""
from __future__ import annotations

import importlib.util
import json
import re
import zlib
from pathlib import Path

import pytest

from wirescan import Fault, FrameError, Limits, lumberjack
from wirescan.lumberjack.conversation import Receiver, Sender

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests/corpus/lumberjack"
DOCUMENT = (ROOT / "docs/lumberjack.md").read_text(encoding="utf-8")
VECTORS = {path.stem: json.loads(path.read_text(encoding="utf-8"))
           for path in sorted((FOLDER / "vectors").glob("*.json"))}
every = pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
from_writers = pytest.mark.parametrize("vector", [one for one in VECTORS.values() if one["from"] == "writer"],
                                       ids=lambda one: one["name"])


def stream(vector: dict) -> bytes:
    return bytes.fromhex(vector["stream"])


def limits(vector: dict) -> Limits:
    return Limits(inflated=vector["inflated"])


def events(frames, vector: dict, errors: str):
    return lumberjack.events(frames, errors=errors, limits=limits(vector), depth=vector["depth"])


def raw(text: str | dict[str, str]) -> bytes:
    return bytes.fromhex(text["hex"]) if isinstance(text, dict) else text.encode()


def told(table, *columns: str) -> list[dict]:
    """Rows of a table in the words of a vector."""
    rows = [{"type": chr(row["kind"]), "fault": Fault(row["fault"]).name, **{name: int(row[name]) for name in columns}}
            for row in table.rows]
    return [{key: value for key, value in row.items() if (key, value) != ("fault", "OK")} for row in rows]


def fields(table) -> list[list[tuple[bytes, bytes]] | bytes]:
    pairs = lumberjack.pairs(table)
    found = [[] if row.json is None else bytes(row.json) for row in table]
    for pair in pairs:
        found[pair.parent].append((bytes(pair.key), bytes(pair.value)))
    return found


@every
def test_frames(vector):
    table = lumberjack.scan(stream(vector), errors="mark")
    rows = told(table, "start", "size", "version", "sequence", "count", "length")
    size, end = len(stream(vector)), vector["end"]
    fatal = end["why"] not in ("end", "SHORT")
    if fatal:
        rest = rows.pop()
        assert (rest["fault"], rest["start"], rest["size"]) == (end["why"], end["offset"], size - end["offset"])
    assert rows == vector["frames"]
    assert len(table.tail) == (size - end["offset"] if end["why"] == "SHORT" else 0)
    if fatal:
        with pytest.raises(FrameError) as caught:
            lumberjack.scan(stream(vector))
        assert (caught.value.fault.name, caught.value.offset) == (end["why"], end["offset"])


@every
def test_events(vector):
    frames = lumberjack.scan(stream(vector), errors="mark")
    marked = events(frames, vector, "mark")
    assert [{"fault": Fault(row["fault"]).name, "depth": int(row["depth"]), "frame": int(row["parent"])}
            for row in marked.rows if row["fault"]] == vector["faults"]
    good = marked[~marked.bad]
    assert told(good, "version", "sequence", "window", "depth", "parent") == [
        {"parent" if key == "frame" else key: value for key, value in one.items() if key not in ("json", "pairs")}
        for one in vector["events"]]
    assert fields(good) == [
        raw(one["json"]) if "json" in one else [(raw(key), raw(value)) for key, value in one["pairs"]]
        for one in vector["events"]]
    skipped = events(lumberjack.scan(stream(vector), errors="skip"), vector, "skip")
    assert fields(skipped) == fields(good)


@every
def test_strict_names_the_first_fault(vector):
    if not vector["faults"]:
        assert not events(lumberjack.scan(stream(vector)), vector, "strict").bad.any()
        return
    first = vector["faults"][0]
    with pytest.raises(FrameError) as caught:
        events(lumberjack.scan(stream(vector)), vector, "strict")
    wire = [*vector["frames"], {"start": vector["end"]["offset"], "type": ""}][first["frame"]]
    start = wire["start"] + (6 if wire["type"] == "C" and first["depth"] == 0 else 0)       # the payload is what is bad
    assert (caught.value.fault.name, caught.value.offset) == (first["fault"], start)


# ------------------------------------------------------------------------------------------------------ conversations

def refusal(error: FrameError) -> str:
    return error.reason.name if getattr(error, "reason", None) else error.fault.name


@from_writers
@pytest.mark.parametrize("step", [None, 1, 7])
@pytest.mark.parametrize("strict", [True, False], ids=["strict", "lenient"])
def test_receivers(vector, strict, step):
    receiver = Receiver(strict=strict, depth=vector["depth"], limits=limits(vector))
    data, windows = stream(vector), []
    step = step or len(data) or 1
    why = vector["strict" if strict else "lenient"]
    if why:
        with pytest.raises(FrameError) as caught:
            for at in range(0, len(data), step):
                receiver.receive(data[at:at + step])
        assert refusal(caught.value) == why
        return
    for at in range(0, len(data), step):
        windows += receiver.receive(data[at:at + step])
    # Where no W announced the events, how many make a window is up to how they come.
    if all(one["announced"] is not None for one in vector["windows"]) or step >= len(data):
        assert [(None if one.count < 0 else one.count, one.version, len(one.events)) for one in windows] == [
            (one["announced"], one["version"], one["events"]) for one in vector["windows"] if one["complete"]]
        acks = [receiver.acknowledge(one) for one in windows]
        assert acks == [b"%dA" % one["version"] + one["ack"].to_bytes(4, "big")
                        for one in vector["windows"] if one["complete"]]
    rest = receiver.close()
    assert sum(len(one.events) for one in windows) + (0 if rest is None else len(rest.events)) == len(vector["events"])
    assert (rest is not None) == any(not one["complete"] and one["events"] for one in vector["windows"])


@pytest.mark.parametrize("name, version, windows, progress", [
    ("acks", 2, (5, 3), [0, 2, 0, 3, 3]), ("acks-version-1", 1, (2, 4), [2, 0, 4])])
def test_senders(name, version, windows, progress):
    sender = Sender(version=version)
    for count in windows:
        sender.send([{"n": str(number)} for number in range(count)])
    acks = stream(VECTORS[name])
    assert [sender.receive(acks[at:at + 6]) for at in range(0, len(acks), 6)] == progress
    assert sender.unacknowledged == 0


# -------------------------------------------------------------------------------------------------------- the document

def test_the_examples_of_the_document_are_vectors():
    examples = re.findall(r"<!-- vector: (\S+) -->\n```\n(.*?)```", DOCUMENT, re.DOTALL)
    assert len(examples) == DOCUMENT.count("<!-- vector:") > 3
    for name, block in examples:
        shown = "".join(line.split("  ")[0] for line in block.splitlines())
        assert shown.replace(" ", "") == VECTORS[name]["stream"], name


def test_the_document_names_every_reason_and_fault():
    named = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)*\b", DOCUMENT))
    for vector in VECTORS.values():
        assert {vector["strict"], vector["lenient"], *(one["fault"] for one in vector["faults"])} - {None} <= named


def test_what_the_document_says_of_the_disagreements():
    rows = re.findall(r"^\| (`.*) \|$", DOCUMENT.split("\n## 16")[1].split("\n## 17")[0], re.MULTILINE)
    assert len(rows) > 20
    for row in rows:
        streams, _, _, _, strict, lenient = row.split(" | ")
        for name in re.findall(r"`(.*?)`", streams):
            assert (strict if strict.isupper() else None) == VECTORS[name]["strict"], name
            assert (lenient == "closes") == (VECTORS[name]["lenient"] is not None), name


def test_the_vectors_are_what_the_script_makes():
    if zlib.compress(b"wirescan" * 20, 9).hex() != "78da2bcf2c4a2d4e4ecc2b1fa4340027af4331":
        pytest.skip("this zlib compresses otherwise than the one that made the vectors")
    spec = importlib.util.spec_from_file_location("make_vectors", FOLDER / "make_vectors.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert {name: module.dump(one) for name, one in module.VECTORS.items()} == {
        path.stem: path.read_text(encoding="utf-8") for path in (FOLDER / "vectors").glob("*.json")}
