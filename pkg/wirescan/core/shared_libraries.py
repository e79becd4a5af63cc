"""Functions of C libraries that Python packages bring, looked up at run time.

So no headers of these libraries are needed, and a missing library is no error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import PathFinder


def list_library_paths(package: str, module: str, *libraries: str) -> Iterator[str]:
    """Yield the files that may export a library's functions.

    The package is not imported. Python without a GIL would enable the GIL for an extension module
    that does not support its absence.

    package: the package whose extension module contains the library.
    module: the name of that module in the package.
    libraries: file names of the library in the system.
    """
    parent = PathFinder.find_spec(package)
    if parent is not None and parent.submodule_search_locations:
        extension = PathFinder.find_spec(module, list(parent.submodule_search_locations))
        if extension is not None and extension.origin:
            yield extension.origin
    yield from libraries


def find_functions(paths: Iterable[str | None], names: Sequence[str]) -> list[int] | None:
    """Return the addresses of functions, from the first library that exports all of them.

    paths: files of libraries. None: what the process has loaded already.
    names: the functions.

    Returns None if no library exports them all.
    """
    for path in paths:
        try:
            library = ctypes.CDLL(path)
            functions = [getattr(library, name) for name in names]
        except (AttributeError, OSError, TypeError):  # None is a TypeError on Windows
            continue
        return [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]
    return None
