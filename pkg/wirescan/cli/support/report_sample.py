"""What other codecs would make of a bounded sample of decompressed frames."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirescan.frames.codecs import compress
from wirescan.frames.lookup import find_buffers
from wirescan.frames.row_values import get_outer_table
from wirescan.frames.table import FrameTable

SAMPLE_BYTES = 1 << 20  # decompressed bytes in the sample
PIECE_BYTES = 128 << 10  # decompressed bytes that one piece adds
TRIED_CODECS = ("gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class WhatIf:
    """The bytes of a sample before and after compression with a codec, frame by frame."""

    codec: str
    sample_bytes: int
    compressed_bytes: int


class CodecSample:
    """Compresses the content of some frames with each codec, at the codec's default level."""

    def __init__(self) -> None:
        self._size = 0
        self._compressed = dict.fromkeys(TRIED_CODECS, 0)

    def add(self, inner: FrameTable) -> None:
        """Add the first good frames of a piece, until the sample is full.

        inner: the frames inside outermost frames. The bytes from the first to the last one inside
            an outermost frame are compressed together, as a client does. The last content is cut
            where the sample is full.
        """
        room = min(PIECE_BYTES, SAMPLE_BYTES - self._size)
        if room <= 0 or not len(inner) or get_outer_table(inner).outer is not None:
            return
        parents = inner["parent"]
        firsts = np.concatenate([[0], np.flatnonzero(np.diff(parents)) + 1, [len(parents)]])
        is_damaged = np.zeros(len(firsts) - 1, bool)
        is_damaged[np.searchsorted(firsts, np.flatnonzero(inner.bad), "right") - 1] = True
        buffers = find_buffers(inner)
        for i in np.flatnonzero(~is_damaged).tolist():
            begin, end = int(firsts[i]), int(firsts[i + 1]) - 1
            start = int(inner["start"][begin])
            stop = int(inner["start"][end]) + int(inner["size"][end])
            if buffers[begin] != buffers[end]:
                continue
            stop = min(stop, start + room)
            room -= stop - start
            self._add_content(inner.buffers[int(buffers[begin])][start:stop])
            if not room:
                return

    def _add_content(self, content: memoryview) -> None:
        self._size += len(content)
        for codec in TRIED_CODECS:
            self._compressed[codec] += len(compress(codec, content))

    def list_results(self) -> list[WhatIf]:
        """Return what each codec would make of the sample; nothing without one."""
        if not self._size:
            return []
        return [WhatIf(codec, self._size, size) for codec, size in self._compressed.items()]
