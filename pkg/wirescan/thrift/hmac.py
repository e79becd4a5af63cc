"""Make the macs of the old transform HMAC, for `transforms.py` and `encode.py`."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any


def make_signer(key: bytes, hash: Any) -> Callable[[Any], bytes]:
    """Return a function that makes the mac of a bytes-like object.

    key: the secret. hash: hashlib's name of the hash, or a constructor of its kind.

    Raises TypeError for a hash of another type, ValueError for a hash that cannot make macs.
    """

    def sign(data: Any) -> bytes:
        return hmac.digest(key, data, hash)

    if not isinstance(hash, str) and not callable(hash):
        raise TypeError(f"hash must be a name or a constructor of hashlib, not {hash!r:.80}")
    try:
        sign(b"")
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            f"hash {hash!r:.80} is not a hash of hashlib that can make a mac"
        ) from None
    return sign
