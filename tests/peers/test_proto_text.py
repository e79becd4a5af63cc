"""wirescan reads .proto files as protoc does: the ones that Google's packages have."""

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from tests.support.proto_texts import NEW, OLD
from tests.support.protobuf_listing import list_contents, resolve
from wirescan.decoding.known_protos import read_known_file
from wirescan.decoding.proto_text import parse_proto

pytestmark = pytest.mark.peers

# Options that protoc cannot find, and what it does not accept although it is harmless.
UNKNOWN = (
    'option (custom).deep = { a: "}" b { c: [1, 2] } };',
    "(x.y).z = {a: [1]}, ",
    "option (o) = 1;",
    " [(c) = {}]",
    'option (h) = { get: "/" };',
    "option map_entry = true; ",
    "[verification = UNVERIFIED]",
    "weak",
)


def find_folders():
    import google.api
    import grpc_tools

    own = Path(grpc_tools.__file__).with_name("_proto")
    return [own, *(Path(path).parents[1] for path in google.api.__path__)]


def compile_file(path, folders, out):
    """Return the descriptors of a file and of its imports. The last one is that of the file."""
    from grpc_tools import protoc

    options = [f"-I{folder}" for folder in folders]
    command = ["protoc", *options, "--include_imports", f"--descriptor_set_out={out}", path]
    assert protoc.main(command) == 0
    return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file


def move_entries(message):
    """Make the entries of maps the last messages, and remove extensions."""
    kept = [type(message).FromString(item.SerializeToString()) for item in message.nested_type]
    kept.sort(key=lambda item: item.options.map_entry)
    del message.nested_type[:]
    message.nested_type.extend(kept)
    message.ClearField("extension")
    for nested in message.nested_type:
        move_entries(nested)


def list_ours(text, name, imported):
    file = descriptor_pb2.FileDescriptorProto.FromString(parse_proto(text))
    file.name = name
    return list_contents(resolve(file, imported))


def list_theirs(file, imported):
    for message in file.message_type:
        move_entries(message)
    file.ClearField("extension")
    file.ClearField("service")
    return list_contents(resolve(file, imported))


class Imported:
    """A file's descriptor, of which only the bytes are used."""

    def __init__(self, file):
        self.serialized_pb = file.SerializeToString()


def test_the_files_of_google(tmp_path):
    folders = find_folders()
    paths = {
        str(path.relative_to(folder)): path
        for folder in folders
        for path in (folder / "google").rglob("*.proto")
    }
    assert len(paths) > 60
    for name, path in paths.items():
        *imported, file = compile_file(name, folders, tmp_path / "set")
        imported = [Imported(other) for other in imported]
        ours = list_ours(path.read_text(), name, imported)
        assert ours == list_theirs(file, imported), name


@pytest.mark.parametrize("text", [OLD, NEW], ids=["proto2", "proto3"])
def test_unusual_text(text, tmp_path):
    known = text.replace("} ; }", "} }")
    for part in UNKNOWN:
        known = known.replace(part, "")
    (tmp_path / "text.proto").write_text(known)
    folders = [tmp_path, *find_folders()]
    *imported, file = compile_file("text.proto", folders, tmp_path / "set")
    imported = [Imported(other) for other in imported]
    ours = list_ours(known, "text.proto", imported)
    assert ours == list_theirs(file, imported)
    given = list_ours(text, "text.proto", imported)
    assert [line.replace("entry", "message") for line in given] == [
        line.replace("entry", "message") for line in ours
    ]


def test_the_files_of_confluent():
    from confluent_kafka.schema_registry.confluent.type import decimal_pb2, variant_pb2

    for module in (decimal_pb2, variant_pb2):
        file = module.DESCRIPTOR
        assert list_contents(resolve(read_known_file(file.name))) == list_contents(file)
