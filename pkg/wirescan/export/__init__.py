"""Export: files of frames as Arrow batches and Parquet.

Start with `batches.py`.

    batches.py            `iter_batches`: files as Arrow record batches
    column_batches.py     record batches of nested frames, without tables of their rows
    outermost_columns.py  outermost frames as columns, without tables of their rows
    table_parts.py        parts of tables and batches with about a given number of bytes
    parquet.py            files to Parquet, in one process
    counted_batches.py    the rows of a conversion, with their counts
    parquet_writer.py     Parquet files, and directories whose files become visible together
    parquet_types.py      decoded values as types that Parquet has
    hive_layout.py        directories by the values of columns
    fault_report.py       the bad frames of files, as a table
    grouping.py           groups of columns, aggregated
    sketches.py           histograms, and sketches that count distinct values
    lazy_sources/         queries of polars, DuckDB and pyarrow on files

Imports `wirescan.core`, `wirescan.frames`, `wirescan.decoding`, `wirescan.files`,
`wirescan.reading` and pyarrow.
"""
