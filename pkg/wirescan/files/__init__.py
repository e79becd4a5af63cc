"""Files and objects: sources of bytes, and boundaries of frames in them.

Start with `source.py`: it opens paths, globs, directories, URLs and bytes. `whole_source.py` scans
a source into one table. `incremental.py` scans bytes that come in pieces. `object_store.py` reads
objects. `boundaries.py` finds frame boundaries, and `length_prefix.pyx` is its fast loop.
`boundary_index.py` stores boundaries beside a file. `file_identity.py` tracks renamed files.
`translated.py` finds the module of a protocol that computes a file from others.

Imports `wirescan.core` and `wirescan.frames`.
"""
