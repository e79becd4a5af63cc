"""How much a call may take: the limits that stand between what the wire claims and what is allocated."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields

__all__ = ["Limits"]

# `size` of a row is u4; `parent`, and the `_size` of a place, are i4.
_LARGEST = {"frame": 2**32 - 1, "inflated": 2**31 - 1, "rows": 2**31 - 1}


@dataclass(frozen=True)
class Limits:
    """Upper bounds, each inclusive. Every call that allocates takes one of these; the defaults are safe.

    frame           bytes in one frame on the wire, and so what a stream holds of one (Kafka:
                    `socket.request.max.bytes`): a longer one is a fault, BAD_LENGTH; 1 .. 2**32-1
    inflated        bytes that the payload of one frame may inflate to; 1 .. 2**31-1
    inflated_total  bytes that the payloads of one call may inflate to, all together; 1 or more
    ratio           inflated bytes per compressed byte; payloads that inflate to 1 MiB or less are never
                    refused for their ratio; 1 or more
    rows            rows in one table; 1 .. 2**31-1

    Raises TypeError for a limit that is not an integer, ValueError for one out of its range.
    """

    frame: int = 100 << 20
    inflated: int = 64 << 20
    inflated_total: int = 4 << 30
    ratio: int = 2000
    rows: int = _LARGEST["rows"]

    def __post_init__(self) -> None:
        for field in fields(self):
            limit = operator.index(getattr(self, field.name))
            largest = _LARGEST.get(field.name)
            if limit < 1 or (largest is not None and limit > largest):
                raise ValueError(f"limit {field.name}={limit} is not in 1 .. {largest or 'any'}")
            object.__setattr__(self, field.name, limit)
