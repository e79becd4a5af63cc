"""The directory of the C headers, for packages that cimport `wirescan.core`."""

from __future__ import annotations

from pathlib import Path


def get_include() -> str:
    """Return the directory of the core's C headers.

    It belongs in `include_dirs` of an extension that cimports `wirescan.core`.
    """
    return str(Path(__file__).parent)
