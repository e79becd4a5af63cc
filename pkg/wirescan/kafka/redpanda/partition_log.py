"""The segments of one partition of Redpanda as one table, with the offsets of Kafka."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from wirescan.files.source import expand, get_file_name
from wirescan.frames.table import FrameTable, join
from wirescan.kafka.redpanda.batch_types import translate_offsets
from wirescan.kafka.redpanda.cloud_manifest import UNKNOWN, RedpandaManifest
from wirescan.kafka.redpanda.segment_files import (
    FILES,
    IGNORE,
    RedpandaPartition,
    parse_partition_path,
    parse_segment_name,
)

ADVICE = "kafka.scan_redpanda reads the segments with their log offsets"


class LogPart(NamedTuple):
    """One segment of a log.

    delta: how many log offsets before it are none of Kafka's; None: as many as at the end of the
    segment before it.
    """

    path: str
    delta: int | None


def list_local_segments(source: str | os.PathLike[str], delta: int | None) -> list[LogPart]:
    """Return the segments of the one partition in a source, in the order of the log.

    delta: of the first segment; None: the log begins at offset 0.

    Raises ValueError for several partitions, and for a later beginning without a `delta`; OSError.
    """
    paths = [path for path in expand(source, files=FILES, ignore=IGNORE) if _is_segment(path)]
    if not paths:
        raise FileNotFoundError(f"there is no segment of Redpanda in {os.fspath(source)}")
    partitions = {parse_partition_path(path) for path in paths}
    if len(partitions) > 1:
        raise ValueError(
            f"{os.fspath(source)} has segments of {len(partitions)} partitions: open one at a time"
        )
    paths.sort(key=_order)
    first = _order(paths[0])[0]
    if first and delta is None:
        raise ValueError(
            f"{paths[0]}: the log begins at log offset {first}, so its Kafka offsets are not "
            f"known: pass delta or the manifest of the partition; {ADVICE}"
        )
    return [LogPart(path, None if number else delta or 0) for number, path in enumerate(paths)]


def list_cloud_segments(
    source: str | os.PathLike[str], manifest: RedpandaManifest
) -> list[LogPart]:
    """Return the segments that a manifest names, in the order of the log.

    Raises FileNotFoundError for a segment that is not in the source, ValueError for a manifest
    without the deltas of its segments, OSError.
    """
    if not len(manifest.segments):
        return []
    wanted = RedpandaPartition(manifest.topic, manifest.partition, manifest.revision)
    paths = {
        get_file_name(path): path
        for path in expand(source, files=FILES, ignore=IGNORE)
        if parse_partition_path(path) == wanted
    }
    parts = []
    for name, delta in zip(manifest.make_segment_names(), manifest.segments["delta_offset"]):
        if name not in paths:
            raise FileNotFoundError(
                f"the manifest of {wanted.topic}/{wanted.partition}_{wanted.revision} names the "
                f"segment {name}, which is not in {os.fspath(source)}"
            )
        if delta == UNKNOWN:
            raise ValueError(
                f"the manifest has no delta_offset of the segment {name}, so its Kafka offsets are "
                f"not known; {ADVICE}"
            )
        parts.append(LogPart(paths[name], int(delta)))
    return parts


def read_log(parts: Sequence[LogPart], read: Callable[[str], FrameTable]) -> FrameTable:
    """Return the batches of segments as one table, with the offsets of Kafka.

    read: returns the batches of a path, with log offsets.

    Raises ValueError where damage, a gap or an overlap of segments hides how many log offsets are
    none of Kafka's; and as `read`.
    """
    tables = []
    delta: int | None = 0
    end: int | None = None  # the log offset after the segment before
    for part in parts:
        table = read(part.path)
        rows = table.rows.copy()
        base = _order(part.path)[0]
        if part.delta is not None:
            delta = part.delta
        elif end is not None and base != end:
            raise ValueError(
                f"{part.path}: the segment begins at log offset {base}, and the one before it ends "
                f"before {end}. So the Kafka offsets from here on are not known; {ADVICE}"
            )
        delta = _translate(rows, delta, part.path)
        end = int(table.rows["last_offset"][-1]) + 1 if len(rows) else base
        tables.append(replace(table, rows=rows))
    return tables[0] if len(tables) == 1 else join(tables)


def _translate(rows: np.ndarray, delta: int | None, path: str) -> int | None:
    """Translate the offsets of a segment's rows in place. Return the delta at its end.

    delta: at its begin. None: damage before hides it.
    """
    bad = np.flatnonzero(rows["fault"])
    stop = int(bad[0]) if len(bad) else len(rows)
    if delta is None or stop < len(rows) - 1:
        position = int(rows["start"][stop]) if stop < len(rows) else 0
        raise ValueError(
            f"{path}: the damage at byte {position} or before it hides how many log offsets are "
            f"none of Kafka's, so the Kafka offsets after it are not known; {ADVICE}"
        )
    end = translate_offsets(rows[:stop], delta)
    return end if stop == len(rows) else None


def _is_segment(path: str) -> bool:
    return parse_segment_name(path) is not None


def _order(path: str) -> tuple[int, int]:
    """Return the base offset and the term of a segment."""
    name = parse_segment_name(path)
    assert name is not None
    return name.base_offset, name.term
