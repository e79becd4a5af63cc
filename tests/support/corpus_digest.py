"""Prints a digest of every table of the recorded bytes.

`python -m tests.support.corpus_digest [--every N]` scans the files of tests/corpus with every
format of their protocol. It prints one line for each table. A line has the file, the format, the
number of rows, where and why the scan stopped, and a SHA-256 of the columns and of the decompressed
frames. The digests do not depend on the machine's byte order. So the output of two machines can be
compared with `diff`.
--every N takes only each Nth file.
"""

import argparse
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import wirescan
from tests.support.paths import CORPUS
from wirescan import Fault, Format, FrameTable
from wirescan.frames.columns import RESERVED

RECORDED = (".bin", ".log", ".messages", ".theader")
# The name of a folder, up to a hyphen, is a protocol. NATS messages carry Liftbridge messages.
PROTOCOLS = {"liftbridge": ("liftbridge", "nats")}


def list_files() -> list[Path]:
    """Return the recorded files of the corpus, in the same order on every machine."""
    return sorted(path for path in CORPUS.rglob("*") if path.suffix in RECORDED)


def list_formats(path: Path) -> list[Format]:
    """Return the formats that a file is scanned with: the outermost formats of its protocol."""
    folder = path.relative_to(CORPUS).parts[0].split("-")[0]
    protocols = PROTOCOLS.get(folder, (folder,))
    outermost = (format for format in wirescan.formats().values() if format.within is None)
    return [format for format in outermost if format.name.split(".")[0] in protocols]


def list_tables(table: FrameTable) -> Iterator[FrameTable]:
    """Yield a table and every table of the frames inside its frames."""
    yield table
    # The frames inside responses need the requests.
    for name in () if table.format.requests or not len(table) else table.format.children:
        yield from list_tables(table.open(name))


def digest_columns(rows: np.ndarray) -> str:
    """Return a SHA-256 of the names, types and little-endian values of all columns."""
    digest = hashlib.sha256()
    for name in rows.dtype.names:
        if name == RESERVED:
            continue
        dtype = rows.dtype[name].newbyteorder("<")
        digest.update(f"{name} {dtype.str}\n".encode())
        digest.update(rows[name].astype(dtype).tobytes())
    return digest.hexdigest()


def digest_decompressed(table: FrameTable) -> str:
    """Return a SHA-256 of the frames in decompressed buffers. The first buffer is the file."""
    digest = hashlib.sha256()
    for i in np.flatnonzero(table["buffer"] > 0).tolist():
        digest.update(table.frame(i))
    return digest.hexdigest()


def describe(path: Path, table: FrameTable) -> str:
    """Return the output line of a table."""
    name = path.relative_to(CORPUS)
    stop = f"{Fault(table.stop.fault).name}@{table.stop.offset}"
    digests = f"{digest_columns(table.rows)[:32]} {digest_decompressed(table)[:32]}"
    return f"{name} {table.name} {len(table)} {stop} {digests}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take each Nth file")
    for path in list_files()[:: parser.parse_args().every]:
        for format in list_formats(path):
            # Bytes are scanned and not the file, so that no digest depends on the path.
            table = wirescan.scan(path.read_bytes(), format.name, errors="mark")
            for inner in list_tables(table):
                print(describe(path, inner))


if __name__ == "__main__":
    main()
