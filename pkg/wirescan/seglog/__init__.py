"""Logs of segments: their indexes and checkpoints, look-up, pruning, and new segments.

Start with `segments.py`: its `SegmentLayout` is what a protocol package declares of its segments.

Read:

    segments.py        `SegmentLayout`, and a walk over one segment
    index_entries.py   the files beside segments: indexes, and checkpoints that are text
    segment_search.py  look-up and pruning in one segment
    segmented_log.py   all segments of a log as one, and parts of it
    frame_offsets.py   log offsets of frames, and of damaged headers

Write and compare:

    segment_writer.py  whole frames as segments, with indexes
    log_salvage.py     `salvage`: the intact frames of a damaged log
    log_order.py       which frames of a damaged log are in order
    log_cut.py         a part of a log
    log_diff.py        `LogDiff`: two copies of a log

Imports `wirescan.core`, `wirescan.frames`, `wirescan.files` and `wirescan.reading`. It knows no
protocol.
"""
