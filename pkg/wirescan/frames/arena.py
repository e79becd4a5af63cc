"""Decompressed payloads in a few large buffers, within limits.

`Limits` bound what each payload, and all payloads of an arena together, may decompress to. The
bounds grow with the compressed bytes, and small output is always allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import cramjam
import numpy as np

from wirescan.core import inflate, libdeflate, libzstd
from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD, lie_inside
from wirescan.core.rows import Block
from wirescan.core.span_decompressor import FAST_CODECS, SpanDecompressor
from wirescan.frames.codecs import (
    DECOMPRESSORS,
    CodecError,
    OutputTooSmallError,
    decompress_into,
    decompress_zlib,
    get_libdeflate,
)
from wirescan.frames.limits import Limits

__all__ = ["Arena", "Place", "DEFLATE_RATIO", "limit_each", "limit_total"]

DEFLATE_RATIO = 1032  # the highest ratio of deflate: 258 bytes for two bits

_RATIO_FREE = 1 << 20  # bytes; smaller output is never refused for its ratio
_RATIO_TOTAL_FREE = 128 << 20  # bytes; the same for all payloads of an arena together
_MIN_WORK = 64 << 10  # bytes; the cost of one attempt to decompress, whatever its output
_FIRST_BUFFER = 256 << 10  # bytes in the first buffer of an arena that has no better guess
_LARGEST_BUFFER = 256 << 20  # bytes; buffers of up to this size double
_FEW_STREAMS = 16  # fewer are decompressed one by one: it costs more to prepare the loop
_HIGH_RATIO = 32  # of output to input; few payloads have a higher one
_GROWTH = 8  # the factor by which the buffer grows for a payload that did not fit

# Bounds that the compiled loops take, so that their sums fit 64 bits.
_LARGEST_RATIO = 1 << 31
_LARGEST_TOTAL = 1 << 62

Place: TypeAlias = tuple[int, int, int]
"""A payload in an arena: (index into `buffers`, start in that buffer, size), in bytes."""


def limit_each(limits: Limits, sizes: np.ndarray) -> np.ndarray:
    """Return how many bytes payloads may decompress to, each by itself, as an int64 array.

    sizes: the compressed bytes of each payload.
    """
    ratio = min(limits.ratio, _LARGEST_RATIO)
    by_ratio = np.maximum(ratio * sizes.astype(np.int64), _RATIO_FREE)
    return np.minimum(by_ratio, limits.inflated)


def limit_total(limits: Limits, wire: np.ndarray) -> np.ndarray:
    """Return how many bytes all payloads up to each one may decompress to, as an int64 array.

    wire: int64 array, the compressed bytes of all payloads up to each one.
    """
    total = min(limits.inflated_total, _LARGEST_TOTAL)
    ratio = min(limits.ratio_total, _LARGEST_TOTAL)
    # Where the ratio allows more than `total`, its product might not fit 64 bits.
    by_ratio = np.maximum(np.minimum(wire, total // ratio) * ratio, _RATIO_TOTAL_FREE)
    return np.where(wire > total // ratio, total, np.minimum(by_ratio, total))


class Arena:
    """Decompressed payloads, one after another in a few large buffers.

    Buffers are never zeroed, moved or shrunk. A buffer stays valid while a memoryview on it
    exists. Only one thread at a time may add payloads.

    Args:
        limits: the bounds for each payload and for all payloads together.
        expect: a guess of the decompressed bytes to come. It must not be a size read from the
            wire. Pages that are never written cost no memory.
    """

    __slots__ = ("_limits", "_wire", "_spent", "_wasted", "_full", "_current", "_used")

    def __init__(self, limits: Limits = Limits(), expect: int = 0) -> None:
        self._limits = limits
        self._wire = 0  # compressed bytes so far
        self._spent = 0  # decompressed bytes so far, also of streams with a wrong checksum
        self._wasted = 0  # bytes decompressed from payloads that were too large
        self._full: list[memoryview] = []  # buffers in front of the current one
        capacity = max(0, min(expect, _LARGEST_BUFFER, limits.inflated_total))
        self._current = memoryview(Block(capacity))
        self._used = 0  # bytes of the current buffer

    @property
    def remaining(self) -> int:
        """The bytes that the next payloads may decompress to, all together."""
        allowed = max(self._limits.ratio_total * self._wire, _RATIO_TOTAL_FREE)
        return max(min(allowed, self._limits.inflated_total) - self._spent, 0)

    def spend(self, other: Arena) -> None:
        """Count the bytes that another arena decompressed for a payload of this arena."""
        self._spent += other._spent
        self._wasted += other._wasted

    def add(self, codec: str, payload: memoryview, wire: int | None = None) -> Place:
        """Decompress `payload` and return its place.

        After an error the arena is as it was before. An arena that has spent much work on
        payloads above a limit refuses all further payloads.

        codec: as in `decompress_into`.
        payload: the compressed bytes.
        wire: the bytes of the payload on the wire, if an earlier step decompressed it. The ratio is
            computed from this size. Default: the size of `payload`.

        Raises CodecError: TOO_LARGE if the payload decompresses to more than the limits allow;
        otherwise as `decompress_into`.
        """
        start = self._used
        max_bytes = self._limit_output(len(payload) if wire is None else wire)
        size: int | None
        try:
            size = decompress_into(codec, payload, self._current[start : start + max_bytes])
        except CodecError as error:
            # Any message may mean a full output, while the output was smaller than allowed.
            if error.fault == Fault.BAD_CODEC or len(self._current) - start >= max_bytes:
                self._count_refused(error, max_bytes)
                raise
            size = None
        if size is None:
            # Tried again outside of the handler, so that no second error chains to the first.
            size = self._decompress_in_new_buffer(codec, payload, max_bytes)
            start = 0
        self._used = start + size
        self._spent += size
        return len(self._full), start, size

    def add_each(
        self, codecs: Sequence[str], buffers: Sequence[memoryview], spans: np.ndarray
    ) -> np.ndarray:
        """Decompress payloads as `add` does, one after another.

        Args:
            codecs: the codec of each payload, as in `decompress_into`.
            buffers: the buffers that the spans point into.
            spans: array of dtype HEAD, one row for each payload. Their faults must be 0.

        Returns:
            An array of dtype HEAD. Its `buffer`, `start` and `size` are the place that `add`
            returns, or `fault` is set to the fault that `add` raises.

        Raises:
            ValueError: a span is outside its buffer.
        """
        places = np.zeros(len(spans), HEAD)
        available = {"gzip": libdeflate.available, "zstd": libzstd.available}
        is_fast = np.array(
            [FAST_CODECS[codec] if available.get(codec) else 0 for codec in codecs], np.uint8
        )
        fast = None
        if is_fast.any():
            fast = SpanDecompressor(buffers, spans, is_fast, places)
        elif not lie_inside(spans, buffers):
            raise ValueError("a span points outside its buffer")
        columns = (spans["buffer"], spans["start"], spans["start"] + spans["size"], is_fast)
        values = zip(*(column.tolist() for column in columns))
        results: list[tuple[int, int, int, int, int]] = []  # row, buffer, start, size, fault
        stop = 0  # payloads before this one are decompressed
        limits = limit_each(self._limits, spans["size"]).tolist()
        remaining = 0  # a lower bound of `self.remaining`, which is costly to compute
        for i, (number, first, last, fast_codec) in enumerate(values):
            if fast is not None and fast_codec and i >= stop:
                stop = self._run(fast, i)
                remaining = 0
            if i < stop:
                continue
            payload = buffers[number][first:last]
            place = None
            if remaining >= limits[i] and not self._wasted:
                place = self._add_to_current(codecs[i], payload, limits[i])
            if place is not None:
                remaining -= place[2]
                results.append((i, *place, 0))
                continue
            try:
                results.append((i, *self.add(codecs[i], payload), 0))
            except CodecError as error:
                results.append((i, 0, 0, 0, error.fault))
            remaining = self.remaining
        by_column = np.array(results, np.int64).reshape(-1, 5).T
        for name, column in zip(("buffer", "start", "size", "fault"), by_column[1:]):
            places[name][by_column[0]] = column
        return places

    def _add_to_current(self, codec: str, payload: memoryview, max_bytes: int) -> Place | None:
        """Decompress a payload into the current buffer; return None where `add` has to do it.

        max_bytes: the bytes that the payload may decompress to, within all limits.
        """
        start = self._used
        try:
            out = np.asarray(self._current[start : start + max_bytes])
            size = DECOMPRESSORS[codec](payload, out)
        except (cramjam.DecompressionError, CodecError, KeyError):
            return None
        self._wire += len(payload)
        self._used = start + size
        self._spent += size
        return len(self._full), start, size

    def _run(self, fast: SpanDecompressor, first: int) -> int:
        """Decompress payloads from `first` on; return the first that is left to `add`."""
        limits = self._limits
        if self._wasted:
            return first  # only `add` counts the work on payloads that are refused
        stop, self._used, self._wire, self._spent = fast.run(
            first,
            cast(Block, self._current.obj),
            self._used,
            len(self._full),
            (min(limits.ratio, _LARGEST_RATIO), _RATIO_FREE, limits.inflated),
            (
                min(limits.ratio_total, _LARGEST_TOTAL),
                _RATIO_TOTAL_FREE,
                min(limits.inflated_total, _LARGEST_TOTAL),
            ),
            self._wire,
            self._spent,
        )
        return stop

    def add_zlib(
        self, payload: memoryview, *, check: bool = True, wire: int | None = None
    ) -> tuple[Place, Fault]:
        """Decompress a zlib stream and return its place and the fault at its end.

        The fault is TRUNCATED if the payload ends before the stream, LEFTOVER if bytes follow
        the stream, otherwise OK. After an error the arena is as after `add`.

        payload: the zlib stream.
        check: verify Adler-32.
        wire: as in `add`.

        Raises CodecError: BAD_COMPRESSION, BAD_CHECKSUM or TOO_LARGE.
        """
        size = len(payload) if wire is None else wire
        return self._add_zlib(payload, size, check=check, was_tried=False)

    def _add_zlib(
        self, payload: memoryview, wire: int, *, check: bool, was_tried: bool
    ) -> tuple[Place, Fault]:
        """Add a zlib stream as `add_zlib` does.

        was_tried: the loop has ended at this payload, mostly because libdeflate failed in the rest
            of the current buffer.
        """
        max_bytes = self._limit_output(wire)
        if libdeflate.available:
            place = None if was_tried else self._add_with_libdeflate(payload, max_bytes)
            most = min(max_bytes, _LARGEST_BUFFER // 2)
            needed = min(_HIGH_RATIO * len(payload), most)
            if place is None and len(self._current) - self._used < needed:
                # Probably the rest of the buffer was too small. A damaged stream starts a buffer
                # too, but not one after another: the next one has room.
                self._start_buffer(needed)
                place = self._add_with_libdeflate(payload, max_bytes)
            needed = min(DEFLATE_RATIO * len(payload), most)
            if place is None and len(self._current) - self._used < needed:
                place = self._add_with_libdeflate_in_new_buffer(payload, needed)
            if place is not None:
                return place, Fault.OK
        try:
            data, fault = decompress_zlib(payload, max_bytes, check=check)
        except CodecError as error:
            self._count_refused(error, max_bytes)
            raise
        return self._append(data), fault

    def _add_with_libdeflate(self, payload: memoryview, max_bytes: int) -> Place | None:
        """Decompress a zlib stream into the current buffer; return None if libdeflate fails."""
        start = self._used
        out = self._current[start : start + max_bytes]
        written = get_libdeflate().decompress_zlib(payload, out)
        if written < 0:
            return None
        self._used += written
        self._spent += written
        return len(self._full), start, written

    def _add_with_libdeflate_in_new_buffer(self, payload: memoryview, needed: int) -> Place | None:
        """Decompress a zlib stream into a new buffer; return None if libdeflate fails.

        A failure leaves no buffer: zlib needs memory for the payload too.

        needed: the largest size of the result.
        """
        buffer = memoryview(Block(max(self._choose_capacity(), needed)))
        written = get_libdeflate().decompress_zlib(payload, buffer[:needed])
        if written < 0:
            return None
        self._finish_buffer()
        self._current = buffer
        self._used = written
        self._spent += written
        return len(self._full), 0, written

    def add_zlib_with_ends(
        self, buffers: Sequence[memoryview], spans: np.ndarray, *, check: bool = True
    ) -> np.ndarray:
        """Decompress zlib streams as `add_zlib` does, one after another.

        Args:
            buffers: the buffers that the spans point into.
            spans: array of dtype HEAD, one row for each stream. Their faults must be 0.
            check: verify Adler-32.

        Returns:
            An array of dtype HEAD. Its `buffer`, `start` and `size` are the place that `add_zlib`
            returns, and `kind` is the fault at the end of the stream. Or `fault` is set to the
            fault that `add_zlib` raises.

        Raises:
            ValueError: a span is outside its buffer.
        """
        places = np.zeros(len(spans), HEAD)
        fast = None
        if libdeflate.available and len(spans) >= _FEW_STREAMS:
            codecs = np.full(len(spans), FAST_CODECS["zlib"], np.uint8)
            fast = SpanDecompressor(buffers, spans, codecs, places)
        elif not lie_inside(spans, buffers):
            raise ValueError("a span points outside its buffer")
        columns = spans[["buffer", "start", "size"]]
        i = 0
        while True:
            was_tried = fast is not None and not self._wasted
            if fast is not None:
                i = self._run(fast, i)
            if i == len(spans):
                return places
            number, start, size = columns[i].item()
            payload = buffers[number][start : start + size]
            try:
                place, end_fault = self._add_zlib(payload, size, check=check, was_tried=was_tried)
                places["buffer"][i], places["start"][i], places["size"][i] = place
                places["kind"][i] = end_fault
            except CodecError as error:
                places["fault"][i] = error.fault
            i += 1

    def add_zlib_each(
        self, buffers: Sequence[memoryview], spans: np.ndarray, *, check: bool = True
    ) -> np.ndarray:
        """Decompress zlib streams, each of which has to fill its span.

        Args:
            buffers: the buffers that the spans point into.
            spans: array of dtype HEAD, one row for each stream.
            check: verify Adler-32, and refuse bytes after a stream.

        Returns:
            An array of dtype HEAD. Its `buffer`, `start` and `size` are the place that `add`
            returns, or `fault` is set: to the fault of the span, or to BAD_COMPRESSION,
            BAD_CHECKSUM, TOO_LARGE, TRUNCATED or LEFTOVER.
        """
        places = np.zeros(len(spans), HEAD)
        if not inflate.available:
            self._add_zlib_with_python(buffers, spans, places, check=check)
            return places
        bounds = (min(self._limits.ratio, _LARGEST_RATIO), _RATIO_FREE, self._limits.inflated)
        self._wire += int(spans["size"].sum(dtype=np.int64))
        count = 0
        while True:
            before = self._used
            count, self._used, wasted = inflate.inflate_spans(
                buffers,
                spans,
                places,
                count,
                cast(Block, self._current.obj),
                before,
                len(self._full),
                bounds,
                min(self.remaining, _LARGEST_TOTAL),
                check,
            )
            self._spent += self._used - before + wasted
            if count == len(spans):
                return places
            # An unused buffer was too small for the next stream by itself.
            tried = len(self._current) if self._used == 0 else 0
            capacity = _GROWTH * max(tried, int(spans["size"][count]))
            self._start_buffer(min(capacity, self._limits.inflated))

    def _add_zlib_with_python(
        self,
        buffers: Sequence[memoryview],
        spans: np.ndarray,
        places: np.ndarray,
        *,
        check: bool,
    ) -> None:
        """Fill `places` as `add_zlib_each` does, without the compiled decompressor."""
        columns = ["start", "size", "buffer", "fault"]
        for i, (start, size, number, fault) in enumerate(spans[columns].tolist()):
            place: Place = (0, 0, 0)
            if not fault:
                try:
                    place, fault = self.add_zlib(buffers[number][start : start + size], check=check)
                except CodecError as error:
                    fault = error.fault
                if fault == Fault.LEFTOVER and not check:
                    fault = Fault.OK
            if fault:
                places["fault"][i] = fault
            else:
                places["buffer"][i], places["start"][i], places["size"][i] = place

    def add_parts(self, parts: Sequence[memoryview]) -> Place:
        """Copy bytes into the arena, one part after another, and return their place.

        Raises CodecError: TOO_LARGE if the limits do not allow so many bytes.
        """
        size = sum(map(len, parts))
        self._wire += size
        max_bytes = min(self._limits.inflated, self.remaining)
        if size > max_bytes:
            raise OutputTooSmallError(
                f"the parts have {size} bytes, but {max_bytes} bytes are allowed"
            )
        return self._append(b"".join(parts))

    def _append(self, data: bytes) -> Place:
        if len(data) > len(self._current) - self._used:
            self._start_buffer(len(data))
        start = self._used
        self._used += len(data)
        self._current[start : self._used] = data
        self._spent += len(data)
        return len(self._full), start, len(data)

    def _start_buffer(self, least: int) -> None:
        self._finish_buffer()
        self._current = memoryview(Block(max(self._choose_capacity(), least)))
        self._used = 0

    def _finish_buffer(self) -> None:
        if self._used:
            self._full.append(self._current[: self._used].toreadonly())

    def _choose_capacity(self) -> int:
        return max(_FIRST_BUFFER, min(2 * len(self._current), _LARGEST_BUFFER))

    def _limit_output(self, size: int) -> int:
        """Count a payload of `size` bytes and return how many bytes it may decompress to."""
        limits = self._limits
        self._wire += size
        wasted = self._wasted
        if wasted > _RATIO_TOTAL_FREE and wasted > limits.ratio_total * self._wire:
            raise OutputTooSmallError("too many payloads are above a limit")
        return min(max(limits.ratio * size, _RATIO_FREE), limits.inflated, self.remaining)

    def _count_refused(self, error: CodecError, max_bytes: int) -> None:
        """Count the work on a payload that is too large, or whose checksum is wrong.

        Many such payloads of a few bytes each would cost much.
        """
        self._spent += error.wasted
        if error.fault == Fault.TOO_LARGE:
            self._wasted += max(max_bytes, _MIN_WORK)

    def _decompress_in_new_buffer(self, codec: str, payload: memoryview, max_bytes: int) -> int:
        capacity = max(self._choose_capacity(), min(_GROWTH * len(payload), max_bytes))
        capacity = min(capacity, self.remaining)
        while True:
            buffer = memoryview(Block(capacity))
            try:
                size = decompress_into(codec, payload, buffer[:max_bytes])
                break
            except CodecError as error:
                refused = error.with_traceback(None)
            # Neither this name nor a traceback keeps the buffer of a failed attempt alive.
            del buffer
            if capacity >= max_bytes:
                self._count_refused(refused, max_bytes)
                raise refused
            capacity = min(_GROWTH * capacity, max_bytes)
        self._finish_buffer()
        self._current = buffer
        return size

    @property
    def buffers(self) -> list[memoryview]:
        """Read-only views on the decompressed bytes: at least one. The last may be empty."""
        return [*self._full, self._current[: self._used].toreadonly()]
