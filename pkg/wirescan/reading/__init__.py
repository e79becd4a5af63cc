"""Reading: from chunks of bytes to tables, in memory that does not grow with the input.

Start with `by_name.py`, which has `wirescan.scan` and `wirescan.stream`, and `stream.py`, the
incremental scanner.

Frames from bytes:

    by_name.py        `wirescan.scan` and `wirescan.stream`
    stream.py         `Stream`: frames from chunks of bytes, without I/O
    chunked.py        files in chunks, as tables
    prepared_read.py  the format and the range of a read
    chunks.py         the bytes of files, in chunks
    nested_groups.py  the frames inside outermost frames, group by group
    allowance.py      what the bytes of a file may expand to
    captures.py       captures of packets as a source
    detect.py         `wirescan.detect`: which format bytes have

Selection:

    filters.py        filters on columns: wanted rows, and frames that need not be read
    expression.py     conditions as text, and `wirescan.where`
    byte_compare.py   byte strings of rows, compared with values
    patterns.py       regular expressions with linear time

Files in parts:

    splits.py         files cut on frame boundaries, for tasks
    work.py           how long files take to read
    growing.py        files that grow

Imports `wirescan.core`, `wirescan.frames` and `wirescan.files`.
"""
