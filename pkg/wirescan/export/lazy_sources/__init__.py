"""Lazy sources: polars, DuckDB and pyarrow read files of frames only as far as a query needs.

`polars_source.py` and `arrow_dataset.py` have the public functions. `polars_predicates.py` and
`arrow_expressions.py` decode the conditions of a query, and `conditions.py` converts them to
filters. `file_scan.py` reads the files.
"""
