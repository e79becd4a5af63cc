"""The numbers of captures by their names.

Source: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng, the registry of link types at tcpdump.org.
"""

from enum import IntEnum

__all__ = ["BlockKind", "Direction", "FlowState", "LinkType", "PacketKind"]


class BlockKind(IntEnum):
    """The column `kind` of pcap.blocks."""

    FILE = 1
    PACKET = 2
    SECTION = 3
    INTERFACE = 4
    NAMES = 5
    STATISTICS = 6
    SECRETS = 7
    CUSTOM = 8
    OTHER = 9


class PacketKind(IntEnum):
    """The column `kind` of pcap.packets: the innermost layer that is read."""

    OTHER = 0
    TCP = 1
    UDP = 2
    FRAGMENT = 3
    ICMP = 4
    IP = 5


class LinkType(IntEnum):
    """The column `link`, for the link layers that are read."""

    NULL = 0
    ETHERNET = 1
    RAW_12 = 12
    RAW_14 = 14
    RAW = 101
    LOOP = 108
    LINUX_SLL = 113
    IPV4 = 228
    IPV6 = 229
    LINUX_SLL2 = 276


class FlowState(IntEnum):
    """The column `kind` of pcap.flows: how a connection ended."""

    UNFINISHED = 1
    COMPLETE = 2
    RESET = 3


class Direction(IntEnum):
    """The column `kind` of pcap.streams."""

    TO_SERVER = 1
    TO_CLIENT = 2
