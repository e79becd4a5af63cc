"""The Python clients, over record data in memory: every record's offset, timestamp, key and value are asked for."""
from __future__ import annotations

import aiokafka.record.memory_records
import kafka.record.memory_records


def aiokafka_records(data: bytes, check: bool) -> int:
    """The number of records that aiokafka's Cython reader finds."""
    return _read(aiokafka.record.memory_records.MemoryRecords(data), check)


def kafka_python_records(data: bytes, check: bool) -> int:
    """The number of records that kafka-python finds."""
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
