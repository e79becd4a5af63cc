"""Iceberg tables as targets of `wirescan.spark.to_table`, through the package pyiceberg.

The format is that of https://iceberg.apache.org/spec/. All columns are in the files, with the field
numbers of the table. Partitions are those of the table. A new table has these:

partition_by             transform of Iceberg
codec, kind              identity
timestamp:day            day; also year, month and hour
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from wirescan.export.hive_layout import Layout
from wirescan.frames.optional_packages import name_package
from wirescan.spark.store_files import StoreFiles
from wirescan.spark.written_data import WrittenData

INSTALL = "'wirescan[iceberg]'"
ATTEMPTS = 5  # of a commit, while other jobs commit to the table


class IcebergTarget:
    """An Iceberg table that is made if it does not exist.

    name: of the table in the catalog, such as "logs.orders".
    layout: the columns of the rows, and for a new table its partitions.
    catalog: a catalog of pyiceberg, or its name in pyiceberg's configuration.
    """

    def __init__(self, name: str, layout: Layout, catalog: Any):
        with name_package("pyiceberg", "an Iceberg table", INSTALL):
            from pyiceberg.catalog import load_catalog
            from pyiceberg.exceptions import NoSuchTableError
            from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
        if isinstance(catalog, str):
            catalog = load_catalog(catalog)
        # Columns that partition are in the files too.
        by = [key.column for key in layout.by if key.column not in layout.columns]
        layout = replace(layout, columns=(*layout.columns, *by))
        schema = layout.schema
        try:
            self._table = catalog.load_table(name)
        except NoSuchTableError:
            self._table = _create(catalog, name, schema, layout)
        self._arrow_schema = schema_to_pyarrow(self._table.schema())
        self._check(schema, layout)
        self.layout = layout
        names = {field.name: field for field in self._arrow_schema}
        self.file_schema = pa.schema([names[name] for name in schema.names])
        properties = self._table.properties
        location = properties.get("write.data.path") or f"{self._table.location()}/data"
        # The catalog may have given credentials for this table. pyarrow has them in its own way.
        scheme, _, netloc = location.partition("://")
        io = PyArrowFileIO(self._table.io.properties)
        file_system = io.fs_by_scheme(scheme, netloc.partition("/")[0]) if netloc else None
        if scheme in ("", "file"):
            file_system = None
        self.files = StoreFiles(location.rstrip("/"), file_system)

    def commit(self, written: Sequence[WrittenData], *, overwrite: bool) -> None:
        """Commit files as one transaction, again if another job committed first.

        Raises OSError if it fails, or if its end is unknown.
        """
        from pyiceberg.exceptions import CommitFailedException

        paths = [f"{self.files.url}/{part.path}" for part in written]
        for attempt in range(ATTEMPTS):
            try:
                with self._table.transaction() as transaction:
                    if overwrite:
                        transaction.delete("true")
                    if paths:
                        transaction.add_files(paths, check_duplicate_files=False)
                return
            except CommitFailedException as error:
                if attempt == ATTEMPTS - 1:
                    text = " ".join(str(error).split())
                    raise OSError(f"Iceberg: other jobs commit to the table too: {text}") from None
                self._table.refresh()

    def _check(self, schema: pa.Schema, layout: Layout) -> None:
        """Raise ValueError if the table has other columns or partitions than the rows."""
        columns = {field.name: _simplify(field.type) for field in self._arrow_schema}
        for field in schema:
            kind = _simplify(field.type)
            if columns.get(field.name) != kind:
                raise ValueError(
                    f"column {field.name} is {kind} here, and the Iceberg table has "
                    f"{columns.get(field.name, 'no such column')}: choose columns that fit, or "
                    "another table"
                )
        by = [key.column + (f":{key.unit}" if key.unit else "") for key in layout.by]
        existing = _list_partitions(self._table)
        if existing != by:
            raise ValueError(
                f"the Iceberg table is partitioned by {', '.join(existing) or 'no column'}, and "
                f"partition_by is {', '.join(by) or 'empty'}: pass the partitions of the table"
            )


def _create(catalog: Any, name: str, schema: pa.Schema, layout: Layout) -> Any:
    """Return a new table. It exists with its partitions, or not at all."""
    namespace = name.rpartition(".")[0]
    if namespace:
        catalog.create_namespace_if_not_exists(namespace)
    transaction = catalog.create_table_transaction(name, schema)
    with transaction.update_spec() as spec:
        for key in layout.by:
            spec.add_field(key.column, key.unit or "identity", key.name)
    return transaction.commit_transaction()


def _list_partitions(table: Any) -> list[str]:
    """Return the partitions of a table as `partition_by` names them."""
    names = []
    for field in table.spec().fields:
        column = table.schema().find_column_name(field.source_id)
        transform = str(field.transform)
        names.append(column if transform == "identity" else f"{column}:{transform}")
    return names


def _simplify(kind: pa.DataType) -> str:
    """Return the name of an Arrow type, alike for types that are the same in Iceberg."""
    if pa.types.is_map(kind):
        return f"map<{_simplify(kind.key_type)}, {_simplify(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_simplify(kind.value_type)}>"
    if pa.types.is_struct(kind):
        fields = ", ".join(f"{field.name}: {_simplify(field.type)}" for field in kind)
        return f"struct<{fields}>"
    if pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return "int32"
    return str(kind).removeprefix("large_")
