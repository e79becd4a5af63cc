"""The text of kafka.tools.DumpLogSegments as rows.

    Dumping /path/00000000000000000000.log
    Log starting offset: 0
    baseOffset: 0 lastOffset: 199 count: 200 ... position: 0 CreateTime: 1 size: 7497 ... crc: 2 isvalid: true
    | offset: 0 CreateTime: 1 keySize: 13 valueSize: 103 sequence: -1 headerKeys: [trace] key: ...
"""
import re

PAIR = re.compile(r"(\w+): (\S+)")
RECORD = re.compile(r"\| offset: (-?\d+) (\w+): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+)")


def value(text: str) -> int | bool | str | None:
    """A number, true or false, a word; None for an empty option."""
    text = text.removeprefix("OptionalLong[").removesuffix("]")
    if text in ("true", "false"):
        return text == "true"
    if text == "OptionalLong.empty":
        return None
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def pairs(text: str, first: str) -> list[dict]:
    """Every line that begins with the word `first`, as a dict of its words."""
    return [{name: value(found) for name, found in PAIR.findall(line)}
            for line in text.splitlines() if line.startswith(f"{first}: ")]


def batches(text: str) -> list[dict]:
    """One dict per batch: baseOffset, lastOffset, count, producerId, position, size, crc, isvalid, ..."""
    return pairs(text, "baseOffset")


def record_lines(text: str) -> list[tuple[int, str, int, int, int]]:
    """(offset, kind of time, time, key size, value size) per record; sizes are -1 for null."""
    return [(int(offset), kind, int(time), int(key), int(content))
            for offset, kind, time, key, content in RECORD.findall(text)]


def index_entries(text: str) -> list[tuple[int, int]]:
    """(offset, position) of an .index file."""
    return [(entry["offset"], entry["position"]) for entry in pairs(text, "offset")]


def aborted_transactions(text: str) -> list[dict]:
    """version, producerId, firstOffset, lastOffset, lastStableOffset per entry of a .txnindex file."""
    return pairs(text, "version")
