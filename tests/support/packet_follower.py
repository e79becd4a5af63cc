"""An assembler that is fed with packets as bytes, for tests."""

from collections.abc import Sequence
from typing import Any

from wirescan import pcap
from wirescan.frames.table import FrameTable
from wirescan.pcap.assembly.assembler import Assembler


class PacketFollower(Assembler):
    """An `Assembler` that keeps the buffers of its packets, so that its bytes can be taken."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._tables: list[FrameTable] = []

    def follow_packets(self, packets: Sequence[tuple]) -> None:
        """Follow packets: (time in ns, bytes)."""
        table = pcap.packets(pcap.scan(pcap.encode_pcap(packets, nanoseconds=True)))
        self._tables.append(table)
        self.feed(table.rows, table.buffers)


def count_connections(assembler: Assembler) -> int:
    """Return how many connections are held, with the released ones that were not dropped."""
    return len(assembler.list_flows()[0])
