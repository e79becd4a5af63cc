"""Decompresses the payloads of batches, on several threads where they are many bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.parallel import choose_threads, cut_evenly, run_each
from wirescan.frames.arena import Arena, limit_each, limit_total
from wirescan.frames.limits import Limits
from wirescan.frames.table import MAX_BUFFERS, FrameTable
from wirescan.kafka.constants import CODECS
from wirescan.kafka.record_batches.scan import child_spans, verify_batches

USUAL_RATIO = 5  # a first guess of the ratio of decompressed to compressed bytes
LEAST_COMPRESSED = 512 << 10  # compressed bytes; a smaller share is not worth a thread


class Payloads(NamedTuple):
    """The decompressed payloads of batches.

    buffers: those of the batches, then the decompressed payloads.
    spans: dtype HEAD, where the records of each batch are.
    counts: int32 array, see `child_spans`.
    verify: whether the checksums of the batches must still be verified.
    """

    buffers: tuple[memoryview, ...]
    spans: np.ndarray
    counts: np.ndarray
    verify: bool


class _Decompressed(NamedTuple):
    """Decompressed payloads.

    buffers: the decompressed bytes.
    places: dtype HEAD, where each payload is in the buffers, or its fault.
    """

    buffers: list[memoryview]
    places: np.ndarray


def decompress_batches(batches: FrameTable, limits: Limits, *, verify: bool) -> Payloads:
    """Decompress the payloads of batches into new buffers, on several threads if they are large.

    verify: verify the checksums of the batches. If any payload is compressed, this happens here,
        because the payload of a batch with a bad checksum is not decompressed.

    Raises TypeError for another table; ValueError where a row points outside its buffer, and for
    more than 65,536 buffers.
    """
    rows = batches.rows
    opened, counts, packed = child_spans(rows, batches.buffers)
    if not len(packed):
        return Payloads(batches.buffers, opened, counts, verify)
    if verify:
        opened["fault"] = verify_batches(rows, batches.buffers)
        packed = packed[opened["fault"][packed] == 0]
    payloads = opened[packed]
    names = [
        CODECS[magic == 0].get(codec, str(codec))
        for codec, magic in zip(rows["codec"][packed].tolist(), rows["magic"][packed].tolist())
    ]
    threads = choose_threads(int(payloads["size"].sum(dtype=np.int64)), LEAST_COMPRESSED)
    buffers, places = _decompress(names, batches.buffers, payloads, limits, threads)
    if len(batches.buffers) + len(buffers) > MAX_BUFFERS:
        raise ValueError("a table holds at most 65,536 buffers; open fewer batches at a time")
    # The bad row of a payload that is not decompressed covers the compressed payload.
    payloads["fault"] = places["fault"]
    good = places["fault"] == 0
    payloads["buffer"][good] = places["buffer"][good] + len(batches.buffers)
    for name in ("start", "size"):
        payloads[name][good] = places[name][good]
    opened[packed] = payloads
    return Payloads((*batches.buffers, *buffers), opened, counts, verify=False)


def _decompress(
    codecs: Sequence[str],
    buffers: Sequence[memoryview],
    payloads: np.ndarray,
    limits: Limits,
    threads: int,
) -> _Decompressed:
    """Decompress payloads on at most so many threads. The contents do not depend on the number."""
    if threads > 1 and len(payloads) > 1:
        opened = _decompress_shares(codecs, buffers, payloads, limits, threads)
        if opened is not None:
            return opened
    return _decompress_share(codecs, buffers, payloads, limits)


def _decompress_share(
    codecs: Sequence[str], buffers: Sequence[memoryview], payloads: np.ndarray, limits: Limits
) -> _Decompressed:
    arena = Arena(limits, USUAL_RATIO * int(payloads["size"].sum(dtype=np.int64)))
    places = arena.add_each(codecs, buffers, payloads)
    return _Decompressed(arena.buffers, places)


def _decompress_shares(
    codecs: Sequence[str],
    buffers: Sequence[memoryview],
    payloads: np.ndarray,
    limits: Limits,
    threads: int,
) -> _Decompressed | None:
    """Decompress contiguous shares of the payloads, each on a thread and in an arena of its own.

    A share may use its part of `limits.inflated_total`. Return None where a limit matters: then one
    thread has to decompress all payloads, so that the result does not depend on the shares.
    """
    sizes = payloads["size"].astype(np.int64)
    total = max(int(sizes.sum()), 1)
    functions: list[Callable[[], _Decompressed]] = []
    for start, stop in cut_evenly(sizes, threads):
        wire = int(sizes[start:stop].sum())
        allowed = max(limits.inflated_total * wire // total, 1)
        share_limits = replace(limits, inflated_total=allowed)
        functions.append(
            partial(
                _decompress_share,
                codecs[start:stop],
                buffers,
                payloads[start:stop],
                share_limits,
            )
        )
    joined: list[memoryview] = []
    places = []
    for share in run_each(functions):
        if len(joined) + len(share.buffers) > MAX_BUFFERS:
            return None
        share.places["buffer"] += len(joined)
        joined += share.buffers
        places.append(share.places)
    opened = _Decompressed(joined, np.concatenate(places))
    return opened if _is_within_totals(sizes, opened.places, limits) else None


def _is_within_totals(sizes: np.ndarray, places: np.ndarray, limits: Limits) -> bool:
    """Return whether one thread would get the same result within the limits for all payloads.

    sizes: compressed bytes of each payload. places: the result of several threads.
    """
    if (places["fault"] == Fault.TOO_LARGE).any():
        return False
    wire = np.cumsum(sizes, dtype=np.int64)
    written = np.where(places["fault"] == 0, places["size"], 0).astype(np.int64)
    spent = np.cumsum(written)
    # A damaged payload is reported as such only if it may decompress to all that a payload may.
    needed = np.where(places["fault"] == 0, written, limit_each(limits, sizes))
    return bool((spent - written + needed <= limit_total(limits, wire)).all())
