"""Rows as CSV, with null and empty text told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wirescan.cli.output import dump_json

SPECIAL = frozenset('",\r\n')  # characters that need quotation marks around their field
LINE_END = "\r\n"


def format_csv_row(values: Sequence[Any]) -> str:
    """Return values of JSON as one line of CSV, with its end.

    Null is an empty field, and empty text is "". Lists and objects are JSON.

    Source: RFC 4180.
    """
    return ",".join(map(_format_field, values)) + LINE_END


def _format_field(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else dump_json(value)
    if text and SPECIAL.isdisjoint(text):
        return text
    return '"' + text.replace('"', '""') + '"'
