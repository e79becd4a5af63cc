"""The NATS subjects of a stream's partitions, and which of them a key belongs to.

Sources: Liftbridge documentation, "Concepts"; go-liftbridge, v2/message.go (PartitionByKey).
"""
from __future__ import annotations

import zlib
from typing import Any

from wirescan.core.columns import I32, integer, octets

__all__ = ["check_subject", "partition_of", "subjects_of"]

PARTITIONS = (1, I32[1])


def subjects_of(subject: str, partitions: int = 1) -> tuple[str, ...]:
    """The NATS subjects of the partitions of a stream: its own for partition 0, `subject.n` for partition n.

    Raises TypeError and ValueError for what is no subject to publish on, and for less than one partition."""
    check_subject(subject)
    return subject, *(f"{subject}.{number}" for number in range(1, integer(partitions, "partitions", PARTITIONS)))


def partition_of(key: Any, partitions: int) -> int:
    """The partition that a key belongs to, by its CRC-32 (IEEE), as in go-liftbridge's PartitionByKey: from 0 to
    partitions - 1; 0 for None and for an empty key. key: bytes-like, str or None.

    Raises TypeError and ValueError for another key, and for less than one partition."""
    count = integer(partitions, "partitions", PARTITIONS)
    return zlib.crc32(b"" if key is None else octets(key, "key")) % count


def check_subject(subject: str) -> str:
    """The subject. Raises TypeError for what is no str, ValueError where it has blanks, wildcards or empty tokens."""
    if not isinstance(subject, str):
        raise TypeError(f"a subject is a str, not {type(subject).__name__}")
    if any(token in ("", "*", ">") for token in subject.split(".")) or " " in subject or not subject.isprintable():
        raise ValueError(f"a subject has tokens between dots, no blanks and no wildcards: {subject!r}")
    return subject
