"""Tables of frames: what all layers above share.

Start with `table.py`: a `FrameTable` consists of buffers and a numpy structured array of rows that
point into them.

Tables:

    table.py              `FrameTable`, and `join`
    errors.py             `FrameError` and the modes "strict", "mark" and "skip"
    fault_names.py        the names and the meanings of faults
    limits.py             `Limits`: what a call may allocate
    codecs.py             compress and decompress a payload
    arena.py              the decompressed payloads of a table
    lookup.py             from the rows of a table to its outer tables, buffers and lists
    value_numbers.py      numbers for byte strings, equal for equal bytes

What a format declares:

    format.py             `Format`, and its parts `Parser`, `Storage` and `Display`
    registry.py           formats by their names
    columns.py            `Column`: what columns are and mean
    column_meanings.py    what columns mean, in words
    summary_columns.py    `SummaryColumns`: what `wirescan stat` counts
    options.py            `FormatOption`: options after the name of a format
    logs.py               `LogColumns`: how the frames of a log follow each other
    conversation.py       `Conversation`: how frames are sent over connections
    exchange.py           `ExchangeFormat`: requests with their responses
    pairing.py            functions that match requests with responses
    evidence.py           how unlikely a good frame is in bytes of another kind

To Arrow and text:

    to_arrow.py           tables to Arrow
    arrow_arrays.py       Arrow arrays of numbers and texts, without pandas
    scanned_columns.py    what a `ColumnWriter` has written, with columns as a table has them
    row_values.py         values of rows, for JSON and for people
    value_text.py         bytes, times and numbers as text
    text_table.py         tables and rows as text, and as HTML
    escape.py             text of others, safe to print and to log

Imports and names:

    lazy.py               names of a package that are imported at first use
    optional_packages.py  errors about missing packages, which name what to install
    similar_names.py      hints for names that do not exist

Imports only `wirescan.core`.
"""
