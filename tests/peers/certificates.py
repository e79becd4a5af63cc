"""A certificate authority and a broker's certificate for 127.0.0.1, made with openssl."""

import subprocess
from pathlib import Path

STORE_PASSWORD = "a store's password"
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def make_certificates(home: Path) -> Path:
    """Make an authority and a broker's certificate in a directory. Return home/broker.p12.

    broker.p12 holds the broker's key and chain. Clients trust home/authority.pem.
    """
    authority_key = home / "authority.key"
    authority = home / "authority.pem"
    broker_key = home / "broker.key"
    request = home / "broker.csr"
    signed = home / "broker.pem"
    extensions = home / "broker.ext"
    store = home / "broker.p12"
    # RFC 5280 requires a key usage and a critical basic constraint. Python 3.13 checks that.
    run_openssl(
        "req",
        "-x509",
        *NEW_KEY,
        "-keyout",
        authority_key,
        "-out",
        authority,
        "-subj",
        "/CN=wirescan's test authority",
        "-addext",
        "keyUsage=critical,keyCertSign",
    )
    run_openssl("req", *NEW_KEY, "-keyout", broker_key, "-out", request, "-subj", "/CN=broker")
    extensions.write_text(
        "subjectAltName=IP:127.0.0.1,DNS:localhost\n"
        "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
    )
    run_openssl(
        "x509",
        "-req",
        "-in",
        request,
        "-CA",
        authority,
        "-CAkey",
        authority_key,
        "-CAcreateserial",
        "-extfile",
        extensions,
        "-out",
        signed,
    )
    run_openssl(
        "pkcs12",
        "-export",
        "-inkey",
        broker_key,
        "-in",
        signed,
        "-certfile",
        authority,
        "-name",
        "broker",
        "-passout",
        f"pass:{STORE_PASSWORD}",
        "-out",
        store,
    )
    return store


def run_openssl(*arguments: object) -> None:
    """Run openssl. Raises RuntimeError with its error output if it fails."""
    completed = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=60
    )
    if completed.returncode:
        raise RuntimeError(
            f"openssl {arguments[0]} ended with {completed.returncode}:\n{completed.stderr}"
        )
