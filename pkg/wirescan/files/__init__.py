"""Files and objects: sources of bytes, and boundaries of frames in them.

Start with `source.py`: it opens paths, globs, directories, URLs and bytes.

Sources:

    source.py            paths, globs, directories, URLs, file objects and buffers
    whole_source.py      all frames of a source as one table
    incremental.py       `FrameScanner`: the scan of bytes that come in pieces
    file_pattern.py      `FilePattern`: which files of a directory are read
    capture_mark.py      captures and compressed files, recognized by their first bytes
    translated.py        files whose bytes a protocol computes from others

Object stores:

    object_store.py      names, sizes and times of objects
    object_ranges.py     the bytes of objects, read ahead
    store_connection.py  pyarrow's file system for a URL and its options
    store_errors.py      errors of stores, as errors of a file system

Boundaries of frames:

    boundaries.py        boundaries of a file, found by a scan from its start
    length_prefix.pyx    the search from header to header
    boundary_index.py    boundaries in a small file beside the file

Files over time:

    file_identity.py     files across renames and rotation
    sealed_files.py      finished files of a stream
    new_directory.py     a directory that gets its name when its files are on disk

Imports `wirescan.core` and `wirescan.frames`.
"""
