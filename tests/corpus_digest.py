"""Print a digest of every table that the recorded bytes give.

`python tests/corpus_digest.py [--every N]` scans the files of tests/corpus with every format of
their protocol and prints one line for each table: its file, its format, its number of rows, where
and why the scan stopped, and a SHA-256 of its columns and of its decompressed frames. The digests do
not depend on the machine's byte order. So the output of two machines can be compared with `diff`.
--every N takes only each Nth file.
"""

import argparse
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import wirescan
from wirescan import Fault, Format, FrameTable
from wirescan.table import RESERVED

CORPUS = Path(__file__).parent / "corpus"
RECORDED = (".bin", ".log", ".messages", ".theader")
# The folder's name up to a hyphen is that of a protocol. Liftbridge's messages travel in those of NATS.
PROTOCOLS = {"liftbridge": ("liftbridge", "nats")}


def list_files() -> list[Path]:
    """The files of the corpus that hold bytes of a protocol, in the same order everywhere."""
    return sorted(path for path in CORPUS.rglob("*") if path.suffix in RECORDED)


def list_formats(path: Path) -> list[Format]:
    """The formats that a file is scanned with: the outermost ones of its protocol."""
    folder = path.relative_to(CORPUS).parts[0].split("-")[0]
    protocols = PROTOCOLS.get(folder, (folder,))
    outermost = (one for one in wirescan.formats().values() if one.within is None)
    return [one for one in outermost if one.name.split(".")[0] in protocols]


def list_tables(table: FrameTable) -> Iterator[FrameTable]:
    """A table and every table of the frames inside its frames."""
    yield table
    for name in table.format.children if len(table) else ():
        yield from list_tables(table.open(name))


def digest_columns(rows: np.ndarray) -> str:
    """SHA-256 of the names, the types and the values of all columns, as little-endian numbers."""
    digest = hashlib.sha256()
    for name in rows.dtype.names:
        if name == RESERVED:
            continue
        dtype = rows.dtype[name].newbyteorder("<")
        digest.update(f"{name} {dtype.str}\n".encode())
        digest.update(rows[name].astype(dtype).tobytes())
    return digest.hexdigest()


def digest_decompressed(table: FrameTable) -> str:
    """SHA-256 of the frames that are in decompressed buffers. The first buffer is the file."""
    digest = hashlib.sha256()
    for i in np.flatnonzero(table["buffer"] > 0).tolist():
        digest.update(table.frame(i))
    return digest.hexdigest()


def describe(path: Path, table: FrameTable) -> str:
    """The output line of a table."""
    name = path.relative_to(CORPUS)
    stop = f"{Fault(table.stop.fault).name}@{table.stop.offset}"
    digests = f"{digest_columns(table.rows)[:32]} {digest_decompressed(table)[:32]}"
    return f"{name} {table.name} {len(table)} {stop} {digests}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take each Nth file")
    for path in list_files()[:: parser.parse_args().every]:
        for one in list_formats(path):
            # An open file's mapping would be compared by its path: bytes are the same everywhere.
            table = wirescan.scan(path.read_bytes(), one.name, errors="mark")
            for inner in list_tables(table):
                print(describe(path, inner))


if __name__ == "__main__":
    main()
