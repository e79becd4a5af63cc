"""Lazy names of a package: its modules are imported when a name is first used.

The `__init__` files of the protocol packages use it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from wirescan.frames.optional_packages import name_package


def make_lazy_names(
    package: str, modules: Mapping[str, str], extras: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` for a package.

    package: the name of the package.
    modules: name -> the module that defines it, relative to the package.
    extras: name -> the extra that installs pyarrow, for the names whose modules import it. Without
        pyarrow, the first use of such a name raises ModuleNotFoundError that names the extra.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        path = f"{package}.{modules[name]}"
        if name not in extras:
            return getattr(import_module(path), name)
        with name_package("pyarrow", name, f"'wirescan[{extras[name]}]'"):
            return getattr(import_module(path), name)

    def list_names() -> list[str]:
        return [*vars(sys.modules[package]), *modules]

    return get, list_names
