"""Check that an installed wirescan works: read the corpus, and read what the encoders write.

usage: smoke.py CORPUS      needs only the base dependencies of wirescan
"""

import sys
from pathlib import Path

import wirescan
from wirescan import kafka, liftbridge, lumberjack, nats, thrift

RECORDS_IN_ORDERS = 27_708


def main() -> None:
    """Run the checks on the corpus that the command line names."""
    corpus = Path(sys.argv[1])
    records = kafka.records(kafka.open_log(corpus / "kafka" / "orders-0"))
    if len(records) != RECORDS_IN_ORDERS:
        raise SystemExit(f"smoke: {len(records)} records, expected {RECORDS_IN_ORDERS}")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        batch = kafka.encode_batch([b"one", b"two"], codec=codec)
        values = [bytes(record.value) for record in kafka.records(kafka.scan(batch))]
        if values != [b"one", b"two"]:
            raise SystemExit(f"smoke: codec {codec} gave {values}")
    for module, folder in ((lumberjack, "lumberjack"), (nats, "nats"), (thrift, "thrift")):
        files = [
            path for path in (corpus / folder).rglob("*") if path.suffix in (".bin", ".theader")
        ]
        rows = sum(len(module.scan(path, errors="mark")) for path in files)
        if not rows:
            raise SystemExit(f"smoke: {folder} gave no rows from {len(files)} files")
        print(f"{folder}: {rows} frames in {len(files)} files")
    envelopes = liftbridge.scan([liftbridge.encode_message(b"one")])
    if len(envelopes) != 1:
        raise SystemExit("smoke: liftbridge gave no envelope")
    print(f"wirescan {wirescan.__version__} works: {len(records)} records")


if __name__ == "__main__":
    main()
