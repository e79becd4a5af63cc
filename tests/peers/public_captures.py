"""Captures from the tests of tcpdump, Wireshark and gopacket: about 840 files.

    for capture in list_captures("tcpdump"):
        capture.name, capture.path, capture.read()

They have many link layers, both byte orders, all kinds of blocks and options of pcapng, and packets
that crashed programs. tcpdump and Wireshark are source packages of Debian, gopacket is a Go module.
The files are downloaded and are no part of this repository. Checksums pin their versions.
"""

import gzip
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from .cache import make_once, run_with_retry
from .liftbridge import download_module

APT_HELPER = "/usr/lib/apt/apt-helper"
NAME = re.compile(r".+\.(pcap|pcapng|cap)(\.gz|\.\d)?")
GZIP = b"\x1f\x8b"


class DebianSource(NamedTuple):
    """A source package. file: its place in the archive. folder: that of its captures."""

    file: str
    sha256: str
    folder: str


class GoModule(NamedTuple):
    """A Go module. checksum: that of go.sum. folder: that of its captures."""

    module: str
    checksum: str
    folder: str


SOURCES = {
    "tcpdump": DebianSource(
        "pool/main/t/tcpdump/tcpdump_4.99.3.orig.tar.gz",
        "ad75a6ed3dc0d9732945b2e5483cb41dc8b4b528a169315e499c6861952e73b3",
        "tests",
    ),
    "wireshark": DebianSource(
        "pool/main/w/wireshark/wireshark_4.0.17.orig.tar.bz2",
        "62fd1491b6211d1651a16a45ead15808970b3a6a9ebde2537f96722af47aaaa5",
        "test/captures",
    ),
    "gopacket": GoModule(
        "github.com/google/gopacket@v1.1.19",
        "h1:ves8RnFZPGiFnTS0uPQStjwru6uO6h+nlr9j6fL7kF8=",
        ".",
    ),
}


class PublicCapture(NamedTuple):
    """A capture file. name: the source and the path in its folder, as "tcpdump/arp.pcap"."""

    name: str
    path: Path

    def read(self) -> bytes:
        """Return the bytes of the capture, decompressed."""
        data = self.path.read_bytes()
        return gzip.decompress(data) if data.startswith(GZIP) else data


@cache
def list_captures(source: str) -> list[PublicCapture]:
    """Return the captures of a key of SOURCES, sorted by name. The first call downloads them."""
    chosen = SOURCES[source]

    def fetch(target: Path) -> None:
        if isinstance(chosen, GoModule):
            fetch_module(chosen, target)
        else:
            fetch_source(chosen, target)

    directory = make_once(f"captures-{source}", repr(chosen).encode(), fetch)
    return [
        PublicCapture(f"{source}/{path.relative_to(directory).as_posix()}", path)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    ]


def fetch_module(source: GoModule, target: Path) -> None:
    """Copy the captures of a Go module."""
    folder = download_module(source.module, source.checksum) / source.folder
    for path in folder.rglob("*"):
        if path.is_file() and NAME.fullmatch(path.name):
            copy = target / path.relative_to(folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def fetch_source(source: DebianSource, target: Path) -> None:
    """Download a source package from the mirror that apt uses, and copy its captures."""
    archive = target / PurePosixPath(source.file).name
    address = f"{find_mirror()}/{source.file}"
    run_with_retry(
        APT_HELPER,
        "download-file",
        address,
        archive,
        f"SHA256:{source.sha256}",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with tarfile.open(archive) as files:
        for name, data in iter_files(files, source.folder):
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data)
    archive.unlink()


def iter_files(files: tarfile.TarFile, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield (path, bytes) of the captures in a folder of an archive with one top directory."""
    for member in files:
        name = member.name.partition("/")[2]
        if member.isfile() and name.startswith(f"{folder}/") and NAME.fullmatch(name):
            opened = files.extractfile(member)
            assert opened is not None
            yield name.removeprefix(f"{folder}/"), opened.read()


def find_mirror() -> str:
    """Return the address of the Debian archive in the settings of apt.

    Raises RuntimeError if apt has no lists of it: `apt-get update` fetches them.
    """
    options = ["$(SITE)", "Created-By: Packages", "Label: Debian", "Component: main"]
    output = subprocess.check_output(["apt-get", "indextargets", "--format", *options], text=True)
    if not output:
        raise RuntimeError("apt has no list of Debian's main archive")
    return output.splitlines()[0]
