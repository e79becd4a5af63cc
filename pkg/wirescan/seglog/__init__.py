"""Logs of segments: their indexes and checkpoints, look-up, pruning, and new segments.

Start with `segments.py`: its `SegmentLayout` is what a protocol package declares of its segments.
`index_entries.py` reads the files beside segments, `segment_search.py` searches and prunes one
segment, and `segmented_log.py` reads parts of a log. `segment_writer.py` writes segments:
`log_salvage.py` those of a damaged log, and `log_cut.py` a part of a log. `log_diff.py` compares
two logs.

Imports `wirescan.core`, `wirescan.frames`, `wirescan.files` and `wirescan.reading`. It knows no
protocol.
"""
