"""TLS of the commands `receive` and `send`, from files in PEM."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from wirescan.cli.exit_codes import Failure, describe_error
from wirescan.cli.output import format_path


def make_server_context(
    tls: tuple[str, str] | None, client_ca: str | None
) -> ssl.SSLContext | None:
    """Return the TLS context of a server; None without TLS.

    Args:
        tls: files of the certificate and its key; None for no TLS.
        client_ca: file of the authorities for clients; None accepts every client.

    Raises:
        Failure: if a file cannot be used.
    """
    if tls is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with _report_files(*tls, client_ca):
        context.load_cert_chain(*tls, password=partial(_refuse_password, tls[1]))
        if client_ca:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    return context


def make_client_context(
    authorities: str | None, certificate: tuple[str, str] | None, *, use_tls: bool
) -> ssl.SSLContext | None:
    """Return the TLS context of a client; None without TLS.

    Args:
        authorities: file of the trusted authorities; None for those of the system.
        certificate: files of the client's certificate and key.
        use_tls: use TLS without either of them too.

    Raises:
        Failure: if a file cannot be used.
    """
    if not (use_tls or authorities or certificate):
        return None
    with _report_files(authorities, *(certificate or ())):
        context = ssl.create_default_context(cafile=authorities)
        if certificate:
            key = certificate[1]
            context.load_cert_chain(*certificate, password=partial(_refuse_password, key))
    return context


@contextmanager
def _report_files(*files: str | None) -> Iterator[None]:
    """Raise Failure with the names of the files where one cannot be used."""
    try:
        yield
    except OSError as error:  # ssl.SSLError is one
        names = ", ".join(map(format_path, filter(None, files)))
        raise Failure(f"TLS: {describe_error(error)} ({names})") from None


def _refuse_password(path: str) -> str:
    """Raise Failure: ssl asks for the password of an encrypted key."""
    raise Failure(f"{format_path(path)} asks for a password; give a key that is not encrypted")
