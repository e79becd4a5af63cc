"""Records of a table in the form in which the peer tests compare readers."""

from tests.peers.canonical import Record
from tests.support.places import copy_bytes
from wirescan import kafka


def list_canonical_records(records, read_headers=kafka.headers) -> list[Record]:
    """List the records in the form of which expected.json has the digest.

    read_headers: opens the headers of the records.
    """
    headers = read_headers(records)
    of_record: list[list] = [[] for _ in range(len(records))]
    for row, parent in enumerate(headers["parent"].tolist()):
        pair = copy_bytes(headers.bytes(row, "key")), copy_bytes(headers.bytes(row, "value"))
        of_record[parent].append(pair)
    return [
        Record(
            offset,
            timestamp,
            copy_bytes(records.bytes(row, "key")),
            copy_bytes(records.bytes(row, "value")),
            tuple(of_record[row]),
        )
        for row, (offset, timestamp) in enumerate(records.rows[["offset", "timestamp"]].tolist())
    ]
