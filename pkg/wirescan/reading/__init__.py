"""Reading: from chunks of bytes to tables, in memory that does not grow with the input.

Start with `by_name.py`, which has `wirescan.scan` and `wirescan.stream`, and `stream.py`, the
incremental scanner. `chunked.py` reads files with it. `allowance.py` bounds what a file expands to.
`filters.py` selects rows and prunes frames and files, `byte_compare.py` compares byte strings.
`expression.py` parses conditions from text, and has `wirescan.where`.
`splits.py` cuts files into parts. `growing.py` follows files that grow.

Imports `wirescan.core`, `wirescan.frames` and `wirescan.files`.
"""
