"""Addresses and ports as text: "10.0.0.1:9092", "[::1]:9092"."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address

import numpy as np

from wirescan.frames.table import FrameTable

WIDTH = 16  # bytes of an address of IPv6; one of IPv4 is padded


def format_endpoints(table: FrameTable, side: str) -> list[str | None]:
    """Return the endpoint of each row as text, None for a row without an address.

    table: rows with a place `<side>_address` of 4 or 16 bytes, and a column `<side>_port`. side: a
    name such as "client". Each endpoint is formatted once.
    """
    if not len(table):
        return []
    sizes = table.rows[f"{side}_address_size"]
    keys = np.zeros((len(table), WIDTH + 3), np.uint8)
    keys[:, :WIDTH] = _gather_addresses(table, side, sizes)
    keys[:, WIDTH] = np.where(table.bad, 0, np.maximum(sizes, 0))
    ports = table.rows[f"{side}_port"].astype(">u2")
    keys[:, WIDTH + 1 :] = ports.view(np.uint8).reshape(-1, 2)
    words = keys.view(f"V{WIDTH + 3}").ravel()
    unique, places = np.unique(words, return_inverse=True)
    texts = [_format(bytes(key)) for key in unique]
    return [texts[place] for place in places.tolist()]


def _gather_addresses(table: FrameTable, side: str, sizes: np.ndarray) -> np.ndarray:
    """Return the addresses as an array of bytes with WIDTH columns."""
    addresses = np.zeros((len(table), WIDTH), np.uint8)
    rows = table.rows
    starts = rows["start"] + rows[f"{side}_address_at"]
    fits = (rows[f"{side}_address_at"].astype(np.int64) + sizes <= rows["size"]) & (starts >= 0)
    for number, buffer in enumerate(table.buffers):
        view = np.frombuffer(buffer, np.uint8)
        for size in (4, WIDTH):
            chosen = np.flatnonzero(
                (rows["buffer"] == number) & (sizes == size) & fits & (starts <= len(view) - size)
            )
            addresses[chosen, :size] = view[starts[chosen, None] + np.arange(size)]
    return addresses


@lru_cache(1 << 12)  # each piece of a capture has the same connections
def _format(key: bytes) -> str | None:
    """Return the text of an address, its size and a port."""
    size = key[WIDTH]
    if size not in (4, WIDTH):
        return None
    address = ip_address(key[:size])
    port = int.from_bytes(key[WIDTH + 1 :])
    return f"[{address}]:{port}" if size == WIDTH else f"{address}:{port}"
