"""Make text from the wire and from file names safe to print and to log. Messages use it."""

from __future__ import annotations

NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
SURROGATES = 0xDC00  # Python's "surrogateescape" adds this to a byte that is not text


def make_visible(text: object) -> str:
    r"""Return str(text) with an escape for every character that does not simply print.

    Control characters become \n, \r, \t and \xNN. These become \uNNNN or \UNNNNNNNN: line
    and paragraph separators, spaces other than " ", characters that turn the direction of text,
    and characters without a width. A byte that is not text (surrogate escape) becomes \xNN.

    Backslashes do not change, so escaped text stays the same if it is escaped again.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def make_bytes_visible(data: bytes | memoryview) -> str:
    r"""Return bytes that should be UTF-8 as visible text. Any other byte becomes \xNN."""
    return make_visible(bytes(data).decode("utf-8", "backslashreplace"))


def _escape(character: str) -> str:
    code = ord(character)
    if 0x80 <= code - SURROGATES <= 0xFF:
        code -= SURROGATES
    elif code >= 0x80:
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return NAMED.get(character) or f"\\x{code:02x}"
