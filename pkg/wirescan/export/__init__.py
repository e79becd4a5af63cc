"""Export: files of frames as Arrow batches and Parquet.

Start with `batches.py`. `parquet.py` converts files. `parquet_writer.py` writes directories whose
files become visible together. `hive_layout.py` partitions by columns. `fault_report.py` lists bad
frames. `grouping.py` and `sketches.py` aggregate. `column_batches.py` reads record batches without
tables. `lazy_sources/` lets polars, DuckDB and pyarrow query files.

Imports `wirescan.core`, `wirescan.frames`, `wirescan.files`, `wirescan.reading` and pyarrow.
"""
