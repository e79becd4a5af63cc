"""Decoded values as types that Parquet has. Imports pyarrow.

Parquet has no struct without members. Payloads have such values: `{}` in JSON, and messages and
records without fields. They become the text "{}", at any depth.
"""

from __future__ import annotations

from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

EMPTY_OBJECT = "{}"


def convert_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with string in place of each struct without members."""
    return pa.schema([_convert_field(field) for field in schema], metadata=schema.metadata)


def convert_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with the text "{}" in place of each struct without members."""
    schema = convert_schema(batch.schema)
    if schema == batch.schema:
        return batch  # it may have rows and no columns
    arrays = [_convert_array(array, field.type) for array, field in zip(batch.columns, schema)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _convert_field(field: pa.Field) -> pa.Field:
    return field.with_type(_convert_type(field.type))


def _convert_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_struct(kind):
        fields = [_convert_field(kind.field(i)) for i in range(kind.num_fields)]
        return pa.struct(fields) if fields else pa.string()
    if types.is_map(kind):
        return pa.map_(_convert_field(kind.key_field), _convert_field(kind.item_field))
    if types.is_list(kind):
        return pa.list_(_convert_field(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(_convert_field(kind.value_field))
    return kind


def _convert_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array as one of the type that `_convert_type` returns for its type."""
    if array.type == kind:
        return array
    if pa.types.is_string(kind):
        import pyarrow.compute as pc  # few payloads need it, and its start takes long

        return pc.if_else(array.is_valid(), EMPTY_OBJECT, pa.scalar(None, kind))
    if pa.types.is_struct(kind):
        children = [
            _convert_array(array.field(i), kind.field(i).type) for i in range(kind.num_fields)
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    # A list or a map. The offsets and the validity stay; the items are those of the whole buffer.
    items = _convert_array(array.values, _get_item_type(kind))
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(array), [validity, offsets], offset=array.offset, children=[items]
    )


def _get_item_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the items of a list, or of the entries of a map."""
    if pa.types.is_map(kind):
        return pa.struct([kind.key_field, kind.item_field])
    return kind.value_type
