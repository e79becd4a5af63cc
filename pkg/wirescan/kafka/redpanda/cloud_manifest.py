"""The manifest of a partition in Redpanda's object storage: which segments it has.

    <hash>/meta/kafka/<topic>/<partition>_<revision>/manifest.json, from 23.2 on manifest.bin

The manifest says how many log offsets before each segment are none of Kafka's. `binary_manifest.py`
shows the binary form.

Source: Redpanda, `partition_manifest` in src/v/cloud_storage/partition_manifest.cc.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from wirescan.core.fault import Fault
from wirescan.files.source import get_size, read_range, to_plain_path
from wirescan.frames.errors import FrameError
from wirescan.kafka.redpanda.binary_manifest import parse_binary_manifest
from wirescan.kafka.redpanda.segment_files import SEGMENT

UNKNOWN = np.iinfo(np.int64).min  # as Redpanda has it for a number that is not set
LARGEST = 256 << 20  # bytes of a manifest
MANIFEST_SEGMENT = np.dtype(
    [
        ("base_offset", "i8"),
        ("committed_offset", "i8"),
        ("delta_offset", "i8"),
        ("delta_offset_end", "i8"),
        ("base_timestamp", "i8"),
        ("max_timestamp", "i8"),
        ("size_bytes", "i8"),
        ("segment_term", "i8"),
        ("archiver_term", "i8"),
        ("sname_format", "i8"),
        ("is_compacted", "?"),
    ]
)
REQUIRED = ("base_offset", "committed_offset", "size_bytes", "is_compacted")


@dataclass(frozen=True)
class RedpandaManifest:
    """The manifest of one partition.

    Attributes:
        namespace, topic, partition, revision: of the partition.
        start_offset: the log offset before which the log is deleted; None if it is not set.
        last_offset: the last log offset in object storage.
        segments: array of dtype MANIFEST_SEGMENT, by rising base_offset. Offsets are log offsets,
            timestamps are milliseconds. `delta_offset` is the number of log offsets before the
            segment that are none of Kafka's. A number that is not set is UNKNOWN, the lowest int64.
    """

    namespace: str
    topic: str
    partition: int
    revision: int
    start_offset: int | None
    last_offset: int
    segments: np.ndarray

    def make_segment_names(self) -> list[str]:
        """Return the name of the object of each segment, without its directories."""
        names = []
        for row in self.segments:
            term = row["segment_term"]
            middle = f"-{row['committed_offset']}-{row['size_bytes']}"
            name = f"{row['base_offset']}{middle if row['sname_format'] > 1 else ''}-{term}-v1.log"
            has_archiver = row["archiver_term"] != UNKNOWN
            names.append(f"{name}.{row['archiver_term']}" if has_archiver else name)
        return names


def read_redpanda_manifest(path: str | os.PathLike[str]) -> RedpandaManifest:
    """Return the content of a manifest.json or manifest.bin.

    path: a path or URL. The first bytes say which of both it is.

    Raises FrameError if the bytes are no manifest: NOT_A_FRAME with the position where they are no
    JSON, BAD_FIELD if a field is missing or has another type. For a binary manifest it is raised as
    `parse_binary_manifest` does. Raises OSError.
    """
    plain = to_plain_path(path)
    raw = bytes(read_range(plain, 0, min(get_size(plain), LARGEST)))
    if raw.lstrip()[:1] == b"{":
        return _parse_json(raw, plain)
    parsed = parse_binary_manifest(raw, plain)
    segments = np.zeros(len(parsed.columns["base_offset"]), MANIFEST_SEGMENT)
    for name in MANIFEST_SEGMENT.names or ():
        segments[name] = parsed.columns[name]
    return RedpandaManifest(
        parsed.namespace,
        parsed.topic,
        parsed.partition,
        parsed.revision,
        None if parsed.start_offset == UNKNOWN else parsed.start_offset,
        parsed.last_offset,
        _sort_segments(segments),
    )


def _sort_segments(segments: np.ndarray) -> np.ndarray:
    ordered: np.ndarray = segments[np.argsort(segments["base_offset"], kind="stable")]
    return ordered


def _parse_json(raw: bytes, plain: str) -> RedpandaManifest:
    """Return the content of a manifest.json. plain: its path. Raises FrameError."""
    try:
        content = json.loads(raw)
    except UnicodeDecodeError as error:
        raise FrameError(Fault.NOT_A_FRAME, error.start, 0, raw[error.start :], plain) from None
    except json.JSONDecodeError as error:
        at = len(error.doc[: error.pos].encode())
        raise FrameError(Fault.NOT_A_FRAME, at, 0, raw[at:], plain) from None
    except RecursionError:
        raise FrameError(Fault.NOT_A_FRAME, 0, 0, raw, plain) from None
    try:
        return _make_manifest(content)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise FrameError(Fault.BAD_FIELD, 0, 0, raw, plain) from None


def _make_manifest(content: Any) -> RedpandaManifest:
    """Return the manifest. Raises KeyError, TypeError, ValueError and OverflowError."""
    start = _require(content, dict).get("start_offset")
    listed = _require(content.get("segments", {}), dict)
    rows = [_read_segment(key, _require(value, dict)) for key, value in listed.items()]
    segments = np.array(rows, MANIFEST_SEGMENT)
    return RedpandaManifest(
        _require(content["namespace"], str),
        _require(content["topic"], str),
        _require(content["partition"], int),
        _require(content["revision"], int),
        None if start is None else _require(start, int),
        _require(content["last_offset"], int),
        _sort_segments(segments),
    )


def _read_segment(key: str, fields: dict[str, Any]) -> tuple[Any, ...]:
    """Return a row of dtype MANIFEST_SEGMENT. key: the name of the file on the broker's disk."""
    match = SEGMENT.fullmatch(key)
    if match is None:
        raise ValueError(f"{key!r} is no name of a segment")
    # Old manifests have the term only in the name.
    defaults = {"segment_term": int(match[4]), "sname_format": 1}
    row = []
    for name in MANIFEST_SEGMENT.names or ():
        value = fields[name] if name in REQUIRED else fields.get(name, defaults.get(name, UNKNOWN))
        row.append(_require(value, bool if name == "is_compacted" else int))
    return tuple(row)


def _require(value: Any, wanted: type) -> Any:
    if type(value) is not wanted:
        raise TypeError(f"{value!r} is no {wanted.__name__}")
    return value
