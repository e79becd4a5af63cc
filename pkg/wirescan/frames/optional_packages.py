"""Errors about packages that are not installed name what to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def name_package(package: str, user: str, install: str) -> Iterator[None]:
    """Add to an ImportError about a package what to install. Other errors are unchanged.

    Args:
        package: the package that is imported.
        user: what needs it, as in "to_polars".
        install: the arguments of `pip install`.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        message = f"{user} needs {package}: pip install {install}"
        raise ModuleNotFoundError(message, name=package) from error
