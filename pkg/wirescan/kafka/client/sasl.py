"""The mechanisms of SASL: what a client says to log in.

PLAIN is RFC 4616. SCRAM-SHA-256 and SCRAM-SHA-512 are RFC 5802 and RFC 7677, by the library scramp.
"""
from __future__ import annotations

import re
from collections.abc import Generator

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS = range(4096, (1 << 17) + 1)         # of the password's hash: as RFC 7677 asks for; more take too long


def check(sasl: tuple[str, str, str] | None) -> None:
    """Raises ValueError unless `sasl` is None or (mechanism, user, password), of a mechanism that is known here and can
    carry them."""
    if sasl is None:
        return
    if not (isinstance(sasl, (tuple, list)) and len(sasl) == 3 and all(isinstance(one, str) for one in sasl)):
        raise ValueError("sasl must be (mechanism, user, password)")
    if sasl[0] not in MECHANISMS:
        raise ValueError(f"sasl has the mechanisms {', '.join(MECHANISMS)}, not {sasl[0]!r}")
    if sasl[0] == "PLAIN" and "\0" in sasl[1] + sasl[2]:
        raise ValueError("PLAIN can carry no NUL in a user or password")


def login(mechanism: str, user: str, password: str, where: str) -> Generator[bytes, bytes, None]:
    """Yields the client's messages, and is sent the server's. Ends when the server has proved itself, or need not.

    Raises PermissionError where the server's messages are not what the mechanism says or it does not know the password;
    ImportError for SCRAM without scramp (the extra `sasl`)."""
    if mechanism == "PLAIN":
        yield b"\0" + user.encode() + b"\0" + password.encode()
        return
    from scramp import ScramClient, ScramException
    try:
        client = ScramClient([mechanism], user, password)
        first = yield client.get_client_first().encode()
        for rounds in re.findall(r"(?:^|,)i=([^,]*)", first.decode()):
            if not (rounds.isdecimal() and len(rounds) < 10 and int(rounds) in ITERATIONS):
                raise PermissionError(f"{where} asks for {rounds[:20]!r} iterations of the password's hash; "
                                      f"{ITERATIONS[0]} to {ITERATIONS[-1]} are allowed")
        client.set_server_first(first.decode())
        final = yield client.get_client_final().encode()
        client.set_server_final(final.decode())
    except (ScramException, ValueError, LookupError, TypeError) as error:
        raise PermissionError(f"{where} does not know the password, or speaks no {mechanism}: {error}") from error
