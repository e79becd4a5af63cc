"""Delta Lake tables as targets of `wirescan.spark.to_table`, through the package deltalake.

The format is that of https://github.com/delta-io/delta/blob/master/PROTOCOL.md. A column that
partitions is not in the files. Its type in the table is that of the column, except:

partition_by               column of the table          type
codec, is_control          codec, is_control            as in the rows
kind, key                  kind, key                    string of any length; other bytes than UTF-8
                                                        are escaped as in directories
timestamp:day              timestamp_day                date
timestamp:year             timestamp_year               integer
timestamp:month, :hour     timestamp_month, ..._hour    string, such as 2026-11
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from wirescan.export.hive_layout import By, Layout
from wirescan.files import object_store
from wirescan.files.object_store import URL, redact_url
from wirescan.files.store_connection import find_options, get_store_kind, resolve_azure
from wirescan.files.store_errors import convert_error
from wirescan.frames import to_arrow
from wirescan.frames.optional_packages import name_package
from wirescan.spark.store_files import StoreFiles
from wirescan.spark.written_data import WrittenData

INSTALL = "'wirescan[delta]'"
# The options of deltalake for our own, by the kind of the store.
STORAGE_OPTIONS = {
    "s3": {
        "access_key": "aws_access_key_id",
        "secret_key": "aws_secret_access_key",
        "session_token": "aws_session_token",
        "region": "aws_region",
        "endpoint_override": "aws_endpoint_url",
        "anonymous": "aws_skip_signature",
        "force_virtual_addressing": "aws_virtual_hosted_style_request",
    },
    "abfs": {
        "account_name": "azure_storage_account_name",
        "account_key": "azure_storage_account_key",
        "sas_token": "azure_storage_sas_token",
        "client_id": "azure_storage_client_id",
        "client_secret": "azure_storage_client_secret",
        "tenant_id": "azure_storage_tenant_id",
    },
    "gs": {"json_keyfile": "google_service_account"},
}
# Requests are repeated for this time: deltalake's default is 3 minutes for each of them.
RETRY_TIMEOUT = "30s"
MILLISECOND = timedelta(milliseconds=1)


class DeltaTarget:
    """A Delta table that is made if it does not exist.

    url: the directory of the table, as a URL or path.
    layout: the columns of the rows.
    """

    def __init__(self, url: str, layout: Layout):
        with name_package("deltalake", "a Delta table", INSTALL):
            import deltalake
            from deltalake import exceptions
        self._package = deltalake
        self._error = exceptions.DeltaError
        self.files = StoreFiles(url)
        self.layout = layout
        self.file_schema = layout.schema
        self._uri, self._storage = _make_uri(url)
        self._by = [key.name for key in layout.by]
        schema = layout.schema
        for key in layout.by:
            schema = schema.append(pa.field(key.name, _choose_type(layout.format, key)))
        self._schema = deltalake.Schema.from_arrow(schema)
        self._table = self._call(self._open)
        if self._table is not None:
            self._check(self._table)

    def commit(self, written: Sequence[WrittenData], *, overwrite: bool) -> None:
        """Commit files as one transaction. Raises OSError if it fails, or if its end is unknown."""
        from deltalake.transaction import AddAction, create_table_with_add_actions

        now = int(time.time() * 1000)
        actions = [
            AddAction(
                path=object_store.quote(part.path),
                size=part.written,
                partition_values=dict(zip(self._by, (value or None for value in part.key))),
                modification_time=now,
                data_change=True,
                stats=part.statistics,
            )
            for part in written
        ]
        mode = "overwrite" if overwrite else "append"
        if self._table is None:
            self._call(
                lambda: create_table_with_add_actions(
                    self._uri,
                    self._schema,
                    actions,
                    mode="error",
                    partition_by=self._by,
                    storage_options=self._storage,
                )
            )
        else:
            self._call(
                lambda: self._table.create_write_transaction(
                    actions, mode, self._table.schema(), self._by or None
                )
            )

    def _open(self) -> Any:
        if not self._package.DeltaTable.is_deltatable(self._uri, self._storage):
            return None
        return self._package.DeltaTable(self._uri, storage_options=self._storage)

    def _check(self, table: Any) -> None:
        """Raise ValueError if the table has other columns than the rows."""
        shown = redact_url(self.files.url)
        by = list(table.metadata().partition_columns)
        if by != self._by:
            raise ValueError(
                f"the Delta table {shown} is partitioned by {', '.join(by) or 'no column'}, and "
                f"partition_by makes {', '.join(self._by) or 'none'}"
            )
        types = {column.name: column.type for column in table.schema().fields}
        for column in self._schema.fields:
            if types.get(column.name) != column.type:
                expected = _name_type(types.get(column.name, "no such column"))
                raise ValueError(
                    f"column {column.name} is {_name_type(column.type)} here, and the Delta table "
                    f"{shown} has {expected}: choose columns that fit, or another table"
                )

    def _call(self, call: Any) -> Any:
        """Return the result of a call of deltalake. Its errors become OSError in one line."""
        try:
            return call()
        except (self._error, OSError) as error:
            text = " ".join(str(error).split())
            raise convert_error(OSError(f"Delta Lake: {text}"), self.files.url) from None


def describe_file(metadata: pq.FileMetaData) -> str:
    """Return the statistics of a Parquet file as Delta's JSON.

    Whole numbers and times have their smallest and largest value. Times are rounded outwards to
    milliseconds, which is the unit of these statistics. A column with a time before the year 1 or
    after the year 9999 has none, because these have no text there.
    """
    smallest: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in metadata.schema.to_arrow_schema():
        if not (pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type)):
            continue
        groups = [
            metadata.row_group(number).column(_find_leaf(metadata, column.name)).statistics
            for number in range(metadata.num_row_groups)
        ]
        if not all(group is not None and group.has_null_count for group in groups):
            continue
        nulls[column.name] = sum(group.null_count for group in groups)
        with suppress(OverflowError):
            ranges = [(group.min, group.max) for group in groups if group.has_min_max]
            if ranges:
                high = _to_json(max(high for _, high in ranges), round_up=True)
                smallest[column.name] = _to_json(min(low for low, _ in ranges))
                largest[column.name] = high
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": smallest,
            "maxValues": largest,
            "nullCount": nulls,
        }
    )


def _find_leaf(metadata: pq.FileMetaData, name: str) -> int:
    """Return the number of a column that has no columns inside, among the columns of the file."""
    paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    return paths.index(name)


def _to_json(value: Any, *, round_up: bool = False) -> Any:
    if not isinstance(value, datetime):
        return value
    value = value.astimezone(timezone.utc)
    rest = timedelta(microseconds=value.microsecond % 1000)
    value -= rest
    if round_up and rest:
        value += MILLISECOND
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _name_type(kind: Any) -> str:
    """Return the name of a type of deltalake; of a list or struct its whole description."""
    # Only primitive types have their name as text in `type`.
    name = getattr(kind, "type", None)
    return name if name is not None and name != "struct" else str(kind)


def _choose_type(format: str, key: By) -> pa.DataType:
    """Return the type of a column that partitions, as in the table of the module."""
    if key.unit is not None:
        return {"day": pa.date32(), "year": pa.int32()}.get(key.unit, pa.string())
    kind = to_arrow.make_schema(format, [key.column], types="spark").field(0).type
    return kind if pa.types.is_integer(kind) or pa.types.is_boolean(kind) else pa.string()


def _make_uri(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL as deltalake reads it, and the options of its store."""
    if not URL.match(url):
        return url, {}
    root, path, options = object_store.split(url)
    kind = get_store_kind(url)
    values = dict(find_options(root, options))
    scheme, _, authority = root.partition("://")
    login, _, host = authority.rpartition("@")
    if kind == "s3":
        scheme = "s3"
        key, _, secret = login.partition(":")
        if secret:
            values |= {
                "access_key": object_store.unquote(key),
                "secret_key": object_store.unquote(secret),
            }
    elif kind == "abfs":
        scheme = "az"
        host, values = resolve_azure(authority, values)
        if not host:
            host, _, path = path.lstrip("/").partition("/")
            path = f"/{path}"
    elif login:
        host = f"{login.partition(':')[0]}@{host}"
    names: Mapping[str, str] = STORAGE_OPTIONS.get(kind, {})
    storage = {"retry_timeout": RETRY_TIMEOUT}
    storage |= {names[name]: value for name, value in values.items() if name in names}
    endpoint = values.get("endpoint_override")
    if kind == "abfs" and endpoint is not None:
        # The path of a server that is not Azure's begins with the account.
        storage["azure_storage_endpoint"] = f"{endpoint.rstrip('/')}/{values['account_name']}"
        storage["azure_allow_http"] = str(endpoint.startswith("http://")).lower()
    endpoint = storage.get("aws_endpoint_url")
    if endpoint is not None:
        if "://" not in endpoint:
            endpoint = f"{values.get('scheme', 'https')}://{endpoint}"
        storage["aws_endpoint_url"] = endpoint
        storage.setdefault("aws_region", "us-east-1")
        if endpoint.startswith("http://"):
            storage["aws_allow_http"] = "true"
    return f"{scheme}://{host}{path}", storage
