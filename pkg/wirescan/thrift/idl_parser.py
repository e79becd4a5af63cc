"""Parse an IDL with thriftpy2, and say where it is wrong and what was expected there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

# thriftpy2's messages: an unexpected token, or the end of the file.
UNEXPECTED = re.compile(
    r"Grammar error (?P<token>.*) at line (?P<line>\d+) of the file '(.*)'", re.S
)
AT_END = re.compile(r"Grammar error at EOF of the file '(.*)'", re.S)
NOT_INCLUDED = re.compile(r"Couldn't include thrift (.*) in any directories provided", re.S)
TOKEN_NAMES = {
    "IDENTIFIER": "a name",
    "LITERAL": "a quoted text",
    "INTCONSTANT": "an integer",
    "DUBCONSTANT": "a number with a point",
    "BOOLCONSTANT": "true or false",
    "$end": "the end of the file",
}
MOST_EXPECTED = 12  # tokens that a message lists


def parse_idl(path: str, name: str, include: Sequence[str]) -> ModuleType:
    """Return a file as a module of thriftpy2.

    path: an absolute path. name: the name of the module. include: directories with files that the
    IDL includes, besides those beside it and in the current directory.

    Raises ValueError for an IDL that cannot be parsed, with the line and what was expected there.
    Raises OSError for a file that cannot be read, and ImportError if thriftpy2 is not installed.
    """
    try:
        from ply import lex, yacc
        from thriftpy2.parser import parser as grammar
    except ImportError as error:
        raise ImportError(
            "an IDL is parsed by thriftpy2: pip install 'wirescan[thrift]'"
        ) from error
    lexer = lex.lex(module=grammar)
    parser = yacc.yacc(module=grammar, debug=False, write_tables=False)
    folders = [".", *include]
    try:
        # thriftpy2 has no annotations.
        module: ModuleType = grammar.parse(
            path, name, include_dirs=folders, lexer=lexer, parser=parser, enable_cache=False
        )
        return module
    except OSError:
        raise
    # A broken IDL raises errors of thriftpy2 and ply, and any error of Python.
    except Exception as error:
        raise make_parse_error(path, _describe(error, path, lexer, parser)) from error


def make_parse_error(path: str, problem: object) -> ValueError:
    """Return the error for an IDL that cannot be parsed."""
    return ValueError(f"{path} cannot be parsed: {problem}")


def _describe(error: Exception, path: str, lexer: Any, parser: Any) -> str:
    """Return what is wrong with an IDL: where, and what was expected."""
    text = str(error) or type(error).__name__
    if end := AT_END.fullmatch(text):
        if end[1] == path:
            return f"the file ends too early{_list_expected(parser)}"
        return f"the included file {end[1]} ends too early"
    if included := NOT_INCLUDED.fullmatch(text):
        return (
            f"the included file {included[1]} is neither beside it nor in the current directory; "
            "name its directory with the option idl_include"
        )
    unexpected = UNEXPECTED.fullmatch(text)
    if unexpected is None and not type(error).__module__.startswith("thriftpy2."):
        # thriftpy2 does not check what names are for, and fails where it uses them.
        problem = f"{type(error).__name__}: {text}"
        return (
            f"thriftpy2 fails at or before line {lexer.lineno}, or in an included file ({problem})"
        )
    if unexpected is None:
        return text
    place = f"line {unexpected['line']}"
    token = unexpected["token"]
    if unexpected[3] != path:
        return f"{place} of the included file {unexpected[3]}: {token} is not expected"
    column = _find_column(path, lexer.lexpos, token)
    place += f", character {column}" if column else ""
    return f"{place}: {token} is not expected{_list_expected(parser)}"


def _find_column(path: str, stop: int, token: str) -> int | None:
    """Return the position in its line, from 1 on, of a token that ends at `stop`.

    Returns None if the token is not written as thriftpy2 repeats it, such as a number.
    """
    data = Path(path).read_text(encoding="utf-8")
    word = token.strip("'")
    start = stop - len(word)
    if data[start:stop] != word:
        return None
    return start - data.rfind("\n", 0, start)


def _list_expected(parser: Any) -> str:
    """Return "; expected ..." with the tokens that may follow where a parser has stopped."""
    states = getattr(parser, "statestack", None)
    if not states:
        return ""
    tokens = sorted(parser.action[states[-1]])
    names = [TOKEN_NAMES.get(token) or f"'{token.lower()}'" for token in tokens]
    if not names:
        return ""
    more = ", ..." if len(names) > MOST_EXPECTED else ""
    return f"; expected {' or '.join(names[:MOST_EXPECTED])}{more}"
