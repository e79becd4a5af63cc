"""Files with a JSON document on each line."""

import json
from collections.abc import Iterable
from pathlib import Path


def to_hexadecimal(value: bytes) -> str:
    return value.hex()


def read_json_lines(file: Path) -> list:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def write_json_lines(file: Path, documents: Iterable[object]) -> None:
    """Write documents. Bytes are written as hexadecimal digits."""
    lines = [
        json.dumps(document, default=to_hexadecimal, ensure_ascii=False) + "\n"
        for document in documents
    ]
    file.write_text("".join(lines), encoding="utf-8")
