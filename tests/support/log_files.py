"""Files of a log, as bytes."""

from pathlib import Path


def append_bytes(path: str | Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def read_segments(directory: Path) -> bytes:
    """Return the bytes of all segments in a directory, in the order of their names."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
