"""The NATS subjects of a stream's partitions, and which of them a key belongs to.

Sources: Liftbridge documentation, "Concepts"; go-liftbridge, v2/message.go (PartitionByKey).
"""
from __future__ import annotations

import operator
import zlib
from typing import Any

__all__ = ["check_subject", "partition_of", "subjects_of"]


def subjects_of(subject: str, partitions: int = 1) -> tuple[str, ...]:
    """The NATS subjects of the partitions of a stream: its own for partition 0, `subject.n` for partition n.

    Raises TypeError and ValueError for what is no subject to publish on, and for less than one partition."""
    check_subject(subject)
    count = operator.index(partitions)
    if count < 1:
        raise ValueError(f"a stream has 1 partition or more, not {count}")
    return subject, *(f"{subject}.{number}" for number in range(1, count))


def partition_of(key: Any, partitions: int) -> int:
    """The partition that a key belongs to, by its CRC-32 (IEEE), as in go-liftbridge's PartitionByKey: from 0 to
    partitions - 1; 0 for None and for an empty key. key: bytes-like, str or None."""
    if isinstance(key, str):
        key = key.encode(errors="surrogatepass")        # refused by the encoder, which can say it
    return zlib.crc32(b"" if key is None else key) % partitions


def check_subject(subject: str) -> str:
    """The subject. Raises TypeError for what is no str, ValueError where it has blanks, wildcards or empty tokens."""
    if not isinstance(subject, str):
        raise TypeError(f"a subject is a str, not {type(subject).__name__}")
    if any(token in ("", "*", ">") for token in subject.split(".")) or " " in subject or not subject.isprintable():
        raise ValueError(f"a subject has tokens between dots, no blanks and no wildcards: {subject!r}")
    return subject
