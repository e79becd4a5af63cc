"""The parts that a Kafka client returns for the ranges of a topic."""


def collect_offsets(parts) -> list[int]:
    """Return the offsets of all records in the parts."""
    return [offset for part in parts for offset in part.records["offset"].tolist()]
