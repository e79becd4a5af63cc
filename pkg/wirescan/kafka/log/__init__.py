"""Partition directories of brokers: segments, their indexes, lookup, and transactions.

Start with `directory.py`.

A partition:

    directory.py        PartitionLog and open_log
    segment.py          the segments of a partition, as a `SegmentLayout`
    batch_range.py      `within`: the records of a range of offsets
    transactions.py     aborted, committed, and open transactions

Files beside segments:

    index_files.py      reads indexes, snapshots and checkpoints
    index_writer.py     writes indexes
    side_files.py       compares these files with the log

Several partitions, and storage elsewhere:

    data_directory.py   the log directory of a broker at a glance
    tiered_segments.py  segments of tiered storage (KIP-405)
    aiven_segments.py   segments of Aiven's plugin
    aiven_manifest.py   its manifests

Imports the folders below the protocol packages, and of `wirescan.kafka` the record batches and
`formats`.
"""
