"""Logs of segments: their indexes and checkpoints, look-up by offset and time, and pruning.

Start with `segments.py`: its `SegmentLayout` is what a protocol package declares of its segments.
`index_entries.py` reads the files beside segments, `segment_search.py` searches and prunes one
segment, and `segmented_log.py` reads parts of a log.

Imports `wirescan.core`, `wirescan.frames` and `wirescan.files`. It knows no protocol.
"""
