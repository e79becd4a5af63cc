"""The option `tolerant` of pcap.packets, pcap.flows and pcap.streams.

The frames of captures are within "pcap.streams?tolerant=true": a bad packet costs only its own
bytes, in every mode.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from wirescan.frames.format import Format
from wirescan.frames.options import FormatOption
from wirescan.frames.registry import make_spec
from wirescan.frames.table import FrameTable


def add_tolerance(format: Format, value: str) -> Format:
    """Return a format of captures whose bad packets and lost bytes are rows in every mode."""

    def read(source: Any, **options: Any) -> FrameTable:
        return format.read(source, **{**options, "errors": "mark"})

    within = format.within
    assert within is not None  # these formats are inside blocks
    if within != "pcap.blocks":
        within = make_spec(within, tolerant=value)
    return replace(format, within=within, read=read)


TOLERANT = FormatOption(
    "tolerant", bool, "Bad packets and lost bytes are rows.", add_tolerance, is_internal=True
)
