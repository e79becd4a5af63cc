"""Hints for names that do not exist: a similar name, or else all names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST_NAME = 100  # characters of a name that are compared
SIMILARITY = 0.75  # of difflib: two swapped letters of four are similar enough


def suggest_name(name: object, names: Iterable[str]) -> str:
    """Return the end of a message: the most similar name; an empty string if none is similar.

    name: the name that does not exist. Upper and lower case count as similar.
    names: the names that exist.
    """
    similar = find_similar(name, names)
    return "" if similar is None else f"; did you mean {similar}?"


def hint_at_names(name: object, names: Iterable[str], verb: str = "there are") -> str:
    """Return the end of a message: the most similar name, or else all names."""
    names = list(names)
    return suggest_name(name, names) or f"; {verb} {', '.join(names)}"


def find_similar(name: object, names: Iterable[str]) -> str | None:
    """Return the most similar one of some names; None if none is similar."""
    if not isinstance(name, str):
        return None
    by_lower_case = {other.lower(): other for other in names}
    found = difflib.get_close_matches(
        name.lower()[:LONGEST_NAME], list(by_lower_case), 1, SIMILARITY
    )
    return by_lower_case[found[0]] if found else None
