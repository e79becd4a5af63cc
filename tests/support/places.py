"""Copies of the bytes that the places of rows point at. A null place gives None."""


def copy_bytes(view: memoryview | None) -> bytes | None:
    return None if view is None else bytes(view)


def decode_text(view: memoryview | None) -> str | None:
    return None if view is None else bytes(view).decode()
