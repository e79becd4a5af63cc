"""Hypothesis strategies that are built only once for the same arguments.

Building and validating a strategy costs more than drawing from it. Functions with `@composite`
build the same strategies again for every example. Inside such functions, import this module as `st`
in place of `hypothesis.strategies`. It draws the same examples.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from hypothesis import strategies
from hypothesis.strategies import (
    SearchStrategy,
    builds,
    composite,
    data,
    fixed_dictionaries,
    permutations,
)

__all__ = [
    "binary",
    "booleans",
    "builds",
    "builds_once",
    "composite",
    "data",
    "fixed_dictionaries",
    "floats",
    "integers",
    "just",
    "lists",
    "none",
    "one_of",
    "permutations",
    "sampled_from",
    "sets",
    "text",
    "tuples",
]
CACHED_STRATEGIES = 4096  # per function


def builds_once(function: Callable) -> Callable:
    """Decorate a builder of strategies, so that the same arguments give the same strategy.

    Arguments that cannot be hashed get a new strategy in each call. Equal numbers of different
    types, such as 1 and True, are different arguments.
    """
    cached = lru_cache(CACHED_STRATEGIES, typed=True)(function)

    def build(*arguments: Any, **options: Any) -> SearchStrategy:
        try:
            return cached(*arguments, **options)
        except TypeError:
            return function(*arguments, **options)

    return build


def sampled_from(elements: Iterable) -> SearchStrategy:
    """Draw one of the elements, like hypothesis's function of this name."""
    elements = tuple(elements)
    try:
        return _sampled_from(elements, tuple(map(type, elements)))
    except TypeError:
        return strategies.sampled_from(elements)


@lru_cache(CACHED_STRATEGIES)
def _sampled_from(elements: tuple, types: tuple) -> SearchStrategy:
    return strategies.sampled_from(elements)


binary = builds_once(strategies.binary)
booleans = builds_once(strategies.booleans)
floats = builds_once(strategies.floats)
integers = builds_once(strategies.integers)
just = builds_once(strategies.just)
lists = builds_once(strategies.lists)
none = builds_once(strategies.none)
one_of = builds_once(strategies.one_of)
sets = builds_once(strategies.sets)
text = builds_once(strategies.text)
tuples = builds_once(strategies.tuples)
