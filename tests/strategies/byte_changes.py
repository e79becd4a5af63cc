"""Changes of bytes that the mutations of every protocol make."""

from hypothesis.strategies import DrawFn, SearchStrategy

from tests.strategies import shared as st

BYTE_CHANGES = ("flip", "byte", "cut", "tail", "insert")


def change_bytes(
    draw: DrawFn,
    out: bytearray,
    at: int,
    kind: str,
    *,
    inserted: SearchStrategy[bytes],
    values: SearchStrategy[int] | None = None,
    longest: int,
) -> None:
    """Change bytes in place, from the position `at` on.

    kind: one of BYTE_CHANGES: flip a bit, set a byte, remove bytes, remove the rest, insert bytes.
        Without bytes, the first two change nothing.
    inserted: the bytes that are inserted. values: those of a byte that is set.
    longest: the most bytes that are removed.
    """
    if not out and kind in ("flip", "byte"):
        return
    if kind == "flip":
        out[at] ^= 1 << draw(st.integers(0, 7))
    elif kind == "byte":
        assert values is not None
        out[at] = draw(values)
    elif kind == "cut":
        del out[at : at + draw(st.integers(1, longest))]
    elif kind == "tail":
        del out[at:]
    else:
        out[at:at] = draw(inserted)
