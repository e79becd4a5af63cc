"""The errors of functions that read a whole file, such as an index."""

from collections.abc import Callable

import pytest

from wirescan import Fault, FrameError


def catch_file_error(read: Callable[[str], object], path: str) -> tuple[Fault, int, int]:
    """Return (fault, position, row) of the error that `read` raises for a file."""
    with pytest.raises(FrameError) as caught:
        read(path)
    assert caught.value.source == path
    assert str(caught.value)
    return Fault(caught.value.fault), caught.value.offset, caught.value.row
