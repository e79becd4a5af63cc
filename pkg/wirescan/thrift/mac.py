"""Codes of the old transform HMAC."""
from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any


def signer(key: bytes, hash: Any) -> Callable[[Any], bytes]:
    """A function of bytes that makes their code. hash: what hashlib calls it, or a constructor of its kind.

    Raises TypeError for a hash of another type, ValueError for one that no code can be made with."""
    def sign(data: Any) -> bytes:
        return hmac.digest(key, data, hash)

    if not isinstance(hash, str) and not callable(hash):
        raise TypeError(f"hash must be a name or a constructor of hashlib, not {hash!r:.80}")
    try:
        sign(b"")
    except (AttributeError, TypeError, ValueError):
        raise ValueError(f"hash {hash!r:.80} is not one of hashlib that a mac can be made with") from None
    return sign
