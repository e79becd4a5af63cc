"""The .proto files that readers know. Serializers do not register them, so no registry has them.

file                       where it is
google/protobuf/*.proto    the package protobuf
google/type/*.proto        the package googleapis-common-protos
confluent/**/*.proto       here, without the messages that only options use

Source: confluentinc/schema-registry, "protobuf-types".
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from wirescan.decoding.proto_text import parse_proto

GOOGLE_FILE = re.compile(r"google/(protobuf|type)/([a-z_]+)\.proto")
CONFLUENT_FILES = {
    "confluent/meta.proto": "",
    "confluent/type/decimal.proto": """
        syntax = "proto3";
        package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
    "confluent/type/variant.proto": """
        syntax = "proto3";
        package confluent.type;
        message Variant { bytes metadata = 1; bytes value = 2; }
    """,
    # The old path.
    "confluent/types/decimal.proto": 'import public "confluent/type/decimal.proto";',
}


def read_known_file(name: str) -> Any:
    """Return the FileDescriptorProto of a file that readers know.

    Raises ValueError for another file, and if its package is not installed.
    """
    from google.protobuf import descriptor_pb2

    if name in CONFLUENT_FILES:
        file = descriptor_pb2.FileDescriptorProto.FromString(parse_proto(CONFLUENT_FILES[name]))
        file.name = name
        return file
    match = GOOGLE_FILE.fullmatch(name)
    advice = "call protoc with --include_imports"
    if match is not None:
        try:
            module = import_module(f"google.{match[1]}.{match[2]}_pb2")
        except ImportError:
            module = None
            if match[1] == "type":
                advice = f"pip install googleapis-common-protos, or {advice}"
        if module is not None and module.DESCRIPTOR.name == name:
            return descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    raise ValueError(f"it lacks the imported file {name}: {advice}")
