"""Conditions on rows as text, such as `key == "a" and (size > 1000 or timestamp < 2026-01-01)`.

    condition  = part {"or" part}                    "and" binds closer than "or"
    part       = term {"and" term}
    term       = "not" term | "(" condition ")" | comparison
    comparison = column ("==" | "!=" | "<" | "<=" | ">" | ">=") value
               | column ("==" | "!=") "null" | column "is" ["not"] "null"
               | column ["not"] "in" "(" value {"," value} ")"
               | column ("~" | "!~") text            a regular expression of RE2 is found, or not
               | column ("starts_with" | "ends_with" | "contains") text
               | column                              a flag, such as is_control
    value      = text | b"bytes" | 0xdeadbeef | number | 2026-01-01[T12:00[:00[.5]][Z]] | name
               | number("ns" | "us" | "ms" | "s" | "min" | "h") | "true" | "false"

Columns and null are those of `filters.py`: a comparison with null is neither true nor false, and a
row passes only if the condition is true of it. The text is never run as Python.

Text is in quotation marks of either kind, and may have the escapes of ESCAPES. A regular expression
has only those of `re`. Text for a column of bytes means its UTF-8. 0x... is bytes for a column of
bytes and a number for others. A number that has a name, such as a codec, may be given by it, in any
case if that is unambiguous. A number with a unit, such as 20ms, is for columns that are durations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from typing import Any, NamedTuple

from wirescan.frames.column_meanings import explain_column
from wirescan.frames.columns import FAULT, UNITS, ColumnDescription, ColumnKind
from wirescan.frames.escape import make_visible
from wirescan.frames.fault_names import FAULT_NAMES
from wirescan.frames.format import Format
from wirescan.frames.registry import format_of
from wirescan.frames.similar_names import hint_at_names, suggest_name
from wirescan.frames.table import FrameTable
from wirescan.reading.filters import (
    EPOCH,
    SUBSTRING_OPS,
    All,
    AnyOf,
    Condition,
    Filter,
    Not,
    apply_filters,
    check_filters,
)

LONGEST_EXPRESSION = 16384  # characters
DEEPEST_EXPRESSION = 32  # parentheses and "not" within one another
SHOWN = 20  # characters of a token in a message

TOKEN = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<bytes>[bB](?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'))
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2}
        (?:T[0-9]{2}(?::?[0-9]{2}){0,2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?(?!\w))
    | (?P<hex>0[xX][0-9a-fA-F]+(?!\w))
    | (?P<number>[+-]?[0-9]{1,100}(?:\.[0-9]{1,100})?(?:[eE][+-]?[0-9]{1,3})?(?![\w.]))
    | (?P<duration>[+-]?[0-9]{1,100}(?:\.[0-9]{1,100})?[^\W\d]\w*)
    | (?P<name>[^\W\d]\w*)
    | (?P<symbol>==|!=|<=|>=|!~|[<>~(),])
    """,
    re.VERBOSE | re.DOTALL,
)
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
MATCHES = {"~": "matches", "!~": "not matches"}
OPERATORS = (*COMPARISONS, *MATCHES, "in", "not in", "is null", *SUBSTRING_OPS)
FLAGS = {"true": 1, "false": 0}
# Units of durations, in seconds.
DURATIONS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
}
DURATION = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?)(\w+)")
KEYWORDS = ("and", "or", "not", "in", "is", "null", *FLAGS)
# An escape in text; in text also \uXXXX, in bytes also \xNN.
ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
ESCAPES = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "r": "\r", "t": "\t"}
# A fraction of seconds. The digits before it are no date, and no offset from UTC.
FRACTION = re.compile(
    r"(?:(?<=[^0-9+-][0-9]{2}:[0-9]{2}:[0-9]{2})|(?<=[^0-9+-][0-9]{6}))[.,]([0-9]+)"
)


def where(table: FrameTable, expression: str, *, file: str | None = None) -> FrameTable:
    """Return the rows of a table for which a condition is true.

    table: the rows. Their format must be known.
    expression: the condition, such as 'key == "a" and size > 1000'. The page on the command line
        has the grammar, and so has `wirescan.reading.expression`.
    file: the value of the column `_file`. None, the default: null.

    Raises ValueError for an expression that cannot be parsed or does not fit the columns, with the
    position in it, and TypeError for other arguments.
    """
    if not isinstance(table, FrameTable):
        raise TypeError(f"where takes a FrameTable, not {type(table).__name__}")
    if table.format is None:
        raise ValueError("the rows of this table have no format, so its columns have no meaning")
    return apply_filters(table, parse_expression(expression, table.format), file)


def parse_expression(text: str, format: str | Format) -> tuple[Condition, ...]:
    """Parse a condition on the rows of a format.

    The result is what `check_filters` returns: a row passes if all elements are true of it. Simple
    comparisons that are joined by "and" are elements of their own, which exclude frames and files.

    Raises ValueError as `where`, and TypeError for a text that is no str.
    """
    if not isinstance(text, str):
        raise TypeError(f"an expression is a str, not {type(text).__name__}")
    format = format_of(format) if isinstance(format, str) else format
    if len(text) > LONGEST_EXPRESSION:
        raise ValueError(
            f"the expression has {len(text):,} characters; at most {LONGEST_EXPRESSION:,} are "
            "allowed"
        )
    return check_filters([_Parser(text, format).parse()], format)


def add_expression(
    filters: tuple[Condition, ...], text: str | None, format: str | Format
) -> tuple[Condition, ...]:
    """Return filters, and the conditions of an expression after them; None adds none.

    Raises as `parse_expression`.
    """
    return filters if text is None else (*filters, *parse_expression(text, format))


def parse_time(text: str) -> Fraction:
    """Return the seconds since 1970 of an ISO 8601 date or time. UTC is the default time zone.

    Seconds may have a fraction. Those of hours and minutes are refused, because `datetime` takes
    them for fractions of seconds.

    Raises ValueError.
    """
    # datetime has microseconds, and columns may have nanoseconds.
    fraction = FRACTION.search(text)
    whole = text if fraction is None else text[: fraction.start()] + text[fraction.end() :]
    if "." in whole or "," in whole:
        raise ValueError(
            f"{make_visible(text)} is not a date or time of ISO 8601 "
            "(only seconds may have a fraction)"
        )
    try:
        time = datetime.fromisoformat(whole)
    except ValueError:
        raise ValueError(f"{make_visible(text)} is not a date or time of ISO 8601") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=timezone.utc)
    seconds = Fraction((time - EPOCH) // timedelta(microseconds=1), 10**6)
    return seconds if fraction is None else seconds + Fraction(f"0.{fraction[1]}")


class Token(NamedTuple):
    """A piece of an expression.

    kind: the name of a group of TOKEN; "end" after the last one.
    text: its characters.
    at: the position of its first character, from 0 on.
    """

    kind: str
    text: str
    at: int


class _Parser:
    """Parses one expression from left to right, with one token of look-ahead."""

    def __init__(self, text: str, format: Format):
        self._text = text
        self._format = format
        self._tokens = self._split()
        self._next = 0
        self._depth = 0

    def parse(self) -> Condition:
        """Return the condition of the whole text."""
        condition = self._parse_condition()
        if self._token.kind != "end":
            raise self._refuse_next('expected "and", "or" or the end')
        return condition

    # ------------------------------------------------------------------ tokens

    def _split(self) -> list[Token]:
        tokens = []
        at = 0
        while at < len(self._text):
            match = TOKEN.match(self._text, at)
            if match is None or match.lastgroup is None:
                raise self._refuse_characters(at)
            if match.lastgroup != "space":
                tokens.append(Token(match.lastgroup, match[0], at))
            at = match.end()
        return [*tokens, Token("end", "", len(self._text))]

    def _refuse_characters(self, at: int) -> ValueError:
        """Return the error for characters that begin no token."""
        rest = self._text[at:]
        if rest[0] in "\"'":
            return self._make_error("this quotation mark is not closed", at)
        found = Token("other", re.split(r"[\s()]", rest, maxsplit=1)[0] or rest[0], at)
        hint = "; equality is ==" if rest[0] == "=" else ""
        hint = "; there are and, or, not" if rest[0] in "&|!" else hint
        return self._make_error(f"{_show(found)} is not understood{hint}", at)

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _is_next(self, *words: str) -> bool:
        """Return whether the next token is one of some symbols or words in any case."""
        token = self._token
        return token.kind in ("symbol", "name") and token.text.lower() in words

    def _accept(self, *words: str) -> bool:
        """Skip the next token if it is one of some symbols or words."""
        is_next = self._is_next(*words)
        self._next += is_next
        return is_next

    def _expect(self, word: str, place: str) -> None:
        if not self._accept(word):
            raise self._refuse_next(f'expected "{word}" {place}')

    def _refuse_next(self, problem: str) -> ValueError:
        """Return the error for a next token that is not what was expected."""
        return self._make_error(f"{problem}, found {_show(self._token)}", self._token.at)

    def _make_error(self, problem: str, at: int) -> ValueError:
        return ValueError(f"at character {at + 1} of the expression: {problem}")

    # ------------------------------------------------------------------ conditions

    def _parse_condition(self) -> Condition:
        parts = [self._parse_part()]
        while self._accept("or"):
            parts.append(self._parse_part())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _parse_part(self) -> Condition:
        parts = [self._parse_term()]
        while self._accept("and"):
            parts.append(self._parse_term())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _parse_term(self) -> Condition:
        if not self._is_next("not", "("):
            return self._parse_comparison()
        if self._depth == DEEPEST_EXPRESSION:
            raise self._make_error(
                f'"not" and parentheses are nested more than {DEEPEST_EXPRESSION} levels deep',
                self._token.at,
            )
        self._depth += 1
        condition: Condition
        if self._accept("not"):
            condition = Not(self._parse_term())
        else:
            self._next += 1
            condition = self._parse_condition()
            self._expect(")", "or an operator")
        self._depth -= 1
        return condition

    def _parse_comparison(self) -> Condition:
        name = self._token
        if name.kind != "name" or name.text.lower() in KEYWORDS:
            raise self._refuse_next("expected a column")
        column = self._format.describe_column(name.text)
        if column is None:
            raise self._make_error(self._describe_unknown(name.text), name.at)
        self._next += 1
        operator = self._token
        condition = self._parse_operation(name.text, column)
        try:
            check_filters([condition], self._format)
        except (ValueError, TypeError) as error:
            raise self._make_error(str(error), operator.at) from None
        return condition

    def _parse_operation(self, name: str, column: ColumnDescription) -> Filter:
        """Return the filter that an operator and its values form with a column."""
        if self._accept("is"):
            op = "is_not_null" if self._accept("not") else "is_null"
            self._expect("null", 'after "is"')
            return Filter(name, op)
        if self._accept("not"):
            self._expect("in", 'after "not"')
            return Filter(name, "not in", self._parse_values(column))
        if self._accept("in"):
            return Filter(name, "in", self._parse_values(column))
        if self._is_next(*MATCHES):
            op = MATCHES[self._token.text]
            self._next += 1
            return Filter(name, op, self._parse_pattern())
        if self._is_next(*SUBSTRING_OPS):
            op = self._token.text.lower()
            self._next += 1
            return Filter(name, op, self._parse_value(column, op))
        if self._is_next(*COMPARISONS):
            return self._parse_equation(name, column)
        if column.kind is ColumnKind.FLAG:
            return Filter(name, "==", 1)
        raise self._refuse_next(f"expected an operator ({', '.join(OPERATORS)})")

    def _parse_equation(self, name: str, column: ColumnDescription) -> Filter:
        op = self._token.text
        self._next += 1
        if not self._is_next("null"):
            return Filter(name, op, self._parse_value(column, op))
        if op not in ("==", "!="):
            raise self._make_error("null is neither less nor greater", self._token.at)
        self._next += 1
        return Filter(name, "is_null" if op == "==" else "is_not_null")

    def _parse_values(self, column: ColumnDescription) -> list[Any]:
        self._expect("(", 'after "in"')
        values = [self._parse_value(column, "in")]
        while self._accept(","):
            values.append(self._parse_value(column, "in"))
        self._expect(")", "or a comma")
        return values

    def _describe_unknown(self, name: str) -> str:
        """Return the message for a column that does not exist."""
        hint = suggest_name(name, [*self._format.all_columns, FAULT])
        if not hint:
            hint = f"; it has {', '.join(self._format.export_columns)}"
        return f"{self._format.name} has no column {make_visible(name)[:SHOWN]}{hint}"

    # ------------------------------------------------------------------ values

    def _parse_pattern(self) -> str:
        """Return a regular expression as it is written, without its quotation marks."""
        token = self._token
        if token.kind not in ("text", "bytes"):
            raise self._refuse_next("expected a regular expression in quotation marks")
        self._next += 1
        return token.text.removeprefix("b").removeprefix("B")[1:-1]

    def _parse_value(self, column: ColumnDescription, op: str) -> Any:
        """Return the next token as a value of a column."""
        token = self._token
        is_keyword = token.kind == "name" and token.text.lower() in KEYWORDS
        if token.kind in ("end", "symbol") or is_keyword and token.text.lower() not in FLAGS:
            raise self._refuse_next("expected a value")
        self._next += 1
        names = self._list_names(column) if op in (*COMPARISONS, "in") else {}
        if token.kind == "text":
            text = self._unescape(token, is_bytes=False)
            return self._find_text_value(column, text, names, token)
        if token.kind == "bytes":
            return self._unescape(token, is_bytes=True).encode("latin-1")
        if token.kind == "hex":
            return self._read_hex(column, token)
        if token.kind == "number":
            return int(token.text) if token.text.lstrip("+-").isdigit() else Fraction(token.text)
        if token.kind == "time":
            return self._read_time(column, token.text, token)
        if token.kind == "duration":
            return self._read_duration(column, token)
        if column.kind is ColumnKind.FLAG and token.text.lower() in FLAGS:
            return FLAGS[token.text.lower()]
        if names:
            return self._find_name(token.text, names, token)
        raise self._make_error(
            f"expected a value, found {_show(token)}; text is in quotation marks", token.at
        )

    def _find_text_value(
        self, column: ColumnDescription, text: str, names: Mapping[str, Any], token: Token
    ) -> Any:
        """Return the value that a text in quotation marks means for a column."""
        if column.kind is ColumnKind.BYTES:
            try:
                # An argument of the command that is not UTF-8 has its bytes as surrogates.
                return text.encode(errors="surrogateescape")
            except UnicodeEncodeError:
                raise self._make_error("the text has no UTF-8", token.at) from None
        if column.kind is ColumnKind.TIME:
            return self._read_time(column, text, token)
        return self._find_name(text, names, token) if names else text

    def _list_names(self, column: ColumnDescription) -> dict[str, Any]:
        """Return the names that values of a column may be given by, and the values."""
        if column.kind in (ColumnKind.FAULT, ColumnKind.INNERMOST_FAULT):
            return {name: name for name in _list_fault_names(self._format, column.kind)}
        names = column.declared.number_names
        if column.kind is ColumnKind.NAME:
            return {name: name for name in names.values()}
        return {name: number for number, name in names.items()}

    def _find_name(self, name: str, names: Mapping[str, Any], token: Token) -> Any:
        """Return the value of a name: the exact one, or the only one in another case."""
        if name in names:
            return names[name]
        alike = [other for other in names if other.casefold() == name.casefold()]
        if len(alike) == 1:
            return names[alike[0]]
        problem = f"no value has the name {make_visible(name)[:SHOWN]}"
        hint = f"; write {' or '.join(alike)}" if alike else hint_at_names(name, names)
        raise self._make_error(problem + hint, token.at)

    def _read_hex(self, column: ColumnDescription, token: Token) -> bytes | int:
        if column.kind is not ColumnKind.BYTES:
            return int(token.text, 16)
        digits = token.text[2:]
        if len(digits) % 2:
            raise self._make_error("a byte has two digits, and one digit is left", token.at)
        return bytes.fromhex(digits)

    def _read_time(self, column: ColumnDescription, text: str, token: Token) -> Fraction:
        """Return a time in the unit of a column."""
        unit = column.declared.unit
        if unit is None:
            raise self._make_error(f"{_show(token)} is a time, and the column has none", token.at)
        try:
            return parse_time(text) * UNITS[unit]
        except ValueError as error:
            raise self._make_error(str(error), token.at) from None

    def _read_duration(self, column: ColumnDescription, token: Token) -> Fraction:
        """Return a number with a unit of time in the unit of a column."""
        match = DURATION.fullmatch(token.text)
        assert match is not None  # by TOKEN
        if match[2] not in DURATIONS:
            raise self._make_error(
                f"{_show(token)} is not understood; units of time are {', '.join(DURATIONS)}",
                token.at,
            )
        unit = column.declared.duration
        if unit is None:
            raise self._make_error(
                f"{_show(token)} is a duration, but the column {column.name} is not"
                + self._describe_meaning(column),
                token.at,
            )
        return Fraction(match[1]) * DURATIONS[match[2]] * UNITS[unit]

    def _describe_meaning(self, column: ColumnDescription) -> str:
        """Return what a column means, as the end of a message; "" if its format does not say it."""
        meaning = explain_column(column.owner or self._format, column.name)
        hint = "; write times such as 2026-01-01T12:00" if column.declared.unit else ""
        return f": {meaning}{hint}" if meaning else hint

    def _unescape(self, token: Token, *, is_bytes: bool) -> str:
        """Return the characters of a token in quotation marks; those of bytes are below U+0100."""
        start = 2 if is_bytes else 1
        text = token.text[start:-1]

        def replace(match: re.Match[str]) -> str:
            code = match[0][1:]
            is_number = len(code) > 1 and (code[0] == "x") == is_bytes
            if is_number:
                return chr(int(code[1:], 16))
            if code in ESCAPES:
                return ESCAPES[code]
            raise self._make_error(
                f"{_show(Token('escape', match[0], 0))} is no escape of "
                f"{'bytes' if is_bytes else 'text'}",
                token.at + start + match.start(),
            )

        plain = ESCAPE.sub(replace, text)
        if is_bytes and not text.isascii():
            raise self._make_error("write bytes above 0x7f as \\xNN", token.at)
        return plain


def _list_fault_names(format: Format, kind: ColumnKind) -> list[str]:
    """Return the names that a fault of a format, or of one around it, may have."""
    names = [*FAULT_NAMES.values(), *(fault.name for fault in format.faults.values())]
    if kind is ColumnKind.INNERMOST_FAULT and format.within is not None:
        names += _list_fault_names(format_of(format.within), kind)
    return list(dict.fromkeys(names))


def _show(token: Token) -> str:
    """Return a token as it appears in a message."""
    if token.kind == "end":
        return "the end"
    text = make_visible(token.text)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
