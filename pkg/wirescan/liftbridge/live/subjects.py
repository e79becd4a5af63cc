"""The NATS subjects of a stream's partitions, and the partition of a key.

Sources: Liftbridge documentation, "Concepts"; go-liftbridge, v2/message.go (PartitionByKey).
"""

from __future__ import annotations

import zlib
from typing import Any

from wirescan.core.arguments import I32, check_integer, to_bytes

PARTITIONS = (1, I32[1])  # bounds of a number of partitions


def list_subjects(subject: str, partitions: int = 1) -> tuple[str, ...]:
    """Return the NATS subjects of a stream's partitions.

    Partition 0 has the subject of the stream, and partition n has `subject.n`.

    Raises TypeError and ValueError if `subject` cannot be published on, and for less than one
    partition.
    """
    check_subject(subject)
    count = check_integer(partitions, "partitions", PARTITIONS)
    return subject, *(f"{subject}.{number}" for number in range(1, count))


def compute_partition(key: Any, partitions: int) -> int:
    """Return the partition of a key: its CRC-32 (IEEE) modulo `partitions`.

    go-liftbridge's PartitionByKey computes the same. key: bytes-like, str or None. None and an
    empty key are in partition 0.

    Raises TypeError and ValueError for another key, and for less than one partition.
    """
    count = check_integer(partitions, "partitions", PARTITIONS)
    return zlib.crc32(b"" if key is None else to_bytes(key, "key")) % count


def check_subject(subject: str) -> str:
    """Return the subject, if it can be published on.

    Raises TypeError if it is not a str, and ValueError if it has blanks, wildcards or empty tokens.
    """
    if not isinstance(subject, str):
        raise TypeError(f"a subject must be a str, not {type(subject).__name__}")
    if (
        any(token in ("", "*", ">") for token in subject.split("."))
        or " " in subject
        or not subject.isprintable()
    ):
        raise ValueError(
            f"a subject must be tokens between dots, without blanks and wildcards, not {subject!r}"
        )
    return subject
