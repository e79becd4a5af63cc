"""Tables of frames: what all layers above share.

Start with `table.py`: a `FrameTable` consists of buffers and a numpy structured array of rows that
point into them. `format.py` declares kinds of frames, and `registry.py` finds formats by name.
`options.py` has the options that formats declare.
`errors.py` has the modes and `FrameError`. `to_arrow.py` converts tables to Arrow. `limits.py`
bounds what a call may allocate. `codecs.py` compresses and decompresses a payload, and
`arena.py` holds the decompressed payloads of a table. `row_values.py`
makes values of rows for JSON and for people, `value_text.py` makes bytes, times and numbers text,
and `text_table.py` prints tables. `columns.py`, `lookup.py`, `escape.py` and `lazy.py` are helpers.

Imports only `wirescan.core`.
"""
