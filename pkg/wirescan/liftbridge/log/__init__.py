"""Commit logs of Liftbridge: segments, indexes and look-up. Start with `commit_log.py`.

    commit_log.py    CommitLog, open_log, gaps
    segment.py       the segments of a partition, as a `SegmentLayout`
    index_files.py   reads the files beside segments
    index_writer.py  writes the indexes beside segments

Imports the folders below the protocol packages, and of `wirescan.liftbridge` the formats.
"""
