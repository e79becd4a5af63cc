"""The Python clients over record data in memory.

They read the offset, the timestamp, the key and the value of every record.
"""

from __future__ import annotations

import aiokafka.record.memory_records
import kafka.record.memory_records


def count_aiokafka_records(data: bytes, *, check: bool) -> int:
    """Read records with aiokafka's Cython reader, and return their number."""
    return _read(aiokafka.record.memory_records.MemoryRecords(data), check)


def count_kafka_python_records(data: bytes, *, check: bool) -> int:
    """Read records with kafka-python, and return their number."""
    return _read(kafka.record.memory_records.MemoryRecords(data), check)


def _read(batches, check: bool) -> int:
    count = 0
    while batches.has_next():
        batch = batches.next_batch()
        if check and not batch.validate_crc():
            raise ValueError("a batch with a bad checksum")
        for record in batch:
            record.offset
            record.timestamp
            record.key
            record.value
            count += 1
    return count
