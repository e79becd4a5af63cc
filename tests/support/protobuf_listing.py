"""What a file of Protobuf declares, as lines of text, and file descriptors as what they declare."""

from __future__ import annotations

from google.protobuf import any_pb2, descriptor_pool, timestamp_pb2


def resolve(file, imported=(any_pb2.DESCRIPTOR, timestamp_pb2.DESCRIPTOR)):
    """Return the descriptor of a FileDescriptorProto.

    imported: descriptors of the files that it may import.
    """
    pool = descriptor_pool.DescriptorPool()
    for other in imported:
        pool.AddSerializedFile(other.serialized_pb)
    pool.Add(file)
    return pool.FindFileByName(file.name)


def list_contents(file):
    """Return lines for the enums and messages of a file's descriptor, in order."""
    lines = [" ".join(["imports", *(other.name for other in file.dependencies)])]
    messages, enums = file.message_types_by_name, file.enum_types_by_name
    return lines + _list_types(messages.values(), enums.values(), "")


def _list_types(messages, enums, indent):
    lines = []
    for enum in enums:
        values = " ".join(f"{value.name}={value.number}" for value in enum.values)
        lines.append(f"{indent}enum {enum.full_name} {values}")
    for message in messages:
        kind = "entry" if message.GetOptions().map_entry else "message"
        lines.append(f"{indent}{kind} {message.full_name}")
        lines += [f"{indent}  {_describe_field(field)}" for field in message.fields]
        lines += _list_types(message.nested_types, message.enum_types, f"{indent}  ")
    return lines


def _describe_field(field):
    words = [str(field.number), field.name, str(field.type)]
    kind = field.message_type or field.enum_type
    if kind is not None:
        words.append(kind.full_name)
    flags = {
        "repeated": field.is_repeated,
        "required": field.is_required,
        "packed": field.is_packed,
        "present": field.has_presence,
        f"in {field.containing_oneof and field.containing_oneof.name}": field.containing_oneof,
        f"default {field.default_value!r}": field.has_default_value,
    }
    return " ".join([*words, *(name for name, is_set in flags.items() if is_set)])
