"""The client side of the SASL mechanisms, for logging in to a broker.

PLAIN is defined in RFC 4616. SCRAM-SHA-256 and SCRAM-SHA-512 are defined in RFC 5802 and RFC 7677;
the library scramp implements them. `connection.greet` uses this module.
"""

from __future__ import annotations

import re
from collections.abc import Generator

from wirescan.frames.escape import make_visible
from wirescan.frames.optional_packages import name_package

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# Iterations of the password hash. RFC 7677 requires the lower bound; more than the upper bound
# take too long.
ITERATIONS = range(4096, (1 << 17) + 1)
MAX_DIGITS = 9  # of an iteration count that is converted to an integer


def check(sasl: tuple[str, str, str] | None) -> None:
    """Raise ValueError unless `sasl` is None or (mechanism, user, password).

    The mechanism must be one of MECHANISMS, and it must be able to carry the user and password.
    """
    if sasl is None:
        return
    if not (
        isinstance(sasl, (tuple, list))
        and len(sasl) == 3
        and all(isinstance(item, str) for item in sasl)
    ):
        raise ValueError("sasl must be (mechanism, user, password)")
    if sasl[0] not in MECHANISMS:
        raise ValueError(f"the mechanism of sasl must be {', '.join(MECHANISMS)}, not {sasl[0]!r}")
    if sasl[0] == "PLAIN" and "\0" in sasl[1] + sasl[2]:
        raise ValueError("a user or password for PLAIN must not contain NUL")


def login(mechanism: str, user: str, password: str, server: str) -> Generator[bytes, bytes, None]:
    """Yield the client's messages and receive the server's; end when the login is complete.

    With SCRAM the login is complete when the server has proved that it knows the password.
    `server` names the server in error messages.

    Raises PermissionError where the server's messages do not follow the mechanism, or where the
    server does not know the password. Raises ImportError for SCRAM without scramp (the extra
    `sasl`).
    """
    if mechanism == "PLAIN":
        yield b"\0" + user.encode() + b"\0" + password.encode()
        return
    with name_package("scramp", "SCRAM", "'wirescan[sasl]'"):
        from scramp import ScramClient, ScramException

    try:
        client = ScramClient([mechanism], user, password)
        first = yield client.get_client_first().encode()
        for rounds in re.findall(r"(?:^|,)i=([^,]*)", first.decode()):
            is_number = rounds.isdecimal() and len(rounds) <= MAX_DIGITS
            if not (is_number and int(rounds) in ITERATIONS):
                raise PermissionError(
                    f"{server} asks for {rounds[:20]!r} iterations of the password hash; "
                    f"{ITERATIONS[0]} to {ITERATIONS[-1]} are allowed"
                )
        client.set_server_first(first.decode())
        final = yield client.get_client_final().encode()
        client.set_server_final(final.decode())
    except (ScramException, ValueError, LookupError, TypeError) as error:
        raise PermissionError(
            f"{server} does not know the password or does not implement {mechanism}: "
            f"{make_visible(error)}"
        ) from error
