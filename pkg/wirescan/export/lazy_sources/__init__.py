"""Lazy sources: polars, DuckDB and pyarrow read files of frames only as far as a query needs.

Start with `polars_source.py` and `arrow_dataset.py`, which have the public functions.

    polars_source.py      `scan_polars`
    arrow_dataset.py      `dataset`, for pyarrow and DuckDB
    polars_predicates.py  predicates of polars, as conditions
    arrow_expressions.py  expressions of `pyarrow.compute`, as conditions
    conditions.py         conditions, as filters
    file_scan.py          files as record batches, with the columns and filters of one query

Imports the folders below `wirescan.export`, and `wirescan.export`.
"""
