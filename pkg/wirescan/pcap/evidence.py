"""How unlikely a good block of a capture is in bytes of another kind."""

from __future__ import annotations

import numpy as np

from wirescan.frames.table import FrameTable
from wirescan.pcap.constants import BlockKind

HEADER = 64  # bits: magic number and version, or type and byte-order magic
BLOCK = 8  # bits of a block or record that follows: its size fits the next one


def weigh_blocks(blocks: FrameTable) -> np.ndarray:
    """Return how unlikely each block is, in bits: int64."""
    begins = np.isin(blocks["kind"], (BlockKind.FILE, BlockKind.SECTION))
    return np.where(begins, HEADER, BLOCK).astype(np.int64)
